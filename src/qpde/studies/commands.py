"""The commands that run studies: they parse, call, print."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._options import ForceOption, JsonOption, QuietOption

bench = typer.Typer(help="Benchmarks against other codes.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """Benchmarks against other codes."""


@bench.command()
def speed(
    repeats: Annotated[int, typer.Option(help="Rounds; a row is the median over them.")] = 9,
    peers: Annotated[bool, typer.Option(help="Time the other codes too (extra `bench`).")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for SPEED.md, speed.json and speed.png.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a training step costs, beside PyTorch and DeepXDE, all measured in one run.

    \b
    Examples:
      qpde bench speed --out benchmarks
      qpde bench speed --no-peers --repeats 3 --json
    """
    from .._store import make_folder, write_study
    from . import speed

    if repeats < 1:
        raise ValueError(f"--repeats is a number from 1 up, got {repeats}.")
    if out is not None:
        make_folder(out)

    def note(text: str) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    result = speed.study(repeats=repeats, peers=peers, note=note)
    note("")
    page = speed.markdown(result)
    if out is not None:
        import matplotlib

        matplotlib.use("Agg")
        write_study(out, "speed", result, page, page_name="SPEED.md")
        speed.draw(result).savefig(out / "speed.png", dpi=160)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print(page, end="")


@bench.command()
def accuracy(
    only: Annotated[
        str | None,
        typer.Option(help="Problems with commas between, such as survival or survival:20."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Five problems, one seed, 10 s, no other codes.")
    ] = False,
    budgets: Annotated[str, typer.Option(help="Seconds, with commas between.")] = "10,60,300",
    seeds: Annotated[int, typer.Option(help="How many; a row is the median over them.")] = 3,
    peers: Annotated[bool, typer.Option(help="Train DeepXDE too (extra `bench`).")] = True,
    alone: Annotated[
        bool, typer.Option(help="Train Q-learning and deep Galerkin alone too.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for RESULTS.md, accuracy.json and accuracy.png.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that are in --out already.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The error of the default on published problems, beside their targets and other codes.

    The whole takes hours; --resume goes on with what is there.

    \b
    Examples:
      qpde bench accuracy --quick
      qpde bench accuracy --only survival,cube_norm --budgets 10,60 --out benchmarks
    """
    from .._store import make_folder, write_study
    from . import _accuracy_page, accuracy

    targets = accuracy.cases(only, quick=quick)
    lengths = [10.0] if quick else [_seconds(text) for text in budgets.split(",")]
    count = 1 if quick else seeds
    if count < 1:
        raise ValueError(f"--seeds is a number from 1 up, got {seeds}.")
    path = None if out is None else out / "accuracy.json"
    if out is not None:
        make_folder(out)

    def keep(rows: list[accuracy.Row]) -> None:
        if path is not None:
            found = {"rows": [vars(row) for row in rows]}
            path.with_suffix(".partial.json").write_text(json.dumps(found))

    done = []
    if resume and path is not None:
        partial = path.with_suffix(".partial.json")
        done = accuracy.read_rows(partial if partial.exists() else path)
    result = accuracy.study(
        targets,
        budgets=lengths,
        seeds=count,
        alone=alone and not quick,
        peers=peers and not quick,
        done=done,
        note=lambda text: None if quiet else print(text, file=sys.stderr, flush=True),
        keep=keep,
    )
    page = _accuracy_page.markdown(result)
    if out is not None and path is not None:
        import matplotlib

        matplotlib.use("Agg")
        from .._style import figure_of, write_figure

        write_study(out, "accuracy", result, page, page_name="RESULTS.md")
        write_figure(figure_of(_accuracy_page.draw(result)), out / "accuracy.png", dpi=120)
        path.with_suffix(".partial.json").unlink(missing_ok=True)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print(page, end="")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"--budgets takes seconds with commas between, got {text!r}.") from None
    if not value > 0:
        raise ValueError(f"--budgets takes positive seconds, got {text!r}.")
    return value


def reproduce(
    only: Annotated[
        str | None, typer.Option(help="Parts with commas between; all of them otherwise.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps and seeds, to see that all works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the page and its data.")] = Path("paper"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is in --out; runs done are kept.")
    ] = False,
    speed: Annotated[
        Path | None,
        typer.Option(
            help="Result of `qpde bench speed`, for the authors' time; benchmarks/speed.json where "
            "that exists."
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the paper's experiments and write a page to hold beside it.

    Parts: timing, survival-1d, survival-20d, cycles, truncation, batches, sensitivity, put. The whole
    takes the better part of an hour on two cores, --quick a few minutes. A killed or interrupted
    command goes on with --resume.

    \b
    Examples:
      qpde reproduce --quick --out out
      qpde reproduce --only survival-1d,put --out out
    """
    from . import paper

    names = paper.check_parts(only)
    usual = Path("benchmarks/speed.json")
    if speed is None and usual.exists():
        speed = usual
    paper.open_study(out, quick=quick, resume=resume, force=force)
    try:
        result = paper.reproduce(out, names, quick=quick, speed=speed, progress=not quiet)
    except KeyboardInterrupt:
        print(
            f"qpde: interrupted. Go on with: qpde reproduce --resume --out {out}", file=sys.stderr
        )
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        for claim in result["claims"]:
            words = {True: "holds", False: "does not hold", None: "-"}[claim["holds"]]
            print(f"{words:<14}{claim['median']:<12.3g}{claim['statement']} ({claim['paper']})")
        print(f"written to {out / 'index.html'}")


def theory(
    only: Annotated[
        str | None, typer.Option(help="Experiments with commas between; all of them otherwise.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Narrower networks, fewer seeds and nodes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the page and its data.")] = Path("theory"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the experiments that are in --out already.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run the paper's theorems as experiments and write a page with what they gave.

    Experiments: kernel-rate, start-rate, training, kernel, spectrum, slow-end, path, fixed-point.
    Each gives a figure, rates with confidence intervals, and whether the statement holds.

    \b
    Examples:
      qpde theory --quick --out out
      qpde theory --only path,spectrum --out out
    """
    from . import theory as studied

    names = studied.check_names(only)
    studied.open_study(out, resume=resume, force=force)
    result = studied.study(out, names, quick=quick, progress=not quiet)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        for finding in result["findings"]:
            words = "holds" if finding["holds"] else "does not hold"
            print(
                f"{words:<14}{finding['value']:<12.3g}{finding['statement']} ({finding['theory']})"
            )
        print(f"written to {out / 'index.html'}")
