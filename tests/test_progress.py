"""Bars on a terminal, lines or nothing elsewhere."""

import io
import re
import sys

from qpde._train.progress import Bar, StudyBars, Walks


class Terminal(io.StringIO):
    def isatty(self):
        return True


def fake_terminal(monkeypatch):
    """Put a terminal in the place of standard error; inside a test, because pytest replaces it before."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return terminal


def shown(terminal):
    """What was written, without colours, bars and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[━╺╸]", "", terminal.getvalue())


def test_the_bar_of_a_run_shows_steps_loss_and_speed(monkeypatch):
    terminal = fake_terminal(monkeypatch)
    with Bar(1_000, True) as bar:
        bar.update(0, float("nan"), 0.0)
        bar._display.refresh()
        bar.update(250, 1.5e-3, 2.5)
    found = re.findall(r"(\w+) +([\d,]+)/1,000 loss (\S+) +(\S*/s)?", shown(terminal))
    assert found[0] == ("compiling", "0", "-", "")
    assert ("training", "0", "-", "") in found
    assert found[-1] == ("training", "250", "1.50e-03", "100/s")


def test_the_bar_of_walks_does_not_know_its_total_at_first(monkeypatch):
    terminal = fake_terminal(monkeypatch)
    with Walks(True) as bar:
        assert "/" not in shown(terminal)
        bar.update(500, 2_000)
    assert "500/2,000" in shown(terminal)


def test_the_bars_of_a_study_show_the_whole_and_the_run(monkeypatch):
    terminal = fake_terminal(monkeypatch)
    with StudyBars(10.0, 2, True) as bars:
        for name, work in (("first", 4.0), ("second", 6.0)):
            bars.begin(name, work)
            bars.update(0.5, 1e-2)
            bars._display.refresh()
            bars.end(3.0, 1e-3)
    text = shown(terminal)
    # rich also draws at moments of its own, so other shares may stand between these.
    assert {("20", "1"), ("70", "2")} <= set(re.findall(r"the whole +(\d+) %.*run (\d) of 2", text))
    assert set(re.findall(r"(\w+) +50 %.*loss (\S+)", text)) == {
        ("first", "1.00e-02"),
        ("second", "1.00e-02"),
    }
    assert (
        "1.00e-03" not in text
    )  # the lines of runs that have ended belong where there are no bars


def test_without_a_terminal_only_a_study_writes_and_only_when_a_run_ends(capsys):
    with Bar(10, True) as bar, Walks(True) as walks, StudyBars(1.0, 1, True) as bars:
        bar.update(1, 1.0, 1.0)
        walks.update(1, 2)
        bars.begin("alone", 1.0)
        bars.update(0.5, 1e-2)
        assert capsys.readouterr() == ("", "")
        bars.end(3.2, 1e-3)
    assert capsys.readouterr() == ("", "run 1 of 1: alone, loss 1.00e-03, 3 s\n")


def test_quiet_means_quiet(monkeypatch):
    terminal = fake_terminal(monkeypatch)
    with Bar(10, False) as bar, Walks(False) as walks, StudyBars(1.0, 1, False) as bars:
        bar.update(1, 1.0, 1.0)
        walks.update(1, 2)
        bars.begin("alone", 1.0)
        bars.end(3.2)
    with StudyBars(0.0, 0, True):
        pass
    assert terminal.getvalue() == ""
