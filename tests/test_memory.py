"""Memory: equations in a loop do not grow, and a sweep over a parameter compiles once.

`pytest -m slow tests/test_memory.py -s` prints the numbers.
"""

import gc
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._precision import x64
from qpde._train import memory

SMALL: dict[str, Any] = {
    "network": qpde.Shallow(4),
    "batch": 8,
    "steps": 2,
    "progress": False,
    "throw": False,
}


class Compiled:
    """Notes the programs that JAX compiles, or reads from its cache, while it is open."""

    def __enter__(self):
        # A run that was ended may have left a thread that still compiles what would have come next.
        for thread in threading.enumerate():
            if thread.name == "qpde compiles":
                thread.join()
        self.names, self.open = list[str](), True
        jax.monitoring.register_event_duration_secs_listener(self.note)
        return self

    def note(self, event, *_, **about):
        if self.open and event == "/jax/core/compile/backend_compile_duration":
            self.names.append(str(about.get("fun_name")))

    def __exit__(self, *_):
        self.open = False  # JAX has no public way to forget a listener


def swept(k, **more):
    """A problem with a parameter in all its functions; lambdas of its own each time."""
    return qpde.Problem(
        qpde.Ball(2),
        lambda x, u, k: u.laplacian - k * u.value,
        boundary=lambda x, k: k * x[0],
        exact=lambda x, k: k * x[0],
        parameters={"k": k},
        **more,
    )


def test_a_sweep_over_a_parameter_compiles_once():
    memory._seen.clear()  # or the programs of earlier tests are forgotten in the middle, and these too
    with Compiled() as compiled:
        first = qpde.solve(swept(1.0), **SMALL)
        first(np.zeros((1, 2)))
    assert compiled.names
    with Compiled() as compiled:
        solutions = [qpde.solve(swept(k), **SMALL) for k in (2.0, 3.5, -1.0)]
        values = [solution(np.array([[0.6, 0.8]]))[0] for solution in solutions]
    assert compiled.names == []
    # On the boundary a solution has the values of the boundary function, with its own parameter.
    np.testing.assert_allclose(values, [1.2, 2.1, -0.6], rtol=1e-6)


def test_parameters_enter_the_equation_as_the_closure_would():
    with_parameter = qpde.solve(swept(3.0), **SMALL)
    closed = qpde.Problem(
        qpde.Ball(2), lambda x, u: u.laplacian - 3.0 * u.value, boundary=lambda x: 3.0 * x[0]
    )
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 2))
    plain = qpde.solve(closed, **SMALL)
    np.testing.assert_allclose(with_parameter.residual(x), plain.residual(x), rtol=1e-4, atol=1e-5)
    constants = [
        qpde.monotonicity(problem, value_range=(0.0, 1.0)).constant
        for problem in (swept(3.0), closed)
    ]
    assert constants[0] == pytest.approx(constants[1])


def test_parameters_may_be_arrays_and_belong_to_the_identity_of_a_problem(tmp_path):
    def tilted(v):
        return qpde.Problem(
            qpde.Ball(2),
            lambda x, u, v: u.laplacian + jnp.dot(v, u.grad) + 1.0,
            parameters={"v": v},
        )

    solution = qpde.solve(tilted([1.0, 2.0]), **dict(SMALL, steps=0))
    qpde.save(solution, tmp_path / "a.safetensors")
    qpde.load(tmp_path / "a.safetensors", problem=tilted([1.0, 2.0]))
    with pytest.raises(ValueError, match="the equation differs"):
        qpde.load(tmp_path / "a.safetensors", problem=tilted([1.0, 2.5]))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"c": 1.0}, "No function takes the parameter 'c'. Parameters come last, by name"),
        ({"x": 1.0}, "No function takes the parameter 'x'"),
        ({"k": None}, "The parameter k must be"),
        ({"k": 1j}, "The parameter k must be"),
        ({"k": float("nan")}, "must be real and finite"),
        ({3: 1.0}, "A parameter's name is a name in Python, got 3"),
        ([1.0], 'parameters is a dict such as {"k": 3.0}, got list'),
    ],
)
def test_wrong_parameters(parameters, words):
    def equation(x, u, k=1.0):
        return k * u.laplacian

    with pytest.raises(ValueError, match=words):
        qpde.Problem(qpde.Ball(2), equation, parameters=parameters)


def test_a_lambda_made_anew_is_the_same_function():
    def problem(k):
        return qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + k)

    with x64():
        assert problem(1.0).equation == problem(1.0).equation
        assert problem(1.0).equation != problem(2.0).equation
    # A derivative rule is Python code, which may close over anything: such functions are only themselves.

    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda given, tangent: (given[0] ** 2, 2 * given[0] * tangent[0]))
    pair = [qpde.Problem(qpde.Ball(2), lambda x, u: square(x[0]) + u.laplacian) for _ in range(2)]
    assert pair[0].equation != pair[1].equation


def test_programs_are_forgotten_when_there_are_too_many(monkeypatch):
    cleared = []
    monkeypatch.setattr(memory, "_forget", lambda: cleared.append(len(memory._seen)))
    monkeypatch.setattr(memory, "_seen", set())
    problems = [qpde.zoo.survival(2), qpde.zoo.survival(2, discount=0.5)]
    problems += [
        qpde.Problem(qpde.Ball(2), lambda x, u, k=k: u.laplacian + k) for k in range(memory.LIMIT)
    ]
    for _ in range(5):
        memory.make_room(problems[0])
    for problem in problems:
        memory.make_room(problem)
    assert cleared == [1]


def test_a_users_own_programs_stay():
    @jax.jit
    def own(x):
        return 2.0 * x

    own(1.0)
    solution = qpde.solve(qpde.zoo.survival(2), **SMALL)
    solution(np.zeros((1, 2)))
    memory._forget()
    with Compiled() as compiled:
        own(2.0)
    assert compiled.names == []
    with Compiled() as compiled:
        solution(np.zeros((1, 2)))
    assert compiled.names


def resident():
    """Megabytes of memory that this process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["the same", "new numbers"])
def test_two_hundred_fresh_lambdas(kind):
    """At most 1 MB each after the first ten; with new numbers each compiles, and is forgotten again."""
    count, sizes = 200, []
    for i in range(count):
        k = 1.0 if kind == "the same" else 1.0 + i
        problem = qpde.Problem(qpde.Ball(2), lambda x, u, k=k: u.laplacian + k)
        qpde.solve(problem, **SMALL)
        sizes.append(resident())
    # Forgetting comes in waves: the level is the largest of one.
    wave = 2 * memory.LIMIT
    growth = (max(sizes[-wave:]) - max(sizes[10 : 10 + wave])) / (count - 10 - wave)
    print(f"\n{kind}: {sizes[0]:.0f} MB first, {sizes[10]:.0f} after ten, {sizes[-1]:.0f} last")
    print(f"{growth:.3f} MB a solve; largest {max(sizes):.0f} MB")
    assert growth < 1.0


@pytest.mark.slow
def test_a_sweep_of_fifty():
    qpde.solve(swept(1.0), **SMALL)
    with Compiled() as compiled:
        for k in np.linspace(1.0, 3.0, 50):
            qpde.solve(swept(float(k)), **SMALL)
    print(f"\na sweep of 50 values: {len(compiled.names)} programs compiled after the first")
    assert compiled.names == []
