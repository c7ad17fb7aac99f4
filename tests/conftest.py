"""What the tests share: the program as a user starts it, golden texts, a stored run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from collbench.report import new_style
from tests import processes
from tests.runs import read_run

HERE = Path(__file__).parent

# The same examples on every machine; `pytest --hypothesis-profile=explore` looks for new ones. How long they take to
# make is the machine's matter.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", UNTIMED, derandomize=True)
settings.register_profile("explore", UNTIMED, max_examples=1000)
settings.load_profile("repeatable")

processes.mark()

_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_", "HYDRA_", "HYDI_", "SLURM_", "TORCHELASTIC_", "COLLBENCH_")
_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}


#: Folders whose tests all take long: they start launchers, engines, browsers or GPUs, or look for new examples.
_SLOW = {"browser", "containers", "faults", "fuzz", "gpu", "mpi"}

#: Of the tests that take long, those that `make test` runs: two ranks on both MPIs, one image, one page. The others are
#: for `make test-all`.
_OFTEN = re.compile(
    r"""
    tests/(
      browser/test_page[.]py::test_(on_a_phone|it_prints|a_broken_page)
    | containers/test_duets[.]py::test_the_host_beside
    | containers/test_faults[.]py::test_(an_image_that_is_not_there|a_launch_that_fails|.*openmpi-kill_rank)
    | containers/test_launch[.]py::test_(every_step_measures.*openmpi\]|host_and_container)
    | gpu/
    | mpi/test_contract[.]py::test_mpi.2-
    | mpi/test_device[.]py::test_every_case_of_nccl.2.
    | mpi/test_duets[.]py::test_(two_sides|a_launch_that_fails)
    | mpi/test_faults[.]py::test_(a_rank_that_(raises|dies).*1|a_wrong_result)
    | mpi/test_world[.]py::test_(rank_0|a_wrong_request|driver_and_alignment.*native|a_run_on_disk|a_plan|demo)
    | mpi/test_world[.]py::test_(every_rank_finds|a_call)
    | unit/test_docs_examples[.]py::test_a_tenth
    )""",
    re.VERBOSE,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m "not slow"` is the whole command for the tests that are fast, `-m "not rare"` for those of `make test`."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] in _SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not _OFTEN.match(item.nodeid.replace(" ", "_")):
            item.add_marker(pytest.mark.rare)


@pytest.fixture(scope="session", autouse=True)
def signals_end_what_is_started() -> None:
    """As from a terminal: a script that starts the tests in the background, or nohup, has them ignore signals.

    Every process inherits that, and Ctrl-C would end none. The tests themselves go on ignoring them.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """The next test finds the machine as this one did."""
    before = processes.running()
    yield
    if left := processes.end_what_is_left(before):
        pytest.fail("left running, and ended now: " + "; ".join(left))


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
            timeout=processes.LIMIT,
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
    """A run made by hand: every status, both places, late samples, two hosts."""
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
