"""`judge`: whether a solution solves its problem.

Four numbers without a scale, on fresh points:

- *residual*: `L Q` over the terms of the equation (see `sizes.py`).
- *learned*: `L Q` over `L f`, what the extension of the boundary data leaves to learn.
- *walks*: the relative L2 error as random walks see it, for linear equations with `c >= 0` (see `spot.py`).
- *estimate*: where there are no walks, `|L Q| / s` over `|Q|`, `s` the equation's stiffness, and a correction
  of `Q` that takes away most of `L Q` (see `sizes.py`).

A residual bounds the error only through the conditioning of the problem, and is blind to creases of `Q`. So
walks decide where they can; then a proved bound. The estimate calls nothing solved, and nothing unsolved
unless a correction shows it.
"""

import math

from .._arguments import an_instance
from .._equation.operator import Structure
from .._precision import x64
from .._problem.solution import Solution
from .._problem.verdict import Reason, Verdict, Word
from .._status import Status
from .._trust.certificate import Kind, Norm
from .._trust.certify import certify
from .._trust.residual import CELLS, rough_parts
from .sizes import Sizes, correction, sizes_of
from .spot import Spot, spot_check

# A relative error up to which a problem is solved, and beyond which it is not.
ERROR = 0.1
# What the upper end of the walks' interval must not exceed for that, because it may be too low.
_SURE = 0.05
# What a soft boundary may miss: below the first part of that it is small, beyond the second it is not.
_SMALL, _LARGE = 3.0, 5.0
# `L Q` over the terms: beyond this a problem is not called solved.
_RESIDUAL = 0.3
# A correction counts where it takes away this part of the squared residual.
_EXPLAINED = 0.5
# `L Q` over `L f`: beyond, the network has learned next to nothing.
_LEARNED = 0.8
# Up to this dimension the bound of a certificate is cheap.
_CERTIFIED = 200


@x64()
def judge(solution: Solution) -> Verdict:
    """Whether a solution solves its problem, from fresh points; about two seconds.

        >>> judge(solution).word
        <Word.SOLVED: 'solved'>

    `solve` does it at its end, see `solution.verdict`; this is for solutions that were changed since.
    """
    an_instance("solution", solution, Solution, "qpde.solve(problem)")
    return verdict_of(solution)


def verdict_of(solution: Solution) -> Verdict:
    """The verdict; of a run that was interrupted only from the residual, because somebody waits."""
    sizes = sizes_of(solution)
    if not sizes.finite:
        text = "Q or L Q is not finite somewhere in the domain"
        reason = Reason("residual", None, Word.NOT_SOLVED, text)
        return Verdict(Word.NOT_SOLVED, text, (reason,), _advice(solution))
    reasons = [_residual(sizes), _learned(sizes)]
    if not solution.trial.exact_boundary:
        reasons.append(_boundary(sizes))
    if sizes.value == sizes.residual == sizes.edge == 0:
        return _decide(solution, [*reasons, _zero()])
    if solution.status is Status.INTERRUPTED:
        return _decide(solution, [*reasons, Reason("walks", None, None, "no walks: interrupted")])
    walked = _walks(
        spot_check(solution, sizes.value, (_SURE * sizes.value, ERROR * sizes.value)), sizes
    )
    reasons.append(walked)
    if walked.word is None:
        reasons += _without_walks(solution, sizes)
    return _decide(solution, reasons)


def _ratio(a: float, b: float) -> float:
    """`a / b`, where nothing over nothing is nothing."""
    return 0.0 if a == 0 else a / b if b > 0 else math.inf


def _relative(error: float, size: float) -> float:
    """A bound for `|Q - u| / |u|` from one of `|Q - u|`, because `|u| >= |Q| - |Q - u|`."""
    return error / (size - error) if size > error else math.inf


def _residual(sizes: Sizes) -> Reason:
    value = _ratio(sizes.residual, sizes.terms)
    word = Word.SOLVED if value <= _RESIDUAL else Word.ROUGHLY
    return Reason("residual", value, word, "L Q over the terms of the equation")


def _learned(sizes: Sizes) -> Reason:
    name, text = "learned", "L Q over L f, what is left of what there was to learn,"
    if sizes.start <= 1e-9 * sizes.terms:
        return Reason(name, None, None, "L f is zero up to rounding: there is nothing to learn")
    value = _ratio(sizes.residual, sizes.start)
    return Reason(name, value, Word.ROUGHLY if value > _LEARNED else Word.SOLVED, text)


def _boundary(sizes: Sizes) -> Reason:
    value = _ratio(sizes.edge, sizes.value)
    word = Word.SOLVED if value <= ERROR / _SMALL else Word.ROUGHLY
    word = Word.NOT_SOLVED if value > _LARGE * ERROR else word
    return Reason("boundary", value, word, "Q - f on the boundary over Q")


def _zero() -> Reason:
    return Reason("error", 0.0, Word.SOLVED, "Q = 0 satisfies the equation at all points")


def _walks(spot: Spot, sizes: Sizes) -> Reason:
    if spot.error is None or spot.low is None or spot.high is None:
        return Reason("walks", None, None, f"no random walks: {spot.text}")
    # |u| <= |Q| + |Q - u| makes a lower end relative.
    low, high = _ratio(spot.low, sizes.value + spot.low), _relative(spot.high, sizes.value)
    value = spot.error / sizes.value if sizes.value > 0 else math.inf
    residual = _ratio(sizes.residual, sizes.terms)
    if spot.high <= _SURE * sizes.value:
        word, text = Word.SOLVED, f"about {value:.2g}, interval up to {high:.2g}"
    elif spot.low > ERROR * sizes.value:
        word, text = Word.NOT_SOLVED, f"at least {low:.2g}"
    elif value > ERROR and residual > _RESIDUAL:
        word, text = Word.NOT_SOLVED, f"about {value:.2g} (L Q is {residual:.2g} of the terms)"
    elif high <= 1.0:
        word, text = Word.ROUGHLY, f"between {low:.2g} and {high:.2g}"
    else:
        word, text = None, "unknown, because the walks spread too much"
    return Reason("walks", value, word, f"relative L2 error {text}, by {spot.text}")


def _without_walks(solution: Solution, sizes: Sizes) -> list[Reason]:
    """What else can be had: the relative bound of a certificate, or an estimate from the stiffness."""
    rough = rough_parts(solution.trial, solution.problem.domain)
    if rough:
        text = f"{' and '.join(rough)} may have kinks inside, which L Q does not see"
        return [Reason("estimate", None, Word.ROUGHLY, text)]
    bound = _certificate(solution)
    if bound.word is Word.SOLVED:
        return [bound]
    return [bound, _estimate(solution, sizes)]


def _certificate(solution: Solution) -> Reason:
    """The relative bound, where it is cheap: constant coefficients and exact boundary values."""
    name = "certificate"
    try:
        operator = solution.problem.operator
        plain = operator.isotropic and not {"A", "b"} & operator.varies
        plain = plain and solution.problem.dim <= _CERTIFIED
        # Cells of a program of fourth order take minutes.
        plain = plain and not (operator.order == 4 and solution.problem.dim in CELLS)
        if operator.structure is Structure.NONLINEAR or not plain:
            return Reason(name, None, None, "a bound for these coefficients would take longer")
        if not solution.trial.exact_boundary:
            return Reason(name, None, None, "the boundary is soft")
        found = certify(solution)  # in the whole space, at the starting point
    except ValueError as error:
        return Reason(name, None, None, _first_sentence(error))
    value = found.relative_bound
    if value is None or found.kind is Kind.HEURISTIC:
        return Reason(name, value, None, f"the bound is {found.kind}")
    word = Word.SOLVED if value <= ERROR else Word.ROUGHLY
    norm = "error at the start" if found.norm is Norm.VALUE else "L2 error"
    return Reason(name, value, word, f"relative {norm} at most {value:.2g} ({found.kind} bound)")


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")


def _estimate(solution: Solution, sizes: Sizes) -> Reason:
    found = correction(solution)
    if found is None or not found.stiffness > 0:
        return Reason("estimate", None, Word.ROUGHLY, "no estimate: the equation has no derivative")
    value = _ratio(sizes.residual / found.stiffness + sizes.edge, sizes.value)
    text = f"relative L2 error about {value:.2g}, estimated from the residual alone"
    # |u| <= |Q| + |v| makes the size of a correction relative.
    missing = _ratio(found.size, sizes.value + found.size)
    if missing > ERROR and found.explained > _EXPLAINED:
        text = (
            f"relative L2 error about {missing:.2g}: a smooth correction of that size takes away "
            f"{100 * found.explained:.0f} % of the squared residual"
        )
        return Reason("estimate", missing, Word.NOT_SOLVED, text)
    return Reason("estimate", value, Word.ROUGHLY, text)


def _decide(solution: Solution, reasons: list[Reason]) -> Verdict:
    """Walks decide, then a bound, then the estimate; the other numbers can only take away."""
    said = {reason.name: reason for reason in reasons if reason.word is not None}
    first = ("error", "walks", "certificate", "estimate")
    deciding = [said[name] for name in first if name in said]
    solved = [reason for reason in deciding if reason.word is Word.SOLVED]
    if "walks" in said:
        chosen = said["walks"]
    elif deciding:
        chosen = (solved or deciding)[0]
    else:  # nothing but the residual, which shows no error
        chosen = Reason("residual", None, Word.ROUGHLY, "nothing but the residual was looked at")
    word, text = chosen.word or Word.ROUGHLY, chosen.text
    measured = chosen.name in ("error", "walks", "certificate")
    for name in ("residual", "learned", "boundary"):
        other = said.get(name)
        if other is None or other.word is None or _RANK[other.word] <= _RANK[word]:
            continue
        # What was measured or proved stands; a bad residual beside it only costs the best word.
        word = Word.ROUGHLY if measured else other.word
        text = f"{other.text} is {other.value:.2g}; {chosen.text}"
    advice = _advice(solution) if word is not Word.SOLVED else ""
    return Verdict(word, text, tuple(reasons), advice)


_RANK = {Word.SOLVED: 0, Word.ROUGHLY: 1, Word.NOT_SOLVED: 2}


def _advice(solution: Solution) -> str:
    """What to try, by what was done."""
    if not solution.status.successful and solution.status is not Status.INTERRUPTED:
        return solution.status.value.rstrip(".")
    if rough_parts(solution.trial, solution.problem.domain):
        return "smooth functions: boundary values extended by qpde.lift, an activation such as tanh"
    if not solution.stages:
        return (
            "leave rule and steps out, so that stages are chosen for the problem; or go on from here with "
            "solve(problem, initial=solution)"
        )
    if solution.status is Status.BUDGET:
        seconds = max(10.0, 4.0 * solution.seconds)
        return f"a larger budget, budget={seconds:.0f}; go on with solve(problem, initial=solution)"
    return (
        "a wider network, network=qpde.Shallow(1024, polynomial=True, beta=0.5, amplitude=0.03), a deeper "
        "one, network=qpde.MLP([64, 64]), or another seed"
    )
