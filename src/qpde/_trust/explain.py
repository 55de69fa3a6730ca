"""`explain`: what the convergence theory says about one problem, in plain words.

It asks whether each assumption of the theory holds, how that is known, and what to expect of which rule.
"""

import dataclasses
import textwrap
from typing import Any

from .._arguments import an_instance
from .._equation.generator import Generator
from .._equation.operator import Structure
from .._monotone.monotonicity import Ground, Monotonicity
from .._network.base import as_network_field
from .._network.shallow import Shallow
from .._precision import cast, key_from, x64
from .._problem.measure import AbstractMeasure, Uniform, law_on
from .._problem.problem import Problem
from .._problem.trial import Trial
from .domain_findings import boundary_finding, eta_finding, extension_finding
from .equation_findings import (
    elliptic_finding,
    lipschitz_finding,
    monotone_finding,
    order_finding,
)
from .finding import Answer, Evidence, Finding
from .network_findings import activation_finding, law_finding, network_finding
from .residual import CELLS, rough_parts

_WIDTH = 90
_WORDS = (
    "In these words L u = 0 is the equation, and u is looked for as S eta + f: a network S, a factor eta "
    "that is zero on the boundary, the boundary data f continued inside. Proved: for certain. Sampled: "
    "seen at random points, no proof."
)
_ORDINARY = {
    Structure.LINEAR: "linear",
    Structure.SEMILINEAR: "semilinear (only the value of u enters nonlinearly)",
    Structure.NONLINEAR: "nonlinear in derivatives of u, or not continuous in u",
}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What holds for a problem and what to expect.

    `findings` are the assumptions of the theory, `tools` what can be had beside training, `rules` the names
    of the rules to try, in order, and `recommendation` says why. `explanation["monotone"]` is the finding
    of that name.
    """

    problem: str
    domain: str
    equation: str
    findings: tuple[Finding, ...]
    tools: tuple[Finding, ...]
    rules: tuple[str, ...]
    recommendation: str

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings + self.tools:
            if finding.name == name:
                return finding
        names = ", ".join(finding.name for finding in self.findings + self.tools)
        raise KeyError(f"There is no finding {name!r}. There are: {names}.")

    def __repr__(self) -> str:
        lines = _wrap(f"{self.problem}: {self.domain}. The equation is {self.equation}.", "")
        lines += _wrap(_WORDS, "")
        lines += ["", "What the convergence theory asks"]
        for finding in self.findings:
            lines += _lines(finding)
        lines += ["", "What else you can have"]
        for finding in self.tools:
            lines += _lines(finding)
        return "\n".join([*lines, "", "What to do", *_wrap(self.recommendation, "  ")])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "problem": self.problem,
            "domain": self.domain,
            "equation": self.equation,
            "findings": [finding.as_dict() for finding in self.findings],
            "tools": [finding.as_dict() for finding in self.tools],
            "rules": list(self.rules),
            "recommendation": self.recommendation,
        }


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _lines(finding: Finding) -> list[str]:
    basis = f" ({finding.basis})" if finding.basis else ""
    lines = [f"  {finding.verdict.name:<8}{finding.name}{basis}"]
    lines += _wrap(finding.text, " " * 10)
    return lines + (_wrap(f"-> {finding.advice}", " " * 10) if finding.advice else [])


@x64()
def explain(
    problem: Problem, *, network: Any = None, measure: AbstractMeasure | None = None
) -> Explanation:
    """Whether the assumptions of the convergence theory hold for a problem, and what to expect.

        >>> print(explain(zoo.survival(20)))

    Nothing is trained. Every finding says whether it is proved, sampled (seen at random points, which is no
    proof) or not known.

    **Arguments**

    - `network`, `measure`: what you will give to `solve`; its defaults otherwise.
    """
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    measure = law_on(problem.domain, measure)
    source = Shallow() if network is None else network
    field = as_network_field(source, problem.domain, key=key_from(0), dtype="float64")
    trial = Trial.of(problem, cast(field, "float64"), exact_boundary=True)
    monotone, constant = monotone_finding(problem, measure)
    findings = (
        boundary_finding(problem.domain),
        eta_finding(problem.domain),
        extension_finding(problem),
        network_finding(field),
        activation_finding(field, problem.domain),
        law_finding(measure, problem),
        elliptic_finding(problem) if problem.order == 2 else order_finding(problem),
        lipschitz_finding(problem),
        monotone,
    )
    rough = rough_parts(trial, problem.domain)
    walks = _walk_finding(problem)
    bound = _bound_finding(problem, constant, measure, rough, findings[2])
    rules, recommendation = _recommend(findings, monotone)
    return Explanation(
        problem=problem.name,
        domain=repr(problem.domain),
        equation=_ORDINARY[problem.operator.structure],
        findings=findings,
        tools=(bound, walks),
        rules=rules,
        recommendation=recommendation,
    )


def _bound_finding(
    problem: Problem,
    found: Monotonicity | None,
    measure: AbstractMeasure,
    rough: list[str],
    extension: Finding,
) -> Finding:
    """What `certify` can give."""
    name, heuristic = "error bound by certify", "qpde.certify(solution, heuristic=True)"
    if rough or extension.verdict is Answer.NO:
        what = " and ".join(rough) or "the boundary data"
        text = f"It refuses: {what} may be too rough inside. {heuristic} gives an estimate."
        return Finding(name, Answer.NO, Evidence.NONE, text, extension.advice)
    if found is not None and found.kind is Ground.PROVED:
        text = "qpde.certify(solution) divides the residual by the constant: a statistical bound"
        exact = problem.dim in CELLS and isinstance(measure, Uniform)
        text += (
            ", with rigorous=True a rigorous one where interval arithmetic can." if exact else "."
        )
        return Finding(name, Answer.YES, Evidence.NONE, text)
    if found is not None and found.kind in (Ground.SAMPLED, Ground.CONDITIONAL):
        text = f"The constant is not proved for all that matters: {heuristic} gives an estimate."
        advice = (
            "A bound or a range that you know (see qpde.monotonicity) makes it a statistical one."
        )
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, advice)
    text = f"Without a constant there is no bound; {heuristic} tries an estimate, and may refuse."
    advice = ""
    if found is not None and found.discount is not None and found.discount >= 0:
        advice = 'The term in u has the right sign: try norm="sup", which needs no constant.'
    return Finding(name, Answer.NO, Evidence.NONE, text, advice)


def _walk_finding(problem: Problem) -> Finding:
    """Whether `feynman_kac` applies."""
    name = "values by random walks"
    try:
        walk = Generator.of(problem.operator)
    except ValueError as error:
        return Finding(name, Answer.NO, Evidence.NONE, f"{str(error).split('. ')[0]}.")
    paths: Any = problem.domain
    quick = walk.on_spheres
    if paths.follows_paths:
        quick = paths.law.exact and walk.killing is not None
    how = "walks in time steps"
    if quick:
        how = (
            "exact steps to the data"
            if paths.follows_paths
            else "walks on spheres, without time steps"
        )
    text = f"qpde.feynman_kac(solution, points) gives values with confidence intervals, by {how}."
    return Finding(name, Answer.YES, Evidence.NONE, text)


def _recommend(findings: tuple[Finding, ...], monotone: Finding) -> tuple[tuple[str, ...], str]:
    """Which rule, and why."""
    if monotone.verdict is Answer.NO:
        return ("deep-galerkin",), (
            "Use qpde.DeepGalerkin(): it descends the squared residual and does not rest on monotonicity, "
            "though nothing proves that it converges. QLearning may go astray here, because the equation "
            f"is not monotone.{' Or change the law as said above.' if monotone.advice else ''}"
        )
    if monotone.verdict is Answer.UNKNOWN:
        return ("q-learning", "deep-galerkin"), (
            "Try qpde.QLearning() beside qpde.DeepGalerkin(), for example by `qpde compare`, "
            "and keep the smaller residual: whether Q-learning converges is not known, because "
            "monotonicity is not."
        )
    unmet = [f.name for f in findings if f.verdict is Answer.NO]
    unknown = [f.name for f in findings if f.verdict is Answer.UNKNOWN]
    sampled = any(f.verdict is Answer.YES and f.basis is Evidence.SAMPLED for f in findings)
    known = "" if monotone.basis is Evidence.PROVED else ", as far as samples tell"
    text = f"Use qpde.QLearning(): the equation is monotone{known}, which is what makes it "
    text += "converge. "
    if unmet or unknown:
        parts = [f"not met: {', '.join(unmet)}"] if unmet else []
        parts += [f"not known: {', '.join(unknown)}"] if unknown else []
        text += (
            f"But the theorem does not apply as it stands ({'; '.join(parts)}): check the result. "
        )
    else:
        text += f"All other assumptions looked at hold{', as far as samples tell' * sampled}. "
    text += (
        "The theorem is about wide networks trained for a long time by plain gradient steps (qpde.Flow; "
        "Adam is not covered), and about problems with a solution whose second derivatives "
        "are square integrable, which is not checked. It gives no rate: the limit has no spectral gap, so "
        "expect an error that falls fast at first and ever more slowly later."
    )
    return ("q-learning",), text
