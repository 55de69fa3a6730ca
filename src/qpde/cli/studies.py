"""The commands that run studies: they parse, call, print."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .ends import INTERRUPTED, fail
from .options import ForceOption, JsonOption, QuietOption

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
    from .._runs.run_folder import make_folder
    from ..studies import speed

    if repeats < 1:
        raise ValueError(f"--repeats is a number from 1 up, got {repeats}.")
    if out is not None:
        make_folder(out)  # a folder that cannot be written is told before the work

    def note(text: str) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    result = speed.study(repeats=repeats, peers=peers, note=note)
    note("")
    if out is not None:
        speed.write(out, result)
    _print(result, speed.markdown(result), as_json=as_json, quiet=quiet)


def _print(result: dict[str, Any], page: str, *, as_json: bool, quiet: bool) -> None:
    """Print the result as JSON, or else its page."""
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
    seeds: Annotated[int, typer.Option(help="Number of seeds; a row is the median over them.")] = 3,
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

    All problems together take hours; --resume keeps the runs that are in --out already.

    \b
    Examples:
      qpde bench accuracy --quick
      qpde bench accuracy --only survival,cube_norm --budgets 10,60 --out benchmarks
    """
    from ..studies import accuracy

    if quick:
        extent = accuracy.QUICK
    else:
        lengths = [_seconds(text) for text in budgets.split(",")]
        extent = accuracy.Extent(lengths, seeds=seeds, alone=alone, peers=peers)
    if extent.seeds < 1:
        raise ValueError(f"--seeds is a number from 1 up, got {seeds}.")
    result = accuracy.study(
        accuracy.cases(only, quick=quick),
        extent,
        folder=out,
        resume=resume,
        note=lambda text: None if quiet else print(text, file=sys.stderr, flush=True),
    )
    if out is not None:
        accuracy.write(out, result)
    _print(result, accuracy.markdown(result), as_json=as_json, quiet=quiet)


def _seconds(text: str) -> float:
    """One of the numbers of --budgets."""
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
    from ..studies import paper

    names = paper.check_parts(only)
    usual = Path("benchmarks/speed.json")
    if speed is None and usual.exists():
        speed = usual
    paper.open_study(out, quick=quick, resume=resume, force=force)
    try:
        result = paper.reproduce(out, names, quick=quick, speed=speed, progress=not quiet)
    except KeyboardInterrupt:
        fail(f"interrupted. Go on with: qpde reproduce --resume --out {out}", INTERRUPTED)
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
    """Run the paper's theorems as experiments and write a page with the results.

    Experiments: kernel-rate, start-rate, training, kernel, definite, spectrum, slow-end, path, fixed-point.
    Each gives a figure, fitted rates with confidence intervals, and a verdict on its statement.

    \b
    Examples:
      qpde theory --quick --out out
      qpde theory --only path,spectrum --out out
    """
    from ..studies import theory

    names = theory.check_names(only)
    theory.open_study(out, resume=resume, force=force)
    result = theory.study(out, names, quick=quick, progress=not quiet)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        for finding in result["findings"]:
            words = "holds" if finding["holds"] else "does not hold"
            print(
                f"{words:<14}{finding['value']:<12.3g}{finding['statement']} ({finding['theory']})"
            )
        print(f"written to {out / 'index.html'}")
