"""Programs of bench/: launches that end, steps, records, scale, duets, yardsticks."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.bench_modules import BENCH, bench

from collbench.cli import cli
from collbench.schema.plan import Plan, load_launch_plan
from collbench.schema.samples import ALL_RANKS_LIMIT

#: Starts a process in a session of its own, as launchers do, says its number, and goes on.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(300)"), start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open(sys.argv[1], "w").write(str(child.pid))
"""
WAITS, FAILS = "time.sleep(300)", "sys.exit(4)"
#: A bench program with one launch.
MEASURES = """
import sys
from installation import end_on_sigterm, run
end_on_sigterm()
run((sys.executable, "-c", sys.argv[1], sys.argv[2]), 300.0, {})
"""


def alive(number: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def child_in(file: Path) -> int:
    """The number that was written, once it is."""
    until = time.monotonic() + 30
    while not file.exists() or not file.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(file.read_text())


@pytest.mark.slow
def test_a_launch_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", PARENT + WAITS, str(tmp_path / "child"))
    with pytest.raises(bench("installation").LaunchFailed, match="more than 4 s"):
        bench("installation").run(argv, 4.0, dict(os.environ))
    assert not alive(child_in(tmp_path / "child"))


def test_a_launch_that_fails_leaves_nothing_and_says_its_code(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", PARENT + FAILS, str(tmp_path / "child"))
    with pytest.raises(bench("installation").LaunchFailed) as failed:
        bench("installation").run(argv, 60.0, dict(os.environ))
    assert failed.value.code == 4
    assert not alive(child_in(tmp_path / "child"))


def test_a_program_that_is_not_there_is_a_failed_launch() -> None:
    with pytest.raises(bench("installation").LaunchFailed, match="/no/such/mpirun cannot be started"):
        bench("installation").run(("/no/such/mpirun",), 60.0, {})


def end_by_sigterm(argv: tuple[str, ...], file: Path) -> None:
    """Once its child is named in the file: the program ends by the signal, and takes the child along."""
    process = subprocess.Popen(argv, cwd=BENCH)
    try:
        child = child_in(file)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
        assert not alive(child)
    finally:
        process.kill()


def test_sigterm_ends_a_program_with_what_it_started(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", MEASURES, PARENT + WAITS, str(tmp_path / "child"))
    end_by_sigterm(argv, tmp_path / "child")


STARTING = (
    "native_floor", "startup", "million_records", "gpu_peer", "gpu_floor", "gpu_copies", "gpu_programs",
    "gpu_environment", "gpu_session",
)  # fmt: skip


@pytest.mark.parametrize("program", STARTING)
def test_every_program_with_launches_ends_by_sigterm(program: str) -> None:
    assert "    end_on_sigterm()\n" in (BENCH / f"{program}.py").read_text(encoding="utf-8")


def test_a_job_is_found_by_its_mark_and_nobody_else(tmp_path: Path) -> None:
    mark = bench("marks").Mark("BENCH_TEST", tmp_path.name)
    argv = (sys.executable, "-c", PARENT, str(tmp_path / "child"))
    subprocess.run(argv, env=os.environ | mark.environment, check=True, timeout=60)
    child = child_in(tmp_path / "child")
    assert mark.processes() == [child]
    assert bench("marks").Mark("BENCH_TEST", tmp_path.name + "0").end() == []
    assert alive(child)
    assert mark.end() == []
    assert not alive(child)


# Steps of a session ---------------------------------------------------------------------------------------------------

SESSION = """
import sys
from pathlib import Path
from installation import end_on_sigterm
from steps import Session, Step, archive
end_on_sigterm()
work, out = Path(sys.argv[1]), Path(sys.argv[2])
pack = lambda: archive(out / "all.tar.gz", {"log": work / "log"})
session = Session(work, out, 300, pack)
try:
    session.run([Step("first", 60, (sys.executable, "-c", "print('measured')")),
                 Step("second", 60, (sys.executable, "-c", sys.argv[3], sys.argv[4]))])
finally:
    pack()
"""


class Ran:
    """A session in a folder: what it said, and how often it was packed."""

    def __init__(self, where: Path, seconds: float, *steps: Any) -> None:
        self.packed = 0
        self.session = bench("steps").Session(where / "work", where, seconds, self.pack)
        self.session.run(steps)
        self.lines = (where / "steps.txt").read_text().splitlines()

    def pack(self) -> None:
        self.packed += 1
        if self.packed == 1:
            raise OSError("the disk is full")

    @property
    def verdicts(self) -> list[str]:
        """The first two words of the lines about steps."""
        steps = (line for line in self.lines if line.startswith(("ok ", "FAIL ", "SKIP ")))
        return [" ".join(line.replace(":", " ").split()[:2]) for line in steps]


def step(name: str, program: str, *arguments: str, limit: float = 60, **more: Any) -> Any:
    return bench("steps").Step(name, limit, (sys.executable, "-c", program, *arguments), **more)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench("steps"), "SHORTEST", 0.5)
    monkeypatch.setattr(bench("steps"), "GRACE", 1.0)


def test_one_failure_stops_nothing_and_all_is_packed_each_time(tmp_path: Path) -> None:
    ran = Ran(
        tmp_path, 300, step("good", ""), step("bad", "print('why'); raise SystemExit(5)"),
        bench("steps").Step("absent", 60, ("/no/such/program",)), step("allowed", "raise SystemExit(1)", codes=(0, 1)),
    )  # fmt: skip
    assert ran.verdicts == ["ok good", "FAIL bad", "FAIL absent", "ok allowed"]
    assert any("code 5" in line for line in ran.lines) and "      why" in ran.lines
    assert any("absent: cannot be started" in line for line in ran.lines)
    assert (ran.session.failed, ran.packed) == (2, 4)
    assert (tmp_path / "work" / "log" / "bad.txt").read_text() == "why\n"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "program", [PARENT + WAITS, "import signal; signal.signal(15, signal.SIG_IGN)\n" + PARENT + WAITS]
)
def test_a_step_over_its_limit_leaves_nothing(tmp_path: Path, program: str) -> None:
    """Neither a child in a session of its own, nor a program that does not listen."""
    ran = Ran(tmp_path, 300, step("long", program, str(tmp_path / "child"), limit=4), step("next", ""))
    assert ran.verdicts == ["FAIL long", "ok next"]
    assert "FAIL  long: over its limit of 4 s" in ran.lines[0]
    assert not alive(child_in(tmp_path / "child"))


def test_a_step_that_ends_well_leaves_nothing_either(tmp_path: Path) -> None:
    assert Ran(tmp_path, 300, step("leaves", PARENT, str(tmp_path / "child"))).verdicts == ["ok leaves"]
    assert not alive(child_in(tmp_path / "child"))


def test_without_what_all_need_nothing_is_tried(tmp_path: Path) -> None:
    ran = Ran(tmp_path, 300, step("base", "raise SystemExit(1)", needed=True), step("next", ""))
    assert ran.verdicts == ["FAIL base"]


def test_what_steps_leave_goes_to_those_that_stretch_and_no_promise_is_broken() -> None:
    later = [step("b", "", limit=30), step("c", "", limit=10)]
    allowance = bench("steps").allowance
    assert allowance(step("a", "", limit=20), later, 100.0) == 20
    assert allowance(step("a", "", limit=20, stretches=True), later, 100.0) == 60
    assert allowance(step("a", "", limit=20, stretches=True), later, 50.0) == 20
    assert allowance(step("a", "", limit=20, stretches=True), [], 7.0) == 7
    later = [step("b", "", limit=30, lacking="a GPU"), step("c", "", limit=10)]
    assert allowance(step("a", "", limit=20, stretches=True), later, 100.0) == 90


def test_a_step_whose_machine_lacks_something_is_skipped_which_is_no_failure(tmp_path: Path) -> None:
    ran = Ran(tmp_path, 300, step("never", "raise SystemExit(1)", lacking="here is one GPU"), step("next", ""))
    assert ran.lines[0] == "skip  never: here is one GPU" and ran.verdicts == ["ok next"]
    assert ran.session.failed == 0


def test_a_step_without_time_is_said_and_counts(tmp_path: Path) -> None:
    ran = Ran(tmp_path, 2, step("late", ""))
    assert ran.verdicts == ["SKIP late"]
    assert ran.session.failed == 1


def test_sigterm_ends_a_session_and_keeps_what_it_has(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    argv = (sys.executable, "-c", SESSION, str(work), str(out), PARENT + WAITS, str(tmp_path / "child"))
    end_by_sigterm(argv, tmp_path / "child")
    assert (out / "steps.txt").read_text().startswith("ok    first")
    with tarfile.open(out / "all.tar.gz") as packed:
        first = packed.extractfile("log/first.txt")
        assert first is not None and first.read() == b"measured\n"


# Programs of bench/ that read what collbench prints as JSON -----------------------------------------------------------


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """A record as `--style json` prints it."""
    arguments = [
        "allreduce", "--backend", "fake", "--driver", "python", "-b", "8", "-e", "8", "-n", "6", "--style", "json",
    ]  # fmt: skip
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)["records"]
    return dict(record)


def test_a_median_for_native_floor(record: dict[str, Any]) -> None:
    native_floor = bench("native_floor")
    found = native_floor.from_record(record | {"align": "roundtime"}, SimpleNamespace(name="Open MPI"), "python", 3)
    assert (found.library, found.kind, found.round, found.collective) == ("Open MPI", "python", 3, "allreduce")
    assert (found.bytes, found.p50, found.samples) == (8, record["seconds"]["p50"], 6)
    with pytest.raises(native_floor.LaunchFailed):
        native_floor.from_record(record | {"status": "failed"}, SimpleNamespace(name=""), "python", 3)


def test_what_is_not_ok_is_a_failure_with_its_case(record: dict[str, Any]) -> None:
    rounds = bench("gpu_rounds")
    here = SimpleNamespace(
        document=lambda *_: {"manifest": {}, "records": [record | {"status": "failed", "reason": "no"}]}
    )
    (failed,) = rounds.launch(here, None, "plan", 1.0, lambda _: pytest.fail("was taken"))
    assert (failed.what, failed.reason) == ("fake allreduce 8 B", "no")


# What grows with the ranks and what does not, in made-up worlds -------------------------------------------------------

SAMPLES = 50


@cache
def made_up(ranks: int, collective: str = "allreduce", containers: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = bench("scale").made_up(ranks, collective, containers, SAMPLES)
    return found


@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "bcast", "reduce_scatter"])
def test_a_case_takes_as_many_messages_whatever_the_ranks(collective: str) -> None:
    few, many = made_up(65, collective), made_up(1000, collective)
    assert few["calls"] == many["calls"]
    assert few["start_calls"] == many["start_calls"]
    assert many["calls"]["gather"] == 1, "each rank's median"
    assert many["bytes"] <= 24 * 1000


def test_a_record_grows_with_machines_and_not_with_ranks() -> None:
    bound = bench("scale").RECORD
    assert made_up(10_000)["record"] < bound
    assert made_up(10_000, containers=True)["record"] < bound
    assert made_up(1_000)["record"] < bound / 5


@pytest.mark.parametrize("containers", [False, True])
def test_the_samples_are_those_of_one_row_and_ranks_that_are_confined_alike_are_one(containers: bool) -> None:
    found = made_up(10_000, containers=containers)
    assert (found["rows"], found["confinements"]) == (1, 1)
    assert found["samples"] < 8 * SAMPLES + 200
    assert made_up(ALL_RANKS_LIMIT)["rows"] == ALL_RANKS_LIMIT


def test_what_the_ranks_have_in_common_comes_once() -> None:
    """Of each rank four hashes, and what is its own; of each machine who it is and what it is made of."""
    assert made_up(10_000)["start_bytes"] <= 160 * 10_000
    assert made_up(10_000, containers=True)["start_bytes"] <= 500 * 10_000
    assert made_up(10_000, containers=True)["manifest"] < 100 * 10_000


# bench/duet.py --------------------------------------------------------------------------------------------------------

LAUNCHES = 8
POLICIES = ("host", "multi")


class MadeUp:
    """Performs plans: the second side takes 10 % longer, and whichever was started second 2 % longer than that."""

    def __init__(self, where: Path) -> None:
        self.where, self.plans = where, list[Plan]()

    def __call__(self, text: str, by: str, program: tuple[str, ...] = ()) -> Any:
        (self.where / "plan.toml").write_text(text)
        plan = load_launch_plan(self.where / "plan.toml")
        self.plans.append(plan)
        sides = tuple(plan.sides) if by == "side" else plan.policies
        times = {what: {side: {n: self.time(k, n) for n in range(plan.launches)} for k, side in enumerate(sides)}
                 for what in (("step",) if plan.benchmarks else ("8", "64K", "1M"))}  # fmt: skip
        return bench("duet").Performed(times, (), 42.0, ("My MPI 1",), {})

    def time(self, side: int, launch: int) -> Any:
        started = (side + launch) % 2
        noise = 1 + 1e-4 * launch * (-1) ** (launch // 2)
        return bench("duet").Time(1e-6 * noise**side * 1.1**side * 1.02**started, started)


@pytest.fixture
def made_up_duet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MadeUp:
    played = MadeUp(tmp_path)
    monkeypatch.setattr(bench("duet"), "perform", played)
    return played


@pytest.fixture
def asked(tmp_path: Path) -> argparse.Namespace:
    libraries = [bench("installation").Installation(tmp_path, name) for name in ("openmpi", "mpich")]
    return argparse.Namespace(
        installations=libraries, experiments=4, lives=2, launches=20, variables="A=1 B_C=x=y", seed=3
    )


def test_equal_sides_of_every_library_and_place(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").equal(asked, lambda found: None)
    assert [(plan.images, plan.policies) for plan in made_up_duet.plans] == [
        ((library,), (policy,)) for library in ("openmpi", "mpich") for policy in POLICIES
    ]
    assert {plan.how for plan in made_up_duet.plans} == {"duet"}
    assert found["start"].keys() == {"8", "64K", "1M"}
    value, low, high = found["start"]["8"]
    assert low < math.log(1.02) < high
    assert value == pytest.approx(math.log(1.02), abs=2e-3)


def test_the_order_of_starts_is_told_from_the_difference(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").question(asked, lambda found: None)["mpich"]
    assert made_up_duet.plans[0].policies == POLICIES
    assert found["start"]["1M"][0] == pytest.approx(2 * math.log(1.02), abs=1e-3)


def test_every_rule_of_slices_is_measured_as_often(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    program = bench("duet")
    found = program.slices(asked, lambda found: None)
    assert len(made_up_duet.plans) == 20 * len(program.RULES_OF_SLICES)
    assert {len(of["8"]) for of in found["logs"].values()} == {20}
    assert {len(of) for of in found["seconds"].values()} == {20}
    assert all(len(of) == 3 for of in found["spread"].values())


def test_both_ways_of_launching_are_measured_in_turns(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").restless(asked, lambda found: None)
    ways = [plan.how for plan in made_up_duet.plans]
    assert len(ways) == 2 * asked.launches
    assert all({*ways[n : n + 2]} == {"duet", "blocks"} for n in range(0, len(ways), 2))
    assert {how: len(logs["8"]) for how, logs in found["logs"].items()} == {"duet": 20, "blocks": 20}


def test_what_is_planted_is_on_one_side(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    bench("duet").planted(asked, lambda found: None)
    assert [dict(side.variables) for side in made_up_duet.plans[0].sides.values()] == [{}, {"A": "1", "B_C": "x=y"}]


def test_a_training_has_benchmarks_and_no_collectives(made_up_duet: MadeUp, asked: argparse.Namespace) -> None:
    bench("duet").training(asked, lambda found: None)
    (plan,) = made_up_duet.plans
    assert (plan.images, plan.collectives, len(plan.benchmarks)) == (("torch",), (), 1)


def entry(found: dict[str, Any]) -> dict[str, Any]:
    return {"when": "now", "commit": "abc", "machine": "mine", "seed": 1, "pressure": ["some 1", "some 2"],
            "whole": True, "found": found}  # fmt: skip


SIZE = {"ratio": 1.01, "interval": [0.99, 1.03], "p": 0.04, "verdict": "unclear", "differs": True}


def test_a_part_that_misses_its_target_says_so() -> None:
    one = {"library": "openmpi", "place": "host", "seconds": 30.0, "sizes": {"8": SIZE}, "spread": {"8": [0.1, 0.01]},
           "second over first": {"8": [0.0]}, "libraries": ("My MPI 1",)}  # fmt: skip
    missed = bench("duet_page").page(
        {"equal": entry({"experiments": [one], "start": {"8": [0, -0.1, 0.1]}, "failed": []})}
    )
    assert missed.count("missed") == 2  # the interval ends at 3 %, and 0 is excluded in one of one
    inside = SIZE | {"interval": [0.99, 1.01], "differs": False}
    met = entry({"experiments": [one | {"sizes": {"8": inside}}], "start": {"8": None}, "failed": []})
    assert "missed" not in bench("duet_page").page({"equal": met})
    assert "equal" not in bench("duet_page").page({"equal": met | {"whole": False}})


def test_what_a_sleeper_costs_is_held_against_its_furthest_end() -> None:
    found = {"costs": {policy: {"8": [0.0, 0.01]} for policy in POLICIES}, "failed": [],
             "share of a processor asleep": [0.004], "difference": {"8": [0.0, -0.01, 0.01]},
             "mean": {"host": {"8": [0.0, -0.01, 0.01]}, "multi": {"8": [0.0, -0.05, 0.01]}}}  # fmt: skip
    assert "5.1% (at most 3%:\nmissed)" in bench("duet_page").page({"sleeper": entry(found)})


# bench/yardsticks.py --------------------------------------------------------------------------------------------------

program = bench("yardsticks")
SIZES = tuple(program.SIZES.values())


def made(launches: int, draw: np.random.Generator, noise: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Launches as slow as their cores were far apart before them."""
    records, readings = [], []
    for launch in range(launches):
        distance = float(np.exp(draw.normal(5, 0.5)))
        for moment, value in (("before", distance), ("after", 100 + float(draw.random()))):
            values = {"copy": 50 + float(draw.random()), "core_distance": value}
            readings.append({"launch": launch, "moment": moment, "values": values, "reason": None})
        for size in SIZES:
            p50 = distance * 1e-9 * float(np.exp(draw.normal(0, noise)))
            records.append({"launch": launch, "status": "ok", "work": {"amount": size}, "seconds": {"p50": p50}})
    return records, readings


@pytest.mark.parametrize(("noise", "enough"), [(0.1, True), (2.0, False)])
def test_what_the_distance_explains(noise: float, enough: bool) -> None:
    found = program.complete(*made(60, np.random.default_rng(1), noise))
    of_sizes = program.shares(found)
    assert program.is_enough(of_sizes) == enough
    for of_size in of_sizes.values():
        assert (of_size["before core_distance"] > 0.9) == enough
        assert abs(of_size["after all"]) < 0.2
        assert of_size["before all"] >= of_size["before copy"] - 0.05
    assert "openmpi" in program.page([program.part("openmpi", found, of_sizes)])


def test_launches_that_lack_something_are_left_out() -> None:
    records, readings = made(12, np.random.default_rng(1), 0.1)
    records[0]["status"] = "failed"
    readings[3]["reason"] = "late"
    assert len(program.complete(records, readings).medians[SIZES[0]]) == 10
    with pytest.raises(bench("installation").LaunchFailed):
        program.complete(records[: 3 * 4], readings)
