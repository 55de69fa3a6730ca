"""Names are text: on a terminal, in a page, in a figure and in a table they show and do nothing else."""

import csv
import json

import pytest
from command import command

from qpde._report.page import inline
from qpde._text import Verbatim, for_csv, for_figure, for_html, for_name, for_terminal

NASTY = [
    "[click](javascript:alert(1))",
    r"$\frac{$",
    "\x1b[2J\x1b[31mred\x07",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "\u202egnp.exe",
    "a\nb\rc\x00d\ud800",
    '**bold** `code` & "quotes"',
    "x" * 5_000,
    "",
]


@pytest.mark.parametrize("name", NASTY, ids=range(len(NASTY)))
def test_nothing_of_a_name_gets_through(name):
    shown = for_terminal(name)
    assert shown.isprintable()
    assert "\x1b" not in shown
    assert len(for_name(name)) <= 200
    page = inline(Verbatim(name))
    assert page == for_html(name)
    assert not set("<>\"'") & set(page)
    assert "$" not in for_figure(name).replace(r"\$", "")
    assert not for_csv(name).startswith(("=", "+", "-", "@"))
    page.encode()


def test_links_lead_to_pages_only():
    assert inline("[a](https://x.org)") == '<a href="https://x.org">a</a>'
    assert inline("[a](data.json)") == '<a href="data.json">a</a>'
    for target in ("javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "vbscript:x"):
        assert "<a" not in inline(f"[a]({target})")


def test_a_run_with_a_nasty_name_is_drawn_reported_and_compared(tmp_path):
    name = " ".join(NASTY[:8]).replace("\ud800", "")
    (tmp_path / "mine.py").write_text(
        f"import qpde\nproblem = qpde.Problem(qpde.Ball(1), lambda x, u: u.laplacian + 1, name={name!r})\n"
    )
    run = tmp_path / "run"
    done = command("solve", f"{tmp_path / 'mine.py'}:problem", "--steps", 3, "--out", run)
    assert done.code < 2
    assert all(line.isprintable() for line in (done.out + done.err).splitlines())
    assert (run / "history.png").exists()
    assert command("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "<script" not in page
    assert 'href="javascript' not in page
    assert "Content-Security-Policy" in page
    assert "default-src 'none'" in page
    out = tmp_path / "compare"
    words = ("--steps", 2, "--rules", "q-learning", "--out", out, "--json")
    done = command("compare", f"{tmp_path / 'mine.py'}:problem", *words)
    assert json.loads(done.out)["problem"] == name
    (row,) = csv.DictReader((out / "compare.csv").read_text().splitlines())
    assert row["problem"] == for_csv(name)
