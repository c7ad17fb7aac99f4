"""Plans before a launch: what they would take, what has no effect, and cells until they are decided."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.decided_worlds import TOML, Launch, Played, clear, noisy

from collbench.analysis.compare import compare
from collbench.analysis.deciding import OpenAtPlace
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import within
from collbench.analysis.runs import observe
from collbench.cli import run_command, until
from collbench.cli.plan import EXECUTION, about, seconds_of, seconds_of_launch, show_cells
from collbench.errors import PlanError
from collbench.launch import expansion
from collbench.launch.campaign import finished, prepare
from collbench.launch.cells import LaunchPart
from collbench.launch.collect import placed_case
from collbench.launch.engines import host
from collbench.launch.engines.fake import contents
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.preview import ignored_keys, indistinct_sides, preview_of
from collbench.launch.shipped import find_plan
from collbench.machine.topology import Core, Topology
from collbench.schema.case import Case
from collbench.schema.plan import Plan, Side, load_launch_plan
from collbench.schema.record import Record
from collbench.schema.store import read_run

USUAL: dict[str, Any] = {"images": ("tools",), "policies": ("host",), "launches": 1}


def expanded(**keys: Any) -> ExpandedPlan:
    return expand(Plan(**USUAL | keys), lambda engine: Topology(tuple(map(Core, range(4)))))


# Durations -----------------------------------------------------------------------------------------------------------


def seconds(benchmark: dict[str, Any] | str, **keys: Any) -> float:
    """Without the start of the world."""
    plan = {"benchmarks": (benchmark,), "iters": 3, "warmup": 1, **keys}
    return (
        seconds_of(expanded(**plan))
        - seconds_of(expanded(**plan | {"benchmarks": ("copyup",), "iters": 1}))
        + (
            3 * EXECUTION  # of copyup, whose three cases are executed once
        )
    )


FIO = {"name": "fio", "size": "500000000", "runtime": 30, "ramp": 2}


@pytest.mark.parametrize(
    ("benchmark", "each"),
    [
        (FIO, 33.0), (FIO | {"direct": 0, "cache": "cold"}, 31.0), (FIO | {"direct": 0, "cache": "warm"}, 33.0),
        ({"name": "ioping", "count": 20}, 20.0), ({"name": "ioping", "mode": "direct", "seconds": 7}, 7.0),
        ({"name": "hpcg", "seconds": 60}, 60.0), ("dd", 0.0),
    ],
)  # fmt: skip
def test_executions_take_as_long_as_their_parameters_say(benchmark: dict[str, Any] | str, each: float) -> None:
    """Warm-up and three samples, each an execution, and a round time for its start."""
    assert seconds(benchmark) == pytest.approx(4 * (each + EXECUTION))


def test_a_budget_is_spent_and_a_floor_is_reached() -> None:
    asked = {"iters": None, "warmup": 0, "floor": 2}
    short, long = {"name": "ioping", "count": 2}, {"name": "ioping", "count": 100}
    assert seconds(short, budget="60s", **asked) == pytest.approx(60.0)
    assert seconds(long, budget="60s", **asked) == pytest.approx(2 * (100 + EXECUTION))


def test_the_plan_storage_takes_about_half_an_hour() -> None:
    plan = load_launch_plan(find_plan("storage"))
    found = expand(plan, lambda engine: Topology(tuple(map(Core, range(2)))))
    assert 25 * 60 < seconds_of(found) < 40 * 60
    assert about(found).endswith(" min, and 1 sample of each measurement of copyup")


@pytest.mark.parametrize(("plan", "minutes"), [("ddp-cpu", 25), ("zhao2018-ps", 40), ("train", 30)])
def test_plans_of_trainings_take_about_as_long_as_they_took(plan: str, minutes: float) -> None:
    """On two cores, where most of the time is that of processes that import torch."""
    found = expand(load_launch_plan(find_plan(plan)), lambda engine: Topology(tuple(map(Core, range(2)))))
    assert minutes / 1.5 < seconds_of(found) / 60 < minutes * 1.5
    assert about(found).endswith(" min"), "nothing of it is unknown"


def test_steps_batches_and_ranks_make_a_training_longer() -> None:
    usual = {"iters": 3, "warmup": 0, "images": ("torch",)}

    def taken(name: str, ranks: int = 1, **values: Any) -> float:
        return seconds_of(expanded(benchmarks=({"name": name, **values},), ranks=(ranks,), **usual))

    assert taken("parameter_server", 2, servers=1, steps=20_000) > 2 * taken("parameter_server", 2, servers=1, steps=10)
    assert taken("train", epoch=100) > 3 * taken("train", epoch=1)
    assert taken("ddp", 2, batch=2048) > 3 * taken("ddp", 2, batch=1)
    for name in ("ddp", "train"):
        told = about(expanded(benchmarks=({"name": name, "device": "cuda"},), **usual))
        assert told.endswith("3 samples of each measurement"), "what a GPU takes is not known"
    gloo = {"collectives": ("allreduce",), "sizes": (8,), "iters": 1, "ranks": (2,), "images": ("torch",)}
    assert seconds_of(expanded(backends=("torch-gloo",), **gloo)) > 4 + seconds_of(expanded(backends=("mpi",), **gloo))


def test_what_tells_no_time_is_named() -> None:
    assert about(expanded(benchmarks=("ioping",), iters=2)).startswith("about ")
    assert about(expanded(benchmarks=("ioping",), iters=2)).endswith(" s")
    assert about(expanded(benchmarks=("ioping", "dd"), iters=2)).endswith("2 samples of each measurement of dd")
    few = expanded(collectives=("bcast",), sizes=("8",), iters=2, ranks=(2,))
    assert about(few) == "about 1 s to start worlds, and 2 samples of each measurement"
    assert " to start" not in about(expanded(collectives=("bcast",), sizes=("8",), budget="60s", ranks=(2,)))


# What would be refused -----------------------------------------------------------------------------------------------


def holding(monkeypatch: pytest.MonkeyPatch, **missing: str) -> None:
    """The environment on the host lacks these benchmarks."""
    held = msgspec.structs.replace(contents(""), missing_benchmarks=missing)
    monkeypatch.setattr(host, "probe", lambda environment, vendor="", benchmarks=(), overrides=None: held)


def test_a_folder_that_is_none_is_refused_before_an_engine_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding(monkeypatch)
    file = tmp_path / "file"
    file.write_text("")
    for folder in ("/no/such", str(file)):
        asked = Plan(**USUAL, benchmarks=("dd",), storage=("bind",), folder=folder)
        said = f"storage bind: folder {folder}: there is no such folder; set folder to another of the host."
        assert preview_of(expand(asked)).lines == (f"collbench launch would refuse this plan here: {said}",)
        with pytest.raises(PlanError) as refused:
            prepare(asked, lambda: None, {})
        assert str(refused.value) == said
    assert preview_of(expanded(benchmarks=("dd",), storage=("bind",), folder=str(tmp_path))).lines == ()
    assert preview_of(expanded(benchmarks=("stream",), folder="/no/such")).lines == (), "no files, no folder"


def test_a_folder_in_which_nothing_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, but on a device that is read-only."""
    holding(monkeypatch)
    monkeypatch.setattr("collbench.launch.folders.os.access", lambda path, mode: path != str(tmp_path))
    (line,) = preview_of(expanded(benchmarks=("dd",), folder=str(tmp_path))).lines
    assert line.endswith(
        f"storage overlay: folder {tmp_path}: nothing can be made in it; set folder to another of the host."
    )


def test_programs_that_the_host_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    holding(monkeypatch, dd="dd was not found")
    (line,) = preview_of(expanded(benchmarks=("dd",))).lines
    assert line.startswith("collbench launch would refuse this plan here: the environment beside tools (")
    assert line.endswith('): benchmark dd: dd was not found. Or set unusable = "skip".')
    (line,) = preview_of(expanded(benchmarks=("dd",), unusable="skip")).lines
    assert line == "collbench launch would skip dd on the host, beside the image tools: dd was not found"
    assert preview_of(expanded(benchmarks=("dd",), policies=("multi",))).lines == (), "what an image holds is not known"


@pytest.mark.parametrize("policies", [("host",), ("host", "single")])
def test_what_a_side_lacks_on_the_host_is_refused_with_its_name(tmp_path: Path, policies: tuple[str, ...]) -> None:
    """Of ranks that communicate too: an environment that is none can be seen without an engine."""
    keys = {"images": ("openmpi",), "policies": policies, "ranks": (2,), "collectives": ("bcast",)}
    sides = {"good": Side(), "bad": Side(environments={"openmpi": str(tmp_path)})}
    found = [line for line in preview_of(expanded(**keys, sides=sides)).lines if "side good: " not in line]
    said = f"environments: openmpi: {tmp_path} has no bin/python. Name a virtual environment."
    assert found == [f"collbench launch would refuse this plan here: side bad: {said}"]
    if policies == ("host",):
        with pytest.raises(PlanError, match=r"^side bad: environments: openmpi: "):
            prepare(Plan(**keys, sides={"bad": sides["bad"]}), lambda: None)


def test_an_image_of_a_side_that_nobody_knows_is_doubted_with_its_name() -> None:
    sides = {"base": Side(), "other": Side(images={"torch": "torc"})}
    (line,) = preview_of(expanded(images=("torch",), policies=("multi",), benchmarks=("dd",), sides=sides)).lines
    assert line.startswith("side other: image torc: none that comes with collbench;")


def test_memory_that_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    holding(monkeypatch)
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1 << 20)
    (line,) = preview_of(expanded(benchmarks=({"name": "linpack", "n": 2000},))).lines
    assert "linpack n=2000 " in line and "and 1.00 MiB are free" in line


def test_a_name_that_no_image_of_ours_has_is_doubted() -> None:
    (line,) = preview_of(expanded(images=("torc",), policies=("multi",), benchmarks=("stream",))).lines
    assert line == "image torc: none that comes with collbench; it must be one of your own. Did you mean torch?"
    own = ("torch", "torch:mine", "registry/torc")
    assert preview_of(expanded(images=own, policies=("multi",), benchmarks=("stream",))).lines == ()


def test_a_training_that_does_not_fit_is_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"name": "ddp", "network": "resnet56", "batch": 1 << 20}
    (line,) = preview_of(expanded(images=("torch",), policies=("multi",), ranks=(2,), benchmarks=(training,))).lines
    assert line.startswith("collbench launch would refuse this plan here: torch multi strict, 2 ranks: ddp ")
    assert line.endswith("Lower the batch or the number of ranks.")


# What has no effect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ({"benchmarks": ("dd",)}, []),
        ({"benchmarks": ("dd",), "seccomp": ("unconfined",)},
         ["seccomp: has no effect, because no policy has containers"]),
        ({"benchmarks": ("dd",), "isolation": ("net",)},
         ["isolation: has no effect, because no policy has containers"]),
        ({"benchmarks": ("dd",), "policies": ("multi",), "seccomp": ("unconfined",), "isolation": ("limits",)}, []),
        ({"benchmarks": ("dd",), "policies": ("multi",), "environments": {"tools": "/x"}},
         ["environments: has no effect, because every policy has containers"]),
        ({"benchmarks": ("stream",), "storage": ("tmpfs",)},
         ["storage: has no effect, because no benchmark works in files"]),
        ({"collectives": ("bcast",), "ranks": (2,), "folder": "/tmp"},  # noqa: S108 - as a plan has it
         ["folder: has no effect, because no benchmark works in files"]),
        ({"benchmarks": ("dd", "stream"), "storage": ("tmpfs",), "folder": "/tmp"}, []),  # noqa: S108
        ({"benchmarks": ("dd",), "policies": ("host", "host"), "storage": ("bind", "tmpfs", "bind", "bind")},
         ["policies: 'host' is listed twice, and measured once", "storage: 'bind' is listed twice, and measured once"]),
        ({"benchmarks": ({"name": "dd", "count": (1, 2, 1)}, "dd", "dd")},
         ["benchmarks: 'dd' is listed twice, and measured once",
          "benchmark dd: count: 1 is listed twice, and measured once"]),
    ],
)  # fmt: skip
def test_keys_without_effect_and_values_that_are_listed_twice(keys: dict[str, Any], lines: list[str]) -> None:
    assert sorted(ignored_keys(expanded(**keys))) == sorted(lines)


@pytest.mark.parametrize(
    ("ranks", "loads"), [((2,), []), ((2, 6), ["6", "4"]), ((5, 6, 7, 8, 9), ["5", "4", "6", "4", "7", "4", "2"])]
)  # fmt: skip
def test_how_many_ranks_share_how_many_cores(
    ranks: tuple[int, ...], loads: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"images": ("openmpi",), "policies": ("host", "multi"), "ranks": ranks, "oversubscribe": True}
    show_cells(expanded(**more, collectives=("bcast",)))
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("# oversubscribed: ")]
    assert [number for line in said for number in re.findall(r"[0-9]+", line)] == loads


@pytest.mark.parametrize(
    ("sides", "named"),
    [
        ({}, []), ({"a": {"variables": {"A": "1"}}}, ["a"]),
        ({"a": {}, "b": {"variables": {"A": "1"}}}, []),
        ({"a": {}, "b": {"variables": {"A": "0"}}, "c": {"variables": {"A": "1"}}}, ["a, b"]),
    ],
)  # fmt: skip
def test_a_side_that_is_alone_or_like_another_is_named(sides: dict[str, Any], named: list[str]) -> None:
    made = {name: Side(**keys) for name, keys in sides.items()}
    found = list(indistinct_sides(Plan(**USUAL, benchmarks=("dd",), variables={"A": "0"}, sides=made)))
    assert [line.partition(" is ")[0].partition(" are ")[0] for line in found] == [f"sides: {name}" for name in named]


def test_a_launch_with_equal_sides_says_so_once_and_a_plan_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench
) -> None:
    holding(monkeypatch)
    monkeypatch.setattr("collbench.cli.launch.perform", lambda *_, **__: sys.exit(0))
    text = 'images = ["tools"]\npolicies = ["host"]\nbenchmarks = ["dd"]\n[sides.a]\n[sides.b]\n'
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert here("plan", tmp_path / "plan.toml").out.count("sides: a, b are equal") == 1
    assert here("launch", tmp_path / "plan.toml").err.count("# sides: a, b are equal") == 1


def test_plan_and_launch_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench, capsys: pytest.CaptureFixture[str]
) -> None:
    holding(monkeypatch, stream="no kernels")
    text = 'images = ["tools"]\npolicies = ["host"]\nseccomp = ["unconfined"]\nbenchmarks = ["stream"]\n'
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    done = here("plan", tmp_path / "plan.toml")
    assert done.code == 0
    *_, idle, refused = done.out.splitlines()
    assert idle == "seccomp: has no effect, because no policy has containers"
    assert refused.startswith("collbench launch would refuse this plan here: the environment beside tools")
    show_cells(expanded(benchmarks=("stream",), seccomp=("unconfined",)))
    assert "# seccomp: has no effect, because no policy has containers\n" in capsys.readouterr().err


def test_plans_that_come_with_collbench_have_no_idle_keys() -> None:
    """On a machine that has all that they ask for."""
    for name in ("quick", "suite-quick", "xu2017", "zhao2018-sysbench", "storage", "seccomp", "ladder"):
        plan = load_launch_plan(find_plan(name))
        assert ignored_keys(expand(plan, lambda engine: Topology(tuple(map(Core, range(256)))))) == ()


# `launch --until decided` on the fake engine --------------------------------------------------------------------------

SIZES = TOML.replace('["8", "64K"]', '["8", "1K", "64K"]').replace("launches = 12", "launches = 14")

#: So many blocks that agree decide all three sizes.
AGREED = 8


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Launch:
    return Launch(tmp_path, monkeypatch, capsys)


def at_64k(place: str, case: Case, noise: float) -> float:
    """At 64K multi strict takes a tenth more, where launches differ by 8 %; and single files at 1K."""
    open_at = {"multi strict": 1 << 16, "single files": 1024}
    spread = 0.08 if open_at.get(place) == case["size"] else 0.001
    return float(1000.0 * np.exp(noise * spread + (0.1 if spread > 0.01 else 0.0)))


def measured(run: Path) -> dict[tuple[str, int], list[int]]:
    """By place and size the launches that measured it."""
    found: dict[tuple[str, int], list[int]] = {}
    for record in read_run(run).records:
        found.setdefault((record.case.where.text, record.case["size"]), []).append(record.launch)
    return {key: sorted(launches) for key, launches in found.items()}


def by_block(played: list[Played], cells: int = 4) -> dict[int, list[Played]]:
    found: dict[int, list[Played]] = {}
    for one in played:
        found.setdefault(one.sequence // cells, []).append(one)
    return found


def test_only_what_is_open_is_measured_again(launch: Launch, tmp_path: Path) -> None:
    code, err = launch(at_64k, toml=SIZES)
    assert code == 0, err
    found = measured(tmp_path / "run")
    assert {len(launches) for (_, size), launches in found.items() if size == 8} == {AGREED}
    assert found["multi strict", 1 << 16] == found["single strict", 1 << 16], "both sides in the same blocks"
    assert len(found["multi strict", 1 << 16]) > AGREED
    assert len(found["single files", 1024]) > AGREED
    assert len(found["multi strict", 1024]) < len(found["multi strict", 1 << 16])


def test_places_that_are_compared_execute_the_same_in_the_same_order(launch: Launch) -> None:
    assert launch(at_64k, toml=SIZES)[0] == 0
    blocks = by_block(launch.played)
    partly = {block for block, played in blocks.items() if any(one.chosen.measured for one in played)}
    assert partly and min(partly) == AGREED
    for block, played in blocks.items():
        assert len({tuple(case["size"] for case in one.executed) for one in played}) == 1, block
        sizes = [case["size"] for case in played[0].executed]
        assert sizes == sorted(sizes), "as in the plan"
    assert any(one.chosen.brief for one in launch.played), "what is open elsewhere"


def test_each_line_says_what_is_measured_again_and_the_last_what_was(launch: Launch, tmp_path: Path) -> None:
    err = launch(at_64k, toml=SIZES)[1]
    records = read_run(tmp_path / "run").records
    launches = {(one.case.where.text, one.launch) for one in records}
    lines = re.findall(
        r"after (\d+) blocks: .*; (\d+) of 12 cases measured again, in (\d) of 4 cells; at most (\d+) launches", err
    )
    found = [tuple(map(int, line)) for line in lines]
    assert found[0] == (3, 12, 4, 44) and min(cases for _, cases, *_ in found) < 12
    for block, cases, cells, most in found:
        again = [one.case.where.text for one in records if one.launch == block]
        assert (len(again), len(set(again)), (14 - block) * cells) == (cases, cells, most)
    assert f"# {len(launches)} of 56 launches, {len(records)} of 168 measurements\n" in err
    first = err.splitlines()[0]
    assert "at most about" not in first and first.endswith(", if all launches are needed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("takes", "stop_at", "cut"), [(at_64k, 30, 0), (at_64k, 30, 1), (at_64k, 9, 2), (noisy, 33, 1)]
)
def test_a_run_that_was_stopped_has_in_the_end_what_it_would_have_had(
    launch: Launch, tmp_path: Path, takes: Callable[[str, Case, float], float], stop_at: int, cut: int
) -> None:
    assert launch(takes, toml=SIZES)[0] == 0
    whole = measured(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "whole")
    assert launch(takes, toml=SIZES, stop_at=stop_at, cut=cut)[0] == 130
    assert len(read_run(tmp_path / "run").records) < sum(map(len, whole.values()))
    code, err = launch(takes, "--resume", str(tmp_path / "run"), toml=SIZES)
    assert code == 0, err
    assert measured(tmp_path / "run") == whole
    assert launch.played[0].sequence >= stop_at - 1, "what is recorded is not launched again"


def test_a_launch_that_fails_has_failed_in_the_cases_that_it_was_to_measure(launch: Launch, tmp_path: Path) -> None:
    def after_what_agreed(place: str, case: Case, noise: float) -> float:
        if place == "multi strict" and len(launch.played) >= 4 * AGREED:
            raise OSError("no such place")
        return at_64k(place, case, noise)

    code, err = launch(after_what_agreed, toml=SIZES.replace("launches = 14", "launches = 28"))
    assert code == 1
    cells = {(cell.case.where.text, cell.case["size"]): cell for cell in observe(tmp_path / "run").cells.values()}
    assert (
        cells["multi strict", 1 << 16].failed
        == len(re.findall(r"^collbench: launch \d+ .*multi strict, 2 ranks\) ", err, re.MULTILINE))
        > 2
    )
    assert cells["multi strict", 8].failed == cells["multi strict", 1024].failed == 0
    assert all(cell.failed == 0 for (place, _), cell in cells.items() if place != "multi strict")
    records = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert {record.case["size"] for record in records} == {1 << 16}
    assert {record.reason for record in records} == {"OSError: no such place"}


def test_a_whole_launch_that_fails_has_a_record_of_each_case(launch: Launch, tmp_path: Path) -> None:
    def never(place: str, case: Case, noise: float) -> float:
        if place == "multi strict":
            raise OSError("no such place")
        return clear(place, case, noise)

    assert launch(never, toml=SIZES)[0] == 1
    records = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert sorted((record.launch, record.case["size"]) for record in records) == [
        (block, size) for block in range(3) for size in (8, 1024, 1 << 16)
    ]
    assert launch(never, "--resume", str(tmp_path / "run"), toml=SIZES)[0] == 1
    assert launch.played == [], "a failure is recorded once"


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["collbench", *words])
    assert run_command(speaks=True) == 0
    return capsys.readouterr().out


def test_tables_have_of_each_case_the_launches_that_it_has(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(at_64k, toml=SIZES)[0] == 0
    run = str(tmp_path / "run")
    numbers = {key: len(launches) for key, launches in measured(tmp_path / "run").items()}
    rows = [line.split() for line in shown(monkeypatch, capsys, "show", run).splitlines() if line[:1].isdigit()]
    sizes = {"8": 8, "1K": 1024, "64K": 1 << 16}
    assert {(f"{row[1]} {row[2]}", sizes[row[0]]): int(row[-1]) for row in rows} == numbers
    pairs = within(observe(tmp_path / "run"), find_factor("policy"), frozenset())
    for one in compare(pairs):
        base, other = (set(cell.launches) for cell in (one.pair.base, one.pair.other))
        assert one.launches == (len(base & other),) * 2
        assert (one.left_out, one.pair.base.failed) == (0, 0)
    said = shown(monkeypatch, capsys, "compare", run, "--by", "policy", "--all")
    assert "launched until decided" in said and "fewer launches" not in said


def test_what_is_compared_with_nothing_has_as_many_launches_as_an_interval_needs(
    launch: Launch, tmp_path: Path
) -> None:
    images = (
        TOML.replace('["openmpi"]', '["openmpi", "mpich", "torch"]').replace('"multi"', "").replace(', "files"', "")
    )
    code, err = launch(clear, toml=f'{images}image_backends = {{ torch = ["torch-gloo"] }}\n')
    assert code == 0, err
    assert "decides 2 comparisons (2 by image)" in err
    found = {(one.cell.image, one.sequence // 3) for one in launch.played}
    assert {number for image, number in found if image == "torch"} == set(range(6))


# Of parts ------------------------------------------------------------------------------------------------------------


def machine(engine: str) -> Topology:
    return Topology(tuple(map(Core, range(4))))


def test_a_program_is_measured_with_all_its_measures_where_one_is_open_anywhere() -> None:
    plan = Plan(
        collectives=("bcast",), sizes=("8", "16"), ranks=(1,), images=("openmpi",), policies=("host", "multi"),
        benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "16")},),
    )  # fmt: skip
    expanded = expand(plan, machine)
    cell = expanded.cells[0]
    copy = next(case for case in expanded.expected[cell] if case["measure"] == "copy" and case["size"] == 8)
    bcast = next(case for case in expanded.expected[cell] if case.workload == "bcast" and case["size"] == 16)
    here, elsewhere = until._subject(bcast), until._subject(copy)
    found = until._part(expanded, cell, OpenAtPlace(frozenset({here}), frozenset({elsewhere})))
    assert found.brief == frozenset()
    assert {(case.workload, case["size"], case["measure"]) for case in found.measured} == {
        ("bcast", 16, None), *(("stream", 8, measure) for measure in ("copy", "scale", "add", "triad"))
    }  # fmt: skip
    turned = until._part(expanded, cell, OpenAtPlace(frozenset({elsewhere}), frozenset({here})))
    assert turned.brief == {bcast}


def test_a_launch_of_a_part_is_estimated_shorter() -> None:
    expanded = expand(Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",)), machine)
    cell = expanded.cells[0]
    one = next(iter(expanded.expected[cell]))
    none, part, brief, all_of_it = (
        seconds_of_launch(expanded, cell, asked, False)
        for asked in (
            LaunchPart(frozenset()),
            LaunchPart(frozenset({one})),
            LaunchPart(frozenset(), frozenset({one})),
            None,
        )
    )
    assert none < brief < part < all_of_it
    assert all_of_it - part == pytest.approx(part - none)


@pytest.mark.parametrize(("until", "done"), [("launches", True), ("decided", False)])
def test_until_decided_a_failed_case_is_not_all_of_its_launch(until: str, done: bool) -> None:
    plan = Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",), policies=("host",), until=until)
    expanded = expand(plan, machine)
    cell = expanded.cells[0]
    case = next(iter(expanded.expected[cell]))
    failed = Record(case=placed_case(case, cell), launch=0, status="failed")
    assert finished(expanded, (failed,)) == (frozenset({(cell, 0)}) if done else frozenset())
