"""A plan: everything that decides the bits of a run, checked before anything compiles."""

import dataclasses
import enum
from typing import Any, NamedTuple

from .._arguments import a_seed, an_instance, one_of, real, shown, whole
from .._machines.place import BLOCKS, here
from .._network.shallow import Shallow
from .._precision import copied
from .._problem.measure import AbstractMeasure, law_on
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._rule.base import AbstractRule
from .._rule.batch import largest_batch
from .._rule.estimates import check_draws
from .._rule.first_order import QLearning
from .._rule.schedule import AbstractSchedule, as_schedule
from .checkpoint import digest


class Keep(enum.Enum):
    """Which iterate a run returns."""

    HELD_OUT = "smallest loss on held-out points, looked at after every block of steps"
    BEST_BATCH = "smallest minibatch loss, looked at in every step (the paper)"
    LAST = "the last one"


class Progress(NamedTuple):
    """The numbers that a callback gets after every block of steps; returning a true value stops the run."""

    step: int
    loss: float
    held_out: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the bits of a run."""

    problem: Problem
    network: Any
    rule: AbstractRule
    batch: AbstractSchedule
    measure: AbstractMeasure
    initial: Solution | None
    steps: int
    precision: str
    tolerance: float = 0.0
    patience: int = 0  # blocks without progress after which a run ends; 0: never
    keep: Keep = Keep.HELD_OUT
    seed: int = 0
    goal: Any = None  # the accuracy that ends the run
    grows: bool = False  # whether other networks are tried before and after

    def __post_init__(self) -> None:
        if not isinstance(self.keep, Keep):
            raise ValueError(f"keep must be one of {', '.join(map(str, Keep))}, got {self.keep!r}.")
        whole("steps", self.steps)
        a_seed(self.seed)
        ends = [largest_batch(self.batch, t, max(self.steps, 1)) for t in (0, self.steps)]
        if not min(ends) >= 1:
            raise ValueError("batch must be at least one point at every step.")
        if max(ends) >= 2**31:
            raise ValueError(f"batch must be less than 2^31 points, got {max(ends):.4g}.")
        if not real("tolerance", self.tolerance) >= 0:
            raise ValueError(f"tolerance must not be negative, got {self.tolerance!r}.")
        one_of("precision", self.precision, ("float32", "float64"))
        if self.initial is not None and not isinstance(self.initial, Solution):
            raise ValueError(f"initial must be a qpde.Solution, got {type(self.initial).__name__}.")
        if self.initial is not None and self.initial.problem.dim != self.problem.dim:
            raise ValueError(
                f"initial solves a problem in dimension {self.initial.problem.dim}, this one has "
                f"{self.problem.dim}."
            )

    def identity(self) -> dict[str, Any]:
        """The plan in plain values, problem and network left out."""
        return {
            "rule": self.rule.name,
            "setting of the rule": digest(self.rule),
            "batch": digest(self.batch),
            "measure": digest(self.measure),
            "steps": int(self.steps),
            "tolerance": float(self.tolerance),
            **({"patience": self.patience} if self.patience else {}),
            **({"blocks of qpde launch": BLOCKS} if here() is not None else {}),
            "initial": None if self.initial is None else digest(self.initial.trial.network),
            "keep": self.keep.name,
            "seed": int(self.seed),
            "precision": self.precision,
        }


def make_plan(
    problem: Problem,
    *,
    network: Any = None,
    rule: AbstractRule | None = None,
    batch: Any = 1_000,
    measure: AbstractMeasure | None = None,
    initial: Solution | None = None,
    steps: int | None = None,
    precision: str | None = None,
    **plain: Any,
) -> Plan:
    """A checked plan from the options of `solve`. Where the caller names no value, the rule does."""
    if initial is not None and network is not None:
        raise ValueError("Give a network or an initial solution, whose network it takes, not both.")
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    rule = QLearning() if rule is None else rule
    an_instance("rule", rule, AbstractRule, "qpde.QLearning()")
    if getattr(rule, "draws", None) is not None:
        check_draws(problem)
    if problem.order == 4 and not rule.exact_boundary:
        raise ValueError(
            f"The rule {rule.name} asks for boundary values alone, and this equation of fourth order has a "
            "second condition. Take a rule that keeps both exactly: qpde.QLearning(), qpde.GaussNewton()."
        )
    if isinstance(batch, float) and not batch.is_integer():
        raise ValueError(f"batch must be a whole number of points, or a schedule, got {batch!r}.")
    return Plan(
        problem=problem,
        network=Shallow() if network is None else network,
        rule=rule,
        batch=as_schedule(batch),
        measure=copied(law_on(problem.domain, measure)),
        initial=initial,
        steps=rule.default_steps if steps is None else steps,
        precision=rule.precision if precision is None else precision,
        **plain,
    )


def checked_budget(budget: float | None) -> float:
    """The budget in seconds; None is none."""
    if budget is None:
        return float("inf")
    if isinstance(budget, float) and budget == float("inf"):
        return budget
    try:
        return float(real("budget", budget, above=0.0))
    except ValueError:
        raise ValueError(
            f"budget must be a positive number of seconds, got {shown(budget)}."
        ) from None
