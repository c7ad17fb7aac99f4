"""A real Chromium without a network, or a reason to skip. What must not skip is named in COLLBENCH_REQUIRE=browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from collbench import workloads
from collbench.analysis.history import history
from collbench.analysis.runs import observe
from collbench.report.history import SeriesNames
from collbench.report.history import page as page_of_history
from collbench.report.page.contents import chapter, paper_chapter
from collbench.report.page.render import html
from collbench.report.paper import beside, paper
from tests.processes import LIMIT, unmarked
from tests.unit.made_history import steps, write_history
from tests.unit.made_runs import library, made_case

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RESULTS = Path(__file__).parents[2] / "results"

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _missing(reason: str) -> None:
    if "browser" in os.environ.get("COLLBENCH_REQUIRE", "").split(","):
        pytest.fail(f"COLLBENCH_REQUIRE names browser, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of the system, headless."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        _missing("there is no Chromium (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed (pip install 'collbench[browser]')")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync"]  # fmt: skip
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=arguments, timeout=1000 * LIMIT,
                                              env={**unmarked()})  # fmt: skip
        yield started
        started.close()


def report_page(folder: Path) -> str:
    """A report of measured runs beside the 2021 paper, every kind of plot in it."""
    runs = [observe(RESULTS / name) for name in ("ladder", "choi2021/choi2021-cpu", "demo-openmpi")]
    chapters = [chapter(run, {}, 0.02, number) for number, run in enumerate(runs)]
    return html([*chapters, paper_chapter("choi2021", beside(runs[1:2], paper("choi2021")))])


def programs_page(folder: Path) -> str:
    """Measured runs on the host and in a container, one of them beside its paper."""
    suite_of = {name: suite for suite, names in workloads.suites().items() for name in names}
    runs = [observe(RESULTS / name) for name in ("xu2017/xu2017-io", "zhao2018/zhao2018-sysbench", "storage")]
    chapters = [chapter(run, {}, 0.02, number, suite_of=suite_of) for number, run in enumerate(runs)]
    return html([*chapters, paper_chapter("xu2017", beside(runs[:1], paper("xu2017")))])


def history_page(folder: Path) -> str:
    """Forty nights of six cells: two become slower with a newer library, one faster later, one fails once."""
    quiet, slower = steps((1e-5, 40)), steps((1e-5, 15), (1.12e-5, 25))
    times: list[list[float | str | None]] = [
        [*quiet], [*slower], [*slower], [*steps((1e-5, 28), (9e-6, 12))],
        [*quiet[:9], "died: <b>", *quiet[10:]], [*quiet],
    ]  # fmt: skip
    cells = {made_case(size=1024 << number): of for number, of in enumerate(times)}
    write_history(folder / "n", cells, lambda night: {"libraries": (library(version=f"5.0.{8 + (night >= 15)}"),)}, 7)
    found = history(folder / "n", (), 0.02)
    return page_of_history(found, SeriesNames([one.series for one in found.cells]))


PAGES = {"report": report_page, "programs": programs_page, "history": history_page}


@pytest.fixture(scope="session")
def page_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`page_files(name)`: the page of `PAGES`, written by the first test that asks for it."""

    @cache
    def written(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        (folder / "page.html").write_text(PAGES[name](folder), encoding="utf-8")
        return folder / "page.html"

    return written


@pytest.fixture
def page_file(page_files: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    """The report, or the page that a test names: `parametrize("page_file", [...], indirect=True)`."""
    return page_files(getattr(request, "param", "report"))


def opened(browser: Browser, file: Path, unfolded: bool = True, **settings: Any) -> Iterator[Page]:
    """The page, with a watch on requests and on what the console says."""
    context = browser.new_context(offline=True, bypass_csp=True, **settings)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri(), timeout=1000 * LIMIT)
    if unfolded:
        page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    yield page
    outside = [url for url in asked if not url.startswith(("file:", "data:"))]
    context.close()
    assert not said
    assert not outside


@pytest.fixture
def desktop(browser: Browser, page_file: Path) -> Iterator[Page]:
    yield from opened(browser, page_file, viewport={"width": 1280, "height": 900})


@pytest.fixture
def phone(browser: Browser, page_file: Path) -> Iterator[Page]:
    yield from opened(browser, page_file, viewport={"width": 360, "height": 740}, device_scale_factor=2)
