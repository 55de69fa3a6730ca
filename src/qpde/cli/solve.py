"""The commands that train: `solve`, `resume` and `compare`; and `zoo`, which lists their problems."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .ends import INTERRUPTED, NOT_SOLVED, NUMERICAL_FAILURE, fail, set_cure, tell
from .options import (
    BudgetOption,
    DimOption,
    ForceOption,
    JsonOption,
    PrecisionOption,
    PresetOption,
    ProblemOption,
    QuietOption,
    RunOption,
    SeedOption,
    SettingsOption,
    StepsOption,
    TrustOption,
)

if TYPE_CHECKING:  # a command imports the library when it runs, so that `--help` is quick
    from .._problem.solution import Solution
    from .._runs.record import Record
    from .._runs.spec import Spec
    from .._solve.stages import Stops
    from .._train.plan import Plan


# How runs end that no resumption can carry further.
_ENDED = ("finished", "settled", "accurate", "nothing-better")


def solve(
    problem: ProblemOption,
    dim: DimOption = None,
    settings: SettingsOption = None,
    preset: PresetOption = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="q-learning, deep-galerkin, penalty, gauss-newton or implicit-q-learning. Without a rule "
            "and --steps the stages are chosen for the problem."
        ),
    ] = None,
    steps: StepsOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = 0,
    precision: PrecisionOption = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Go on until a certificate bounds the relative L2 error by this."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Solve a problem and print its loss and error.

    The first line says whether the problem is solved. With --out the run is kept in a folder: its state while
    it trains (see `qpde resume`), then the solution, the history and figures.

    Exit code: 0; 1 where the problem is not solved or the run failed numerically (everything is written and
    printed before); 2 for wrong use; 130 after Ctrl-C.

    \b
    Examples:
      qpde solve survival --dim 20
      qpde solve poisson_sine --dim 2 --accuracy 1e-6
      qpde solve survival --dim 1 --set discount=0.1 --preset paper --json
      qpde solve my_problem.py:problem --out runs/mine
    """
    from .._files.lock import FolderLock
    from .._machines.place import leads
    from .._runs.record import Record, write_record
    from .._runs.run_folder import make_folder, open_run
    from .._runs.spec import Spec, parse_settings
    from .._runs.trust import remember
    from .._train.checkpoint import new_run_id

    chosen = parse_settings(settings or [])
    spec = Spec(problem, dim, chosen, preset, rule, steps, budget, seed, precision, accuracy)
    plans = _plans(spec)  # first: wrong options must not touch a folder
    record = Record(spec, new_run_id(), spec.source_of(plans[0].problem))
    if out is None or not leads():
        _follow(plans, record, out, as_json=as_json, quiet=quiet)
        return
    make_folder(out)
    with FolderLock(out):
        open_run(out, force=force)
        if record.source is not None and record.run_id is not None:
            remember(record.run_id, record.source)
        write_record(out, record)
        _follow(plans, record, out, as_json=as_json, quiet=quiet)


def resume(
    run: RunOption,
    budget: BudgetOption = None,
    steps: Annotated[
        int | None, typer.Option(help="Stop after this many steps of the whole run.")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go on with a run that was stopped.

    It was killed or interrupted, or it used up its budget. The result is the same, bit for bit, as that of an
    undisturbed run. The budget and the steps count those of the whole run, the ones before included. Of a run
    that is finished, figures that are missing are drawn.

    \b
    Examples:
      qpde resume runs/mine
      qpde resume runs/mine --steps 600
    """
    from .._machines.place import leads
    from .._runs.record import RUN, read_record
    from .._runs.store import admit_spec
    from .._train.checkpoint import new_run_id

    record = read_record(run)
    if steps is not None and steps < 0:
        raise ValueError(f"--steps is a whole number, not negative, got {steps}.")
    with _held(run):
        record = read_record(run)  # again: the process that had the folder may have ended just now
        spec, result = record.spec, record.result
        admit_spec(spec, run / RUN, record.run_id, record.source, trust=trust)
        if result is not None and result["status"] in _ENDED:
            if leads():
                _complete(run, result, trust=trust, as_json=as_json)
            return
        if budget is not None:
            spec = dataclasses.replace(spec, budget=budget)
        elif result is not None and result["status"] == "budget":
            spec = dataclasses.replace(spec, budget=spec.next_budget(result["seconds"]))
        plans = _plans(spec)
        record = dataclasses.replace(record, spec=spec)
        if record.run_id is None:  # of format 1: it goes on in format 2
            source = spec.source_of(plans[0].problem)
            record = dataclasses.replace(record, run_id=new_run_id(), source=source)
        _follow(plans, record, run, stops=steps, as_json=as_json, quiet=quiet)


def _held(run: Path) -> Any:
    """The folder, locked by the process that writes into it."""
    from .._files.lock import FolderLock
    from .._machines.place import leads

    return FolderLock(run) if leads() else contextlib.nullcontext()


def _complete(run: Path, result: dict[str, Any], *, trust: bool, as_json: bool) -> None:
    """Make the outputs that a finished run lacks: it was ended while they were drawn."""
    from .._plot.figures import FIGURES, suited, write_figures
    from .._plot.style import headless
    from .._runs.store import load

    present = [name for name in FIGURES if (run / f"{name}.png").is_file()]
    missing: list[str] = []
    if len(present) < len(FIGURES):
        solution = load(run, trust=trust)
        missing = [name for name in suited(solution) if name not in present]
        headless()
        if missing:
            write_figures(solution, run, "png", missing)
    done = f"{', '.join(missing)} drawn" if missing else "nothing to do"
    tell(f"{run} is finished; {done}.")
    if as_json:
        print(json.dumps(result))
    _end_unless_solved(result)


def _plans(spec: "Spec") -> "list[Plan]":
    """The plans of a run, one a stage; wrong options raise."""
    from .._solve.solve import plan_solve

    problem = spec.build_problem()
    return plan_solve(problem, **spec.build_options(problem))


def _follow(
    plans: "list[Plan]",
    record: "Record",
    out: Path | None,
    *,
    stops: "Stops" = None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train by the plans, write the run folder, print the result; a failed run ends the command."""
    from .._machines.place import apart, leads
    from .._plot.figures import write_figures
    from .._plot.style import headless
    from .._runs.numbers import numbers_of
    from .._runs.run_folder import write_run
    from .._solve.solve import follow_plans
    from .._status import Status

    if out is not None:
        set_cure(f"Go on with: qpde resume {out}")
    solution = follow_plans(
        plans,
        budget=record.spec.budget,
        checkpoint=out,
        progress=not quiet,
        run_id=None if out is None else record.run_id,
        stops=stops,
    )
    solution = solution.with_score(solution.score)  # one sample for the screen and for the file
    if out is not None and leads():
        with apart():
            write_run(out, record, solution)
            headless()
            write_figures(solution, out, "png")
    if as_json:
        print(json.dumps(numbers_of(solution, run=out)))
    elif not quiet:
        print(solution)
        if out is not None:
            print(f"  written to            {out}")
    if not solution.status.successful:
        interrupted = solution.status is Status.INTERRUPTED
        cure = f" Go on with: qpde resume {out}" if interrupted and out is not None else ""
        fail(f"{solution.status.value}{cure}", INTERRUPTED if interrupted else NUMERICAL_FAILURE)
    _end_unless_solved(numbers_of(solution))


def _end_unless_solved(numbers: dict[str, Any]) -> None:
    """End the command where the numbers of a run say that its problem is not solved."""
    if numbers.get("verdict") == "not solved":
        fail(f"not solved. To try next: {numbers['verdict_advice']}.", NOT_SOLVED)


def compare(
    problem: ProblemOption,
    dim: DimOption = None,
    settings: SettingsOption = None,
    preset: PresetOption = None,
    rules: Annotated[
        str, typer.Option(help="Rules with commas between.")
    ] = "q-learning,deep-galerkin,penalty",
    steps: StepsOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = 0,
    precision: PrecisionOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for compare.json, compare.csv and compare.png.")
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train several rules and print them side by side.

    \b
    Examples:
      qpde compare survival --dim 20 --steps 2000
      qpde compare annulus --rules q-learning,deep-galerkin --out runs/compare
    """
    from .._runs.numbers import numbers_of
    from .._runs.run_folder import open_comparison, write_comparison
    from .._runs.spec import Spec, parse_settings
    from .._solve.solve import follow_plans, plan_solve
    from .._status import Status

    chosen = parse_settings(settings or [])
    specs = [
        Spec(problem, dim, chosen, preset, rule.strip(), steps, budget, seed, precision)
        for rule in rules.split(",")
    ]
    built = specs[0].build_problem()  # one problem for all rules, whose programs then compile once
    plans = [plan_solve(built, **spec.build_options(built)) for spec in specs]
    if out is not None:
        open_comparison(out, force=force)
    solutions = [follow_plans(each, budget=budget, progress=not quiet) for each in plans]
    rows = [numbers_of(solution) for solution in solutions]
    result = {"problem": built.name, "dim": built.space_dim, "seed": seed, "rules": rows}
    if out is not None:
        write_comparison(out, result)
        _draw_comparison(solutions, out)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print(_side_by_side(rows))
    failed = [solution for solution in solutions if not solution.status.successful]
    if failed:
        interrupted = any(solution.status is Status.INTERRUPTED for solution in failed)
        code = INTERRUPTED if interrupted else NUMERICAL_FAILURE
        fail(f"{failed[0].rule}: {failed[0].status.value}", code)


def _draw_comparison(solutions: "Sequence[Solution]", folder: Path) -> None:
    from .._plot.curves import compare
    from .._plot.figures import save
    from .._plot.style import headless

    headless()
    save(compare(solutions), folder / "compare.png")


def _side_by_side(rows: Sequence[dict[str, Any]]) -> str:
    """The numbers of the rules as a table of text, one row each."""
    columns = ("loss", "relative_l2_error", "skill", "seconds", "compile_seconds")

    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.3g}"

    lines = [f"{'rule':<14}" + "".join(f"{name:>19}" for name in (*columns, "status", "verdict"))]
    for row in rows:
        cells = "".join(f"{cell(row[name]):>19}" for name in columns)
        lines.append(f"{row['rule']:<14}{cells}{row['status']:>19}{row['verdict'] or '-':>19}")
    return "\n".join(lines)


def zoo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the problems with known answers.

    \b
    Example:
      qpde zoo
    """
    from ..zoo import CATALOGUE

    entries = [
        {"name": name, "dim": e.dims, "equation": e.equation, "domain": e.domain}
        for name, e in CATALOGUE.items()
    ]
    if as_json:
        print(json.dumps(entries))
        return
    width = max(len(name) for name in CATALOGUE)
    for entry in entries:
        print(
            f"{entry['name']:<{width}}  d {entry['dim']:<8}  {entry['equation']}  in {entry['domain']}"
        )
