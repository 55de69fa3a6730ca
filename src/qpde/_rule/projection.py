"""Variable projection: the output layer by least squares, the other parameters by Gauss-Newton.

The residual `r` at M points is affine in the output coefficients `a` where the equation is linear, and is
linearised in them where it is not; with `J_a` and `J_w` its Jacobians in `a` and in all other parameters `w`,

    1. (da, dw) minimises |r + J_a da + J_w dw|^2 + damping: only `dw` is kept, in full or three tenths of it;
    2. at each moved `w`, and at the old one, `a` minimises |r + J_a (a - a_now)|^2 + l^2 |a|^2.

Coefficients of many units that look alike are large and cancel each other: a step in `w` that keeps them
destroys the cancellation, which is why `a` is solved for again at every `w` that is tried. The dampings `l`
keep `a` from growing. An independent sample of the same size decides between all candidates, and against
them where none is better. Systems are solved by QR; by normal equations, whose condition is squared, only
where there are thousands of columns.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.scipy as jsp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._arguments import real
from .._network.base import OutputLayer, trainable
from .._precision import Numbers
from .._problem.trial import Trial
from .base import AbstractRule, Info
from .batch import Batch, Draw
from .gauss_newton import mean_square, require_double
from .schedule import Clock

# Dampings of the output layer around the last one, those of the joint step, lengths of both.
_AROUND, _JOINT, _LENGTHS = (0.01, 1.0, 100.0), (1e-10, 1e-4), (1.0, 0.3)
_LEAST, _MOST = 1e-15, 1e-2
# The most columns of a system that is solved by QR, and the least damping of one that is not.
_BY_QR, _NORMAL = 2_500, 1e-8
# Points whose rows are made at a time.
_ROWS = 512


class VariableProjection(AbstractRule):
    """Least squares for the output layer, Gauss-Newton for what is inside it.

        >>> solve(problem, network=Ridge(512), rule=VariableProjection(), batch=2_000, steps=2)

    For networks that are linear in an output layer: `Ridge`, whose few directions are all that is inside,
    `Pairs`, `Shallow` and `MLP`. A step needs more points than the network has parameters. Needs
    `precision="float64"`.

    **Arguments**

    - `damping`: the first damping of the output coefficients, relative to the largest singular value; it is
      adapted.
    """

    damping: Numbers
    exact_boundary = True
    name = "variable-projection"
    precision = "float64"
    default_steps = 10
    block = 1
    whole_batch = True

    def __init__(self, damping: float = 1e-9):
        self.damping = real("damping", damping, above=0.0)

    def init(self, trial: Trial, key: PRNGKeyArray) -> Float[Array, ""]:
        require_output_layer(trial, self.name)
        return jnp.asarray(self.damping)

    def step(
        self, trial: Trial, state: Float[Array, ""], draw: Draw, clock: Clock
    ) -> tuple[Trial, Float[Array, ""], Info]:
        own, second = draw.whole(2)
        outer, inner, rest = split(trial.network)
        here = rows(trial, own)
        moves = _moves(here, inner)

        def tried(moved: Float[Array, " m"]) -> tuple[Array, Array, Array, Array]:
            if moved.size == 0:
                return best_outer(trial, here, state, second)
            there = jax.flatten_util.ravel_pytree(inner)[1](moved)
            at = trial.with_network(eqx.combine(outer, there, rest))
            return best_outer(at, rows_outer(at, own), state, second)

        # The first of the inner moves is none at all, and so is its first change of the output layer.
        losses, outers, dampings, unchanged = jax.lax.map(tried, moves)
        now, best = unchanged[0], jnp.argmin(losses)
        better = losses[best] < now
        old = jnp.concatenate([_flat(outer), _flat(inner)])
        new = jnp.where(better, jnp.concatenate([outers[best], moves[best]]), old)
        network = eqx.combine(*_placed(new, outer, inner), rest)
        damping = jnp.where(better, dampings[best], 100.0 * state)
        damping = jnp.clip(damping, _LEAST, _MOST)
        loss = jnp.dot(here.residual, here.residual)
        gradient = optax.tree.norm((here.residual @ here.outer, here.residual @ here.inner))
        return trial.with_network(network), damping, Info(loss, loss, jnp.ones_like(loss), gradient)


def require_output_layer(trial: Trial, name: str) -> None:
    """Refuse float32, and networks that are not linear in an output layer."""
    require_double(trial, name)
    if not isinstance(trial.network, OutputLayer):
        raise ValueError(
            f"The rule {name} is for networks with an output layer (qpde.Ridge, qpde.Shallow, qpde.MLP); "
            "for others take rule=qpde.GaussNewton()."
        )


class Rows(NamedTuple):
    """The residual at M points and its Jacobians, rows times the square root of a point's weight."""

    residual: Float[Array, " m"]
    outer: Float[Array, "m n"]
    inner: Float[Array, "m p"]


def split(network: Any) -> tuple[Any, Any, Any]:
    """A network's output coefficients, its other trained arrays, and the rest."""
    params, rest = trainable(network)
    none = jax.tree.map(lambda _: False, params)
    some = eqx.tree_at(lambda n: n.output_layer(), none, replace_fn=lambda _: True)
    return *eqx.partition(params, some), rest


def _flat(tree: PyTree) -> Float[Array, " n"]:
    return jax.flatten_util.ravel_pytree(tree)[0].astype(jnp.float64)


def _placed(flat: Array, outer: PyTree, inner: PyTree) -> tuple[PyTree, PyTree]:
    count = _flat(outer).size
    parts = zip((flat[:count], flat[count:]), (outer, inner), strict=True)
    return tuple(jax.flatten_util.ravel_pytree(tree)[1](part) for part, tree in parts)  # pyright: ignore


def rows(trial: Trial, batch: Batch) -> Rows:
    """The residual and its Jacobians in all trained parameters."""
    outer, inner, rest = split(trial.network)
    count = _flat(outer).size
    flat = jnp.concatenate([_flat(outer), _flat(inner)])

    def network(v: Array) -> Any:
        return eqx.combine(*_placed(v, outer, inner), rest)

    residual, jacobian = _jacobian(trial, network, flat, batch)
    return Rows(residual, jacobian[:, :count], jacobian[:, count:])


def rows_outer(trial: Trial, batch: Batch) -> Rows:
    """The residual and its Jacobian in the output coefficients alone."""
    outer, inner, rest = split(trial.network)
    flat, unravel = jax.flatten_util.ravel_pytree(outer)

    def network(v: Array) -> Any:
        return eqx.combine(unravel(v), inner, rest)

    residual, jacobian = _jacobian(trial, network, flat, batch)
    return Rows(residual, jacobian, jnp.zeros((residual.size, 0)))


def _jacobian(trial: Trial, network: Any, flat: Array, batch: Batch) -> tuple[Array, Array]:
    def one(x: Array) -> tuple[Array, Array]:
        r, pull = jax.vjp(lambda v: trial.with_network(network(v)).residual(x), flat)
        return r, pull(jnp.ones_like(r))[0]

    residual, jacobian = jax.lax.map(one, batch.points, batch_size=_ROWS)
    roots = jnp.sqrt(batch.weights)
    return roots * residual, roots[:, None] * jacobian


class _Triangle(NamedTuple):
    """`|r + J v|^2` with columns of length one, up to a constant: `|goal + upper (scale v)|^2`."""

    upper: Float[Array, "n n"]
    goal: Float[Array, " n"]
    scale: Float[Array, " n"]

    @classmethod
    def of(cls, jacobian: Float[Array, "m n"], residual: Float[Array, " m"]) -> "_Triangle":
        scale = jnp.maximum(jnp.linalg.norm(jacobian, axis=0), 1e-300)
        both = jnp.concatenate([jacobian / scale[None, :], residual[:, None]], axis=1)
        triangle = jnp.linalg.qr(both, mode="r")
        n = scale.size
        missing = max(n - triangle.shape[0], 0)  # fewer points than coefficients
        triangle = jnp.concatenate([triangle, jnp.zeros((missing, n + 1), triangle.dtype)])
        return cls(triangle[:n, :n], triangle[:n, n], scale)

    def solve(self, damping: Array, centre: Array) -> Array:
        """The `v` with the smallest `|r + J v|^2 + (damping top)^2 |scale (v - centre)|^2`."""
        n = self.goal.size
        # The largest singular value lies between the largest column, one, and sqrt(n).
        weight = damping * jnp.sqrt(jnp.asarray(n, damping.dtype))
        identity = weight * jnp.eye(n, dtype=self.goal.dtype)
        top = jnp.concatenate([self.upper, self.goal[:, None]], axis=1)
        low = jnp.concatenate([identity, -weight * (self.scale * centre)[:, None]], axis=1)
        triangle = jnp.linalg.qr(jnp.concatenate([top, low]), mode="r")
        v = jsp.linalg.solve_triangular(triangle[:n, :n], -triangle[:n, n])
        return v / self.scale


class _Normal(NamedTuple):
    """The same by normal equations, a sixth of the work: for many columns that are nearly orthogonal."""

    gram: Float[Array, "n n"]
    goal: Float[Array, " n"]
    scale: Float[Array, " n"]

    @classmethod
    def of(cls, jacobian: Float[Array, "m n"], residual: Float[Array, " m"]) -> "_Normal":
        scale = jnp.maximum(jnp.linalg.norm(jacobian, axis=0), 1e-300)
        columns = jacobian / scale[None, :]
        return cls(columns.T @ columns, residual @ columns, scale)

    def solve(self, damping: Array, centre: Array) -> Array:
        """As that of `_Triangle`, with a damping that the square of the condition leaves room for."""
        n = self.goal.size
        weight = n * jnp.maximum(damping, _NORMAL) ** 2
        factor = jnp.linalg.cholesky(self.gram + weight * jnp.eye(n, dtype=self.goal.dtype))
        return jsp.linalg.cho_solve((factor, True), weight * self.scale * centre - self.goal) / (
            self.scale
        )


def _system(jacobian: Float[Array, "m n"], residual: Float[Array, " m"]) -> _Triangle | _Normal:
    kind = _Triangle if jacobian.shape[1] <= _BY_QR else _Normal
    return kind.of(jacobian, residual)


def _moves(here: Rows, inner: PyTree) -> Float[Array, "k p"]:
    """The inner parameters to try: as they are, and moved by the joint steps."""
    now = _flat(inner)
    if now.size == 0:
        return now[None, :]
    triangle = _Triangle.of(jnp.concatenate([here.outer, here.inner], axis=1), here.residual)
    none = jnp.zeros_like(triangle.goal)
    steps = jax.lax.map(lambda damping: triangle.solve(damping, none), jnp.asarray(_JOINT))
    steps = steps[:, -now.size :]
    steps = jnp.where(jnp.isfinite(steps), steps, 0.0)
    return jnp.concatenate([now[None, :], *(now[None, :] + a * steps for a in _LENGTHS)])


def best_outer(
    trial: Trial, here: Rows, damping: Array, second: Batch
) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, ""], Float[Array, ""]]:
    """The smallest loss on the second sample, the output coefficients that have it and their damping, and
    the loss of the coefficients as they are.
    """
    outer, inner, rest = split(trial.network)
    now, unravel = jax.flatten_util.ravel_pytree(outer)
    steps, dampings = steps_outer(now, here, damping)
    found = now[None, :] + jnp.concatenate([jnp.zeros_like(now)[None, :], steps])

    def loss(coefficients: Array) -> Array:
        return mean_square(trial, eqx.combine(unravel(coefficients), inner), rest, second)

    losses = jax.lax.map(loss, found)
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.inf)
    best = jnp.argmin(losses)
    return losses[best], found[best], dampings[jnp.maximum(best - 1, 0)], losses[0]


def steps_outer(
    now: Float[Array, " n"], here: Rows, damping: Array
) -> tuple[Float[Array, "k n"], Float[Array, " k"]]:
    """Changes of the output coefficients to try, and the damping of each."""
    system = _system(here.outer, here.residual)
    dampings = damping * jnp.asarray(_AROUND)
    # About zero, seen from here: the system is for the change of the coefficients.
    changes = jax.lax.map(lambda one: system.solve(one, -now), dampings)
    return jnp.concatenate([a * changes for a in _LENGTHS]), jnp.tile(dampings, len(_LENGTHS))
