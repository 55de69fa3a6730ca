"""A run once more: as many blocks of every stage as were done, whatever ended them, and the same bits?"""

import numpy as np

from .._files.archive import arrays_of
from .._problem.solution import Solution
from .._solve.solve import follow_plans
from .._status import Status
from .._train.plan import Plan

_POLISHED = "output layer"


def repeat(plans: list[Plan], before: Solution, *, progress: bool = True) -> Solution:
    """The run of a solution again; neither the clock nor a signal that ended a stage decides this time."""
    stages = [stage for stage in before.stages if stage.name != _POLISHED]
    steps = [stage.steps for stage in stages] or [before.steps]
    # All stages but the last have ended by themselves, and do so again.
    ends = [Status.FINISHED] * (len(steps) - 1) + [before.status]
    stops = list(zip(steps, ends, strict=True))
    return follow_plans(plans, budget=float("inf"), progress=progress, stops=stops)


def differences(before: Solution, after: Solution) -> list[str]:
    """The names of arrays whose bits differ between two solutions: of the network and of the history."""
    found = []
    for name, one, other in (
        ("network", arrays_of(before.trial.network), arrays_of(after.trial.network)),
        ("history", vars(before.history), vars(after.history)),
    ):
        found += [
            f"{name} {key.lstrip('.')}"
            for key in sorted(one.keys() | other.keys())
            if key not in one or key not in other or not _same_bits(one[key], other[key])
        ]
    return found


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
