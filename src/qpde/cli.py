"""The command `qpde`: parses, calls, prints."""

import json
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Elliptic PDEs in any dimension by neural Q-learning.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command. Exit code 0, 1 (numerical failure), 2 (wrong use) or 130 (interrupted)."""
    try:
        app(standalone_mode=True)
    except ValueError as error:
        if not _raised_by_qpde(error):
            raise
        _fail(error, 2)


def _fail(message: Any, code: int) -> None:
    print(f"qpde: {message}", file=sys.stderr)
    sys.exit(code)


def _raised_by_qpde(error: BaseException) -> bool:
    """Whether the message is ours; an error in a user's own function keeps its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).parent == Path(__file__).parent


@app.command()
def solve(
    problem: Annotated[str, typer.Argument(help="A name of `qpde zoo`, or my_problem.py:problem.")],
    dim: Annotated[int | None, typer.Option(help="Dimension (zoo problems).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="A problem's setting.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Settings under a name: paper.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="q-learning (default), deep-galerkin or penalty.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Stop after this many seconds of training.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bits.")] = 0,
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    out: Annotated[Path | None, typer.Option(help="Run folder to write.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a run in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
) -> None:
    """Solve a problem and print how well.

    \b
    Examples:
      qpde solve survival --dim 20
      qpde solve survival --dim 1 --set discount=0.1 --preset paper --json
      qpde solve my_problem.py:problem --out runs/mine
    """
    from ._spec import Spec, parse_settings
    from ._status import Status
    from ._store import open_run, report, write_run
    from ._train import solve

    spec = Spec(
        problem=problem,
        dim=dim,
        settings=parse_settings(settings or []),
        preset=preset,
        rule=rule,
        steps=steps,
        budget=budget,
        seed=seed,
        precision=precision,
    )
    built = spec.build_problem()
    options = spec.build_options(built)
    if out is not None:
        open_run(out, force=force)
    solution = solve(built, **options, progress=not quiet, throw=False)
    if out is not None:
        write_run(out, spec, solution)
        _draw(out, solution)
    if as_json:
        print(json.dumps(report(solution, run=out)))
    elif not quiet:
        print(solution)
        if out is not None:
            print(f"  written to            {out}")
    if not solution.status.successful:
        print(f"qpde: {solution.status.value}", file=sys.stderr)
        raise typer.Exit(130 if solution.status is Status.INTERRUPTED else 1)


def _draw(folder: Path, solution: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from . import plot
    from ._domain import Interval
    from ._round import Annulus, Ball

    figures = {"history": plot.history}
    if isinstance(solution.problem.domain, Ball | Annulus | Interval):
        figures["radial"] = plot.radial
    for name, draw in figures.items():
        figure = draw(solution).figure
        figure.savefig(folder / f"{name}.png", dpi=160)
        plt.close(figure)


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


if __name__ == "__main__":
    main()
