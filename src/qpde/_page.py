"""Pages: sections of text, figures and tables become one HTML file that needs nothing else.

Text knows `code` between backticks, **bold** between stars and [links](href); all else is shown as it is.
"""

import base64
import dataclasses
import html
import importlib.resources
import math
import re
import string
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Panel:
    """One picture of a figure: SVG, what it shows in words, and files to link to."""

    svg: bytes
    words: str
    files: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels beside each other (below each other on a phone) with a caption."""

    caption: str
    panels: Sequence[Panel]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells: text, numbers, None for unknown, or a `Verdict`.

    With `cards` the rows of a table with long texts become cards on a phone; otherwise a wide table
    scrolls by itself.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    cards: bool = False
    files: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Yes, no, or open (None), in words of one's own."""

    holds: bool | None
    words: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and what follows: paragraphs, lists (of strings), figures, tables."""

    title: str
    blocks: Sequence[Any]


def render(
    title: str, *, kicker: str, lead: Sequence[str], sections: Sequence[Section], footer: str
) -> str:
    """The page as HTML."""
    template = (importlib.resources.files(__package__ or "qpde") / "_page.html").read_text()
    anchors = [_anchor(section.title) for section in sections]
    return string.Template(template).substitute(
        title=html.escape(title),
        kicker=html.escape(kicker),
        lead="\n".join(f"<p>{inline(text)}</p>" for text in lead),
        contents="\n".join(
            f'<li><a href="#{anchor}">{inline(section.title)}</a></li>'
            for anchor, section in zip(anchors, sections, strict=True)
        ),
        body="\n".join(
            f'<section id="{anchor}">\n<h2>{inline(section.title)}</h2>\n'
            + "\n".join(_block(block) for block in section.blocks)
            + "\n</section>"
            for anchor, section in zip(anchors, sections, strict=True)
        ),
        footer=inline(footer),
    )


def inline(text: str) -> str:
    """Text as HTML: escaped, then code, bold and links."""
    text = html.escape(text, quote=False)
    parts = re.split(r"(`[^`]+`)", text)
    for i, part in enumerate(parts):
        if part.startswith("`"):
            parts[i] = f"<code>{part[1:-1]}</code>"
        else:
            part = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", part)
            parts[i] = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, part)
    return "".join(parts)


def _link(match: re.Match[str]) -> str:
    return f'<a href="{match[2].replace(chr(34), "%22")}">{match[1]}</a>'


def number(value: Any) -> str:
    """A number in at most three digits, as people write it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e7):
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:.3g}"
    if 1e3 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_RAISED)}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _block(block: Any) -> str:
    if isinstance(block, str):
        return (
            f"<h3>{inline(block[2:])}</h3>" if block.startswith("# ") else f"<p>{inline(block)}</p>"
        )
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Table):
        return _table(block)
    return "<ul>" + "".join(f"<li>{inline(item)}</li>" for item in block) + "</ul>"


def _files(files: dict[str, str]) -> str:
    return " · ".join(
        f'<a href="{html.escape(href)}">{html.escape(name)}</a>' for name, href in files.items()
    )


def _figure(figure: Figure) -> str:
    panels = []
    for panel in figure.panels:
        data = base64.b64encode(panel.svg).decode()
        picture = f'<img alt="{html.escape(panel.words)}" src="data:image/svg+xml;base64,{data}">'
        links = f'<p class="files">{_files(panel.files)}</p>' if panel.files else ""
        panels.append(f'<div class="panel">{picture}{links}</div>')
    caption = f"<figcaption>{inline(figure.caption)}</figcaption>"
    return f'<figure><div class="panels">{"".join(panels)}</div>{caption}</figure>'


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[i], int | float) for row in table.rows)
        for i in range(len(table.columns))
    ]

    def cell(tag: str, i: int, content: str, extra: str = "") -> str:
        kind = ' class="number"' if numeric[i] else ""
        return f"<{tag}{kind}{extra}>{content}</{tag}>"

    head = "".join(cell("th", i, inline(name)) for i, name in enumerate(table.columns))
    rows = [
        "<tr>"
        + "".join(
            cell("td", i, _content(value), f' data-name="{html.escape(table.columns[i])}"')
            for i, value in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    ]
    links = f" {_files(table.files)}" if table.files else ""
    return (
        f'<div class="wide"><table{" class=cards" if table.cards else ""}>'
        f"<caption>{inline(table.caption)}{links}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _content(value: Any) -> str:
    if isinstance(value, Verdict):
        kind = {True: "good", False: "bad", None: "open"}[value.holds]
        return f'<span class="{kind}">{inline(value.words)}</span>'
    return inline(value) if isinstance(value, str) else number(value)
