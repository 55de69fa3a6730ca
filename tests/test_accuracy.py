"""The accuracy study keeps its runs on the way and goes on from them."""

import json

import pytest

from qpde.studies import accuracy
from qpde.studies._accuracy_runs import ScoredRun

EXTENT = accuracy.Extent((1.0, 2.0), seeds=2, alone=False, peers=False)


class Runs:
    """In place of training: made-up runs, noted as they are asked for; the run at `stop` is interrupted."""

    def __init__(self, stop=None):
        self.asked, self.stop = [], stop

    def __call__(self, target, problem, budgets, seed):
        self.asked.append((target.dim, seed))
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        rest = (0.5, 0.25, 7, "finished", target.target, 0.5)
        return [ScoredRun(target.problem, target.dim, "default", b, seed, *rest) for b in budgets]


def targets():
    return accuracy.cases("survival:1,survival:20", quick=False)


def test_a_study_that_was_stopped_goes_on_with_the_runs_it_has(tmp_path, monkeypatch):
    first = Runs(stop=3)
    monkeypatch.setattr(accuracy, "_default", first)
    with pytest.raises(KeyboardInterrupt):
        accuracy.study(targets(), EXTENT, folder=tmp_path)
    assert first.asked == [(1, 0), (1, 1), (20, 0)]
    assert len(json.loads((tmp_path / "accuracy.partial.json").read_text())["rows"]) == 4
    second = Runs()
    monkeypatch.setattr(accuracy, "_default", second)
    result = accuracy.study(targets(), EXTENT, folder=tmp_path, resume=True)
    assert second.asked == [(20, 0), (20, 1)]
    keys = [(row["dim"], row["budget"], row["seed"]) for row in result["rows"]]
    assert keys == [(d, b, s) for d in (1, 20) for s in (0, 1) for b in (1.0, 2.0)]
    assert {line["dim"] for line in result["summary"]} == {1, 20}
    assert all(line["met"] for line in result["summary"])
    accuracy.write(tmp_path, result)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "RESULTS.md", "accuracy.json", "accuracy.png",
    ]  # fmt: skip
    third = Runs()
    monkeypatch.setattr(accuracy, "_default", third)
    again = accuracy.study(targets(), EXTENT, folder=tmp_path, resume=True)
    assert (third.asked, again["rows"]) == ([], result["rows"])


def test_without_resume_every_run_is_done_again(tmp_path, monkeypatch):
    for _ in range(2):
        runs = Runs()
        monkeypatch.setattr(accuracy, "_default", runs)
        result = accuracy.study(targets()[:1], EXTENT, folder=tmp_path)
        accuracy.write(tmp_path, result)
        assert runs.asked == [(1, 0), (1, 1)]
        assert len(result["rows"]) == 4


def test_quick_means_five_problems_and_one_short_run_each():
    found = accuracy.cases(None, quick=True)
    assert [(t.problem, t.dim) for t in found] == [
        ("survival", 1),
        ("survival", 20),
        ("cube_norm", 100),
        ("mean_ridge", 100),
        ("american_put", 1),
    ]
    quick = accuracy.QUICK
    assert (quick.budgets, quick.seeds, quick.alone, quick.peers) == ((10.0,), 1, False, False)
