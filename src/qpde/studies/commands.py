"""The commands that run studies: they parse, call, print."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._options import JsonOption, QuietOption

bench = typer.Typer(help="Benchmarks against other codes.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """Benchmarks against other codes."""


@bench.command()
def speed(
    repeats: Annotated[int, typer.Option(help="Rounds; a row is the median over them.")] = 9,
    peers: Annotated[bool, typer.Option(help="Time the other codes too (extra `bench`).")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder for RESULTS.md, speed.json and speed.png.")
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
        write_study(out, "speed", result, page)
        speed.draw(result).savefig(out / "speed.png", dpi=160)
    if as_json:
        print(json.dumps(result))
    elif not quiet:
        print(page, end="")
