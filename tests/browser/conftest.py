"""A real Chromium without a network, or a reason to skip. What must not skip is named in COLLBENCH_REQUIRE=browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from collbench.analysis.runs import observe
from collbench.report.page.contents import chapter, paper_chapter
from collbench.report.page.render import html
from collbench.report.paper import beside, paper
from tests.processes import LIMIT, unmarked

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


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of measured runs beside the 2021 paper, every kind of plot in it."""
    runs = [observe(RESULTS / name) for name in ("ladder", "choi2021-cpu", "demo-openmpi")]
    chapters = [chapter(run, {}, 0.02, number) for number, run in enumerate(runs)]
    chapters += [paper_chapter("choi2021", beside(runs[1:2], paper("choi2021")))]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(chapters), encoding="utf-8")
    return path


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
