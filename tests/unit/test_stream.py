"""stream: arrays that are large enough, what is refused, and a run from its plan to the disk."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from collbench import workloads
from collbench.bindings.spec import WorldSettings
from collbench.errors import PlanError
from collbench.machine.facts import last_level_cache
from collbench.run.expand import program_cases
from collbench.run.experiment import plan_experiment
from collbench.schema.plan import Plan, check_plan
from collbench.schema.store import read_run
from collbench.workloads.host import stream as stream_program

built = pytest.mark.skipif(workloads.get("stream").needs() is not None, reason=workloads.get("stream").needs() or "")


@pytest.mark.slow
@built
def test_stream_from_a_plan_to_a_run_on_disk(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'benchmarks = [{ name = "stream", arrays = "any", size = ["64K", "80"] }]\nwarmup = 2\niters = 6\n',
        encoding="utf-8",
    )
    done = collbench("run", plan, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert [(record.case["measure"], record.case["size"]) for record in run.records] == [
        (measure, size) for size in (65536, 80) for measure in ("copy", "scale", "add", "triad")
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
    assert "no library" not in shown.stdout
    assert (
        "\nstream, arrays any\n" in shown.stdout
        and "(GB/s)" in shown.stdout
        and "communicates with nobody" not in shown.stdout
    )
    for style in ("osu", "nccl-tests"):
        told = collbench("show", tmp_path / "run", "--style", style)
        assert told.returncode == 0
        assert "# stream triad 64K: not a collective; --style table prints it" in told.stdout


def test_a_size_that_no_array_has_is_refused_before_anything_starts(collbench: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'benchmarks = [{ name = "stream", arrays = "any", size = ["80", "81"] }]\niters = 2\n', encoding="utf-8"
    )
    done = collbench("run", plan, "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "benchmark stream size=81 arrays=any: the size must be a multiple of 8 bytes" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("size", ["1", "9", "100"])
def test_stream_refuses_sizes_that_are_no_whole_elements(size: str) -> None:
    plan = Plan(benchmarks=({"name": "stream", "arrays": "any", "size": ("8", size)},))
    message = rf"^benchmark stream size={size} arrays=any: the size must be a multiple of 8 bytes, and at least 8\.$"
    with pytest.raises(PlanError, match=message):
        plan_experiment(check_plan(plan), WorldSettings(), ())


@pytest.mark.parametrize(
    ("cache", "memory", "size"),
    [
        (32 << 20, 24 << 30, "128M"),
        ((32 << 20) + 1024, 24 << 30, "129M"),
        (260 << 20, 24 << 30, "1040M"),
        (260 << 20, 4 << 30, "256M"),
        (None, 24 << 30, "256M"),
        (None, 1 << 20, "1M"),
    ],
)
def test_the_usual_arrays_are_four_times_the_cache_where_there_is_memory(
    cache: int | None, memory: int, size: str
) -> None:
    assert stream_program.usual_size(cache, memory) == size


def test_the_usual_size_is_that_of_this_machine() -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert workloads.get("stream").sizes == (stream_program.usual_size(last_level_cache(), memory),)


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
    stream_program.run(1 << 20, 1)
    assert kinds == ["rw-p"] * 3


@built
def test_a_copy_is_compiled_to_a_call_of_memcpy_as_in_stream_c() -> None:
    from collbench.workloads import _stream

    assert b"memcpy" in Path(_stream.__file__ or "").read_bytes()


def test_arrays_that_are_in_the_cache_are_noted() -> None:
    cache = 32 << 20
    assert stream_program.in_cache(4 * cache, cache) == stream_program.in_cache(8, None) == ()
    (note,) = stream_program.in_cache(4 * cache - 8, cache)
    assert (
        note
        == "arrays of 128.00 MiB are smaller than 4 x the last-level cache of 32.00 MiB: this is in part its bandwidth"
    )
    (note,) = stream_program.in_cache(cache // 3, cache)
    assert note.endswith("fit into the last-level cache of 32.00 MiB: this is its bandwidth, not that of the memory")
    assert "in part" in stream_program.in_cache(cache // 3 + 8, cache)[0]


def test_the_usual_size_is_accepted_where_the_cache_is_too_large_for_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from collbench.workloads.host import stream

    monkeypatch.setattr(stream, "last_level_cache", lambda: 480 << 20)
    monkeypatch.setattr(stream, "USUAL", "1506M")
    (case,) = program_cases(Plan(benchmarks=({"name": "stream", "size": "1506M"},)), 1)
    assert case.case["size"] == 1506 << 20
    with pytest.raises(PlanError, match="Use size=1506M"):
        program_cases(Plan(benchmarks=({"name": "stream", "size": "1505M"},)), 1)


def test_stream_refuses_arrays_that_measure_the_cache_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from collbench.workloads.host import stream

    monkeypatch.setattr(stream, "last_level_cache", lambda: 1 << 20)
    monkeypatch.setattr(stream, "USUAL", "4M")
    asked = {"name": "stream", "size": ("4M", "1M")}
    with pytest.raises(PlanError, match=r"smaller than 4 x the last-level cache .* Use size=4M or more, or arrays=any"):
        program_cases(Plan(benchmarks=(asked,)), 1)
    assert len(program_cases(Plan(benchmarks=({**asked, "arrays": "any"},)), 1)) == 2
    assert len(program_cases(Plan(benchmarks=({"name": "stream", "size": "4M"},)), 1)) == 1
