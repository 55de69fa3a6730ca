"""The command `qpde`: parses, calls, prints."""

import json
import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ._commands import certify, draw, evaluate, explain, plot, report
from ._options import (
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
)
from .studies.commands import bench, reproduce, theory

app = typer.Typer(
    help="Elliptic PDEs in any dimension by neural Q-learning.\n\n"
    "With the environment variable QPDE_CACHE=FOLDER compiled programs are kept there, so that the next "
    "command starts sooner.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command. Exit code 0, 1 (numerical failure), 2 (wrong use) or 130 (interrupted)."""
    warnings.showwarning = _show_warning
    before = signal.signal(signal.SIGINT, _interrupted)
    try:
        if os.environ.get("QPDE_CACHE"):
            from ._cache import cache_compilations

            cache_compilations(os.environ["QPDE_CACHE"])
        app(standalone_mode=True)
    except (ValueError, OSError) as error:
        if not _raised_by_qpde(error):
            raise
        _fail(error, 2)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(*_: Any) -> NoReturn:
    """Ctrl-C outside training: what was written is whole, so leave at once."""
    print("qpde: interrupted.", file=sys.stderr, flush=True)
    os._exit(130)


def _fail(message: Any, code: int) -> NoReturn:
    print(f"qpde: {message}", file=sys.stderr)
    sys.exit(code)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"qpde: {message}", file=sys.stderr)


def _raised_by_qpde(error: BaseException) -> bool:
    """Whether the message is ours; an error in a user's own function keeps its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(__file__).parent in Path(frames[-1].filename).parents


@app.command()
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
    out: Annotated[Path | None, typer.Option(help="Run folder to write.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Solve a problem and print how well.

    With --out the run is kept in a folder: its state while it trains (see `qpde resume`), then the
    solution, the history and figures.

    \b
    Examples:
      qpde solve survival --dim 20
      qpde solve survival --dim 1 --set discount=0.1 --preset paper --json
      qpde solve my_problem.py:problem --out runs/mine
    """
    from ._solve import plan_solve
    from ._spec import Spec, parse_settings
    from ._store import open_run, write_spec

    chosen = parse_settings(settings or [])
    spec = Spec(problem, dim, chosen, preset, rule, steps, budget, seed, precision)
    built = spec.build_problem()
    options = spec.build_options(built)
    plan_solve(built, **options)  # before a folder is touched
    if out is not None:
        spec = spec.anchored()
        open_run(out, force=force)
        write_spec(out, spec)
    _train(spec, built, options, out, as_json, quiet)


def _train(
    spec: Any, problem: Any, options: dict[str, Any], out: Path | None, as_json: bool, quiet: bool
) -> None:
    """Solve, write the run folder, print."""
    from ._solve import solve
    from ._status import Status
    from ._store import report, write_run

    solution = solve(problem, **options, checkpoint=out, progress=not quiet, throw=False)
    if out is not None:
        write_run(out, spec, solution)
        draw(solution, out, "png")
    if as_json:
        print(json.dumps(report(solution, run=out)))
    elif not quiet:
        print(solution)
        if out is not None:
            print(f"  written to            {out}")
    if not solution.status.successful:
        interrupted = solution.status is Status.INTERRUPTED
        cure = f" Go on with: qpde resume {out}" if interrupted and out is not None else ""
        _fail(f"{solution.status.value}{cure}", 130 if interrupted else 1)


@app.command()
def resume(
    run: RunOption,
    budget: BudgetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Go on with a run that did not reach its end.

    It was killed, interrupted or used up its budget.
    The end is the same, bit for bit, as without the interruption. The budget counts the seconds of the
    whole run.

    \b
    Example:
      qpde resume runs/mine
    """
    import dataclasses

    from ._store import read_spec

    spec, result = read_spec(run)
    if result is not None and result["status"] in ("finished", "settled"):
        print(f"qpde: {run} is finished; nothing to do.", file=sys.stderr)
        if as_json:
            print(json.dumps(result))
        return
    if budget is not None:
        spec = dataclasses.replace(spec, budget=budget)
    elif result is not None and result["status"] == "budget":
        # Where the stages are chosen no budget is the usual one, which is used up.
        spec = dataclasses.replace(spec, budget=spec.further(result["seconds"]))
    problem = spec.build_problem()
    _train(spec, problem, spec.build_options(problem), run, as_json, quiet)


@app.command()
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
    from ._solve import plan_solve, solve
    from ._spec import Spec, parse_settings
    from ._store import open_comparison, report, write_comparison

    chosen = parse_settings(settings or [])
    specs = [
        Spec(problem, dim, chosen, preset, rule.strip(), steps, budget, seed, precision)
        for rule in rules.split(",")
    ]
    built = specs[0].build_problem()
    options = [spec.build_options(built) for spec in specs]
    for option in options:
        plan_solve(built, **option)
    if out is not None:
        open_comparison(out, force=force)
    solutions = [solve(built, **option, progress=not quiet, throw=False) for option in options]
    reports = [report(solution) for solution in solutions]
    result = {"problem": built.name, "dim": built.dim, "seed": seed, "rules": reports}
    if out is not None:
        write_comparison(out, result)
        _draw_comparison(solutions, out)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print(_side_by_side(reports))
    failed = [solution for solution in solutions if not solution.status.successful]
    if failed:
        interrupted = any(r["status"] == "interrupted" for r in reports)
        _fail(f"{failed[0].rule}: {failed[0].status.value}", 130 if interrupted else 1)


def _draw_comparison(solutions: list[Any], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")

    from . import plot

    plot.save(plot.compare(solutions), folder / "compare.png")


def _side_by_side(reports: list[dict[str, Any]]) -> str:
    """A table with a row for each rule."""
    columns = ("loss", "relative_l2_error", "skill", "seconds", "compile_seconds")

    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.3g}"

    lines = [f"{'rule':<14}" + "".join(f"{name:>19}" for name in (*columns, "status"))]
    for row in reports:
        cells = "".join(f"{cell(row[name]):>19}" for name in columns)
        lines.append(f"{row['rule']:<14}{cells}{row['status']:>19}")
    return "\n".join(lines)


@app.command()
def zoo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the problems with known answers.

    \b
    Example:
      qpde zoo
    """
    from .zoo import CATALOGUE

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


for command in (explain, evaluate, certify, plot, report, reproduce, theory):
    app.command()(command)
app.add_typer(bench, name="bench")


if __name__ == "__main__":
    main()
