"""A run described in plain words, as the command line takes them and `run.json` keeps them."""

import dataclasses
import difflib
import inspect
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .. import presets, zoo
from .._control_rules.actor_critic import ActorCritic
from .._control_rules.policy_iteration import PolicyIteration
from .._files.damage import COUNT, Fits, check_schema, parse_json
from .._problem.problem import Problem
from .._rule.base import AbstractRule
from .._rule.deviations import LeastDeviations
from .._rule.first_order import DeepGalerkin, Penalty, QLearning
from .._rule.gauss_newton import GaussNewton
from .._rule.implicit import ImplicitQLearning
from .._rule.projection import VariableProjection
from .._solve.stages import BUDGET
from .source import run_file, source_files, split_name

RULES: dict[str, type[AbstractRule]] = {
    rule.name: rule
    for rule in (
        *(QLearning, DeepGalerkin, Penalty),
        *(GaussNewton, ImplicitQLearning, VariableProjection, LeastDeviations),
        *(PolicyIteration, ActorCritic),
    )
}
PRESETS = {"paper": presets.paper}
_SETTING = Fits("a number, or lists of numbers", lambda value: _is_setting(value))
_RECIPE = {"problem": str, "dim?": (COUNT, None), "settings?": {"*": (_SETTING, bool, str, None)}}


def _is_setting(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_setting, value))
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63


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
    accuracy: float | None = None

    def build_problem(self) -> Problem:
        """The problem that the spec names: one of the zoo, or `file.py:name`, which runs the file."""
        file = split_name(self.problem)
        if file is not None:
            if self.dim is not None or self.settings:
                raise ValueError(
                    "--dim and --set belong to problems of the zoo; set them inside the file instead."
                )
            return run_file(*file)
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

    def source_of(self, problem: Problem) -> dict[str, str] | None:
        """The Python files, with their SHA-256, that building the problem of this spec has run; or None."""
        file = split_name(self.problem)
        if file is None:
            return None
        noted = json.loads(problem.recipe or "{}").get("source")
        return source_files(file[0].resolve()) if noted is None else noted

    def located(self, folder: Path) -> "Spec":
        """The same spec, whose file was named relative to a folder, with a path that works here."""
        return self._moved(lambda file: os.path.normpath(folder / file))

    def relative_to(self, folder: Path) -> "Spec":
        """The same spec with a path from a folder to the problem's file, so that both can move together."""
        return self._moved(lambda file: path_from(folder, file))

    def _moved(self, move: Callable[[Path], str]) -> "Spec":
        file = split_name(self.problem)
        if file is None:
            return self
        return dataclasses.replace(self, problem=f"{move(file[0])}:{file[1]}")

    def build_options(self, problem: Problem) -> dict[str, Any]:
        """The options of `solve` for this problem: the preset's, then those that the spec names."""
        options: dict[str, Any] = {
            "budget": self.budget,
            "seed": self.seed,
            "precision": self.precision,
            "accuracy": self.accuracy,
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


def path_from(folder: Path, file: Path) -> str:
    """The path from a folder to a file, with slashes; on another drive of Windows, the whole path."""
    try:
        return Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix()
    except ValueError:
        return file.resolve().as_posix()


def as_recipe(problem: Problem, folder: Path) -> tuple[str | None, dict[str, str] | None]:
    """How to build a problem again, for a file in a folder, and the source files that this would run."""
    if problem.recipe is None:
        return None, None
    words = json.loads(problem.recipe)
    source = words.pop("source", None)
    file = split_name(words["problem"])
    if file is not None:
        words["problem"] = f"{path_from(folder, file[0])}:{file[1]}"
    return json.dumps(words), source


def spec_from(recipe: str, folder: Path) -> Spec:
    """The spec that a recipe in a file of a folder describes; a recipe is the JSON form of a spec."""
    words = parse_json(recipe)
    check_schema(words, _RECIPE, "recipe")
    return Spec(**words).located(folder)


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
