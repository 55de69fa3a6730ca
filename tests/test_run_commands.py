"""The commands that act on runs: certify, evaluate --intervals, report."""

import csv
import json

import jax.numpy as jnp
import numpy as np
import pytest
from browser import check_at_desktop_and_phone_width
from typer.testing import CliRunner

import qpde
from qpde._walks.feynman_kac import feynman_kac
from qpde.cli.main import app


def command(*args):
    done = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "three"
    command("solve", "survival", "--dim", "3", "--steps", "300", "--out", folder, "--quiet")
    return folder


def test_certify_prints_two_lines_and_keeps_its_result(run):
    lines = command("certify", run).splitlines()
    assert len(lines) == 2
    assert "statistical, 99 % confidence" in lines[0]
    sup = json.loads(command("certify", run, "--norm", "sup", "--json"))
    assert (sup["norm"], sup["kind"]) == ("sup", "heuristic")
    kept = json.loads((run / "certificate.json").read_text())["certificates"]
    assert set(kept) == {"l2", "sup"}
    assert f"<= {kept['l2']['bound']:.3g}" in lines[0]
    assert kept["l2"]["monotonicity"]["kind"] == "proved"


@pytest.mark.slow
def test_certify_with_what_is_known(run):
    solution = qpde.load(run)
    known = qpde.monotonicity(solution.problem, ellipticity=0.25, potential=0.1)
    found = json.loads(
        command("certify", run, "--ellipticity", "0.25", "--potential", "0.1", "--json")
    )
    assert found["bound"] == qpde.certify(solution, monotonicity=known).bound
    sharp = qpde.monotonicity(solution.problem)
    assert 0 < (known.constant or 0) < (sharp.constant or 0)
    # This equation is linear: every range of values gives the same constant.
    found = json.loads(command("certify", run, "--value-range", "-1,2", "--json"))
    assert found["bound"] == qpde.certify(solution).bound
    for wrong, message in (("1", "two numbers"), ("2,1", "low < high"), ("a,b", "two numbers")):
        with pytest.raises(ValueError, match=message):
            command("certify", run, "--value-range", wrong)
    with pytest.raises(ValueError, match="has no constant"):
        command("certify", run, "--norm", "sup", "--potential", "0.1")


def test_certify_needs_a_run_folder(tmp_path):
    with pytest.raises(ValueError, match="is not a run folder"):
        command("certify", tmp_path / "nothing")


def test_evaluate_with_intervals(run, tmp_path):
    points, out = tmp_path / "points.csv", tmp_path / "values.csv"
    points.write_text("0,0,0\n0.3,0.2,-0.1\n0,0,1\n")
    command("evaluate", run, points, "--intervals", "--walks", "400", "--out", out, "--quiet")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    exact = qpde.zoo.survival(3).exact
    assert [set(row) for row in rows] == [{"value", "low", "high", "standard_error", "network"}] * 3
    for row, x in zip(rows, ([0, 0, 0], [0.3, 0.2, -0.1]), strict=False):
        width = float(row["high"]) - float(row["low"])
        # Twice the interval: false alarms about once in 10,000.
        assert abs(float(row["value"]) - float(exact(jnp.asarray(x, jnp.float32)))) < width + 1e-6
    assert float(rows[2]["value"]) == pytest.approx(0, abs=1e-6)  # on the boundary


def test_walks_without_intervals_are_a_mistake(run, tmp_path):
    (tmp_path / "points.csv").write_text("0,0,0\n")
    with pytest.raises(ValueError, match="belong to --intervals"):
        command("evaluate", run, tmp_path / "points.csv", "--walks", "10")


def test_a_report_is_one_page_that_a_browser_shows(run, tmp_path):
    path = command("report", run).strip()
    text = (run / "report.html").read_text()
    assert path.endswith("report.html")
    assert "survival, d = 3" in text
    check_at_desktop_and_phone_width(run / "report.html", tmp_path, images=5)


def test_figures_show_intervals(run):
    import matplotlib as mpl

    mpl.use("Agg")
    solution = qpde.load(run)
    points = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    estimate = feynman_kac(solution, points, walks=200, progress=False)
    ax = qpde.plot.radial(solution, estimate=estimate)
    assert "95 % intervals" in [text.get_text() for text in ax.get_legend().get_texts()]
    upper, _ = qpde.plot.profile(solution, estimate=estimate)
    (bars,) = upper.containers
    ends = np.sort(np.concatenate(bars[2][0].get_segments())[:, 1])
    np.testing.assert_allclose(ends, np.sort([*estimate.low, *estimate.high]), rtol=1e-6)
    with pytest.raises(ValueError, match="do not lie on the line"):
        qpde.plot.profile(solution, direction=1, estimate=estimate)
