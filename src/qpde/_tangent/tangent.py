"""How the residual moves with the parameters, at a cost that does not grow with the dimension.

At `Q = eta S + f` the residual changes by `P dS + V . grad dS + sum_k C_k (a_k : Hess dS)` when the network
changes by `dS`, where, with `F_u, F_p` the derivatives of the equation in value and gradient and
`A = sum_k s_k a_k` that in the Hessian, constant matrices `a_k` and numbers `s_k` of a point,

    P = F_u eta + F_p . grad eta + A : Hess eta,   V = F_p eta + 2 A grad eta,   C_k = s_k eta.

For one hidden layer, in the coordinates `y = (x - centre) / half` of its frame (`V` is divided by `half`,
`G_k = D a_k D` with `D = diag(1 / half)`), a row of the Jacobian `J` is

    J_c = P s + (V.w) s1 + q s2,   J_b = D,   J_w = D y + E V + sum_k H_k G_k w,   q = sum_k C_k (w.G_k w),
    D = c [P s1 + (V.w) s2 + q s3],   E = c s1,   H_k = 2 c C_k s2,

times `N^-beta`; beside them stand those of the polynomial part, `P`, `P y + V` and
`P |y|^2 + 2 V.y + 2 sum_k C_k tr G_k`. So `J J'` is made of products of matrices with M rows and N columns
and of the Gram matrices of `y` and `V`; no array of size M x (N d) exists. The same holds for `K = J J_Q'`,
where the rows of `J_Q`, the Jacobian of `Q`, are `eta s`, `eta c s1` and `eta c s1 y`.

Other networks, and equations whose matrices vary from point to point, have an explicit Jacobian.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._domain.eta import AbstractRadial
from .._field.jet import Jet
from .._field.linearise import linearise
from .._network.base import trainable
from .._network.shallow import ShallowField
from .._problem.trial import Trial
from .jacobian import AbstractTangent, Span, explicit
from .second_order import SecondOrder, apply, diagonal


def tangent(
    trial: Trial, points: Float[Array, "m d"], weights: Float[Array, " m"]
) -> AbstractTangent:
    """The residual and its Jacobian at some points; structured where it can be."""
    roots = jnp.sqrt(weights)
    if _is_shallow(trial):
        second = SecondOrder.of(trial.equation, points.shape[1])
        if second is not None:
            return Structured(trial, second, points, roots)
    return explicit(trial, points, roots)


def _is_shallow(trial: Trial) -> bool:
    """Whether the trained arrays are those of one hidden layer and its polynomial."""
    network = trial.network
    if not (isinstance(network, ShallowField) and trial.exact_boundary):
        return False
    if trial.coordinates is not None:
        return False
    named = (network.c, network.w, network.b, network.polynomial)
    return len(jax.tree.leaves(trainable(network)[0])) == len(jax.tree.leaves(named))


# Some rows of an array with a row a point; and the rows and columns of a part of `J J'`.
Rows = Callable[[Array], Array]
Cut = tuple[Rows, Rows]


class _Free(eqx.Module):
    """The vectors `V` of all points."""

    v: Float[Array, "m d"]

    def along(self, w: Float[Array, "d n"], yw: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """`V . w`."""
        return self.v @ w

    def with_y(self, y: Float[Array, "m d"], yy: Float[Array, "m m"]) -> Float[Array, "m m"]:
        """`V_i . y_j`."""
        return self.v @ y.T

    def dot_y(self, y: Float[Array, "m d"]) -> Float[Array, " m"]:
        """`V . y`."""
        return jnp.sum(self.v * y, axis=1)

    def squared(self, y: Float[Array, "m d"]) -> Float[Array, " m"]:
        """`V . V`."""
        return jnp.sum(self.v * self.v, axis=1)

    def pull(
        self, y: Float[Array, "m d"], f: Float[Array, "m n"], g: Float[Array, "m n"]
    ) -> Float[Array, "d n"]:
        """`sum_i y_i f_i + V_i g_i`."""
        return y.T @ f + self.v.T @ g

    def push(
        self, v: Float[Array, "d n"], yv: Float[Array, "m n"], f: Array, g: Array
    ) -> Float[Array, " m"]:
        """`sum_n (f_in y_i + g_in V_i) . v_n`."""
        return jnp.sum(f * yv + g * (self.v @ v), axis=1)

    def products(
        self,
        y: Float[Array, "m d"],
        f: Array,
        g: Array,
        left: Array,
        right: Array,
        cuts: list[Cut],
    ) -> list[Float[Array, "n b"]]:
        """The products of the rows `f y + g V` and `f`, and of `left` and `right`, as `stripes`."""
        v = self.v

        def one(rows: Rows, columns: Rows) -> Array:
            def product(a: Array, b: Array) -> Array:
                return rows(a) @ columns(b).T

            total = product(left, right) + product(f, f) * (1.0 + product(y, y))
            total = total + product(g, g) * product(v, v)
            total = total + product(f, g) * product(y, v)
            return total + product(g, f) * product(v, y)

        return [one(*cut) for cut in cuts]


class _Central(eqx.Module):
    """`V = alpha (y + shift)`: no gradient in the equation, the Laplacian alone, and `eta` radial."""

    alpha: Float[Array, " m"]
    shift: Float[Array, " d"]

    def along(self, w: Float[Array, "d n"], yw: Float[Array, "m n"]) -> Float[Array, "m n"]:
        return self.alpha[:, None] * (yw + (self.shift @ w)[None, :])

    def with_y(self, y: Float[Array, "m d"], yy: Float[Array, "m m"]) -> Float[Array, "m m"]:
        return self.alpha[:, None] * (yy + (y @ self.shift)[None, :])

    def dot_y(self, y: Float[Array, "m d"]) -> Float[Array, " m"]:
        return self.alpha * (jnp.sum(y * y, axis=1) + y @ self.shift)

    def squared(self, y: Float[Array, "m d"]) -> Float[Array, " m"]:
        return self.alpha**2 * jnp.sum((y + self.shift[None, :]) ** 2, axis=1)

    def pull(
        self, y: Float[Array, "m d"], f: Float[Array, "m n"], g: Float[Array, "m n"]
    ) -> Float[Array, "d n"]:
        weighted = self.alpha[:, None] * g
        return y.T @ (f + weighted) + self.shift[:, None] * jnp.sum(weighted, axis=0)[None, :]

    def push(
        self, v: Float[Array, "d n"], yv: Float[Array, "m n"], f: Array, g: Array
    ) -> Float[Array, " m"]:
        return jnp.sum(f * yv + g * self.along(v, yv), axis=1)

    def products(
        self,
        y: Float[Array, "m d"],
        f: Array,
        g: Array,
        left: Array,
        right: Array,
        cuts: list[Cut],
    ) -> list[Float[Array, "n b"]]:
        # With z = y + shift the rows are (f + alpha g) z - f shift: one Gram matrix, that of z.
        z = y + self.shift[None, :]
        both = f + self.alpha[:, None] * g
        along = (z @ self.shift)[:, None]
        half = 0.5 * (1.0 + jnp.dot(self.shift, self.shift)) * f - along * both
        left = jnp.concatenate([left, f, half], axis=1)
        right = jnp.concatenate([right, half, f], axis=1)

        def one(rows: Rows, columns: Rows) -> Array:
            def product(a: Array, b: Array) -> Array:
                return rows(a) @ columns(b).T

            return product(left, right) + product(both, both) * product(z, z)

        return [one(*cut) for cut in cuts]


def _at_points(
    trial: Trial, second: SecondOrder, radial: bool, points: Float[Array, "m d"]
) -> tuple[Array, Array, Array, Array, Array]:
    """The residual, `P`, `V` (its factor `alpha` where `eta` is radial), `C_k` and `eta` at points."""
    half = trial.network.frame.half.array  # pyright: ignore[reportAttributeAccessIssue]

    def one(x: Array) -> tuple[Array, Array, Array, Array, Array]:
        at = linearise(trial.equation, x, trial.jet(x))
        eta = Jet(trial.eta.at(x), x)
        p = at.value * eta.value + jnp.dot(at.grad, eta.grad)
        for scale, form in zip(at.traces, at.forms, strict=True):
            p = p + scale * eta.contract(form)
        if at.hessian is not None:
            p = p + jnp.sum(at.hessian * eta.hessian)
        scales = second.scales(at)
        if radial:
            v = 2.0 * scales[0] * trial.eta.slope(x)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            v = (at.grad * eta.value + 2.0 * at.apply(eta.grad)) / half
        return at.residual, p, v, scales * eta.value, eta.value

    return jax.vmap(one)(points)


class Structured(AbstractTangent):
    """The tangent of a shallow network and an equation whose second-order part has constant matrices."""

    residual: Float[Array, " m"]
    params: PyTree
    scale: Float[Array, ""]
    y: Float[Array, "m d"]
    p: Float[Array, " m"]
    slopes: _Free | _Central
    bent: Float[Array, "k n d"]  # G_k w
    by_c: Float[Array, "m n"]
    d: Float[Array, "m n"]
    e: Float[Array, "m n"]
    h: Float[Array, "m k n"]
    y_bent: Float[Array, "m k n"]  # y . G_k w
    v_bent: Float[Array, "m k n"]  # V . G_k w
    eta_s: Float[Array, "m n"]
    eta_e: Float[Array, "m n"]
    eta: Float[Array, " m"]
    curved: Float[Array, " m"] | None  # the column of the polynomial's curvature

    def __init__(
        self,
        trial: Trial,
        second: SecondOrder,
        points: Float[Array, "m d"],
        roots: Float[Array, " m"],
    ):
        network: Any = trial.network
        frame, w, c = network.frame, network.w, network.c
        half = frame.half.array
        central = second.laplacian and "grad" not in second.asked
        radial = central and isinstance(trial.eta, AbstractRadial)
        r, p, v, numbers, eta = _at_points(trial, second, radial, points)
        signed = trial.orientation * roots
        self.residual, self.p, numbers = signed * r, signed * p, signed[:, None] * numbers
        self.eta, v = roots * eta, signed.reshape(-1, *[1] * (v.ndim - 1)) * v
        if radial:
            centre = trial.eta.centre  # pyright: ignore[reportAttributeAccessIssue]
            self.slopes = _Central(v, jnp.asarray((frame.centre.array - centre) / half))
        else:
            self.slopes = _Free(v)
        self.params, self.scale = trainable(network)[0], jnp.asarray(network.factor.array)
        self.y = jax.vmap(frame)(points)
        # The matrices are the same at all points.
        matrices = second.matrices(linearise(trial.equation, points[0], trial.jet(points[0])))
        bent = jnp.stack([apply(matrix, frame.slopes(w.T)) for matrix in matrices])
        self.bent = bent / half[None, None, :]
        yw = self.y @ w
        s, s1, s2, s3 = network.activation.derivatives(yw + network.b[None, :], 3)
        vw = self.slopes.along(w, yw)
        curvature = numbers @ jnp.sum(w.T[None] * self.bent, axis=2)
        column = self.p[:, None]
        self.by_c = column * s + vw * s1 + curvature * s2
        self.d = c[None, :] * (column * s1 + vw * s2 + curvature * s3)
        self.e = c[None, :] * s1
        self.h = 2.0 * numbers[:, :, None] * (c[None, :] * s2)[:, None, :]
        flat = self.bent.reshape(-1, w.shape[0]).T
        y_bent = self.y @ flat
        self.y_bent = y_bent.reshape(self.h.shape)
        self.v_bent = self.slopes.along(flat, y_bent).reshape(self.h.shape)
        self.eta_s, self.eta_e = self.eta[:, None] * s, self.eta[:, None] * self.e
        self.curved = None
        if network.polynomial is not None:
            yy = jnp.sum(self.y * self.y, axis=1)
            traces = [jnp.sum(diagonal(a, points[0]) / (half * half)) for a in matrices]
            bending = numbers @ jnp.stack(traces)
            self.curved = self.p * yy + 2.0 * self.slopes.dot_y(self.y) + 2.0 * bending

    def _bending(self) -> Float[Array, "m k n"]:
        """What a product of two rows has with `h`: `J_w . G_k w`, of their last term the half."""
        lengths = jnp.einsum("knd,lnd->kln", self.bent, self.bent)
        left = self.d[:, None] * self.y_bent + self.e[:, None] * self.v_bent
        return left + 0.5 * jnp.sum(self.h[:, :, None] * lengths[None], axis=1)

    def diagonal(self) -> Float[Array, " m"]:
        yy = 1.0 + jnp.sum(self.y * self.y, axis=1)
        yv, vv = self.slopes.dot_y(self.y), self.slopes.squared(self.y)
        total = jnp.sum(self.by_c**2, axis=1) + 2.0 * jnp.sum(self.h * self._bending(), axis=(1, 2))
        total = total + yy * jnp.sum(self.d**2, axis=1) + vv * jnp.sum(self.e**2, axis=1)
        total = self.scale**2 * (total + 2.0 * yv * jnp.sum(self.d * self.e, axis=1))
        if self.curved is None:
            return total
        return total + self.p**2 * yy + 2.0 * self.p * yv + vv + self.curved**2

    def stripes(self, spans: list[Span]) -> list[Float[Array, "n b"]]:
        return self._products(
            [(lambda t, a=a: t[a:], lambda t, a=a, b=b: t[a:b]) for a, b in spans]
        )

    def rows(self, start: Any, count: int) -> Float[Array, "n m"]:
        def some(t: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(t, start, count)

        return self._products([(some, lambda t: t)])[0]

    def _products(self, cuts: list[Cut]) -> list[Float[Array, "n b"]]:
        left = self._bending()
        rows, size = self.residual.size, self.scale
        wide = [size * part.reshape(rows, -1) for part in (self.by_c, left, self.h)]
        d, e = size * self.d, size * self.e
        if self.curved is not None:  # the polynomial is one more unit, and one more column
            wide[0] = jnp.concatenate([wide[0], self.curved[:, None]], axis=1)
            d = jnp.concatenate([d, self.p[:, None]], axis=1)
            e = jnp.concatenate([e, jnp.ones_like(self.p)[:, None]], axis=1)
        first, second, third = wide
        left = jnp.concatenate([first, second, third], axis=1)
        right = jnp.concatenate([first, third, second], axis=1)
        return self.slopes.products(self.y, d, e, left, right, cuts)

    def push(self, change: PyTree) -> Float[Array, " m"]:
        c, w, b = (self.scale * part for part in (change.c, change.w, change.b))
        along = jnp.einsum("knd,dn->kn", self.bent, w)
        total = self.by_c @ c + self.d @ b + jnp.einsum("mkn,kn->m", self.h, along)
        total = total + self.slopes.push(w, self.y @ w, self.d, self.e)
        if self.curved is None:
            return total
        polynomial = change.polynomial
        slope = polynomial.slope[:, None]
        p = self.p[:, None]
        total = total + self.slopes.push(slope, self.y @ slope, p, jnp.ones_like(p))
        return total + self.p * polynomial.constant + self.curved * polynomial.curvature

    def pull(self, v: Float[Array, " m"]) -> PyTree:
        column = v[:, None]
        w = self.slopes.pull(self.y, column * self.d, column * self.e)
        w = w + jnp.einsum("knd,kn->dn", self.bent, jnp.einsum("m,mkn->kn", v, self.h))
        polynomial = None
        if self.curved is not None:
            slope = self.slopes.pull(self.y, column * self.p[:, None], column)[:, 0]
            polynomial = (jnp.dot(v, self.p), slope, jnp.dot(v, self.curved))
        return self._place(v @ self.by_c, w, v @ self.d, polynomial)

    def cross(self) -> Float[Array, "m m"]:
        rows = self.residual.size
        yy = self.y @ self.y.T
        vy = self.slopes.with_y(self.y, yy)
        total = self.by_c @ self.eta_s.T + (self.d @ self.eta_e.T) * (1.0 + yy)
        bent = (self.eta_e[:, None] * self.y_bent).reshape(rows, -1)
        total = total + (self.e @ self.eta_e.T) * vy + self.h.reshape(rows, -1) @ bent.T
        total = self.scale**2 * total
        if self.curved is None:
            return total
        squares = self.eta * jnp.sum(self.y * self.y, axis=1)
        lines = self.p[:, None] * (1.0 + yy) + vy
        return total + lines * self.eta[None, :] + self.curved[:, None] * squares[None, :]

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
