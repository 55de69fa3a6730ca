"""Work in blocks that do not depend on the number of processes: inside programs, and between them.

A compiler rounds a program for several processes in another way than one for a single process, because it
joins other operations (measured: other last bits after four steps). So there are no such programs here. A
step that asks for shared work, by `mapped`, is compiled as several programs of one process: the first ends
with one item of the first work asked for, the next begins anew with the results of that, and so on; the last
does the whole step from all results. Every process runs the same programs for its own items.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .place import gathered, here


class _Reached(Exception):
    """A step has come to shared work whose results are not there yet."""

    def __init__(self, item: Any, count: int):
        super().__init__()
        self.item, self.count = item, count


class _Phase:
    """The part of a step that is being traced: the results that are there, and the item that is wanted."""

    now: "_Phase | None" = None

    def __init__(self, results: tuple[Any, ...], index: Any):
        self.results, self.index, self.seen = results, index, 0


def is_shared() -> bool:
    """Whether `mapped` shares its work here."""
    return _Phase.now is not None


def mapped(function: Callable[[Any], Any], count: int) -> Any:
    """`function(0), ..., function(count - 1)`, stacked; shared by all processes inside a `phase`.

    It is called at the top of a step there, not inside loops or functions that are mapped or differentiated.
    """
    phase = _Phase.now
    if phase is None:
        return jax.lax.map(function, jnp.arange(count))
    number, phase.seen = phase.seen, phase.seen + 1
    if number < len(phase.results):
        return phase.results[number]
    raise _Reached(function(phase.index), count)


def phase(
    function: Callable[..., Any], arguments: tuple[Any, ...], results: tuple[Any, ...], index: Any
) -> tuple[Any, int | None]:
    """What a step gives, and None; or one item of work whose results are not there yet, and their number.

    It stands inside a compiled function.
    """
    _Phase.now = _Phase(results, index)
    try:
        return function(*arguments), None
    except _Reached as reached:
        return reached.item, reached.count
    finally:
        _Phase.now = None


def added(rows: Any) -> Any:
    """The sum of stacked arrays, one after the other."""

    def one(stack: Any) -> Any:
        total = stack[0]
        for row in stack[1:]:
            total = total + row
        return total

    return jax.tree.map(one, rows)


def stacked(function: Callable[[int], Any], count: int) -> Any:
    """`function(0), ..., function(count - 1)` as NumPy arrays, stacked; every process computes its share.

    The results have one shape.
    """
    place = here()
    own, several = (0, 1) if place is None else (place.index, place.count)
    each = -(-count // several)
    # All begin before the first is waited for; the last process may do an item that another does too.
    begun = [function(min(own * each + j, count - 1)) for j in range(each)]
    rows = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *begun)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:count], gathered(rows))


def shared(function: Callable[[int], Any], count: int) -> list[Any]:
    """The same, one by one."""
    rows = stacked(function, count)
    return [jax.tree.map(lambda a, i=i: a[i], rows) for i in range(count)]
