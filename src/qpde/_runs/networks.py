"""How a file describes a network: in words, from which one of the same shapes is made again."""

import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import activations
from .._files.damage import COUNT, NUMBER, SHA256, Fits, Misfit, one_of
from .._limit.field import KernelField
from .._network.base import Frozen, GradedFrame
from .._network.distance import Distance, DistanceField
from .._network.mlp import MLP, DeepField
from .._network.pairs import Pairs, PairsField
from .._network.ridge import Ridge, RidgeField
from .._network.separable import Separable, SeparableField
from .._network.shallow import Shallow, ShallowField
from .._program.identity import identity_of

_ACTIVATION = one_of(*activations.BY_NAME)
# Networks that are made again from their description.
_KINDS = ("shallow", "mlp", "ridge", "separable", "pairs", "distance")
_OWN = Fits("a name", lambda v: isinstance(v, str) and v not in _KINDS and v != "limit")
NETWORK = (
    {"kind": one_of("shallow"), "width": COUNT, "activation": _ACTIVATION, "polynomial?": bool},
    {"kind": one_of("mlp"), "widths": [COUNT], "activation": _ACTIVATION},
    {
        "kind": one_of("ridge"),
        "width": COUNT,
        "rank": (COUNT, None),
        "activation": _ACTIVATION,
        "quadratic": bool,
        "ratio?": [NUMBER],
    },
    {"kind": one_of("separable"), "rank": COUNT, "degree": COUNT},
    {"kind": one_of("pairs"), "pairs": [[COUNT]], "degree": COUNT},
    {"kind": one_of("distance"), "width": COUNT, "activation": _ACTIVATION},
    {"kind": one_of("limit"), "tables": [COUNT], "round": bool},
    {"kind": _OWN, "program?": SHA256},
)


def _activation_name(network: Any) -> str | None:
    """The name of a network's activation, None where it has none or one of the user's own."""
    kind = type(getattr(network, "activation", None))
    return next((name for name, known in activations.BY_NAME.items() if type(known) is kind), None)


def describe_network(network: Any, dim: int, precision: str) -> dict[str, Any]:
    """The structure of a network in words, from which `rebuild_network` makes one of the same shapes."""
    activation = _activation_name(network)
    if isinstance(network, ShallowField) and activation:
        words = {"kind": "shallow", "width": network.width, "activation": activation}
        return words if network.polynomial is None else words | {"polynomial": True}
    if isinstance(network, RidgeField) and activation:
        rank = None if isinstance(network.a, Frozen) else network.rank
        quadratic = network.polynomial.curvature.ndim > 0
        words: dict[str, Any] = {"kind": "ridge", "width": network.width, "rank": rank}
        if isinstance(network.frame, GradedFrame):
            words["ratio"] = [float(number) for number in network.frame.grade.ratio]
        return words | {"activation": activation, "quadratic": quadratic}
    if isinstance(network, DistanceField) and activation:
        return {"kind": "distance", "width": network.width, "activation": activation}
    if isinstance(network, PairsField):
        pairs = np.asarray(network.pairs).tolist()
        return {"kind": "pairs", "pairs": pairs, "degree": network.degree}
    if isinstance(network, DeepField) and activation:
        widths = [weight.shape[0] for weight in network.weights[:-1]]
        return {"kind": "mlp", "widths": widths, "activation": activation}
    if isinstance(network, SeparableField):
        rank, _, count = network.c.shape
        return {"kind": "separable", "rank": rank, "degree": count - 1}
    if isinstance(network, KernelField):
        return {"kind": "limit", "tables": list(network.tables.shape), "round": network.round}
    name = type(getattr(network, "function", network)).__name__
    return {"kind": name, "program": structure(network, dim, precision)}


def rebuild_network(words: dict[str, Any], arrays: Any, own: Any, path: Path) -> Any:
    """A network that fits the numbers of the file: the user's `own`, or one made from its description."""
    if own is not None:
        return own
    if words["kind"] == "limit":
        return KernelField.empty(words["tables"], arrays[".nodes"].shape[-1], words["round"])
    if words["kind"] not in _KINDS:
        raise ValueError(
            f"{path} holds a network of your own ({words['kind']}). Pass one of the same structure: "
            "load(path, network=...)."
        )
    if words["kind"] == "separable":
        return Separable(words["rank"], degree=words["degree"])
    if words["kind"] == "pairs":
        return Pairs(words["pairs"], degree=words["degree"])
    activation = activations.BY_NAME[words["activation"]]
    if words["kind"] == "distance":
        return Distance(words["width"], activation=activation)
    if words["kind"] == "mlp":
        return MLP(words["widths"], activation=activation)
    if words["kind"] == "ridge":
        rank, quadratic = words["rank"], words["quadratic"]
        ratio = words.get("ratio")
        return Ridge(
            words["width"], rank=rank, quadratic=quadratic, ratio=ratio, activation=activation
        )
    polynomial = words.get("polynomial", False)
    return Shallow(words["width"], activation=activation, polynomial=polynomial)


def structure(network: Any, dim: int, precision: str) -> str:
    """The program of a network without its numbers."""
    point = jax.ShapeDtypeStruct((dim,), jnp.dtype(precision))
    return identity_of(network.value, point).structure


def check_size(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise `Misfit` where the words describe a network that is larger than the arrays of the file."""
    room = max((array.size for array in arrays.values()), default=0)
    own = ("rank", "degree") if words["kind"] == "separable" else ("width",)
    widths = words.get("widths", [words.get(name, 1) for name in own])
    tables = arrays.get(".tables", np.zeros(0))
    fits = words["kind"] != "limit" or (list(tables.shape) == words["tables"] and tables.ndim > 2)
    if words["kind"] == "pairs":
        c, e = (arrays.get(name, np.zeros(0)) for name in (".c", ".e"))
        rows = [{*pair} for pair in words["pairs"] if len(pair) == 2]
        inside = all(len(pair) == 2 and max(pair) < len(c) for pair in rows)
        shapes = c.ndim == e.ndim == 2 and c.shape[1] == words["degree"] > 0
        fits = shapes and inside and len(e) == len(rows) == len(words["pairs"])
    pairs = (a * b for a, b in itertools.pairwise(widths))
    if not fits or not widths or min(widths) < 1 or max(*widths, *pairs, 1) > room:
        raise Misfit("its network is described in another size than it has")
