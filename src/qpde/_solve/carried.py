"""The bound of a solution in windows: each carries the error of the last one on.

In a window of length `h` let `w` be the exact solution from the last `Q`. With the constant `gamma_F` of `F`
in `L u = F - k u_t`, the difference of two solutions shrinks, or grows, as `e^(-gamma_F s / k)`; so in L2, at
the end of window `j`,

    E_j <= e^(-gamma_F h / k) E_(j-1) + B_j,

where `B_j` bounds `Q - w` at the last instant (`certify(..., norm="last")`). Over the time of a window the
carried part has the mean square `E_(j-1)^2` times that of `e^(-gamma_F s / k)`.
"""

import dataclasses
import math
from typing import Any

from .._arguments import an_instance, one_of, real
from .._monotone.monotonicity import monotonicity
from .._trust.certificate import Certificate, Kind, Norm
from .._trust.certify import certify
from .windows import Windowed

_ORDER = (Kind.RIGOROUS, Kind.STATISTICAL, Kind.ASSUMING, Kind.HEURISTIC)


def certify_windows(solution: Any, confidence: Any = 0.99, *, norm: Any = "last") -> Certificate:
    """A bound for the error of a solution in windows, carried over from window to window.

        >>> certify_windows(solve_windows(problem, 5))
        ||Q - u|| in L2 at the last instant <= ...

    **Arguments**

    - `confidence`: of all windows together.
    - `norm`: `"last"`, at the last instant, or `"l2"`, over space and time.
    """
    an_instance("solution", solution, Windowed, "qpde.solve_windows(problem, 5)")
    one_of("norm", norm, ("last", "l2"))
    share = float(real("confidence", confidence, least=0.5, most=1.0))
    count, parts = len(solution.windows), 1 if norm == "last" else 2
    each = 1.0 - (1.0 - share) / (parts * count)
    carried, squares, found = 0.0, 0.0, list[Certificate]()
    for window in solution.windows:
        constant = monotonicity(window.problem, measure=window.measure)
        if norm == "l2":
            found.append(certify(window, confidence=each, monotonicity=constant))
            mean = _mean_square(2.0 * _exponent(window.problem.rate, constant.spatial, solution))
            squares += (found[-1].bound + carried * math.sqrt(mean)) ** 2 / count
        last = certify(window, confidence=each, norm="last", monotonicity=constant)
        found.append(last)
        exponent = _exponent(window.problem.rate, constant.spatial, solution)
        carried = math.exp(-exponent) * carried + last.bound
    return _joined(found, carried if norm == "last" else math.sqrt(squares), share, Norm(norm))


def _exponent(rate: Any, spatial: float | None, solution: Windowed) -> float:
    """`gamma_F h / k`."""
    if spatial is None:
        raise ValueError("No bound for the error: the equation has no constant in space.")
    return spatial * solution.length / float(rate)


def _mean_square(x: float) -> float:
    """The mean of `e^(-x s)` for `s` from 0 to 1."""
    return 1.0 if x == 0 else -math.expm1(-x) / x


def _joined(found: list[Certificate], bound: float, share: float, norm: Norm) -> Certificate:
    """One certificate with the weakest word of all, and what all of them assume."""
    kind = max((one.kind for one in found), key=_ORDER.index)
    assumptions = dict.fromkeys(words for one in found for words in one.assumptions)
    return dataclasses.replace(
        found[-1],
        bound=bound,
        relative_bound=None,
        norm=norm,
        kind=kind,
        confidence=None if kind in (Kind.RIGOROUS, Kind.HEURISTIC) else share,
        residual=max(one.residual for one in found),
        factor=bound / max(max(one.residual for one in found), 1e-300),
        assumptions=tuple(assumptions),
        monotonicity=None,
        weight=None,
    )
