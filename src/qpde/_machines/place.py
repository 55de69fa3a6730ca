"""One call on several processes, on JAX's own engine.

Every process runs the same lines, from the first to the last. What grows with the work (the points of a
step, block rows of `J J'`, samples of a certificate, walks) is cut into blocks that do not depend on the
number of processes; a process computes its blocks, all of them gather the results and add them in one order.
So the bits are the same on one process, two or four. What depends on the clock, the keyboard or files is
decided by process 0, and handed to the others by `agreed`.

A process that does not answer, or is gone, ends all: JAX's service misses its heartbeat, and what waits for
its numbers gives up.
"""

import contextlib
import ctypes
import dataclasses
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import jax
import numpy as np

from .._arguments import whole

# Blocks of a step's points. A process takes as many of them as another, up to one.
BLOCKS = 8
# The seconds in which processes must have found each other, after which one without a sign of life is taken
# for dead, and in which they take leave of each other.
_MEET, _HEARTBEAT, _LEAVE = 120, 20, 120
# What `qpde launch` tells the processes that it starts: address, number of processes, number of this one.
LAUNCHED = "QPDE_LAUNCHED"
_UNKNOWN = (
    "Nothing says which processes belong together. Start them by `qpde launch -n 4 ...`, by srun under Slurm "
    "or by mpirun of Open MPI; or call distributed(address, processes=4, process=0), each by its own number."
)


@dataclasses.dataclass(frozen=True)
class Place:
    """A process among the others: its number, from 0, and how many there are."""

    index: int
    count: int

    @property
    def leads(self) -> bool:
        """Whether it is process 0, which writes files and prints."""
        return self.index == 0


class _Here:
    """The place of this process; None where it works alone."""

    place: Place | None = None
    apart: bool = False


class Lost(RuntimeError):
    """Another process is gone, or does not answer."""


def here() -> Place | None:
    """The place of this process among others that work on the same call, or None."""
    return None if _Here.apart else _Here.place


def leads() -> bool:
    """Whether this process writes files and prints: process 0 does, and one that works alone."""
    return _Here.place is None or _Here.place.leads


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """What this process does by itself, such as drawing figures: nothing in it is shared."""
    before, _Here.apart = _Here.apart, True
    try:
        yield
    finally:
        _Here.apart = before


@contextlib.contextmanager
def distributed(
    address: str | None = None, *, processes: int | None = None, process: int | None = None
) -> Iterator[Place]:
    """Work on one call with several processes; each of them runs the same script.

        >>> with qpde.distributed() as place:
        ...     solution = qpde.solve(problem, rule=qpde.QLearning(), batch=100_000)
        ...     if place.leads:
        ...         qpde.save(solution, "solution.safetensors")

    Without arguments the processes find each other under `qpde launch`, Slurm (srun), Open MPI (mpirun) and
    Kubernetes. Every process must make the same calls of this library with the same arguments, so that only
    files and prints belong below `if place.leads`. Whatever the number of processes, the bits are the same;
    they are others than without `distributed`, because sums are cut into blocks.

    **Arguments**

    - `address`: host and port of process 0, the same on all.
    - `processes`, `process`: how many there are, and the number of this one, counted from 0.

    Raises `ValueError` where JAX has computed something before, or nothing says who belongs together. An
    exception that leaves the block is printed and ends the process at once, because others wait for it.
    """
    if _Here.place is not None:
        raise ValueError("distributed() is open already: one process has one place.")
    place = _placed(address, processes, process)
    _Here.place = place
    try:
        yield place
    except (Exception, KeyboardInterrupt) as error:
        if place.count > 1:
            _end(error)
        raise
    finally:
        _Here.place = None
        # Programs were made for several processes.
        jax.clear_caches()
    if place.count > 1:
        jax.distributed.shutdown()


def _end(error: BaseException) -> NoReturn:
    """End this process; taking leave of the others would wait for them, who wait for this one."""
    if isinstance(error, jax.errors.JaxRuntimeError) and "gloo" in str(error).lower():
        sys.stderr.write(f"qpde: {_GONE}\n")
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(1)


_GONE = (
    "Another process is gone or does not answer, so this one ends too. A run with a folder goes on with "
    "qpde resume, on any number of processes."
)


def _placed(address: Any, processes: Any, process: Any) -> Place:
    told = os.environ.get(LAUNCHED, "").split()
    if address is None and told:
        address, processes, process = told[0], int(told[1]), int(told[2])
    if processes is not None:
        count = whole("processes", processes, least=1, most=100_000)
        whole("process", 0 if process is None else process, least=0, most=count - 1)
        if count == 1:
            return Place(0, 1)
    options: dict[str, Any] = {
        "coordinator_address": address,
        "num_processes": None if processes is None else int(processes),
        "process_id": None if process is None else int(process),
    }
    if address is not None:
        options["cluster_detection_method"] = "deactivate"
    before = jax.config.jax_enable_preemption_service  # pyright: ignore[reportAttributeAccessIssue]
    # It would take SIGTERM from whoever handles it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=_MEET,
            heartbeat_timeout_seconds=_HEARTBEAT,
            shutdown_timeout_seconds=_LEAVE,
        )
    except ValueError:
        raise ValueError(_UNKNOWN) from None
    except RuntimeError as error:
        if "before" in str(error):
            raise ValueError(
                "distributed() must be opened before anything is computed: put it at the top of the script."
            ) from None
        raise Lost(f"The processes did not find each other: {error}") from None
    finally:
        jax.config.update("jax_enable_preemption_service", before)
    if jax.local_device_count() != 1:
        raise ValueError(
            f"A process works with one device, and this one sees {jax.local_device_count()}. Start as many "
            "processes as there are devices; under Slurm --ntasks-per-node is their number on a node."
        )
    _connect()
    return Place(jax.process_index(), jax.process_count())


def _connect() -> None:
    """Let all meet in a first gather, in which gloo writes a line where results alone go: standard output."""
    from jax.experimental.multihost_utils import process_allgather

    sys.stdout.flush()
    output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        process_allgather(np.zeros(1, np.float32))
        ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(output, 1)
        os.close(output)
        os.close(nowhere)


def agreed(value: Any) -> Any:
    """A number as process 0 has it; the others' own is of no account."""
    place = here()
    if place is None or place.count == 1:
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    found = np.asarray(broadcast_one_to_all(np.asarray(value, np.float64)))
    return bool(found) if isinstance(value, bool) else float(found)


def handed(tree: Any) -> Any:
    """Arrays as process 0 has them; those of the others have the same shapes."""
    place = here()
    if place is None or place.count == 1:
        return tree
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return broadcast_one_to_all(tree)


def gathered(tree: Any) -> Any:
    """The arrays of all processes, stacked in their order."""
    place = here()
    if place is None or place.count == 1:
        return jax.tree.map(lambda a: np.asarray(a)[None], tree)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(tree)
