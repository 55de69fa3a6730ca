"""Nonsense for the public API: `python tests/fuzz_calls.py COUNT SEED [NAMES]` prints what was answered how.

It runs in a process of its own, without the type checks that the tests put in front of every function, which
users do not have. Every call returns within seconds, or raises `ValueError` (or `TypeError` for an argument
that does not exist) with a sentence of qpde's.
"""

import collections
import dataclasses
import json
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optax

import qpde
import qpde.plot
from qpde._arguments import shown

NONSENSE = [
    None, True, False, 0, 1, -1, 3, 2.5, -2.5, 10**12, 10**400, -(10**400), 2**31, 2**63, float("nan"),
    float("inf"), 1e-320, 1e308, 1j, "", "x", "2", b"x", [], [1], [1, 2], ["a"], (), {}, {"a": 1}, {1, 2},
    object(), np.zeros(2), np.zeros((2, 2)), np.array(["a"]), np.array([1j, 2]), np.array(None), np.zeros(0),
    np.float32(2),
    int, qpde.Ball, qpde.QLearning, qpde.Ball(2), qpde.QLearning(), qpde.Shallow(4), len, lambda: 1,
    lambda x: x, lambda x: None, lambda x, u: u, optax.adam, optax.adam(0.1), optax.lbfgs(), range(3),
    Path("x"), float, Exception, NotImplemented,
    ..., slice(1), iter([1]), qpde.Keep.LAST, qpde.Status.FINISHED,
]  # fmt: skip
LIMIT = 5


class Slow(Exception):
    """A call took too long."""


def late(*_):
    raise Slow


def calls(problem, solution):
    """Functions of the API with good arguments, one or two of which are replaced by nonsense."""
    ball = qpde.Ball(2)
    small = {"network": qpde.Shallow(4), "batch": 8, "progress": False, "steps": 0}

    exact = qpde.Problem(ball, problem.equation, exact=lambda x: 0.25 * (1.0 - x @ x))
    known = dataclasses.replace(solution, problem=exact)

    def laplace(x, u):
        return u.laplacian + 1.0

    return {
        "Interval": (qpde.Interval, {"lower": 0.0, "upper": 1.0}),
        "Box": (qpde.Box, {"lower": 0.0, "upper": 1.0, "dim": 2}),
        "Ball": (qpde.Ball, {"dim": 2, "centre": 0.0, "radius": 1.0}),
        "Ellipsoid": (qpde.Ellipsoid, {"axes": [1.0, 2.0], "centre": 0.0}),
        "Annulus": (qpde.Annulus, {"dim": 2, "inner": 0.5, "outer": 1.0, "centre": 0.0}),
        "Uniform": (qpde.Uniform, {"domain": ball}),
        "Radial": (qpde.Radial, {"ball": ball, "k": 2.0}),
        "Shallow": (qpde.Shallow, {"width": 4, "activation": qpde.activations.tanh, "beta": 0.5,
                                   "scale": 1.0, "normalise": True, "polynomial": False,
                                   "amplitude": 1.0, "aligned": 0.1, "axes": 0.1}),
        "MLP": (qpde.MLP, {"widths": [4], "activation": qpde.activations.tanh, "normalise": True}),
        "Frozen": (qpde.Frozen, {"array": 1.0}),
        "QLearning": (qpde.QLearning, {"rate": 0.1, "optimiser": None, "truncation": None}),
        "DeepGalerkin": (qpde.DeepGalerkin, {"rate": 0.1, "optimiser": None}),
        "Penalty": (qpde.Penalty, {"weight": 1.0, "rate": 0.1, "optimiser": None}),
        "GaussNewton": (qpde.GaussNewton, {"damping": 0.1, "doublings": 1}),
        "ImplicitQLearning": (qpde.ImplicitQLearning, {"length": 1.0}),
        "Flow": (qpde.Flow, {"alpha": 1.0}),
        "Truncation": (qpde.Truncation, {"level": 2.0, "damped": True}),
        "Ramp": (qpde.Ramp, {"first": 1, "last": 2}),
        "Decay": (qpde.Decay, {"first": 1, "time": 2}),
        "Cosine": (qpde.Cosine, {"first": 1, "last": 2}),
        "TangentKernel": (qpde.TangentKernel, {"scale": 1.0, "tolerance": 1e-8}),
        "Problem": (qpde.Problem, {"domain": ball, "equation": laplace, "boundary": 0.0, "exact": None,
                                   "name": "a", "blind_to_kinks": False, "parameters": None}),
        "solve": (qpde.solve, {"problem": problem, **small, "rule": None, "tolerance": None, "measure": None,
                               "initial": None, "budget": None, "keep": None, "callback": None,
                               "checkpoint": None, "seed": 0, "precision": None, "throw": False}),
        "load": (qpde.load, {"path": "nowhere.safetensors", "problem": None, "network": None,
                             "measure": None}),
        "save": (qpde.save, {"solution": solution, "path": "a.safetensors"}),
        "solution": (solution, {"points": np.zeros((1, 2))}),
        "solution.grad": (solution.grad, {"points": np.zeros((1, 2))}),
        "cache_compilations": (qpde.cache_compilations, {"folder": "programs", "limit": 2**20}),
        "certify": (qpde.certify, {"solution": solution, "confidence": 0.9, "norm": "l2", "value_range": None,
                                   "monotonicity": None, "rigorous": False, "heuristic": False}),
        "monotonicity": (qpde.monotonicity, {"problem": problem, "measure": None, "value_range": None,
                                             "ellipticity": None, "potential": None}),
        "feynman_kac": (qpde.feynman_kac, {"solution": solution, "points": np.zeros((1, 2)), "accuracy": None,
                                           "walks": 10, "confidence": 0.9, "seed": 0, "progress": False}),
        "explain": (qpde.explain, {"problem": problem, "network": None, "measure": None}),
        "solve_limit": (qpde.solve_limit, {"problem": problem, "time": 1.0, "nodes": 20, "record": (),
                                           "network": None, "rate": 1.0, "seed": 0, "progress": False,
                                           "throw": False}),
        "polish": (qpde.polish, {"solution": solution, "method": "least-squares", "count": 20}),
        "judge": (qpde.judge, {"solution": solution}),
        "lift": (qpde.lift, {"g": lambda x: x[0], "domain": ball, "seed": 0, "patch": None,
                             "smoothing": 0.01}),
        "suggest_measure": (qpde.suggest_measure, {"problem": problem}),
        "finite_kernel": (qpde.finite_kernel, {"network": solution.trial.network, "x": np.zeros((1, 2)),
                                               "y": np.zeros((1, 2))}),
        "as_field": (qpde.as_field, {"thing": 1.0}),
        "plot.history": (qpde.plot.history, {"solution": solution, "ax": None}),
        "plot.profile": (qpde.plot.profile, {"solution": solution, "ax": None, "direction": 0, "count": 10,
                                             "through": None, "estimate": None}),
        "plot.radial": (qpde.plot.radial, {"solution": solution, "ax": None, "count": 10, "seed": 0,
                                           "estimate": None}),
        "plot.scatter": (qpde.plot.scatter, {"solution": known, "ax": None, "count": 10, "seed": 0}),
        "plot.slice": (qpde.plot.slice, {"solution": known, "axes": None, "plane": (0, 1), "through": None,
                                         "resolution": 8}),
        "plot.save": (qpde.plot.save, {"axes": plt.figure("kept").gca(), "path": "a.png", "dpi": 50}),
        "plot.suited": (qpde.plot.suited, {"solution": solution}),
        "Weighted": (qpde.Weighted, {"domain": ball, "density": lambda x: x[0] ** 2}),
        "kernel": (qpde.TangentKernel(), {"x": np.zeros((1, 2)), "y": np.zeros((1, 2))}),
        "plot.compare": (qpde.plot.compare, {"solutions": [solution], "ax": None, "seconds": False}),
    }  # fmt: skip


def one(rng, table, names):
    """The name of a call, the nonsense among its arguments, and its outcome in a word."""
    name = names[rng.integers(len(names))]
    function, good = table[name]
    replaced = {}
    for _ in range(1 + rng.integers(2)):
        replaced[list(good)[rng.integers(len(good))]] = NONSENSE[rng.integers(len(NONSENSE))]
    began = time.monotonic()
    signal.alarm(4 * LIMIT)
    try:
        function(**good | replaced)
        outcome = "accepted"
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = "qpde" in frames[-1].filename.replace("fuzz_calls", "")
        outcome = "a sentence" if ours else f"FOREIGN {type(error).__name__}: {error}"
    except (TypeError, OSError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = "/qpde/" in frames[-1].filename
        outcome = "a sentence" if ours else f"FOREIGN {type(error).__name__}: {error}"
    except Slow:
        outcome = "SLOW"
    except Exception as error:
        outcome = f"FOREIGN {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        for number in plt.get_fignums()[1:]:
            plt.close(number)
    # A call that does its work may compile for it; the alarm still ends it.
    if time.monotonic() - began > LIMIT and outcome != "accepted":
        outcome = f"SLOW {time.monotonic() - began:.1f} s"
    return name, replaced, outcome


def main(count, seed, *only):
    signal.signal(signal.SIGALRM, late)
    warnings.simplefilter("ignore")
    mpl.use("agg")
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + 1.0)
    solution = qpde.solve(problem, network=qpde.Shallow(4), batch=8, steps=0, progress=False)
    solution(np.zeros((1, 2)))
    solution.grad(np.zeros((1, 2)))
    counts, wrong = collections.Counter(), []
    table = calls(problem, solution)
    names = list(only) or list(table)
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        name, replaced, outcome = one(rng, table, names)
        counts[outcome if outcome in ("accepted", "a sentence") else outcome.split()[0]] += 1
        if outcome.startswith(("FOREIGN", "SLOW")):
            words = ", ".join(f"{key}={shown(value)}" for key, value in replaced.items())
            wrong.append(f"{number}: {name}({words}): {outcome}"[:400])
    print(json.dumps({"counts": counts, "wrong": wrong[:40]}))


if __name__ == "__main__":
    import os

    os.chdir(tempfile.mkdtemp())
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
