"""Walks from starts near the boundary, split where they get away from it.

From the distance `delta` a walk gets as far as `r` with a probability of about `delta / r`, and then adds up
about `r^2` (or ends anywhere at all): the mean comes from few walks, and a thousand may hold none of them.
Hence levels `4 delta, 16 delta, ...` up to a quarter of the inradius. A walk that gets to the next level is
replaced by about four that start there (more in a corner), each with a quarter of its weight, so that about
as many walkers are on their way on every level. With `K` levels a family has the variance of a critical
branching process, of order `K`, in place of `4^K`.

The number of copies is `walks / passed`, rounded down, with `passed` those of the same start that got there:
nothing is split where all do, as under a drift inwards. It is known when the copies begin, so that the mean
is right for every such choice, and families stay uncorrelated: given what has happened up to a level, what
is still to come of each has its own randomness and the mean it would have had in one piece.
"""

from collections.abc import Callable, Sequence

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .._motion.pool import CUT, LEFT, PASSED, Orders, Payoff, Scheme, Sums, do_jobs, pay
from .ledger import Ledger

# Walkers that move together, in large runs and in small ones. They fit into a processor's cache.
_SLOTS, _FEW = 2_048, 256
# Jobs in one buffer, numbers in its points, jobs in the smallest buffer; walks that are paid at a time.
_JOBS, _NUMBERS, _LEAST, _PAID = 2**17, 2**23, 2_048, 2**14
# The ratio of two levels, and the highest one in inradii.
_RATIO, _TOP = 4.0, 0.25


def run(
    scheme: Scheme,
    payoffs: Sequence[Payoff],
    ledgers: Sequence[Ledger],
    inradius: float,
    walks: np.ndarray,
    key: PRNGKeyArray,
    report: Callable[[int], None],
    *,
    likely: int = 0,
    differences: Ledger | None = None,
) -> None:
    """Do `walks[i]` walks from start `i`; their sums of each payoff are entered into its ledger.

    `differences` gets the second payoff less the first, walk by walk. `report` gets the number of ended
    walks. Once a walk cannot be brought to an end no others are begun. Buffers are large enough for `likely`
    walks, so that those need no program of their own.
    """
    ledger = ledgers[0]
    most = max(_LEAST, min(_JOBS, _NUMBERS // ledger.starts.shape[1]) // _LEAST * _LEAST)
    which = np.repeat(np.arange(len(walks)), walks)
    rows = _rows(min(max(len(which), likely), most), most)
    for part, begin in enumerate(range(0, len(which), most)):
        chosen = which[begin : begin + most]
        branches, family, finished, work = _families(
            scheme,
            ledger,
            chosen,
            inradius,
            (rows, likely),
            any(payoff.ends for payoff in payoffs),
            jr.fold_in(key, part),
            lambda done, begin=begin: report(begin + done),
        )
        every = []
        for payoff, book in zip(payoffs, ledgers, strict=True):
            paid = pay(payoff, branches, min(rows, _PAID))
            every.append(np.bincount(family, paid, len(chosen)))
            book.add(chosen[finished], every[-1][finished])
            book.work += work
            book.unfinished += np.bincount(chosen[~finished], minlength=len(walks))
        if differences is not None:
            differences.add(chosen[finished], (every[1] - every[0])[finished])
        if not finished.all():
            for book in ledgers:
                book.unfinished += np.bincount(which[begin + most :], minlength=len(walks))
            break


def _rows(count: int, most: int) -> int:
    """The size of the buffer: few sizes, so few programs."""
    rows = _LEAST
    while rows < count:
        rows = min(8 * rows, most)
    return rows


def _families(
    scheme: Scheme,
    ledger: Ledger,
    chosen: np.ndarray,
    inradius: float,
    size: tuple[int, int],
    ends: bool,
    key: PRNGKeyArray,
    report: Callable[[int], None],
) -> tuple[Sums, np.ndarray, np.ndarray, int]:
    """Walks from the chosen starts with all their branches.

    Returns the branches with weighted sums, the number of each one's family, which families came to
    their end, and the steps that all took.
    """
    rows, likely = size
    distance, top = ledger.distance[chosen], _TOP * inradius
    split = bool(np.any(_RATIO * distance <= top))
    family, weight, place = np.arange(len(chosen)), np.ones(len(chosen)), ledger.starts[chosen]
    finished = np.ones(len(chosen), bool)
    parts: list[Sums] = []
    families: list[np.ndarray] = []
    work, level = 0, 0
    while len(family):
        ceiling = distance[family] * _RATIO ** (level + 1)
        start = chosen[family]
        resolution = ledger.resolution[start]
        orders = Orders(
            ledger.level[start],
            np.maximum(resolution, np.minimum(resolution * _RATIO**level, ledger.coarsest)),
            np.where(ceiling <= top, ceiling, np.inf),
        )
        sums, how, steps = do_jobs(
            scheme,
            place,
            orders,
            _SLOTS if max(len(family), likely) >= 4 * _SLOTS else _FEW,
            ends or split,
            jr.fold_in(key, level),
            report if level == 0 else lambda done: report(len(chosen)),
            rows=rows,
        )
        work += steps
        # The discount so far is part of the weight of what follows.
        weighted = sums._replace(
            mass=weight * sums.mass, discount=weight * sums.discount * (how == LEFT)
        )
        parts.append(weighted)
        families.append(family)
        if np.any(how == CUT):
            finished[family[how != LEFT]] = False
            break
        passed = np.flatnonzero(how == PASSED)
        copies = _copies(chosen, family[passed])
        weight = np.repeat(weight[passed] * sums.discount[passed] / copies, copies)
        place = np.repeat(sums.exit[passed], copies, axis=0) if len(passed) else place[:0]
        family = np.repeat(family[passed], copies)
        level += 1
    joined = jax.tree.map(lambda *each: np.concatenate(each), *parts)
    return joined, np.concatenate(families), finished, work


def levels_above(distance: np.ndarray, inradius: float) -> np.ndarray:
    """How many times walks from these distances may be split."""
    top = max(_TOP * inradius, 1e-300)
    most = np.log(top / np.maximum(distance, 1e-300)) / np.log(_RATIO)
    return np.maximum(np.floor(most + 1e-9), 0.0).astype(np.int64)


def _copies(chosen: np.ndarray, family: np.ndarray) -> np.ndarray:
    """Into how many each walk that has passed is split.

    A whole number, the same for all from one start, so that the weights of a family always sum to one: what
    is the same for all walks, such as constant boundary values, then adds no variance. There is no most:
    from a corner one walk of `4^d` gets to the next level, and all levels count.
    """
    n = int(chosen.max()) + 1
    begun, passed = (np.bincount(each, minlength=n) for each in (chosen, chosen[family]))
    copies = np.maximum(begun // np.maximum(passed, 1), 1)
    return copies[chosen[family]]
