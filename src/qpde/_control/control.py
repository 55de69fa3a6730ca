"""`Control`: the Hamilton-Jacobi-Bellman equation of a controlled diffusion, from its parts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import a_function, flag, real, reals, shown
from .._field.form import Factor
from .._field.jet import Jet
from .._field.slips import check_signature
from .._precision import Numbers, like
from .._program.program import dependencies
from .actions import Actions, BoxActions, FiniteActions, FreeActions
from .base import RIVALS, AbstractControl
from .best import best_in_box, best_of_quadratic, floor_of, inverse, lifted, quadratic
from .parts import expect_shape, shape_of

# Up to so many actions of a finite set each asks for its own second derivatives; more share the Hessian.
_ASKED = 8


class Form(NamedTuple):
    """How the parts depend on the action, by their programs."""

    spread: bool  # the action enters sigma
    matrix: bool  # sigma is a matrix, not a number
    quadratic: bool  # drift and sigma are affine in the action, the cost is quadratic


class Control(AbstractControl):
    """The equation of a controlled diffusion, `dX = drift dt + sigma dW`, that costs the least.

    `min over a of [drift(x, a) . grad u + 1/2 tr(sigma sigma' Hess u) + cost(x, a)] - discount u = 0`

        >>> control = Control(
        ...     actions=FreeActions(20),
        ...     drift=lambda x, a: a,
        ...     sigma=math.sqrt(2.0),
        ...     cost=lambda x, a: jnp.dot(x, x) + jnp.dot(a, a),
        ...     discount=1.0,
        ... )
        >>> problem = Problem(Ball(20), control, boundary=0.6)
        >>> solution = solve(problem)
        >>> solution.policy(points)

    **Arguments**

    - `actions`: `FreeActions(m)`, all of R^m; `FiniteActions(rows)`; `BoxActions(low, high)`.
    - `drift`, `cost`: functions `(x, a)`.
    - `sigma`: a number `s` (meaning `s I`), a `(d, k)` matrix, or a function `(x, a)` to one of them.
    - `discount`: a number or a function `(x)`.
    - `Problem(..., time=T, terminal=g)` has a horizon: `u_t` stands beside the bracket, and `g(X_T)` is
      paid at the end. The parts are functions of `x` and `a` there too.
    - `maximise`: `cost` is a reward, and the best action has the largest bracket.
    - `best`: a function `(x, u)` to the best action, where you know it in closed form. The problem compares
      it with other actions at random points when it is built.

    With `FreeActions` drift and sigma must be affine and the cost quadratic in the action, which their
    programs show; the best action is then the solution of a linear system. Where the action enters sigma and
    `Hess u` makes the bracket concave in some direction, there is no best action, and the one for a bracket
    with a little more curvature is taken. In a box the best action is searched for (see `_control/best.py`).
    Derivatives of the equation keep the action fixed, which is right for first derivatives where it is the
    best one.
    """

    actions: Actions
    drift: Callable[..., Any]
    cost: Callable[..., Any]
    sigma: Callable[..., Any] | Numbers
    discount: Callable[..., Any] | Numbers
    best: Callable[..., Any] | None
    maximise: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        actions: Any,
        drift: Callable[..., Any],
        sigma: Any,
        cost: Callable[..., Any],
        discount: Any = 0.0,
        maximise: bool = False,
        best: Callable[..., Any] | None = None,
    ):
        if not isinstance(actions, FreeActions | FiniteActions | BoxActions):
            raise ValueError(
                "actions must be qpde.FreeActions(m), qpde.FiniteActions(rows) or qpde.BoxActions(low, "
                f"high), got {shown(actions)}."
            )
        self.actions = actions
        for name, function in (("drift", drift), ("cost", cost)):
            a_function(name, function, "a function (x, a)")
            check_signature(f"The {name}", function, "(x, a)", 2)
        self.drift, self.cost = drift, cost
        self.sigma = sigma if callable(sigma) else reals("sigma", sigma)
        if callable(sigma):
            check_signature("sigma", sigma, "(x, a)", 2)
        self.discount = discount if callable(discount) else real("discount", discount)
        if callable(discount):
            check_signature("The discount", discount, "one point (x)", 1)
        self.maximise = flag("maximise", maximise)
        if best is not None:
            check_signature("best", a_function("best", best, "a function (x, u)"), "(x, u)", 2)
        self.best = best

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " m"]:
        if self.best is not None:
            found = jnp.atleast_1d(like(x, self.best(x, u)))
            expect_shape("What best=... returns", found.shape, (self.actions.count,))
            return found
        if isinstance(self.actions, FiniteActions):
            brackets = self._brackets(x, u)
            choice = jnp.argmax(brackets) if self.maximise else jnp.argmin(brackets)
            return like(x, self.actions.values)[choice]
        form = self.form(x)
        if isinstance(self.actions, BoxActions):
            h = self._objective(x, u, form, fixed=True)
            return best_in_box(h, self.actions.low, self.actions.high, x)
        slope, curvature, _ = self._quadratic(x, u, form)
        return best_of_quadratic(slope, curvature)

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " m"]) -> Float[Array, ""]:
        sigma = self._sigma(x, a)
        second = sigma * sigma * u.laplacian if sigma.ndim == 0 else u.contract(Factor(sigma))
        running = like(x, self.cost(x, a)) - self._discount(x) * u.value
        return jnp.dot(self.moved(x, a), u.grad) + 0.5 * second + running

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        if isinstance(self.actions, FiniteActions) and self.best is None:
            brackets = self._brackets(x, u)
            return jnp.max(brackets) if self.maximise else jnp.min(brackets)
        return self.bracket(x, u, self.action(x, u))

    @property
    def maximises(self) -> bool:
        return self.maximise

    def rivals(self, a: Float[Array, " m"], key: PRNGKeyArray) -> Float[Array, "k m"]:
        actions = self.actions
        if isinstance(actions, FiniteActions):
            return jnp.asarray(actions.values, a.dtype)
        if isinstance(actions, FreeActions):
            return super().rivals(a, key)
        share = jr.uniform(key, (RIVALS, a.size), a.dtype)
        low, high = jnp.asarray(actions.low)[None, :], jnp.asarray(actions.high)[None, :]
        return low + (high - low) * share

    def irregular(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        """By how much the curvature in the action had to be lifted for a best action, where there is none."""
        if self.best is not None or not isinstance(self.actions, FreeActions):
            return jnp.zeros((), x.dtype)
        _, curvature, added = self._quadratic(x, u, self.form(x))
        return jnp.maximum(added, jnp.where(inverse(curvature)[1] > 0, 0.0, 1.0))

    def form(self, x: Float[Array, " d"]) -> Form:
        """How drift, sigma and cost depend on the action; nothing is computed but their programs."""
        at = np.zeros(x.size), np.zeros(self.actions.count)
        self._check_shapes(*at)
        slopes = jax.jacfwd(self.moved, 1), jax.jacfwd(self._sigma, 1)
        curvature = jax.hessian(lambda x, a: like(x, self.cost(x, a)), 1)
        spread = 1 in dependencies(self._sigma, *at)[0]
        plain = all(1 not in dependencies(part, *at)[0] for part in (*slopes, curvature))
        return Form(spread, jax.eval_shape(self._sigma, *at).ndim == 2, plain)

    def spreads(self, x: Float[Array, " d"]) -> bool:
        return self.best is not None or self.form(x).spread

    def moved(self, x: Float[Array, " d"], a: Float[Array, " m"]) -> Float[Array, " d"]:
        """`drift(x, a)` in the precision of the point."""
        return like(x, self.drift(x, a))

    def spread(self, x: Float[Array, " d"], a: Float[Array, " m"]) -> Array:
        """`sigma(x, a)`: a number or a matrix."""
        return self._sigma(x, a)

    def _quadratic(self, x: Array, u: Jet, form: Form) -> tuple[Array, Array, Array]:
        """Slope, curvature and what was added to it, for a bracket that is quadratic in the action."""
        if not form.quadratic:
            raise ValueError(
                "With FreeActions the drift and sigma must be affine and the cost quadratic in the action, "
                "as their programs show. Bound the actions with qpde.BoxActions(low, high), or give the best "
                "action as best=lambda x, u: ..."
            )
        count = self.actions.count
        slope, curvature = quadratic(self._objective(x, u, form, fixed=True), count, x)
        if not form.spread:
            return slope, curvature, jnp.zeros((), x.dtype)
        sign = -1.0 if self.maximise else 1.0
        cost = jax.hessian(lambda a: sign * like(x, self.cost(x, a)))(jnp.zeros(count, x.dtype))
        return slope, *lifted(curvature, floor_of(cost))

    def _objective(
        self, x: Array, u: Jet, form: Form, *, fixed: bool = False
    ) -> Callable[[Array], Array]:
        """What the best action makes smallest. The jet is asked here, outside of it."""
        p, second = u.grad, jnp.zeros((), x.dtype)
        if form.spread:
            second = u.hessian if form.matrix else u.laplacian
        if fixed:
            x, p, second = jax.lax.stop_gradient((x, p, second))
        sign = -1.0 if self.maximise else 1.0

        def h(a: Array) -> Array:
            total = jnp.dot(self.moved(x, a), p) + like(x, self.cost(x, a))
            if form.spread:
                sigma = self._sigma(x, a)
                pair = second @ sigma if form.matrix else second * sigma
                total = total + 0.5 * jnp.sum(pair * sigma)
            return sign * total

        return h

    def _brackets(self, x: Array, u: Jet) -> Array:
        """The bracket of each action of a finite set."""
        assert isinstance(self.actions, FiniteActions)
        actions, form = like(x, self.actions.values), self.form(x)
        if form.spread and form.matrix and len(actions) <= _ASKED:
            return jnp.stack([self.bracket(x, u, a) for a in actions])
        sign = -1.0 if self.maximise else 1.0
        found = sign * jax.vmap(self._objective(x, u, form))(actions)
        rest = -self._discount(x) * u.value
        if not form.spread:
            rest = rest + self._steady(x, u)
        return found + rest

    def _steady(self, x: Array, u: Jet) -> Array:
        """Half of `sigma sigma' : Hess u` for a sigma without action."""
        sigma = self._sigma(x, jnp.zeros(self.actions.count, x.dtype))
        if sigma.ndim == 0:
            return 0.5 * sigma * sigma * u.laplacian
        return 0.5 * u.contract(Factor(sigma))

    def _sigma(self, x: Array, a: Array) -> Array:
        return like(x, self.sigma(x, a) if callable(self.sigma) else self.sigma)

    def _discount(self, x: Array) -> Array:
        return like(x, self.discount(x) if callable(self.discount) else self.discount)

    def _check_shapes(self, x: Any, a: Any) -> None:
        """Refuse parts of wrong shapes with a sentence."""
        where = f"of a Control in dimension {x.size}"
        expect_shape(f"The drift {where}", shape_of("The drift", self.drift, x, a), (x.size,))
        expect_shape(f"The cost {where}", shape_of("The cost", self.cost, x, a), ())
        if callable(self.discount):
            expect_shape(f"The discount {where}", shape_of("The discount", self.discount, x), ())
        given = self.sigma
        sigma = shape_of("sigma", given, x, a) if callable(given) else np.shape(given)
        if sigma != () and (len(sigma) != 2 or sigma[0] != x.size):
            raise ValueError(
                f"sigma must be a number or a ({x.size}, k) matrix, got shape {sigma}. For a diagonal "
                "one write jnp.diag(sigma)."
            )
