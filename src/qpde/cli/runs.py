"""The commands that act on runs, and `explain`, which looks at a problem: they parse, call, print."""

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    DimOption,
    ForceOption,
    JsonOption,
    ProblemOption,
    QuietOption,
    RunOption,
    SeedOption,
    SettingsOption,
    TrustOption,
)

if TYPE_CHECKING:  # a command imports the library when it runs, so that `--help` is quick
    from .._problem.solution import Solution


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a solution file.")],
    points: Annotated[
        Path, typer.Argument(help="CSV (one point a row, a header line is allowed) or NPY.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV or NPY file to write; standard output otherwise.")
    ] = None,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="Also du/dx_1, ... du/dx_d.")
    ] = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Also confidence intervals, from random walks.")
    ] = False,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Half-width of the intervals over the rms value (with --intervals)."),
    ] = None,
    walks: Annotated[
        int | None, typer.Option(help="Walks from every point (with --intervals).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: SeedOption = 0,
    force: ForceOption = False,
    trust: TrustOption = False,
    quiet: QuietOption = False,
) -> None:
    """Values of a solution at given points, one row each.

    Points of an evolution problem have a last column, their time.

    With --intervals the values are corrected by random walks (linear equations only), and each has the ends
    of its confidence interval.

    \b
    Examples:
      qpde evaluate runs/mine points.csv
      qpde evaluate runs/mine points.npy --gradient --out values.npy
      qpde evaluate runs/mine points.csv --intervals --accuracy 1e-3
    """
    from .._files.table import read_points, write_table
    from .._runs.store import load

    if not intervals and (accuracy is not None or walks is not None):
        raise ValueError("--accuracy and --walks belong to --intervals; add it.")
    solution = load(run, trust=trust)
    x = read_points(points)
    if x.ndim == 1:  # an NPY file with one point, or with the points of a line
        x = x[:, None] if solution.problem.dim == 1 else x[None]
    if out is not None and out.exists() and not force:
        raise ValueError(f"{out} exists. Choose another name or add --force.")
    if intervals:
        sought: dict[str, Any] = {"accuracy": accuracy, "walks": walks, "confidence": confidence}
        columns = _corrected(solution, x, quiet=quiet, seed=seed, **sought)
    else:
        columns = {"value": solution(x)}
    if gradient:
        columns |= _slopes(solution, x)
    write_table(columns, out)


def _corrected(solution: "Solution", x: Any, *, quiet: bool, **options: Any) -> dict[str, Any]:
    """Columns with the values that random walks correct, and the ends of their intervals."""
    from .._walks.feynman_kac import feynman_kac

    found = feynman_kac(solution, x, **options, progress=not quiet)
    if not quiet:
        print(found, file=sys.stderr)
    columns = {"value": found.value, "low": found.low, "high": found.high}
    return columns | {"standard_error": found.standard_error, "network": solution(x)}


def _slopes(solution: "Solution", x: Any) -> dict[str, Any]:
    """A column for each partial derivative."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same points were told of with the values
        slopes = solution.grad(x)
        in_time = {"du_dt": solution.dt(x)} if solution.problem.domain.times is not None else {}
    return {f"du_dx{i + 1}": slope for i, slope in enumerate(slopes.T)} | in_time


def certify(
    run: RunOption,
    norm: Annotated[
        str | None,
        typer.Option(help="l2 (default) or sup; last in time; value (default) in the whole space."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the statistical part.")
    ] = 0.99,
    rigorous: Annotated[
        bool, typer.Option("--rigorous", help="By interval arithmetic, up to three dimensions.")
    ] = False,
    heuristic: Annotated[
        bool, typer.Option("--heuristic", help="Give an estimate where there is no proof.")
    ] = False,
    values: Annotated[
        str | None,
        typer.Option(
            "--value-range",
            metavar="LOW,HIGH",
            help="Values between which u lies, if you know them.",
        ),
    ] = None,
    ellipticity: Annotated[
        float | None, typer.Option(help="A lower bound that you know for the diffusion.")
    ] = None,
    potential: Annotated[
        float | None,
        typer.Option(help="A lower bound that you know for c + (div b - div div A)/2."),
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """A bound for the error of a run.

    It is printed, and written to certificate.json in the run folder. Bounds that you know for the equation
    (--value-range, --ellipticity, --potential) enter the constant of the L2 bound.

    \b
    Examples:
      qpde certify runs/demo
      qpde certify runs/demo --norm sup --json
      qpde certify runs/mine --value-range 0,1.5
    """
    from .._monotone.monotonicity import monotonicity
    from .._runs.run_folder import write_certificate
    from .._runs.store import load
    from .._trust.certify import certify

    if not run.is_dir():
        raise ValueError(f"{run} is not a run folder.")
    solution = load(run, trust=trust)
    options: dict[str, Any] = {"norm": norm, "confidence": confidence}
    known = {"value_range": _pair(values), "ellipticity": ellipticity, "potential": potential}
    if any(number is not None for number in known.values()):
        if norm == "sup":
            raise ValueError(
                "The sup bound has no constant: leave out what you know, or --norm sup."
            )
        options["monotonicity"] = monotonicity(solution.problem, measure=solution.measure, **known)
    found = certify(solution, **options, rigorous=rigorous, heuristic=heuristic)
    write_certificate(run, found.summary())
    print(json.dumps(found.summary()) if as_json else found)


def _pair(text: str | None) -> tuple[float, float] | None:
    """Two numbers with a comma between."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(
            f"--value-range takes two numbers with a comma between, got {text!r}."
        ) from None
    return low, high


def explain(
    problem: ProblemOption,
    dim: DimOption = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell whether the convergence theory applies to a problem.

    Nothing is trained. Each assumption gets YES, NO or UNKNOWN, a reason and a remedy.

    \b
    Examples:
      qpde explain survival --dim 20
      qpde explain my_problem.py:problem --json
    """
    from .._runs.spec import Spec, parse_settings
    from .._trust.explain import explain

    found = explain(Spec(problem, dim, parse_settings(settings or [])).build_problem())
    print(json.dumps(found.as_dict()) if as_json else found)


def plot(
    run: RunOption,
    only: Annotated[
        str | None, typer.Option(help="Figures with commas between; all that suit otherwise.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="png, svg or pdf.")] = "png",
    out: Annotated[Path | None, typer.Option(help="Folder; the run folder otherwise.")] = None,
    trust: TrustOption = False,
) -> None:
    """Draw a run: history, radial profile, profile, slice, scatter.

    \b
    Examples:
      qpde plot runs/demo
      qpde plot runs/demo --only slice,scatter --format pdf --out figures
    """
    from .._plot.figures import write_figures
    from .._plot.style import headless
    from .._runs.run_folder import make_folder
    from .._runs.store import load

    if form not in ("png", "svg", "pdf"):
        raise ValueError(f"--format is png, svg or pdf, got {form!r}.")
    solution = load(run, trust=trust)
    folder = out or (run if run.is_dir() else run.parent)
    make_folder(folder)
    names = None if only is None else [name.strip() for name in only.split(",")]
    headless()
    for path in write_figures(solution, folder, form, names):
        print(path)


def report(run: RunOption, trust: TrustOption = False) -> None:
    """Write a page about a run.

    It has numbers, figures and settings in one HTML file, report.html in the run folder.

    \b
    Example:
      qpde report runs/demo
    """
    from .._plot.style import headless
    from .._report.run_page import write_page

    headless()
    print(write_page(run, trust=trust))
