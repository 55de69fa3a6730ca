"""Shapes are checked at run time and implicit rank promotion raises, in tests only.

Compiled programs are kept in `.pytest_cache/jax`: most of the suite's time is compilation, and the processes
that run it share much of it.
"""

from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
hook = install_import_hook("qpde", "beartype.beartype")
import qpde  # noqa: E402

hook.uninstall()
qpde.cache_compilations(Path(__file__).parents[1] / ".pytest_cache" / "jax")


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Programs of a file are dropped after it: kept, they fill gigabytes. The disk has them."""
    yield
    jax.clear_caches()
