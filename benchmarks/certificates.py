"""Do the certificates hold? Six kinds of problems, runs of several lengths, bound against true error.

Run:     python benchmarks/certificates.py [--runs 5] [--only weights,spikes] [--out benchmarks]
Writes:  certificates.json and CERTIFICATES.md

- zoo: linear and monotone semilinear problems of the zoo, uniform law;
- weights: laws of points that are not uniform, the stationary law of a drift among them;
- lifts: boundary values that are known on the boundary alone;
- spikes: sources with a narrow bump, which random points may miss;
- varying: diffusion matrices and killing rates that vary;
- time: ten evolution problems (time_cases.py), under the uniform law of space-time.

Training is deliberately short, of lengths that differ from run to run, so that errors span several decades.
The bound of `qpde.certify` is compared with the root mean square error under the law of training, on 100,000
points. At 99 % confidence one run in a hundred may fail. A run in which `certify` refuses is counted as such.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from time_cases import problems as evolution_problems

import qpde
from qpde import zoo

STEPS = (10, 30, 100, 300, 1_000)


class Case(NamedTuple):
    """A problem with its exact solution, and the law of its points where that is not uniform."""

    kind: str
    name: str
    problem: qpde.Problem
    law: Any = None


def zoo_cases() -> Iterator[Case]:
    listed = [
        *(("survival", dim) for dim in (1, 2, 10, 20, 100)),
        *(("poisson_sine", dim) for dim in (1, 2, 5)),
        *(("ellipsoid", dim) for dim in (3, 10)),
        *(("annulus", dim) for dim in (3, 10)),
        ("drift", 10),
        ("semilinear", 10),
    ]
    for name, dim in listed:
        yield Case("zoo", f"{name}, d = {dim}", zoo.CATALOGUE[name].build(dim))


def weight_cases() -> Iterator[Case]:
    for dim, rate in ((1, 2.0), (1, 10.0), (2, 2.0), (3, 1.0)):
        problem = zoo.survival(dim)
        law = qpde.Weighted(problem.domain, _Bell(rate))
        yield Case("weights", f"survival, d = {dim}, density exp(-{rate:g} |x|^2)", problem, law)
    problem = zoo.survival(3)
    yield Case("weights", "survival, d = 3, radial", problem, qpde.Radial(problem.domain, 2.5))
    for dim in (3, 10):
        problem = zoo.drift(dim)
        law = qpde.suggest_measure(problem)
        yield Case("weights", f"drift, d = {dim}, stationary law", problem, law)


class _Bell(NamedTuple):
    rate: float

    def __call__(self, x: Any) -> Any:
        return jnp.exp(-self.rate * jnp.sum(x * x))


def lift_cases() -> Iterator[Case]:
    def waves(x: Any) -> Any:
        return jnp.exp(x[0]) * jnp.cos(x[1])

    def saddle(x: Any) -> Any:
        return x[0] * x[1] + x[0] ** 2 - x[1] ** 2

    domains = {
        "disc": (qpde.Ball(2), waves),
        "ball": (qpde.Ball(5), waves),
        "ellipse": (qpde.Ellipsoid([1.0, 0.6]), waves),
        "square": (qpde.Box([-1.0] * 2, [1.0] * 2), saddle),
        "ring": (qpde.Annulus(2, inner=0.5, outer=1.0), saddle),
    }
    for name, (domain, exact) in domains.items():
        data = qpde.lift(exact, domain)
        problem = qpde.Problem(domain, lambda x, u: u.laplacian, data, exact=exact, name=name)
        yield Case("lifts", f"harmonic function on a {name}, d = {domain.dim}", problem)


def spike_cases() -> Iterator[Case]:
    for dim, width in ((1, 0.1), (1, 0.01), (1, 1e-3), (2, 0.1), (2, 0.03), (3, 0.1)):
        problem = _manufactured(qpde.Ball(dim), _Spike(width), _laplacian, "spike")
        yield Case("spikes", f"bump of width {width:g}, d = {dim}", problem)


class _Spike(NamedTuple):
    width: float

    def __call__(self, x: Any) -> Any:
        away = x - 0.3
        bump = jnp.exp(-jnp.sum(away * away) / self.width**2)
        return (1.0 - jnp.sum(x * x)) * (1.0 + bump)


def _laplacian(x: Any, u: Any) -> Any:
    return u.laplacian - 0.5 * u.value


def varying_cases() -> Iterator[Case]:
    def wave(x: Any) -> Any:
        return (1.0 - jnp.sum(x * x)) * (1.0 + 0.5 * jnp.sin(2.0 * x[0]))

    def isotropic(x: Any, u: Any) -> Any:
        return (1.0 + 0.5 * jnp.sum(x * x)) * u.laplacian - u.value

    def skewed(x: Any, u: Any) -> Any:
        a = jnp.eye(x.size) + 0.3 * jnp.outer(x, x)
        return u.trace(a) - (1.0 + x[0] ** 2) * u.value

    def killed(x: Any, u: Any) -> Any:
        return u.laplacian - (2.0 + jnp.sin(5.0 * x[0])) * u.value

    for name, equation in (("scalar", isotropic), ("matrix", skewed), ("killing rate", killed)):
        for dim in (1, 2, 5) if equation is killed else (2, 3):
            problem = _manufactured(qpde.Ball(dim), wave, equation, name)
            yield Case("varying", f"{name}, d = {dim}", problem)


def time_cases() -> Iterator[Case]:
    for problem in evolution_problems():
        yield Case("time", f"{problem.name}, d = {problem.space_dim}", problem)


def _manufactured(domain: Any, exact: Any, equation: Any, name: str) -> qpde.Problem:
    """`L u = L exact` with the boundary values of `exact`, which are zero."""

    def shifted(x: Any, u: Any) -> Any:
        return equation(x, u) - equation(x, _Known(exact, x))

    return qpde.Problem(domain, shifted, 0.0, exact=exact, name=name)


class _Known:
    """What an equation asks of a function that is known."""

    def __init__(self, function: Any, x: Any):
        self.value, self._hessian = function(x), jax.hessian(function)(x)
        self.laplacian = jnp.trace(self._hessian)

    def trace(self, a: Any) -> Any:
        """`a : Hess`."""
        return jnp.sum(a * self._hessian)


KINDS: dict[str, Callable[[], Iterator[Case]]] = {
    "zoo": zoo_cases,
    "weights": weight_cases,
    "lifts": lift_cases,
    "spikes": spike_cases,
    "varying": varying_cases,
    "time": time_cases,
}


def measured(case: Case, runs: int) -> dict[str, Any]:
    """The bound and the true error of every run."""
    problem, rows = case.problem, []
    for seed in range(runs):
        steps = STEPS[seed % len(STEPS)]
        solution = qpde.solve(problem, steps=steps, seed=seed, measure=case.law, progress=False)
        error, size = _error(solution)
        row = {"seed": seed, "steps": steps, "error": error, "relative_error": error / size}
        try:
            found = qpde.certify(solution)
            row |= {"bound": found.bound, "word": str(found.kind), "refusal": None}
        except ValueError as refusal:
            row |= {"bound": None, "word": "refused", "refusal": str(refusal).split(". ")[0]}
        rows.append(row)
    return {"kind": case.kind, "problem": case.name, "dim": problem.space_dim, "runs": rows}


def _error(solution: qpde.Solution) -> tuple[float, float]:
    """Root mean squares of the error and of the exact solution under the law of training."""
    exact = solution.problem.exact
    assert exact is not None  # every case has one
    with jax.enable_x64(True):
        total = np.zeros(2)
        for i in range(10):
            x, weight = (
                np.asarray(v) for v in solution.measure.sample(jax.random.key(100 + i), 10_000)
            )
            u = np.asarray(jax.jit(jax.vmap(exact))(x))
            total += [np.mean(weight * (solution(x) - u) ** 2), np.mean(weight * u**2)]
    error, size = np.sqrt(total / 10)
    return float(error), float(size)


def summary(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind: problems, bounds, false ones, refusals, the median of bound / error."""
    found = {}
    for kind in dict.fromkeys(result["kind"] for result in results):
        mine = [result for result in results if result["kind"] == kind]
        runs = [run for result in mine for run in result["runs"]]
        bounds = [run for run in runs if run["bound"] is not None]
        ratio = [run["bound"] / run["error"] for run in bounds]
        found[kind] = {
            "problems": len(mine),
            "bounds": len(bounds),
            "false": sum(run["bound"] < run["error"] for run in bounds),
            "refused": len(runs) - len(bounds),
            "effectivity": float(np.median(ratio)) if ratio else None,
        }
    return found


def markdown(results: list[dict[str, Any]]) -> str:
    """The results as a page."""
    kinds = summary(results)
    bounds, wrong, refused = (
        sum(kind[name] for kind in kinds.values()) for name in ("bounds", "false", "refused")
    )
    lines = [
        "# Do the certificates hold?",
        "",
        "Written by `benchmarks/certificates.py`, which says what the kinds are. Training is deliberately "
        "short, of lengths that differ from run to run. Effectivity is bound / true error in L2.",
        "",
        f"**{wrong} of {bounds} bounds are false; {refused} runs were refused.**",
        "",
        "| kind | problems | bounds | false | refused | median effectivity |",
        "|---|---|---|---|---|---|",
    ]
    for name, kind in kinds.items():
        middle = "" if kind["effectivity"] is None else f"{kind['effectivity']:.3g}"
        counts = (kind[one] for one in ("problems", "bounds", "false", "refused"))
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {middle} |")
    lines += ["", "| kind | problem | relative errors | words | effectivity: median (range) |"]
    lines += ["|---|---|---|---|---|", *map(_line, results)]
    lines += [
        "",
        "In one and two dimensions the effectivity is larger: the bound divides by the smallest eigenvalue "
        "of the operator, while the error that training leaves sits in modes whose eigenvalue is far above "
        "it. In higher dimensions the eigenvalues of the modes that a network resolves lie closer together. "
        "Bumps of the source that hardly a point meets are counted at their full height.",
    ]
    refusals = {run["refusal"] for result in results for run in result["runs"] if run["refusal"]}
    if refusals:
        lines += ["", "Refusals:", "", *(f"- {text}" for text in sorted(refusals))]
    return "\n".join(lines) + "\n"


def _line(result: dict[str, Any]) -> str:
    runs = result["runs"]
    ratio = np.array([run["bound"] / run["error"] for run in runs if run["bound"] is not None])
    size = [run["relative_error"] for run in runs]
    spread = (
        "" if not len(ratio) else f"{np.median(ratio):.3g} ({ratio.min():.3g} to {ratio.max():.3g})"
    )
    words = ", ".join(dict.fromkeys(run["word"] for run in runs))
    errors = f"{min(size):.1e} to {max(size):.1e}"
    return f"| {result['kind']} | {result['problem']} | {errors} | {words} | {spread} |"


def main(runs: int, only: str, out: str | None) -> None:
    """Run the named kinds, print the page, write it; kinds that were not run stay as they are in `out`."""
    warnings.filterwarnings("ignore")
    file = None if out is None else Path(out, "certificates.json")
    kept = json.loads(file.read_text())["results"] if file is not None and file.exists() else []
    for kind in only.split(","):
        found = []
        for case in KINDS[kind]():
            found.append(measured(case, runs))
            print(_line(found[-1]), flush=True)
            jax.clear_caches()  # dozens of problems would fill the memory with programs
        kept = [result for result in kept if result["kind"] != kind] + found
        kept.sort(key=lambda result: list(KINDS).index(result["kind"]))
        if out is not None and file is not None:
            plain = {"summary": summary(kept), "results": kept}
            file.write_text(json.dumps(plain, indent=1) + "\n")
            Path(out, "CERTIFICATES.md").write_text(markdown(kept))
    print(markdown(kept))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--out", help="folder to write to; none by default")
    main(**vars(parser.parse_args()))
