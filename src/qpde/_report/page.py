"""Pages: one HTML file made of sections of text, figures and tables, which loads no other file.

In text, backticks make `code`, two stars make **bold** and brackets make [links](href); the rest is escaped.
"""

import base64
import dataclasses
import html
import math
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._text import Verbatim, for_html


@dataclasses.dataclass(frozen=True)
class Panel:
    """One picture of a figure: its SVG, a description in words, and files to link to by name."""

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
    """Rows of cells: text, numbers, None for unknown, or a `Judgement`.

    On a phone the rows become cards where `cards` is set, which suits long texts; otherwise the table alone
    scrolls sideways.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    cards: bool = False
    files: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A cell that says yes (green), no (red) or open (None, amber) in words of its own."""

    holds: bool | None
    words: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and the blocks below it: paragraphs, lists (of strings), figures, tables."""

    title: str
    blocks: Sequence[Any]


def render(
    title: str, *, kicker: str, lead: Sequence[str], sections: Sequence[Section], footer: str
) -> str:
    """The page as HTML."""
    template = Path(__file__).with_name("page.html").read_text()
    anchors = [_anchor(section.title) for section in sections]
    return string.Template(template).substitute(
        title=for_html(title),
        kicker=for_html(kicker),
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
    """Text as HTML: escaped, then code, bold and links; a `Verbatim` text is escaped only."""
    if isinstance(text, Verbatim):
        return for_html(text)
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
    if re.match(r"\s*[a-zA-Z][a-zA-Z0-9+.-]*:", match[2]) and not match[2].startswith("https://"):
        return match[0]  # javascript: and the like are no links
    return f'<a href="{match[2].replace(chr(34), "%22")}">{match[1]}</a>'


def number(value: Any) -> str:
    """A number with at most three digits, in the notation of a printed table; an unknown one is a dash."""
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
    """A block of a section; a string that begins with "# " is a heading."""
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
    """The content of a cell."""
    if isinstance(value, Judgement):
        kind = {True: "good", False: "bad", None: "open"}[value.holds]
        return f'<span class="{kind}">{inline(value.words)}</span>'
    return inline(value) if isinstance(value, str) else number(value)
