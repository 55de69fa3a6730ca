"""Pages: escaped, self-contained, readable at every width in a real browser."""

import re

import pytest
from browser import CHROMIUM, Browser, check_in_browser

from qpde._report.page import Figure, Judgement, Panel, Section, Table, inline, number, render

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60"><rect width="90" height="60"/></svg>'


def test_text_is_escaped_and_knows_code_bold_and_links():
    assert inline("a < b & `x*y*z`") == "a &lt; b &amp; <code>x*y*z</code>"
    assert inline("**so** [here](data/a.csv)") == '<b>so</b> <a href="data/a.csv">here</a>'
    assert inline("<script>`</script>`") == "&lt;script&gt;<code>&lt;/script&gt;</code>"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (40000, "40,000"),
        (0.0, "0"),
        (0.25, "0.25"),
        (1488.2, "1,488"),
        (7.2e-4, "7.2·10⁻⁴"),
        (None, "–"),
        (3e12, "3.0·10¹²"),
    ],
)
def test_numbers_are_short(value, words):
    assert number(value) == words


@pytest.fixture
def page(tmp_path):
    figure = Figure("**Figure 1.** A box.", [Panel(SVG, 'a "box"', {"CSV": "a.csv"})] * 2)
    wide = Table("Wide.", [f"column {i}" for i in range(30)], [list(range(30))])
    cards = Table(
        "Cards.",
        ("what", "verdict", "why"),
        [["x" * 300, Judgement(False, "no"), "w " * 200]],
        cards=True,
    )
    text = render(
        "A page <of> things",
        kicker="test",
        lead=["Some `code`."],
        sections=[
            Section("First", ["# Sub", "Text.", ["one", "two"], figure]),
            Section("Second", [wide, cards]),
        ],
        footer="End.",
    )
    path = tmp_path / "index.html"
    path.write_text(text)
    return path


def test_a_page_needs_nothing_else(page):
    text = page.read_text()
    assert "A page &lt;of&gt; things" in text
    assert not re.search(r'(src|href)="(https?:)?//', text)
    assert '<a href="#first">' in text
    assert 'id="first"' in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390, 320])
def test_a_browser_shows_every_image_without_errors_or_sideways_scrolling(
    page, browser, width, dark
):
    check_in_browser(browser, page, width=width, dark=dark, images=2)
