"""What the README shows runs."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_ten_lines_run(capsys):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.S)[0]
    assert len(code.splitlines()) <= 12
    quick = code.replace("qpde.solve(problem)", "qpde.solve(problem, steps=20, progress=False)")
    assert quick != code
    exec(quick, {})
    assert "Solution of problem: Ball(20)" in capsys.readouterr().out


def test_make_targets_exist():
    makefile = README.with_name("Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README.read_text(), flags=re.M):
        assert f"\n{target}:" in makefile, target
