"""One call on several processes: the same bits, and an end for all when one of them dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import command

import qpde

TESTS = Path(__file__).parent
ENVIRONMENT = {"QPDE_CACHE": "off", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}


def launch(count, *words, **options):
    command = [sys.executable, "-m", "qpde.cli", "launch", "-n", str(count), *map(str, words)]
    return subprocess.Popen(
        command, env=os.environ | ENVIRONMENT, text=True, stderr=subprocess.PIPE, **options
    )


def digests(folder, count, rules, steps):
    file = folder / f"{count}.json"
    process = launch(count, TESTS / "together.py", ",".join(rules), steps, file)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return json.loads(file.read_text())


@pytest.mark.daily("q-learning")
@pytest.mark.parametrize("rule", ["q-learning", "gauss-newton"])
def test_two_processes_give_the_bits_of_one(tmp_path, rule):
    one, two = (digests(tmp_path, count, [rule], 4) for count in (1, 2))
    assert one == two
    assert set(one) == {rule} | ({"walks", "certificate"} if rule == "q-learning" else set())


@pytest.mark.slow
def test_all_rules_give_the_same_bits_on_one_two_and_four_processes(tmp_path):
    import together

    found = [digests(tmp_path, count, list(together.RULES), 200) for count in (1, 2, 4)]
    assert found[0] == found[1] == found[2]


def test_slurm_is_recognised(tmp_path):
    """Two processes with the variables that srun sets for its tasks, and nothing else."""
    port = 61440 + os.getpid() % 4096
    slurm = {
        "SLURM_JOB_ID": str(port - 61440),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
    }
    code = "import qpde\nwith qpde.distributed() as place: print(place.index, place.count)\n"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | slurm | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    said = [process.communicate(timeout=600)[0].strip() for process in processes]
    assert said == ["0 2", "1 2"]


def children(process):
    """The process ids that a launcher has started, in the order of their numbers."""
    file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in file.read_text().split()]


RUN = ["survival", "--dim", 5, "--rule", "q-learning", "--steps", 20_000, "--quiet"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_or_stuck_process_ends_all_within_a_minute(tmp_path, number, victim):
    process = launch(2, "solve", *RUN, "--out", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    until = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(children(process)[victim], number)
    began = time.monotonic()
    _, said = process.communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert process.returncode == 1
    assert "all were ended" in said
    assert "qpde resume" in said


def test_wrong_use_is_one_sentence():
    with (
        pytest.raises(ValueError, match="process must be a whole number from 0 to 1"),
        qpde.distributed("localhost:1", processes=2, process=2),
    ):
        pass
    done = command("launch", "-n", 2, "zoo")
    assert done.code == 2
    assert "takes a Python script or one of the commands solve, resume" in done.err
    done = command("launch", "-n", 0, "solve", "survival")
    assert done.code == 2
    assert "from 1 to 1,000, got 0" in done.err
