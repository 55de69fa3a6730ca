"""Programs inside programs, and derivative rules of a user's own.

Automatic differentiation takes the derivative of a function with a rule of its own (`jax.custom_jvp`) from
the rule, not from the program. A rule can say anything; only those that JAX itself brings are believed.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxpr_as_fun

# Operations that call a program of the same inputs and outputs.
_CALLS = frozenset(
    (
        *("jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"),
    )
)
# Functions of JAX that have a derivative rule, by the names that their programs carry.
_REFERENCES = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "logit": jax.scipy.special.logit,
    "logaddexp": jnp.logaddexp,
    "logaddexp2": jnp.logaddexp2,
    "xlogy": jax.scipy.special.xlogy,
    "xlog1py": jax.scipy.special.xlog1py,
}
# Smooth, and rising in both arguments, although their programs compare and choose.
SMOOTH_FUNCTIONS = frozenset(("logaddexp", "logaddexp2"))


def called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The program that an equation of a program calls, where it does nothing else."""
    if equation.primitive.name not in _CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(name)
        if isinstance(inner, Jaxpr):
            inner = ClosedJaxpr(inner, ())
        if isinstance(inner, ClosedJaxpr):
            fits = len(inner.jaxpr.invars) == len(equation.invars)
            return inner if fits and len(inner.jaxpr.outvars) == len(equation.outvars) else None
    return None


def branches(equation: JaxprEqn) -> tuple[ClosedJaxpr, ...]:
    """The programs between which `jax.lax.cond` or `jax.lax.switch` chooses by their first operand."""
    return tuple(equation.params["branches"]) if equation.primitive.name == "cond" else ()


def has_rule(equation: JaxprEqn) -> bool:
    """Whether the derivatives of what it calls come from a rule and not from the program."""
    return equation.primitive.name.startswith(("custom_jvp", "custom_vjp"))


def known_function(equation: JaxprEqn) -> str | None:
    """The name of a function of JAX that has a derivative rule of JAX's own; None for everybody else's.

    A name proves nothing, because anybody may join a function of JAX with another rule: the programs of the
    function and of its derivative must be, line by line, those that JAX itself makes.
    """
    inner = called(equation)
    if inner is None or equation.primitive.name != "custom_jvp_call":
        return None
    name = _name(inner.jaxpr)
    operands = [atom.aval for atom in equation.invars]
    with jax.numpy_rank_promotion("allow"):  # operands are as they were met
        reference = _reference(name, tuple(map(str, operands)), operands)
        same = reference is not None and _texts(equation) == reference
    return name if same else None


def _name(program: Jaxpr) -> str:
    return str(getattr(program.debug_info, "func_src_info", None)).partition(" at ")[0]


_KNOWN: dict[Any, tuple[str, str] | None] = {}


def _reference(name: str, kinds: tuple[str, ...], operands: list[Any]) -> tuple[str, str] | None:
    """The programs that JAX makes of its own function of that name."""
    if name not in _REFERENCES:
        return None
    key = (name, kinds)
    if key not in _KNOWN:
        arguments = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in operands]
        try:
            program = jax.make_jaxpr(_REFERENCES[name])(*arguments)
        except (
            TypeError,
            ValueError,
        ):  # a batch along axes of its own, which the function does not take
            _KNOWN[key] = None
            return None
        found = next(_with_rules(program.jaxpr), None)
        fits = found is not None and [str(atom.aval) for atom in found.invars] == list(kinds)
        _KNOWN[key] = _texts(found) if found is not None and fits else None
    return _KNOWN[key]


def _with_rules(program: Jaxpr) -> Iterator[JaxprEqn]:
    for equation in program.eqns:
        inner = called(equation)
        if has_rule(equation):
            yield equation
        elif inner is not None:
            yield from _with_rules(inner.jaxpr)


def _texts(equation: JaxprEqn) -> tuple[str, str] | None:
    """What an operation computes and what its derivative does, in letters.

    None where it holds arrays, which do not show in a program's text.
    """
    inner = called(equation)
    assert inner is not None  # it has a rule, so that it calls a program
    operands: list[Any] = [atom.aval for atom in equation.invars]
    variables: list[Any] = [Var(operand) for operand in operands]
    alone = Jaxpr(
        (),
        variables,
        list(equation.outvars),
        [equation.replace(invars=variables)],
        equation.effects,
        debug_info=inner.jaxpr.debug_info,
    )
    function = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    points = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in operands]
    count = len(points)
    derivative = jax.make_jaxpr(lambda *both: jax.jvp(function, both[:count], both[count:]))(
        *points, *points
    )
    return None if inner.consts or derivative.consts else (str(inner), str(derivative))
