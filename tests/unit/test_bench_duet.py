"""bench/duet.py: its plans are plans, its figures are those of made-up times, and its page shows every part."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench_modules import bench

from collbench.schema.plan import Plan, load_launch_plan

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
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MadeUp:
    played = MadeUp(tmp_path)
    monkeypatch.setattr(bench("duet"), "perform", played)
    return played


@pytest.fixture
def asked(tmp_path: Path) -> argparse.Namespace:
    libraries = [bench("installation").Installation(tmp_path, name) for name in ("openmpi", "mpich")]
    return argparse.Namespace(
        installations=libraries, experiments=4, lives=2, launches=20, variables="A=1 B_C=x=y", seed=3
    )


def test_equal_sides_of_every_library_and_place(made_up: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").equal(asked, lambda found: None)
    assert [(plan.images, plan.policies) for plan in made_up.plans] == [
        ((library,), (policy,)) for library in ("openmpi", "mpich") for policy in POLICIES
    ]
    assert {plan.how for plan in made_up.plans} == {"duet"}
    assert found["start"].keys() == {"8", "64K", "1M"}
    value, low, high = found["start"]["8"]
    assert low < math.log(1.02) < high
    assert value == pytest.approx(math.log(1.02), abs=2e-3)


def test_the_order_of_starts_is_told_from_the_difference(made_up: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").question(asked, lambda found: None)["mpich"]
    assert made_up.plans[0].policies == POLICIES
    assert found["start"]["1M"][0] == pytest.approx(2 * math.log(1.02), abs=1e-3)


def test_every_rule_of_slices_is_measured_as_often(made_up: MadeUp, asked: argparse.Namespace) -> None:
    program = bench("duet")
    found = program.slices(asked, lambda found: None)
    assert len(made_up.plans) == 20 * len(program.RULES_OF_SLICES)
    assert {len(of["8"]) for of in found["logs"].values()} == {20}
    assert {len(of) for of in found["seconds"].values()} == {20}
    assert all(len(of) == 3 for of in found["spread"].values())


def test_both_ways_of_launching_are_measured_in_turns(made_up: MadeUp, asked: argparse.Namespace) -> None:
    found = bench("duet").restless(asked, lambda found: None)
    ways = [plan.how for plan in made_up.plans]
    assert len(ways) == 2 * asked.launches
    assert all({*ways[n : n + 2]} == {"duet", "blocks"} for n in range(0, len(ways), 2))
    assert {how: len(logs["8"]) for how, logs in found["logs"].items()} == {"duet": 20, "blocks": 20}


def test_what_is_planted_is_on_one_side(made_up: MadeUp, asked: argparse.Namespace) -> None:
    bench("duet").planted(asked, lambda found: None)
    assert [dict(side.variables) for side in made_up.plans[0].sides.values()] == [{}, {"A": "1", "B_C": "x=y"}]


def test_a_training_has_benchmarks_and_no_collectives(made_up: MadeUp, asked: argparse.Namespace) -> None:
    bench("duet").training(asked, lambda found: None)
    (plan,) = made_up.plans
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
