"""A real Chromium without a network, or a reason to skip. What must not skip is named in COLLBENCH_REQUIRE=browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from collbench.analysis.observations import observe
from collbench.report.page.contents import chapter
from collbench.report.page.render import html
from collbench.report.paper import paper
from tests.processes import LIMIT, unmarked

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
    chapters = [
        chapter(observe(RESULTS / name), {}, 0.02, number, against=paper("choi2021") if "choi" in name else None)
        for number, name in enumerate(("ladder", "choi2021-cpu", "demo-openmpi"))
    ]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(chapters), encoding="utf-8")
    return path
