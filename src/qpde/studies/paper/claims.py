"""The paper's claims, each beside the number that was measured."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._columns import Columns, where
from .runs import Tables


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper in a few words, the paper's number, ours, and whether the statement holds.

    `median`, `low` and `high` are over runs; `skill` is the median of the runs that the claim is about.
    `holds` is None where the paper gives no number or order that could fail. `verdict` is that in words, and
    says where the runs it is about have learned nothing.
    """

    id: str
    statement: str
    paper: str
    measured: str  # the quantity whose median and range follow
    median: float
    low: float
    high: float
    runs: int
    holds: bool | None
    why: str
    skill: float | None = None
    verdict: str = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        word = {True: "holds", False: "does not hold", None: "no number"}[self.holds]
        if self.holds and self.skill is not None and self.skill > 1:
            word = "holds, of runs no better than a constant"
        object.__setattr__(self, "verdict", word)


def _claim(
    name: str,
    statement: str,
    paper: str,
    measured: str,
    values: Any,
    holds: Callable[[np.ndarray], Any] | None,
    why: str,
    skill: Any = None,
) -> Claim:
    """A claim whose median and range are those of `values`, and which holds where `holds(values)` does."""
    values = np.atleast_1d(np.asarray(values, float))
    return Claim(
        id=name,
        statement=statement,
        paper=paper,
        measured=measured,
        median=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        runs=len(values),
        holds=None if holds is None else bool(holds(values)),
        why=why,
        skill=None if skill is None else float(np.median(skill)),
    )


def _one_dimension(tables: Tables) -> list[Claim]:
    runs, residual = tables["runs-1d"], tables["residual-1d"]
    error = runs["grid_max_relative_error"]
    size = [np.max(np.abs(v)) for name, v in residual.items() if name.startswith("last_")]
    signs = [
        np.sum(np.diff(np.sign(v)) != 0) for name, v in residual.items() if name.startswith("last_")
    ]
    return [
        _claim(
            "d1-error",
            "d = 1: the relative error stays below 0.02 %",
            "0.0002",
            "largest |Q - u| / |u| on a grid of 399 points, best iterate",
            error,
            lambda v: np.median(v) < 2e-4,
            f"{np.sum(error < 2e-4)} of {len(error)} seeds lie below. The paper does not give the number "
            "of steps or seeds.",
            runs["skill"],
        ),
        _claim(
            "d1-residual-size",
            "d = 1: the operator error at the end is small",
            "a figure",
            "largest |L Q_T| on the grid, last iterate",
            size,
            lambda v: np.median(v) < 1e-2,
            "Counted as holding below 1e-2; the terms of the equation are of size 1.",
            runs["skill"],
        ),
        _claim(
            "d1-residual-sign",
            "d = 1: it fluctuates around 0",
            "a figure",
            "changes of sign of L Q_T on (-1, 1)",
            signs,
            lambda v: np.median(v) >= 2,
            "An error with zero mean against every trained direction must change its sign.",
            runs["skill"],
        ),
        _claim(
            "d1-best-late",
            "d = 1: the smallest loss occurs close to the end",
            "tau close to T",
            "tau / T",
            runs["best_step"] / runs["steps"],
            lambda v: np.median(v) > 0.8,
            "Counted as holding in the last fifth of the run.",
            runs["skill"],
        ),
        _claim(
            "d1-best-better",
            "d = 1: taking the iterate with the smallest loss improves the result",
            "noticeably",
            "error of the last iterate / error of the best",
            runs["last_relative_l2_error"] / runs["relative_l2_error"],
            lambda v: np.median(v) > 1,
            "Best by minibatch loss, which is not best by error in every run.",
            runs["skill"],
        ),
    ]


def _twenty_dimensions(tables: Tables) -> list[Claim]:
    runs = tables["runs-20d"]
    return [
        *_losses(tables),
        *_errors(tables),
        _claim(
            "d20-best-better",
            "d = 20: taking the iterate with the smallest loss improves the result",
            "noticeably",
            "error of the last iterate / error of the best",
            runs["last_relative_l2_error"] / runs["relative_l2_error"],
            lambda v: np.median(v) > 1,
            "Over all runs of both methods.",
            runs["skill"],
        ),
    ]


def _losses(tables: Tables) -> list[Claim]:
    """The losses of both methods in twenty dimensions."""
    alone = float(tables["constant-20d"]["loss"][0])
    claims = []
    for name, rule, word in (("q", "q-learning", "Q-PDE"), ("dgm", "deep-galerkin", "DGM")):
        runs = where(tables["runs-20d"], rule=rule)
        claims.append(
            _claim(
                f"d20-loss-{name}",
                f"d = 20: the loss of {word} is below 1e-5 after 40,000 steps",
                "1e-5",
                "mean of (L Q)^2 of the best iterate on 100,000 fresh points",
                runs["loss"],
                lambda v: np.median(v) < 1e-5,
                f"The best constant in place of the network has a loss of {alone:.1e}, so that this loss is "
                "no sign of a good solution.",
                runs["skill"],
            )
        )
    return claims


def _by_seed(columns: Columns, name: str, reduce: Callable[[Any], Any]) -> np.ndarray:
    """One number for each seed, made of its rows."""
    seeds = np.unique(columns["seed"])
    return np.array([reduce(where(columns, seed=seed)[name]) for seed in seeds])


def _errors(tables: Tables) -> list[Claim]:
    """The errors of both methods in twenty dimensions, beside each other."""
    rules = ("q-learning", "deep-galerkin")
    q, dgm = (where(tables["runs-20d"], rule=rule) for rule in rules)
    radii = [where(tables["radius-20d"], rule=rule) for rule in rules]
    mse_q, mse_dgm = (_by_seed(rows, "mean_squared_error", np.mean) for rows in radii)
    worst_q, worst_dgm = (_by_seed(rows, "max_relative_error", np.max) for rows in radii)
    behind = (
        "DGM descends the mean of (L Q)^2 itself and is further along after the same steps: its loss is "
        f"{dgm['loss'][0]:.1e}, that of Q-PDE {np.median(q['loss']):.1e}. The range is over seeds of Q-PDE "
        "against one run of DGM."
    )
    return [
        _claim(
            "d20-order-error",
            "d = 20: Q-PDE has a smaller mean squared error than DGM",
            "smaller",
            "mean over radii of the squared error, Q-PDE / DGM",
            mse_q / mse_dgm[0],
            lambda v: np.median(v) < 1,
            behind,
            q["skill"],
        ),
        _claim(
            "d20-same-scale",
            "d = 20: both errors are of the same scale",
            "same scale",
            "root mean squared error, Q-PDE / DGM",
            np.sqrt(mse_q / mse_dgm[0]),
            lambda v: 0.1 < np.median(v) < 10,
            "Counted as holding within a factor of ten.",
            q["skill"],
        ),
        _claim(
            "d20-max-error-q",
            "d = 20: the largest relative error of Q-PDE is small for every radius",
            "small",
            "largest R_r over radii up to 0.999",
            worst_q,
            lambda v: np.median(v) < 1e-2,
            "Counted as holding below 1 %.",
            q["skill"],
        ),
        _claim(
            "d20-order-max-error",
            "d = 20: DGM has a slightly larger relative error",
            "slightly larger",
            "largest R_r over radii, DGM / Q-PDE",
            worst_dgm[0] / worst_q,
            lambda v: np.median(v) > 1,
            behind,
            dgm["skill"],
        ),
    ]


def _cycles(tables: Tables) -> list[Claim]:
    rows = tables["cycles"]
    claims = []
    for rule, word in (("q-learning", "Q-PDE"), ("deep-galerkin", "DGM")):
        runs = where(rows, optimiser="Adam", rule=rule, dim=20.0)
        claims.append(
            _claim(
                f"d20-cycles-{rule}",
                f"d = 20: the loss of {word} under Adam shows cycles",
                "seen",
                "peaks of a factor of two or more above the trend",
                runs["peaks"],
                lambda v: np.median(v) > 0,
                f"The largest peak has a factor of {np.max(runs['largest_factor']):.3g}.",
                runs["skill"],
            )
        )
    flow = where(rows, optimiser="plain flow")
    adam = where(rows, optimiser="Adam", rule="q-learning", seed=0.0)
    return [
        *claims,
        _claim(
            "flow-no-cycles",
            "the plain gradient flow shows no cycles",
            "not seen",
            "peaks of a factor of two or more above the trend, d = 1 and 20",
            flow["peaks"],
            lambda v: np.max(v) == 0,
            f"The largest peak has a factor of {np.max(flow['largest_factor']):.3g}.",
            flow["skill"],
        ),
        _claim(
            "adam-better",
            "Adam improves noticeably on the plain flow",
            "noticeably",
            "error of the plain flow / error with Adam, same steps and points, d = 1 and 20",
            flow["relative_l2_error"] / adam["relative_l2_error"],
            lambda v: np.min(v) > 1,
            "The plain flow has the rate 1 times N^(2 beta - 1), chosen by us; the paper gives none.",
            adam["skill"],
        ),
    ]


def _batches(tables: Tables) -> list[Claim]:
    rows = tables["batches"]
    ratios = []
    for dim in (1, 20):
        growing, constant = (
            where(rows, dim=dim, batch=kind)["relative_l2_error"]
            for kind in ("growing", "constant")
        )
        ratios.append(np.median(constant) / np.median(growing))
    return [
        _claim(
            "growing-batches",
            "growing batches reduce the random error",
            "reason given",
            "median error with constant batches of the same total / with growing ones, d = 1 and 20",
            ratios,
            lambda v: np.min(v) > 1,
            "d = 1 with the paper's steps, d = 20 with shorter runs. In d = 1 the ranges over seeds overlap "
            "widely. The learning rate falls as well, so that early points are worth as much as late ones.",
        )
    ]


def _truncation(tables: Tables) -> list[Claim]:
    rows = tables["truncation"]
    paper = where(rows, form="psi psi'")
    off = where(rows, form="off")
    return [
        _claim(
            "truncation-harmless",
            "truncation by psi psi', which the theory needs, does not hinder training",
            "assumed",
            "error with psi psi' / error without truncation, Adam and plain flow, d = 20",
            paper["relative_l2_error"] / off["relative_l2_error"],
            lambda v: np.max(v) < 2,
            "psi psi' vanishes where |L Q| exceeds its level by 3 or more, so that a long step of Adam "
            "leaves no direction to move in.",
            paper["skill"],
        )
    ]


def _put(tables: Tables) -> list[Claim]:
    claims = []
    for rule, word in (("q-learning", "Q-PDE"), ("deep-galerkin", "DGM")):
        rows = where(tables["put-runs"], rule=rule)
        claims.append(
            _claim(
                f"put-{rule}",
                f"American put (authors' notebook): {word} finds the free boundary",
                "0.307692 (exact)",
                "free boundary",
                rows["free_boundary"],
                lambda v: np.median(np.abs(v - 4 / 13)) < 5e-3,
                "Counted as holding within 0.005.",
                rows["skill"],
            )
        )
    return claims


def _timing(columns: Columns) -> list[Claim]:
    return [
        _claim(
            "time-ours",
            "DGM takes 5 times as long as Q-PDE",
            "5",
            "time of a step, DGM / Q-PDE, with closed-form derivatives",
            columns["ratio"],
            lambda v: 4 <= np.median(v) <= 6.25,
            "With closed forms the Laplacian is cheap to differentiate too. The range is over rounds of "
            "timing.",
        )
    ]


def _authors_timing(ratio: float) -> Claim:
    return _claim(
        "time-authors",
        "DGM takes 5 times as long as Q-PDE, the authors' way",
        "5",
        "time of a step, DGM / Q-PDE, in PyTorch with nested automatic differentiation",
        [ratio],
        lambda v: 4 <= np.median(v) <= 6.25,
        "From `benchmarks/speed.json`: the paper's way rewritten with PyTorch, on a CPU. The paper "
        "does not name its machine.",
    )


_BY_TABLE: dict[str, Callable[[Tables], list[Claim]]] = {
    "runs-1d": _one_dimension,
    "runs-20d": _twenty_dimensions,
    "cycles": _cycles,
    "batches": _batches,
    "truncation": _truncation,
    "put-runs": _put,
    "timing": lambda tables: _timing(tables["timing"]),
}


def claims(tables: Tables, authors_ratio: float | None) -> list[Claim]:
    """The claims whose tables are there, and one about the authors' way where its ratio of times is known."""
    found = [claim for name, make in _BY_TABLE.items() if name in tables for claim in make(tables)]
    return found if authors_ratio is None else [*found, _authors_timing(authors_ratio)]
