"""Precision: one mode for all programs; float32 and float64 are dtypes of arrays, never modes.

JAX has a switch, `jax_enable_x64`. While it is off, NumPy's float64 numbers silently become float32 and
integers 32 bits wide. Three facts about it (JAX 0.10.2) shape this library:

- A function that is traced while the switch is on, inside a program that is compiled while it is off, ends
  in dtype errors as soon as it uses an integer (`argmax`, an index), whose width changes on the way.
- Inner programs (`jax.jit`, `jnp.where`, loops) are remembered between traces together with the NumPy arrays
  that they close over, in the precision of the first trace. A later trace in the other mode gets arrays
  of the wrong precision.
- Results depend on the caller's mode, which the same call in another script need not share.

So every public call opens `x64()` around its whole body, and nothing inside changes the mode again. In that
mode a NumPy float64 number that meets a float32 array makes a float64 array: objects are therefore `cast` to
the dtype of a program before they enter it, and what a user's function returns is taken `like` its point.
The mode is local to the call and to its thread; importing or using the library changes nothing global.
"""

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, PRNGKeyArray

from ._arguments import reals

# Numbers in objects are NumPy float64 arrays; inside compiled code the same fields hold tracers.
# (A checker sees `Any`: NumPy times JAX is JAX, which it cannot know.)
if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = np.ndarray | jax.Array

_Function = TypeVar("_Function", bound=Callable[..., Any])


@contextmanager
def x64() -> Any:
    """The one mode of our programs: around the body of a public call, or as a decorator `@x64()`."""
    with jax.enable_x64(True):
        yield


def is_x64() -> bool:
    """Whether the caller's code runs with x64, as a user's own trace may or may not."""
    return bool(jax.config.read("jax_enable_x64"))


def as_called(function: _Function) -> _Function:
    """The function, to be called in the mode that is set now: a user's callback keeps its user's mode."""
    mode = is_x64()

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        with jax.enable_x64(mode):
            return function(*arguments, **options)

    return called  # pyright: ignore[reportReturnType]


def number(value: Any) -> np.ndarray:
    """A number as objects hold it: a NumPy float64 array, which enters programs as an argument."""
    return reals("It", value)


def cast(tree: Any, dtype: DTypeLike) -> Any:
    """The tree with all its floating-point arrays, NumPy's and JAX's, in another precision."""

    def one(leaf: Any) -> Any:
        array = isinstance(leaf, jax.Array | np.ndarray)
        if not array or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        if leaf.dtype == jnp.dtype(dtype):
            return leaf
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
            # On the host: a program for every shape would take longer to compile than the copy takes.
            return jnp.asarray(np.asarray(leaf).astype(dtype))
        return leaf.astype(dtype)

    return jax.tree.map(one, tree)


def copied(tree: Any) -> Any:
    """The tree with copies of its NumPy arrays.

    JAX remembers arrays that programs close over by identity (see the head of this file). A copy is unknown
    to that memory, so that a program of ours cannot meet an array which a user's program, traced in
    another mode, has closed over before.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def like(x: Array, value: Any) -> Array:
    """What a user's function returned, as an array of the precision of its point `x`."""
    return jnp.asarray(value).astype(x.dtype)


def key_from(seed: int, *folds: int) -> PRNGKeyArray:
    """A key from a seed and further numbers, whatever generator the caller has made JAX's default."""
    key = jr.key(seed, impl="threefry2x32")
    for fold in folds:
        key = jr.fold_in(key, fold)
    return key


def keys_from(seed: int, count: int) -> list[PRNGKeyArray]:
    """Independent keys from a seed of any size (JAX's own seeds have 32 or 64 bits, by the mode)."""
    words = np.random.SeedSequence(seed).generate_state(2 * count).reshape(count, 2)
    return [jr.wrap_key_data(jnp.asarray(pair), impl="threefry2x32") for pair in words]


# Numbers of an array of points, one row a point: 32 points in a million dimensions.
_NUMBERS = 2**25


def fitting(count: int, dim: int, *, least: int = 1, numbers: int = _NUMBERS) -> int:
    """`count` points, or as many fewer as leaves them at most so many `numbers`, but never below `least`."""
    return int(max(min(count, numbers // dim), min(least, count)))


def few_at_a_time(function: Callable[[Array], Any], points: Any, numbers: int = _NUMBERS) -> Any:
    """`function` of all points inside a program, of as many together as have at most so many numbers."""
    size = fitting(len(points), points.shape[1], numbers=numbers)
    if size == len(points):
        return jax.vmap(function)(points)
    return jax.lax.map(function, points, batch_size=size)


def by_chunks(
    program: Callable[[np.ndarray], Any],
    points: np.ndarray,
    size: int,
    dtype: DTypeLike = np.float64,
) -> Any:
    """A compiled function of `(size, d)` points for any number of rows; results as NumPy arrays.

    The last chunk is filled up with its first row, which lies wherever the caller's points lie. One shape
    means one program, and the bits of a row do not depend on how many others were asked for.
    """
    parts = []
    for start in range(0, max(len(points), 1), size):
        part = points[start : start + size].astype(dtype)
        filler = part[:1] if len(part) else np.zeros((1, *points.shape[1:]), dtype)
        padded = np.concatenate([part, np.repeat(filler, size - len(part), axis=0)])
        rows = functools.partial(_first_rows, len(part))
        parts.append(jax.tree.map(rows, program(padded)))
    return jax.tree.map(lambda *rows: np.concatenate(rows), *parts)


def _first_rows(count: int, array: Any) -> np.ndarray:
    return np.asarray(array)[:count]
