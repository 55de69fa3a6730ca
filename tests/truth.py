"""Exact solutions at many points."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import qpde


def exact_values(problem: qpde.Problem, points: Any) -> np.ndarray:
    """The exact solution at points `(n, d)`, in float64."""
    assert problem.exact is not None
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(problem.exact)(jnp.asarray(points)))
