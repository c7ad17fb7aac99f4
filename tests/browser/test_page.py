"""Pages in a real Chromium - of a report, of programs, of a history - offline, on a phone, on paper, and for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.browser.conftest import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]

MARKS = """() => [...document.querySelectorAll('svg.plot')].map(plot => ({
    name: plot.getAttribute('aria-label'),
    marks: [...plot.querySelectorAll('[id*="mark-"]')].filter(mark => {
        const box = mark.getBoundingClientRect();
        return box.width + box.height > 0;
    }).length,
    letters: Math.min(...[...plot.querySelectorAll('text')].map(text => text.getBoundingClientRect().height)),
}))"""

COLOURS = """() => [...document.querySelectorAll('svg.plot [id*="mark-"]')].map(mark => {
    const shape = mark.querySelector('path') ?? mark;
    return [getComputedStyle(shape).fill, getComputedStyle(shape).stroke].join(' ');
})"""

INK = "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"

HIDDEN = """() => [...document.querySelectorAll('details td, details svg.plot')].filter(one => !one.checkVisibility())
    .length"""

#: Of every plot that is wider than a small one: whether it goes on beyond its frame, and whether a hint says so.
HINTS = """() => [...document.querySelectorAll('figure.wide')].map(figure => {
    const frame = figure.querySelector('.scroll');
    return [frame.scrollWidth > frame.clientWidth, figure.querySelector('.hint').checkVisibility()];
})"""


#: What a reader sees first: the plot on top, and whether it is before the first section.
FIRST = """() => {
    const plot = document.querySelector('svg.plot');
    const heading = document.querySelector('section > h2');
    return [plot.getAttribute('aria-label'), plot.compareDocumentPosition(heading) & Node.DOCUMENT_POSITION_FOLLOWING];
}"""

WIDTH = "() => document.documentElement.scrollWidth"

HEIGHTS = "() => [...document.querySelectorAll('svg.plot')].map(plot => plot.getBoundingClientRect().height)"

CAPTIONS = "() => [...document.querySelectorAll('caption span')].map(title => title.getBoundingClientRect().right)"

#: An A4 sheet without its margins, in pixels.
PAPER: Any = {"width": 718, "height": 1000}


def of_pages(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page_file", names, indirect=True)


@pytest.mark.parametrize(
    ("page_file", "least", "most"), [("report", 31, 999), ("programs", 2, 999), ("history", 6, 6)],
    indirect=["page_file"],
)  # fmt: skip
def test_every_plot_has_marks_that_are_seen_and_letters_that_can_be_read(
    desktop: Page, phone: Page, least: int, most: int
) -> None:
    """Of the history: three cells that changed, the first of them on top, and three that did not."""
    for page in (desktop, phone):
        plots = page.evaluate(MARKS)
        assert least <= len(plots) <= most
        assert not [plot["name"] for plot in plots if plot["marks"] == 0 or plot["letters"] < 7]


@pytest.mark.parametrize(
    ("page_file", "first"), [("programs", "All benchmarks"), ("history", "allreduce sum float32, 8K")],
    indirect=["page_file"],
)  # fmt: skip
def test_the_picture_stands_before_the_evidence(desktop: Page, first: str) -> None:
    label, before = desktop.evaluate(FIRST)
    assert label.startswith(first) and before


@of_pages("history")
def test_the_answer_of_a_history_has_every_change(desktop: Page) -> None:
    answer = desktop.inner_text(".answer")
    assert "2 changes" in answer and "10 %" in answer


def test_on_a_phone_nothing_sticks_out_and_letters_stay_readable(phone: Page) -> None:
    assert phone.evaluate(WIDTH) <= 360
    assert not [plot["name"] for plot in phone.evaluate(MARKS) if plot["letters"] < 7]


@of_pages("report", "programs", "history")
def test_marks_have_colours_and_dark_has_others_than_light(browser: Browser, page_file: Path) -> None:
    found: dict[Scheme, list[str]] = {}
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        for page in opened(browser, page_file, color_scheme=scheme):
            found[scheme] = page.evaluate(COLOURS)
            text, paper = page.evaluate(INK)
            assert text != paper
    assert found["light"] and len(found["light"]) == len(found["dark"])
    both = zip(found["light"], found["dark"], strict=True)
    assert not [one for one, other in both if one == other and "url(" not in one]  # a hatch has its colour elsewhere


@of_pages("report", "programs", "history")
@pytest.mark.parametrize(
    ("scheme", "options", "passes"),
    [("light", {}, 11), ("dark", {"runOnly": {"type": "rule", "values": ["color-contrast"]}}, 1)],
)
def test_axe_finds_nothing_to_object_to(
    browser: Browser, page_file: Path, scheme: Scheme, options: dict[str, Any], passes: int
) -> None:
    """In the dark only colours differ."""
    from axe_playwright_python.sync_playwright import Axe

    for page in opened(browser, page_file, color_scheme=scheme, viewport={"width": 1280, "height": 900}):
        found = Axe().run(page, options=options).response
        said = [f"{one['id']}: {one['nodes'][0]['html'][:200]} ({len(one['nodes'])})" for one in found["violations"]]
        assert not said
        assert len(found["passes"]) >= passes  # it did look


def test_it_prints(desktop: Page, tmp_path: Path) -> None:
    desktop.emulate_media(media="print")
    out = desktop.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    assert out.startswith(b"%PDF") and len(out) > 100_000


def test_what_is_folded_is_on_paper(browser: Browser, page_file: Path) -> None:
    """Verdicts and samples are folded on a screen, and nobody can unfold paper."""
    pages = set()
    for unfolded in (False, True):
        for page in opened(browser, page_file, unfolded):
            assert bool(page.evaluate(HIDDEN)) is not unfolded
            pages.add(len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))))
            page.emulate_media(media="print")
            assert page.evaluate(HIDDEN) == 0
    assert len(pages) == 1 and pages.pop() > 10


@of_pages("report", "programs", "history")
def test_nothing_sticks_out_of_paper(browser: Browser, page_file: Path) -> None:
    for page in opened(browser, page_file, unfolded=False, viewport=PAPER):
        page.emulate_media(media="print")
        assert page.evaluate(WIDTH) <= PAPER["width"]
        assert page.evaluate(HIDDEN) == 0
        if page_file.parent.name.startswith("programs"):
            assert max(page.evaluate(HEIGHTS)) <= 910, "a plot of 60 rows fits on a sheet"


@of_pages("programs", "history")
def test_a_phone_shows_all_of_other_pages_too(phone: Page) -> None:
    assert phone.evaluate(WIDTH) <= 360
    assert all(beyond == hinted for beyond, hinted in phone.evaluate(HINTS))


@of_pages("programs")
def test_an_answer_has_60_words_at_most_and_the_heading_of_a_table_stays_in_sight(phone: Page) -> None:
    assert max(len(text.replace("%", "").split()) for text in phone.locator(".answer ol").all_inner_texts()) <= 60
    assert max(phone.evaluate(CAPTIONS)) <= 360


def test_a_plot_that_goes_on_beyond_a_phone_says_so(desktop: Page, phone: Page) -> None:
    on_phone, on_desktop = phone.evaluate(HINTS), desktop.evaluate(HINTS)
    assert on_phone and on_phone == [[True, True]] * len(on_phone)
    assert on_desktop == [[False, False]] * len(on_phone)


def test_a_broken_page_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<!DOCTYPE html><html><title>x</title><img src='http://127.0.0.1:9/x.png'><script>nothing()</script>"
    )
    with pytest.raises(AssertionError):
        for _ in opened(browser, broken):
            pass
