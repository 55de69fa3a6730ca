"""Figures show the numbers they claim to show."""

import dataclasses

import matplotlib

matplotlib.use("Agg")

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest

from qpde import (
    Ball,
    Box,
    Penalty,
    Problem,
    QLearning,
    Shallow,
    Solution,
    Status,
    Uniform,
    plot,
    zoo,
)
from qpde._network.base import as_network_field
from qpde._plot.evaluate import quietly
from qpde._precision import cast
from qpde._problem.solution import History, Score, Stage
from qpde._problem.trial import Trial

PANELS = {"exact": "exact $u$", "computed": "computed $Q$", "error": "error $Q - u$"}


def raw(problem, rule=None, seed=0):
    """A solution with a random network and a made-up past; a figure does not need a good one."""
    rule = QLearning() if rule is None else rule
    with jax.enable_x64(False):
        network = as_network_field(
            Shallow(8, scale=1.0), problem.domain, key=jax.random.key(seed), dtype="float32"
        )
        network = cast(network, "float32")
        trial = Trial.of(problem, network, exact_boundary=rule.exact_boundary)
    loss = np.geomspace(1, 1e-2, 100)
    solution = Solution(
        problem=problem,
        trial=trial,
        measure=Uniform(problem.domain),
        status=Status.FINISHED,
        steps=100,
        history=History(loss, loss, loss, np.array([0, 100]), np.array([1.5, 0.015])),
        seconds=3.0,
        compile_seconds=1.0,
        rule=rule.name,
        seed=seed,
    )
    vars(solution)["score"] = Score(1e-2, 0.1234)  # in the place where the computed one is kept
    return solution


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def line():
    return raw(zoo.survival(1))


@pytest.fixture(scope="module")
def shell():
    return raw(zoo.annulus(3))


@pytest.fixture(scope="module")
def egg():
    return raw(zoo.ellipsoid(3))


@pytest.fixture(scope="module")
def unknown():
    return raw(Problem(Box(0.0, [2.0, 1.0]), lambda x, u: u.laplacian - u.value**3 + 1.0))


def exact(solution, x):
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(solution.problem.exact)(x))


def drawn(ax, label):
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return found.get_xdata().ravel(), found.get_ydata().ravel()


def test_history_shows_the_losses(line):
    ax = plot.history(line)
    np.testing.assert_array_equal(drawn(ax, "minibatch")[1], line.history.loss)
    steps, loss = drawn(ax, "held-out points")
    np.testing.assert_array_equal(steps, [0, 100])
    np.testing.assert_array_equal(loss, line.history.held_out)
    assert ax.get_yscale() == "log"
    assert ax.get_title() == "survival, d = 1, q-learning"


def test_history_of_stages_is_drawn_against_seconds(line):
    stages = (
        Stage("q-learning", 90, 1.0, 0.0, True),
        Stage("gauss-newton", 10, 2.0, 0.0, True),
        Stage("output layer", 0, 0.5, 0.0, False),
    )
    ax = plot.history(dataclasses.replace(line, stages=stages))
    seconds = drawn(ax, "minibatch")[0]
    np.testing.assert_allclose(seconds[[0, 45, 90, 95]], [0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(drawn(ax, "held-out points")[0], [0.0, 3.0])
    assert [text.get_text() for text in ax.texts] == ["q-learning", "gauss-newton"]
    assert [text.xy[0] for text in ax.texts] == [0.0, 1.0]
    assert "(s)" in ax.get_xlabel()


def test_profile_on_the_line_shows_values_and_error(line):
    upper, lower = plot.profile(line, count=101)
    x, computed = drawn(upper, "computed")
    assert len(x) == 101
    np.testing.assert_allclose([x[0], x[-1]], [-1, 1], atol=1e-12)
    np.testing.assert_array_equal(computed, line(x[:, None]))
    np.testing.assert_array_equal(drawn(upper, "exact")[1], exact(line, x[:, None]))
    error = lower.lines[0].get_ydata().ravel()
    np.testing.assert_array_equal(error, np.abs(computed - exact(line, x[:, None])))
    assert (upper.get_yscale(), lower.get_yscale()) == ("linear", "log")
    bottom, top = lower.get_ylim()
    assert 1e-5 * error.max() < bottom < error.max() < top
    assert (lower.get_xlabel(), lower.get_ylabel()) == ("$x$", "$|Q - u|$")


def test_profile_leaves_the_hole_of_an_annulus_out(shell):
    upper, _ = plot.profile(shell, count=100)
    x, computed = drawn(upper, "computed")
    (gap,) = np.flatnonzero(np.isnan(x))
    np.testing.assert_allclose(x[[0, gap - 1, gap + 1, -1]], [-2, -1, 1, 2], atol=1e-12)
    known = ~np.isnan(x)
    points = x[known, None] * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(computed[known], shell(points), rtol=1e-6)
    assert np.isnan(computed[gap])


def test_profile_along_a_vector_reaches_the_boundary(egg):
    direction, through = np.array([1.0, 2.0, -1.0]), np.array([0.1, 0.2, 0.0])
    ax = plot.profile(egg, plt.figure().subplots(), direction=direction, through=through)
    s, computed = drawn(ax, "computed")
    points = through + s[:, None] * direction / np.sqrt(6)
    np.testing.assert_allclose(
        np.sum((points[[0, -1]] / [0.5, 1.25, 2]) ** 2, axis=1), 1, atol=1e-9
    )
    np.testing.assert_allclose(computed, quietly(egg, points), atol=1e-6)
    assert ax.get_xlabel() == "distance along the line"
    assert "line through [0.1, 0.2, 0]" in ax.get_title()
    # The second semi-axis.
    x, _ = drawn(plot.profile(egg, direction=1)[0], "exact")
    np.testing.assert_allclose([x[0], x[-1]], [-1.25, 1.25], atol=1e-12)


def test_profile_uses_and_returns_the_axes_it_is_given(line, unknown):
    pair = plt.figure().subplots(2, 1)
    assert plot.profile(line, pair) == tuple(pair)
    one = plt.figure().subplots()
    assert plot.profile(line, one) is one
    assert [each.get_label() for each in one.lines] == ["exact", "computed"]
    alone = plot.profile(unknown)
    assert [each.get_label() for each in alone.lines] == ["computed"]
    assert len(alone.figure.axes) == 1
    with pytest.raises(ValueError, match="no error to draw. Pass one axes"):
        plot.profile(unknown, plt.figure().subplots(2, 1))


def test_slice_shows_exact_computed_and_error(egg):
    axes = plot.slice(egg, plane=(2, 0), resolution=40)
    images = dict(zip(PANELS, (ax.images[0] for ax in axes), strict=True))
    assert [ax.get_title() for ax in axes] == list(PANELS.values())
    assert [axes[0].get_xlabel(), axes[0].get_ylabel()] == ["$x_{3}$", "$x_{1}$"]
    left, right, bottom, top = images["exact"].get_extent()
    rows, columns = images["exact"].get_array().shape
    assert max(rows, columns) == 40
    x = left + (right - left) * (np.arange(columns) + 0.5) / columns
    y = bottom + (top - bottom) * (np.arange(rows) + 0.5) / rows
    points = np.stack([*np.meshgrid(x, y), np.zeros((rows, columns))], axis=-1)[..., [1, 2, 0]]
    inside = np.sum((points / [0.5, 1.25, 2.0]) ** 2, axis=-1) < 1
    expected = {"computed": egg(points[inside]), "exact": exact(egg, points[inside])}
    expected["error"] = expected["computed"] - expected["exact"]
    for name, image in images.items():
        np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), ~inside)
        np.testing.assert_allclose(image.get_array()[inside], expected[name], atol=1e-6)
    both = np.concatenate([expected["computed"], expected["exact"]])
    np.testing.assert_allclose(images["exact"].get_clim(), [both.min(), both.max()], atol=1e-6)
    assert images["exact"].get_clim() == images["computed"].get_clim()
    low, high = images["error"].get_clim()
    assert low == -high == pytest.approx(-np.abs(expected["error"]).max(), rel=1e-4)
    assert all(ax.get_aspect() == 1 for ax in axes)


def test_colour_bars_are_as_high_as_their_panels(egg, unknown):
    for solution, bars in ((egg, [0, 1, 1]), (unknown, [1, 1])):
        axes = plot.slice(solution, resolution=20)
        axes[0].figure.canvas.draw()
        assert [len(ax.child_axes) for ax in axes] == bars
        for bar in (bar for ax in axes for bar in ax.child_axes):
            ax = bar._colorbar.mappable.axes
            panel, box = ax.get_window_extent(), bar.get_window_extent()
            assert box.y1 == pytest.approx(panel.y1, abs=1)
            # The residual's ends in a point, for what lies below the scale.
            point = 0.1 * panel.height if "residual" in ax.get_title() else 1
            assert 0 <= box.y0 - panel.y0 + 1 <= point + 1


def test_nothing_is_clipped_or_overlaps(egg):
    """Every text lies on the paper; the panels of a slice, with their bars, lie beside each other."""
    for name, draw in plot.suited(egg).items():
        figure = np.ravel(draw(egg))[0].figure
        figure.canvas.draw()
        whole = figure.get_tightbbox()  # in inches
        assert min(whole.x0, whole.y0) > 0, name
        assert np.all(whole.max < figure.get_size_inches()), name
    axes = plot.slice(egg, resolution=20)
    axes[0].figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in axes]
    assert boxes[0].x1 < boxes[1].x0 < boxes[1].x1 < boxes[2].x0


def test_slice_shows_the_hole_of_an_annulus_and_moves_with_the_point(shell):
    ax = plot.slice(shell, resolution=53)[0]
    shown = ax.images[0].get_array()
    assert np.ma.getmaskarray(shown)[26, 26]
    through = [0.0, 0.0, 1.5]
    axes = plot.slice(shell, through=through, resolution=53)
    value = axes[1].images[0].get_array()[26, 26]
    assert value == pytest.approx(float(shell(np.array(through))), abs=1e-6)
    assert "slice through [0, 0, 1.5]" in axes[0].figure.get_suptitle()


def test_slice_without_exact_solution_shows_the_residual(unknown):
    axes = plot.slice(unknown, resolution=31)
    assert [ax.get_title() for ax in axes] == ["computed $Q$", r"residual $|\mathcal{L} Q|$"]
    image = axes[1].images[0]
    left, right, bottom, top = image.get_extent()
    rows, columns = image.get_array().shape
    x = np.array([left + 10.5 * (right - left) / columns, bottom + 8.5 * (top - bottom) / rows])
    assert image.get_array()[8, 10] == pytest.approx(abs(float(unknown.residual(x))), rel=1e-4)
    assert image.norm.vmin == pytest.approx(1e-3 * image.get_array().max())
    given = plt.figure().subplots(1, 2)
    assert plot.slice(unknown, given, resolution=10) == tuple(given)
    assert all(ax.images for ax in given)


def test_scatter_shows_pairs_on_a_square(shell):
    ax = plot.scatter(shell, count=50)
    diagonal, dots = ax.lines
    assert diagonal.get_slope() == 1
    with jax.enable_x64(True):
        x = np.asarray(shell.problem.domain.sample(jax.random.key(0), 50))
    np.testing.assert_array_equal(dots.get_xdata(), exact(shell, x))
    np.testing.assert_array_equal(dots.get_ydata(), shell(x))
    (text,) = ax.texts
    assert text.get_text() == "relative $L^2$ error 0.12"
    assert ax.get_aspect() == 1
    given = plt.figure().subplots()
    assert plot.scatter(shell, given) is given


def test_radial_shows_values_at_their_distances(line, shell):
    ax = plot.radial(line, count=64)
    r, computed = drawn(ax, "computed")
    assert np.all(np.diff(r) > 0)
    np.testing.assert_allclose(drawn(ax, "exact")[1], exact(line, r[:, None]), rtol=1e-12)
    either = np.stack([line(r[:, None]), line(-r[:, None])])
    assert np.all(np.min(np.abs(either - computed), axis=0) < 1e-7)
    r, _ = drawn(plot.radial(shell, count=64), "exact")
    assert 1 <= r.min() < 1.1
    assert 1.9 < r.max() <= 2


def test_compare_draws_one_line_for_each_rule(line):
    penalty = raw(zoo.survival(1), Penalty())
    ax = plot.compare([line, penalty], seconds=True)
    names = ["q-learning", "penalty (with boundary term)"]
    assert [each.get_label() for each in ax.lines] == names
    for name, solution in zip(names, (line, penalty), strict=True):
        seconds, loss = drawn(ax, name)
        np.testing.assert_allclose(seconds, [0, solution.seconds])
        np.testing.assert_array_equal(loss, solution.history.held_out)
    given = plt.figure().subplots()
    assert plot.compare([line, line], given) is given
    assert given.lines[0].get_label() == "q-learning, seed 0"
    np.testing.assert_array_equal(given.lines[0].get_xdata(), [0, 100])
    assert given.lines[0].get_linestyle() != given.lines[1].get_linestyle()


def test_suited_figures(line, shell, egg, unknown):
    assert list(plot.suited(line)) == ["history", "profile", "radial", "scatter"]
    assert list(plot.suited(shell)) == ["history", "profile", "radial", "slice", "scatter"]
    assert list(plot.suited(egg)) == ["history", "profile", "slice", "scatter"]
    assert list(plot.suited(unknown)) == ["history", "profile", "slice"]


def test_every_format_is_written_and_small(shell, tmp_path):
    magic = {"pdf": b"%PDF-1.", "png": b"\x89PNG\r\n", "svg": b"<?xml"}
    for number, (name, draw) in enumerate(plot.suited(shell).items()):
        axes = draw(shell)
        for suffix, start in list(magic.items())[: 3 if number == 0 else 1]:
            path = tmp_path / f"{name}.{suffix}"
            assert plot.save(axes, path, dpi=100) is np.ravel(axes)[0].figure
            written = path.read_bytes()
            assert written.startswith(start)
            assert len(written) < 500_000
            assert b"/Type3" not in written


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_figure_gives_the_same_bytes(line, tmp_path, suffix):
    first, second = (tmp_path / f"{i}.{suffix}" for i in (1, 2))
    for path in (first, second):
        plot.save(plot.profile(line), path)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("draw", "which", "options", "message"),
    [
        (
            "slice",
            "line",
            {},
            "A slice needs two dimensions or more. In one, draw qpde.plot.profile",
        ),
        ("slice", "egg", {"plane": (0, 3)}, r"two different axes from 0 to 2, got \(0, 3\)"),
        ("slice", "egg", {"plane": (1, 1)}, r"two different axes from 0 to 2, got \(1, 1\)"),
        ("slice", "egg", {"through": [0, 0]}, r"through must be a finite number or a list of 3"),
        ("slice", "egg", {"through": [0, 0, 9]}, r"plane through \[0, 0, 9\] misses Ellipsoid"),
        ("slice", "egg", {"axes": [None]}, "Pass 3 axes, for exact, computed, error; got 1"),
        ("profile", "egg", {"through": [0, 9, 0]}, r"line through \[0, 9, 0\] misses .* Choose"),
        ("profile", "egg", {"direction": 3}, "an axis below 3 or 3 numbers, not 0; got 3"),
        ("profile", "egg", {"direction": [0, 0, 0]}, r"not 0; got \[0 0 0\]"),
        ("scatter", "unknown", {}, "needs an exact solution: build the problem with exact="),
        ("radial", "egg", {}, "needs a ball or an annulus, got Ellipsoid"),
    ],
)
def test_wrong_use_is_told(request, draw, which, options, message):
    solution = request.getfixturevalue(which)
    with pytest.raises(ValueError, match=message):
        getattr(plot, draw)(solution, **options)
    assert not plt.get_fignums()


def test_only_one_problem_is_compared(line, egg):
    with pytest.raises(ValueError, match="got ellipsoid, d = 3; survival, d = 1"):
        plot.compare([line, egg])
    with pytest.raises(ValueError, match="got no solution"):
        plot.compare([])


def test_the_boundary_of_a_small_domain_far_away_is_drawn_without_warnings():
    """In float32 an end of this line lies outside by more than the solution lets pass."""
    domain = Ball(2, centre=[100.3, 0.0], radius=0.01)
    solution = raw(Problem(domain, lambda x, u: u.laplacian + 1.0))
    x, _ = drawn(plot.profile(solution, through=[100.3, 0.002]), "computed")
    half = np.sqrt(0.01**2 - 0.002**2)
    np.testing.assert_allclose([x[0], x[-1]], [100.3 - half, 100.3 + half], rtol=0, atol=1e-12)
    with pytest.warns(UserWarning, match="lie outside"):
        solution(np.stack([x, np.full(x.shape, 0.002)], axis=1))
