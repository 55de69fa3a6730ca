"""The names that a study's `--only` lists."""

from collections.abc import Iterable


def chosen_names(only: str | None, known: Iterable[str], kind: str) -> list[str]:
    """The names in `only`, which has commas between them, or all that are known; an unknown name raises."""
    known = list(known)
    names = known if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"There is no {kind} {name!r}. There are: {', '.join(known)}.")
    return names
