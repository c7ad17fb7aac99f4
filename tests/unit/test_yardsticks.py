"""Yardsticks: what they read, when they are read around launches, and what is recorded and said of them."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from tests.processes import LIMIT as LONGEST_WAIT
from tests.unit.fake_engine import FakeCommand, FakeEngineSession
from tests.unit.made_runs import made_manifest
from tests.unit.made_worlds import Heard, carried_out, made
from tests.unit.test_launch_campaign import PLAN, leave

from collbench import yardsticks
from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import Movement, cost, movements
from collbench.errors import EngineError, Interrupted, RunReadError, RunWriteError
from collbench.launch.campaign import campaign_manifest, prepare, read_around, run_campaign
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines import fake
from collbench.schema import store
from collbench.schema.case import Where
from collbench.schema.samples import pack
from collbench.schema.store import READINGS, append_reading, read_readings
from collbench.yardsticks import LIMIT, Readings, RunYardstick, _yardsticks

CORES = tuple(sorted(os.sched_getaffinity(0))[:2])
#: In an image of another machine a core of this number does not exist either.
NO_CORE = 1000

#: What a reading may be on any machine, in its unit.
PLAUSIBLE = {"core_distance": (1, 1e5), "core_speed": (1, 2e4), "copy": (0.01, 1e5)}
NONE = dict.fromkeys(PLAUSIBLE)
needs_two = pytest.mark.skipif(len(CORES) < 2, reason="a distance is between two cores")


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    """Another test may have left some, which end meanwhile."""
    before = threads()
    yield
    assert threads() <= before


def test_every_yardstick_is_fixed_in_the_manifest() -> None:
    assert set(yardsticks.YARDSTICKS) == PLAUSIBLE.keys() == yardsticks.resolutions().keys()
    assert all(0 < share < 1 for share in yardsticks.resolutions().values())
    experiment = campaign_manifest(campaign(), ()).experiment
    assert experiment is not None and experiment.yardsticks == yardsticks.resolutions()
    assert msgspec.json.decode(msgspec.json.encode(experiment))["yardsticks"] == yardsticks.resolutions()


@needs_two
@pytest.mark.usefixtures("no_threads_left")
def test_values_are_plausible_and_nothing_is_left() -> None:
    """Memory is given back after the first reading, whose threads leave stacks that the next ones use. The best of some
    readings takes at most a tenth of a second: the machine may be busy."""
    affinity = os.sched_getaffinity(0)
    reading = yardsticks.take(CORES)
    assert reading.reason is None
    for name, (least, most) in PLAUSIBLE.items():
        value = reading.values[name]
        assert value is not None and least < value < most, (name, value)
    pages, took = int(Path("/proc/self/statm").read_text().split()[0]), []
    for _ in range(20):
        began = time.perf_counter()
        yardsticks.take(CORES)
        took.append(time.perf_counter() - began)
    assert (int(Path("/proc/self/statm").read_text().split()[0]) - pages) * os.sysconf(
        "SC_PAGE_SIZE"
    ) < 2 * yardsticks.BLOCK
    assert min(took) < 0.1
    assert os.sched_getaffinity(0) == affinity


@needs_two
def test_other_threads_of_this_process_go_on_meanwhile() -> None:
    """While a reading that takes its whole limit waits, because its two threads have one core."""
    counted, stop = list[None](), threading.Event()

    def count() -> None:
        while not stop.wait(0.005):
            counted.append(None)

    counting = threading.Thread(target=count)
    counting.start()
    with pytest.raises(TimeoutError):
        _yardsticks.run("exchange", (CORES[0], CORES[0]), 10**9, 1, 0.5)
    during = len(counted)
    stop.set()
    counting.join()
    assert during > 10


@pytest.mark.parametrize(("work", "cores", "amount", "repeats"),
                         [("exchange", (CORES[0], CORES[-1]), 10**12, 1), ("compute", CORES, 10**6, 10**6),
                          ("copy", CORES, 1 << 16, 10**8)])  # fmt: skip
@pytest.mark.usefixtures("no_threads_left")
def test_every_wait_has_a_limit(work: str, cores: tuple[int, ...], amount: int, repeats: int) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        _yardsticks.run(work, cores, amount, repeats, 0.1)  # type: ignore[arg-type]
    assert 0.1 <= time.monotonic() - began < LONGEST_WAIT


@pytest.mark.usefixtures("no_threads_left")
def test_what_cannot_be_measured_is_refused_with_its_error() -> None:
    for core in (NO_CORE, 10**6, -1):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EINVAL):
            _yardsticks.run("compute", (CORES[0], core), 1, 1, 1.0)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOMEM):
        _yardsticks.run("copy", (CORES[0],), 1 << 60, 1, 1.0)
    requests: list[tuple[Any, ...]] = [
        ("jump", (0,), 1, 1, 1.0), ("compute", (), 1, 1, 1.0), ("exchange", (0,), 1, 1, 1.0), ("copy", (0,), 0, 1, 1.0),
        ("copy", (0,), 1, 0, 1.0), ("compute", (0,), 1, 1, 0.0), ("compute", (0,), 1, 1, float("nan")),
        ("compute", (0,) * 5000, 1, 1, 1.0),
    ]  # fmt: skip
    for request in requests:
        with pytest.raises(ValueError):
            _yardsticks.run(*request)


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert yardsticks.take(()) == Readings(NONE, "elsewhere")
    assert yardsticks.take((CORES[0], NO_CORE)) == Readings(NONE, "core_refused")
    alone = yardsticks.take((CORES[0], CORES[0]))
    assert (alone.reason, alone.values["core_distance"]) == ("too_few_cores", None)
    assert None not in (alone.values["core_speed"], alone.values["copy"])
    monkeypatch.setattr(yardsticks, "native_run", lambda: None)
    assert yardsticks.take(CORES) == Readings(NONE, "not_built")

    def failing(number: int) -> RunYardstick:
        def run(work: str, cores: tuple[int, ...], *_: object) -> tuple[tuple[int, int], ...]:
            if work == "copy":
                raise OSError(number, os.strerror(number))
            return ((0, 1000),) * len(cores)

        return run

    for number, reason in ((errno.ETIMEDOUT, "late"), (errno.ENOMEM, "failed"), (errno.EAGAIN, "failed")):
        monkeypatch.setattr(yardsticks, "native_run", partial(failing, number))
        reading = yardsticks.take((0, 1))
        assert (reading.reason, [name for name in NONE if reading.values[name] is None]) == (reason, ["copy"])


def played(spans: dict[int, tuple[int, int]]) -> tuple[RunYardstick, list[tuple[int, ...]]]:
    """Begin and end by core; and what was run: cores and amount."""
    calls: list[tuple[int, ...]] = []

    def run(work: str, cores: tuple[int, ...], amount: int, repeats: int, limit: float) -> tuple[tuple[int, int], ...]:
        calls.append((*cores, amount))
        assert 0 < limit <= LIMIT
        return tuple(spans[core] for core in cores)

    return run, calls


def test_what_is_made_of_the_times_of_cores() -> None:
    """The slowest core is the speed of all; copies count from the first begin to the last end, and all their blocks
    together have a limit; a distance is the mean over pairs, of which there are not too many."""
    run, _ = played({0: (5, 4_000_005), 1: (0, 8_000_000)})
    assert yardsticks.core_speed(run, (0, 1)) == pytest.approx(1000.0)  # 8 million steps in 8 ms
    run, _ = played({0: (0, 1_000_000), 1: (500_000, 2_000_000)})
    assert yardsticks.copy(run, (0, 1)) == pytest.approx(2 * 2 * 8 * (4 << 20) / 2e6)
    run, calls = played(dict.fromkeys(range(256), (0, 1)))
    yardsticks.copy(run, tuple(range(256)))
    assert calls[-1][-1] == (128 << 20) // 256
    run, calls = played({0: (0, 500 * 100), 1: (0, 500 * 200), 2: (0, 1)})
    assert yardsticks.core_distance(run, (0, 1, 2)) == pytest.approx((100 + 100 + 200) / 3)
    assert [pair[:2] for pair in calls] == [(0, 1), (0, 2), (1, 2)]
    many = tuple(range(64))
    assert len(set(yardsticks.pairs_of(many))) == yardsticks.PAIRS
    assert yardsticks.pairs_of(many) == yardsticks.pairs_of(many)  # the same at each reading


# The file of readings -------------------------------------------------------------------------------------------------


READING = store.YardstickReading(
    launch=3, sequence=7, cells=(Where(ranks=2, image="openmpi"),), cores="0-1", moment="before", monotonic=12.5,
    wall=1.7e9, values={"copy": 20.0, "core_distance": 100.5, "core_speed": 900.0},
)  # fmt: skip
UNREAD = msgspec.structs.replace(READING, cores="", values={"copy": None}, reason="elsewhere")


def line(**changes: Any) -> bytes:
    """A line whose fields are replaced; `...` removes one."""
    fields = json.loads(msgspec.json.encode(READING)) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode() + b"\n"


def test_what_is_written_is_read_without_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """The next one takes it away."""
    assert read_readings(tmp_path) == ()
    readings = (READING, msgspec.structs.replace(READING, moment="after", cells=READING.cells * 2), UNREAD)
    for reading in readings:
        append_reading(tmp_path, reading)
    assert read_readings(tmp_path) == readings
    (tmp_path / READINGS).write_bytes(line(cores="0\x1b[31m"))
    assert read_readings(tmp_path)[0].cores == "0\\x1b[31m"
    path = tmp_path / READINGS
    for whole in (b"", line()):
        path.write_bytes(whole + line()[:-30])
        assert len(read_readings(tmp_path)) == len(whole.splitlines())
        append_reading(tmp_path, UNREAD)
        assert read_readings(tmp_path) == (*(READING for _ in whole.splitlines()), UNREAD)


BAD = (b"\n", b"[]\n", b"{}\n", b"\xff\n", b"nonsense\n", b"[" * 100_000 + b"\n", line(more=1), line(values=...),
       line(launch=-1), line(sequence=1 << 40), line(cells=[]), line(moment="during"), line(cells=[{"ranks": 0}]),
       line(cells=[{"ranks": 1, "more": 1}]), line(cells=[{}] * 65), line(cores="0" * 70_000),
       line(values={"copy": 0.0}), line(values={"copy": -1.0}), line(values={"copy": 1e19}), line(values={"copy": "1"}),
       line(values={"copy": None}), line(reason="elsewhere"), line(values={"copy": None}, reason="tired"),
       line(values={str(number): 1.0 for number in range(65)}), line(wall=-1.0), line(monotonic=None),
       line().replace(b"100.5", b"NaN"), line().replace(b"100.5", b"1e999"))  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_garbage_is_refused_with_file_and_line(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / READINGS).write_bytes(line() + bad + line())
    with pytest.raises(RunReadError, match=rf"{READINGS} line 2: "):
        read_readings(tmp_path)


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / READINGS).write_bytes(b" " * (store.LONGEST_READING + 5))
    with pytest.raises(RunReadError, match=f"{READINGS} line 1: .* 1 MiB"):
        read_readings(tmp_path)


def made_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("ours\n")
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("made", [Path.mkdir, os.mkfifo, made_link])
def test_only_a_regular_file_is_written(tmp_path: Path, made: Any) -> None:
    made(tmp_path / READINGS)
    with pytest.raises(RunWriteError, match=READINGS):
        append_reading(tmp_path, READING)
    if made is made_link:
        assert (tmp_path / "elsewhere").read_text() == "ours\n"
    else:
        with pytest.raises(RunReadError, match=f"{READINGS}: .*regular file"):
            read_readings(tmp_path)


def test_a_full_disk_leaves_the_lines_before(tmp_path: Path) -> None:
    append_reading(tmp_path, READING)
    size = (tmp_path / READINGS).stat().st_size
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 20}, {size + 20})); "
        "from pathlib import Path; from collbench.schema.store import append_reading, read_readings; "
        "from collbench.errors import RunWriteError; where = Path(sys.argv[1]); (one,) = read_readings(where)\n"
        "try: append_reading(where, one)\nexcept RunWriteError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True,
                          timeout=LONGEST_WAIT, check=True)  # fmt: skip
    assert f"{tmp_path / READINGS}: {os.strerror(errno.EFBIG)}." in done.stdout
    assert (tmp_path / READINGS).stat().st_size == size


def test_a_run_with_the_file_is_read_resumed_and_packed_as_one_without(tmp_path: Path) -> None:
    run = tmp_path / "run"
    store.RunWriter(run, made_manifest()).close()
    append_reading(run, READING)
    with store.RunWriter.resume(run) as writer:
        append_reading(writer.directory, UNREAD)
    pack(run)
    assert tuple(store.RecordStream(run)) == ()
    assert read_readings(run) == (READING, UNREAD)


# What they plan -------------------------------------------------------------------------------------------------------


def paired(*logs: float) -> Launches:
    return in_order((1.0,) * len(logs), tuple(math.exp(log) for log in logs))


def test_movements_leave_out_what_could_not_be_read() -> None:
    moved = movements([{"a": None, "b": 2.0}, {"a": 5.0, "b": 3.0, "c": None}, {"b": 1.0}])
    assert moved == (Movement("b", 1.0, 3.0, 3), Movement("a", 5.0, 5.0, 1))
    assert [movement.share for movement in moved] == [2.0, 0.0]
    assert movements([]) == ()


def test_the_sample_size_of_a_paired_test() -> None:
    """(1.96 + 0.8416)^2 = 7.849: with s = 0.1, and log(1.05) = 0.0488, 33 blocks. What has no spread takes as many as
    there must be; of one block or no difference nothing is known."""
    s = 0.1 / math.sqrt(2)  # of one value on either side of 0 the deviation is sqrt(2) times as large
    needed = cost([paired(-s, s), paired(0.0, 0.001)], 0.05)
    assert needed is not None and needed.spread == pytest.approx(0.1) and needed.difference == 0.05
    assert needed.launches == math.ceil(7.849 * (0.1 / math.log(1.05)) ** 2) == 33
    quiet = cost([paired(*[0.0] * 7)], 0.02)
    assert quiet is not None and (quiet.spread, quiet.launches) == (0.0, FEWEST)
    assert cost([paired(0.1)], 0.02) is cost([paired(0.1, 0.2)], 0.0) is None


# Readings around launches, on worlds that are played ------------------------------------------------------------------

GOOD = Readings({"core_distance": 100.0}, None)
CELL = LaunchCell("openmpi", "single", "strict", 2, engine="fake")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """The cores of every reading, which is good where there are any."""
    taken: list[frozenset[int]] = []

    def take(cores: frozenset[int]) -> Readings:
        taken.append(cores)
        return GOOD if cores else Readings({"core_distance": None}, "elsewhere")

    monkeypatch.setattr(yardsticks, "take", take)
    return taken


def campaign(act: Callable[[FakeCommand], int] = leave) -> Any:
    return prepare(PLAN, lambda: None, {"fake": FakeEngineSession(act)})


def on_the_fake_engine(heard: Heard, act: Callable[[FakeCommand], int] = leave) -> list[tuple[Any, ...]]:
    """What was read."""
    run_campaign(campaign(act), heard, frozenset(), {}, lambda: None)
    return [(reading.values, reading.cores, reading.reason) for reading in heard.readings]


def test_a_reading_before_and_after_each_launch_on_the_cores_of_its_ranks(
    tmp_path: Path, taken: list[frozenset[int]]
) -> None:
    affinity = os.sched_getaffinity(0)
    heard = carried_out(made(tmp_path, "good"))
    readings = heard.readings
    assert [(reading.launch, reading.sequence, reading.moment) for reading in readings] == [
        (number, number, moment) for number in (0, 1) for moment in ("before", "after")
    ]  # fmt: skip
    assert taken == [frozenset((0, 1))] * 4
    assert {(reading.cores, reading.reason) for reading in readings} == {("0-1", None)}
    assert all(reading.values == {"core_distance": 100.0} for reading in readings)
    assert {reading.cells for reading in readings} == {(record.case.where,) for record in heard.records}
    times = [reading.monotonic for reading in readings]
    assert times == sorted(times) and all(reading.wall > 1e9 for reading in readings)
    assert os.sched_getaffinity(0) == affinity


def test_a_launch_that_fails_has_both(tmp_path: Path) -> None:
    """And every yardstick is read, from a driver that stays on its cores."""
    affinity = os.sched_getaffinity(0)
    heard = carried_out(made(tmp_path, "exit 3"))
    assert {record.status for record in heard.records} == {"failed"}
    assert [reading.moment for reading in heard.readings] == ["before", "after"] * 2
    assert all(reading.values.keys() == set(yardsticks.YARDSTICKS) for reading in heard.readings)
    assert os.sched_getaffinity(0) == affinity


def test_only_an_engine_on_this_machine_is_read(monkeypatch: pytest.MonkeyPatch, taken: list[frozenset[int]]) -> None:
    """Elsewhere there is a reason."""
    assert on_the_fake_engine(Heard()) == [({"core_distance": None}, "", "elsewhere")] * 4
    assert taken == [frozenset()] * 4
    taken.clear()
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, local=True))
    on_the_fake_engine(Heard())
    assert set(taken) == {frozenset((0, 1))}


def test_an_interrupted_launch_has_none_after_it(taken: list[frozenset[int]]) -> None:
    heard = Heard()
    with pytest.raises(Interrupted):
        on_the_fake_engine(heard, Mock(side_effect=Interrupted("told to stop")))
    assert [reading.moment for reading in heard.readings] == ["before"]


def test_worlds_that_run_together_are_read_once(taken: list[frozenset[int]]) -> None:
    heard, launches = Heard(), (Launch(CELL, 4, 9), Launch(replace(CELL, side="other"), 4, 10))
    with read_around(heard, launches, frozenset((2, 3))):
        assert [reading.moment for reading in heard.readings] == ["before"]
    assert [(reading.launch, reading.sequence, reading.cores) for reading in heard.readings] == [(4, 9, "2-3")] * 2
    assert [where.side for where in heard.readings[0].cells] == [None, "other"]
    with pytest.raises(EngineError), read_around(Heard(), launches, frozenset((0,))):
        raise EngineError("gone")
