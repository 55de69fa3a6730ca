"""What the README shows runs."""

import json
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run(capsys):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)[0]
    assert len(code.splitlines()) <= 14
    quick = code.replace("qpde.solve(problem)", "qpde.solve(problem, steps=20, progress=False)")
    assert quick != code
    exec(quick, {})
    printed = capsys.readouterr().out
    assert "Solution of problem: Ball(20)" in printed
    assert "||Q - u|| in L2 <= " in printed
    assert "95 % intervals" in printed


def test_the_numbers_of_trust_are_those_of_the_benchmarks():
    text = README.read_text()
    folder = README.parent / "benchmarks"
    runs = [
        run
        for case in json.loads((folder / "certificates.json").read_text())
        for run in case["runs"]
    ]
    held = sum(run["bound"] >= run["error"] for run in runs)
    assert f"{held} of {len(runs)} deliberately short runs" in text
    found = json.loads((folder / "intervals.json").read_text())
    assert f"{round(found['variance']['median'], -4):,.0f}" in text.replace("\n", " ")
    pace = found["speed"]
    assert f"{pace['median_relative_error']:.1e}".replace("e-0", "e-") in text
    assert f"in {pace['seconds']:.0f} s on two cores" in text


def test_make_targets_exist():
    makefile = README.with_name("Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README.read_text(), flags=re.M):
        assert f"\n{target}:" in makefile, target
