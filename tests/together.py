"""A script that several processes run: short runs of every rule, walks and a certificate, as digests."""

import hashlib
import json
import sys

import jax
import numpy as np

import qpde
from qpde._problem import score
from qpde._trust import residual

# Samples of a test's size.
score._POINTS, residual._CHUNKS = 8_000, 8

RULES = {
    "q-learning": (qpde.QLearning(0.01), 1_000),
    "gauss-newton": (qpde.GaussNewton(), 200),
    "deep-galerkin": (qpde.DeepGalerkin(0.01), 1_000),
    "penalty": (qpde.Penalty(), 1_000),
    "implicit-q-learning": (qpde.ImplicitQLearning(), 200),
}


def digest(*arrays):
    return hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in arrays)).hexdigest()[:16]


def found(names, steps):
    """The digests of runs: losses, and parameters at the end."""
    problem, digests = qpde.zoo.survival(5), {}
    for name in names:
        sys.stderr.write(f"{name}\n")
        rule, batch = RULES[name]
        # Of networks with a polynomial part, and without.
        network = qpde.Shallow(32, beta=0.5, polynomial=name == "gauss-newton")
        solution = qpde.solve(
            problem, network=network, rule=rule, steps=steps, batch=batch, progress=False
        )
        leaves = [a for a in jax.tree.leaves(solution.trial.network) if hasattr(a, "dtype")]
        digests[name] = digest(solution.history.loss, solution.history.held_out, *leaves)
        if name == "q-learning":
            points = np.random.default_rng(0).uniform(-0.3, 0.3, (12, 5))
            walked = qpde.feynman_kac(problem, points, walks=50, progress=False)
            digests["walks"] = digest(walked.low, walked.high, walked.work)
            bound = qpde.certify(solution)
            digests["certificate"] = digest(bound.bound, solution.score.loss)
    return digests


if __name__ == "__main__":
    names, steps, file = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3]
    with qpde.distributed() as place:
        digests = found(names, steps)
        if place.leads:
            with open(file, "w") as out:
                json.dump(digests, out)
