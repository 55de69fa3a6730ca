"""How a problem of the zoo was built, kept in it as text."""

import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from .._problem.problem import Problem


def recorded(build: Callable[..., Problem]) -> Callable[..., Problem]:
    """Note in a problem how it was built, so that a file can build it again."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def note(*args: Any, **options: Any) -> Problem:
        problem = build(*args, **options)
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        settings = {name: np.asarray(value).tolist() for name, value in bound.arguments.items()}
        recipe = {"problem": build.__name__, "dim": settings.pop("dim"), "settings": settings}
        return problem.with_recipe(json.dumps(recipe))

    return note
