"""Arguments: one layer that answers nonsense with a sentence, before anything is computed with it.

Each function takes the name of the argument for its sentence, and returns the checked value as objects
hold it: numbers as NumPy float64 arrays, counts and flags as Python's own.
"""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing import Never as Nothing
else:
    # `**unknown: Nothing` collects arguments that do not exist, for `no_others` to answer; type checkers
    # refuse them, as they would without it.
    Nothing = Any

# Whole numbers that programs count with have 32 bits.
MOST = 2**31 - 1


def shown(value: Any) -> str:
    """A value for a sentence: never longer than a line, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "an integer of more than 30 digits"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    try:
        text = repr(value)
    except Exception as error:  # the object's own words may fail, and it is refused in any case
        text = f"{type(value).__name__} (its repr raises {type(error).__name__})"
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}..."


def reals(name: str, value: Any, expected: str = "a number or an array of numbers") -> np.ndarray:
    """Real, finite numbers as a float64 array of any shape."""
    try:
        plain = np.asarray(value)
        wrong = plain.dtype.kind in "cbSUmMV" or value is None
        array = None if wrong else np.asarray(plain, np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError):
        array = None
    if array is None or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be {expected}, real and finite, got {shown(value)}.")
    return array


def real(
    name: str,
    value: Any,
    *,
    least: float = -np.inf,
    most: float = np.inf,
    above: float = -np.inf,
) -> np.ndarray:
    """One real, finite number in a range, as a float64 array of shape ()."""
    expected = "a number"
    if above == 0:
        expected = "a positive number"
    elif (least, most) == (0, np.inf):
        expected = "a number, not negative"
    elif np.isfinite(least) and np.isfinite(most):
        expected = f"a number between {least:g} and {most:g}"
    elif np.isfinite(least):
        expected = f"a number from {least:g} up"
    array = reals(name, value, expected)
    if array.shape != () or not (least <= array <= most and array > above):
        raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
    return array


def whole(name: str, value: Any, *, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    small = most < MOST
    if not good or value < least or (small and value > most):
        expected = ", not negative," if least == 0 else f", from {least} up,"
        expected = f" from {least} to {most:,}," if small else expected
        raise ValueError(f"{name} must be a whole number{expected} got {shown(value)}.")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {shown(value)}.")
    return int(value)


def a_seed(value: Any) -> int:
    """A seed: a whole number below 2^63, as JAX takes them."""
    if isinstance(value, int | np.integer) and value >= 2**63:
        raise ValueError(f"seed must be less than 2^63, got {shown(value)}.")
    return whole("seed", value, most=2**63)


def a_range(name: str, value: Any) -> tuple[float, float]:
    """Two finite numbers, the smaller first."""
    pair = reals(name, value, "(low, high) with low < high")
    if pair.shape != (2,) or not pair[0] < pair[1]:
        raise ValueError(f"{name} is (low, high) with finite low < high, got {shown(value)}.")
    return float(pair[0]), float(pair[1])


def one_of(name: str, value: Any, words: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in words:
        listed = " or ".join(f'"{word}"' for word in words)
        raise ValueError(f"{name} is {listed}, got {shown(value)}.")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def an_instance(name: str, value: Any, kind: type, example: str) -> Any:
    """An object of a kind; a class in its place gets the cure."""
    if inspect.isclass(value) and issubclass(value, kind):
        raise ValueError(
            f"{name} must be an object such as {example}, got the class {value.__name__} itself. Call it: "
            f"{example}."
        )
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be an object such as {example}, got {shown(value)}.")
    return value


def a_function(name: str, value: Any, expected: str) -> Any:
    """A callable that is no class."""
    if not callable(value) or inspect.isclass(value):
        raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
    return value


def no_others(where: str, unknown: dict[str, Any], known: str) -> None:
    """Refuse arguments that do not exist; some get the cure."""
    for name in unknown:
        cure = f"It takes {known}."
        if name in ("optimizer", "optimiser"):
            rule = "rule=qpde.QLearning(optimiser=optax.adam(0.01))"
            cure = "Write optimiser=." if "optimiser" in known else f"It belongs to a rule: {rule}."
        if name in ("lr", "learning_rate"):
            cure = "The learning rate belongs to a rule: rule=qpde.QLearning(0.01)."
        if name in ("epochs", "iterations", "n_iter"):
            cure = "Write steps=."
        raise TypeError(f"{where} has no argument {name!r}. {cure}")
