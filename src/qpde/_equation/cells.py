"""Boxes that cover a domain, for interval arithmetic."""

import numpy as np

from .._domain.base import AbstractDomain

# Cells into which the domain's box is cut along every axis, by dimension; one box beyond.
_CELLS = {1: 4_096, 2: 64, 3: 16}


def covering_box(domain: AbstractDomain) -> tuple[np.ndarray, np.ndarray]:
    """The enclosing box, rounded outwards where its corners are sums of floats."""
    lower, upper = (np.asarray(end) for end in domain.enclosing_box)
    if domain.fills_box or not np.any(np.asarray(domain.centre)):
        return lower, upper
    return np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)


def cells(domain: AbstractDomain) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of boxes that cover the domain, `(n, d)` each."""
    lower, upper = covering_box(domain)
    count = _CELLS.get(domain.dim, 1) if np.all(np.isfinite([lower, upper])) else 1
    if count == 1:
        return lower[None], upper[None]
    axes = [np.arange(count)] * domain.dim
    index = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, domain.dim)
    width = (upper - lower) / count
    # The last cell ends exactly where the box does.
    return lower + index * width, np.where(index + 1 == count, upper, lower + (index + 1) * width)
