"""Evolution problems: an equation `(x, t, u)` with initial or terminal data, as a problem in space-time.

The extension of the data is `f(x, t) = g(x, t) + u0(x) - g(x, t0)`, with `g` the values on the side and `u0`
those at the instant `t0` of the data. It has both, where they agree at `t0`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import a_function, real, reals
from .._boundary.layer import Layer, has_layer
from .._compiled import compiled
from .._control.base import AbstractControl, InTime
from .._domain.base import AbstractDomain, drawn, drawn_on_boundary
from .._domain.cylinder import Cylinder
from .._equation.operator import Operator, Structure
from .._field.base import AbstractField, Autodiff
from .._field.evolution import Apart, InSpaceTime, OfSpaceTime
from .._field.form import AbstractForm
from .._field.jet import Jet, Quadratic
from .._field.slips import check_signature
from .._precision import Numbers, key_from, like, number
from .._program.program import dependencies
from .function import Bound, recognised, with_parameters

if TYPE_CHECKING:
    from .problem import Problem

_MORE = ", and after them parameters by name, which Problem(parameters={...}) gives"
# A mismatch of initial and boundary data below this share of their size is rounding.
_AGREES = 1e-9
_EDGE = 512
_FIRST = (
    "Initial or terminal data and boundary data differ where they meet, by up to {:.3g}. The extension "
    "carries the jump in a layer of width sqrt(time); next to it the solution is approached slowly."
)
_SECOND = (
    "Initial or terminal data and boundary data agree where they meet, but the equation does not hold there "
    "for them: L Q cannot vanish there whatever the network (it is up to {:.3g}; of the data alone up to "
    "{:.3g} inside), and the solution is approached slowly next to it."
)
_WORDS = "a number, or a function of"


class Parts(NamedTuple):
    """A problem's functions, all of the points of its domain."""

    domain: AbstractDomain
    equation: Any
    boundary: Any
    exact: Any


class Data(NamedTuple):
    """What the caller gave of time: all None for a stationary problem."""

    time: Any
    initial: Any
    terminal: Any

    @property
    def given(self) -> Any:
        """The initial or terminal values."""
        return self.initial if self.terminal is None else self.terminal

    @property
    def name(self) -> str:
        """The name of their argument."""
        return "initial" if self.terminal is None else "terminal"


def checked_data(time: Any, initial: Any, terminal: Any) -> Data | None:
    """The arguments of an evolution problem; None for a stationary one."""
    if time is None:
        if initial is None and terminal is None:
            return None
        raise ValueError(
            "initial and terminal belong to an evolution problem: give time=T, its horizon, too."
        )
    real("time", time, above=0.0)
    if (initial is None) == (terminal is None):
        raise ValueError(
            "An evolution problem has initial=u0, its values at t = 0, or terminal=g, those at t = time; "
            f"{'neither' if initial is None else 'both'} was given."
        )
    return Data(time, initial, terminal)


class Given(NamedTuple):
    """A problem's functions as its caller wrote them, and the parameters; `taken` notes which are used."""

    domain: AbstractDomain
    equation: Any
    boundary: Any
    exact: Any
    parameters: dict[str, np.ndarray]
    taken: set[str]

    def bound(self, function: Any, count: int) -> Any:
        """A function of `count` arguments with its parameters."""
        return with_parameters(function, self.parameters, self.taken, count)


def stationary(given: Given) -> Parts:
    """The functions of a stationary problem with their parameters."""
    equation = given.bound(given.equation, 2)
    check_signature("The equation", equation, "(x, u)", 2, more=_MORE)
    bound = [given.bound(function, 1) for function in (given.boundary, given.exact)]
    for what, function in zip(("The boundary function", "The exact solution"), bound, strict=True):
        if callable(function) and not isinstance(function, AbstractField):
            check_signature(what, function, "one point (x)", 1, more=_MORE)
    return Parts(given.domain, equation, *bound)


def in_time(data: Data, given: Given) -> tuple[Any, Any, Any]:
    """Equation and exact solution as functions of points of space-time, and the data as one of space."""
    exact = given.exact
    if isinstance(given.equation, AbstractControl):
        equation = InTime(given.equation, 1.0 if data.initial is None else -1.0)
    else:
        equation = given.bound(given.equation, 3)
        check_signature("The equation", equation, "(x, t, u)", 3, more=_MORE)
        equation = _wrapped(equation, InSpaceTime)
    if exact is not None:
        exact = given.bound(exact, 2)
        check_signature("The exact solution", exact, "(x, t)", 2, more=_MORE)
        exact = _wrapped(exact, OfSpaceTime)
    start = given.bound(data.given, 1)
    if not isinstance(start, AbstractField):
        start = _in_space(data.name, start)
        start = recognised(f"The {data.name} function", start, given.domain.dim)
    return equation, exact, start


def evolving(data: Data, given: Given) -> Parts:
    """The functions of an evolution problem as those of a problem in space-time."""
    cylinder = Cylinder(given.domain, data.time, backward=data.terminal is not None)
    equation, exact, start = in_time(data, given)
    boundary = given.boundary
    if isinstance(start, AbstractField):
        start = _FieldValue(start)
    if callable(boundary) and not isinstance(boundary, AbstractField):
        a_function("boundary", boundary, f"{_WORDS} (x, t)")
        boundary = given.bound(boundary, 2)
        check_signature("The boundary function", boundary, "(x, t)", 2, more=_MORE)
        side = _wrapped(boundary, OfSpaceTime)
    else:
        side = OfSpaceTime(_Steady(_in_space("boundary", boundary)))
    side = recognised("The boundary function", side, cylinder.dim)
    instant = np.asarray(float(cylinder.end) if cylinder.backward else 0.0)
    extension = Extension(side, start, instant)
    return Parts(cylinder, equation, extension, exact)


def _in_space(name: str, given: Any) -> Any:
    """A number, a field or a function of a point in space, as a function."""
    if isinstance(given, AbstractField):
        return _FieldValue(given)
    if not callable(given):
        value = reals(name, given, f"{_WORDS} one point (d,)")
        if value.shape != ():
            raise ValueError(f"{name} must be {_WORDS} one point (d,), got shape {value.shape}.")
        return _Number(value)
    a_function(name, given, f"{_WORDS} one point (d,)")
    check_signature(f"The {name} function", given, "one point (x)", 1, more=_MORE)
    return given


class _Number(eqx.Module):
    number: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.number, x.dtype)


class _FieldValue(eqx.Module):
    field: AbstractField

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.field.value(x)


class _Steady(eqx.Module):
    """A function of space as one of space and time."""

    function: Callable[..., Any]

    def __call__(self, x: Any, t: Any) -> Any:
        return self.function(x)


class Extension(eqx.Module):
    """`g(x, t) + u0(x) - g(x, t0)`."""

    side: Callable[..., Any]
    start: Callable[..., Any]
    instant: Numbers

    def __call__(self, z: Float[Array, " d"]) -> Array:
        before = z.at[-1].set(self.instant)
        return like(z, self.start(z[:-1])) + (like(z, self.side(z)) - like(z, self.side(before)))

    def gap(self, x: Float[Array, " d"]) -> Array:
        """`u0 - g` at the instant of the data, which is to vanish where space ends."""
        z = jnp.append(x, jnp.asarray(self.instant, x.dtype))
        return like(x, self.start(x)) - like(x, self.side(z))


def _wrapped(function: Any, kind: type[eqx.Module]) -> Any:
    """A function of space and time as one of points of space-time.

    A plain function stays one, so that functions with the same program share compiled programs.
    """
    if isinstance(function, Bound):
        return Bound(_wrapped(function.function, kind), function.values)
    if isinstance(function, eqx.Module):
        return kind(function)  # pyright: ignore[reportCallIssue]

    def in_space_time(z: Any, *jet: Any, **named: Any) -> Any:
        def given(*arguments: Any) -> Any:
            return function(*arguments, **named)

        return kind(given)(z, *jet)  # pyright: ignore[reportCallIssue]

    return in_space_time


class _Gap(eqx.Module):
    """What initial and boundary data differ by, as a function of space."""

    extension: Extension

    def __call__(self, x: Float[Array, " d"]) -> Array:
        return self.extension.gap(x)


class Layered(AbstractField):
    """The extension of data that differ where they meet: `g(x, t)` and a layer (see `_boundary/layer.py`)."""

    extension: Extension
    layer: Layer
    backward: bool = eqx.field(static=True)

    @property
    def has_closed_forms(self) -> bool:
        return False

    def judged_by(self) -> Callable[..., Array]:
        return self.of_data

    def of_data(self, z: Float[Array, " d"]) -> Array:
        """What tells how smooth the field is: the data; the formula of the layer is smooth inside."""
        return like(z, self.extension.side(z)) + self.extension.gap(z[:-1])

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        own = self.extension
        age = own.instant - x[-1] if self.backward else x[-1]
        return like(x, own.side(x)) + self.layer(x[:-1], age)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return Autodiff(self.value).grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return Autodiff(self.value).trace(x, form)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return Autodiff(self.value).hessian(x)


def meeting(problem: "Problem") -> tuple[AbstractField, str]:
    """The data of an evolution problem, with a layer where they differ, and a note on where they meet."""
    field = problem.boundary
    domain: Any = problem.domain  # a cylinder, where data were extended from it
    extension = field.function if isinstance(field, Autodiff) else None
    if not isinstance(extension, Extension):
        return field, ""
    edge = drawn_on_boundary(domain.base, key_from(5), _EDGE)
    inside = drawn(domain.base, key_from(6), _EDGE)
    gaps, starts, edges, within = (
        np.abs(np.asarray(part)) for part in _at_start(problem, extension, edge, inside)
    )
    if float(np.max(gaps)) <= _AGREES * max(float(np.max(starts)), float(np.max(gaps))):
        rough = float(np.max(edges)) > 1e-6 * max(float(np.max(within)), float(np.max(edges)))
        return field, _SECOND.format(np.max(edges), np.max(within)) if rough else ""
    operator = Operator.of(domain, problem.equation, problem.orientation)
    plain = operator.isotropic and "A" not in operator.varies and not operator.has_drift
    if operator.structure is Structure.NONLINEAR or not plain or not has_layer(domain.base):
        raise ValueError(
            f"Initial or terminal data and boundary data differ by up to {np.max(gaps):.3g} where they meet. "
            "A layer between them is known on balls and boxes, for a constant multiple of the Laplacian "
            "without drift. Elsewhere let them agree, for example by a boundary value that starts from "
            "the initial one."
        )
    diffusion = number(operator.constant(operator.second) / problem.rate)
    layer = Layer(domain.base, _Gap(extension), diffusion)
    return Layered(extension, layer, domain.backward), _FIRST.format(np.max(gaps))


@compiled(brief=True)
def _at_start(problem: "Problem", extension: Extension, edge: Any, inside: Any) -> Any:
    """At the instant of the data: the gap and `L f` on the boundary, the data and `L f` inside."""

    def residual(x: Array) -> Array:
        z = jnp.append(x, jnp.asarray(extension.instant, x.dtype))
        return like(x, problem.equation(z, Jet(problem.boundary.at(z), z)))

    def start(x: Array) -> Array:
        return like(x, extension.start(x))

    return (
        jax.vmap(extension.gap)(edge),
        jax.vmap(start)(jnp.concatenate([edge, inside])),
        jax.vmap(residual)(edge),
        jax.vmap(residual)(inside),
    )


class _TimeRate(eqx.Module):
    """The derivative of an equation in `u.dt`, as a function of a point, of a jet and of `u.dt`."""

    equation: Callable[..., Any]

    def __call__(self, z: Any, v: Any, slope: Any, curvature: Any, bend: Any, dt: Any) -> Array:
        def equation(dt: Array) -> Array:
            jet = Jet(Quadratic(v, slope, curvature, bend), z)
            return like(z, self.equation(z, Apart(jet, z, dt)))

        dt = jnp.asarray(dt)
        return jax.jvp(equation, (dt,), (jnp.ones_like(dt),))[1]


def time_rate(problem: "Problem") -> float:
    """The factor `k` of `u.dt` in an oriented equation, `L u = F - k u_t`; refuse others.

    For terminal data it is `L u = F + k u_t`. It must be one positive number, by the program.
    """
    times = problem.domain.times
    if times is None:
        return 0.0
    rate, jet = _TimeRate(problem.equation), _resting(problem.domain)
    if set().union(*dependencies(rate, *jet)):
        raise ValueError(
            "The factor of u.dt must be one number, by the equation's program; here it may change with x, t "
            "or u. Divide the equation by it."
        )
    found = float(problem.orientation) * rate_at(problem.equation, problem.domain)
    signed = found if times.backward else -found
    if signed > 0:
        return signed
    if found == 0:
        raise ValueError(
            "The equation does not ask for u.dt. Leave time out for a stationary problem, or write the "
            "derivative in time: lambda x, t, u: u.laplacian - u.dt."
        )
    given, other = ("terminal", "initial") if times.backward else ("initial", "terminal")
    raise ValueError(
        f"With {given} data this equation runs in the wrong direction of time, like heat backwards: it has "
        f"no stable solution. Check the sign of u.dt, or give {other}=... instead of {given}=..."
    )


def rate_at(equation: Callable[..., Any], domain: AbstractDomain) -> float:
    """The derivative of an equation in `u.dt` at the middle of a domain."""
    return float(_at(_TimeRate(equation), *_resting(domain)))


def _resting(domain: AbstractDomain) -> tuple[np.ndarray, ...]:
    """The middle of a domain, and the jet of zero."""
    zero, none = np.zeros(domain.dim), np.zeros(())
    return np.asarray(domain.centre, np.float64), none, zero, none, zero, none


@compiled(brief=True)
def _at(rate: _TimeRate, *jet: Any) -> Array:
    return rate(*jet)
