"""How a plan is spelt out: which launches of a block live at once, why others do not, and programs on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from tests.unit.duet_worlds import PLAN, place_of

from collbench.bindings.spec import USABLE_SHARE
from collbench.collectives.row import CollectiveCase
from collbench.errors import PlanError
from collbench.launch.campaign import finished
from collbench.launch.cells import Launch, LaunchPart, cases_in, inner_plan
from collbench.launch.collect import placed_case
from collbench.launch.engines import fake
from collbench.launch.expansion import (
    MOST_WORLDS,
    ExpandedPlan,
    Group,
    buffers,
    chosen_in,
    expand,
    groups_of,
    key_of,
    refuse_too_large,
    why_alone,
)
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.schema.plan import Plan, Side, check_launch_plan
from collbench.schema.record import Alone, Record

MACHINE = Topology(tuple(Core(number) for number in range(8)), tuple(TopologyGpu(f"GPU-{letter}") for letter in "ab"))

#: More cells than live at once, on the same two processors.
MANY = {"isolation": ("strict", "visible", "files"), "seccomp": ("default", "unconfined")}


@pytest.fixture(autouse=True)
def takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, local=True))


def expanded(**values: Any) -> ExpandedPlan:
    plan: Plan = msgspec.structs.replace(PLAN, **values)
    return expand(plan, lambda engine: MACHINE)


def test_a_choice_of_cores_that_comes_to_the_same_is_left_out_and_said() -> None:
    """Four cores share each of two caches: the first two are close, and others are spread."""
    cores = tuple(Core(number, cache=number // 4 * 4) for number in range(8))
    plan: Plan = msgspec.structs.replace(PLAN, cores=("first", "close", "spread", "4,0"), ranks=(2,))
    of = expand(plan, lambda engine: Topology(cores))
    placed = {(cell.cores, tuple(slot.cores[0] for slot in of.placements[cell].slots)) for cell in of.cells}
    assert placed == {("first", (0, 1)), ("spread", (0, 4)), ("4,0", (4, 0))}
    assert [text for text in of.left_out if "close" in text and "first" in text] == list(of.left_out)
    chosen = {choice.choice: (choice.axis, choice.members, choice.pairs) for choice in chosen_in(of)}
    assert chosen["spread"] == ("cores", (0, 4), {"memory node": 1})
    assert chosen["first"] == ("cores", (0, 1), {"last-level cache": 1})


def test_gpus_that_come_to_the_same_are_called_gpus() -> None:
    links = {(0, 1): "NV4", (1, 0): "NV4"}
    machine = Topology(MACHINE.cores, MACHINE.gpus, links=links)
    values = {"device": "gpu", "gpus": ("first", "close"), "ranks": (2,), "cores_per_rank": 1}
    of = expand(msgspec.structs.replace(PLAN, **values), lambda engine: machine)
    (text,) = of.left_out
    assert (text.count("gpus"), text.count("cores")) == (2, 0)
    (choice,) = chosen_in(of)
    assert (choice.axis, choice.members, choice.pairs) == ("gpus", (0, 1), {"NV4": 1})


def test_choices_are_of_the_device_that_the_plan_measures_on() -> None:
    for key, device in (("gpus", "cpu"), ("cores", "gpu")):
        with pytest.raises(PlanError, match=key):
            check_launch_plan(msgspec.structs.replace(PLAN, device=device, **{key: ("close",)}))


def block(of: ExpandedPlan, number: int = 0) -> list[Launch]:
    return [launch for launch in of.order if launch.number == number]


def groups(of: ExpandedPlan, free: int = 1 << 40, refused: dict[object, Alone] | None = None) -> tuple[Group, ...]:
    return groups_of(of, block(of), refused or {}, free)


def names(group: Group) -> set[tuple[str, int]]:
    return {(place_of(launch.cell), launch.cell.ranks) for launch in group.launches}


# Who lives at once ---------------------------------------------------------------------------------------------------


def test_those_that_measure_alike_on_the_same_processors_in_the_order_of_launches() -> None:
    of = expanded(launches=8)
    first = set()
    for number in range(8):
        (group,) = groups_of(of, block(of, number), {}, 1 << 40)
        assert names(group) == {("single strict", 2), ("multi strict", 2)}
        assert (group.alone, group.reference, group.repeats) == (None, None, False)
        assert group.launches == tuple(block(of, number))
        first.add(place_of(group.launches[0].cell))
    assert len(first) == 2


def test_each_number_of_ranks_and_each_image_is_a_group_of_its_own() -> None:
    of_plan = groups(expanded(ranks=(2, 4), images=("openmpi", "mpich")))
    worlds = [{(launch.cell.image, launch.cell.ranks) for launch in group.launches} for group in of_plan]
    assert [(len(group.launches), len(world)) for group, world in zip(of_plan, worlds, strict=True)] == [(2, 1)] * 4
    assert len(set().union(*worlds)) == 4


def test_the_sides_of_a_plan_live_at_once_also_with_images_of_their_own() -> None:
    """A side with another image lives beside the one that it replaces."""
    for side in (Side(variables={"A": "1"}), Side(images={"openmpi": "openmpi-new"})):
        (group,) = groups(expanded(policies=("single",), sides={"base": Side(), "other": side}))
        image = side.images.get("openmpi", "openmpi")
        assert {(launch.cell.side, launch.cell.image) for launch in group.launches} == {
            ("base", "openmpi"), ("other", image)
        }  # fmt: skip
        assert group.alone is None


def test_other_processors_are_another_group() -> None:
    """`far` takes memory of another node; on one node nothing differs but the processors that a policy takes."""
    of = expanded(policies=("single", "multi"), cores_per_rank=1)
    other = replace(of, placements={
        cell: placement if cell.policy == "single" else replace(placement, boxes=tuple(
            replace(box, slots=tuple(replace(slot, cores=tuple(core + 4 for core in slot.cores)) for slot in box.slots))
            for box in placement.boxes
        ))
        for cell, placement in of.placements.items()
    })  # fmt: skip
    assert [group.alone for group in groups(other)] == ["single", "single"]
    assert len({key_of(other, cell) for cell in other.cells}) == 2
    assert len({key_of(of, cell) for cell in of.cells}) == 1


# Why one is alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "alone"),
    [
        ({"how": "blocks"}, "plan"),
        ({"device": "gpu", "backends": ("nccl",)}, "gpus"),
        ({"ranks": (9,), "oversubscribe": True}, "oversubscribed"),
        ({"collectives": (), "benchmarks": ("stream",), "sizes": None, "ranks": (1,)}, "programs"),
        ({"policies": ("single",)}, "single"),
    ],
)
def test_why_a_launch_is_alone(values: dict[str, Any], alone: Alone) -> None:
    of = expanded(**values)
    assert groups(of) == tuple(Group((launch,), alone) for launch in block(of))


@pytest.mark.parametrize(("gpu", "values", "alone"), [
    ({"memory": 80 << 30}, {}, None),
    ({"memory": 80 << 30, "exclusive": True}, {}, "gpus"),
    ({"memory": 4 << 30}, {}, "memory"),  # no room for two contexts of 2 GiB
    ({"memory": 80 << 30}, {"backends": (), "collectives": (), "benchmarks": ("stream",), "sizes": None,
                            "ranks": (1,)}, "gpus"),
])  # fmt: skip
def test_worlds_take_turns_on_gpus_that_have_room_for_all(
    gpu: dict[str, Any], values: dict[str, Any], alone: Alone | None
) -> None:
    machine = replace(MACHINE, gpus=tuple(replace(known, **gpu) for known in MACHINE.gpus))
    plan = msgspec.structs.replace(PLAN, **{"device": "gpu", "backends": ("nccl",)} | values)
    of = expand(plan, lambda engine: machine)
    assert {group.alone for group in groups(of)} == {alone}
    assert plan.slices.discard_seconds == 0.05


@pytest.mark.parametrize(("budget", "rounds"), [("0.25s", 20), (0.5, 20), ("3s", 120)])
def test_a_long_budget_has_more_rounds_of_a_duet(budget: str | float, rounds: int) -> None:
    slices = msgspec.structs.replace(PLAN, budget=budget).slices
    assert (slices.rounds, slices.seconds, slices.discard_seconds) == (rounds, 0.025, 0.005)


def test_worlds_on_other_gpus_are_not_beside_each_other() -> None:
    of = expanded(device="gpu", backends=("nccl",))
    cell = of.cells[0]
    boxes = tuple(replace(box, slots=tuple(replace(slot, gpu=f"{slot.gpu}, another") for slot in box.slots))
                  for box in of.placements[cell].boxes)  # fmt: skip
    swapped = replace(of.placements[cell], boxes=boxes)
    assert key_of(replace(of, placements={cell: swapped}), cell) != key_of(of, cell)


def test_an_engine_that_does_not_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    of = expanded()
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, local=False))
    assert [group.alone for group in groups(of)] == ["engine"] * 2


def test_worlds_of_other_numbers_of_hosts_are_not_on_the_same_processors() -> None:
    """Though each rank has the first core of its host."""
    of = expanded()
    cell = of.cells[0]
    spread = replace(cell, hosts=2)
    wider = replace(of, placements=dict.fromkeys((cell, spread), of.placements[cell]), cases={spread: of.cases[cell]})
    assert why_alone(wider, spread) is None
    assert key_of(wider, spread) != key_of(wider, cell)


def largest(of: ExpandedPlan) -> int:
    """Bytes of the largest case's buffers."""
    return max(buffers(case) for case in of.cases[of.cells[0]] if isinstance(case, CollectiveCase))


def test_too_little_memory_for_all_at_once() -> None:
    """Two worlds with the buffers of their largest case each."""
    of = expanded(sizes=("8", "1M"))
    least = int(2 * largest(of) / USABLE_SHARE)
    assert [group.alone for group in groups(of, free=least + 2)] == [None]
    assert [group.alone for group in groups(of, free=least - 2)] == ["memory"] * 2


def test_memory_of_other_machines_is_not_that_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    of = expanded(sizes=("8", "1M"))
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, local=False, overlaps=True))
    assert [group.alone for group in groups(of, free=1)] == [None]


def test_of_many_worlds_so_many_count_as_live_at_once() -> None:
    of = expanded(**MANY, sizes=("1M",))
    least = int(MOST_WORLDS * largest(of) / USABLE_SHARE)
    assert len(of.cells) > MOST_WORLDS
    assert {group.alone for group in groups(of, free=least + 2)} == {None}
    assert {group.alone for group in groups(of, free=least - 2)} == {"memory"}


@pytest.mark.parametrize("why", ["shared", "awake"])
def test_what_was_refused_stays_alone(why: Alone) -> None:
    of = expanded(ranks=(2, 4))
    key = key_of(of, next(cell for cell in of.cells if cell.ranks == 4))
    ranks = {(group.alone, tuple(one.cell.ranks for one in group.launches)) for group in groups(of, refused={key: why})}
    assert ranks == {(None, (2, 2)), (why, (4,))}


def test_one_that_is_alone_leaves_the_others_together() -> None:
    """Nine ranks do not fit on eight processors; two do."""
    of = expanded(ranks=(2, 9), oversubscribe=True)
    assert sorted((group.alone or "", len(group.launches)) for group in groups(of)) == [
        ("", 2), ("oversubscribed", 1), ("oversubscribed", 1)
    ]  # fmt: skip


# More than live at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", range(5))
def test_more_are_groups_around_the_first_cell_of_the_plan(left_out: int) -> None:
    of = expanded(**MANY)
    launches = block(of)
    if left_out:
        kept = of.cells[: len(of.cells) - left_out]
        launches = [launch for launch in launches if launch.cell in kept]
    in_groups = groups_of(of, launches, {}, 1 << 40)
    if len(launches) <= MOST_WORLDS:
        assert [group.reference for group in in_groups] == [None]
        return
    reference = next(launch for launch in launches if launch.cell == of.cells[0])
    sizes = [len(group.launches) for group in in_groups]
    assert max(sizes) <= MOST_WORLDS and max(sizes) - min(sizes) <= 1
    assert len(in_groups) == -(-(len(launches) - 1) // (MOST_WORLDS - 1))
    assert [group.reference for group in in_groups] == [reference] * len(in_groups)
    assert [group.repeats for group in in_groups] == [False, *[True] * (len(in_groups) - 1)]
    others = [launch for group in in_groups for launch in group.launches if launch is not group.reference]
    assert len(others) == len(launches) - 1 and set(others) == set(launches) - {reference}
    for group in in_groups:
        assert reference in group.launches
        assert list(group.launches) == sorted(group.launches, key=launches.index), "started as without groups"


def numbers(in_groups: Sequence[Group]) -> list[tuple[set[str], str | None, bool]]:
    return [({place_of(one.cell) for one in group.launches},
             None if group.reference is None else place_of(group.reference.cell), group.repeats)
            for group in in_groups]  # fmt: skip


def test_what_is_left_of_a_block_is_in_the_groups_that_it_was_in() -> None:
    of = expanded(**MANY)
    launches = block(of)
    whole = groups_of(of, launches, {}, 1 << 40)
    assert groups_of(of, launches, {}, 1 << 40, launches) == whole
    for number, group in enumerate(whole):
        left = [launch for later in whole[number:] for launch in later.launches]
        left = [launch for launch in left if number == 0 or launch is not group.reference]
        assert groups_of(of, launches, {}, 1 << 40, left) == whole[number:]
    reference = whole[0].reference
    assert reference is not None
    first, *others = [launch for launch in whole[0].launches if launch is not reference]
    assert numbers(groups_of(of, launches, {}, 1 << 40, [first])) == [
        ({place_of(reference.cell), place_of(first.cell)}, place_of(reference.cell), True)
    ]
    of_second = [launch for launch in whole[1].launches if launch is not whole[1].reference]
    in_groups = groups_of(of, launches, {}, 1 << 40, [reference, *of_second])
    assert numbers(in_groups)[0] == ({place_of(reference.cell)}, place_of(reference.cell), False)
    assert [group.alone for group in in_groups] == ["single", None]
    assert numbers(in_groups)[1:] == numbers(whole[1:])
    assert groups_of(of, launches, {}, 1 << 40, []) == ()
    assert others


def test_one_that_is_left_of_a_small_block_is_alone() -> None:
    of = expanded()
    first, _ = block(of)
    assert groups_of(of, block(of), {}, 1 << 40, [first]) == (Group((first,), "single"),)


def test_the_reference_measures_again_what_the_others_do() -> None:
    of = expanded(**MANY)
    cases = sorted(of.expected[of.cells[0]], key=lambda case: int(str(case["size"])))
    parts = {cell: LaunchPart(frozenset(cases[:1]), frozenset(cases[1:2])) for cell in of.cells}
    launches = [replace(launch, only=parts[launch.cell]) for launch in block(of)]
    first, *more = groups_of(of, launches, {}, 1 << 40)
    assert first.reference is not None and first.reference.only == parts[of.cells[0]]
    for group in more:
        assert group.reference is not None
        assert group.reference.only == LaunchPart(frozenset(cases[:1]), frozenset(cases[1:2]))
    whole = [replace(launch, only=None) if launch.cell != of.cells[0] else launch for launch in launches]
    for group in groups_of(of, whole, {}, 1 << 40)[1:]:
        assert group.reference is not None and group.reference.only is None


# Programs ------------------------------------------------------------------------------------------------------------

PROGRAMS = Plan(benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "16")},), images=("openmpi",),
                policies=("host", "multi"))  # fmt: skip


def test_programs_are_launched_on_one_rank_and_have_a_record_for_each_measure() -> None:
    of = expand(PROGRAMS, lambda engine: MACHINE)
    assert [(cell.policy, cell.ranks) for cell in of.cells] == [("host", 1), ("multi", 1)]
    assert {len(cases) for cases in of.expected.values()} == {8}
    assert {case["backend"] for cases in of.expected.values() for case in cases} == {""}
    host = of.cells[0]
    whole = tuple(Record(case=placed_case(case, host), launch=0, status="ok") for case in of.expected[host])
    assert finished(of, whole) == {(host, 0)}
    assert finished(of, whole[1:]) == frozenset()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_program_that_takes_more_memory_than_is_free_is_not_started(device: Literal["cpu", "gpu"]) -> None:
    """stream has three arrays in host memory, also in a plan whose collectives are on GPUs."""
    large = ({"name": "stream", "arrays": "any", "size": ("8", "1G")},)
    plan = msgspec.structs.replace(PROGRAMS, benchmarks=large, policies=("single", "multi"), device=device)
    cases = {cell: cases_in(plan, cell) for cell in expand(plan, lambda engine: MACHINE).cells}
    refuse_too_large(plan, cases, free=4 << 30)
    with pytest.raises(PlanError, match=r"stream size=1G arrays=any threads=1 .* 3\.00 GiB .* 3\.00 GiB "):
        refuse_too_large(plan, cases, free=3 << 30)


def test_collectives_and_programs_of_one_plan() -> None:
    plan = Plan(collectives=("allreduce",), benchmarks=("stream",), images=("openmpi",), sizes=("8",))
    first = expand(plan, lambda engine: MACHINE).cells[0]
    workloads = [identity.workload for case in cases_in(plan, first) for identity in case.identities]
    assert workloads == ["allreduce"] + 4 * ["stream"]
    assert inner_plan(plan, first).workloads == ("stream",)
