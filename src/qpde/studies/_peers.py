"""Peers for the speed benchmark: one training step of other codes on the survival problem.

All train `Q = S (1 - |x|^2)` on `1 - discount u + 1/2 Lap u = 0` in the unit ball: one hidden layer of
sigmoids, float32, Adam at a fixed rate, fresh uniform points in every step. A peer is a function
without arguments that does one step, drawing the points included, so that peers can be timed in turn.

Each docstring says where a peer departs from its model. All run on the processor, with PyTorch's default
number of threads. A waiting thread spins: on a machine that does anything else a step then takes ten
times as long. `OMP_WAIT_POLICY=PASSIVE`, set before Python starts, avoids that.
"""

import contextlib
import importlib
import importlib.metadata
import io
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# Neither number changes the cost of a step. `beta` is that of `presets.paper`.
_BETA, _RATE = 0.99, 0.01


def authors(
    dim: int, width: int, points: int, *, discount: float, dgm: bool, seed: int
) -> Callable[[], None]:
    """A step the way the paper's authors take it, in PyTorch, rewritten.

    Each coordinate is a column of its own, and the Laplacian is formed by two reverse passes per
    column. `dgm=False` is Q-learning: `L Q` is a number, `theta` moves along `E[L Q grad Q]`.
    `dgm=True` descends `E[(L Q)^2]`, differentiated through all passes.

    Unlike the published notebooks: one hidden layer (the paper's) where some have two; Adam (the
    paper's), not RMSprop; points drawn as one tensor, not gathered one by one from a reservoir;
    `|x|^2` as one sum; in Q-learning no graph of the second derivatives, and no gradient in the
    points on the way back. The last two were measured to change nothing in the time of a step.

    **Arguments**

    - `dim`, `width`, `points`: the dimension, hidden units, points per step.
    - `seed`: of the parameters and the points; PyTorch's global generator is left alone.

    **Returns** a function that does one step.
    """
    return _AuthorsStep(dim, width, points, discount=discount, dgm=dgm, seed=seed)


def deepxde(dim: int, width: int, points: int, *, discount: float, seed: int) -> Callable[[], None]:
    """A step of DeepXDE with its PyTorch backend.

    It is the body of DeepXDE's own training loop with `PDEPointResampler(period=1)`: an Adam step on
    `mean (L Q)^2`, then new points. Looking at the loss, testing and printing are left out. The
    boundary values are exact, by an output transform; derivatives are DeepXDE's default (reverse
    mode, a row of the Hessian per coordinate).

    The points are drawn with `"pseudo"`: the default, a Hammersley sequence, would draw the same
    ones again in every step. They come from NumPy's global generator, as always in DeepXDE; `seed`
    is that of the network only, and no global seed is set.

    **Returns** a function that does one step.
    """
    return _DeepXDEStep(dim, width, points, discount=discount, seed=seed)


def import_deepxde() -> tuple[Any, Any]:
    """DeepXDE with its PyTorch backend, and PyTorch."""
    return _deepxde(), _torch()


def versions() -> dict[str, str]:
    """The versions of the peers, and the number of threads that PyTorch uses."""
    torch = _torch()
    _deepxde()
    return {
        "torch": str(torch.__version__),
        "deepxde": importlib.metadata.version("deepxde"),
        "torch threads": str(torch.get_num_threads()),
    }


class _AuthorsStep:
    """See `authors`. `loss` is the mean of `(L Q)^2` over the points of the last step, before it moved."""

    def __init__(self, dim: int, width: int, points: int, *, discount: float, dgm: bool, seed: int):
        torch = self._torch = _torch()
        self._generator = torch.Generator().manual_seed(seed)
        self._dim, self._points = dim, points
        self._discount, self._dgm = discount, dgm
        self._factor = width**-_BETA
        self.c = (2.0 * self._random("rand", 1, width) - 1.0).requires_grad_()
        self.w = self._random("randn", width, dim).requires_grad_()
        self.b = self._random("randn", width).requires_grad_()
        self.parameters = [self.c, self.w, self.b]
        self._adam = torch.optim.Adam(self.parameters, lr=_RATE)
        self.loss = float("nan")

    def __call__(self) -> None:
        self._adam.zero_grad()
        self.backward(self.sample())
        self._adam.step()

    def sample(self) -> Any:
        """Uniform points in the ball, `(points, dim)`."""
        direction = self._torch.nn.functional.normalize(
            self._random("randn", self._points, self._dim)
        )
        return direction * self._random("rand", self._points, 1) ** (1.0 / self._dim)

    def backward(self, x: Any) -> None:
        """Put the direction that Adam descends into the parameters' `grad`."""
        columns = [column.clone().requires_grad_() for column in x.split(1, dim=1)]
        q = self._trial(self._torch.cat(columns, dim=1))
        ones = self._torch.ones_like(q)
        laplacian = 0.0
        for column in columns:
            first = self._grad(q, column, ones, create_graph=True)
            # Q-learning needs the second derivative as a number only, yet the graph of Q again.
            second = self._grad(first, column, ones, retain_graph=True, create_graph=self._dgm)
            laplacian = laplacian + second
        residual = 1.0 - self._discount * q + 0.5 * laplacian
        number = residual.detach()
        objective = residual.square().mean() if self._dgm else -(number * q).mean()
        objective.backward(inputs=self.parameters)
        self.loss = float(number.square().mean())

    def _trial(self, x: Any) -> Any:
        linear = self._torch.nn.functional.linear
        hidden = self._torch.sigmoid(linear(x, self.w, self.b))
        eta = 1.0 - x.square().sum(dim=1, keepdim=True)
        return self._factor * linear(hidden, self.c) * eta

    def _grad(self, outputs: Any, inputs: Any, weights: Any, **graph: bool) -> Any:
        return self._torch.autograd.grad(outputs, inputs, weights, **graph)[0]

    def _random(self, law: str, *shape: int) -> Any:
        draw = getattr(self._torch, law)
        return draw(*shape, generator=self._generator, dtype=self._torch.float32, device="cpu")


class _DeepXDEStep:
    """See `deepxde`."""

    def __init__(self, dim: int, width: int, points: int, *, discount: float, seed: int):
        torch, dde = _torch(), _deepxde()

        def equation(x: Any, u: Any) -> Any:
            laplacian = sum(dde.grad.hessian(u, x, i=i, j=i) for i in range(dim))
            return 1.0 - discount * u + 0.5 * laplacian

        ball = dde.geometry.Interval(-1, 1) if dim == 1 else dde.geometry.Hypersphere([0] * dim, 1)
        # DeepXDE draws weights from PyTorch's global generator: a fork keeps the caller's state.
        with silence(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.data = dde.data.PDE(
                ball, equation, [], num_domain=points, train_distribution="pseudo"
            )
            network = dde.nn.FNN([dim, width, 1], "sigmoid", "Glorot uniform")
            network.apply_output_transform(lambda x, s: s * (1.0 - (x * x).sum(1, keepdim=True)))
            self.model = dde.Model(self.data, network)
            self.model.compile("adam", lr=_RATE)

    def __call__(self) -> None:
        self.model.train_step(*self.data.train_next_batch())
        self.data.resample_train_points(pde_points=True, bc_points=False)


def _torch() -> Any:
    with _extra():
        return importlib.import_module("torch")


def _deepxde() -> Any:
    """DeepXDE with PyTorch; its messages are swallowed, its changes to PyTorch undone."""
    torch = _torch()
    device, chosen = torch.get_default_device(), os.environ.get("DDE_BACKEND")
    os.environ["DDE_BACKEND"] = "pytorch"
    try:
        with _extra(), silence():
            dde: Any = importlib.import_module("deepxde")
    finally:
        if chosen is None:
            del os.environ["DDE_BACKEND"]
        else:
            os.environ["DDE_BACKEND"] = chosen
        # DeepXDE makes an accelerator PyTorch's default device. The default is set back only then: once a
        # default was set, even to the processor, every call of PyTorch takes longer.
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
    if dde.backend.backend_name != "pytorch":
        raise ValueError(
            f"DeepXDE was imported before with its {dde.backend.backend_name} backend; the benchmark "
            "needs pytorch. Start a new process, or set DDE_BACKEND=pytorch before the import."
        )
    return dde


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Tell which extra to install where a module is missing."""
    try:
        yield
    except ModuleNotFoundError:
        raise ValueError("The peers need the extra: pip install 'qpde[bench]'.") from None


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Swallow the output and the warnings of DeepXDE."""
    sink = io.StringIO()
    with (
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
