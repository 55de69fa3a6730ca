"""The training runs of a study: each is done once, kept in a folder and read again.

A file's name carries a digest of the options, so that a run with other settings is another run. The folder
also keeps the state of a run while it trains, so that a study that was killed goes on from there.
"""

import dataclasses
import functools
import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._files.whole import write_text
from .._precision import x64
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._rule.schedule import Clock
from .._runs.numbers import numbers_of
from .._runs.run_folder import make_folder
from .._runs.store import load, save
from .._solve.solve import plan_solve, solve
from .._status import Status
from .._train.checkpoint import Checkpoint, digest
from .._train.plan import Keep, Plan, Progress
from .._train.progress import StudyBars
from .._train.run import Run


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be done: a name, a problem and the options of `solve`."""

    name: str
    problem: Problem
    options: dict[str, Any]

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan that `solve` makes of the options, which must name a rule or steps."""
        plans = plan_solve(self.problem, **self.options)
        if len(plans) > 1:
            raise ValueError(f"The job {self.name} needs one rule; give rule= or steps=.")
        return plans[0]

    @property
    def work(self) -> float:
        """A rough measure of the run's cost, in points times dimensions."""
        steps = np.float64(max(self.plan.steps, 1))
        points = np.mean([self.plan.batch(Clock(t, steps)) for t in (0.0, steps)])
        return float(self.plan.steps * (points + 200) * (self.problem.dim + 20))

    @functools.cached_property
    def stem(self) -> str:
        """The name of the run's files, up to the first dot."""
        with x64():
            identity = Run(self.plan).identity()
        return f"{self.name}-{digest([identity, self.problem.recipe])[1:9]}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A job that is done: the iterate that `keep` chose, the last iterate, and their numbers."""

    job: Job
    folder: Path
    numbers: dict[str, Any]  # of the chosen iterate
    last_numbers: dict[str, Any]
    best_step: int  # the step with the smallest minibatch loss

    @functools.cached_property
    def best(self) -> Solution:
        """The iterate that `keep` chose."""
        return self._read("best")

    @functools.cached_property
    def last(self) -> Solution:
        """The last iterate."""
        return self._read("last")

    def _read(self, which: str) -> Solution:
        path = self.folder / f"{self.job.stem}.{which}.safetensors"
        return load(path, problem=self.job.problem)


def run_jobs(jobs: Iterable[Job], folder: Path, *, progress: bool) -> dict[str, Outcome]:
    """Do the jobs whose files are not in the folder, and return the outcomes of all by name."""
    unique = {job.name: job for job in jobs}
    make_folder(folder)
    done = {name: job for name, job in unique.items() if (folder / f"{job.stem}.json").exists()}
    left = [job for name, job in unique.items() if name not in done]
    with StudyBars(math.fsum(job.work for job in left), len(left), progress) as bars:
        for job in left:
            bars.begin(job.name, job.work)
            _do(job, folder, bars)
    return {name: _outcome(job, folder) for name, job in unique.items()}


def _do(job: Job, folder: Path, bars: StudyBars) -> None:
    """Run a job and write its files. The numbers come last: a job whose numbers are there is done."""

    def show(seen: Progress) -> None:
        bars.update(seen.step / job.plan.steps, seen.loss)

    state_folder = folder / f"{job.stem}.state"
    best = solve(
        job.problem,
        **job.options,
        checkpoint=state_folder,
        callback=show,
        progress=False,
        throw=False,
    )
    if best.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    last = _last(job, state_folder, best)
    save(best, folder / f"{job.stem}.best.safetensors")
    save(last, folder / f"{job.stem}.last.safetensors")
    record = {
        "name": job.name,
        "best": numbers_of(best),
        "last": numbers_of(last),
        "best_step": int(np.nanargmin(best.history.loss)),
    }
    write_text(folder / f"{job.stem}.json", json.dumps(record, indent=2) + "\n")
    shutil.rmtree(state_folder)
    bars.end(best.seconds, best.score.loss)


def _last(job: Job, folder: Path, best: Solution) -> Solution:
    """The last iterate of a run that has ended, from its checkpoint."""
    with x64():
        run = Run(job.plan)
        state = Checkpoint(folder, job.problem, run.identity()).read(run.start)
        assert state is not None  # the run has ended, so there is a checkpoint
        kept = Run(dataclasses.replace(job.plan, keep=Keep.LAST))
        return kept.solution(state, best.status, best.compile_seconds)


def _outcome(job: Job, folder: Path) -> Outcome:
    record = json.loads((folder / f"{job.stem}.json").read_text())
    return Outcome(job, folder, record["best"], record["last"], record["best_step"])
