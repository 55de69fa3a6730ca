"""A run described in plain words, as the command line takes them and `run.json` keeps them."""

import dataclasses
import difflib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import presets, zoo
from .._problem.problem import Problem
from .._rule.base import AbstractRule
from .._rule.first_order import DeepGalerkin, Penalty, QLearning
from .._rule.gauss_newton import GaussNewton
from .._rule.implicit import ImplicitQLearning
from .._solve.stages import BUDGET

RULES: dict[str, type[AbstractRule]] = {
    rule.name: rule for rule in (QLearning, DeepGalerkin, Penalty, GaussNewton, ImplicitQLearning)
}
PRESETS = {"paper": presets.paper}


@dataclasses.dataclass(frozen=True)
class Spec:
    """A problem by name and the options of `solve` that differ from their defaults."""

    problem: str
    dim: int | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    preset: str | None = None
    rule: str | None = None
    steps: int | None = None
    budget: float | None = None
    seed: int = 0
    precision: str | None = None

    def build_problem(self) -> Problem:
        """The problem that the spec names: one of the zoo, or `file.py:name`."""
        if ".py:" in self.problem:
            return self._from_file()
        if self.problem.endswith(".py"):
            raise ValueError(f"Name the problem inside the file: {self.problem}:problem.")
        builder = _pick("problem", self.problem, zoo.CATALOGUE).build
        known = [name for name in inspect.signature(builder).parameters if name != "dim"]
        for name in self.settings:
            if name not in known:
                raise ValueError(
                    f"{self.problem} has no setting {name!r}. It has: {', '.join(known) or 'none'}."
                )
        dim = {} if self.dim is None else {"dim": self.dim}
        return builder(**dim, **self.settings)

    def anchored(self) -> "Spec":
        """The same spec with an absolute path to the problem's file, so that it works from any folder."""
        if ".py:" not in self.problem:
            return self
        file, _, name = self.problem.rpartition(":")
        return dataclasses.replace(self, problem=f"{Path(file).resolve()}:{name}")

    def build_options(self, problem: Problem) -> dict[str, Any]:
        """The options of `solve` for this problem: the preset's, then those that the spec names."""
        options: dict[str, Any] = {
            "budget": self.budget,
            "seed": self.seed,
            "precision": self.precision,
        }
        if self.preset is not None:
            options |= _pick("preset", self.preset, PRESETS)(problem)
        if self.rule is not None:
            kind: Any = _pick("rule", self.rule, RULES)
            # A rule named beside a preset takes the preset's learning rate.
            rate = getattr(options.get("rule"), "rate", None)
            takes = rate is not None and "rate" in inspect.signature(kind).parameters
            options["rule"] = kind(rate=rate) if takes else kind()
        if self.steps is not None:
            options["steps"] = self.steps
        return options

    def next_budget(self, seconds: float) -> float | None:
        """The budget for resuming a run whose budget was used up after `seconds` of training.

        Where the stages are chosen for the problem, the usual budget is granted once more; a run of one
        rule goes on without a limit.
        """
        staged = self.preset is None and self.rule is None and self.steps is None
        return seconds + BUDGET if staged else None

    def _from_file(self) -> Problem:
        """The problem that a Python file of the user's defines; the file is run."""
        if self.dim is not None or self.settings:
            raise ValueError(
                "--dim and --set belong to problems of the zoo; set them inside the file instead."
            )
        file, _, name = self.problem.rpartition(":")
        path = Path(file)
        if not path.is_file():
            raise ValueError(f"There is no file {file}.")
        loader = importlib.util.spec_from_file_location(f"qpde_user_{path.stem}", path)
        assert loader is not None  # the name ends in .py
        assert loader.loader is not None
        module = importlib.util.module_from_spec(loader)
        sys.modules[loader.name] = module
        sys.path.insert(0, str(path.parent))  # the file may import its neighbours
        loader.loader.exec_module(module)
        found = getattr(module, name, None)
        if not isinstance(found, Problem):
            problems = [key for key, value in vars(module).items() if isinstance(value, Problem)]
            raise ValueError(
                f"{file} has no qpde.Problem named {name!r}. It has: {', '.join(problems) or 'none'}."
            )
        recipe = {"problem": f"{path.resolve()}:{name}"}
        return found if found.recipe else found.with_recipe(json.dumps(recipe))


def problem_from(recipe: str) -> Problem:
    """The problem that a recipe describes; a recipe is the JSON form of a spec."""
    spec = Spec(**json.loads(recipe))
    file = spec.problem.rpartition(":")[0]
    if file and not Path(file).is_file():
        raise ValueError(
            f"The problem was made by {file}, which is not there. Put it back, or in Python pass "
            "the problem: qpde.load(path, problem=...)."
        )
    return spec.build_problem()


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """`["discount=0.1"]` as `{"discount": 0.1}`."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=number, for example discount=0.1, got {text!r}.")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--set {name}: {value!r} is not a number.") from None
    return settings


def _pick(kind: str, name: str, known: dict[str, Any]) -> Any:
    """The entry under a name; an unknown name raises with the nearest known ones."""
    if name in known:
        return known[name]
    near = [key for key in known if key.startswith(name)]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
    raise ValueError(f"There is no {kind} named {name!r}. {hint}")
