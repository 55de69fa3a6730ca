"""What domains answer about themselves, against independent computations; nobody else knows their classes."""

import ast
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.linalg import eigh_tridiagonal
from scipy.spatial import KDTree
from scipy.special import jn_zeros
from test_domain import DOMAINS

import qpde
from qpde import AbstractDomain, Annulus, Ball, Box, Ellipsoid, Interval, Problem, Radial
from qpde._equation.exit_time import exit_time
from qpde._precision import x64


def test_exact_eigenvalues():
    """Balls by SciPy's zeros (spherical ones in d = 3), boxes by their sines; never above, 1e-10 below."""
    exact = [
        (Ball(1, radius=2.0), (math.pi / 4) ** 2),
        (Ball(2, radius=0.5), (jn_zeros(0, 1)[0] / 0.5) ** 2),
        (Ball(3), math.pi**2),
        (Ball(20, centre=1.0), jn_zeros(9, 1)[0] ** 2),
        (Interval(1.0, 3.0), (math.pi / 2) ** 2),
        (Box(0.0, [1.0, 2.0, 4.0]), math.pi**2 * (1 + 1 / 4 + 1 / 16)),
    ]
    for domain, value in exact:
        found = domain.first_eigenvalue
        assert found.how.startswith("exact for a b")
        assert found.value == pytest.approx(value, rel=1e-10)
        assert found.value < value


def radial_eigenvalue(dim, inner, outer, n=4_000):
    """`-(r^(d-1) v')' = lambda r^(d-1) v` by second-order differences."""
    h = (outer - inner) / n
    r = inner + h * np.arange(1, n)
    ahead, behind = (r + h / 2) ** (dim - 1), (r - h / 2) ** (dim - 1)
    mass = r ** (dim - 1)
    side = -ahead[:-1] / np.sqrt(mass[:-1] * mass[1:]) / h**2
    diagonal = (ahead + behind) / mass / h**2
    return eigh_tridiagonal(diagonal, side, select="i", select_range=(0, 0))[0][0]


RADIAL, VOLUME = "radial equation of the annulus", "Faber-Krahn, ball of equal volume"


@pytest.mark.parametrize(
    ("dim", "inner", "outer", "share", "how"),
    [
        (2, 1.0, 2.0, 0.98, RADIAL),
        (3, 0.5, 2.0, 1.0, RADIAL),
        (10, 1.0, 1.2, 0.99, RADIAL),
        (10, 1.0, 2.0, 0.84, VOLUME),
    ],
)
def test_the_eigenvalue_of_an_annulus_is_a_lower_bound(dim, inner, outer, share, how):
    """Against differences for the radial equation (their error is below 1e-6)."""
    found = Annulus(dim, inner=inner, outer=outer, centre=0.3).first_eigenvalue
    exact = radial_eigenvalue(dim, inner, outer)
    assert share * exact * (1 - 1e-6) < found.value < exact * (1 + 1e-6)
    assert found.how == how


def test_the_eigenvalue_of_an_ellipsoid_is_the_best_of_three():
    """Long: the box around it. Nearly round: the ball of equal volume. `eta` gives an upper bound."""
    long, near = Ellipsoid([0.2, 5.0]).first_eigenvalue, Ellipsoid([1.0, 1.1]).first_eigenvalue
    assert long == (pytest.approx(math.pi**2 * (6.25 + 0.01)), "enclosing box")
    equal = jn_zeros(0, 1)[0] ** 2 / 1.1
    assert near == (pytest.approx(equal), VOLUME)
    # For eta = 1 - |y|^2 in the plane: the mean of |grad eta|^2 over that of eta^2.
    for axes, found in (([0.2, 5.0], long), ([1.0, 1.1], near)):
        assert found.value < 3 * sum(1 / a**2 for a in axes)


PLANE = [case for case in DOMAINS if case != "interval"]


@pytest.mark.parametrize("name", PLANE)
def test_convexity_and_width(name):
    """Chords between boundary points stay inside, and slabs at the tangent planes hold the domain."""
    with jax.enable_x64(True):
        domain = DOMAINS[name](2)
        edge, other = (domain.sample_boundary(jr.key(seed), 2_000) for seed in (0, 1))
        normal = jax.vmap(domain.eta.grad)(edge)
        normal = normal / jnp.linalg.norm(normal, axis=1, keepdims=True)
        middle = np.asarray(jax.vmap(domain.distance)(0.5 * (edge + other)))
    assert domain.convex == bool(np.all(middle > -1e-12)) == (name != "annulus")
    if domain.convex:
        across = np.einsum(
            "nmd,nd->nm", np.asarray(other)[None] - np.asarray(edge)[:, None], normal
        )
        assert across.min() > -1e-12
        assert 0.999 * domain.width < across.max() <= domain.width * (1 + 1e-12)


@pytest.mark.parametrize("name", PLANE)
def test_which_domains_fill_their_box(name):
    domain = DOMAINS[name](3)
    lower, upper = domain.enclosing_box
    share = domain.volume / np.prod(upper - lower)
    assert domain.fills_box == (share > 1 - 1e-12) == (name == "box")


@x64()
def test_exit_times_of_boxes_are_those_of_their_thinnest_side():
    """`Lap w = -1`: half of a side squared over two, or the squared radius of a ball over `2 d`."""
    for domain, time in (
        (Box(0.0, [1.0, 4.0]), 1 / 8),
        (Interval(0.0, 3.0), 9 / 8),
        (Ball(3, radius=2.0), 4 / 6),
        (Ellipsoid([1.0, 3.0]), 9 / 4),
        (Annulus(2, inner=1.0, outer=2.0), 4 / 4),
    ):
        problem = Problem(domain, lambda x, u: u.laplacian + 1.0)
        found = exit_time(problem.operator)
        assert found.proved
        assert time <= found.value == pytest.approx(time, rel=1e-9)


@pytest.mark.parametrize("name", DOMAINS)
def test_round_domains_are_those_that_rotations_keep(name):
    """Seen at 20,000 points; the radii that are named are those that the points have."""
    domain = DOMAINS[name](1 if name == "interval" else 3)
    with jax.enable_x64(True):
        points = np.asarray(domain.sample(jr.key(0), 20_000))
        rng = np.random.default_rng(0)
        rotation, _ = np.linalg.qr(rng.standard_normal((domain.dim, domain.dim)))
        rotated = domain.centre + (points - domain.centre) @ rotation.T
        kept = np.asarray(jax.vmap(domain.contains)(jnp.asarray(rotated)))
    assert (domain.round is not None) == bool(kept.all()) == (name not in ("box", "ellipsoid"))
    if domain.round is not None:
        centre, inner, outer = domain.round
        r = np.linalg.norm(points - centre, axis=1)
        assert inner <= r.min() < inner + 0.06 * outer
        assert 0.999 * outer < r.max() <= outer
        assert domain.round.is_ball == (name != "annulus")


def test_a_radial_law_lives_on_balls():
    for domain in (Ellipsoid([1.0, 2.0]), Annulus(2, inner=1.0, outer=2.0), Box(0.0, 1.0, dim=2)):
        with pytest.raises(ValueError, match="A radial law lives on a qpde.Ball, got "):
            Radial(domain, 2.0)
    points, _ = Radial(Interval(1.0, 3.0), 1.0).sample(jr.key(0), 10_000)
    # A uniform law on (1, 3): mean 2, variance 1/3; five standard errors.
    assert abs(float(points.mean()) - 2.0) < 5 * math.sqrt(1 / 3 / 10_000)
    assert float(points.var()) == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.parametrize("name", ["ball", "ellipsoid", "annulus"])
def test_sheets_make_up_the_boundary(name):
    """Rays end on the boundary; on it the factors are 1 on the own sheet and 0 on the others."""
    with jax.enable_x64(True):
        domain = DOMAINS[name](3)
        inside, edge = domain.sample(jr.key(0), 500), domain.sample_boundary(jr.key(1), 500)
        factors = []
        for sheet in domain.sheets:
            ends, _, _ = jax.vmap(sheet.project)(inside)
            np.testing.assert_allclose(jax.vmap(domain.distance)(ends), 0, atol=1e-12)
            # The end lies on the ray from the centre.
            across = jnp.cross(ends - domain.centre[None], inside - domain.centre[None])
            np.testing.assert_allclose(across, 0, atol=1e-12)
            own, _, rho = jax.vmap(sheet.project)(edge)
            factor = jax.vmap(lambda rho, sheet=sheet: sheet.factor(rho)[0])(rho)
            hit = np.linalg.norm(own - edge, axis=1) < 1e-12
            np.testing.assert_allclose(factor, hit, atol=1e-12)
            factors.append(factor)
    assert len(factors) == (2 if name == "annulus" else 1)
    np.testing.assert_allclose(np.sum(factors, axis=0), 1, atol=1e-12)
    assert DOMAINS["box"](3).sheets == ()


@pytest.mark.parametrize("name", PLANE)
def test_smooth_boundaries_turn_slowly(name):
    """Unit normals at boundary points 0.01 apart differ by at most 0.1, or by a right angle at a corner."""
    with jax.enable_x64(True):
        domain = DOMAINS[name](2)
        edge = domain.sample_boundary(jr.key(0), 4_000)
        normal = np.asarray(jax.vmap(jax.grad(domain.distance))(edge))
    pairs = KDTree(np.asarray(edge)).query_pairs(0.01, output_type="ndarray")
    turn = np.linalg.norm(normal[pairs[:, 0]] - normal[pairs[:, 1]], axis=1).max()
    assert domain.smooth_boundary.holds == (turn < 0.1) == (name != "box")
    assert turn < 0.1 or turn == pytest.approx(math.sqrt(2))
    assert DOMAINS[name](1).smooth_boundary.why == "In one dimension the boundary is a few points"


@pytest.mark.parametrize("name", PLANE)
def test_eta_has_a_slope_where_the_domain_says_so(name):
    """The least slope on the boundary, corners of the enclosing box included where they belong to it."""
    for dim in (1, 2, 9):
        with jax.enable_x64(True):
            domain = DOMAINS[name](dim)
            edge = domain.sample_boundary(jr.key(0), 4_000)
            if domain.fills_box:
                edge = jnp.concatenate([edge, jnp.stack(domain.enclosing_box)])
            slopes = np.linalg.norm(jax.vmap(domain.eta.grad)(edge), axis=1)
        assert domain.sloped_eta.holds == (slopes.min() > 1e-12) == (name != "box" or dim == 1)
        if not domain.sloped_eta.holds:
            assert f"(1 - y_i^{2 * math.ceil(dim / 8)})" in domain.sloped_eta.why


def second_moment(domain):
    """The mean of `|x - centre|^2` over the domain."""
    lower, upper = domain.enclosing_box
    d = domain.dim
    if isinstance(domain, Box):
        return float(np.sum((upper - lower) ** 2) / 12)
    if isinstance(domain, Annulus):
        a, b = float(domain.inner), float(domain.outer)
        return d / (d + 2) * (b ** (d + 2) - a ** (d + 2)) / (b**d - a**d)
    return float(np.sum((0.5 * (upper - lower)) ** 2) / (d + 2))


@pytest.mark.parametrize("name", DOMAINS)
def test_nodes_give_exact_means(name):
    """On the line every power that Gauss and Legendre promise; elsewhere what Sobol points reach."""
    for dim in (1,) if name == "interval" else (1, 3, 10):
        domain = DOMAINS[name](dim)
        count = 256 if dim == 1 else 2_048
        points, weights = domain.nodes(count)
        assert points.shape == (count, dim)
        assert weights.sum() == pytest.approx(1.0)
        squares = weights @ np.sum((points - domain.centre) ** 2, axis=1)
        assert squares == pytest.approx(second_moment(domain), rel=2e-3)
        np.testing.assert_allclose(weights @ points, domain.centre, atol=5e-3)
        if dim == 1 and domain.convex:
            points, weights = domain.nodes(5)
            (lower,), (upper,) = domain.enclosing_box
            for power in range(10):
                exact = (
                    (upper ** (power + 1) - lower ** (power + 1)) / (power + 1) / (upper - lower)
                )
                assert weights @ points[:, 0] ** power == pytest.approx(exact, rel=1e-12)
        assert not np.array_equal(domain.spread(64, 0), domain.spread(64, 1))


@pytest.mark.parametrize("name", DOMAINS)
def test_layers_have_the_means_of_the_uniform_law(name):
    """Five standard errors; in ten dimensions a share of the points lies at the inner sphere."""
    domain, n = DOMAINS[name](1 if name == "interval" else 10), 100_000
    with jax.enable_x64(True):
        points, weights = (np.asarray(part) for part in domain.sample_layers(jr.key(0), n))
        assert np.all(jax.vmap(domain.contains)(jnp.asarray(points)))
    r = np.linalg.norm(points - domain.centre, axis=1)
    for values, exact in ((weights, 1.0), (weights * r**2, second_moment(domain))):
        assert abs(values.mean() - exact) < 5 * values.std() / math.sqrt(n) + 1e-9
    assert weights.max() <= 2.0
    if name == "annulus":
        inner, outer = float(domain.inner), float(domain.outer)
        assert np.mean(r < inner + 0.1 * (outer - inner)) == pytest.approx(0.05, rel=0.05)
    else:
        np.testing.assert_array_equal(weights, 1.0)


OURS = {
    kind.__name__ for kind in AbstractDomain.__subclasses__() if "qpde._domain" in kind.__module__
}


def mentions(tree):
    """Lines on which a class of ours stands for itself: neither called nor used as an annotation."""
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            passed.add(node.func)
        for part in ("annotation", "returns"):
            passed.update(ast.walk(getattr(node, part, None) or ast.Pass()))
    for node in ast.walk(tree):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if isinstance(node, ast.expr) and name in OURS and node not in passed:
            yield node.lineno


def test_nobody_else_asks_for_the_class_of_a_domain():
    """Outside `_domain` a class of domains is imported, called and annotated, never compared with."""
    assert {"Annulus", "Ball", "Box", "Cylinder", "Ellipsoid", "Paths", "Space"} <= OURS
    source = Path(qpde.__file__).parent
    found = [
        f"{path.relative_to(source)}:{line}"
        for path in source.rglob("*.py")
        if path.relative_to(source).parts[0] != "_domain"
        for line in mentions(ast.parse(path.read_text()))
    ]
    assert not found, found


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(domain, Ball)",
        "isinstance(problem.domain, Box | Annulus)",
        "isinstance(domain, (int, qpde.Ellipsoid))",
        "type(domain) is Ball",
        "names = {Ball: 1}[type(domain)]",
        "match domain:\n    case Box():\n        pass",
    ],
)
def test_such_questions_are_seen(line):
    assert list(mentions(ast.parse(line)))
    assert not list(mentions(ast.parse("def f(x: Box) -> Ball | None:\n    return qpde.Ball(3)")))
