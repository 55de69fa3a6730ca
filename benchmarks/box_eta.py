"""Root mean squares of eta, its gradient and its Laplacian on the unit box, d = 1 ... 100.

    python benchmarks/box_eta.py

`product` is the plain product of parabolas, for comparison. Its exact rms is (8/15)^(d/2), 2e-14 at
d = 100; rare points carry it, so that 20,000 of them show even less.
"""

import jax
import jax.numpy as jnp
import jax.random as jr

import qpde
from qpde._domain.eta import Faces
from qpde._field.base import AbstractField
from qpde._field.form import Identity

POINTS = 20_000


def rms(eta: AbstractField, points: jax.Array) -> tuple[float, float, float]:
    """Root mean squares of value, gradient norm and Laplacian."""

    def at(x: jax.Array) -> jax.Array:
        grad = eta.grad(x)
        laplacian = eta.trace(x, Identity())
        return jnp.stack([eta.value(x) ** 2, jnp.dot(grad, grad), laplacian**2])

    value, grad, laplacian = jnp.sqrt(jnp.mean(jax.vmap(at)(points), axis=0))
    return float(value), float(grad), float(laplacian)


def main() -> None:
    """Print the table."""
    print("  d |      eta   |grad|    |Lap| |  product   |grad|    |Lap|")
    with jax.enable_x64(True):
        for dim in (1, 2, 3, 5, 8, 9, 10, 16, 20, 30, 50, 75, 100):
            box = qpde.Box(0.0, 1.0, dim=dim)
            points = box.sample(jr.key(0), POINTS)
            plain = Faces(box.centre, 0.5 * (box.upper - box.lower), 1)
            row = (*rms(box.eta, points), *rms(plain, points))
            cells = [f"{value:8.2e}" for value in row]
            print(f"{dim:3d} | {' '.join(cells[:3])} | {' '.join(cells[3:])}")


if __name__ == "__main__":
    main()
