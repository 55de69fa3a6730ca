"""The reproduction of the paper: its measures, its runs, its page."""

import json

import numpy as np
import pytest
from browser import check_at_desktop_and_phone_width
from command import command

from qpde import zoo
from qpde._solve.solve import solve
from qpde.studies import paper
from qpde.studies._columns import from_rows, read_columns, where, write_columns
from qpde.studies._jobs import Job, run_jobs
from qpde.studies.paper.claims import claims
from qpde.studies.paper.parts import PARTS, cycles
from qpde.studies.paper.put import free_boundary
from qpde.studies.paper.runs import FULL, QUICK, in_float64

pytestmark = pytest.mark.trains


def noisy(loss, seed=0):
    """A loss as minibatches show it, with 5 % of noise."""
    return loss * np.exp(0.05 * np.random.default_rng(seed).standard_normal(len(loss)))


def test_cycles_counts_peaks_and_not_noise():
    """Twelve bumps of a factor of 5 on a falling loss; without them none is found."""
    t = np.arange(20_000)
    smooth = 1e-2 / (1 + t / 300) ** 1.5
    bumps = 1 + 4 * np.exp(-0.5 * ((t % 1_600 - 800) / 60) ** 2)
    heights = cycles(noisy(smooth * bumps))
    assert len(heights) == 12
    np.testing.assert_allclose(heights, np.log10(5), atol=0.1)
    assert len(cycles(noisy(smooth))) == 0


def test_tables_come_back_from_files(tmp_path):
    columns = from_rows([{"rule": "a", "x": 1.0, "y": None}, {"rule": "b", "x": 2.5e-9, "y": 3}])
    write_columns(tmp_path / "t.csv", columns)
    back = read_columns(tmp_path / "t.csv")
    assert list(back["rule"]) == ["a", "b"]
    np.testing.assert_allclose(back["x"], [1.0, 2.5e-9])
    assert np.isnan(back["y"][0])
    assert where(back, rule="b")["y"] == [3]


@pytest.mark.slow
def test_the_free_boundary_is_found_in_a_good_solution():
    """Within 0.01 after 3,000 steps (measured 3e-3)."""
    solution = solve(zoo.american_put(), steps=3_000, progress=False)
    assert free_boundary(in_float64(solution)) == pytest.approx(4 / 13, abs=0.01)
    assert solution.score.relative_l2_error < 5e-3


def test_full_runs_are_the_papers():
    jobs = {job.name: job for job in PARTS["survival-20d"].jobs(FULL)}
    assert list(jobs) == ["q-20d-seed0", "q-20d-seed1", "q-20d-seed2", "dgm-20d-seed0"]
    assert {job.plan.steps for job in jobs.values()} == {40_000}
    assert jobs["dgm-20d-seed0"].plan.rule.name == "deep-galerkin"
    assert len(PARTS["survival-1d"].jobs(FULL)) == 5


def job(steps=200, seed=0):
    return Job("one", zoo.survival(1), {"steps": steps, "seed": seed})


def test_a_run_is_done_once_and_other_settings_are_another_run(tmp_path):
    first = run_jobs([job()], tmp_path, progress=False)["one"]
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = run_jobs([job()], tmp_path, progress=False)["one"]
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps
    x = np.array([[0.3]])
    assert first.best(x) == again.best(x) == solve(zoo.survival(1), steps=200, progress=False)(x)
    run_jobs([job(seed=1)], tmp_path, progress=False)
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_the_last_iterate_is_the_one_that_solve_returns_with_keep_last(tmp_path):
    from qpde import Keep

    outcome = run_jobs([job()], tmp_path, progress=False)["one"]
    last = solve(zoo.survival(1), steps=200, keep=Keep.LAST, progress=False)
    x = np.linspace(-0.9, 0.9, 5)[:, None]
    assert (outcome.last(x) == last(x)).all()
    assert outcome.last_numbers["loss"] == pytest.approx(last.score.loss)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """`qpde reproduce --quick` of two parts, by the command."""
    out = tmp_path_factory.mktemp("study") / "out"
    done = command("reproduce", "--quick", "--only", "survival-1d,put", "--out", out, "--json")
    assert done.code == 0, done.err
    return out, json.loads(done.out), done.err


def test_a_quick_reproduction_writes_page_claims_figures_and_data(quick):
    out, result, progress = quick
    assert (out / "index.html").stat().st_size > 50_000
    written = json.loads((out / "claims.json").read_text())
    assert written == result
    names = {claim["id"] for claim in result["claims"]}
    assert {"d1-error", "put-q-learning", "put-deep-galerkin"} <= names
    assert all(np.isfinite(claim["median"]) for claim in result["claims"])
    for name in ("loss-1d", "residual-1d", "solution-1d", "error-1d", "put-value", "put-boundary"):
        for form in ("svg", "pdf", "png"):
            assert (out / "figures" / f"{name}.{form}").stat().st_size > 3_000
    assert (out / "data" / "solution-1d.csv").exists()
    assert "run 1 of 4: q-1d-seed0" in progress


@pytest.mark.slow
def test_what_is_there_is_kept_unless_asked(quick):
    out, result, _ = quick
    words = ("reproduce", "--only", "put", "--out", out)
    again = command(*words, "--quick")
    assert again.code == 2
    assert "Add --resume" in again.err
    other = command(*words, "--resume")
    assert other.code == 2
    assert "holds a quick reproduction" in other.err
    resumed = command(*words, "--quick", "--resume", "--json")
    assert resumed.code == 0
    assert "run 1" not in resumed.err  # nothing was left to do
    assert json.loads(resumed.out)["claims"] == result["claims"]  # the other part is still there


def test_an_unknown_part_is_named():
    with pytest.raises(ValueError, match="no part 'fig1'. There are: timing, survival-1d"):
        paper.check_parts("fig1")


def test_a_browser_shows_the_page_at_desktop_and_phone_width(quick, tmp_path):
    out, _, _ = quick
    check_at_desktop_and_phone_width(out / "index.html", tmp_path, images=6)


def test_claims_follow_from_the_tables():
    """Made-up tables with known answers; a claim that should fail fails."""
    grid = np.linspace(-0.9, 0.9, 7)
    runs = {
        "seed": np.array([0.0, 1.0, 2.0]),
        "steps": np.full(3, 100.0),
        "best_step": np.array([90.0, 95.0, 99.0]),
        "relative_l2_error": np.full(3, 1e-4),
        "last_relative_l2_error": np.array([2e-4, 3e-4, 4e-4]),
        "skill": np.full(3, 0.1),
        "grid_max_relative_error": np.array([1e-4, 3e-4, 5e-4]),
    }
    tables = {"runs-1d": runs, "residual-1d": {"x": grid, "last_seed0": 1e-3 * np.sin(9 * grid)}}
    found = {claim.id: claim for claim in claims(tables, 2.8)}
    assert (found["d1-error"].median, found["d1-error"].holds) == (3e-4, False)
    assert "1 of 3 seeds" in found["d1-error"].why
    assert (found["d1-best-better"].median, found["d1-best-better"].low) == (
        pytest.approx(3),
        pytest.approx(2),
    )
    assert found["time-authors"].holds is False
    assert {"d1-residual-size", "d1-residual-sign", "d1-best-late"} <= set(found)


@pytest.mark.slow
def test_quick_and_full_runs_differ_in_size_alone():
    assert {name for name, part in PARTS.items() if part.jobs(QUICK)} == {
        name for name, part in PARTS.items() if part.jobs(FULL)
    }
