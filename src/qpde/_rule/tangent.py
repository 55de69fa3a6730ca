"""How the residual moves with the parameters, at a cost that does not grow with the dimension.

At `Q = eta S + f` the residual changes by `P dS + V . grad dS + C Lap dS` when the network changes by `dS`,
where, with `F_u, F_p, F_l` the derivatives of the equation in value, gradient and Laplacian,

    P = F_u eta + F_p . grad eta + F_l Lap eta,   V = F_p eta + 2 F_l grad eta,   C = F_l eta.

For one hidden layer, in the coordinates `y = (x - centre) / half` of its frame (`V` is divided by `half`,
`G = diag(1 / half^2)` takes the place of the Laplacian's identity), a row of the Jacobian `J` is

    J_c = P s + (V.w) s1 + C (w.Gw) s2,   J_b = D,   J_w = D y + E V + H G w,
    D = c [P s1 + (V.w) s2 + C (w.Gw) s3],   E = c s1,   H = 2 c C s2,

times `N^-beta`; beside them stand those of the polynomial part, `P`, `P y + V` and
`P |y|^2 + 2 V.y + 2 C tr G`. So `J J'` is made of products of matrices with M rows and N columns and of the
Gram matrices of `y` and `V`; no array of size M x (N d) exists. The same holds for `K = J J_Q'`, where the
rows of `J_Q`, the Jacobian of `Q`, are `eta s`, `eta c s1` and `eta c s1 y`.

Other networks, and equations with another second-order part than the Laplacian, have an explicit Jacobian.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._domain.eta import AbstractRadial
from .._field.form import Identity
from .._field.jet import Jet
from .._field.linearise import asks, linearise
from .._network.base import trainable
from .._network.shallow import ShallowField
from .._problem.trial import Trial

# The largest explicit Jacobian, in bytes.
_MEMORY = 2**30


class AbstractTangent(eqx.Module):
    """The residual at M points and its Jacobian `J`, rows times the square root of a point's weight."""

    residual: eqx.AbstractVar[Float[Array, " m"]]

    @abstractmethod
    def gram(self) -> Float[Array, "m m"]:
        """`J J'`."""

    @abstractmethod
    def pull(self, v: Float[Array, " m"]) -> PyTree:
        """`J' v`, in the form of the trained arrays."""

    @abstractmethod
    def cross(self) -> Float[Array, "m m"]:
        """`K = J J_Q'`."""

    @abstractmethod
    def pull_value(self, v: Float[Array, " m"]) -> PyTree:
        """`J_Q' v`, in the form of the trained arrays."""


def tangent(
    trial: Trial, points: Float[Array, "m d"], weights: Float[Array, " m"]
) -> AbstractTangent:
    """The residual and its Jacobian at some points; structured where it can be."""
    if _structured(trial, points[0]):
        return Structured(trial, points, jnp.sqrt(weights))
    return _explicit(trial, points, jnp.sqrt(weights))


def _structured(trial: Trial, x: Float[Array, " d"]) -> bool:
    network = trial.network
    if not (isinstance(network, ShallowField) and trial.exact_boundary):
        return False
    named = (network.c, network.w, network.b, network.polynomial)
    plain = len(jax.tree.leaves(trainable(network)[0])) == len(jax.tree.leaves(named))
    return plain and "hessian" not in (asked := _asks(trial, x))[0] and asked[1]


def _asks(trial: Trial, x: Float[Array, " d"]) -> tuple[list[str], bool]:
    """What the equation asks for, and whether its second derivatives are the Laplacian only."""
    record, _ = asks(trial.equation, x, trial.jet(x))
    return record.asked, all(isinstance(form, Identity) for form in record.forms)


class _Free(eqx.Module):
    """The vectors `V` of all points."""

    v: Float[Array, "m d"]

    def along(self, w: Float[Array, "d n"], yw: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """`V . w`."""
        return self.v @ w

    def beside(
        self, y: Float[Array, "m d"], yy: Float[Array, "m m"]
    ) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
        """`y_i . V_j` and `V_i . V_j`."""
        return y @ self.v.T, self.v @ self.v.T

    def pull(self, y: Float[Array, "m d"], g: Float[Array, "m n"]) -> Float[Array, "d n"]:
        """`sum_i V_i g_i`."""
        return self.v.T @ g


class _Central(eqx.Module):
    """`V = alpha (y + shift)`: no gradient in the equation, and `eta` radial."""

    alpha: Float[Array, " m"]
    shift: Float[Array, " d"]

    def along(self, w: Float[Array, "d n"], yw: Float[Array, "m n"]) -> Float[Array, "m n"]:
        return self.alpha[:, None] * (yw + (self.shift @ w)[None, :])

    def beside(
        self, y: Float[Array, "m d"], yy: Float[Array, "m m"]
    ) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
        offset = y @ self.shift
        left = yy + offset[:, None]
        both = left + offset[None, :] + jnp.dot(self.shift, self.shift)
        return left * self.alpha[None, :], both * self.alpha[:, None] * self.alpha[None, :]

    def pull(self, y: Float[Array, "m d"], g: Float[Array, "m n"]) -> Float[Array, "d n"]:
        weighted = self.alpha[:, None] * g
        return y.T @ weighted + self.shift[:, None] * jnp.sum(weighted, axis=0)[None, :]


class Structured(AbstractTangent):
    """The tangent of a shallow network and an equation with value, gradient and Laplacian."""

    residual: Float[Array, " m"]
    params: PyTree
    scale: Float[Array, ""]
    y: Float[Array, "m d"]
    p: Float[Array, " m"]
    slopes: _Free | _Central
    bent: Float[Array, "n d"]  # G w
    by_c: Float[Array, "m n"]
    d: Float[Array, "m n"]
    e: Float[Array, "m n"]
    h: Float[Array, "m n"]
    y_bent: Float[Array, "m n"]  # y . G w
    v_bent: Float[Array, "m n"]  # V . G w
    eta_s: Float[Array, "m n"]
    eta_e: Float[Array, "m n"]
    eta: Float[Array, " m"]
    curved: Float[Array, " m"] | None  # the column of the polynomial's curvature

    def __init__(self, trial: Trial, points: Float[Array, "m d"], roots: Float[Array, " m"]):
        network: Any = trial.network
        frame, w, c = network.frame, network.w, network.c
        half = frame.half.array
        radial = isinstance(trial.eta, AbstractRadial) and "grad" not in _asks(trial, points[0])[0]

        def one(x: Array) -> tuple[Array, ...]:
            at = linearise(trial.equation, x, trial.jet(x))
            eta = Jet(trial.eta.at(x), x)
            second = sum(at.traces, jnp.zeros((), x.dtype))
            p = at.value * eta.value + jnp.dot(at.grad, eta.grad) + second * eta.laplacian
            if radial:
                v = 2.0 * second * trial.eta.slope(x)  # pyright: ignore[reportAttributeAccessIssue]
            else:
                v = (at.grad * eta.value + 2.0 * second * eta.grad) / half
            return at.residual, p, v, second * eta.value, eta.value

        r, p, v, big_c, eta = jax.vmap(one)(points)
        signed = trial.orientation * roots
        self.residual, self.p, big_c = signed * r, signed * p, signed * big_c
        self.eta, v = roots * eta, signed.reshape(-1, *[1] * (v.ndim - 1)) * v
        if radial:
            centre = trial.eta.centre  # pyright: ignore[reportAttributeAccessIssue]
            self.slopes = _Central(v, jnp.asarray((frame.centre.array - centre) / half))
        else:
            self.slopes = _Free(v)
        self.params, self.scale = trainable(network)[0], jnp.asarray(network.factor.array)
        self.y = jax.vmap(frame)(points)
        self.bent = w.T / (half * half)[None, :]
        yw = self.y @ w
        s, s1, s2, s3 = network.activation.derivatives(yw + network.b[None, :], 3)
        vw, second = self.slopes.along(w, yw), jnp.sum(w.T * self.bent, axis=1)
        curvature = big_c[:, None] * second[None, :]
        column = self.p[:, None]
        self.by_c = column * s + vw * s1 + curvature * s2
        self.d = c[None, :] * (column * s1 + vw * s2 + curvature * s3)
        self.e = c[None, :] * s1
        self.h = 2.0 * big_c[:, None] * c[None, :] * s2
        self.y_bent = self.y @ self.bent.T
        self.v_bent = self.slopes.along(self.bent.T, self.y_bent)
        self.eta_s, self.eta_e = self.eta[:, None] * s, self.eta[:, None] * self.e
        self.curved = None
        if network.polynomial is not None:
            yy = jnp.sum(self.y * self.y, axis=1)
            vy = self._dot_y()
            trace = jnp.sum(1.0 / (half * half) * jnp.ones_like(half))
            self.curved = self.p * yy + 2.0 * vy + 2.0 * big_c * trace

    def _dot_y(self) -> Float[Array, " m"]:
        if isinstance(self.slopes, _Free):
            return jnp.sum(self.slopes.v * self.y, axis=1)
        yy = jnp.sum(self.y * self.y, axis=1)
        return self.slopes.alpha * (yy + self.y @ self.slopes.shift)

    def gram(self) -> Float[Array, "m m"]:
        yy = self.y @ self.y.T
        yv, vv = self.slopes.beside(self.y, yy)
        mixed = (self.d @ self.e.T) * yv
        lengths = jnp.sum(self.bent * self.bent, axis=1)
        left = self.d * self.y_bent + self.e * self.v_bent + 0.5 * self.h * lengths[None, :]
        mixed = mixed + left @ self.h.T
        total = self.by_c @ self.by_c.T + (self.d @ self.d.T) * (1.0 + yy) + mixed + mixed.T
        total = self.scale**2 * (total + (self.e @ self.e.T) * vv)
        if self.curved is None:
            return total
        p = self.p
        mixed = p[:, None] * yv
        total = total + p[:, None] * p[None, :] * (1.0 + yy) + mixed + mixed.T + vv
        return total + self.curved[:, None] * self.curved[None, :]

    def pull(self, v: Float[Array, " m"]) -> PyTree:
        column = v[:, None]
        w = self.y.T @ (column * self.d) + self.slopes.pull(self.y, column * self.e)
        w = w + self.bent.T * (v @ self.h)[None, :]
        polynomial = None
        if self.curved is not None:
            slope = self.y.T @ (v * self.p) + self.slopes.pull(self.y, column)[:, 0]
            polynomial = (jnp.dot(v, self.p), slope, jnp.dot(v, self.curved))
        return self._place(v @ self.by_c, w, v @ self.d, polynomial)

    def cross(self) -> Float[Array, "m m"]:
        yy = self.y @ self.y.T
        vy = self.slopes.beside(self.y, yy)[0].T
        total = self.by_c @ self.eta_s.T + (self.d @ self.eta_e.T) * (1.0 + yy)
        total = total + (self.e @ self.eta_e.T) * vy + self.h @ (self.eta_e * self.y_bent).T
        total = self.scale**2 * total
        if self.curved is None:
            return total
        squares = self.eta * jnp.sum(self.y * self.y, axis=1)
        rows = self.p[:, None] * (1.0 + yy) + vy
        return total + rows * self.eta[None, :] + self.curved[:, None] * squares[None, :]

    def pull_value(self, v: Float[Array, " m"]) -> PyTree:
        column = v[:, None]
        polynomial = None
        if self.curved is not None:
            ve = v * self.eta
            squares = jnp.sum(self.y * self.y, axis=1)
            polynomial = (jnp.sum(ve), ve @ self.y, jnp.dot(ve, squares))
        w = self.y.T @ (column * self.eta_e)
        return self._place(v @ self.eta_s, w, v @ self.eta_e, polynomial)

    def _place(self, c: Array, w: Array, b: Array, polynomial: Any) -> PyTree:
        params = eqx.tree_at(
            lambda n: (n.c, n.w, n.b), self.params, (self.scale * c, self.scale * w, self.scale * b)
        )
        if polynomial is None:
            return params
        return eqx.tree_at(
            lambda n: (n.polynomial.constant, n.polynomial.slope, n.polynomial.curvature),
            params,
            polynomial,
        )


class Explicit(AbstractTangent):
    """The tangent of any network, from its Jacobians."""

    residual: Float[Array, " m"]
    jacobian: Float[Array, "m p"]
    value_jacobian: Float[Array, "m p"]
    unravel: Any = eqx.field(static=True)

    def gram(self) -> Float[Array, "m m"]:
        return self.jacobian @ self.jacobian.T

    def pull(self, v: Float[Array, " m"]) -> PyTree:
        return self.unravel(v @ self.jacobian)

    def cross(self) -> Float[Array, "m m"]:
        return self.jacobian @ self.value_jacobian.T

    def pull_value(self, v: Float[Array, " m"]) -> PyTree:
        return self.unravel(v @ self.value_jacobian)


def _explicit(trial: Trial, points: Float[Array, "m d"], roots: Float[Array, " m"]) -> Explicit:
    params, rest = trainable(trial.network)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    needed = points.shape[0] * flat.size * flat.dtype.itemsize
    if needed > _MEMORY:
        raise ValueError(
            f"A second-order step on {points.shape[0]:,} points with {flat.size:,} parameters needs a "
            f"Jacobian of {needed / 2**30:.1f} GiB, more than {_MEMORY / 2**30:.0f} GiB. Take a smaller "
            "batch or network, or a Shallow network with an equation in u.value, u.grad and "
            "u.laplacian, which needs no Jacobian."
        )

    def both(flat: Array, x: Array) -> tuple[Array, Array]:
        moved = trial.with_network(eqx.combine(unravel(flat), rest))
        return moved.value_and_residual(x)

    def one(x: Array) -> tuple[Array, Array, Array]:
        (_, r), pullback = jax.vjp(lambda p: both(p, x), flat)
        one, zero = jnp.ones_like(r), jnp.zeros_like(r)
        return r, pullback((zero, one))[0], pullback((one, zero))[0]

    residual, jacobian, values = jax.vmap(one)(points)
    return Explicit(roots * residual, roots[:, None] * jacobian, roots[:, None] * values, unravel)
