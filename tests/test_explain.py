"""Explanations: each verdict against a problem where the truth is known; the command."""

import json
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import Answer, explain, zoo
from qpde._equation.smoothness import leap_inside, leap_on_line
from qpde._field.base import Autodiff
from qpde._precision import x64
from qpde._trust.domain_findings import boundary_finding, eta_finding, extension_finding
from qpde._trust.equation_findings import lipschitz_finding, monotone_finding
from qpde._trust.finding import Finding
from qpde._trust.network_findings import activation_finding, law_finding, network_finding
from qpde.cli import main as cli

YES, NO, UNKNOWN = Answer.YES, Answer.NO, Answer.UNKNOWN
SMALL: dict[str, Any] = {
    "survival": 3,
    "poisson_sine": 2,
    "annulus": 2,
    "semilinear": 3,
}


def verdicts(found):
    return {finding.name: finding.verdict for finding in found.findings}


@pytest.fixture(scope="module")
def explained():
    return {
        name: explain(entry.build(**({"dim": SMALL[name]} if name in SMALL else {})))
        for name, entry in zoo.CATALOGUE.items()
        if name in SMALL or name == "american_put"
    }


def test_every_problem_of_the_zoo(explained):
    unmet = {
        "poisson_sine": {"smooth boundary", "boundary factor eta"},
        "semilinear": {"Lipschitz"},
        "american_put": {"elliptic", "monotone"},
    }
    for name, found in explained.items():
        missing = {finding for finding, verdict in verdicts(found).items() if verdict is not YES}
        if name in SMALL or name == "american_put":
            assert missing == unmet.get(name, set()), name
        text = str(found)
        assert max(len(line) for line in text.splitlines()) <= 90
        assert text.startswith(name)
        for finding in found.findings:
            assert finding.text.rstrip().endswith("."), finding
            assert (finding.verdict is UNKNOWN) or finding.basis in ("proved", "sampled"), finding
        assert json.loads(json.dumps(found.as_dict()))["problem"] == name


def test_a_monotone_problem(explained):
    found = explained["survival"]
    assert found.rules == ("q-learning",)
    assert found["monotone"].basis == "proved"
    constant = qpde.monotonicity(zoo.survival(3)).constant
    assert f"at least {constant:.4g}" in found["monotone"].text
    assert "no spectral gap" in found.recommendation
    assert "rigorous=True" in found["error bound by certify"].text
    assert "walks on spheres" in found["values by random walks"].text
    with pytest.raises(KeyError, match="There are: smooth boundary"):
        found["nothing"]


def test_a_box_is_not_smooth(explained):
    found = explained["poisson_sine"]
    assert "not C^3" in found["smooth boundary"].text
    assert "slope is zero where two faces meet" in found["boundary factor eta"].text
    assert "not met: smooth boundary, boundary factor eta" in found.recommendation
    line = qpde.Box(0.0, 1.0, dim=1)
    assert (boundary_finding(line).verdict, eta_finding(line).verdict) == (YES, YES)


def test_an_obstacle_problem_says_what_is_unknown(explained):
    found = explained["american_put"]
    assert (found["monotone"].verdict, found["monotone"].basis) == (UNKNOWN, "")
    assert "no constant is known" in found["monotone"].text
    assert (found["Lipschitz"].verdict, found["Lipschitz"].basis) == (YES, "sampled")
    assert found["elliptic"].basis == "sampled"
    assert found["values by random walks"].verdict is NO
    assert found.rules == ("q-learning", "deep-galerkin")


@pytest.mark.slow
@x64()
def test_a_drift_that_destroys_monotonicity():
    """dX = -8 X dt + dW (see test_monotonicity): refuted, and the stationary law is the cure."""
    problem = qpde.Problem(qpde.Ball(3), lambda x, u: 1 + u.generator(-8.0 * x, 1.0))
    found = explain(problem)
    monotone = found["monotone"]
    assert (monotone.verdict, monotone.basis) == (NO, "sampled")
    assert "(v1 - v2)^2 is -" in monotone.text
    assert found.rules == ("deep-galerkin",)
    assert "qpde.suggest_measure(problem) the equation is monotone" in monotone.advice
    law = qpde.suggest_measure(problem)
    assert law is not None
    assert law_finding(law, problem).verdict is YES


def test_a_semilinear_problem_that_is_monotone_on_a_range_only():
    """Lap u + u^2 - 1: c = -2 u, so gamma = pi^2 - 2 on (-1, 1)."""
    found = explain(qpde.Problem(qpde.Ball(3), lambda x, u: u.laplacian + u.value**2 - 1))
    monotone = found["monotone"]
    assert (monotone.verdict, monotone.basis) == (UNKNOWN, "conditional")
    assert f"at least {np.pi**2 - 2:.4g}" in monotone.text
    assert "between -1 and 1" in monotone.text
    assert found["error bound by certify"].verdict is UNKNOWN


def field(**options):
    return qpde.Shallow(8, **options).build(qpde.Ball(2), key=jax.random.key(0))


@x64()
def activation(function) -> Finding:
    return activation_finding(field(activation=function), qpde.Ball(2))


@pytest.mark.parametrize(
    ("function", "verdict", "basis", "words"),
    [
        (qpde.activations.sigmoid, YES, "proved", "bounded and smooth"),
        (qpde.activations.sin, YES, "proved", "bounded and smooth"),
        (qpde.activations.softplus, NO, "proved", "not bounded"),
        (jax.nn.relu, NO, "sampled", "Its slope leaps near z = 0: it is not smooth"),
        (lambda z: jnp.clip(z - 1.3, 0, 1) ** 3, NO, "sampled", "leaps near z = 2.3"),
        (lambda z: jnp.tanh(z) * jnp.abs(jnp.tanh(z)), NO, "sampled", "second derivative leaps"),
        (jax.nn.silu, NO, "sampled", "It grows to 1e+06"),
        (lambda z: z / (1 + z**2), YES, "sampled", "Smooth by its program"),
        (lambda z: 0.0 * z, NO, "sampled", "constant"),
    ],
)
def test_activations(function, verdict, basis, words):
    found = activation(function)
    assert (found.verdict, found.basis) == (verdict, basis), found
    assert words in found.text


def test_networks():
    for beta, verdict in ((0.75, YES), (0.5, NO), (1.0, NO)):
        assert network_finding(field(beta=beta)).verdict is verdict
    problem = qpde.Problem(
        qpde.Ball(2), lambda x, u: u.laplacian, lambda x: jnp.abs(x[0]), blind_to_kinks=True
    )
    deep = explain(problem, network=qpde.MLP([8, 8], activation=jax.nn.relu))
    assert deep["network"].verdict is NO
    assert deep["activation"].verdict is NO
    assert "the boundary data and the network may be too rough" in deep.tools[0].text
    assert "not met: boundary data inside, network, activation" in deep.recommendation
    own = Autodiff(eqx.nn.MLP(2, "scalar", 8, 1, key=jax.random.key(0)))  # ReLU
    assert activation_finding(own, qpde.Ball(2)).verdict is NO
    assert network_finding(own).verdict is UNKNOWN


@x64()
def test_laws():
    ball = qpde.Ball(3)
    problem = zoo.survival(3)
    radial = qpde.Radial(ball, 2.0)
    one = eqx.tree_at(lambda law: law.k, radial, np.asarray(1.0))  # qpde.Radial refuses it
    found = explain(problem, measure=one)
    assert (found["sampling law"].verdict, found["monotone"].verdict) == (NO, NO)
    assert found.rules == ("deep-galerkin",)
    assert law_finding(radial, problem).verdict is NO
    assert monotone_finding(problem, radial)[0].verdict is YES
    weights = [
        (lambda x: jnp.exp(-x[0]), YES, "proved"),
        (lambda x: 1 / jnp.sum(x * x), NO, "sampled"),  # k = 1 by weights
        (lambda x: jnp.sum(x * x), NO, "sampled"),
        (lambda x: jnp.where(x[0] > 0, 2.0, 1.0), UNKNOWN, ""),
    ]
    for density, verdict, basis in weights:
        found = law_finding(qpde.Weighted(ball, density), problem)
        assert (found.verdict, found.basis) == (verdict, basis), found


@pytest.mark.parametrize(
    ("data", "verdict", "words"),
    [
        (lambda x: jnp.sin(x[0]), YES, "smooth by their program"),
        (lambda x: jnp.abs(x[0]), NO, "a kink"),
        (lambda x: jnp.where(x[0] > 0.1, 1.0, 0.0), NO, "a jump"),
        (lambda x: jnp.maximum(x[0], -5.0), UNKNOWN, "found none"),
    ],
)
def test_boundary_data(data, verdict, words):
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian, data, blind_to_kinks=True)
    found = extension_finding(problem)
    assert found.verdict is verdict
    assert words in found.text


def test_a_source_that_is_not_square_integrable():
    singular = lambda x, u: u.laplacian + 1 / (1 - jnp.sum(x * x))  # noqa: E731
    assert "distance^-1.0" in extension_finding(qpde.Problem(qpde.Ball(2), singular)).text


class Squashed(qpde.AbstractDomain):
    """A disc as a user's own domain, with an `eta` of a given power."""

    power: int = eqx.field(static=True)
    disc: qpde.Ball = qpde.Ball(2)

    @property
    def dim(self) -> int:
        return 2

    @property
    def eta(self) -> Autodiff:
        return power_of(self.power)

    @property
    def enclosing_box(self) -> tuple[Any, Any]:
        return self.disc.enclosing_box

    @property
    def enclosing_ball(self) -> tuple[Any, Any]:
        return self.disc.enclosing_ball

    @property
    def inradius(self) -> float:
        return 1.0

    @property
    def log_volume(self) -> float:
        return self.disc.log_volume

    def contains(self, x):
        return self.disc.contains(x)

    def distance(self, x):
        return self.disc.distance(x)

    def sample(self, key, n, dtype=float):
        return self.disc.sample(key, n, dtype)

    def sample_boundary(self, key, n, dtype=float):
        return self.disc.sample_boundary(key, n, dtype)


def power_of(power):
    return Autodiff(lambda x: (1.0 - jnp.sum(x * x)) ** power)


def test_a_domain_of_the_users_own():
    good, flat = eta_finding(Squashed(1)), eta_finding(Squashed(2))
    assert boundary_finding(Squashed(1)).verdict is UNKNOWN
    assert (good.verdict, good.basis) == (YES, "sampled")
    assert flat.verdict is NO
    assert "needs a slope" in flat.text


def test_an_equation_that_may_jump():
    jumping = lambda x, u: u.laplacian - jnp.where(u.value > 0, 1.0, 0.0)  # noqa: E731
    problem = qpde.Problem(qpde.Ball(2), jumping)
    assert lipschitz_finding(problem).verdict is UNKNOWN


def test_leaps_are_found_where_they_are():
    found = leap_on_line(lambda t: np.sin(9 * t) + 0.25 * (t > 0.3), 0.0, 1.0)
    assert found == (pytest.approx(0.3, abs=1e-9), pytest.approx(0.25, abs=1e-6))
    assert leap_on_line(lambda t: np.tanh(300 * (t - 0.5)), 0.0, 1.0) is None
    leap = leap_inside(lambda x: jnp.abs(x[0] - 0.2), qpde.Annulus(2, inner=0.5, outer=1.0), 1)
    assert leap.order == 1
    assert leap.place[0] == pytest.approx(0.2, abs=1e-6)


def test_wrong_use():
    with pytest.raises(ValueError, match="The measure lives on"):
        explain(zoo.survival(3), measure=qpde.Uniform(qpde.Ball(2)))
    with pytest.raises(ValueError, match="network must be"):
        explain(zoo.survival(3), network=3)


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["qpde", "explain", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def test_the_command(monkeypatch, capsys, tmp_path):
    code, out, _ = command(monkeypatch, capsys, "survival", "--dim", 2, "--set", "discount=0.5")
    assert code == 0
    assert out.startswith("survival: Ball(2). The equation is linear.\n")
    assert "0.5 from the term in u" in " ".join(out.split())
    file = tmp_path / "mine.py"
    file.write_text(
        "import qpde\n"
        "problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + 1, name='mine')\n"
    )
    code, out, _ = command(monkeypatch, capsys, f"{file}:problem", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["problem"], found["rules"]) == ("mine", ["q-learning"])
    assert set(found["findings"][0]) == {"name", "verdict", "basis", "text", "advice"}
    code, out, err = command(monkeypatch, capsys, "survivel")
    assert (code, out) == (2, "")
    assert err == "qpde: There is no problem named 'survivel'. Did you mean survival?\n"
