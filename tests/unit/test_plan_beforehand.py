"""Plans before a launch: what they would take, what this machine would refuse, and what has no effect."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.fake_engine import contents

from collbench.cli.plan import EXECUTION, about, seconds_of, seconds_of_launch, show_cells
from collbench.errors import PlanError
from collbench.launch import expansion
from collbench.launch.campaign import prepare
from collbench.launch.cells import LaunchPart
from collbench.launch.engines import host
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.stacks import ignored_keys, indistinct_sides, preview_of
from collbench.machine.facts import Core, Topology
from collbench.registry import find_plan
from collbench.schema.plan import Plan, Side, load_launch_plan

USUAL: dict[str, Any] = {"images": ("tools",), "policies": ("host",), "launches": 1}


def on_cores(plan: Plan, cores: int = 4) -> ExpandedPlan:
    return expand(plan, lambda engine: Topology(tuple(map(Core, range(cores)))))


def expanded(**keys: Any) -> ExpandedPlan:
    return on_cores(Plan(**USUAL | keys))


# Durations -----------------------------------------------------------------------------------------------------------


def seconds(benchmark: dict[str, Any] | str, **keys: Any) -> float:
    """Without the start of the world: that of copyup, whose three cases are executed once."""
    plan = {"benchmarks": (benchmark,), "iters": 3, "warmup": 1, **keys}
    start = seconds_of(expanded(**plan | {"benchmarks": ("copyup",), "iters": 1})) - 3 * EXECUTION
    return seconds_of(expanded(**plan)) - start


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
    keys = {"iters": None, "warmup": 0, "floor": 2, "budget": "60s"}
    assert seconds({"name": "ioping", "count": 2}, **keys) == pytest.approx(60.0)
    assert seconds({"name": "ioping", "count": 100}, **keys) == pytest.approx(2 * (100 + EXECUTION))


@pytest.mark.parametrize(
    ("name", "minutes", "last"),
    [
        ("storage", 32, "copyup"),
        ("ddp-cpu", 105, "min"),
        ("zhao2018-ps", 45, "min"),
        ("xu2017-train", 30, "min"),
        ("xu2017-linpack", 150, "min"),
    ],
)
def test_shipped_plans_take_about_as_long_as_they_took(name: str, minutes: float, last: str) -> None:
    """On two cores, where most time of a training is that of processes that import torch. copyup tells no time."""
    shipped = on_cores(load_launch_plan(find_plan(name)), 2)
    assert minutes / 1.5 < seconds_of(shipped) / 60 < minutes * 1.5
    assert about(shipped).split()[-1] == last


def test_steps_batches_and_ranks_make_a_training_longer() -> None:
    usual = {"iters": 3, "warmup": 0, "images": ("torch",)}

    def taken(name: str, ranks: int = 1, **values: Any) -> float:
        return seconds_of(expanded(benchmarks=({"name": name, **values},), ranks=(ranks,), **usual))

    assert taken("parameter_server", 2, servers=1, steps=20_000) > 2 * taken("parameter_server", 2, servers=1, steps=10)
    assert taken("train", epoch=100) > 3 * taken("train", epoch=1)
    assert taken("ddp", 2, batch=2048) > 3 * taken("ddp", 2, batch=1)
    for name in ("ddp", "train"):
        on_gpu = about(expanded(benchmarks=({"name": name, "device": "cuda"},), **usual))
        assert "3 samples" in on_gpu, "what a GPU takes is not known"
    gloo = {"collectives": ("allreduce",), "sizes": (8,), "iters": 1, "ranks": (2,), "images": ("torch",)}
    assert seconds_of(expanded(backends=("torch-gloo",), **gloo)) > 4 + seconds_of(expanded(backends=("mpi",), **gloo))


def test_a_training_in_turns_takes_a_sample_more_in_each_slice() -> None:
    """32 samples are 16 slices in a duet; in blocks there are none. Each of two worlds has them."""
    values = {"benchmarks": ({"name": "ddp"},), "iters": 32, "warmup": 0, "images": ("torch",), "ranks": (2,),
              "policies": ("host", "multi"), "launches": 1}  # fmt: skip
    in_turns, in_blocks = (seconds_of(expanded(how=how, **values)) for how in ("duet", "blocks"))
    one_more = (seconds_of(expanded(how="blocks", **values | {"iters": 33})) - in_blocks) / 2
    assert in_turns - in_blocks == pytest.approx(2 * 16 * one_more)


def test_a_launch_of_a_part_is_estimated_shorter() -> None:
    plan = on_cores(Plan(collectives=("bcast",), sizes=("8", "16"), images=("openmpi",)))
    cell = plan.cells[0]
    first = frozenset({next(iter(plan.expected[cell]))})
    nothing, part, brief, whole = (
        seconds_of_launch(plan, cell, only, False)
        for only in (LaunchPart(frozenset()), LaunchPart(first), LaunchPart(frozenset(), first), None)
    )
    assert nothing < brief < part < whole
    assert whole - part == pytest.approx(part - nothing)


# What is said of a plan ----------------------------------------------------------------------------------------------


def holding(monkeypatch: pytest.MonkeyPatch, **missing: str) -> None:
    """The environment on the host lacks these benchmarks."""
    held = msgspec.structs.replace(contents(""), missing_benchmarks=missing)
    monkeypatch.setattr(host, "probe", lambda environment, vendor="", benchmarks=(), overrides=None: held)


DD, STREAM, MULTI = {"benchmarks": ("dd",)}, {"benchmarks": ("stream",)}, {"policies": ("multi",)}
BCAST = {"collectives": ("bcast",), "sizes": ("8",), "ranks": (2,)}

#: Keys of plans, and how many lines there are on what the host would refuse or skip of them; it lacks dd.
PREVIEWS: dict[str, tuple[dict[str, Any], int]] = {
    "a folder that is none": ({"benchmarks": ("fio",), "storage": ("bind",), "folder": "/no/such"}, 1),
    "no files, no folder": (STREAM | {"folder": "/no/such"}, 0),
    "a program that the host lacks": (DD, 1),
    "skipped": (DD | {"unusable": "skip"}, 1),
    "what an image holds is not known": (DD | MULTI, 0),
    "an image of a side": (
        STREAM | MULTI | {"images": ("torch",), "sides": {"base": Side(), "other": Side(images={"torch": "torc"})}}, 1,
    ),
    "an image that no image of ours is": (STREAM | MULTI | {"images": ("torc",)}, 1),
    "images of one's own": (STREAM | MULTI | {"images": ("torch", "torch:mine", "registry/torc")}, 0),
}  # fmt: skip

#: Keys of plans, and how many lines there are on those that have no effect, or values that are listed twice.
IDLE: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": (DD, 0),
    "seccomp": (DD | {"seccomp": ("unconfined",)}, 1),
    "isolation": (DD | {"isolation": ("net",)}, 1),
    "in containers": (DD | MULTI | {"seccomp": ("unconfined",), "isolation": ("limits",)}, 0),
    "environments": (DD | MULTI | {"environments": {"tools": "/x"}}, 1),
    "storage": (STREAM | {"storage": ("tmpfs",)}, 1),
    "folder": (BCAST | {"folder": "/tmp"}, 1),  # noqa: S108 - as a plan has it
    "a program with files": ({"benchmarks": ("dd", "stream"), "storage": ("tmpfs",), "folder": "/tmp"}, 0),  # noqa: S108
    "twice": (DD | {"policies": ("host", "host"), "storage": ("bind", "tmpfs", "bind", "bind")}, 2),
    "twice in a program": ({"benchmarks": ({"name": "dd", "count": (1, 2, 1)}, "dd", "dd")}, 2),
}

#: Sides, beside which the plan's own variable A is 0.
ALIKE: dict[str, tuple[dict[str, Any], int]] = {
    "no side": ({}, 0),
    "a side alone": ({"a": {"variables": {"A": "1"}}}, 1),
    "two sides": ({"a": {}, "b": {"variables": {"A": "1"}}}, 0),
    "a side like another": ({"a": {}, "b": {"variables": {"A": "0"}}, "c": {"variables": {"A": "1"}}}, 1),
}

DURATIONS: dict[str, dict[str, Any]] = {
    "a program": {"benchmarks": ("ioping",), "iters": 2},
    "with one that tells no time": {"benchmarks": ("ioping", "dd"), "iters": 2},
    "nothing tells its time": BCAST | {"iters": 2},
    "a budget": BCAST | {"budget": "60s"},
    "until decided": BCAST | {"budget": "60s", "until": "decided", "launches": 20},
}


def test_what_is_said_of_a_plan(monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]) -> None:
    said = [f"{what}: {about(expanded(**keys))}" for what, keys in DURATIONS.items()]

    def add(what: str, lines: Iterable[str], number: int) -> None:
        found = [f"{what}: {line}" for line in lines]
        assert len(found) == number, found
        said.extend(found)

    for what, (keys, number) in PREVIEWS.items():
        holding(monkeypatch, **({"dd": "dd was not found"} if "dd" in keys["benchmarks"] else {}))
        add(what, preview_of(expanded(**keys))[0], number)
    for what, (keys, number) in IDLE.items():
        add(what, sorted(ignored_keys(expanded(**keys))), number)
    for what, (sides, number) in ALIKE.items():
        made = {name: Side(**of_side) for name, of_side in sides.items()}
        add(what, indistinct_sides(Plan(**USUAL, **DD, variables={"A": "0"}, sides=made)), number)
    golden("plan-beforehand.txt", "".join(f"{line}\n" for line in said).replace(sys.prefix, "PREFIX"))


def test_a_folder_that_is_none_is_refused_before_any_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holding(monkeypatch)
    file = tmp_path / "file"
    file.write_text("")
    plan = Plan(**USUAL, **DD, storage=("bind",), folder=str(file))
    with pytest.raises(PlanError) as refused:
        prepare(plan, lambda: None, {})
    assert f" {file}: " in str(refused.value)
    (line,) = preview_of(expand(plan))[0]
    assert line.endswith(f": {refused.value}")
    assert preview_of(expanded(**DD, storage=("bind",), folder=str(tmp_path)))[0] == ()
    # Root may write everywhere, but on a device that is read-only.
    monkeypatch.setattr("collbench.launch.folders.os.access", lambda path, mode: path != str(tmp_path))
    (line,) = preview_of(expanded(**DD, folder=str(tmp_path)))[0]
    assert f"storage overlay: folder {tmp_path}: " in line


@pytest.mark.parametrize("policies", [("host",), ("host", "single")])
def test_what_a_side_lacks_on_the_host_is_refused_with_its_name(tmp_path: Path, policies: tuple[str, ...]) -> None:
    """Of ranks that communicate too: an environment that is none can be seen without an engine."""
    keys = {"images": ("openmpi",), "policies": policies, "ranks": (2,), "collectives": ("bcast",)}
    sides = {"good": Side(), "bad": Side(environments={"openmpi": str(tmp_path)})}
    (line,) = (line for line in preview_of(expanded(**keys, sides=sides))[0] if "side good: " not in line)
    assert f": side bad: environments: openmpi: {tmp_path} " in line
    if policies == ("host",):
        with pytest.raises(PlanError, match=r"^side bad: environments: openmpi: "):
            prepare(Plan(**keys, sides={"bad": sides["bad"]}), lambda: None)


def test_memory_that_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    holding(monkeypatch)
    training = {"name": "ddp", "network": "resnet56", "batch": 1 << 20}
    (line,) = preview_of(expanded(images=("torch",), **MULTI, ranks=(2,), benchmarks=(training,)))[0]
    assert ": torch multi strict, 2 ranks: ddp " in line
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1 << 20)
    (line,) = preview_of(expanded(benchmarks=({"name": "linpack", "n": 2000},)))[0]
    assert "linpack n=2000 " in line and " 1.00 MiB " in line


@pytest.mark.parametrize(
    ("ranks", "loads"), [((2,), []), ((2, 6), ["6", "4"]), ((5, 6, 7, 8, 9), ["5", "4", "6", "4", "7", "4", "2"])]
)
def test_ranks_that_share_cores(ranks: tuple[int, ...], loads: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    show_cells(expanded(images=("openmpi",), policies=("host", "multi"), ranks=ranks, oversubscribe=True,
                        collectives=("bcast",)))  # fmt: skip
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("# oversubscribed: ")]
    assert [number for line in lines for number in re.findall(r"[0-9]+", line)] == loads


def test_plan_and_launch_say_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collbench, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("collbench.cli.launch.perform", lambda *_, **__: sys.exit(0))
    holding(monkeypatch, stream="no kernels")
    path = tmp_path / "plan.toml"
    path.write_text('images = ["tools"]\npolicies = ["host"]\nseccomp = ["unconfined"]\nbenchmarks = ["stream"]\n'
                    "[sides.a]\n[sides.b]\n", encoding="utf-8")  # fmt: skip
    planned = here("plan", path)
    assert (planned.code, planned.out.count("sides: a, b ")) == (0, 1)
    *_, idle, refused = planned.out.splitlines()
    assert idle.startswith("seccomp: ") and "no kernels" in refused
    assert here("launch", path).err.count("# sides: a, b ") == 1
    show_cells(expanded(**STREAM, seccomp=("unconfined",)))
    assert f"# {idle}\n" in capsys.readouterr().err


def test_plans_that_come_with_collbench_have_no_idle_keys() -> None:
    """On a machine that has all that they ask for."""
    for name in ("quick", "suite-quick", "xu2017-io", "zhao2018-sysbench", "storage", "seccomp", "ladder"):
        assert ignored_keys(on_cores(load_launch_plan(find_plan(name)), 256)) == ()
