"""How a run ended, in words, and the exception that carries an unsuccessful one."""

import enum
from typing import Any


class Status(enum.Enum):
    """How a run ended. Unsuccessful ones say what to try next."""

    FINISHED = "All steps were done."
    TOLERANCE = "The loss fell below the tolerance."
    SETTLED = "The loss on held-out points stopped falling."
    BUDGET = "The budget of seconds or steps was used up."
    ACCURATE = "A certificate meets the accuracy that was asked for."
    STOPPED = "The callback asked to stop."
    NONFINITE = (
        "The loss or its gradient became NaN or infinite. Lower the learning rate, or check the "
        "equation for values of u at which it is undefined."
    )
    DIVERGED = (
        "The loss grew without bound. Lower the learning rate; if the equation is not monotone, "
        "try rule=qpde.DeepGalerkin()."
    )
    TRUNCATED = (
        "Every point is truncated: |L Q| lies beyond the level everywhere, so psi psi' gives no "
        "direction to move in. Use Truncation(damped=False), raise its level, lower the learning "
        "rate, or leave truncation off."
    )
    ZERO_GRADIENT = (
        "The gradient is exactly zero although the loss is not. The activation is saturated "
        "everywhere: lower the network's scale or the learning rate."
    )
    GAVE_UP = (
        "The integrator of the limit equation gave up: the flow is too stiff or grows. Ask for a "
        "shorter time, fewer nodes, or time=math.inf, which does not follow the flow."
    )
    NOTHING_BETTER = "Nothing better than the initial solution was found, which is returned."
    UNFINISHED = (
        "Random walks had not left the domain after very many steps. Check that the diffusion does not "
        "vanish, that no drift holds them inside, and that domain.distance falls to zero at the boundary."
    )
    INTERRUPTED = "Interrupted from the keyboard; the best iterate so far is kept."

    @property
    def successful(self) -> bool:
        """Whether the run ended as it was asked to."""
        return self in (
            Status.FINISHED,
            Status.TOLERANCE,
            Status.SETTLED,
            Status.BUDGET,
            Status.ACCURATE,
            Status.STOPPED,
            Status.NOTHING_BETTER,
        )

    @property
    def label(self) -> str:
        """The name in lower case with hyphens, as the command line and files write it."""
        return self.name.lower().replace("_", "-")


class SolveError(RuntimeError):
    """A run failed numerically. `solution` holds the best iterate before that."""

    def __init__(self, solution: Any):
        super().__init__(f"After {solution.steps:,} steps: {solution.status.value}")
        self.solution = solution


class Interrupted(SolveError, KeyboardInterrupt):
    """Ctrl-C during a run. `solution` holds the best iterate so far."""
