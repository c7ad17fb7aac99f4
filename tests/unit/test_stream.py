"""stream: its kernels and their check, arrays that are large enough, and a run from its plan to the disk."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.runs import read_run
from tests.unit.made_programs import run_row

from collbench import workloads
from collbench.errors import PlanError
from collbench.machine.facts import last_level_cache, own_cores
from collbench.run.cases import program_cases
from collbench.schema.plan import Plan
from collbench.workloads.host import stream
from collbench.workloads.host.memory import huge_page_notes
from collbench.workloads.host.stream import TOLERANCE, in_cache

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")

MEASURES = ("copy", "scale", "add", "triad")


def plan_file(folder: Path, sizes: str, **counts: int) -> Path:
    path = folder / "plan.toml"
    lines = [f'benchmarks = [{{ name = "stream", arrays = "any", size = {sizes} }}]']
    path.write_text("\n".join(lines + [f"{name} = {number}" for name, number in counts.items()]), encoding="utf-8")
    return path


@pytest.mark.slow
@built
def test_stream_from_a_plan_to_a_run_on_disk(collbench: Any, tmp_path: Path) -> None:
    done = collbench("run", plan_file(tmp_path, '["64K", "80"]', warmup=2, iters=6), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert [(record.case["measure"], record.case["size"]) for record in run.records] == [
        (measure, size) for size in (65536, 80) for measure in MEASURES
    ]
    for record in run.records:
        samples = run.samples(record)
        assert record.status == "ok"
        assert samples is not None and samples.shape == (1, 6)
        assert record.check is not None and record.check.wrong == 0
        assert record.confinement and record.ranks is not None
    assert run.manifest.libraries == ()
    shown = collbench("show", tmp_path / "run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\nstream, arrays any, threads 1\n" in shown.stdout and "(GB/s)" in shown.stdout
    assert "no library" not in shown.stdout and "communicates" not in shown.stdout
    for style in ("osu", "nccl-tests"):
        other = collbench("show", tmp_path / "run", "--style", style)
        assert other.returncode == 0
        assert re.search(r"^# stream triad 64K: .*--style table", other.stdout, re.MULTILINE)


# Kernels -------------------------------------------------------------------------------------------------------------


@built
@pytest.mark.parametrize("times", [1, 7, 2 * stream.MOST_ROUNDS + 3])
def test_the_kernels_do_what_their_check_expects(times: int) -> None:
    taken, wrong, _ = stream.run(4096, times)
    assert wrong == 0
    assert {name: len(ns) for name, ns in taken.items()} == dict.fromkeys(MEASURES, times)


@built
@pytest.mark.parametrize("spoilt", [0, 1, 2])
@pytest.mark.parametrize("change", [1 + 1e-12, 0.0, float("nan"), float("inf")])
def test_the_check_counts_every_element_that_is_off(spoilt: int, change: float) -> None:
    from collbench.workloads import _stream

    arrays: list[Any] = [np.zeros(1000) for _ in range(3)]
    a, b, c = arrays
    _stream.fill(a, b, c)
    for _ in range(5):
        _stream.kernels(a, b, c)
    assert _stream.wrong(a, b, c, 5, TOLERANCE) == 0
    assert _stream.wrong(a, b, c, 4, TOLERANCE) == 3000
    arrays[spoilt][[0, 500, 999]] *= change
    assert _stream.wrong(a, b, c, 5, TOLERANCE) == 3


@built
def test_an_element_spoilt_in_any_part_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is checked before the arrays are filled anew."""
    from collbench.workloads import _stream

    rounds: list[tuple[int, int, int, int]] = []

    def spoils_the_first(a: Any, b: Any, c: Any) -> tuple[int, int, int, int]:
        rounds.append(_stream.kernels(a, b, c))
        if len(rounds) == stream.MOST_ROUNDS:
            a[:8] = b"\xff" * 8
        return rounds[-1]

    module = SimpleNamespace(kernels=spoils_the_first, fill=_stream.fill, wrong=_stream.wrong)
    monkeypatch.setattr(workloads, "_stream", module)
    assert stream.run(800, stream.MOST_ROUNDS + 1)[1] == 1


@built
def test_arrays_of_other_lengths_are_refused() -> None:
    from collbench.workloads import _stream

    array = bytearray(32)
    with pytest.raises(ValueError, match="length"):
        _stream.fill(array, array, bytearray(40))
    with pytest.raises(BufferError):
        _stream.fill(array, array, bytes(32))


@built
def test_arrays_are_private_memory_which_can_have_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.workloads import _stream

    kinds: list[str] = []

    def kernels(*arrays: Any) -> tuple[int, int, int, int]:
        maps = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
        for array in arrays:
            at = ctypes.addressof(ctypes.c_char.from_buffer(array))
            for span, kind, *_ in maps:
                first, last = (int(end, 16) for end in span.split("-"))
                kinds.extend([kind] if first <= at < last else [])
        return (1, 1, 1, 1)

    monkeypatch.setattr(_stream, "kernels", kernels)
    stream.run(1 << 20, 1)
    assert kinds == ["rw-p"] * 3


@built
@pytest.mark.parametrize("elements", [1, 7, 8, 9, 1003, 100_000])
def test_bound_threads_do_what_one_does(elements: int) -> None:
    bound = tuple(own_cores())
    taken, wrong, _ = stream.run(8 * elements, stream.MOST_ROUNDS + 3, bound)
    assert wrong == 0
    assert {name: len(ns) for name, ns in taken.items()} == dict.fromkeys(MEASURES, stream.MOST_ROUNDS + 3)
    assert tuple(own_cores()) == bound  # the threads are bound, and not who starts them


@built
def test_a_processor_that_may_not_be_used_ends_all_threads() -> None:
    from collbench.workloads import _stream

    a, b, c = (bytearray(4096) for _ in range(3))
    (first, *_) = own_cores()
    for others in ((1023,), (-1,), (1 << 20,)):
        with pytest.raises(OSError, match="Invalid"):
            _stream.bound(a, b, c, (first, *others), 3)
    with pytest.raises(ValueError, match="processors"):
        _stream.bound(a, b, c, (), 3)


def test_several_threads_and_a_memory_node_are_told_to_the_program() -> None:
    def told(**values: Any) -> tuple[str, ...]:
        (case,) = program_cases(Plan(benchmarks=({"name": "stream", "arrays": "any", "size": 80, **values},)), 1)
        return tuple(workloads.get("stream").argv(case.case, 3))[3:]

    assert told() == ("--size", "80", "--times", "3", "--threads", "1")
    assert told(threads=0, node=1) == ("--size", "80", "--times", "3", "--threads", "0", "--node", "1")


@built
def test_a_copy_is_compiled_to_a_call_of_memcpy_as_in_stream_c() -> None:
    from collbench.workloads import _stream

    assert b"memcpy" in Path(_stream.__file__ or "").read_bytes()


@built
def test_the_record_has_the_notes_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.workloads import _stream

    expected = {f"kernels compiled by {_stream.COMPILER}", *in_cache(80, last_level_cache())}
    for record, _ in run_row(monkeypatch, workloads.get("stream")):
        assert record.status == "ok"
        notes = {note.removeprefix("stream: ") for note in record.notes}
        assert expected <= notes
        assert sum("huge pages" in note for note in notes) == len(huge_page_notes(240))


# Arrays --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cache", "memory", "size"),
    [
        (32 << 20, 24 << 30, "128M"), ((32 << 20) + 1024, 24 << 30, "129M"), (260 << 20, 24 << 30, "1040M"),
        (260 << 20, 4 << 30, "256M"), (None, 24 << 30, "256M"), (None, 1 << 20, "1M"),
    ],
)  # fmt: skip
def test_the_usual_arrays_are_four_times_the_cache_where_there_is_memory(
    cache: int | None, memory: int, size: str
) -> None:
    assert stream.usual_size(cache, memory) == size


def test_the_usual_size_is_that_of_this_machine() -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert workloads.get("stream").sizes == (stream.usual_size(last_level_cache(), memory),)


def test_arrays_that_are_in_the_cache_are_noted() -> None:
    cache = 32 << 20
    assert in_cache(4 * cache, cache) == in_cache(8, None) == ()
    in_part, whole, almost = (in_cache(size, cache) for size in (4 * cache - 8, cache // 3, cache // 3 + 8))
    assert all("32.00 MiB" in note for (note,) in (in_part, whole, almost))
    assert "128.00 MiB" in in_part[0] and "10.67 MiB" in almost[0]
    assert ["in part" in note for (note,) in (in_part, whole, almost)] == [True, False, True]


def test_arrays_that_measure_the_cache_are_refused_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "last_level_cache", lambda: 1 << 20)
    monkeypatch.setattr(stream, "USUAL", "4M")
    table = {"name": "stream", "size": ("4M", "1M")}
    with pytest.raises(PlanError, match=r" 4 x .* size=4M .* arrays=any"):
        program_cases(Plan(benchmarks=(table,)), 1)
    assert len(program_cases(Plan(benchmarks=({**table, "arrays": "any"},)), 1)) == 2
    assert len(program_cases(Plan(benchmarks=({"name": "stream", "size": "4M"},)), 1)) == 1


def test_the_usual_size_is_accepted_where_the_cache_is_too_large_for_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "last_level_cache", lambda: 480 << 20)
    monkeypatch.setattr(stream, "USUAL", "1506M")
    (case,) = program_cases(Plan(benchmarks=({"name": "stream", "size": "1506M"},)), 1)
    assert case.case["size"] == 1506 << 20
    with pytest.raises(PlanError, match="size=1506M"):
        program_cases(Plan(benchmarks=({"name": "stream", "size": "1505M"},)), 1)
