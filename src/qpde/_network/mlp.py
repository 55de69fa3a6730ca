"""`MLP`: several hidden layers; second derivatives are carried from layer to layer."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations
from .._arguments import flag, shown
from .._domain.base import AbstractDomain
from .._field.base import AbstractField
from .._field.form import AbstractForm, Identity
from ..activations import AbstractActivation
from .base import AbstractNetwork, Frame, as_width, generator

# Directions that are carried through the layers at a time, where there are more.
_COLUMNS = 1_024


class MLP(AbstractNetwork):
    """A network with hidden layers of the given widths and a linear output.

    >>> MLP([256, 256], activation=activations.tanh)
    """

    widths: tuple[int, ...] = eqx.field(static=True)
    activation: AbstractActivation
    normalise: bool = eqx.field(static=True)

    def __init__(
        self, widths: Any = (64, 64), *, activation: Any = activations.tanh, normalise: bool = True
    ):
        if isinstance(widths, str | bytes) or not isinstance(widths, Iterable):
            raise ValueError(f"widths is a list such as [64, 64], got {shown(widths)}.")
        self.widths = tuple(as_width(width) for width in widths)
        if not self.widths:
            raise ValueError("An MLP needs at least one hidden layer, for example MLP([64, 64]).")
        self.activation = activations.as_activation(activation)
        self.normalise = flag("normalise", normalise)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "DeepField":
        sizes = (domain.dim, *self.widths, 1)
        rng = generator(key)
        weights = [
            jnp.asarray(rng.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in))
            for fan_in, fan_out in itertools.pairwise(sizes)
        ]
        return DeepField(
            weights=weights,
            biases=[jnp.zeros(n) for n in sizes[1:]],
            frame=Frame.of(domain, self.normalise),
            activation=self.activation,
        )


class DeepField(AbstractField):
    """The network of `MLP` with its parameters.

    `a : Hess` is carried from layer to layer with the Jacobian: through `h = s(z)`,
    `tr h = s'(z) tr z + s''(z) (J a J')_ii`. Memory and time are linear in the dimension (in the
    number of columns, for a factor).
    """

    weights: list[Float[Array, "_ _"]]
    biases: list[Float[Array, " _"]]
    frame: Frame
    activation: AbstractActivation

    def judged_by(self) -> Callable[..., Any] | None:
        return None if activations.known_smooth(self.activation) else self.value

    def output_layer(self) -> tuple[Any, ...]:
        return self.weights[-1], self.biases[-1]

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        h = self.frame(x)
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = self.activation(w @ h + b)
        return jnp.dot(self.weights[-1][0], h) + self.biases[-1][0]

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.grad(self.value)(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        z = self.weights[0] @ self.frame(x) + self.biases[0]
        jacobian, form = form.seed(self.frame.slopes(self.weights[0]))
        jacobian = jacobian.T  # a row a direction: over all points this is one product of matrices
        if len(jacobian) > _COLUMNS and isinstance(form, Identity):
            return self._trace_in_blocks(z, jacobian)
        trace = jnp.zeros_like(z)
        for w, b in zip(self.weights[1:], self.biases[1:], strict=True):
            s, s1, s2 = self.activation.derivatives(z, 2)
            trace = w @ (s1 * trace + s2 * form.quadratic(jacobian.T))
            jacobian = (s1[None, :] * jacobian) @ w.T
            z = w @ s + b
        return trace[0]

    def _trace_in_blocks(self, z: Array, jacobian: Float[Array, "k n"]) -> Float[Array, ""]:
        """The same for many directions, of which only a block is carried at a time.

        `(J J')_ii` is a sum over directions, layer by layer.
        """
        derivatives = []
        for w, b in zip(self.weights[1:], self.biases[1:], strict=True):
            derivatives.append(self.activation.derivatives(z, 2))
            z = w @ derivatives[-1][0] + b

        def squares(block: Float[Array, "k n"]) -> list[Array]:
            found = []
            for w, (_, s1, _) in zip(self.weights[1:], derivatives, strict=True):
                found.append(jnp.sum(block * block, axis=0))
                block = (s1[None, :] * block) @ w.T
            return found

        whole = len(jacobian) // _COLUMNS
        blocks = jacobian[: whole * _COLUMNS].reshape(whole, _COLUMNS, -1)

        def add(total: list[Array], block: Array) -> tuple[list[Array], None]:
            return jax.tree.map(jnp.add, total, squares(block)), None

        rest = squares(jacobian[whole * _COLUMNS :])
        total, _ = jax.lax.scan(jax.checkpoint(add), rest, blocks)
        trace = jnp.zeros_like(total[0])
        for w, (_, s1, s2), square in zip(self.weights[1:], derivatives, total, strict=True):
            trace = w @ (s1 * trace + s2 * square)
        return trace[0]

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(jax.grad(self.value))(x)
