"""What the tests share: the program as a user starts it, golden texts, a stored run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from collbench.report import new_style
from collbench.schema.store import read_run

HERE = Path(__file__).parent

# The same examples on every machine; `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")

_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_", "HYDRA_", "HYDI_", "SLURM_", "TORCHELASTIC_", "COLLBENCH_")
_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}


@pytest.fixture(scope="session")
def bare_environment() -> dict[str, str]:
    """The environment of a process that no launcher started."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_LAUNCHERS) and name not in _TORCHRUN
    }  # fmt: skip


@pytest.fixture(scope="session")
def collbench(bare_environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`collbench(*arguments, **variables)`: the program in a process of its own, with its output and exit code."""

    def start(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "collbench", *map(str, arguments)],
            env=bare_environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return start


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is what `tests/golden/NAME` says. COLLBENCH_UPDATE_GOLDEN=1 writes it anew."""

    def compare(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if os.environ.get("COLLBENCH_UPDATE_GOLDEN") == "1":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if that is meant: COLLBENCH_UPDATE_GOLDEN=1"

    return compare


@pytest.fixture(scope="session")
def stored_run() -> Path:
    """A run of schema 1 made by hand: every status, both places, late samples, two hosts. It must stay readable."""
    return HERE / "data" / "run"


@pytest.fixture(scope="session")
def printed(stored_run: Path) -> Callable[..., str]:
    """`printed(style, *numbers)`: what a style prints for those records of the stored run, or for all."""

    def print_in(style: str, *numbers: int) -> str:
        run = read_run(stored_run)
        printer = new_style(style)
        records = [run.records[number] for number in numbers] or run.records
        return "".join([printer.begin(run.manifest), *map(printer.add, records), printer.end()])

    return print_in
