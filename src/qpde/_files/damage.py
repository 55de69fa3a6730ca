"""Files that are not as they were written: one exception, and the schemas that content must fit."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any


class DamagedFile(ValueError):
    """A file is cut short, altered, or holds something else than its kind of file holds.

    `path` is the file, `why` the reason in words. Nothing of such a file is used.
    """

    def __init__(self, path: str | Path, why: str):
        super().__init__(f"{path} is damaged{why}")
        self.path, self.why = Path(path), why.lstrip(":, ")


class Misfit(ValueError):
    """A value does not fit its schema; whoever knows the file makes a `DamagedFile` of it."""


class Fits:
    """A condition of one's own in a schema, with words for what it expects."""

    def __init__(self, words: str, test: Callable[[Any], bool]):
        self.words, self.test = words, test


COUNT = Fits("a whole number, not negative", lambda v: _is_int(v) and 0 <= v < 2**63)
SECONDS = Fits(
    "a finite number, not negative",
    lambda v: isinstance(v, float) and v >= 0 and math.isfinite(v),
)
ANYTHING = Fits("anything", lambda v: True)
FLOAT = Fits("a number with a fraction", lambda v: isinstance(v, float))
NUMBER = Fits("a number", lambda v: _is_number(v))
RUN_ID = Fits(
    "32 hexadecimal digits",
    lambda v: isinstance(v, str) and len(v) == 32 and set(v) <= set("0123456789abcdef"),
)
SHA256 = Fits(
    "64 hexadecimal digits",
    lambda v: isinstance(v, str) and len(v) == 64 and set(v) <= set("0123456789abcdef"),
)


def one_of(*words: str) -> Fits:
    """One of the given strings."""
    return Fits(f"one of {', '.join(words)}", lambda v: isinstance(v, str) and v in words)


def check_schema(value: Any, schema: Any, place: str) -> None:
    """Raise `Misfit` unless a plain value has exactly the form of a schema.

    A schema is a type, None, a `Fits`, a tuple of alternatives, a list `[schema of its items]`, or a dict of
    schemas by key, whose keys are all there and no others; a key that ends in "?" may be missing, and
    the key "*" stands for any keys.
    """
    if isinstance(schema, tuple):
        if not any(fits(value, one) for one in schema):
            raise Misfit(f"{place} is {_shown(value)}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise Misfit(f"{place} is {_shown(value)}, not a list")
        for i, item in enumerate(value):
            check_schema(item, schema[0], f"{place}[{i}]")
    elif isinstance(schema, dict):
        _check_keys(value, schema, place)
    elif schema is None:
        if value is not None:
            raise Misfit(f"{place} is {_shown(value)}, not null")
    elif isinstance(schema, Fits):
        if not schema.test(value):
            raise Misfit(f"{place} is {_shown(value)}, not {schema.words}")
    elif type(value) is not schema:
        raise Misfit(f"{place} is {_shown(value)}, not of type {schema.__name__}")


def _check_keys(value: Any, schema: dict[str, Any], place: str) -> None:
    if not isinstance(value, dict):
        raise Misfit(f"{place} is {_shown(value)}, not an object")
    if "*" in schema:
        for key, item in value.items():
            check_schema(item, schema["*"], f"{place}.{_short(key)}")
        return
    known = {key.rstrip("?"): one for key, one in schema.items()}
    missing = sorted({key for key in schema if not key.endswith("?")} - value.keys())
    unknown = sorted(value.keys() - known.keys())
    if missing or unknown:
        gap = f"lacks {missing[0]!r}" if missing else f"has an unknown key {_short(unknown[0])!r}"
        raise Misfit(f"{place} {gap}")
    for key, item in value.items():
        check_schema(item, known[key], f"{place}.{key}")


def fits(value: Any, schema: Any) -> bool:
    """Whether a plain value has the form of a schema."""
    try:
        check_schema(value, schema, "")
    except Misfit:
        return False
    return True


def parse_json(text: str | bytes) -> Any:
    """JSON in which no key stands twice; raises `Misfit` for everything that is none."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Misfit("a key stands twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise Misfit("it is nested too deeply") from None
    except Misfit:
        raise
    except ValueError as error:
        raise Misfit(f"not JSON: {error}") from None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (_is_int(value) and abs(value) < 2**63)


def _shown(value: Any) -> str:
    return _short(json.dumps(value))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
