"""Advice: the best option by size, the best by chance, what is asked about, and what was not measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.advised_runs import US, advice_on, ladder, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    image,
    library,
    made_case,
    made_cell,
    made_failure,
    made_record,
    spread,
    write_launches,
    write_run,
)
from tests.unit.made_suite import CPU, IO, write_suite

from collbench.analysis.advise import Advice, advise, pair_of
from collbench.analysis.options import FACTORS, Option, Question, merged, parse_fixed, questions
from collbench.analysis.pairs import method_differences
from collbench.analysis.runs import observe
from collbench.analysis.tradeoffs import Recovery, crossing, crossover, factor_effects, recoveries, shares
from collbench.errors import RequestError
from collbench.report.advice import complete, document
from collbench.schema.case import Case, case_of
from collbench.schema.record import ResultCheck
from collbench.schema.store import SIDES


def chosen(advice: Advice) -> list[tuple[str, int, float]]:
    """Of each range the option, the last size, and what it may lose."""
    return [(advice.question.name(one.option), one.sizes[-1].size, one.bound) for one in advice.ranges]


def fastest(advice: Advice) -> str:
    """Of the only size the one over which the ratios are."""
    (size,) = advice.sizes
    (name,) = (advice.question.name(option) for option, one in size.options.items() if one.ratio == 1.0)
    return name


def test_the_quickest_option_is_taken_and_all_others_are_out(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (20, 40)}))
    assert chosen(advice) == [("openmpi", 1024, 1.0)]
    (only,) = advice.ranges
    assert only.rivals == []
    other = advice.sizes[0].options[next(one for one in advice.question.options if one != only.option)]
    assert other.out and other.ratio == pytest.approx(2.0, rel=0.01) and other.bound == pytest.approx(2.0, rel=0.02)


def test_of_two_that_may_be_taken_each_has_a_bound_and_the_lower_one_is_taken(tmp_path: Path) -> None:
    """Within the margin the second may be taken, however sure it is that it is slower."""
    noise = (1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.02, 0.99, 1.01)
    cells = {made_case(image="a"): [10 * US] * 10, made_case(image="b"): [10.05 * US * one for one in noise]}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    (size,) = advice.sizes
    (take, first), (_, second) = size.options.items()
    assert advice.question.name(take) == "a" and not first.out
    assert not second.out
    assert 1.0 <= first.bound < 1.01 < second.bound < 1.04
    assert [advice.question.name(one) for one in advice.ranges[0].rivals] == ["b"]


def test_the_fastest_is_the_one_over_which_the_least_ratio_is_the_largest(tmp_path: Path) -> None:
    """In blocks that differ a hundredfold, and though the medians of launches say otherwise."""
    blocks = [1.0, 100.0, 3.0, 30.0, 10.0, 1.5, 60.0, 5.0]
    cells = {made_case(image="a"): [10 * US * block for block in blocks],
             made_case(image="b"): [9 * US * block for block in [*blocks[1:6], 70.0, 65.0, 80.0]],
             made_case(image="c"): [9.5 * US * block for block in blocks]}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert fastest(advice) == "c"


def test_too_few_launches_bound_nothing(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20)}, launches=4))
    assert chosen(advice) == [("openmpi", 8, math.inf)]
    assert not advice.sizes[0].known
    assert [(one.at_most, one.out) for one in advice.sizes[0].options.values()] == [("few launches", False)] * 2


def test_a_choice_that_flips_makes_two_ranges_and_a_crossing_between_them(tmp_path: Path) -> None:
    # openmpi 2 us + 2 ns/B, mpich 10 us + 1 ns/B: equal at 8000 B
    sizes = {size: (2 + size * 2e-3, 10 + size * 1e-3) for size in (1 << power for power in range(3, 21))}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert [found[:2] for found in chosen(advice)] == [("openmpi", 8192), ("mpich", 1 << 20)]
    below, above = (one.option for one in advice.ranges)
    found = crossover(advice.question, below, above, True)
    assert found is not None
    assert found.size == pytest.approx(8000, rel=0.03)
    assert found.interval == (4096.0, 8192.0)  # no size between them was measured, however sure the crossing is
    assert crossover(advice.question, above, below, True) is None  # the other way round it never flips
    assert complete([advice], True)[0].crossovers == (found,)


@pytest.mark.parametrize(
    ("times", "interval"),
    [
        ([(10, 30), (10, 11), (30, 10)], (1000, 1 << 20)),
        ([(10, 30), (10, 10), (30, 10)], (7, 1000)),  # equal at a measured size
        ([(10, 11), (10, 9), (10, 8)], (7, 1000)),
    ],
)
def test_the_interval_of_a_flip_ends_at_measured_sizes(
    tmp_path: Path, times: list[tuple[float, float]], interval: tuple[float, float]
) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", dict(zip((7, 1000, 1 << 20), times, strict=True))))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == interval


def test_a_flip_that_noise_moves_beyond_the_sizes_measured_has_an_open_end(tmp_path: Path) -> None:
    cells = {made_case(image="openmpi", size=size): [10 * US] * 10 for size in (8, 64)}
    cells |= {made_case(image="mpich", size=8): [20 * US] * 10,
              made_case(image="mpich", size=64): [8 * US] * 7 + [12 * US] * 3}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == (8.0, math.inf)


def test_a_flip_with_too_few_launches_has_no_interval(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 30), 64: (30, 10)}, launches=5))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval is None


def test_one_range_covers_sizes_at_which_noise_picks_another_winner(tmp_path: Path) -> None:
    sizes = {8: (10.0, 10.02), 64: (10.02, 10.0), 512: (10.0, 10.02)}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert len(advice.ranges) == 1


def test_the_best_of_a_size_is_the_best_within_blocks(tmp_path: Path) -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
    slower = [10e-6 * d for d in drift]
    quicker = [9e-6 * d for d in drift]
    quicker[:3] = [1.0, 1.0, 1.0]  # three blocks went wrong: the plain median would still be higher
    run = write_run(tmp_path / "run", {made_case(image="a"): slower, made_case(image="b"): quicker})
    (advice,) = advice_on(run)
    assert fastest(advice) == "b"


def test_a_step_gives_back_its_part_of_what_isolation_costs(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"))
    back = {one.step["isolation"]: one for one in recoveries(advice.question, 1024, True)}
    assert back["ipc"].cost == pytest.approx(3.0, rel=0.01)
    assert back["ipc"].share == pytest.approx(0.8, abs=0.01)
    assert back["limits"].share == pytest.approx(0.0, abs=0.01)
    interval = back["ipc"].share_interval
    assert interval is not None and interval[0] <= 0.8 <= interval[1]


@pytest.mark.parametrize(
    ("free", "isolated", "found"),
    [("multi", "pairs", True), ("pairs", "single", True), ("packed:4", "pairs", False)],
)
def test_what_isolation_costs_is_told_over_a_policy_that_is_surely_less_isolated(
    tmp_path: Path, free: str, isolated: str, found: bool
) -> None:
    """Of a policy that is not known, it is known that one container for all is less, and one for each rank more."""
    places = {(free, "ipc"): 100, (isolated, "strict"): 300, (isolated, "ipc"): 140}
    cells = {made_case(*place, image="mpich"): spread(time * US) for place, time in places.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    back = recoveries(advice.question, 1024, True)
    assert [(one.free["policy"], one.isolated["policy"]) for one in back] == ([(free, isolated)] if found else [])


def test_near_memory_is_not_what_isolation_with_far_memory_costs(tmp_path: Path) -> None:
    cells = {made_case("multi", "ipc", image="mpich"): spread(100 * US)}
    cells |= {made_case("single", step, image="mpich", affinity="far"): spread(300 * US) for step in ("strict", "ipc")}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert recoveries(advice.question, 1024, True) == []


def test_affinity_is_named_where_it_varies(tmp_path: Path) -> None:
    times = {("host", None, "near"): 100, ("single", "strict", "near"): 200, ("single", "strict", "far"): 300}
    cells = {made_case(policy, step, image="a", affinity=memory): spread(time * US)
             for (policy, step, memory), time in times.items()}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert chosen(advice) == [("host, affinity near", 1024, 1.0)]
    found = factor_effects(advice.question, advice.sizes[0])["affinity"]
    assert found[:2] == pytest.approx((1.5, 1.5), rel=0.01) and found.slowest == "far"


def test_a_factor_matters_by_the_ratio_of_its_values_in_otherwise_equal_options(tmp_path: Path) -> None:
    """Of two libraries one container for each costs 2 and 6 times the host, and the step 1 and 1.5 times."""
    times = {("a", "host", None): 10, ("a", "single", "ipc"): 20, ("a", "single", "strict"): 20,
             ("b", "host", None): 10, ("b", "single", "ipc"): 40, ("b", "single", "strict"): 60}  # fmt: skip
    cells = {made_case(policy, step, image=name): [time * US] * 8 for (name, policy, step), time in times.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    found = factor_effects(advice.question, advice.sizes[0])
    assert {factor: one.slowest for factor, one in found.items()} == {
        "policy": "single", "library": "b", "isolation": "strict"
    }  # fmt: skip
    assert found["policy"][:2] == pytest.approx((2.0, 6.0)) and found["library"][:2] == pytest.approx((2.0, 3.0))
    assert found["isolation"][:2] == pytest.approx((1.0, 1.5))


def test_sides_of_a_plan_are_advised_on_apart_and_named(here: Collbench, tmp_path: Path) -> None:
    case = made_case(image="openmpi")
    cells: dict[Case, list[Entry]] = {
        one.having(side=side): [*spread(time)] for side in SIDES
        for one, time in ((case, 1e-6), (case.having(policy="single", isolation="strict"), 2e-6))
    }  # fmt: skip
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",)))
    found = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [one["operation"].rpartition(", ")[2] for one in found] == ["side base", "side other"]


# The best of many options may be the best by chance -------------------------------------------------------------------

MANY = 18


def question(times: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Question:
    """Options with such launch medians (s), [options, launches]."""
    cells = {}
    for number, medians in enumerate(times.tolist()):
        name = f"option{number:02d}"
        option = Option(tuple(name if factor == "library" else "" for factor in FACTORS))
        cells[option] = made_cell(made_case(image=name), medians)
    return Question(made_case(), {8: cells}, ("library",))


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 10])
def test_the_best_option_is_seldom_out_and_losses_are_seldom_larger_than_their_bounds(n: int) -> None:
    """Of 6 options, equal or up to 10 % apart, the first is the best; both errors are below 5 % and two deviations."""
    draw = np.random.default_rng([6, n])
    trials, few, ends = 200, 6, (0.0, 0.1)
    lost = wrong = 0
    for end in ends:
        effects = np.linspace(0, end, few)[:, None]
        for _ in range(trials):
            each = question(np.exp(effects + draw.normal(0, 0.05, (few, n))))
            (size,) = advise([each], True)[0].sizes
            found = [size.options[option] for option in sorted(size.options)]
            lost += found[0].out
            wrong += any(one.bound < math.exp(effect)
                         for one, effect in zip(found, effects[:, 0].tolist(), strict=True))  # fmt: skip
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / (trials * len(ends)))
    assert lost / (trials * len(ends)) <= most and wrong / (trials * len(ends)) <= most


def test_an_option_that_is_better_than_all_is_taken_among_many() -> None:
    times = np.exp(np.random.default_rng(2).normal(0, 0.01, (MANY, 7)))
    times[3] *= 1.5
    times[11] *= 0.8
    (found,) = advise([question(times)], True)
    (size,) = found.sizes
    assert size.take["library"] == "option11" and size.bound == 1.0
    assert [option["library"] for option in size.possible] == ["option11"]


# What advice is asked about -------------------------------------------------------------------------------------------


def test_what_is_given_leaves_the_rest_to_choose(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"), policy="single")
    assert advice.question.varying == ("isolation",)
    assert advice.question.name(advice.ranges[0].option) == "ipc"


def test_a_step_that_is_given_leaves_the_host_in(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"), isolation="strict")
    assert {option["policy"] for option in advice.question.options} == {"host", "multi", "single"}


@pytest.mark.parametrize(
    ("factor", "value", "left"),
    [("engine", "docker", 2), ("engine", "host", 1), ("affinity", "near", 3), ("in-place", "false", 3),
     ("in-place", "no", 3),
     ("dtype", "float32", 3), ("policy", "single strict", 1), ("policy", "single", 2), ("isolation", "none", 1),
     ("graph", "0", 3)],
)  # fmt: skip
def test_every_factor_of_compare_can_be_given_by_the_names_that_its_sides_have(
    tmp_path: Path, factor: str, value: str, left: int
) -> None:
    cases = [made_case(image="openmpi"), *(made_case("single", step, image="openmpi") for step in ("net", "strict"))]
    observed = observe(write_run(tmp_path / "run", {case: spread(1e-6, 7) for case in cases}))
    (question,) = questions(observed, parse_fixed([f"{factor}={value}"]))
    assert len(question.options) == left


def test_the_host_is_what_isolation_costs_more_than_on_every_engine(tmp_path: Path) -> None:
    cases = {made_case(image="openmpi"): 1e-6}
    for engine in ("docker", "podman"):
        cases |= {made_case("single", step, image="openmpi", engine=engine): time
                  for step, time in (("net", 2e-6), ("strict", 3e-6))}  # fmt: skip
    observed = observe(write_run(tmp_path / "run", {case: spread(time, 7) for case, time in cases.items()}))
    (question,) = questions(observed, {})
    found = recoveries(question, 1024, observed.interleaved)
    assert {(one.isolated["engine"], one.free["policy"]) for one in found} == {("docker", "host"), ("podman", "host")}


def test_given_values_that_do_not_exist_are_answered_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"policy .*host, multi, single"):
        advice_on(ladder(tmp_path / "run"), policy="singel")


@pytest.mark.parametrize(
    ("text", "said"), [("policy", "FACTOR=VALUE"), ("polcy=single", r"polcy.*\bpolicy\b"), ("=x", "factor")]
)
def test_given_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_fixed([text])


def test_numbers_of_ranks_are_questions_of_their_own(tmp_path: Path) -> None:
    cells = {made_case(image=image, ranks=ranks): spread(time * US)
             for ranks in (2, 4) for image, time in (("a", 10 * ranks), ("b", 50 / ranks))}  # fmt: skip
    found = {
        one.question.case.where.ranks: one.question.name(one.ranges[0].option)
        for one in advice_on(write_run(tmp_path / "r", cells))
    }
    assert found == {2: "a", 4: "b"}


def test_cells_measured_in_another_way_are_not_advised_against(tmp_path: Path) -> None:

    quick, odd = made_case(image="a"), made_case(image="b")
    late = [made_record(odd, launch, 20 * US, gate="barrier") for launch in range(10)]
    (advice,) = advice_on(write_run(tmp_path / "run", {quick: spread(10 * US), odd: late}))
    ((option, why),) = advice.sizes[0].apart.items()
    assert (advice.question.name(option), why.kind) == ("b", "not comparable")
    assert why.why is not None
    assert why.why.values == method_differences(pair_of(advice.question, 1024, *advice.question.options))


def test_options_are_named_with_their_hosts_where_these_vary(tmp_path: Path) -> None:
    one, two = (made_case("host", image="openmpi", engine="slurm", hosts=hosts) for hosts in (1, 2))
    (advice,) = advice_on(write_run(tmp_path / "run", {one: spread(10 * US), two: spread(20 * US)}))
    assert list(map(advice.question.name, advice.sizes[0].options)) == ["hosts 1", "hosts 2"]


def test_failed_skipped_and_zero_cells_are_left_out(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case(image="a"): list(spread(10 * US)),
        made_case(image="b"): ["died"] * 10,
        made_case(image="c"): [0.0] * 10,
    }
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert list(map(advice.question.name, advice.sizes[0].options)) == ["a"]
    assert set(map(advice.question.name, advice.sizes[0].apart)) == {"b", "c"}


def test_a_size_with_one_option_is_no_contest(tmp_path: Path) -> None:
    cells = {made_case(image="a", size=size): spread(10 * US) for size in (8, 64)}
    cells[made_case(image="b", size=8)] = spread(20 * US)
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert [(one.size, one.known) for one in advice.sizes] == [(8, True), (64, False)]
    assert len(advice.ranges) == 2


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    (advice,) = advice_on(write_run(tmp_path / "run", {made_case(image="a"): ["died"] * 3}))
    assert not advice.sizes and not advice.ranges


def test_runs_with_different_libraries_advise_together(tmp_path: Path) -> None:
    openmpi = write_launches(tmp_path / "o", {made_case(): spread(10 * US)})
    mpich = write_launches(tmp_path / "m", {made_case(): spread(20 * US)}, libraries=(library("MPICH", "5.0.2"),),
                           launcher="MPICH's mpiexec")  # fmt: skip
    together = merged([observe(openmpi), observe(mpich)])
    (advice,) = advise(questions(together, {}), together.interleaved)
    assert advice.question.name(advice.ranges[0].option) == "Open MPI 5.0.11"
    assert [len(cell.medians) for cell in together.cells.values()] == [10, 10]


def test_an_image_that_another_run_does_not_have_keeps_its_name(tmp_path: Path) -> None:
    sides = {"a": image("a"), "b": image("b", libraries=(library("MPICH", "5.0.2"),))}
    runs = [
        observe(write_run(
            tmp_path / name, {made_case(image=name): spread(10 * US)}, libraries=side.libraries,
            experiment=experiment((name,), images=(side,), environments=(side,)),
        ))
        for name, side in sides.items()
    ]  # fmt: skip
    assert {case.where.image for case in merged(runs).cells} == {"a", "b"}


def test_runs_of_different_machines_do_not_advise_together_unless_told_to(tmp_path: Path) -> None:
    one = write_run(tmp_path / "1", {made_case(): [US]})
    other = write_run(tmp_path / "2", {made_case(): [US]}, hosts=(host(cpu="Xeon"),))
    with pytest.raises(RequestError, match=r"cpu EPYC 7003 against Xeon.*--ignore cpu"):
        merged([observe(one), observe(other)])
    assert merged([observe(one), observe(other)], frozenset({"cpu"})).cells


def copying(block: int) -> Case:
    """A case of a program with an axis of its own."""
    return case_of("dd", {"measure": "copy", "block": block, "driver": "native"})


def test_an_axis_of_a_workloads_own_can_be_given(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {copying(block): spread(1e-6, 7) for block in (4096, 65536)})
    found = here("advise", run, "--given", "block=4096")
    assert found.code == 0 and "block 4096" in found.out and "block 65536" not in found.out
    assert "block is 4096, 65536" in here("advise", run, "--given", "block=1").err
    assert here("report", run, "--given", "block=4096", "-o", tmp_path / "report.md").code == 0
    unknown = here("advise", run, "--given", "zzz=1").err
    listed = unknown.partition("There are: ")[2].rstrip(".\n").split(", ")
    assert "block" in listed and len(listed) == len(set(listed))


def test_one_option_alone_is_no_table_of_choices(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {copying(4096): spread(1e-6, 7)})
    (entry,) = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [(one["take"], list(one["options"])) for one in entry["sizes"]] == [(None, ["host"])]


@pytest.mark.parametrize("value", ["yes", "true", "True"])
def test_booleans_are_yes_and_no(here: Collbench, tmp_path: Path, value: str) -> None:
    run = write_run(tmp_path / "run", {made_case(in_place=place): spread(1e-6, 7) for place in (False, True)})
    assert here("advise", run, "--given", f"in-place={value}").code == 0
    assert "where in-place is no, yes." in here("advise", run, "--given", "in-place=maybe").err
    assert here("compare", run, "--by", "in-place").out.startswith("yes vs no: ")
    found = here("compare", run, "--by", "in-place", "--between", f"{value},no")
    assert found.code == 0 and found.out.startswith("no vs yes: ")


# Advice where something was not measured, or in another way, or with wrong results ------------------------------------

HOST, MULTI = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))


def places(path: Path, host_: dict[int, list[Entry]], multi: dict[int, list[Entry]]) -> Path:
    """A run on the host and in a container, launches by size."""
    cells = {made_case("host", image="a", size=size): entries for size, entries in host_.items()}
    cells |= {made_case("multi", "strict", image="a", size=size): entries for size, entries in multi.items()}
    return write_run(path, cells)


def taken(advice: Advice) -> list[tuple[str, int]]:
    """Of each range the option and the last size."""
    return [(advice.question.name(one.option), one.sizes[-1].size) for one in advice.ranges]


def apart(advice: Advice, size: int) -> dict[str, str]:
    """Why options are not compared at a size."""
    (one,) = (one for one in advice.sizes if one.size == size)
    return {advice.question.name(option): why.kind for option, why in one.apart.items()}


def test_what_is_missing_at_a_size_is_not_taken_there(tmp_path: Path) -> None:
    """The container is twice as fast at 1K and 4K, and was not measured at 2K."""
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    run = places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast, 4096: fast})
    (advice,) = advice_on(run)
    assert taken(advice) == [("multi strict", 1024), ("host", 2048), ("multi strict", 4096)]
    assert not advice.sizes[1].known and apart(advice, 2048) == {"multi strict": "not measured"}


@pytest.mark.parametrize("why", ["segmentation fault", ResultCheck(wrong=3)])
def test_a_size_at_which_an_option_fails_cuts_the_range(tmp_path: Path, why: str | ResultCheck) -> None:
    """The container is twice as fast, and crashes or is wrong at 2K: there the host is taken."""
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    case = made_case("multi", "strict", image="a", size=2048)
    bad: list[Entry] = [why if isinstance(why, str) else made_record(case, n, 10 * US, check=why) for n in range(10)]
    run = places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast, 2048: bad, 4096: fast})
    (advice,) = advice_on(run)
    assert [name for name, _ in taken(advice)] == ["multi strict", "host", "multi strict"]
    assert apart(advice, 2048).keys() == {"multi strict"}


def test_an_option_that_fails_now_and_then_is_taken_last_of_those_that_may_be_the_best(tmp_path: Path) -> None:
    """Twice as fast it is taken, with its failures; about as fast it is not."""
    for factor, name in ((0.5, "multi strict"), (0.999, "host")):
        times = spread(20 * US * factor, 20, 0.002)
        entries: list[Entry] = [time if n % 2 else "segmentation fault" for n, time in enumerate(times)]
        run = places(tmp_path / f"{factor}", {1024: list(spread(20 * US, 20, 0.01))}, {1024: entries})
        (advice,) = advice_on(run)
        assert taken(advice)[0][0] == name
        assert list(advice.sizes[0].failing.values()) == [(10, 20)]


def test_images_of_one_name_with_other_libraries_are_two_options(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="openmpi")
    runs = []
    for number, (time, version) in enumerate(((20 * US, "5.0.11"), (40 * US, "5.0.8"))):
        sides = (image("openmpi", libraries=(library("Open MPI", version, f"{number}" * 64),)),)
        about = experiment((), images=sides, environments=sides, launches=10)
        runs.append(observe(write_run(tmp_path / str(number), {case: spread(time)}, experiment=about)))
    together = merged(runs)
    (advice,) = advise(questions(together, {}), together.interleaved)
    names = sorted(map(advice.question.name, advice.question.options))
    assert names == ["openmpi (Open MPI 5.0.11)", "openmpi (Open MPI 5.0.8)"]
    same = (image("openmpi", libraries=(library("Open MPI", "5.0.11", "f" * 64),)),)
    about = experiment((), images=same, environments=same, launches=10)
    other = observe(write_run(tmp_path / "other", {case: spread(US)}, experiment=about))
    with pytest.raises(RequestError, match=r"\bopenmpi\b"):
        merged([runs[0], other])


def test_an_option_that_ends_before_the_largest_size_is_not_taken_beyond(tmp_path: Path) -> None:
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    (advice,) = advice_on(places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast}))
    assert taken(advice) == [("multi strict", 1024), ("host", 4096)]
    assert [one.known for one in advice.sizes] == [True, False, False]


def by_barrier(size: int, times: list[float], *numbers: int) -> list[Entry]:
    case = made_case("multi", "strict", image="a", size=size)
    return [made_record(case, n, time, gate="barrier" if n in numbers else "roundtime") for n, time in enumerate(times)]


def test_what_was_measured_in_another_way_is_not_surpassed(tmp_path: Path) -> None:
    """A barrier makes small operations look faster; a side that passed one is not compared."""
    slow = {size: list[Entry](spread(20 * US)) for size in (1024, 2048)}
    fast = {size: by_barrier(size, spread(10 * US), *range(10)) for size in (1024, 2048)}
    (advice,) = advice_on(places(tmp_path / "run", slow, fast))
    assert not any(one.known for one in advice.sizes)
    assert apart(advice, 1024) == {"host": "not comparable"}
    assert [one.why and one.why.values for one in advice.sizes[0].apart.values()] == [
        method_differences(pair_of(advice.question, 1024, *advice.question.options))
    ]


def test_one_launch_by_another_gate_changes_no_advice(tmp_path: Path) -> None:
    run = places(tmp_path / "run", {1024: list(spread(20 * US))}, {1024: by_barrier(1024, spread(40 * US), 3)})
    (advice,) = advice_on(run)
    assert taken(advice) == [("host", 1024)] and advice.sizes[0].bound == 1.0


def test_one_option_of_three_that_was_not_compared_is_named(tmp_path: Path) -> None:
    case = made_case("multi", "ipc", image="a")
    cells: dict[Case, list[Entry]] = {
        made_case("host", image="a"): list(spread(10 * US)),
        made_case("multi", "strict", image="a"): list(spread(30 * US)),
        case: [made_record(case, n, time, cadence="streaming") for n, time in enumerate(spread(20 * US))],
    }  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert taken(advice) == [("host", 1024)] and apart(advice, 1024).keys() == {"multi ipc"}


def test_the_side_that_is_never_slow_is_taken_of_two_with_one_median(tmp_path: Path) -> None:
    """The host is a little faster in the median, and twice as slow in every third launch."""
    steady = spread(10 * US, 60, 0.002)
    jumping: list[Entry] = [0.999 * time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    still: list[Entry] = [*steady]
    for name, host_, multi in (("host", still, jumping), ("multi strict", jumping, still)):
        (advice,) = advice_on(places(tmp_path / name, {1024: host_}, {1024: multi}))
        assert taken(advice) == [(name, 1024)]
        assert [one.slow_at_times for one in advice.sizes[0].options.values()] == [False, True]


def test_results_that_are_wrong_are_never_advised(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    wrong: list[Entry] = [made_record(case, n, 5 * US, check=ResultCheck(wrong=17)) for n in range(10)]
    (advice,) = advice_on(places(tmp_path / "run", {1024: list(spread(10 * US))}, {1024: wrong}))
    assert taken(advice) == [("host", 1024)] and not advice.sizes[0].known


def test_an_option_with_wrong_results_in_one_launch_is_not_taken(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    times = spread(5 * US)
    once: list[Entry] = [made_record(case, n, t, check=ResultCheck(wrong=int(n == 3))) for n, t in enumerate(times)]
    (advice,) = advice_on(places(tmp_path / "run", {1024: list(spread(10 * US))}, {1024: once}))
    assert taken(advice) == [("host", 1024)] and apart(advice, 1024) == {"multi strict": "not comparable"}


def test_runs_measured_in_turns_advise_in_blocks(tmp_path: Path) -> None:
    """Both drift by a third over ten launches; in every block MPICH takes 10 % longer."""
    times = [10 * US * (1 + n / 27) for n in range(10)]
    one = observe(write_launches(tmp_path / "o", {made_case(): times}))
    other = observe(write_launches(tmp_path / "m", {made_case(): [1.1 * time for time in times]},
                                   libraries=(library("MPICH", "5.0.2"),), launcher="MPICH's mpiexec"))  # fmt: skip
    for in_blocks, possible in ((False, 2), (True, 1)):
        together = merged([one, other], in_blocks=in_blocks)
        (advice,) = advise(questions(together, {}), together.interleaved)
        assert len(advice.sizes[0].possible) == possible
    with pytest.raises(RequestError, match="--in-blocks"):
        merged([one, one], in_blocks=True)


def three(path: Path, third: dict[int, float], sizes: tuple[int, ...] = (1024, 2048, 4096)) -> Path:
    """20 us on the host, 40 us in single strict, and so many us in multi strict at some of the sizes."""
    cells: dict[Case, list[Entry]] = {}
    for size in sizes:
        cells |= {made_case("host", image="a", size=size): [*spread(20 * US)],
                  made_case("single", "strict", image="a", size=size): [*spread(40 * US)]}  # fmt: skip
        if size in third:
            cells[made_case("multi", "strict", image="a", size=size)] = [*spread(third[size] * US)]
    return write_run(path, cells)


def test_what_was_the_best_and_was_not_measured_at_the_largest_size_is_named_there(tmp_path: Path) -> None:
    (advice,) = advice_on(three(tmp_path / "run", {1024: 10, 2048: 10}))
    assert taken(advice) == [("multi strict", 2048), ("host", 4096)]
    (entry,) = document(complete([advice], True), [])["advice"]
    assert [(of["size"], of["take"], of["not_compared"]) for of in entry["sizes"]] == [
        (1024, "multi strict", {}), (2048, "multi strict", {}),
        (4096, "host", {"multi strict": "not measured"})]  # fmt: skip


def test_what_failed_or_was_skipped_cannot_be_taken_and_leaves_nothing_open(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    skipped = [made_failure(case, n, "no such", "skipped") for n in range(10)]
    for name, third in (("failed", ["died"] * 10), ("skipped", skipped)):
        cells: dict[Case, list[Entry]] = {
            HOST: [*spread(10 * US)], made_case("single", "strict", image="a"): [*spread(30 * US)],
            case: [*third],
        }  # fmt: skip
        (advice,) = advice_on(write_run(tmp_path / name, cells))
        assert taken(advice) == [("host", 1024)] and advice.sizes[0].bound == 1.0
        assert apart(advice, 1024).keys() == {"multi strict"}


def test_hosts_and_boots_that_differ_between_runs_are_a_caution(here: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", {made_case(): spread(US)})
    other = write_run(tmp_path / "other", {made_case(): spread(2 * US)}, libraries=(library("MPICH", "5.0.2"),),
                      hosts=(host(name="node2", boot_id="b9"),))  # fmt: skip
    out = here("advise", one, other).out
    assert f"other differ: boot {host().boot_id or 'none'} against b9; host {host().name} against node2" in out
    assert " differ: " not in here("advise", one).out


def test_nothing_is_bounded_where_launches_depend_on_those_before(tmp_path: Path) -> None:
    """Waves of six launches, in 24 and in 18 of them: of fewer than twenty it cannot be seen well enough."""
    for launches, known in ((24, False), (18, True)):
        waves = [US * (1 + 0.2 * ((block // 6) % 2)) for block in range(launches)]
        cells: dict[Case, list[Entry]] = {HOST: [*spread(US, launches, 0.001)], MULTI: [*waves]}
        (advice,) = advice_on(write_run(tmp_path / str(launches), cells))
        assert advice.sizes[0].known is known
        assert all((one.at_most == "dependent") is not known for one in advice.sizes[0].options.values())


def test_launches_that_depend_on_those_before_are_a_caution(here: Collbench, tmp_path: Path) -> None:
    waves = [US * (1 + 0.2 * ((block // 6) % 2)) for block in range(24)]
    for name, times, said in (("waves", waves, True), ("turns", spread(US, 24), False)):
        out = here("advise", write_run(tmp_path / name, {HOST: spread(US, 24, 0.001), MULTI: times})).out
        assert ("launches depend on" in out) is said


# Advice on programs ---------------------------------------------------------------------------------------------------


def test_what_has_no_size_is_advised_without_one(here: Collbench, tmp_path: Path) -> None:
    slower, share = {"dd": 1.06, "linpack": 0.9}, {"ioping": 0.03}
    run = write_suite(tmp_path / "run", CPU + IO, slower=slower, share=share)
    out = here("advise", run, "--why").out
    assert " at 0" not in out and " 0:" not in out
    entries = json.loads(here("advise", run, "--style", "json").out)["advice"]
    found = {one["operation"].split()[0].rstrip(","): [of["take"] for of in one["ranges"]] for one in entries}
    assert found["linpack"] == ["single strict"] and found["dd"] == ["host, storage overlay"]


def test_a_report_advises_on_programs_by_their_verdicts(here: Collbench, tmp_path: Path) -> None:
    run = write_suite(tmp_path / "run", CPU[:1], slower={"linpack": 1.5})
    (entry,) = json.loads(here("advise", run, "--style", "json").out)["advice"]
    (size,) = entry["sizes"]
    assert size["options"]["single strict"]["may_be_best"] is False
    assert round(size["options"]["single strict"]["ratio"], 2) == 1.5


# Where the difference of two options changes its sign for good --------------------------------------------------------

AXIS = np.array([3.0, 4.0, 6.0, 7.0, 8.0])


@pytest.mark.parametrize(
    ("difference", "found"),
    [
        ((4, 2, -2, -4, -6), 5.0),  # half way between 4 and 6
        ((3, -1, -2, -3, -4), 3.75),
        ((1, 1, 1, 1, -3), 7.25),
        ((2, 1, 0, -1, -1), 6.0),  # equal at a measured size
        ((1, 0, 0, -1, -1), 4.0),  # where it ends to be positive, not where it begins to be negative
    ],
)
def test_a_crossing_lies_on_the_straight_line_between_two_sizes(difference: tuple[float, ...], found: float) -> None:
    assert crossing(AXIS, np.array(difference, float)) == pytest.approx(found)


def test_of_several_crossings_the_last_one_counts() -> None:
    """Between 6 and 7 the lower option is ahead again: only beyond 7.5 does the upper one stay the better."""
    assert crossing(AXIS, np.array([2.0, -2.0, -1.0, 1.0, -1.0])) == pytest.approx(7.5)


@pytest.mark.parametrize("difference", [(-1, -1, -1, -1, -1), (0, 0, 0, 0, 0), (0, -1, -1, -2, -2)])
def test_where_it_is_never_positive_the_crossing_lies_an_octave_before_the_axis(difference: tuple[float, ...]) -> None:
    assert crossing(AXIS, np.array(difference, float)) == 2.0


@pytest.mark.parametrize("difference", [(1, 1, 1, 1, 1), (-1, -1, -1, -1, 1), (1, -1, -1, -1, 1)])
def test_where_it_is_positive_at_the_end_the_crossing_lies_an_octave_behind(difference: tuple[float, ...]) -> None:
    assert crossing(AXIS, np.array(difference, float)) == 9.0


# What a step gives back of what isolation costs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "isolated", "step", "share"),
    [
        (100, 300, 140, 0.8),
        (100, 300, 300, 0.0),
        (100, 300, 400, -0.5),  # slower than the most isolated
        (100, 300, 50, 1.25),  # quicker than without isolation
        (100, 100.5, 10, 100.0),  # next to nothing to give back: all of it
        (100, 100.5, 900, -100.0),
        (100, 100, 90, 100.0),  # isolation costs nothing
        (100, 80, 70, 100.0),
        (100, 80, 80, -100.0),
        (100, 80, 90, -100.0),
    ],
)
def test_the_part_of_the_cost_that_a_step_saves(free: float, isolated: float, step: float, share: float) -> None:
    assert shares(np.array([[free, isolated, step]], float)) == pytest.approx([share])


def test_every_block_has_its_own_share() -> None:
    assert shares(np.array([[1.0, 3.0, 2.0], [10.0, 30.0, 15.0]])) == pytest.approx([0.5, 0.75])


def recovered(path: Path, **times: float) -> dict[str, Recovery]:
    """By step, of one library: host, and single at these steps, in microseconds."""
    cells = {
        made_case("host" if step == "host" else "single", None if step == "host" else step, image="mpich"): spread(
            us * US
        )
        for step, us in times.items()
    }
    observed = observe(write_run(path, cells))
    (question,) = questions(observed, {})
    return {str(one.step["isolation"]): one for one in recoveries(question, 1024, True)}


def test_all_steps_but_the_most_isolated_are_held_against_it(tmp_path: Path) -> None:
    found = recovered(tmp_path / "run", host=100, strict=300, limits=250, ipc=120)
    assert {step: round(one.share, 2) for step, one in found.items()} == {"limits": 0.25, "ipc": 0.9}
    for one in found.values():
        assert (one.size, one.isolated["isolation"], one.free["policy"]) == (1024, "strict", "host")
        assert one.cost == pytest.approx(3.0)
        assert one.cost_interval == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("strict", [100, 90])
def test_isolation_that_costs_nothing_gives_nothing_back(tmp_path: Path, strict: float) -> None:
    assert recovered(tmp_path / "run", host=100, strict=strict, ipc=80) == {}


def test_without_another_step_or_less_isolation_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert recovered(tmp_path / "one", host=100, strict=300) == {}
    assert recovered(tmp_path / "two", strict=300, ipc=100) == {}


@pytest.mark.parametrize(
    ("interval", "decided"),
    [(None, False), ((-0.2, 0.4), False), ((0.3, 0.9), True), ((-0.9, -0.3), True), ((-0.05, 0.08), True)],
)
def test_a_share_is_decided_where_its_interval_excludes_nothing_or_is_close_to_it(
    tmp_path: Path, interval: tuple[float, float] | None, decided: bool
) -> None:
    one = recovered(tmp_path / "run", host=100, strict=300, ipc=120)["ipc"]
    assert replace(one, share_interval=interval).decided is decided


def test_steps_whose_share_is_noise_are_named_once_without_a_number(tmp_path: Path) -> None:
    cells = {made_case(image="mpich"): spread(100 * US), made_case("single", "strict", image="mpich"): spread(3e-4),
             made_case("single", "ipc", image="mpich"): spread(120 * US),
             made_case("single", "limits", image="mpich"):
                 [300 * US * (0.7 if block % 2 else 1.4) for block in range(10)]}  # fmt: skip
    observed = observe(write_run(tmp_path / "run", cells))
    (advised,) = complete(advise(questions(observed, {}), True), True)
    decided = {one.step["isolation"]: one.decided for one in advised.recoveries}
    assert decided == {"ipc": True, "limits": False}
