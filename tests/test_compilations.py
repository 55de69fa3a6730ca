"""Programs are compiled once: a second call with another problem of the same shape compiles nothing.

Problems of the zoo hold their numbers as arrays, so that two of them differ in numbers only.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import zoo
from qpde._precision import x64
from qpde._program.interval import enclose
from qpde._program.program import lifted

QUICK: dict[str, Any] = {"network": qpde.Shallow(8), "batch": 64, "steps": 5, "progress": False}


@pytest.fixture(scope="module")
def counted() -> Iterator[Callable[[Callable[[], Any]], int]]:
    """How many programs a call hands to the compiler."""
    seen: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    def count(call: Callable[[], Any]) -> int:
        seen.clear()
        call()
        return len(seen)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield count
    jax.monitoring.unregister_event_duration_listener(note)


def pair(build: Callable[[float], qpde.Problem]) -> list[qpde.Solution]:
    return [qpde.solve(build(number), **QUICK) for number in (0.2, 0.35)]


CALLS = {
    "certify": lambda s: qpde.certify(s),
    "certify sup": lambda s: qpde.certify(s, norm="sup"),
    "certify rigorous": lambda s: qpde.certify(s, rigorous=True),
    "monotonicity": lambda s: qpde.monotonicity(s.problem),
    "explain": lambda s: qpde.explain(s.problem),
    "feynman_kac": lambda s: qpde.feynman_kac(s, np.zeros((1, 2)), walks=16, progress=False),
    "score": lambda s: s.score,
    "solve": lambda s: qpde.solve(s.problem, **QUICK),
}


@pytest.fixture(scope="module")
def solutions() -> list[qpde.Solution]:
    return pair(lambda discount: zoo.survival(2, discount=discount))


@pytest.mark.parametrize("name", CALLS)
def test_a_second_problem_of_the_same_shape_compiles_nothing(name, solutions, counted):
    call = CALLS[name]
    first, second = solutions
    assert counted(lambda: call(first)) > 0 or name in ("solve", "monotonicity", "certify rigorous")
    assert counted(lambda: call(second)) == 0


def test_another_problem_is_compiled_where_it_must_be(counted):
    """The count is not zero because nothing is counted."""
    with x64():
        assert counted(lambda: jax.jit(lambda x: x * 3.0 + 1.0)(jnp.ones(3))) > 0
    other = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian - u.value + 1)
    assert counted(lambda: qpde.monotonicity(other)) > 0


def test_programs_that_differ_in_numbers_share_their_bounds_and_no_more():
    with x64():

        def make(a: float, b: Any) -> Callable[[Any], Any]:
            table = np.array([b, 2.0])
            return lambda x: jnp.sum(a * x * table + jnp.where(x > b, a, b)) ** 2

        one, two = (jax.make_jaxpr(make(*n))(jnp.zeros(2)) for n in ((0.5, 1.0), (3.0, -1.0)))
        (first, numbers), (second, others) = lifted(one), lifted(two)
        assert first == second
        assert hash(first) == hash(second)
        assert [np.shape(n) for n in numbers] == [np.shape(n) for n in others]
        wider, _ = lifted(jax.make_jaxpr(make(0.5, 1.0))(jnp.zeros(3)[:2] + 0))
        cubed, _ = lifted(jax.make_jaxpr(lambda x: make(0.5, 1.0)(x) ** 3)(jnp.zeros(2)))
        assert first != cubed
        assert first == wider
        # The second function reuses the program of the first: its bounds must be its own.
        box = (np.array([-1.0, 0.5]), np.array([2.0, 3.0]))
        rng = np.random.default_rng(0)
        points = box[0] + (box[1] - box[0]) * rng.random((2_000, 2))
        for number in ((0.5, 1.0), (3.0, -1.0), (-2.0, 0.25)):
            (span,) = enclose(make(*number), box)
            values = np.array([float(make(*number)(x)) for x in points[:300]])
            assert span.low <= values.min() <= values.max() <= span.high
            assert span.high - span.low < 1e4
