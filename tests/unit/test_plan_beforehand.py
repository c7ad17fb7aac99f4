"""What is known of a launch plan before anything starts: its duration, what would be refused, what has no effect."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench

from collbench.cli.plan import EXECUTION, about, seconds_of, show_cells
from collbench.errors import PlanError
from collbench.launch import expansion
from collbench.launch.campaign import prepare
from collbench.launch.engines import host
from collbench.launch.engines.fake import contents
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.preview import ignored_keys, indistinct_sides, preview_of
from collbench.launch.shipped import find_plan
from collbench.machine.topology import Core, Topology
from collbench.schema.plan import Plan, Side, load_launch_plan

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
