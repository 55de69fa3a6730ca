"""Three truncations of `L Q` side by side: the paper's, the stretched one, and `psi` without damping.

    python benchmarks/truncation.py [--steps 1000]

The paper's problem in 20 dimensions with the paper's settings (qpde.presets.paper), Adam, one seed, for
several levels `K`; the first is that of the paper's formula. See docs/paper-notes.md, sections 8 and 9.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp

import qpde
from qpde import presets, zoo

LEVELS = (None, 4.0, 16.0, 64.0)
FORMS: dict[str, dict[str, Any]] = {
    "psi psi', printed": {},
    "psi psi', stretched": {"uniform": True},
    "psi": {"damped": False},
}


def lipschitz(truncation: qpde.Truncation, level: float) -> float:
    """The largest slope of the force, on a grid."""
    r = jnp.linspace(-8.0 * level, 8.0 * level, 100_001)
    slopes = jax.vmap(jax.grad(lambda x: truncation.force(x, jnp.asarray(level))))(r)
    return float(jnp.max(jnp.abs(slopes)))


def row(level: float | None, form: str, steps: int) -> str:
    """One run in one line."""
    problem = zoo.survival(20, discount=0.2)
    truncation = None if form == "off" else qpde.Truncation(level, **FORMS[form])
    rule = qpde.QLearning(qpde.Decay(0.5, 200), truncation=truncation)
    options = presets.paper(problem) | {"rule": rule, "steps": steps, "seed": 0}
    solution = qpde.solve(problem, progress=False, throw=False, **options)
    network: Any = solution.trial.network
    number = level or network.width ** (0.25 * (1.0 - float(network.beta.array)))
    size = "" if truncation is None else f"{lipschitz(truncation, number):.3g}"
    silent = float(solution.history.truncated[-1])
    return (
        f"| {'' if form == 'off' else f'{number:.3g}'} | {form} | {size} | {solution.status.name.lower()} | "
        f"{solution.steps:,} | {silent:.2g} | {solution.score.relative_l2_error:.2e} |"
    )


def main() -> None:
    """A table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000)
    steps = parser.parse_args().steps
    print("| $K$ | force | its Lipschitz constant | end | steps | truncated | rel. L2 error |")
    print("|---|---|---|---|---|---|---|")
    print(row(None, "off", steps), flush=True)
    for level in LEVELS:
        for form in FORMS:
            print(row(level, form, steps), flush=True)


if __name__ == "__main__":
    main()
