"""Random numbers for points.

The generator is JAX's (Threefry-2x32 with 20 rounds, the counters 0, 1, 2, ... in two halves), written so
that it compiles to one loop; `jax.random.bits` gives the same numbers under
`jax.threefry_partitionable(False)`, but takes several times as long on a processor.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def bits(key: PRNGKeyArray, n: int) -> UInt32[Array, " n"]:
    """`n` words of 32 random bits."""
    first, second = jr.key_data(key)
    keys = (first, second, first ^ second ^ jnp.uint32(0x1BD11BDA))
    half = (n + 1) // 2
    counter = jax.lax.iota(jnp.uint32, half)
    # An odd n is filled up with the counter 0, as JAX does it.
    x, y = counter, jnp.where(counter + half < n, counter + half, 0).astype(jnp.uint32)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for shift in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << shift) | (y >> (32 - shift))
            y = x ^ y
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return jnp.concatenate([x, y])[:n]


@partial(jax.jit, static_argnums=(1, 2))  # outside other programs too it is one program, not thirty
def uniform(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike = float
) -> Float[Array, "*shape"]:
    """Numbers in the open interval (0, 1): the midpoints of 2^23 equal parts (2^52 in float64)."""
    n = math.prod(shape)
    dtype = jnp.zeros((), dtype).dtype  # `float` is what the mode makes of it
    if dtype == jnp.float64:
        high, low = jnp.split(bits(key, 2 * n).astype(jnp.uint64), 2)
        parts, exponent = (high << 20) | (low >> 12), -52
    else:
        parts, exponent = bits(key, n) >> 9, -23
    return ((parts.astype(dtype) + 0.5) * 2.0**exponent).reshape(shape)


def normal(u: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Standard normal numbers from uniform ones."""
    return math.sqrt(2.0) * jax.lax.erf_inv(2.0 * u - 1.0)


@partial(jax.jit, static_argnums=1)
def directions(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Standard normal numbers in float64, by a program of their own."""
    return normal(uniform(key, shape, jnp.float64))
