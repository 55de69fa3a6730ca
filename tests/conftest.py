"""Shapes are checked at run time and implicit rank promotion raises, in tests only."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
hook = install_import_hook("qpde", "beartype.beartype")
import qpde  # noqa: E402, F401

hook.uninstall()
