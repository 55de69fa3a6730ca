"""How programs are compiled: `@compiled`, at the top of a file, stands for `@eqx.filter_jit`.

Settings of XLA decide how long a user waits for the first answer (JAX 0.10.2, benchmarks/start.py):

- Its newer way to write fused loops takes half as long again to compile. The loops of first-order steps are
  then 1.2 to 1.5 times as quick, so programs that run for most of a solve have it: `@compiled(hot=True)`.
- A program that is called a few times on few points need not be optimised: `@compiled(brief=True)`.

Names of settings come and go with versions of XLA. Other versions of JAX than the one measured get none of
them, and compile as they see fit. A program inside another one is compiled with it, by its settings.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import equinox as eqx
import jax

_Function = TypeVar("_Function", bound=Callable[..., Any])

SETTINGS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
BRIEF: dict[str, Any] = {
    **SETTINGS,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
MEASURED = jax.__version_info__[:2] == (0, 10)

if MEASURED:
    from jax._src.core import trace_state_clean
else:

    def trace_state_clean() -> bool:
        """Whether a call is not part of another program; unknown, so that no settings are used."""
        return False


@overload
def compiled(function: _Function, /) -> _Function: ...
@overload
def compiled(
    *, brief: bool = ..., hot: bool = ..., donate: Any = ...
) -> Callable[[_Function], _Function]: ...
def compiled(
    function: Any = None, /, *, brief: bool = False, hot: bool = False, donate: Any = "none"
) -> Any:
    """A compiled function, like `eqx.filter_jit`: arrays are arguments, all else is part of the program."""
    if function is None:
        return functools.partial(compiled, brief=brief, hot=hot, donate=donate)
    settings = {} if hot or not MEASURED else BRIEF if brief else SETTINGS
    return _Compiled(function, settings, donate)


class _Compiled:
    """Two programs of one function: one with settings, and one that may be part of another program."""

    def __init__(self, function: Callable[..., Any], settings: dict[str, Any], donate: Any):
        functools.update_wrapper(self, function)
        # Equinox hands further options on to `jax.jit`; its types do not say so.
        jit: Any = eqx.filter_jit
        self._alone = jit(function, donate=donate, compiler_options=settings or None)
        self._inside = jit(function, donate=donate)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        chosen = self._alone if trace_state_clean() else self._inside
        return chosen(*arguments, **options)

    def clear_cache(self) -> None:
        """Forget what has been compiled."""
        for program in (self._alone, self._inside):
            # Equinox keeps JAX's function in `_cached`.
            program._cached.clear_cache()
