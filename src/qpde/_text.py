"""Names that users choose are text: one sanitiser for terminals, pages, figures and tables.

A name may hold anything. Where it is shown it must neither move a cursor, nor become a link or a formula, nor
run in a spreadsheet.
"""

import html
import unicodedata
from typing import Any

# Characters that turn the direction of writing, or cannot be seen: they make one text look like another.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
LONGEST = 200


def for_terminal(text: Any) -> str:
    """Text in which control characters are written out, such as `\\x1b`."""
    return "".join(
        c if unicodedata.category(c) not in _HIDDEN else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def for_name(text: Any) -> str:
    """A name for one line: as `for_terminal`, and no longer than a line can be."""
    shown = for_terminal(text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."


def for_html(text: Any) -> str:
    """Text as HTML that shows it and does nothing else."""
    return html.escape(for_terminal(text), quote=True)


def for_figure(text: Any) -> str:
    """Text for matplotlib, which takes what stands between dollars for a formula."""
    return for_name(text).replace("$", r"\$")


def for_csv(value: Any) -> Any:
    """A cell of a table; text that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(_FORMULA) else "") + for_terminal(value)


class Verbatim(str):
    """Text in which a page finds no markup: no code, no bold, no links."""

    __slots__ = ()
