"""A boundary value problem `L u = 0` in a domain, `u = f` on its boundary, checked when it is built."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._arguments import a_function, an_instance, flag, reals, shown
from .._boundary.conditions import Clamped, Conditions, SimplySupported
from .._boundary.lift import lift
from .._boundary.miss import Approximation
from .._boundary.payoff import OfOneNumber
from .._boundary.rounded import Rounded, round_off
from .._boundary.smear import Smeared
from .._domain.base import AbstractDomain
from .._domain.grade import Grade
from .._equation.grade import grade_of
from .._equation.operator import Operator
from .._equation.roughness import field_roughness
from .._field.base import AbstractField, Autodiff, as_field
from .._field.jet import Equation, Jet, Quadratic
from .._field.linearise import asks
from .._field.slips import expect_scalar
from .._precision import Numbers, copied, number, x64
from .._text import for_name
from .evolution import Given, checked_data, evolving, meeting, stationary, time_rate
from .function import checked_parameters, recognised
from .probe import looked_at
from .whole_space import whole_space


class Problem(eqx.Module):
    """An elliptic or parabolic equation with Dirichlet data.

        >>> Problem(
        ...     domain=Ball(20),
        ...     equation=lambda x, u: 1 - 0.2 * u.value + 0.5 * u.laplacian,
        ...     boundary=0.0,
        ... )

    **Arguments**

    - `domain`: where the equation holds.
    - `equation`: a callable `(x, u)` that returns `L u` at `x`; `u` is a `qpde.Jet`.
    - `boundary`: of an equation of fourth order `qpde.Clamped(f)` or `qpde.SimplySupported(f)`; else a
      number or a function `(d,) -> ()` on the *closure* of the domain; its values inside serve as the
      extension `f` in `Q = S eta + f`. Where its program may have kinks or jumps inside, which `L Q` would
      not see, only its boundary values are used, as `qpde.lift` extends them: kinks on the boundary are
      rounded off, `problem.miss` says by how much, and every bound takes it into account.
    - `exact`: the exact solution `(d,) -> ()`, where it is known; used to report errors only.
    - `name`: for reports.
    - `parameters`: numbers or arrays by name, which functions take last: `parameters={"k": 3.0}` with
      `equation=lambda x, u, k: ...`, and where they need it `boundary=lambda x, k: ...` and
      `exact=lambda x, k: ...`. A sweep over other values compiles once.
    - `time`, with `initial` or `terminal`: an evolution problem on `0 < t <= time`, see below.
    - `blind_to_kinks`: take a boundary function with kinks inside as it is. `L Q` is then blind to them: the
      loss can be tiny and the solution wrong, and no bound is given.

    **In time**

        >>> Problem(
        ...     domain=Ball(10),
        ...     equation=lambda x, t, u: 0.5 * u.laplacian - u.dt,
        ...     time=0.1,
        ...     initial=lambda x: 1 - x @ x,
        ... )

    The equation is a callable `(x, t, u)`, whose jet has `u.dt` and derivatives in `x`; `boundary` is a
    number or a function `(x, t)`, `exact` a function `(x, t)`. `initial` is a number or a function of `x`,
    the values at `t = 0`, and `terminal` stands in its place where values are given at `t = time`. The
    problem then lives in space-time: `problem.domain` is a `Cylinder`, whose points are `(x, t)`.

    On `Space(dim, start=x0)` the value at `x0` is wanted, at `t = 0` for terminal data and at `t = time` for
    initial ones. Points follow the diffusion that the equation generates: exactly where its coefficients are
    constant, or those of log-normal prices and `x0 > 0`, else in steps of Euler and Maruyama. The data, kinks
    of payoffs too, are carried inside by that diffusion and by the flow of the reaction. Data that are a
    `qpde.AbstractField` with a closed-form Laplacian make this much quicker in high dimension.

    Building one checks shapes, finite values, `eta` on the boundary and ellipticity, and raises
    `ValueError` when something is wrong. An equation may be written with either sign: `orientation`
    is +1 where `dF/dHess u` is positive semi-definite and -1 where it is negative; the library then
    works with `orientation * L`. What is allowed and seldom meant, a potential of the wrong sign or a
    coordinate without second derivatives, is said in `notes`, which `print` shows.
    """

    domain: AbstractDomain
    equation: Equation
    boundary: AbstractField
    exact: Callable[..., Any] | None
    orientation: Numbers
    rate: Numbers
    recipe: str | None
    parameters: dict[str, Numbers]
    conditions: Conditions | None
    asks: tuple[str, ...] = eqx.field(static=True)
    blind_to_kinks: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True)

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
        time: Any = None,
        initial: Any = None,
        terminal: Any = None,
    ):
        _check_kinds(domain, equation, exact, name)
        self.conditions = boundary if isinstance(boundary, Clamped | SimplySupported) else None
        boundary = boundary if self.conditions is None else self.conditions.data
        named = {"equation": equation, "boundary": boundary, "exact": exact}
        for what, function in (named | {"initial": initial, "terminal": terminal}).items():
            _check_hashable(what, function)
        # Copies: the equation may close over the numbers of the very same domain.
        domain = copied(domain)
        self.parameters = checked_parameters(parameters)
        taken: set[str] = set()
        given = Given(domain, equation, boundary, exact, self.parameters, taken)
        data = checked_data(time, initial, terminal)
        if data is not None and self.conditions is not None:
            raise ValueError(
                f"boundary={type(self.conditions).__name__}(...) is for stationary equations of fourth "
                "order; with time= give the boundary values alone."
            )
        if data is None:
            parts = stationary(given)
        elif domain.is_whole_space:
            parts = whole_space(data, given)
        else:
            parts = evolving(data, given)
        _refuse_unused(self.parameters, taken)
        self.domain, equation, boundary, exact = parts
        self.equation = equation
        field = copied(as_field(_boundary_data(boundary)))
        _check_boundary_shape(field, self.domain)
        field = copied(as_field(recognised("The boundary function", boundary, self.dim)))
        if self.conditions is not None:
            _refuse_rough(field, self.domain)
        self.boundary = field if blind_to_kinks else _smooth_inside(field, self.domain)
        self.blind_to_kinks = flag("blind_to_kinks", blind_to_kinks)
        self.exact = exact
        self.name = name
        self.asks = _check_shapes(self)
        _check_order(self)
        self.equation = recognised("The equation", equation, self.dim, jet=True)
        self.exact = recognised("The exact solution", exact, self.dim)
        if self.boundary is not field:
            self.boundary = _in_grade(self.boundary, self)
        sign, self.notes = looked_at(self)
        self.orientation, self.recipe = number(sign), None
        self.rate = number(time_rate(self))
        self.boundary, note = meeting(self)
        self.notes += (note,) if note else ()

    @property
    def order(self) -> int:
        """The order of the equation: 4 where it asks for `u.bilaplacian`, else 2."""
        return 4 if "bilaplacian" in self.asks else 2

    @property
    def factor(self) -> AbstractField:
        """What multiplies the network in the trial function: `eta`, or what two conditions ask for."""
        return self.domain.eta if self.conditions is None else self.conditions.factor(self.domain)

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

    @functools.cached_property
    def grade(self) -> Grade | None:
        """Coordinates of a box in which the diffusion varies less; None where it varies little."""
        with x64():
            return grade_of(self.equation, self.domain)

    @property
    def data(self) -> AbstractField:
        """The boundary values as they were given, which `boundary` has up to `miss`."""
        smooth = self.boundary
        if isinstance(smooth, Smeared) and self.carried:
            return smooth.as_given
        return Autodiff(smooth.data) if isinstance(smooth, Approximation) else smooth

    @property
    def miss(self) -> float:
        """How far the values of `boundary` on the boundary are off those that were given."""
        return float(self.boundary.miss) if isinstance(self.boundary, Approximation) else 0.0

    @property
    def carried(self) -> bool:
        """Whether data with kinks are carried inside; at their instant `boundary` has their values."""
        return isinstance(self.boundary, Smeared) and not self.boundary.smooth

    @property
    def seen_of_data(self) -> tuple[str, ...]:
        """What is believed of the data because points showed it."""
        if isinstance(self.boundary, Smeared) and isinstance(self.boundary.mean, OfOneNumber):
            return ("the data depend on one number, as they do at 4,096 random points",)
        return ()

    @property
    def smoothed(self) -> bool:
        """Whether that is more than rounding."""
        return isinstance(self.boundary, Approximation) and not self.boundary.exact

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return self.domain.dim

    @property
    def space_dim(self) -> int:
        """The dimension without time: what people call the dimension of a problem."""
        return self.dim - (self.domain.times is not None)

    def __repr__(self) -> str:
        sign = "as written" if self.orientation > 0 else "with the opposite sign"
        asks = ", ".join(self.asks)
        text = (
            f"{for_name(self.name)}: {self.domain!r}; the equation asks for {asks}; oriented {sign}"
        )
        text = f"{text}; {self.boundary!r}" if self.smoothed else text
        return "\n".join([text, *(f"  note: {note}" for note in self.notes)])


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
    expect_scalar("The boundary function", function, point, "It takes one point (d,), not a batch.")


def _refuse_rough(data: AbstractField, domain: AbstractDomain) -> None:
    if field_roughness(data, domain):
        raise ValueError(
            "The data of two conditions must be smooth on the closure of the domain, because their "
            "derivatives count too; these may have kinks or jumps."
        )


def _check_order(problem: Problem) -> None:
    """Two conditions belong to an equation of fourth order, and one to an equation of second order."""
    if problem.order == 4 and problem.conditions is None:
        raise ValueError(
            "This equation is of fourth order, which needs two conditions: boundary=qpde.Clamped(f), the "
            "values and normal derivatives of f, or boundary=qpde.SimplySupported(f), its values and its "
            "Laplacian."
        )
    if problem.order == 2 and problem.conditions is not None:
        raise ValueError(
            f"boundary={type(problem.conditions).__name__}(...) gives two conditions, for equations of "
            "fourth order; this one asks for no u.bilaplacian. Give the boundary values alone."
        )
    if problem.conditions is not None:
        problem.conditions.factor(problem.domain)


def _smooth_inside(data: AbstractField, domain: AbstractDomain) -> AbstractField:
    """Boundary data without kinks inside the domain: as they are, or extended by `lift`."""
    if domain.times is not None and field_roughness(data, domain):
        raise ValueError(
            "The initial, terminal or boundary data may have kinks or jumps inside (abs, max, a choice, a "
            "root at zero in their program), which L Q would not see. Write them smoothly; or say "
            "blind_to_kinks=True, and no bound is given."
        )
    return data if not field_roughness(data, domain) else lift(data.value, domain)


def _in_grade(data: AbstractField, problem: Problem) -> AbstractField:
    """Boundary values with rounded kinks, their widths in the coordinates in which diffusion varies less."""
    if not isinstance(data, Approximation) or not isinstance(data.field, Rounded):
        return data
    old, grade = data.field, problem.grade
    if grade is None:
        return data
    return round_off(old.g, old.domain, float(old.smoothing), grade) or data


def _check_kinds(domain: Any, equation: Any, exact: Any, name: Any) -> None:
    an_instance("domain", domain, AbstractDomain, "qpde.Ball(20)")
    a_function("equation", equation, "a function (x, u)")
    if exact is not None:
        a_function("exact", exact, "a function of one point")
    if not isinstance(name, str):
        raise ValueError(f"name must be a string, got {type(name).__name__}.")


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

    expect_scalar("The equation", equation, point, "Reduce it, for example with jnp.sum.")
    if problem.exact is not None:
        expect_scalar(
            "The exact solution", problem.exact, point, "It takes one point (d,), not a batch."
        )
    if not {"laplacian", "trace", "hessian", "bilaplacian"} & set(asked):
        raise ValueError(
            f"The equation asks only for {', '.join(asked) or 'nothing'}: qpde solves elliptic "
            "equations of second and fourth order. Ask for u.laplacian, u.second, u.trace, u.generator, "
            "u.hessian or u.bilaplacian."
        )
    return tuple(asked)
