"""`launch`: several processes on this machine that work on one call."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO, Annotated, Any

import typer

from .._machines.place import LAUNCHED
from .ends import NUMERICAL_FAILURE, fail, tell

# Commands that several processes run together.
TOGETHER = ("solve", "resume", "certify", "evaluate")
# Seconds between two looks, and those that processes have to end after one of them did.
_LOOK, _PATIENCE = 0.1, 15.0


def is_one_of_several() -> bool:
    """Whether the environment says that this process is one of several that run the same command."""
    word = os.environ.get("QPDE_DISTRIBUTED", "").lower()
    if word in ("0", "off", "no"):
        return False
    names = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
    counts = (os.environ.get(name, "") for name in names)
    return LAUNCHED in os.environ or bool(word) or any(n.isdigit() and int(n) > 1 for n in counts)


def launch(
    context: typer.Context,
    processes: Annotated[int, typer.Option("-n", "--processes", help="How many processes.")] = 2,
) -> None:
    """Run a command, or a Python script, by several processes of this machine.

    The result is the same, bit for bit, for every number of processes. When one of them dies or does not
    answer, all are ended. On several machines start the command itself by srun (Slurm) or mpirun; see
    docs/machines.md.

    \b
    Examples:
      qpde launch -n 2 solve survival --dim 20 --rule q-learning --steps 5000 --out runs/mine
      qpde launch -n 4 resume runs/mine
      qpde launch -n 2 train.py        (a script with `with qpde.distributed():`)
    """
    words = list(context.args)
    if not 1 <= processes <= 1_000:
        raise ValueError(f"-n is a number of processes from 1 to 1,000, got {processes}.")
    script = bool(words) and words[0].endswith(".py")
    if not words or (words[0] not in TOGETHER and not script):
        got = f", got {words[0]}" if words else ""
        raise ValueError(
            f"qpde launch takes a Python script or one of the commands {', '.join(TOGETHER)}{got}."
        )
    command = [sys.executable, *words] if script else [sys.executable, "-m", "qpde.cli", *words]
    sys.exit(_Group(command, processes).follow())


class _Group:
    """The processes, from their start to the end of the last one."""

    def __init__(self, command: list[str], count: int):
        address = f"127.0.0.1:{_free_port()}"
        # What others than process 0 have to say is shown only where they fail.
        self._errors: list[IO[bytes]] = [
            tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the processes are
            for _ in range(count)
        ]
        self._processes = [
            subprocess.Popen(
                command,
                env=os.environ | {LAUNCHED: f"{address} {count} {index}"},
                # A session of its own: Ctrl-C reaches process 0 alone, which decides for all.
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=None if index == 0 else subprocess.DEVNULL,
                stderr=None if index == 0 else self._errors[index],
            )
            for index in range(count)
        ]

    def follow(self) -> int:
        """Wait for all; the exit code of process 0, or a failure where one has died."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        before = {number: signal.signal(number, self._hand_on) for number in numbers}
        try:
            return self._wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for process in self._processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _hand_on(self, number: int, _: Any) -> None:
        if self._processes[0].poll() is None:
            self._processes[0].send_signal(number)

    def _wait(self) -> int:
        first_end: float | None = None
        while True:
            codes = [process.poll() for process in self._processes]
            if all(code is not None for code in codes) and not _died(codes):
                return codes[0] or 0
            if first_end is None and any(code not in (None, 0) for code in codes):
                first_end = time.monotonic()
            waited = first_end is not None and time.monotonic() - first_end > _PATIENCE
            # A wrong use is said by process 0 alone, and nothing follows from it.
            if codes[0] == 2:
                return 2
            if _died(codes) or waited:
                self._fail(codes)
            time.sleep(_LOOK)

    def _fail(self, codes: list[int | None]) -> None:
        index = next(i for i, code in enumerate(codes) if code not in (None, 0))
        code = codes[index] or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed (exit {code})"
        if index > 0:
            self._errors[index].seek(0)
            said = self._errors[index].read().decode(errors="replace").strip().splitlines()
            for line in said[-5:]:
                tell(line)
        fail(
            f"process {index} of {len(codes)} {how}, so all were ended. A run with a folder goes on with: "
            "qpde resume RUN, by qpde launch with any number of processes.",
            NUMERICAL_FAILURE,
        )


def _died(codes: list[int | None]) -> bool:
    """Whether a signal has ended a process."""
    return any(code is not None and code < 0 for code in codes)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
