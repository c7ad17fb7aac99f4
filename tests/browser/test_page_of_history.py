"""The page of a history in a real Chromium: a plot first, marks in every plot, nothing beyond the edge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collbench.analysis.history import history
from collbench.report.history import SeriesNames
from collbench.report.history import page as drawn
from tests.browser.conftest import opened
from tests.browser.test_page import COLOURS, HIDDEN, HINTS, MARKS, Scheme
from tests.browser.test_page_of_programs import FIRST
from tests.unit.made_history import steps, write_history
from tests.unit.made_runs import library, made_case

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty nights of six cells: two become slower with a newer library, one faster later, one fails once."""
    folder = tmp_path_factory.mktemp("history")
    quiet, slower = steps((1e-5, 40)), steps((1e-5, 15), (1.12e-5, 25))
    times: list[list[float | str | None]] = [
        [*quiet], [*slower], [*slower], [*steps((1e-5, 28), (9e-6, 12))],
        [*quiet[:9], "died: <b>", *quiet[10:]], [*quiet],
    ]  # fmt: skip
    cells = {made_case(size=1024 << number): of for number, of in enumerate(times)}
    write_history(folder / "n", cells, lambda night: {"libraries": (library(version=f"5.0.{8 + (night >= 15)}"),)}, 7)
    found = history(folder / "n", (), 0.02)
    path = folder / "page.html"
    path.write_text(drawn(found, SeriesNames([one.series for one in found.cells])), encoding="utf-8")
    return path


def test_the_answer_and_the_picture_stand_before_the_evidence(desktop: Page) -> None:
    label, before = desktop.evaluate(FIRST)
    assert label == "allreduce sum float32, 8K" and before
    answer = desktop.inner_text(".answer")
    assert "2 changes" in answer and "faster by 10 %" in answer


def test_every_plot_has_marks_that_are_seen_and_letters_that_can_be_read(desktop: Page, phone: Page) -> None:
    for page in (desktop, phone):
        plots = page.evaluate(MARKS)
        assert len(plots) == 6  # three cells that changed, the first of them on top, three that did not
        assert not [plot["name"] for plot in plots if plot["marks"] == 0]
        assert not [plot["name"] for plot in plots if plot["letters"] < 7]


def test_nothing_sticks_out_of_a_phone_or_of_paper(browser: Browser, phone: Page, page_file: Path) -> None:
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert all(beyond == hinted for beyond, hinted in phone.evaluate(HINTS))
    for page in opened(browser, page_file, False, viewport={"width": 718, "height": 1000}):
        page.emulate_media(media="print")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 718
        assert page.evaluate(HIDDEN) == 0


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
