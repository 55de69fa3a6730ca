"""Solutions as files: `save` writes one, `load` reads it again."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from .._files.archive import (
    Groups,
    arrays_of,
    check_groups,
    read_archive,
    with_arrays,
    write_archive,
)
from .._files.damage import (
    COUNT,
    FLOAT,
    NUMBER,
    RUN_ID,
    SECONDS,
    SHA256,
    DamagedFile,
    Misfit,
    one_of,
)
from .._files.fingerprint import (
    FINGERPRINT_ARRAYS,
    PROGRAMS_ARRAYS,
    PROGRAMS_SCHEMA,
    check_arrays,
    check_fingerprint,
    check_programs,
    fingerprint,
    programs,
)
from .._network.base import as_network_field, trainable
from .._precision import cast, x64
from .._problem.measure import AbstractMeasure, Radial, Uniform
from .._problem.problem import Problem
from .._problem.score import Score
from .._problem.solution import History, Solution, Stage
from .._problem.trial import Trial
from .._problem.verdict import Verdict, Word
from .._status import Status
from .._train.checkpoint import FILE as CHECKPOINT
from .._train.checkpoint import new_run_id
from .networks import NETWORK, check_size, describe_network, rebuild_network, structure
from .record import check_same_run
from .source import split_name
from .spec import Spec, as_recipe, spec_from
from .trust import admit, remember

SOLUTION = "solution.safetensors"
# The fields of a solution that a file holds as they are.
_PLAIN = ("steps", "seconds", "compile_seconds", "rule", "seed", "precision")
_WORD = one_of(*Word)
_MEASURE = ({"kind": one_of("radial"), "k": NUMBER}, {"kind": str})
_STAGE = {
    "name": str,
    "steps": COUNT,
    "seconds": SECONDS,
    "compile_seconds": SECONDS,
    "kept": bool,
}
_REASON = {"name": str, "value": (FLOAT, None), "word": (_WORD, None), "text": str}
_VERDICT = {"word": _WORD, "text": str, "reasons": [_REASON], "advice": str}
_SCORE = {
    "loss": FLOAT,
    **dict.fromkeys(("relative_l2_error", "max_relative_error", "skill"), (FLOAT, None)),
    "control_error?": (FLOAT, None),
}
_SCHEMA: dict[str, Any] = {
    "run": RUN_ID,
    "programs": PROGRAMS_SCHEMA,
    "recipe": (str, None),
    "source": ({"*": SHA256}, None),
    "name": str,
    "network": NETWORK,
    "measure": _MEASURE,
    "exact_boundary": bool,
    "status": one_of(*(status.name for status in Status)),
    "stages": [_STAGE],
    "verdict": (_VERDICT, None),
    "score": (_SCORE, None),
    "steps": COUNT,
    "seconds": SECONDS,
    "compile_seconds": SECONDS,
    "rule": str,
    "seed": COUNT,
    "precision": one_of("float32", "float64"),
}
# Format 1 had neither the first nor, in its earliest files, the others.
_NEW, _LATER = ("run", "programs", "source"), ("stages", "verdict", "score")
_OLD = {name + "?" * (name in _LATER): one for name, one in _SCHEMA.items() if name not in _NEW}
_ARRAYS = {
    "network": None,
    "problem": FINGERPRINT_ARRAYS,
    "values": {"inside": ("f", 1)},
    "history": {
        **dict.fromkeys(("loss", "gradient", "truncated", "held_out"), ("f", 1)),
        "checked_step": ("iu", 1),
    },
}


def save(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution to a file, in one piece.

        >>> save(solution, "ball.safetensors")

    The file holds the network's numbers, the history, the recipe of a problem of the zoo or the path of the
    Python file that made the problem, and a fingerprint of the problem. It holds no code.
    """
    if not isinstance(solution, Solution):
        raise ValueError(f"save takes a qpde.Solution, got {type(solution).__name__}.")
    write_solution(solution, _as_path(path), new_run_id())


def write_solution(solution: Solution, path: Path, run_id: str) -> None:
    """Write a solution to a file that carries the id of its run."""
    problem, network = solution.problem, solution.trial.network
    marks = fingerprint(problem)
    words, numbers = programs(problem)
    recipe, source = as_recipe(problem, path.parent)
    groups = {
        "network": arrays_of(network),
        "problem": marks,
        "programs": numbers,
        "values": {"inside": solution(marks["inside"])},
        "history": {f.name: getattr(solution.history, f.name) for f in dataclasses.fields(History)},
    }
    header = {
        "run": run_id,
        "programs": words,
        "recipe": recipe,
        "source": source,
        "name": problem.name,
        "network": describe_network(network, problem.dim, solution.precision),
        "measure": _describe_measure(solution.measure),
        "exact_boundary": solution.trial.exact_boundary,
        "status": solution.status.name,
        "stages": [dataclasses.asdict(stage) for stage in solution.stages],
        "verdict": None if solution.verdict is None else solution.verdict.as_dict(),
        "score": None if solution.known_score is None else dataclasses.asdict(solution.known_score),
        **{name: getattr(solution, name) for name in _PLAIN},
    }
    write_archive(path, "solution", header, groups)
    if source is not None:
        remember(run_id, source)


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"A path is a string or a pathlib.Path, got {type(path).__name__}.")
    return Path(path)


def load(
    path: str | os.PathLike[str],
    *,
    problem: Problem | None = None,
    network: Any = None,
    measure: AbstractMeasure | None = None,
    trust: bool = False,
) -> Solution:
    """Read a solution from a file or a run folder; its values have the same bits as before.

        >>> load("ball.safetensors")
        >>> load("mine.safetensors", problem=my_problem)

    **Arguments**

    - `problem`: needed where the problem is made of your own functions, which no file can hold. It is
      compared with the file's fingerprint, and a difference is named.
    - `network`, `measure`: needed where they are your own classes: objects of the same structure,
      whose numbers are replaced.
    - `trust`: run the Python file that made the problem, where the solution names one. Without it only
      files that you have run on this machine yourself are run; all others raise, and nothing is executed.
      A file that has changed since the solution was made is never run.

    Raises `DamagedFile` where the file is not as it was written.
    """
    if problem is not None and not isinstance(problem, Problem):
        raise ValueError(f"problem must be a qpde.Problem, got {type(problem).__name__}.")
    path = _as_path(path)
    if path.is_dir() and (path / CHECKPOINT).exists() and not (path / SOLUTION).exists():
        raise ValueError(f"{path} is a run without a solution yet. Go on with: qpde resume {path}")
    folder = path if path.is_dir() else None
    path = path / SOLUTION if path.is_dir() else path
    header, groups = read_solution(path)
    if folder is not None:
        check_same_run(path, header.get("run"), folder)
    problem = _rebuild_problem(header, groups, problem, path, trust)
    check_fingerprint(problem, groups["problem"], path)
    if "programs" in header:
        check_programs(problem, header["programs"], groups["programs"], path)
    precision = header["precision"]
    with x64():
        description = rebuild_network(header["network"], groups["network"], network, path)
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
        _check_network(solution, header, groups, path)
    # Files of earlier versions have neither.
    score, verdict = header.get("score"), header.get("verdict")
    if verdict is not None:
        solution = solution.with_verdict(Verdict.from_dict(verdict))
    return solution if score is None else solution.with_score(Score(**score))


def read_solution(path: Path) -> tuple[dict[str, Any], Groups]:
    """The header and the arrays of a solution's file, as far as they can be checked without its problem."""
    header, groups = read_archive(path, "solution", _SCHEMA, _OLD)
    try:
        check_groups(
            groups, _ARRAYS | ({"programs": PROGRAMS_ARRAYS} if "programs" in header else {})
        )
        check_arrays(groups["problem"])
        if groups["values"]["inside"].shape != groups["problem"]["equation"].shape:
            raise Misfit("its values belong to other points")
        history = groups["history"]
        lengths = [len(history[name]) for name in ("loss", "gradient", "truncated")]
        if len(set(lengths)) > 1 or len(history["checked_step"]) != len(history["held_out"]):
            raise Misfit("the columns of its history have different lengths")
        check_size(header["network"], groups.get("network", {}))
    except Misfit as error:
        raise DamagedFile(path, f": {error}.") from None
    return header, groups | {"network": groups.get("network", {})}


def _check_network(solution: Solution, header: dict[str, Any], groups: Groups, path: Path) -> None:
    """Compare programs and values: the caller's own network may fit and yet be another one."""
    there, here = groups["values"]["inside"], solution(groups["problem"]["inside"])
    if not np.allclose(here, there, rtol=0.0, atol=1e-4 * float(np.max(np.abs(there)))):
        raise ValueError(
            f"{path} holds another network: with the one given, values differ by up to "
            f"{np.max(np.abs(here - there)):.3g} from those that were saved."
        )
    program = header["network"].get("program")
    if (
        program is None
        or header["programs"]["versions"] != programs(solution.problem)[0]["versions"]
    ):
        return
    if program != structure(solution.trial.network, solution.problem.dim, solution.precision):
        raise ValueError(
            f"{path} holds another network: the one given computes something else, even if not at the "
            "points that were compared."
        )


@x64()
def _rebuild_problem(
    header: dict[str, Any], groups: Groups, problem: Problem | None, path: Path, trust: bool
) -> Problem:
    """The user's own problem, or one made from the recipe in the file."""
    if problem is not None:
        return problem
    if header["recipe"] is None:
        raise ValueError(
            f"{path} holds a solution of {header['name']!r}, a problem made of functions that a file "
            "cannot hold. Pass it: load(path, problem=...)."
        )
    try:
        spec = spec_from(header["recipe"], path.parent)
        dim = groups["problem"]["inside"].shape[1]
        if spec.dim not in (None, dim, dim - 1):  # the last coordinate may be time
            raise Misfit(f"its recipe has dimension {spec.dim}, its points have {dim}")
    except Misfit as error:
        raise DamagedFile(path, f": {error}.") from None
    admit_spec(spec, path, header.get("run"), header.get("source"), trust=trust)
    return spec.build_problem()


def admit_spec(
    spec: Spec, where: Path, run_id: str | None, source: dict[str, str] | None, *, trust: bool
) -> None:
    """Raise unless the problem of a spec that was found in a file may be built; the zoo's always may."""
    file = split_name(spec.problem)
    if file is not None:
        admit(where, file[0], run_id, source, trust=trust)


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
    shape = problem.domain.spatial.round
    if words["kind"] == "radial" and shape is not None and shape.is_ball:
        return Radial(problem.domain, words["k"])
    raise ValueError(
        f"{path} was trained under a law of your own ({words['kind']}). Pass it: "
        "load(path, measure=...)."
    )
