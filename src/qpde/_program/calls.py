"""Programs inside programs, and derivative rules of a user's own.

Automatic differentiation takes the derivative of a function with a rule of its own (`jax.custom_jvp`) from
the rule, not from the program. A rule can say anything; only those that JAX itself brings are believed.
"""

from pathlib import Path
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

# Operations that call a program of the same inputs and outputs.
_CALLS = frozenset(
    (
        *("jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "remat", "remat2", "checkpoint"),
    )
)
_JAX = str(Path(jax.__file__).parent)
# Where JAX keeps the rule that it makes of one function for each argument.
_GENERIC = "custom_derivatives.py"
_WITH_GENERIC_RULE = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "logit": jax.scipy.special.logit,
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
    """The name of a function of JAX that has a derivative rule of JAX's own; None for everybody else's."""
    inner = called(equation)
    if inner is None or equation.primitive.name != "custom_jvp_call":
        return None
    name, _, place = _source(inner.jaxpr).partition(" at ")
    _, _, rule = _source(equation.params["jvp_jaxpr_fun"]).partition(" at ")
    if not (place.startswith(_JAX) and rule.startswith(_JAX)):
        return None
    if _GENERIC not in rule:
        return name
    # A user may give a function of JAX another rule, by the same helper: compare what the rules say.
    reference = _WITH_GENERIC_RULE.get(name)
    return name if reference is not None and _same_rule(equation, reference) else None


def _source(part: Any) -> str:
    return str(getattr(getattr(part, "debug_info", None), "func_src_info", None))


def _same_rule(equation: JaxprEqn, reference: Any) -> bool:
    """Whether the derivative of one operation is, line by line, that of a function of JAX."""
    (operand, *more) = equation.invars
    if more or isinstance(operand, Literal):
        return False
    alone = Jaxpr(
        (),
        [operand],
        list(equation.outvars),
        [equation],
        equation.effects,
        debug_info=equation.params["call_jaxpr"].jaxpr.debug_info,
    )
    aval: Any = operand.aval
    return _derivative(_Alone(alone), aval.shape, aval.dtype) == _derivative(
        reference, aval.shape, aval.dtype
    )


class _Alone:
    """One operation as a function."""

    def __init__(self, program: Jaxpr):
        self._function = jaxpr_as_fun(ClosedJaxpr(program, ()))

    def __call__(self, x: Any) -> Any:
        return self._function(x)[0]


def _derivative(function: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """The program of a derivative, in letters."""
    one = jax.ShapeDtypeStruct(shape, dtype)
    program = jax.make_jaxpr(lambda x, t: jax.jvp(function, (x,), (t,)))(one, one)
    return str(program)
