"""SIGTERM, SIGHUP and SIGINT at any time: the last checkpoint, one line, 128 and the signal's number."""

import os
import signal
import subprocess
import sys
import time

import pytest
from command import PROCESS

import qpde
from qpde._files.archive import read_archive
from qpde._train.interrupt import Keyboard

QPDE = [sys.executable, "-m", "qpde_command"]
LONG = ["solve", "survival", "--dim", "2", "--steps", "1000000", "--quiet"]
ENDS = {signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal is gone"}


def start(*words, command=QPDE):
    return subprocess.Popen(
        [*command, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def steps_in(run):
    return len(read_archive(run / "checkpoint.safetensors", "checkpoint")[1]["history"]["rows"])


def test_sigterm_during_training_writes_a_last_checkpoint(tmp_path):
    run = tmp_path / "run"
    process = start(*LONG, "--out", str(run), command=PROCESS)
    wait_for(run / "checkpoint.safetensors", process)
    time.sleep(1.0)
    before, began = steps_in(run), time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert (process.returncode, out) == (143, "")
    assert err == f"qpde: terminated. Go on with: qpde resume {run}.\n"
    assert steps_in(run) > before
    assert not list(run.glob(".qpde-*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_during_import(number):
    """From the first instant at which the command's own code runs."""
    code = (
        "import os, signal, sys, threading, time, qpde_command\n"
        # Who started the tests in the background may have told them to ignore it.
        "signal.signal(int(sys.argv[-1]), signal.SIG_DFL)\n"
        "def send():\n    time.sleep(0.3)\n    os.kill(os.getpid(), int(sys.argv.pop()))\n"
        "threading.Thread(target=send).start()\nqpde_command.main()"
    )
    words = [sys.executable, "-c", code, "zoo", str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.startswith("qpde: ")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_signals_after_the_end_come_too_late():
    """While Python shuts down, when handlers are gone: the command's own exit code stays."""
    code = (
        "import os, signal, qpde_command\n"
        "numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]\n"
        "for number in numbers: signal.signal(number, signal.SIG_DFL)\n"
        "class Last:\n"
        "    def __del__(self, numbers=numbers, kill=os.kill, pid=os.getpid()):\n"
        "        for number in numbers: kill(pid, number)\n"
        "last = Last()\n"
        "qpde_command.main()"
    )
    words = [sys.executable, "-c", code, "zoo"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_without_the_command_dies_as_systems_expect(tmp_path):
    """`qpde.solve` with a checkpoint: the state is kept, then the signal takes its course."""
    code = (
        "import sys, qpde\n"
        "qpde.solve(qpde.zoo.survival(2), network=qpde.Shallow(8), batch=64, steps=10**6, "
        "checkpoint=sys.argv[1], progress=False)"
    )
    run = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", code, str(run)])
    wait_for(run / "checkpoint.safetensors", process)
    time.sleep(0.5)
    before = steps_in(run)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert steps_in(run) > before


def test_signals_are_noted_and_passed_on():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("handler"))
    hup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Keyboard() as keyboard:
            os.kill(os.getpid(), signal.SIGHUP)  # ignored, as nohup asks
            os.kill(os.getpid(), signal.SIGTERM)  # nothing to keep yet
            assert seen == ["handler"]
        with Keyboard() as keyboard:
            keyboard.arm()
            os.kill(os.getpid(), signal.SIGTERM)
            assert (keyboard.seen, seen) == (True, ["handler"])
        assert seen == ["handler", "handler"]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGHUP, hup)


def test_errors_do_not_go_to_standard_output_where_standard_error_is_closed():
    code = (
        "import os, sys; os.close(2); sys.stderr = None; import qpde_command; qpde_command.main()"
    )
    words = [sys.executable, "-c", code, "solve", "survivel"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.slow
def test_signals_at_any_time(tmp_path):
    """Twelve of each, from the first instant to the last: one line, the right code, and resume goes on."""
    words = ["solve", "survival", "--dim", "1", "--budget", "10000", "--quiet"]
    began = time.monotonic()
    subprocess.run([*QPDE, *words, "--out", str(tmp_path / "whole")], check=False)
    seconds, ended = time.monotonic() - began, 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for i in range(12):
            run = tmp_path / f"{int(number)}-{i}"
            process = start(*words, "--out", str(run))
            time.sleep(0.15 + seconds * i / 12)
            process.send_signal(number)
            out, err = process.communicate(timeout=120)
            assert process.returncode in (0, 1, 128 + number), (number, i, err)
            assert "Traceback" not in err, (number, i, err)
            assert len(err.splitlines()) <= 1
            ended += process.returncode == 128 + number
            if (run / "run.json").exists():
                subprocess.run([*QPDE, "resume", str(run), "--quiet"], check=False)
                assert qpde.load(run).status.successful
    print(f"\n36 signals, {ended} ended their command; all others came too late")
