"""Compiled programs in memory: a loop over ever new equations does not fill it.

JAX keeps every program that it has compiled, about 24 MB for each new equation that is solved. Here the
equations are counted, and when there are too many the programs of this library are forgotten: what is still
needed compiles again. A problem that is solved again and again counts once. A user's own programs stay.
"""

import sys
import threading
from typing import Any

import equinox as eqx
import jax

LIMIT = 12
_seen: set[int] = set()
_guard = threading.Lock()


def make_room(problem: Any) -> None:
    """Note that a problem is about to be solved; forget our programs where too many are in memory."""
    # Numbers, and notes of how a problem was built, are no part of a program.
    leaves, structure = jax.tree.flatten(eqx.filter(problem, eqx.is_array, inverse=True))
    key = hash((structure, tuple(leaf for leaf in leaves if not isinstance(leaf, str))))
    with _guard:
        full = len(_seen) >= LIMIT and key not in _seen
        if full:
            _seen.clear()
        _seen.add(key)
    if full:
        _forget()


def _forget() -> None:
    """Drop what was compiled of the jitted functions of this library, which stand at the top of its files."""
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != package:
            continue
        for value in list(vars(module).values()):
            if not isinstance(value, type) and callable(getattr(value, "clear_cache", None)):
                value.clear_cache()
