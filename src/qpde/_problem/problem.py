"""A boundary value problem `L u = 0` in a domain, `u = f` on its boundary, checked when it is built."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._arguments import a_function, an_instance, flag, reals, shown
from .._boundary.lift import lift
from .._boundary.miss import Approximation
from .._domain.base import AbstractDomain
from .._equation.operator import Operator
from .._equation.roughness import field_roughness
from .._field.base import AbstractField, Autodiff, as_field
from .._field.form import Identity
from .._field.jet import Equation, Jet, Quadratic, Sum
from .._field.linearise import Coefficients, asks, linearise
from .._precision import Numbers, copied, key_from, like, number, x64
from .._text import for_name
from .function import checked_parameters, recognised, with_parameters
from .slips import check_returned, check_signature, explained

# Points and random directions used by the checks.
_POINTS, _DIRECTIONS = 64, 64
# What of its largest value inside `eta` may have on the boundary, for rounding.
_ZERO = 1e-9
# Up to this dimension eigenvalues are computed, so the sign check is complete at each point;
# beyond, it looks along the coordinate axes and the random directions.
_EIGEN = 100


class Problem(eqx.Module):
    """An elliptic equation with Dirichlet data.

        >>> Problem(
        ...     domain=Ball(20),
        ...     equation=lambda x, u: 1 - 0.2 * u.value + 0.5 * u.laplacian,
        ...     boundary=0.0,
        ... )

    **Arguments**

    - `domain`: where the equation holds.
    - `equation`: a callable `(x, u)` that returns `L u` at `x`; `u` is a `qpde.Jet`.
    - `boundary`: a number or a function `(d,) -> ()` on the *closure* of the domain; its values
      inside serve as the extension `f` in `Q = S eta + f`. Where its program may have kinks or jumps inside,
      which `L Q` would not see, only its boundary values are used, as `qpde.lift` extends them: kinks on the
      boundary are rounded off, `problem.miss` says by how much, and every bound takes it into account.
    - `exact`: the exact solution `(d,) -> ()`, where it is known; used to report errors only.
    - `name`: for reports.
    - `parameters`: numbers or arrays by name, which functions take last: `parameters={"k": 3.0}` with
      `equation=lambda x, u, k: ...`, and where they need it `boundary=lambda x, k: ...` and
      `exact=lambda x, k: ...`. A sweep over other values compiles once.
    - `blind_to_kinks`: take a boundary function with kinks inside as it is. `L Q` is then blind to them: the
      loss can be tiny and the solution wrong, and no bound is given.

    Building one checks shapes, finite values, `eta` on the boundary and ellipticity, and raises
    `ValueError` when something is wrong. An equation may be written with either sign: `orientation`
    is +1 where `dF/dHess u` is positive semi-definite and -1 where it is negative; the library then
    works with `orientation * L`.
    """

    domain: AbstractDomain
    equation: Equation
    boundary: AbstractField
    exact: Callable[..., Any] | None
    orientation: Numbers
    recipe: str | None
    parameters: dict[str, Numbers]
    asks: tuple[str, ...] = eqx.field(static=True)
    blind_to_kinks: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @x64()
    def __init__(
        self,
        domain: AbstractDomain,
        equation: Callable[..., Any],
        boundary: Any = 0.0,
        *,
        exact: Callable[..., Any] | None = None,
        name: str = "problem",
        blind_to_kinks: bool = False,
        parameters: Any = None,
    ):
        an_instance("domain", domain, AbstractDomain, "qpde.Ball(20)")
        a_function("equation", equation, "a function (x, u)")
        if exact is not None:
            a_function("exact", exact, "a function of one point")
        if not isinstance(name, str):
            raise ValueError(f"name must be a string, got {type(name).__name__}.")
        for what, function in (("equation", equation), ("boundary", boundary), ("exact", exact)):
            _check_hashable(what, function)
        # Copies: the equation may close over the numbers of the very same domain.
        self.domain = copied(domain)
        self.parameters = checked_parameters(parameters)
        taken: set[str] = set()
        equation = with_parameters(equation, self.parameters, taken, 2)
        boundary = with_parameters(boundary, self.parameters, taken, 1)
        exact = with_parameters(exact, self.parameters, taken, 1)
        _refuse_unused(self.parameters, taken)
        check_signature("The equation", equation, "(x, u)", 2)
        for what, function in (("The boundary function", boundary), ("The exact solution", exact)):
            if callable(function) and not isinstance(function, AbstractField):
                check_signature(what, function, "one point (x)", 1)
        self.equation = equation
        data = copied(as_field(_boundary_data(boundary)))
        _check_boundary_shape(data, domain)
        data = copied(as_field(recognised("The boundary function", boundary, domain.dim)))
        self.boundary = data if blind_to_kinks else _smooth_inside(data, self.domain)
        self.blind_to_kinks = flag("blind_to_kinks", blind_to_kinks)
        self.exact = exact
        self.name = name
        self.asks = _check_shapes(self)
        self.equation = recognised("The equation", equation, self.dim, jet=True)
        self.exact = recognised("The exact solution", exact, self.dim)
        self.orientation = number(_check_values(self))
        self.recipe = None

    def with_recipe(self, recipe: str) -> "Problem":
        """The same problem with a note of how to build it again, for files."""
        return eqx.tree_at(lambda p: p.recipe, self, recipe, is_leaf=lambda leaf: leaf is None)

    @functools.cached_property
    def operator(self) -> Operator:
        """The equation as an operator, from its program; made when first asked for.

        Raises `Unbounded` where its matrices of coefficients would be too large.
        """
        with x64():
            return Operator.of(self.domain, self.equation, self.orientation)

    @property
    def data(self) -> AbstractField:
        """The boundary values as they were given, which `boundary` has up to `miss`."""
        smooth = self.boundary
        return Autodiff(smooth.data) if isinstance(smooth, Approximation) else smooth

    @property
    def miss(self) -> float:
        """How far the values of `boundary` on the boundary are off those that were given."""
        return float(self.boundary.miss) if isinstance(self.boundary, Approximation) else 0.0

    @property
    def smoothed(self) -> bool:
        """Whether that is more than rounding."""
        return isinstance(self.boundary, Approximation) and not self.boundary.exact

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return self.domain.dim

    def __repr__(self) -> str:
        sign = "as written" if self.orientation > 0 else "with the opposite sign"
        asks = ", ".join(self.asks)
        text = (
            f"{for_name(self.name)}: {self.domain!r}; the equation asks for {asks}; oriented {sign}"
        )
        return f"{text}; {self.boundary!r}" if self.smoothed else text


def _refuse_unused(parameters: dict[str, Any], taken: set[str]) -> None:
    unused = sorted(parameters.keys() - taken)
    if unused:
        raise ValueError(
            f"No function takes the parameter {unused[0]!r}. Parameters come last, by name: "
            f"equation=lambda x, u, {unused[0]}: ..., boundary=lambda x, {unused[0]}: ..."
        )


def _boundary_data(boundary: Any) -> Any:
    if inspect.isclass(boundary):
        raise ValueError(f"boundary must be a number or a function, got {shown(boundary)}.")
    if callable(boundary) or isinstance(boundary, AbstractField):
        return boundary
    if isinstance(boundary, float) and not np.isfinite(boundary):
        raise ValueError(f"boundary must be finite, got {boundary}.")
    value = reals("boundary", boundary, "a number or a function from a point (d,) to a scalar")
    if value.shape != () or not np.issubdtype(value.dtype, np.number):
        raise ValueError(
            "boundary must be a number or a function from a point (d,) to a scalar, got "
            f"{type(boundary).__name__} of shape {value.shape}."
        )
    return boundary


def _check_boundary_shape(data: AbstractField, domain: AbstractDomain) -> None:
    point = jax.ShapeDtypeStruct((domain.dim,), jnp.float64)
    function = data.judged_by() or data.value
    _expect_scalar(
        "The boundary function", function, point, "It takes one point (d,), not a batch."
    )


def _smooth_inside(data: AbstractField, domain: AbstractDomain) -> AbstractField:
    """Boundary data without kinks inside the domain: as they are, or extended by `lift`."""
    return data if not field_roughness(data, domain) else lift(data.value, domain)


def _check_hashable(what: str, function: Any) -> None:
    if not callable(function) or isinstance(function, eqx.Module):
        return
    try:
        hash(function)
    except TypeError:
        raise ValueError(
            f"{what} is a {type(function).__name__} that cannot be hashed, so compiled programs "
            "cannot recognise it. Make it a function, an eqx.Module or a frozen dataclass."
        ) from None


def _check_shapes(problem: Problem) -> tuple[str, ...]:
    """Run equation, boundary and exact solution once, abstractly; list what the equation asks."""
    asked: list[str] = []
    point = jax.ShapeDtypeStruct((problem.dim,), jnp.float64)

    def equation(x: Array) -> Any:
        zero = jnp.zeros(())
        source = Quadratic(zero, jnp.zeros_like(x), zero, jnp.zeros_like(x))
        record, result = asks(problem.equation, x, Jet(source, x))
        asked.extend(record.asked)
        return result

    _expect_scalar("The equation", equation, point, "Reduce it, for example with jnp.sum.")
    if problem.exact is not None:
        _expect_scalar(
            "The exact solution", problem.exact, point, "It takes one point (d,), not a batch."
        )
    if not {"laplacian", "trace", "hessian"} & set(asked):
        raise ValueError(
            f"The equation asks only for {', '.join(asked) or 'nothing'}: qpde solves second-order "
            "elliptic equations. Ask for u.laplacian, u.second, u.trace, u.generator or u.hessian."
        )
    return tuple(asked)


def _expect_scalar(what: str, function: Callable[..., Any], point: Any, cure: str) -> None:
    def checked(x: Array) -> Array:
        return jnp.asarray(check_returned(what, function(x)))

    with explained(what):
        result = jax.eval_shape(checked, point)
    if result.shape != ():
        raise ValueError(f"{what} must return a scalar of shape (), got {result.shape}. {cure}")


class _Sample(eqx.Module):
    """What the checks look at, as arrays over points."""

    points: Array
    edge: Array
    eta_inside: Array
    eta_edge: Array
    data: Array
    start: Array  # L f
    second: Array  # (points, jets, directions): w' (dF/dHess) w / |w|^2


@eqx.filter_jit
def _probe(problem: Problem, bumps: Quadratic, directions: Any) -> _Sample:
    inside_key, edge_key = jr.split(key_from(0))
    domain, dim = problem.domain, problem.dim
    points = domain.sample(inside_key, _POINTS)
    edge = domain.sample_boundary(edge_key, _POINTS)
    if points.shape != (_POINTS, dim) or edge.shape != (_POINTS, dim):
        raise ValueError(f"The domain's samplers must return (n, {dim}) points.")

    def at(x: Array) -> tuple[Array, Array]:
        base = Jet(problem.boundary.at(x), x)

        def second(bump: Quadratic) -> Array:
            jet = Jet(Sum(base, Jet(bump, x)), x)
            return _second_order(linearise(problem.equation, x, jet), directions)

        start = like(x, problem.equation(x, base))
        return start, jax.vmap(second)(bumps)

    start, second = jax.vmap(at)(points)
    return _Sample(
        points=points,
        edge=edge,
        eta_inside=jax.vmap(domain.eta.value)(points),
        eta_edge=jax.vmap(domain.eta.value)(edge),
        data=jax.vmap(problem.boundary.value)(jnp.concatenate([points, edge])),
        start=start,
        second=second,
    )


def _random_jets(dim: int) -> tuple[Quadratic, np.ndarray]:
    """Jets to add to that of the boundary data, from none to large, and unit directions."""
    rng = np.random.default_rng(0)
    sizes = np.array([0.0, 0.1, 1.0, 10.0])
    bumps = Quadratic(
        sizes * rng.standard_normal(4),
        sizes[:, None] * rng.standard_normal((4, dim)),
        sizes * rng.standard_normal(4),
        sizes[:, None] * rng.standard_normal((4, dim)),
    )
    directions = rng.standard_normal((_DIRECTIONS, dim))
    return bumps, directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _second_order(at: Coefficients, directions: Array) -> Array:
    """The second-order part along some directions, or its eigenvalues in low dimension."""
    dim = directions.shape[1]
    if all(isinstance(form, Identity) for form in at.forms) and at.hessian is None:
        return at.quadratic(directions[:1])
    if dim <= _EIGEN:
        return jnp.linalg.eigvalsh(at.matrix())
    return jnp.concatenate([at.quadratic(directions), at.diagonal()])


def _check_values(problem: Problem) -> float:
    """Check numbers on a sample; return the orientation."""
    sample = jax.tree.map(np.asarray, _probe(problem, *_random_jets(problem.dim)))
    if not np.all(sample.eta_inside > 0):
        _fail("eta must be positive inside the domain", sample.points, sample.eta_inside > 0)
    flat = np.abs(sample.eta_edge) <= _ZERO * np.max(sample.eta_inside)
    if not np.all(flat):
        _fail("eta must vanish on the boundary", sample.edge, flat)
    finite = np.isfinite(sample.data)
    if not np.all(finite):
        _fail(
            "The boundary function must be finite on the whole closure of the domain, because "
            "it also serves as the extension inside. It is not",
            np.concatenate([sample.points, sample.edge]),
            finite,
        )
    finite = np.isfinite(sample.start)
    if not np.all(finite):
        _fail(
            "The equation is not finite at u = boundary function. Check it for division by "
            "zero or for derivatives of the boundary function that do not exist",
            sample.points,
            finite,
        )
    return _orientation(sample.second)


def _orientation(second: np.ndarray) -> float:
    # Coefficients need not exist at every jet (|grad u| at grad u = 0), only at most of them.
    known = second[np.isfinite(second)]
    if known.size == 0:
        raise ValueError(
            "The derivative of the equation in u's second derivatives is nowhere finite."
        )
    largest = np.max(np.abs(known))
    positive, negative = np.any(known > 1e-9 * largest), np.any(known < -1e-9 * largest)
    if positive and negative:
        raise ValueError(
            "The equation is not elliptic: its second-order part has both signs on the domain. "
            "Check the signs of the second derivatives; a diffusion matrix must be semi-definite."
        )
    if largest == 0:
        raise ValueError("The equation asks for second derivatives but does not depend on them.")
    return -1.0 if negative else 1.0


def _fail(message: str, points: np.ndarray, good: np.ndarray) -> NoReturn:
    where = np.array2string(points[~good][0], precision=4, threshold=6)
    raise ValueError(f"{message}, for example at x = {where}.")
