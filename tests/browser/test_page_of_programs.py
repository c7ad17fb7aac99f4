"""A report of programs in a real Chromium: sentences, the picture of all differences, a section for each benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collbench import workloads
from collbench.analysis.runs import observe
from collbench.report.page.contents import chapter, paper_chapter
from collbench.report.page.render import html
from collbench.report.paper import beside, paper
from tests.browser.conftest import RESULTS, opened
from tests.browser.test_page import COLOURS, HIDDEN, HINTS, MARKS, Scheme

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: What a reader sees first: the picture of all benchmarks, and whether it is before the first section.
FIRST = """() => {
    const plot = document.querySelector('svg.plot');
    const heading = document.querySelector('section > h2');
    return [plot.getAttribute('aria-label'), plot.compareDocumentPosition(heading) & Node.DOCUMENT_POSITION_FOLLOWING];
}"""


HEIGHTS = "() => [...document.querySelectorAll('svg.plot')].map(plot => plot.getBoundingClientRect().height)"

CAPTIONS = "() => [...document.querySelectorAll('caption span')].map(title => title.getBoundingClientRect().right)"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measured runs on the host and in a container, one of them beside its paper."""
    suite_of = {name: suite for suite, names in workloads.suites().items() for name in names}
    runs = [observe(RESULTS / name) for name in ("xu2017-cpu-io", "zhao2018-sysbench", "storage")]
    chapters = [chapter(run, {}, 0.02, number, suite_of=suite_of) for number, run in enumerate(runs)]
    chapters += [paper_chapter("xu2017", beside(runs[:1], paper("xu2017")))]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(chapters), encoding="utf-8")
    return path


def test_the_picture_of_all_differences_stands_before_the_evidence(desktop: Page) -> None:
    label, before = desktop.evaluate(FIRST)
    assert label.startswith("All benchmarks, by policy") and before


def test_every_plot_has_marks_that_are_seen_and_letters_that_can_be_read(desktop: Page, phone: Page) -> None:
    for page in (desktop, phone):
        plots = page.evaluate(MARKS)
        assert len(plots) >= 2
        assert not [plot["name"] for plot in plots if plot["marks"] == 0]
        assert not [plot["name"] for plot in plots if plot["letters"] < 7]


def test_nothing_sticks_out_of_a_phone_or_of_paper(browser: Browser, phone: Page, page_file: Path) -> None:
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert all(beyond == hinted for beyond, hinted in phone.evaluate(HINTS))
    for page in opened(browser, page_file, False, viewport={"width": 718, "height": 1000}):
        page.emulate_media(media="print")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 718
        assert page.evaluate(HIDDEN) == 0
        assert max(page.evaluate(HEIGHTS)) <= 910, "a plot of 60 rows fits on a sheet"


def test_an_answer_has_60_words_at_most_and_the_heading_of_a_table_stays_in_sight(phone: Page) -> None:
    assert max(len(text.replace("%", "").split()) for text in phone.locator(".answer ol").all_inner_texts()) <= 60
    assert max(phone.evaluate(CAPTIONS)) <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_have_colours_and_axe_finds_nothing_to_object_to(
    browser: Browser, page_file: Path, scheme: Scheme
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for page in opened(browser, page_file, color_scheme=scheme, viewport={"width": 1280, "height": 900}):
        assert page.evaluate(COLOURS)
        found = Axe().run(page).response
        said = [f"{one['id']}: {one['nodes'][0]['html'][:200]} ({len(one['nodes'])})" for one in found["violations"]]
        assert not said
        assert len(found["passes"]) >= 11  # it did look
