"""The command `qpde`: its subcommands, its errors and exit codes."""

import os
import signal
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import typer

from .ends import INTERRUPTED, WRONG_USE, fail, tell
from .options import NoCacheOption
from .runs import certify, evaluate, explain, plot, report
from .solve import compare, resume, solve, zoo
from .studies import bench, reproduce, theory

app = typer.Typer(
    help="Elliptic PDEs in any dimension by neural Q-learning.\n\n"
    "Compiled programs are kept in the user's cache folder, so that the next command starts sooner. The "
    "environment variable QPDE_CACHE=FOLDER names another folder, QPDE_CACHE=off keeps none.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# In the order of `qpde --help`.
for command in (solve, resume, compare, zoo, explain, evaluate, certify, plot, report):
    app.command()(command)
for command in (reproduce, theory):
    app.command()(command)
app.add_typer(bench, name="bench")


@app.callback()
def keep_programs(context: typer.Context, no_cache: NoCacheOption = False) -> None:
    """Keep compiled programs, before any is compiled; a folder that will not do costs a warning only."""
    chosen = os.environ.get("QPDE_CACHE", "")
    # Benchmarks report the seconds of compiling; they must not depend on the commands before.
    if no_cache or chosen.lower() == "off" or context.invoked_subcommand == "bench":
        return
    from .._files.cache import cache_compilations

    try:
        cache_compilations(chosen or None)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"{error} Compiled programs are not kept.", stacklevel=1)


def main() -> None:
    """Run the command. Exit code 0, 1 (not solved, or failed), 2 (wrong use) or 130 (interrupted)."""
    warnings.showwarning = _show_warning
    before = signal.signal(signal.SIGINT, _interrupted)
    try:
        app(standalone_mode=True)
    except (ValueError, OSError) as error:
        if not _raised_by_qpde(error):
            raise
        fail(error, WRONG_USE)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupted(*_: Any) -> NoReturn:
    """Leave at once on Ctrl-C outside training, where every file that was written is whole."""
    tell("interrupted.")
    os._exit(INTERRUPTED)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    tell(message)


def _raised_by_qpde(error: BaseException) -> bool:
    """Whether qpde raised the error itself; an error in a user's own function keeps its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(__file__).parents[1] in Path(frames[-1].filename).parents
