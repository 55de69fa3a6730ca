"""The command `qpde`: its subcommands, its errors and exit codes."""

import contextlib
import os
import signal
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from .._machines.place import distributed
from .._train.interrupt import ENDING
from .ends import WRONG_USE, end_by_signal, fail, tell
from .keep import check, repeat
from .launch import TOGETHER, is_one_of_several, launch
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
for command in (
    solve,
    resume,
    repeat,
    check,
    compare,
    zoo,
    explain,
    evaluate,
    certify,
    plot,
    report,
):
    app.command()(command)
for command in (reproduce, theory):
    app.command()(command)
app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    }
)(launch)
app.add_typer(bench, name="bench")


@app.callback()
def keep_programs(context: typer.Context, no_cache: NoCacheOption = False) -> None:
    """Keep compiled programs, before any is compiled; a folder that will not do costs a warning only."""
    chosen = os.environ.get("QPDE_CACHE", "")
    # Benchmarks report the seconds of compiling; they must not depend on the commands before.
    if no_cache or chosen.lower() == "off" or context.invoked_subcommand in ("bench", "launch"):
        return
    from .._files.cache import cache_compilations

    try:
        cache_compilations(chosen or None)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"{error} Compiled programs are not kept.", stacklevel=1)


def main() -> None:
    """Run the command.

    Exit code 0, 1 (not solved, or failed), 2 (wrong use), or 128 and the number of the signal that ended
    it: 130 (Ctrl-C), 143 (SIGTERM), 129 (SIGHUP).
    """
    warnings.showwarning = _show_warning
    before = {
        number: signal.signal(number, end_by_signal)
        for number in (signal.SIGINT, *ENDING)
        if signal.getsignal(number) not in (signal.SIG_IGN, None)  # nohup ignores one of them
    }
    try:
        with _among_others():
            app(standalone_mode=True)
    except (ValueError, OSError) as error:
        if not _raised_by_qpde(error):
            raise
        fail(_sentence(error), WRONG_USE)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _among_others() -> Iterator[None]:
    """With the other processes that run the same command, where the environment says that there are some.

    Process 0 alone writes and prints.
    """
    if not is_one_of_several() or not any(word in TOGETHER for word in sys.argv[1:3]):
        yield
        return
    with distributed() as place:
        if not place.leads:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
            warnings.showwarning = lambda *_, **__: None
        try:
            yield
        except (ValueError, OSError) as error:
            if place.count == 1 or not _raised_by_qpde(error):
                raise
            tell(_sentence(error))
            os._exit(WRONG_USE)  # the others may wait for this one
        except SystemExit as error:
            if place.count > 1 and error.code == WRONG_USE:
                os._exit(WRONG_USE)
            raise


def _sentence(error: BaseException) -> str:
    """An error in words; the system's own errors name the file."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    tell(message)


def _raised_by_qpde(error: BaseException) -> bool:
    """Whether qpde raised the error, or Python's library for it; a user's own error keeps its traceback."""
    library = Path(sysconfig.get_path("stdlib"))
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    while (
        len(files) > 1 and library in files[-1].parents and "site-packages" not in files[-1].parts
    ):
        files.pop()
    return bool(files) and Path(__file__).parents[1] in files[-1].parents
