"""Settings for `solve` under a name: `solve(problem, **presets.paper(problem))`."""

from typing import Any

from . import activations
from ._network.shallow import Shallow
from ._problem.problem import Problem
from ._rule.first_order import QLearning
from ._rule.schedule import Decay, Ramp
from ._train.plan import Keep


def paper(problem: Problem) -> dict[str, Any]:
    """The settings of the paper's experiments (its section 6 and appendix).

    One hidden layer of sigmoids, `c ~ U[-1, 1]`, `w ~ N(0, I)`, `b ~ N(0, 1)`; Adam with rate
    `0.5 / (1 + t/200)`; the iterate with the smallest minibatch loss. Dimension 1: 64 units, 1,000
    growing to 2,000 points. Otherwise: 256 units, 2,000 growing to 10,000 points.

    Not in the paper, chosen here: `beta = 0.99`, 40,000 steps in one dimension (the paper gives
    them for d = 20 only), no truncation (it halts Adam), no tolerance, and the 20-dimensional row
    for every dimension above one.
    """
    narrow = problem.dim == 1
    return {
        "network": Shallow(
            64 if narrow else 256,
            activation=activations.sigmoid,
            beta=0.99,
            scale=1.0,
            normalise=False,
        ),
        "rule": QLearning(Decay(0.5, 200)),
        "steps": 40_000,
        "batch": Ramp(1_000, 2_000) if narrow else Ramp(2_000, 10_000),
        "keep": Keep.BEST_BATCH,
    }
