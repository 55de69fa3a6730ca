"""The training runs of a study: each is done once, kept in a folder and read again.

A file's name carries a digest of the options, so that a run with other settings is another run. While a
run trains, its state is kept too: a study that is killed goes on where it was.
"""

import dataclasses
import functools
import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._archive import write_text
from .._checkpoint import Checkpoint, digest
from .._problem import Problem
from .._progress import Stages
from .._schedule import Clock
from .._solution import Solution
from .._solve import solve
from .._status import Status
from .._store import load, make_folder, report, save
from .._train import Keep, Plan, Progress, Run, make_plan


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be done: a name, a problem and the options of `solve`."""

    name: str
    problem: Problem
    options: dict[str, Any]

    @functools.cached_property
    def plan(self) -> Plan:
        """The run as `solve` sees it."""
        return make_plan(self.problem, **self.options)

    @property
    def work(self) -> float:
        """Roughly what the run costs, in points times dimensions."""
        steps = np.float64(max(self.plan.steps, 1))
        points = np.mean([self.plan.batch(Clock(t, steps)) for t in (0.0, steps)])
        return float(self.plan.steps * (points + 200) * (self.problem.dim + 20))

    @functools.cached_property
    def stem(self) -> str:
        """The name of its files, without what follows the dot."""
        with jax.enable_x64(self.plan.precision == "float64"):
            identity = Run(self.plan).identity()
        return f"{self.name}-{digest([identity, self.problem.recipe])[1:9]}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a job: the iterate that `keep` chose, the last one, and their numbers."""

    job: Job
    folder: Path
    numbers: dict[str, Any]  # of the chosen iterate
    last_numbers: dict[str, Any]
    best_step: int  # with the smallest minibatch loss

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
    """Do the jobs that are not done yet; the outcomes by name."""
    unique = {job.name: job for job in jobs}
    make_folder(folder)
    done = {name: job for name, job in unique.items() if (folder / f"{job.stem}.json").exists()}
    left = [job for name, job in unique.items() if name not in done]
    with Stages(math.fsum(job.work for job in left), len(left), progress) as stages:
        for job in left:
            stages.begin(job.name, job.work)
            _do(job, folder, stages)
    return {name: _outcome(job, folder) for name, job in unique.items()}


def _do(job: Job, folder: Path, stages: Stages) -> None:
    """Run a job and write its files, the numbers last: they say that it is done."""

    def watch(seen: Progress) -> None:
        stages.update(seen.step / job.plan.steps, seen.loss)

    state_folder = folder / f"{job.stem}.state"
    best = solve(
        job.problem,
        **job.options,
        checkpoint=state_folder,
        callback=watch,
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
        "best": report(best),
        "last": report(last),
        "best_step": int(np.nanargmin(best.history.loss)),
    }
    write_text(folder / f"{job.stem}.json", json.dumps(record, indent=2) + "\n")
    shutil.rmtree(state_folder)
    stages.end(best.seconds, best.score.loss)


def _last(job: Job, folder: Path, best: Solution) -> Solution:
    """The last iterate of a run that has ended, from its checkpoint."""
    with jax.enable_x64(job.plan.precision == "float64"):
        run = Run(job.plan)
        state = Checkpoint(folder, job.problem, run.identity()).read(run.start)
        assert state is not None  # the run has ended, so there is a checkpoint
        kept = Run(dataclasses.replace(job.plan, keep=Keep.LAST))
        return kept.solution(state, best.status, best.compile_seconds)


def _outcome(job: Job, folder: Path) -> Outcome:
    record = json.loads((folder / f"{job.stem}.json").read_text())
    return Outcome(job, folder, record["best"], record["last"], record["best_step"])
