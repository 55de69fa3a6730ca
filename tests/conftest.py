"""What all tests share: a quick compiler, a cache of its programs, checked shapes, solutions made once.

Most of the suite's time is compilation. Tests therefore choose how thoroughly programs are compiled, and keep
them in `.pytest_cache/jax` for the other worker, for the commands that tests start and for the next run.
`XLA_FLAGS= pytest` runs with the compiler that users have, as `make test-slow` does.
"""

import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / ".pytest_cache"
# Read by XLA, OpenBLAS and JAX when they start; commands in processes of their own inherit it.
ENVIRONMENT = {
    # The older way to write loops: as fast, and half the time to compile (measured on JAX 0.10.2).
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false",
    # Workers share the cores: threads that factorise a small matrix wait for each other, up to ten
    # times as long as one thread takes.
    "OPENBLAS_NUM_THREADS": "1",
    # JAX's own cache, not ours: an entry outlives changes of the source that do not touch its program.
    "JAX_COMPILATION_CACHE_DIR": str(KEPT / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "QPDE_CACHE": "off",
    "XDG_STATE_HOME": str(KEPT / "state"),
}
for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)

import jax  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

# Shapes are checked at run time and implicit rank promotion raises, in tests only.
jax.config.update("jax_numpy_rank_promotion", "raise")
with install_import_hook("qpde", "beartype.beartype"):
    import qpde
    from qpde._problem import score
    from qpde._solve import sizes, spot, stages, verdict
    from qpde._trust import residual

import small_runs  # noqa: E402

QUICK = os.environ["XLA_FLAGS"] != ""
if QUICK:
    small_runs.install()
    residual.CELLS.update({2: 96, 3: 16})  # of 192 and 32 an axis: bounds are a little wider
    score._POINTS = 20_000  # of 100,000: the noise of a score is still below 1 %
    # Every solve ends with a verdict, which compiles programs of its own: for tests that ask for `judged`,
    # and with walks and certificates for those that ask for `thorough`.
    sizes._POINTS, spot._WALKS, verdict._CERTIFIED = 256, 0, 0
    UNKNOWN = qpde.Verdict(qpde.Word.ROUGHLY, "not looked at", ())
    # Networks of fixed units compile programs of their own: for tests that ask for `growing`.
    stages.GROWS = False
    stages.verdict_of = lambda solution: UNKNOWN

# Programs are many small objects that live long: to look for dead ones took a twentieth of the time.
gc.set_threshold(100_000, 20, 100)

SMALL: dict[str, Any] = {"network": qpde.Shallow(16), "batch": 128, "steps": 300, "progress": False}
# Solutions that several files look at.
SOLVED: dict[str, Callable[[], qpde.Solution]] = {
    "ball": lambda: qpde.solve(qpde.zoo.survival(3), **SMALL),
    "ball in float64": lambda: qpde.solve(qpde.zoo.survival(3), precision="float64", **SMALL),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the variants of a test marked `daily("a", "b")` a and b are daily, the others slow; of one marked
    `daily(every=3)` every third of those that are not slow anyway.
    """
    seen: dict[str, int] = {}
    kept: dict[str, bool] = {}
    for item in items:
        chosen = item.get_closest_marker("daily")
        if chosen is None or item.get_closest_marker("slow") is not None:
            continue
        name, _, variant = item.nodeid.partition("[")
        number = seen[name] = seen.get(name, -1) + 1
        daily = variant[:-1] in chosen.args if chosen.args else number % chosen.kwargs["every"] == 0
        kept[name] = kept.get(name, False) or daily
        if not daily:
            item.add_marker(pytest.mark.slow)
    lost = [name for name, any_left in kept.items() if not any_left]
    if lost and not any("::" in word for word in config.args):
        raise pytest.UsageError(f"{lost[0]}: no variant has a name that its mark `daily` gives.")


@pytest.fixture(scope="session")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], qpde.Solution]:
    """Solutions by name, each solved by the first worker that asks and read from its file by the others."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # which the workers of a run share

    def get(name: str) -> qpde.Solution:
        file = base / f"{name}.safetensors"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                qpde.save(SOLVED[name](), file)
        return qpde.load(file)

    return get


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default tries networks of fixed units too, as it does for users."""
    monkeypatch.setattr(stages, "GROWS", True)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """`solve` ends with a verdict, as it does for users."""
    monkeypatch.setattr(stages, "verdict_of", verdict.verdict_of)


@pytest.fixture
def thorough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts with everything that users get: walks and certificates."""
    monkeypatch.setattr(sizes, "_POINTS", 2_048)
    monkeypatch.setattr(spot, "_WALKS", 8)
    monkeypatch.setattr(verdict, "_CERTIFIED", 200)


@pytest.fixture(scope="module", autouse=True)
def _programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Programs of a file, and of commands that it starts, are compiled quickly unless it `trains`.

    They are dropped after it: kept, they would fill gigabytes. The disk has them.
    """
    trains = request.node.get_closest_marker("trains") is not None
    quick = QUICK and not trains
    jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(quick)
    yield
    jax.clear_caches()
