"""Programs as identities: what a function computes, in a form that another process can compare.

The structure of a program is text: operations, their settings, kinds and shapes. Its numbers, literals and
constants, stand beside the text, because another machine may round those that were computed differently.
"""

import dataclasses
import enum
import functools
import hashlib
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .calls import has_rule

# Settings of operations that name things or guide the compiler, and change no value.
_NAMES = frozenset(
    ("name", "inline", "keep_unused", "sharding", "ctx_mesh", "compiler_options_kvs")
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Impure(ValueError):
    """A function gives another program each time it is traced."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """A program: the SHA-256 of its structure, the numbers written into it, those that it closes over."""

    structure: str
    literals: np.ndarray
    constants: np.ndarray
    opaque: bool = (
        False  # some of it is Python code, such as a derivative rule, which may close over more
    )

    @property
    def numbers(self) -> np.ndarray:
        """All floating-point numbers of the program."""
        return np.concatenate([self.literals, self.constants])

    @property
    def digest(self) -> str:
        """Structure and numbers to the last bit, in 64 letters."""
        text = f"{self.structure} {self.literals.size} {self.constants.size} "
        return hashlib.sha256(text.encode() + self.numbers.tobytes()).hexdigest()


def identity_of(function: Callable[..., Any], *arguments: Any) -> Identity:
    """The program that a function of these arguments (arrays, or their shapes) computes."""

    # A new function each time: JAX remembers the programs of functions that it has traced.
    def fresh(*given: Any) -> Any:
        return jax.tree.map(jnp.asarray, function(*given))

    return _read(jax.make_jaxpr(fresh)(*arguments))


def pure_identity(what: str, function: Callable[..., Any], *arguments: Any) -> Identity:
    """The program of a function, traced twice; raises `Impure` where the two differ."""
    first, second = (identity_of(function, *arguments) for _ in range(2))
    if first.digest == second.digest:
        return first
    gap = "another program"
    if first.structure == second.structure and first.numbers.shape == second.numbers.shape:
        place = int(np.argmax(first.numbers != second.numbers))
        gap = f"the number {second.numbers[place]:.6g} in place of {first.numbers[place]:.6g}"
    raise Impure(
        f"{what} is not the same function each time it is called: the second call gave {gap}. It must not "
        "count its calls, draw random numbers (np.random, random) or read a clock; draw such numbers once, "
        "outside the function."
    )


class _Reader:
    """Walks through a program and notes its structure as text and its numbers."""

    def __init__(self) -> None:
        self.text = hashlib.sha256()
        self.literals: list[np.ndarray] = []
        self.constants: list[np.ndarray] = []
        self.opaque = False

    def note(self, *words: Any) -> None:
        for word in words:
            self.text.update(f"{word}\n".encode())

    def number(self, value: Any, target: list[np.ndarray]) -> None:
        """Floating-point numbers stand beside the text, all others in it."""
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self.note(array.dtype, array.shape)
        if jnp.issubdtype(array.dtype, jnp.floating):
            target.append(array.astype(np.float64).ravel())
        else:
            self.text.update(array.tobytes())

    def closed(self, program: ClosedJaxpr) -> None:
        self.note("constants", len(program.consts))
        for constant in program.consts:
            self.number(constant, self.constants)
        self.program(program.jaxpr)

    def program(self, program: Jaxpr) -> None:
        order: dict[Any, int] = {}

        def name(atom: Any) -> None:
            if isinstance(atom, Literal):
                self.note("literal")
                self.number(atom.val, self.literals)
            else:
                self.note(order.setdefault(atom, len(order)), atom.aval)

        for atom in (*program.constvars, *program.invars):
            name(atom)
        for line in program.eqns:
            self.note(line.primitive.name)
            self.opaque |= has_rule(line) or "callback" in line.primitive.name
            for key, value in sorted(line.params.items()):
                if key not in _NAMES:
                    self.note(key)
                    self.setting(value)
            for atom in (*line.invars, *line.outvars):
                name(atom)
        self.note("results")
        for atom in program.outvars:
            name(atom)

    def setting(self, value: Any) -> None:
        if isinstance(value, ClosedJaxpr):
            self.closed(value)
        elif isinstance(value, Jaxpr):
            self.program(value)
        elif isinstance(value, dict):
            for key, item in sorted(value.items(), key=str):
                self.note(key)
                self.setting(item)
        elif isinstance(value, tuple | list):
            self.note(type(value).__name__, len(value))
            for item in value:
                self.setting(item)
        elif isinstance(value, np.ndarray | jax.Array):
            self.number(value, self.constants)
        elif isinstance(value, enum.Enum | str | int | float | bytes | type(None)):
            self.note(repr(value))
        elif isinstance(value, functools.partial):
            self.setting((value.func, value.args, value.keywords))
        elif callable(value) or callable(getattr(value, "f", None)):
            self.opaque = True
            self.note(code_of(value))
        else:
            self.note(_ADDRESS.sub("", repr(value)))


def _read(program: ClosedJaxpr) -> Identity:
    reader = _Reader()
    reader.closed(program)
    none = np.zeros(0)
    return Identity(
        reader.text.hexdigest(),
        np.concatenate([none, *reader.literals]),
        np.concatenate([none, *reader.constants]),
        reader.opaque,
    )


def code_of(function: Any) -> str:
    """A function by its name and what it does, without where its file lies."""
    inner = getattr(function, "f", None)  # JAX wraps the derivative rules of functions
    if inner is not None and callable(inner):
        function = inner
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return _ADDRESS.sub("", name + _code(getattr(function, "__code__", None)))


def _code(code: Any) -> str:
    if code is None:
        return ""
    consts = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code}{code.co_names}{consts}"
