"""Yardsticks: found by their place, plausible where they can be read, and with a reason where they cannot."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from collbench import yardsticks
from collbench.yardsticks import LIMIT, RunYardstick, _yardsticks, copy, core_distance, core_speed

CORES = tuple(sorted(os.sched_getaffinity(0))[:2])
#: In an image of another machine a core of this number does not exist either.
NO_CORE = 1000

#: What a reading may be on any machine, in its unit.
PLAUSIBLE = {"core_distance": (1, 1e5), "core_speed": (1, 2e4), "copy": (0.01, 1e5)}

needs_two = pytest.mark.skipif(len(CORES) < 2, reason="a distance is between two cores")


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_every_yardstick_is_found_and_named_as_its_file() -> None:
    files = {path.stem for path in Path(str(yardsticks.__file__)).parent.glob("[!_]*.py")} - {"yardstick"}
    assert set(yardsticks.names()) == files == PLAUSIBLE.keys()
    assert all(yardsticks.get(name).name == name for name in yardsticks.names())
    assert yardsticks.resolutions().keys() == files
    assert all(0 < share < 1 for share in yardsticks.resolutions().values())


@needs_two
def test_values_are_plausible_and_nothing_is_left() -> None:
    affinity, before = os.sched_getaffinity(0), threads()
    found = yardsticks.take(CORES)
    assert found.reason is None
    for name, (least, most) in PLAUSIBLE.items():
        value = found.values[name]
        assert value is not None and least < value < most, (name, value)
    assert os.sched_getaffinity(0) == affinity
    assert threads() <= before, "another test may have left some, which end meanwhile"


def test_memory_is_given_back() -> None:
    """After the first reading, whose threads leave stacks that the next ones use."""
    yardsticks.take(CORES)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for _ in range(10):
        yardsticks.take(CORES)
    assert (int(Path("/proc/self/statm").read_text().split()[0]) - pages) * os.sysconf("SC_PAGE_SIZE") < 2 * copy.BLOCK


@needs_two
def test_the_best_of_some_readings_takes_at_most_a_tenth_of_a_second() -> None:
    """The best: the machine may be busy."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        yardsticks.take(CORES)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.1


@needs_two
def test_other_threads_of_this_process_go_on_meanwhile() -> None:
    """While a reading that takes its whole limit waits, because its two threads have one core."""
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.wait(0.005):
            counted[0] += 1

    counting = threading.Thread(target=count)
    counting.start()
    with pytest.raises(TimeoutError):
        _yardsticks.run("exchange", (CORES[0], CORES[0]), 10**9, 1, 0.5)
    during = counted[0]
    stop.set()
    counting.join()
    assert during > 10


@pytest.mark.parametrize(
    ("work", "cores", "amount", "repeats"),
    [
        ("exchange", (CORES[0], CORES[-1]), 10**12, 1),
        ("compute", CORES, 10**6, 10**6),
        ("copy", CORES, 1 << 16, 10**8),
    ],
)
def test_every_wait_has_a_limit(work: str, cores: tuple[int, ...], amount: int, repeats: int) -> None:
    began, before = time.monotonic(), threads()
    with pytest.raises(TimeoutError):
        _yardsticks.run(work, cores, amount, repeats, 0.1)  # type: ignore[arg-type]
    assert 0.1 <= time.monotonic() - began < 5
    assert threads() <= before, "another test may have left some, which end meanwhile"


def test_what_cannot_be_measured_is_refused_with_its_error() -> None:
    before = threads()
    for core in (NO_CORE, 10**6, -1):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EINVAL):
            _yardsticks.run("compute", (CORES[0], core), 1, 1, 1.0)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOMEM):
        _yardsticks.run("copy", (CORES[0],), 1 << 60, 1, 1.0)
    assert threads() <= before, "another test may have left some, which end meanwhile"


@pytest.mark.parametrize(
    "arguments",
    [
        ("jump", (0,), 1, 1, 1.0), ("compute", (), 1, 1, 1.0), ("exchange", (0,), 1, 1, 1.0), ("copy", (0,), 0, 1, 1.0),
        ("copy", (0,), 1, 0, 1.0), ("compute", (0,), 1, 1, 0.0), ("compute", (0,), 1, 1, float("nan")),
        ("compute", (0,) * 5000, 1, 1, 1.0),
    ],
)  # fmt: skip
def test_a_request_without_a_meaning_is_refused(arguments: tuple[str, tuple[int, ...], int, int, float]) -> None:
    with pytest.raises(ValueError, match="no such work"):
        _yardsticks.run(*arguments)  # type: ignore[arg-type]


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    none = dict.fromkeys(yardsticks.names())
    assert yardsticks.take(()) == yardsticks.Readings(none, "elsewhere")
    assert yardsticks.take((CORES[0], NO_CORE)) == yardsticks.Readings(none, "core_refused")
    alone = yardsticks.take((CORES[0], CORES[0]))
    assert (alone.reason, alone.values["core_distance"]) == ("too_few_cores", None)
    assert None not in (alone.values["core_speed"], alone.values["copy"])
    monkeypatch.setattr(yardsticks, "native_run", lambda: None)
    assert yardsticks.take(CORES) == yardsticks.Readings(none, "not_built")


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ETIMEDOUT, "late"), (errno.ENOMEM, "failed"), (errno.EAGAIN, "failed")]
)
def test_reasons_of_what_went_wrong(number: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(work: str, cores: tuple[int, ...], amount: int, repeats: int, limit: float) -> tuple[tuple[int, int], ...]:
        if work == "copy":
            raise OSError(number, os.strerror(number))
        return ((0, 1000),) * len(cores)

    monkeypatch.setattr(yardsticks, "native_run", lambda: run)
    found = yardsticks.take((0, 1))
    assert found.reason == reason
    assert [name for name, value in found.values.items() if value is None] == ["copy"]


def played(spans: dict[int, tuple[int, int]], asked: list[tuple[int, ...]]) -> RunYardstick:
    """Begin and end by core."""

    def run(work: str, cores: tuple[int, ...], amount: int, repeats: int, limit: float) -> tuple[tuple[int, int], ...]:
        asked.append((*cores, amount))
        assert 0 < limit <= LIMIT
        return tuple(spans[core] for core in cores)

    return run


def test_the_slowest_core_is_the_speed_of_all() -> None:
    run = played({0: (5, 4_000_005), 1: (0, 8_000_000)}, [])
    assert core_speed.read(run, (0, 1)) == pytest.approx(1000.0)  # 8 million steps in 8 ms


def test_copies_count_from_the_first_begin_to_the_last_end() -> None:
    asked: list[tuple[int, ...]] = []
    run = played({0: (0, 1_000_000), 1: (500_000, 2_000_000)}, asked)
    assert copy.read(run, (0, 1)) == pytest.approx(2 * 2 * 8 * (4 << 20) / 2e6)
    copy.read(played(dict.fromkeys(range(256), (0, 1)), asked), tuple(range(256)))
    assert asked[-1][-1] == (128 << 20) // 256, "all blocks together have a limit"


def test_a_distance_is_the_mean_over_pairs_of_which_there_are_not_too_many() -> None:
    asked: list[tuple[int, ...]] = []
    spans = {0: (0, 500 * 100), 1: (0, 500 * 200), 2: (0, 1)}
    assert core_distance.read(played(spans, asked), (0, 1, 2)) == pytest.approx((100 + 100 + 200) / 3)
    assert [pair[:2] for pair in asked] == [(0, 1), (0, 2), (1, 2)]
    many = tuple(range(64))
    assert len(set(core_distance.pairs_of(many))) == core_distance.PAIRS
    assert core_distance.pairs_of(many) == core_distance.pairs_of(many), "the same at each reading"
