"""Solutions as files: `save` writes one, `load` reads it again."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from .. import activations
from .._files.archive import Groups, arrays_of, read_archive, with_arrays, write_archive
from .._files.fingerprint import check_fingerprint, fingerprint
from .._limit.field import KernelField
from .._network.base import as_network_field, trainable
from .._network.mlp import MLP, DeepField
from .._network.shallow import Shallow, ShallowField
from .._precision import cast, x64
from .._problem.measure import AbstractMeasure, Radial, Uniform
from .._problem.problem import Problem
from .._problem.score import Score
from .._problem.solution import History, Solution, Stage
from .._problem.trial import Trial
from .._problem.verdict import Verdict
from .._status import Status
from .._train.checkpoint import FILE as CHECKPOINT
from .spec import problem_from

SOLUTION = "solution.safetensors"
# The fields of a solution that a file holds as they are.
_PLAIN = ("steps", "seconds", "compile_seconds", "rule", "seed", "precision")


def save(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution to a file, in one piece.

        >>> save(solution, "ball.safetensors")

    The file holds the network's numbers, the history, the recipe of a problem of the zoo, and a fingerprint
    of the problem. It holds no code.
    """
    if not isinstance(solution, Solution):
        raise ValueError(f"save takes a qpde.Solution, got {type(solution).__name__}.")
    problem, network = solution.problem, solution.trial.network
    marks = fingerprint(problem)
    groups = {
        "network": arrays_of(network),
        "problem": marks,
        "values": {"inside": solution(marks["inside"])},
        "history": {f.name: getattr(solution.history, f.name) for f in dataclasses.fields(History)},
    }
    header = {
        "recipe": problem.recipe,
        "name": problem.name,
        "network": _describe_network(network),
        "measure": _describe_measure(solution.measure),
        "exact_boundary": solution.trial.exact_boundary,
        "status": solution.status.name,
        "stages": [dataclasses.asdict(stage) for stage in solution.stages],
        "verdict": None if solution.verdict is None else solution.verdict.as_dict(),
        "score": None if solution.known_score is None else dataclasses.asdict(solution.known_score),
        **{name: getattr(solution, name) for name in _PLAIN},
    }
    write_archive(Path(path), "solution", header, groups)


def load(
    path: str | os.PathLike[str],
    *,
    problem: Problem | None = None,
    network: Any = None,
    measure: AbstractMeasure | None = None,
) -> Solution:
    """Read a solution from a file or a run folder; its values have the same bits as before.

        >>> load("ball.safetensors")
        >>> load("mine.safetensors", problem=my_problem)

    **Arguments**

    - `problem`: needed where the problem is made of your own functions, which no file can hold. It is
      compared with the file's fingerprint, and a difference is named.
    - `network`, `measure`: needed where they are your own classes: objects of the same structure,
      whose numbers are replaced.
    """
    if problem is not None and not isinstance(problem, Problem):
        raise ValueError(f"problem must be a qpde.Problem, got {type(problem).__name__}.")
    path = Path(path)
    if path.is_dir() and (path / CHECKPOINT).exists() and not (path / SOLUTION).exists():
        raise ValueError(f"{path} is a run without a solution yet. Go on with: qpde resume {path}")
    path = path / SOLUTION if path.is_dir() else path
    header, groups = read_archive(path, "solution")
    problem = _rebuild_problem(header, problem, path)
    check_fingerprint(problem, groups["problem"], path)
    precision = header["precision"]
    with x64():
        description = _rebuild_network(header["network"], network, path, problem.dim)
        field = as_network_field(description, problem.domain, key=jr.key(0), dtype=precision)
        params, rest = trainable(field)  # the rest stays in float64, as in a run
        field = eqx.combine(cast(params, precision), rest)
        field = with_arrays(field, groups["network"], "the network")
        trial = Trial.of(problem, field, exact_boundary=header["exact_boundary"])
    solution = Solution(
        problem=problem,
        trial=trial,
        measure=_rebuild_measure(header["measure"], measure, problem, path),
        status=Status[header["status"]],
        history=History(**groups["history"]),
        stages=tuple(Stage(**stage) for stage in header.get("stages", ())),
        **{name: header[name] for name in _PLAIN},
    )
    if network is not None:
        _check_values(solution, groups, path)
    # Files of earlier versions have neither.
    score, verdict = header.get("score"), header.get("verdict")
    if verdict is not None:
        solution = solution.with_verdict(Verdict.from_dict(verdict))
    return solution if score is None else solution.with_score(Score(**score))


def _check_values(solution: Solution, groups: Groups, path: Path) -> None:
    """Compare values with those that were saved: the caller's own network may fit and yet be another one."""
    there, here = groups["values"]["inside"], solution(groups["problem"]["inside"])
    if not np.allclose(here, there, rtol=0.0, atol=1e-4 * float(np.max(np.abs(there)))):
        raise ValueError(
            f"{path} holds another network: with the one given, values differ by up to "
            f"{np.max(np.abs(here - there)):.3g} from those that were saved."
        )


def _rebuild_problem(header: dict[str, Any], problem: Problem | None, path: Path) -> Problem:
    """The user's own problem, or one made from the recipe in the file."""
    if problem is not None:
        return problem
    if header["recipe"] is None:
        raise ValueError(
            f"{path} holds a solution of {header['name']!r}, a problem made of functions that a file "
            "cannot hold. Pass it: load(path, problem=...)."
        )
    return problem_from(header["recipe"])


def _activation_name(network: Any) -> str | None:
    """The name of a network's activation, None where it has none or one of the user's own."""
    kind = type(getattr(network, "activation", None))
    return next((name for name, known in activations.BY_NAME.items() if type(known) is kind), None)


def _describe_network(network: Any) -> dict[str, Any]:
    """The structure of a network in words, from which `_rebuild_network` makes one of the same shapes."""
    activation = _activation_name(network)
    if isinstance(network, ShallowField) and activation:
        words = {"kind": "shallow", "width": network.width, "activation": activation}
        return words if network.polynomial is None else words | {"polynomial": True}
    if isinstance(network, DeepField) and activation:
        widths = [weight.shape[0] for weight in network.weights[:-1]]
        return {"kind": "mlp", "widths": widths, "activation": activation}
    if isinstance(network, KernelField):
        return {"kind": "limit", "tables": list(network.tables.shape), "round": network.round}
    return {"kind": type(getattr(network, "function", network)).__name__}


def _rebuild_network(words: dict[str, Any], own: Any, path: Path, dim: int) -> Any:
    """A network that fits the numbers of the file: the user's `own`, or one made from its description."""
    if own is not None:
        return own
    if words["kind"] == "limit":
        return KernelField.empty(words["tables"], dim, words["round"])
    if words["kind"] not in ("shallow", "mlp"):
        raise ValueError(
            f"{path} holds a network of your own ({words['kind']}). Pass one of the same structure: "
            "load(path, network=...)."
        )
    activation = activations.BY_NAME[words["activation"]]
    if words["kind"] == "mlp":
        return MLP(words["widths"], activation=activation)
    polynomial = words.get("polynomial", False)
    return Shallow(words["width"], activation=activation, polynomial=polynomial)


def _describe_measure(measure: AbstractMeasure) -> dict[str, Any]:
    """The law of the training points in words, for `_rebuild_measure`."""
    if isinstance(measure, Radial):
        return {"kind": "radial", "k": float(measure.k)}
    return {"kind": "uniform" if isinstance(measure, Uniform) else type(measure).__name__}


def _rebuild_measure(
    words: dict[str, Any], own: AbstractMeasure | None, problem: Problem, path: Path
) -> AbstractMeasure:
    if own is not None:
        return own
    if words["kind"] == "uniform":
        return Uniform(problem.domain)
    shape = problem.domain.round
    if words["kind"] == "radial" and shape is not None and shape.is_ball:
        return Radial(problem.domain, words["k"])
    raise ValueError(
        f"{path} was trained under a law of your own ({words['kind']}). Pass it: "
        "load(path, measure=...)."
    )
