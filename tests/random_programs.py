"""Random programs made of the operations that users meet, known to the library or not."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIZE = 3


@jax.custom_jvp
def _misdifferentiated(x):
    return jnp.abs(x)


_misdifferentiated.defjvp(lambda primals, tangents: (jnp.abs(primals[0]), 0.0 * tangents[0]))


def _through_complex(x):
    return jnp.abs(1.0 + jnp.exp(1j * x))


def _carry(x):
    return lax.scan(lambda c, r: (0.5 * c + r, jnp.sin(c)), x[0], x)[1]


def _loop(x):
    return lax.fori_loop(0, 3, lambda i, s: 0.5 * s + jnp.cos(s), x)


def _branch(x):
    return lax.cond(x[0] > 0.1, lambda s: 2.0 * s, lambda s: s + 1.0, x)


def _switch(x):
    return lax.switch(1, [lambda s: 2.0 * s, lambda s: s * s, jnp.sin], x)


def _argsorted(x):
    return jnp.arange(1.0, SIZE + 1)[jnp.argsort(x)]


def _looked_up(x):
    return x[jnp.clip(jnp.floor(x[0]), 0, SIZE - 1).astype(int)] * jnp.ones(SIZE)


UNARY = {
    **{
        name: getattr(lax, name)
        for name in (
            *("neg", "abs", "sign", "floor", "ceil", "exp", "exp2", "expm1", "log", "log1p"),
            *("sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
            *("cosh", "asinh", "acosh", "atanh", "tanh", "logistic", "erf", "erfc", "erf_inv"),
            *("square", "lgamma", "digamma", "bessel_i0e", "bessel_i1e", "cumsum", "cumprod"),
            *("cummax", "cummin", "cumlogsumexp", "sort", "stop_gradient"),
        )
    },
    **{f"power {y}": lambda x, y=y: lax.integer_pow(x, y) for y in (2, 3, 4, 5, -1, -2, 0)},
    **{f"real power {y}": lambda x, y=y: x ** jnp.float64(y) for y in (0.5, 1.5, 2.0, 3.0, -0.5)},
    "round": jnp.round,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "elu": jax.nn.elu,
    "softmax": jax.nn.softmax,
    "sinc": jnp.sinc,
    "logsumexp": lambda x: jax.nn.logsumexp(x) * jnp.ones(SIZE),
    "norm": lambda x: jnp.linalg.norm(x) * jnp.ones(SIZE),
    "sum": lambda x: jnp.sum(x) * jnp.ones(SIZE),
    "product": lambda x: jnp.prod(x) * jnp.ones(SIZE),
    "maximum": lambda x: jnp.max(x) * jnp.ones(SIZE),
    "spread": lambda x: jnp.std(x) * jnp.ones(SIZE),
    "argmax": lambda x: 1.0 * jnp.argmax(x) * jnp.ones(SIZE),
    "to float32": lambda x: x.astype(jnp.float32).astype(jnp.float64),
    "less precise": lambda x: lax.reduce_precision(x, 8, 10),
    "is finite": lambda x: 1.0 * jnp.isfinite(x),
    "is nan": lambda x: jnp.where(jnp.isnan(x), 7.0, x),
    "reversed": lambda x: x[::-1],
    "rolled": lambda x: jnp.roll(x, 1),
    "shifted": lambda x: x.at[0].add(x[2]),
    "put": lambda x: x.at[1].set(x[0]),
    "repeated": lambda x: x[jnp.array([0, 0, 2])],
    "padded": lambda x: jnp.pad(x[:2], (0, 1)),
    "matrix": lambda x: jnp.outer(x, x) @ x,
    "mixed": lambda x: jnp.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0], [2.0, 0.1, -1.0]]) @ x,
    "convolved": lambda x: jnp.convolve(x, jnp.array([1.0, -1.0, 0.5]), mode="same"),
    "compiled": jax.jit(lambda x: jnp.sin(x) * x),
    "recomputed": jax.checkpoint(lambda x: jnp.abs(x) + x),
    "differentiated": jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**2)),
    "slope of softplus": jax.grad(lambda x: jnp.sum(jax.nn.softplus(x))),
    "polynomial": lambda x: jnp.polyval(jnp.array([1.0, -0.5, 0.2]), x),
    "own rule": _misdifferentiated,
    "complex": _through_complex,
    "scan": _carry,
    "loop": _loop,
    "branch": _branch,
    "switch": _switch,
    "argsort": _argsorted,
    "looked up": _looked_up,
    "whole": lambda x: 1.0 * (jnp.floor(x).astype(jnp.uint8) + jnp.uint8(250)),
}
BINARY = {
    **{
        name: getattr(lax, name)
        for name in ("add", "sub", "mul", "div", "max", "min", "pow", "atan2", "rem", "nextafter")
    },
    "logaddexp": jnp.logaddexp,
    "hypot": jnp.hypot,
    "xlogy": jax.scipy.special.xlogy,
    "dot": lambda x, y: jnp.dot(x, y) * jnp.ones(SIZE),
    "stack": lambda x, y: jnp.stack([x, y])[:, 1].sum() * jnp.ones(SIZE),
    "join": lambda x, y: jnp.concatenate([x, y])[2:5],
    "greater": lambda x, y: jnp.where(x > y, x, 1.0),
    "not less": lambda x, y: jnp.where(x >= y, 1.0, -1.0),
    "equal": lambda x, y: jnp.where(x == y, 5.0, y),
    "less": lambda x, y: jnp.where(x < y, x, y),
    "both": lambda x, y: 1.0 * jnp.logical_and(x < 1, ~(y <= 0)),
    "any": lambda x, y: jnp.any(x < y) * jnp.ones(SIZE),
    "clip": lambda x, y: jnp.clip(x, -0.5, y),
    "clamp": lambda x, y: lax.clamp(jnp.full(SIZE, -1.0), x, jnp.full(SIZE, 1.0)) + y,
    "mod": jnp.mod,
    "copy sign": jnp.copysign,
    "interpolated": lambda x, y: jnp.interp(x, jnp.array([-1.0, 0.0, 1.0]), jnp.array([0.0, 2, 1])),
}


def program(rng):
    """Names of operations with the numbers of their operands; each operand is an earlier result."""
    lines = []
    for i in range(int(rng.integers(1, 7))):
        # Two constants and the argument come first.
        latest, any_before = i + 2, int(rng.integers(0, i + 3))
        if rng.uniform() < 0.6:
            lines.append((str(rng.choice(list(UNARY))), latest))
        else:
            pair = (latest, any_before) if rng.uniform() < 0.5 else (any_before, latest)
            lines.append((str(rng.choice(list(BINARY))), *pair))
    return lines


def as_function(lines, constants):
    def function(x):
        values = [*(jnp.asarray(c) for c in constants), x]
        for name, *operands in lines:
            operation = (UNARY if len(operands) == 1 else BINARY)[name]
            values.append(jnp.asarray(operation(*(values[i] for i in operands))))
        return values[-1]

    return function


def box(rng):
    """Corners of a box around zero or elsewhere, wide or narrow, sometimes with whole numbers as ends."""
    if rng.uniform() < 0.3:
        low = rng.integers(-2, 2, SIZE).astype(float)
        return low, low + rng.integers(0, 3, SIZE)
    centre, size = rng.normal(size=SIZE), 10.0 ** rng.uniform(-4, 0.5)
    return centre - size * rng.uniform(size=SIZE), centre + size * rng.uniform(size=SIZE)


def points(rng, low, high, count):
    """Random points of a box, many of them with coordinates at its ends."""
    share = rng.uniform(size=(count, SIZE))
    share = np.where(rng.uniform(size=share.shape) < 0.3, np.round(share), share)
    return np.clip(low + share * (high - low), low, high)
