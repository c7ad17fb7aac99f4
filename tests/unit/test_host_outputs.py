"""dd, ioping, fio and sysbench: their commands, and what is made of their outputs, of which some are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_files import case_of, stored
from tests.unit.made_programs import script

from collbench import workloads


def percentiles(prefix: str, *ns: int) -> dict[str, float]:
    return {f"{prefix}{name}": value * 1e-9 for name, value in zip(("p50", "p99", "p99.9"), ns, strict=True)}


#: By stored output: the benchmark, its parameters, and the seconds in it by measure.
STORED: dict[str, tuple[str, dict[str, Any], dict[str, float]]] = {
    "dd-9.1-1M.txt": ("dd", {"count": 16}, {"write": 0.00151052}),
    "dd-9.1-100M.txt": ("dd", {}, {"write": 0.0778531}),
    "ioping-1.3-latency.txt": ("ioping", {"count": 4}, {"request": 592329e-9 / 3}),
    "ioping-1.3-cached.txt": ("ioping", {"mode": "cached", "seconds": 1}, {"request": 963565752e-9 / 881215}),
    "ioping-1.3-direct.txt": ("ioping", {"mode": "direct", "seconds": 1}, {"request": 988905434e-9 / 17464}),
    "fio-3.33-psync.json": ("fio", {"runtime": 1}, {"request": 1.001 / 17480, **percentiles("", 53504, 98816, 232448)}),
    "fio-3.33-libaio.json": (
        "fio", {"rw": "randwrite", "ioengine": "libaio", "depth": 4, "runtime": 1},
        {"request": 1.001 / 54050, **percentiles("", 52480, 103936, 2088960)},
    ),
    "fio-3.33-io_uring.json": (
        "fio", {"rw": "read", "bs": "64k", "ioengine": "io_uring", "direct": 0, "cache": "warm", "runtime": 1},
        {"request": 1.001 / 200109, **percentiles("", 101, 191, 700)},
    ),
    "fio-3.42-mixed.json": (
        "fio", {"rw": "randrw", "read_percent": 70, "fsync": 8, "jobs": 2, "size": "64M", "runtime": 1},
        {"read": 1.001 / 11838, **percentiles("read_", 84480, 374784, 3063808), "write": 1.001 / 5134,
         **percentiles("write_", 94720, 456704, 2408448), **percentiles("sync_", 138240, 1368064, 4620288)},
    ),
    "sysbench-1.0.20-fileio.txt": (
        "sysbench_fileio", {"size": "1M", "files": 4, "events": 200, "threads": 2}, {"total": 0.0067}
    ),
    "sysbench-1.0.20-cpu.txt": (
        "sysbench_cpu", {"threads": 2, "events": 200, "max_prime": 2000}, {"total": 0.0072}
    ),
    "sysbench-1.0.20-memory.txt": ("sysbench_memory", {"size": "1M", "access": "read"}, {"total": 0.0007}),
    "sysbench-1.0.20-threads.txt": (
        "sysbench_threads", {"threads": 4, "events": 50, "yields": 10, "locks": 2}, {"total": 0.0028}
    ),
}  # fmt: skip

#: The events in each output of sysbench.
EVENTS = {"sysbench-1.0.20-fileio.txt": 200, "sysbench-1.0.20-cpu.txt": 200, "sysbench-1.0.20-memory.txt": 1024,
          "sysbench-1.0.20-threads.txt": 50}  # fmt: skip


def test_the_suite_is_complete_and_works_in_files() -> None:
    assert workloads.suites()["io"] == ("checkpoint", "copyup", "dd", "fio", "ioping", "loading", "sysbench_fileio")
    assert all(workloads.get(name).files for name in workloads.suites()["io"])


def read(name: str, parameters: dict[str, Any], text: str) -> tuple[int, dict[str, list[float]]]:
    """How many results are wrong, and the seconds: in the order in which they are read."""
    row = workloads.get(name)
    wrong = row.verify(case_of(name, **parameters), text)
    return wrong, {measure: list(seconds) for measure, seconds in row.parse(text).items()}


def changed(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    """The JSON of fio with another value in its only job."""
    document = json.loads(text)
    change(document["jobs"][0])
    return json.dumps(document)


@pytest.mark.parametrize("file", STORED)
def test_a_stored_output_is_read_and_is_right(file: str) -> None:
    name, parameters, seconds = STORED[file]
    wrong, times = read(name, parameters, stored(file))
    assert wrong == 0
    assert {measure: values for measure, (values,) in times.items()} == pytest.approx(seconds, rel=1e-9)


def test_warnings_around_the_json_of_fio_are_left_out() -> None:
    text = stored("fio-3.33-psync.json")
    warned = f"fio: this platform does not support process shared mutexes\n{text}fio: a last word\n"
    assert read("fio", {"runtime": 1}, warned) == read("fio", {"runtime": 1}, text)


def test_dd_before_it_printed_two_units_and_with_an_exponent() -> None:
    text = stored("dd-9.1-1M.txt").replace("(1.0 MB, 1.0 MiB) copied, 0.00151052 s", "(1.0 MB) copied, 9.2e-05 s")
    assert read("dd", {"count": 16}, text) == (0, {"write": [9.2e-05]})


@pytest.mark.parametrize(
    ("file", "text", "wrong"),
    [
        ("dd-9.1-1M.txt", stored("dd-9.1-1M.txt").replace("1048576 bytes", "1048064 bytes"), 1),
        ("dd-9.1-1M.txt", stored("dd-9.1-1M.txt").replace("size 1048576", "size 1048064"), 1),
        ("dd-9.1-1M.txt", "0+0 records in\n0 bytes copied, 0.000199737 s, 0.0 kB/s\nsize 0 in 0 x 512\n", 2),
        ("ioping-1.3-latency.txt", "2" + stored("ioping-1.3-latency.txt")[1:], 1),
        ("ioping-1.3-cached.txt", "0 0 0 0 0 0 0 0 1 99688\n", 1),  # as ioping -B -c 1 prints it
        ("ioping-1.3-cached.txt", stored("ioping-1.3-cached.txt").replace(" 1000002170", " 100000217"), 1),
        ("fio-3.33-psync.json", changed(stored("fio-3.33-psync.json"), lambda job: job.update(error=84)), 1),
        ("fio-3.33-psync.json", changed(stored("fio-3.33-psync.json"), lambda job: job["read"].update(total_ios=0)), 1),
        ("fio-3.33-psync.json", changed(stored("fio-3.33-psync.json"), lambda job: job["read"].update(runtime=500)), 1),
        ("fio-3.33-psync.json", stored("fio-3.33-libaio.json"), 2),  # writes where reads were asked for
        # all were reads, so that nothing was flushed either; and once more after each read, as before fio 3.38
        (
            "fio-3.42-mixed.json",
            changed(stored("fio-3.42-mixed.json"), lambda job: job["write"].update(total_ios=0)),
            2,
        ),
        (
            "fio-3.42-mixed.json",
            changed(stored("fio-3.42-mixed.json"), lambda job: job["sync"].update(total_ios=2100)),
            1,
        ),
    ],
)
def test_less_than_was_asked_for_is_wrong(file: str, text: str, wrong: int) -> None:
    name, parameters, _ = STORED[file]
    assert workloads.get(name).verify(case_of(name, **parameters), text) == wrong


@pytest.mark.parametrize(
    ("size", "runtime", "wrong"),
    [
        (4 << 20, 1, 1),  # read 3126 times in its second
        (13_114_343_424, 2, 0),  # one pass, before the time was over
        (13_114_343_424 + 65_535, 2, 0),  # fio leaves out a block that is not whole
        (13_114_343_424 + 65_536, 2, 1),
        (13_114_343_424 - 65_535, 2, 0),  # or completes it
        (13_114_343_424 - 65_536, 2, 1),
        (1 << 40, 1, 0),  # the time was over before the pass
    ],
)
def test_a_cold_file_is_read_once(size: int, runtime: int, wrong: int) -> None:
    case = case_of("fio", rw="read", bs="64k", direct=0, cache="cold", size=size, runtime=runtime)
    assert workloads.get("fio").verify(case, stored("fio-3.33-io_uring.json")) == wrong


@pytest.mark.parametrize("rw", ["randrw", "read"])
def test_a_cold_file_of_each_job_is_read_once(rw: str) -> None:
    """Reads and writes together make the pass; a block of each file may be left out."""
    mixed = json.loads(stored("fio-3.42-mixed.json"))["jobs"][0]
    total = mixed["read"]["io_bytes"] + (mixed["write"]["io_bytes"] if rw == "randrw" else 0)
    for left, wrong in ((0, 0), (8191, 0), (8192, 1), (-8191, 0), (-8192, 1)):
        case = case_of("fio", rw=rw, jobs=1, direct=0, size=total + left, runtime=2)
        case = case.having(jobs=2)
        assert workloads.get("fio").verify(case, stored("fio-3.42-mixed.json")) == wrong


def test_short_runs_are_noted() -> None:
    """Milliseconds, and so few requests that none is above the percentile."""
    notes, text = workloads.get("fio").notes, stored("fio-3.33-psync.json")
    short = changed(text, lambda job: job["read"].update(runtime=99))
    few = changed(text, lambda job: job["read"].update(total_ios=999))
    assert [len(notes(of)) for of in (short, few, text, stored("fio-3.42-mixed.json"))] == [1, 1, 0, 1]


@pytest.mark.parametrize(("parameters", "names"), [
    ({}, ["request"]), ({"rw": "read", "fsync": 1}, ["request"]), ({"rw": "write", "fsync": 1}, ["request", "sync_"]),
    ({"rw": "randrw"}, ["read", "write"]), ({"rw": "rw", "fsync": 1}, ["read", "write", "sync_"]),
])  # fmt: skip
def test_measures_are_those_of_the_requests(parameters: dict[str, Any], names: list[str]) -> None:
    """Of random ones requests a second, of others bytes."""
    case = case_of("fio", bs="64k", **parameters)
    measures = workloads.get("fio").measures_of(case)
    prefixes = ["" if name == "request" else f"{name.removesuffix('_')}_" for name in names]
    expected = [f"{prefix}{name}" for prefix in prefixes for name in percentiles("", 0, 0, 0)]
    assert sorted(measure.name for measure in measures) == sorted(
        [*expected, *(name for name in names if not name.endswith("_"))]
    )
    rates = {(work.unit, work.amount) for measure in measures if (work := measure.work(case)).shown == "rate"}
    assert rates == {("requests", 1) if "rand" in case["rw"] else ("bytes", 65_536)}


@pytest.mark.parametrize(("parameters", "needed"), [
    ({"rw": "randrw"}, True), ({"ioengine": "io_uring", "depth": 2}, True), ({"ioengine": "io_uring"}, False),
    ({"ioengine": "libaio", "depth": 2}, False), ({"rw": "randread"}, False), ({"rw": "randrw", "fsync": 0}, False),
])  # fmt: skip
@pytest.mark.parametrize("version", ["3.37", "3.38"])
def test_fsync_of_a_version_that_flushes_too_often_is_skipped(
    parameters: dict[str, Any], needed: bool, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.workloads.software._version", lambda software, path: version)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("collbench.workloads.host.storage.no_direct", lambda folder: None)
    monkeypatch.setattr("collbench.workloads.host.storage.no_io_uring", lambda: None)
    lacks = workloads.get("fio").lacks(case_of("fio", **({"rw": "randwrite", "fsync": 8} | parameters)), tmp_path)
    assert (lacks is not None) == (needed and version == "3.37")


@pytest.mark.parametrize("file", EVENTS)
def test_another_number_of_events_is_wrong(file: str) -> None:
    (name, parameters, _), events = STORED[file], EVENTS[file]
    for counted in (events - 3, events + 1, 0):
        text, changes = re.subn(rf"(events: +){events}$", rf"\g<1>{counted}", stored(file), flags=re.MULTILINE)
        assert changes and workloads.get(name).verify(case_of(name, **parameters), text) == abs(events - counted)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        *((file, "") for file in STORED),
        *((file, stored(file)[: len(stored(file)) // 2]) for file in STORED if file not in EVENTS),
        ("dd-9.1-1M.txt", "1048576 Bytes (1,0 MB) kopiert, 0,00151052 s, 694 MB/s\nsize 1048576 in 2048 x 512\n"),
        ("dd-9.1-1M.txt", stored("dd-9.1-1M.txt").partition("size")[0]),
        ("dd-9.1-1M.txt", stored("dd-9.1-1M.txt").replace("in 2048", "in 0")),  # truncated to its size
        ("ioping-1.3-direct.txt", "17464 988905434 17660 72335070 36364 56625 4024462 55526\n"),  # before 1.0
        ("ioping-1.3-direct.txt", "--- . (ext4 /dev/vda 252.0 GiB) ioping statistics ---\n3 requests completed\n"),
        ("fio-3.33-psync.json", "fio-3.33: no jobs\n"),
        ("fio-3.33-psync.json", '{"fio version": "fio-3.33", "jobs": []}'),
        ("fio-3.33-psync.json", stored("fio-3.33-psync.json").replace("clat_ns", "clat")),  # before 3.0
        *((file, stored(file).replace("sysbench 1.0.20", "sysbench 0.4.12")) for file in EVENTS),
        *((file, stored(file).partition("General")[0]) for file in EVENTS),
        *((file, re.sub(r"(total time: +0)\.", r"\1,", stored(file))) for file in EVENTS),  # a decimal comma
    ],
)
def test_a_damaged_output_cannot_be_read(file: str, text: str) -> None:
    name, parameters, _ = STORED[file]
    with pytest.raises((ValueError, KeyError)):
        read(name, parameters, text)


def test_the_commands_say_everything() -> None:
    commands = {
        file: workloads.get(name).argv(case_of(name, **parameters), 1) for file, (name, parameters, _) in STORED.items()
    }
    assert commands["dd-9.1-1M.txt"][-1] == (
        "dd if=/dev/zero of=zeros bs=65536 count=16 conv=fdatasync && stat --format='size %s in %b x %B' zeros"
    )
    assert commands["ioping-1.3-latency.txt"] == ("ioping", "-B", "-c", "4", ".")
    assert commands["ioping-1.3-cached.txt"] == ("ioping", "-B", "-C", "-R", "-w", "1", ".")
    assert commands["ioping-1.3-direct.txt"] == ("ioping", "-B", "-D", "-R", "-w", "1", ".")
    assert commands["fio-3.33-libaio.json"] == (
        "fio", "--name=collbench", "--rw=randwrite", "--bs=4096", "--filename_format=data.$jobnum", "--size=1073741824",
        "--numjobs=1", "--group_reporting", "--thread", "--output-format=json", "--ioengine=libaio", "--iodepth=4",
        "--direct=1", "--time_based", "--runtime=1", "--ramp_time=2", "--invalidate=0",
    )  # fmt: skip
    assert commands["sysbench-1.0.20-fileio.txt"] == (
        "sysbench", "fileio", "--threads=2", "--events=200", "--time=0", "--file-num=4", "--file-total-size=1048576",
        "--file-block-size=16384", "--file-test-mode=rndrw", "--file-fsync-freq=100", "run",
    )  # fmt: skip
    # Since 1.0 sysbench ends after ten seconds where it is not told otherwise.
    assert commands["sysbench-1.0.20-cpu.txt"] == (
        "sysbench", "cpu", "--threads=2", "--events=200", "--time=0", "--cpu-max-prime=2000", "run")  # fmt: skip
    assert commands["sysbench-1.0.20-memory.txt"] == (
        "sysbench", "memory", "--threads=1", "--events=1024", "--time=0", "--memory-block-size=1024",
        "--memory-total-size=1048576", "--memory-oper=read", "run",
    )  # fmt: skip
    assert commands["sysbench-1.0.20-threads.txt"] == (
        "sysbench", "threads", "--threads=4", "--events=50", "--time=0", "--thread-yields=10", "--thread-locks=2",
        "run",
    )  # fmt: skip


def test_work_of_memory_is_whole_blocks() -> None:
    (measure,) = workloads.get("sysbench_memory").measures
    work = measure.work(case_of("sysbench_memory", size="1000", block=300))
    assert (work.amount, work.unit) == (900, "bytes")


def test_a_cold_file_is_measured_from_the_first_request_to_its_end() -> None:
    """What is left out before would warm it, and a second pass would find it warm."""
    fio = workloads.get("fio")
    timed = {
        (direct, cache): fio.argv(case_of("fio", direct=direct, cache=cache), 1)[-4:-1]
        for direct, cache in ((0, "cold"), (0, "warm"), (1, "cold"))
    }
    based = ("--time_based", "--runtime=10", "--ramp_time=2")
    assert timed == {(0, "cold"): ("--direct=0", "--runtime=10", "--ramp_time=0"),
                     (0, "warm"): based, (1, "cold"): based}  # fmt: skip


def test_the_page_cache_is_set_before_each_sample_where_it_is_used() -> None:
    before = workloads.get("fio").before
    (step,) = before(case_of("fio", direct=0, cache="warm"))
    assert (step.argv[-2:], step.figures('{"resident": 0.25}')) == (("warm", "data.0"), {"resident": 0.25})
    assert before(case_of("fio", direct=1)) == ()


def test_what_can_be_is_not_refused() -> None:
    assert case_of("fio", depth=8, ioengine="libaio")["depth"] == 8
    assert case_of("fio", depth=8, ioengine="io_uring", direct=0)["depth"] == 8
    assert case_of("fio", direct=0, cache="warm", size=4096)["cache"] == "warm"


@pytest.mark.parametrize(
    ("parameters", "lacks"),
    [
        ({}, True),
        ({"rw": "randrw"}, True),
        ({"bs": 3 * PAGESIZE}, False),
        ({"rw": "read"}, False),
        ({"cache": "warm"}, False),
    ],
)
def test_a_cold_page_is_read_by_one_request(parameters: dict[str, Any], lacks: bool, tmp_path: Path) -> None:
    """Of smaller ones at random all but the first would find it in the cache."""
    case = case_of("fio", **{"direct": 0, "bs": PAGESIZE // 2, **parameters})
    assert (workloads.get("fio").lacks(case, tmp_path) is not None) == lacks


@pytest.mark.parametrize(
    ("name", "printed", "old"),
    [("fio", "fio-2.21", "2.21"), ("fio", "fio-3.0", None), ("ioping", "ioping 0.9", "0.9"),
     ("ioping", "ioping 1.0", None)],
)  # fmt: skip
def test_an_older_program_is_skipped(
    name: str, printed: str, old: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, name, f"echo {printed}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    missing = workloads.get(name).missing()
    assert missing is None if old is None else str(missing).startswith(f"{name} {old} ({tmp_path}/{name}) ")


def test_a_write_is_verified_in_a_pass_of_its_own_and_a_read_is_not() -> None:
    after = workloads.get("fio").after
    (step,) = after(case_of("fio", rw="write"))
    assert {"--verify=crc32c", "--do_verify=1", f"--io_size={64 << 20}"} < set(step.argv)
    (step,) = after(case_of("fio", rw="randwrite", size="1M", jobs=2))
    assert "--io_size=524288" in step.argv
    pure = [next(word for word in after(case_of("fio", rw=rw))[0].argv if "rw=" in word) for rw in ("rw", "randrw")]
    assert pure == ["--rw=write", "--rw=randwrite"]
    assert [after(case_of("fio", rw=rw)) for rw in ("read", "randread")] == [(), ()]
    with pytest.raises(ValueError, match="84"):
        step.figures(changed(stored("fio-3.33-libaio.json"), lambda job: job.update(error=84)))
