"""The protocol of run folders: a lock with an owner, faults at every call, files of others left alone.

`pytest -m slow tests/test_folder.py -s` prints the counts.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from command import PROCESS, command

import qpde
from qpde._files.archive import read_archive
from qpde._files.lock import NAME, FolderLock
from qpde._files.owner import Owner, host_mark
from qpde._files.whole import remove_leftovers, write_bytes
from qpde._runs.repeat import differences

SOLVE = ("solve", "survival", "--dim", 1, "--steps", 150, "--seed", 5, "--quiet")
FIGURES = ("history.png", "profile.png", "scatter.png")


@pytest.fixture
def undrawn(monkeypatch):
    """No figures: they are not what is tested here."""
    monkeypatch.setattr("qpde._plot.figures.write_figures", lambda *_: [])


def bits(folder):
    """What a run must repeat bit for bit: its network and its history."""
    groups = read_archive(folder / "solution.safetensors", "solution")[1]
    return [
        (group, name, array.tobytes())
        for group in ("network", "history")
        for name, array in sorted(groups[group].items())
    ]


def test_only_temporary_files_of_dead_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        f".qpde-{host_mark()}-{dead.pid}-0123456789abcdef.tmp": False,
        f".qpde-{host_mark()}-{os.getpid()}-0123456789abcdef.tmp": True,
        f".qpde-00000000-{dead.pid}-0123456789abcdef.tmp": True,  # of another machine
        ".settings.json.bak": True,
        ".run.json.swp": True,
        ".model.safetensors.orig": True,
        ".qpde-lock": True,
    }
    for name in names:
        (tmp_path / name).write_text("")
    remove_leftovers(tmp_path)
    assert {name: (tmp_path / name).exists() for name in names} == names


def test_a_lock_that_cannot_be_removed_spoils_nothing(tmp_path, monkeypatch):
    def unlink(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lock = FolderLock(tmp_path).__enter__()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.warns(UserWarning, match="Cannot remove .*qpde-lock"):
            lock.__exit__(None, None, None)
    assert (tmp_path / NAME).exists()
    with FolderLock(tmp_path):
        pass
    assert not (tmp_path / NAME).exists()


def test_files_of_others_survive_a_run(tmp_path, undrawn):
    names = [".settings.json.bak", ".run.json.swp", ".model.safetensors.orig", "notes.txt"]
    for name in names:
        (tmp_path / name).write_text("mine")
    for force in ((), ("--force",)):
        assert command(*SOLVE[:-1], "--out", tmp_path, "--quiet", *force).code < 2
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def test_force_moves_the_earlier_run_aside(tmp_path, undrawn):
    run = tmp_path / "run"
    before = []
    for number in range(3):
        words = ("solve", "survival", "--dim", 1, "--steps", 2, "--seed", number, "--quiet")
        assert command(*words, "--out", run, "--force").code < 2
        before.append(bits(run))
    assert [bits(run / "earlier-1"), bits(run / "earlier-2"), bits(run)] == before
    assert command("check", run / "earlier-1").code == 0


def test_a_lock_names_its_owner_and_a_dead_ones_is_taken_over(tmp_path):
    found = []

    def other():
        try:
            with FolderLock(tmp_path):
                found.append(None)
        except qpde.Locked as error:
            found.append(error)

    def from_another_thread():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return found.pop()

    with FolderLock(tmp_path), FolderLock(tmp_path):  # a thread may hold it twice
        error = from_another_thread()
        assert isinstance(error, qpde.Locked)
        assert error.owner.pid == os.getpid()
        assert f"is in use by process {os.getpid()} on " in str(error)
        assert "Wait until it ends, or choose another folder." in str(error)
    assert not (tmp_path / NAME).exists()
    for left in (json.dumps(vars(Owner.here())), "", "{", "[]", '{"pid": 1}'):
        (tmp_path / NAME).write_text(left)  # nobody holds it
        assert from_another_thread() is None
    (tmp_path / NAME).write_text(json.dumps(vars(Owner("elsewhere", 1, 0.5))))
    assert "on elsewhere" in str(from_another_thread())


def test_a_live_run_is_neither_joined_nor_replaced(tmp_path, undrawn):
    assert command(*SOLVE, "--out", tmp_path / "run").code < 2
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    done = []

    with FolderLock(tmp_path / "run"):
        code = (
            "import sys; from qpde._files.lock import FolderLock, Locked; from pathlib import Path\n"
            "try:\n    FolderLock(Path(sys.argv[1])).__enter__()\nexcept Locked: print('locked')"
        )
        words = [sys.executable, "-c", code, str(tmp_path / "run")]
        assert (
            subprocess.run(words, capture_output=True, text=True, check=True).stdout == "locked\n"
        )
        problem = qpde.zoo.survival(1)
        thread = threading.Thread(
            target=lambda: done.append(solved_or_error(problem, tmp_path / "run"))
        )
        thread.start()
        thread.join()
    assert "is in use by process" in str(done[0])
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == before


def solved_or_error(problem, folder):
    try:
        return qpde.solve(problem, steps=1, batch=8, progress=False, checkpoint=folder)
    except ValueError as error:
        return error


def test_resume_draws_what_is_missing(tmp_path):
    run = tmp_path / "run"
    assert command(*SOLVE, "--out", run).code < 2
    for name in FIGURES[:2]:
        (run / name).unlink()
    assert "is finished; history, profile drawn." in command("resume", run).err
    assert all((run / name).exists() for name in FIGURES)
    assert "is finished; nothing to do." in command("resume", run).err


def test_resume_takes_steps_and_repeat_gives_the_same_bits(tmp_path, undrawn):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command(*SOLVE, "--out", whole).code < 2
    # The clock ends it at once: after its first block.
    assert command(*SOLVE, "--out", parts, "--budget", 1e-9).code < 2
    assert qpde.load(parts).status is qpde.Status.BUDGET
    assert command("repeat", parts).out == "The same bits after 100 steps.\n"
    steps = 130  # inside a block
    assert command("resume", parts, "--steps", steps, "--budget", 1e4, "--quiet").code < 2
    assert qpde.load(parts).steps == steps
    assert command("repeat", parts).out == f"The same bits after {steps} steps.\n"
    assert command("resume", parts, "--quiet").code < 2
    assert bits(whole) == bits(parts)
    solution = qpde.load(parts)
    assert differences(solution, solution) == []
    done = command("repeat", whole, "--json")
    assert json.loads(done.out) == {"run": str(whole), "steps": 150, "different": []}


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


class Faults:
    """Counts the calls that change a disk; from the `at`-th on they fail, all (a kill) or that one."""

    CALLS = ("write", "fsync", "replace", "unlink", "mkdir")

    def __init__(self, monkeypatch, at, fault):
        self.count, self.names = 0, []
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name), at, fault))

    def wrapped(self, name, real, at, fault):
        def call(*given, **options):
            if name == "write" and given[0] < 3:
                return real(*given, **options)  # standard output
            self.count += 1
            self.names.append(name)
            if fault == "kill" and self.count >= at:
                raise Killed
            if self.count == at and isinstance(fault, int):
                raise OSError(fault, os.strerror(fault))
            return real(*given, **options)

        return call


def attempt(words, at=0, fault=None):
    """A command whose disk fails at one call; the calls that it made, and its exit code or None."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, at, fault)
        try:
            code = command(*words).code
        except Killed:
            code = None
    return faults.names, code


def crash(tmp_path, words, points, expected):
    """A fault at each of some calls; afterwards the command, or its resumption, gives the same bits."""
    good = 0
    for fault in ("kill", errno.ENOSPC, errno.EIO):
        for at in points:
            run = tmp_path / f"{fault}-{at}"
            names, code = attempt((*words, "--out", run), at, fault)
            assert code != 0 or fault != "kill", (fault, at, names)
            if (run / "run.json").exists():
                again = command("resume", run, "--budget", 1e4, "--quiet")
            else:
                again = command(*words, "--out", run, "--force")
            assert again.code < 2, (fault, at, again.err)
            assert bits(run) == expected, (fault, at)
            assert command("check", run).code == 0, (fault, at)
            assert not [p.name for p in run.iterdir() if p.name.endswith(".tmp")] or fault == "kill"
            good += 1
    return good


def test_a_fault_at_some_calls_of_a_run(tmp_path, undrawn, monkeypatch):
    words = ("solve", "survival", "--dim", 1, "--steps", 20, "--quiet")
    names, code = attempt((*words, "--out", tmp_path / "whole"))
    assert code < 2
    assert {"write", "fsync", "replace", "unlink"} <= set(names)
    points = [4, len(names) - 3]
    assert crash(tmp_path, words, points, bits(tmp_path / "whole")) == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("default:Cannot remove")
def test_a_fault_at_every_call_of_a_staged_run(tmp_path, undrawn):
    words = ("solve", "survival", "--dim", 1, "--budget", 1e4, "--quiet")
    # The first run of all makes folders for the user's state that others find.
    assert attempt((*words, "--out", tmp_path / "first"))[1] < 2
    names, code = attempt((*words, "--out", tmp_path / "whole"))
    assert code < 2
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    print(f"\n{len(names)} calls of a staged run: {counts}")
    points = range(1, len(names) + 1)
    good = crash(tmp_path, words, points, bits(tmp_path / "whole"))
    print(f"kill, ENOSPC and EIO at each: {good} of {3 * len(names)} resumed to the same bits")


def test_an_unreadable_file_is_a_sentence(tmp_path, monkeypatch, undrawn):
    """EIO at reading: a clear refusal, and everything is there once the disk reads again."""
    run = tmp_path / "run"
    assert command(*SOLVE, "--out", run, "--budget", 1e-9).code < 2

    def broken(self):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", broken)
        done = command("resume", run)
        assert (done.code, done.err) == (
            2,
            f"qpde: Cannot read {run / 'run.json'}: Input/output error.\n",
        )
    assert command("resume", run, "--quiet").code < 2


def test_a_very_long_name_is_a_sentence(tmp_path):
    done = command("solve", "survival", "--dim", 1, "--steps", 1, "--out", tmp_path / ("x" * 300))
    assert done.code == 2
    assert "File name too long" in done.err
    assert len(done.err.splitlines()) == 1


def test_writers_in_one_folder_do_not_meet(tmp_path):
    """Two threads write one file: it is always one of both, and nothing is left."""
    contents = [bytes([i]) * 50_000 for i in (1, 2)]
    threads = [
        threading.Thread(
            target=lambda data=data: [write_bytes(tmp_path / "a", data) for _ in range(30)]
        )
        for data in contents
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "a").exists():
            assert (tmp_path / "a").read_bytes() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


QPDE = [sys.executable, "-m", "qpde_command"]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_on_one_folder(tmp_path, processes):
    """Rounds in which all begin at once: one works, the others say that the folder is in use."""
    rounds = int(os.environ.get("QPDE_ROUNDS", "50"))
    words = ["solve", "survival", "--dim", "1", "--steps", "50", "--quiet", "--force"]
    done = {0: 0, 1: 0, 2: 0}
    run = tmp_path / "run"
    for number in range(rounds):
        seeds = [str(100 * number + i) for i in range(processes)]
        crowd = [
            subprocess.Popen(
                [*PROCESS, *words, "--seed", seed, "--out", str(run)], stderr=-1, text=True
            )
            for seed in seeds
        ]
        for process in crowd:
            _, err = process.communicate(timeout=600)
            done[process.returncode] += 1
            assert process.returncode < 2 or "is in use by process" in err, err
        subprocess.run([*PROCESS, "check", str(run)], check=True, capture_output=True)
        assert str(qpde.load(run).seed) in seeds
    kept = [run, *run.glob("earlier-*")]
    print(f"\n{processes} processes, {rounds} rounds: {done[0] + done[1]} runs, {done[2]} refused")
    assert len(kept) == done[0] + done[1]  # none was lost


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 5])
def test_kills_at_random_instants_of_staged_runs(tmp_path, dim):
    """Default stages; the run goes on after each kill until it has ended."""
    kills = int(os.environ.get("QPDE_KILLS", "50"))
    words = ["solve", "survival", "--dim", str(dim), "--budget", "10000", "--quiet"]
    began = time.monotonic()
    subprocess.run([*QPDE, *words, "--out", str(tmp_path / "whole")], check=False)
    seconds = time.monotonic() - began
    expected = bits(tmp_path / "whole")
    rng, done, chains = np.random.default_rng(dim), 0, 0
    while done < kills:
        run = tmp_path / f"run-{chains}"
        chains += 1
        for _ in range(5):
            go_on = [*QPDE, "resume", str(run), "--quiet"]
            start = [*QPDE, *words, "--out", str(run)]
            process = subprocess.Popen(go_on if (run / "run.json").exists() else start)
            time.sleep(rng.uniform(0.0, seconds))
            process.send_signal(signal.SIGKILL)
            done += process.wait() == -signal.SIGKILL
        subprocess.run([*QPDE, "resume", str(run), "--quiet"], check=False)
        assert bits(run) == expected
    print(f"\nd = {dim}: {done} kills in {chains} chains, all with the same bits")
