"""The examples run, and give the numbers they promise at reduced size."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.trains

EXAMPLES = Path(__file__).parents[1] / "examples"
# Steps, and a bound on the relative L2 error of about 2.5 times what these steps gave.
SIZES = {
    "exit_time_with_drift": (500, 4e-2),
    "poisson_on_a_box": (500, 2.2e-3),
    "semilinear": (200, 2.5e-3),
    "thermostat": (6, 9e-2),
    "clamped_plate": (15, 1e-3),
    "heat_in_a_ball": (10, 2e-1),
    "allen_cahn": (2, 1e-6),
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.daily("exit_time_with_drift")
@pytest.mark.parametrize("name", SIZES)
def test_example(name, capsys):
    steps, bound = SIZES[name]
    error = load(name).main(steps=steps)
    assert 0 < error < bound
    norm = "" if name == "allen_cahn" else "L2 "  # the error of one value
    assert f"relative {norm}error  {error:.2e}" in capsys.readouterr().out


@pytest.mark.slow
def test_how_wrong_is_it(capsys):
    """Both proved bounds hold; in twenty dimensions within a factor of six."""
    rigorous, statistical = load("how_wrong_is_it").main(steps=300)
    assert rigorous >= 1
    assert 1 <= statistical <= 6
    assert "missing is a monotonicity constant" in capsys.readouterr().out


@pytest.mark.slow
def test_bermudan_max_call():
    """In two dimensions the published value is inside, up to the digits that its authors give."""
    bound = load("bermudan_max_call").main(dim=2, paths=2_048, units=60)
    assert bound.low - 0.02 <= 13.899 <= bound.high + 0.02
    assert bound.width < 0.2


def test_every_example_is_tested():
    named = {*SIZES, "how_wrong_is_it", "bermudan_max_call"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == named
