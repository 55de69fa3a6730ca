"""Runs of the command with a small network: its defaults take minutes of the suite and test nothing more."""

import functools

import qpde
from qpde._plot import figures
from qpde._runs.spec import Spec

chosen = Spec.build_options


def build_options(spec: Spec, problem: qpde.Problem) -> dict:
    """32 units and 200 points where the words name neither a preset nor stages; they have their own."""
    small = {"network": qpde.Shallow(32), "batch": 200}
    one_rule = spec.preset is None and (spec.rule is not None or spec.steps is not None)
    return chosen(spec, problem) | (small if one_rule else {})


def install() -> None:
    """Small runs and coarse figures from here on, in this process."""
    setattr(Spec, "build_options", build_options)  # noqa: B010
    figures.save = functools.partial(figures.save, dpi=50)
