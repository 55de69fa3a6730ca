"""Do the certificates hold? Every linear or monotone semilinear problem of the zoo, 20 seeds, short training.

Run:     python benchmarks/certificates.py [--seeds 20] [--out benchmarks]
Writes:  certificates.json and CERTIFICATES.md

The lengths of training differ from seed to seed, so that errors span several decades. For every run the bound
of `qpde.certify` is compared with the root mean square error on 100,000 points. At 99 % confidence one run in
a hundred may fail.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import qpde
from qpde import zoo

PROBLEMS = [
    *(("survival", dim) for dim in (1, 2, 10, 20, 100)),
    *(("poisson_sine", dim) for dim in (1, 2, 5)),
    *(("ellipsoid", dim) for dim in (3, 10)),
    *(("annulus", dim) for dim in (3, 10)),
    ("drift", 10),
    ("semilinear", 10),
]
STEPS = (10, 30, 100, 300, 1_000)


def errors(name: str, dim: int, seeds: int) -> dict[str, Any]:
    """The bound over the true error for every seed."""
    problem = zoo.CATALOGUE[name].build(dim)
    constant = qpde.monotonicity(problem)
    rows, size = [], _size(problem)
    for seed in range(seeds):
        steps = STEPS[seed % len(STEPS)]
        solution = qpde.solve(problem, steps=steps, seed=seed, progress=False)
        found = qpde.certify(solution, monotonicity=constant)
        relative = solution.score.relative_l2_error
        assert relative is not None  # every problem here has an exact solution
        row = {"seed": seed, "steps": steps, "error": relative * size, "relative_error": relative}
        rows.append(row | {"bound": found.bound, "kind": found.kind, "skill": solution.score.skill})
    return {
        "problem": name,
        "dim": dim,
        "constant": constant.constant,
        "how": constant.kind,
        "runs": rows,
    }


def _size(problem: qpde.Problem) -> float:
    """The root mean square of the exact solution, from 200,000 points."""
    import jax
    import jax.numpy as jnp

    assert problem.exact is not None
    with jax.enable_x64(True):
        total = 0.0
        many = jax.jit(jax.vmap(problem.exact))
        for i in range(20):
            x = problem.domain.sample(jax.random.key(i), 10_000)
            total += float(jnp.mean(many(x) ** 2)) / 20
    return total**0.5


def markdown(results: list[dict[str, Any]]) -> str:
    """The results as a page."""
    cases = [run for result in results for run in result["runs"]]
    held = sum(run["bound"] >= run["error"] for run in cases)
    lines = [
        "# Do the certificates hold?",
        "",
        "Written by `benchmarks/certificates.py`. Training is deliberately short, of lengths that differ "
        "from seed to seed. Effectivity is bound / true error in L2.",
        "",
        f"**The bound held in {held} of {len(cases)} runs.**",
        "",
        "| problem | d | constant | relative errors | held | effectivity: median (range) |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        runs = result["runs"]
        ratio = np.array([run["bound"] / run["error"] for run in runs])
        size = [run["relative_error"] for run in runs]
        lines.append(
            f"| {result['problem']} | {result['dim']} | {result['constant']:.4g} ({result['how']}) | "
            f"{min(size):.1e} to {max(size):.1e} | {np.sum(ratio >= 1)} of {len(runs)} | "
            f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f}) |"
        )
    lines += [
        "",
        "In one and two dimensions the effectivity is larger: the bound divides by the smallest eigenvalue "
        "of the operator, while the error that training leaves sits in modes whose eigenvalue is far above "
        "it. In higher dimensions the eigenvalues of the modes that a network resolves lie closer together.",
    ]
    return "\n".join(lines) + "\n"


def main(seeds: int, out: str | None) -> None:
    """Run everything, print the page, write it."""
    warnings.filterwarnings("ignore", message="Training made nothing better")
    results = []
    for name, dim in PROBLEMS:
        results.append(errors(name, dim, seeds))
        print(markdown(results[-1:]).splitlines()[-3], flush=True)
    page = markdown(results)
    print(page)
    if out is not None:
        Path(out, "certificates.json").write_text(json.dumps(results, indent=1) + "\n")
        Path(out, "CERTIFICATES.md").write_text(page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", help="folder to write to; none by default")
    main(**vars(parser.parse_args()))
