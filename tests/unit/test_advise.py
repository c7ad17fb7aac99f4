"""Advice: the best option by size, the best by chance, what is asked about, and what was not measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs
from tests.unit import made_runs
from tests.unit.advised_runs import US, advice_on, ladder, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, library, made_case, made_failure, made_record, spread, write_launches, write_run
from tests.unit.made_suite import CPU, IO, write_suite

from collbench.analysis.advise import (
    Advice,
    Recovery,
    advise,
    crossing,
    crossover,
    factor_effects,
    pair_of,
    recoveries,
    shares,
)
from collbench.analysis.options import FACTORS, Option, Question, merged, parse_fixed, questions
from collbench.analysis.pairs import method_differences
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError
from collbench.report.advice import complete, document
from collbench.schema.case import Case, case_of
from collbench.schema.manifest import Chosen, Library
from collbench.schema.record import ResultCheck
from collbench.schema.store import SIDES, Moment, YardstickReading, append_reading

Golden = Callable[[str, str], None]
Cells = Mapping[Case, Sequence[Entry]]
Advised = Callable[[Cells], Advice]
BySize = Mapping[int, Sequence[Entry]]

HOST, MULTI, SINGLE = (made_case(policy, step, image="a") for policy, step in
                       (("host", None), ("multi", "strict"), ("single", "strict")))  # fmt: skip


@pytest.fixture
def advised(tmp_path: Path) -> Advised:
    """The only advice on a run with these launches."""

    def of_cells(cells: Cells) -> Advice:
        (advice,) = advice_on(write_run(tmp_path / f"run-{len([*tmp_path.iterdir()])}", cells))
        return advice

    return of_cells


def around(us: float, launches: int = 10, share: float = 0.01) -> list[Entry]:
    """Launches that take about so many microseconds."""
    return [*spread(us * US, launches, share)]


def records(case: Case, us: float, **fields: Any) -> list[Entry]:
    return [made_record(case, launch, time, **fields) for launch, time in enumerate(spread(us * US))]


def by_size(case: Case, entries: BySize) -> Cells:
    return {case.having(size=size): of_size for size, of_size in entries.items()}


def taken(advice: Advice) -> list[tuple[str, int]]:
    """Of each range the option and the last size."""
    return [(advice.question.name(one.option), one.sizes[-1].size) for one in advice.ranges]


def apart(advice: Advice, size: int = 1024) -> dict[str, str]:
    """Why options are not compared at a size."""
    (of_size,) = (one for one in advice.sizes if one.size == size)
    return {advice.question.name(option): why.kind for option, why in of_size.apart.items()}


def by_library(advice: Advice) -> tuple[Option, Option]:
    """openmpi and mpich."""
    mpich, openmpi = sorted(advice.question.options, key=lambda option: option["library"])
    return openmpi, mpich


def test_the_quickest_option_is_taken_and_all_others_are_out_but_by_few_launches(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (20, 40)}))
    (only,) = advice.ranges
    assert (taken(advice), only.bound, only.rivals) == ([("openmpi", 1024)], 1.0, [])
    mpich = advice.sizes[0].options[by_library(advice)[1]]
    assert mpich.out and mpich.ratio == pytest.approx(2.0, rel=0.01) and mpich.bound == pytest.approx(2.0, rel=0.02)
    (few,) = advice_on(two_libraries(tmp_path / "few", {8: (10, 20)}, launches=4))
    assert (taken(few), few.ranges[0].bound, few.sizes[0].known) == ([("openmpi", 8)], math.inf, False)
    assert [(one.at_most, one.out) for one in few.sizes[0].options.values()] == [("few launches", False)] * 2


def test_of_two_that_may_be_taken_each_has_a_bound_and_the_lower_one_is_taken(advised: Advised) -> None:
    """Within the margin the second may be taken, however sure it is that it is slower."""
    noise = (1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.02, 0.99, 1.01)
    advice = advised({made_case(image="a"): [10 * US] * 10, made_case(image="b"): [10.05 * US * one for one in noise]})
    (take, first), (_, second) = advice.sizes[0].options.items()
    assert advice.question.name(take) == "a" and not first.out and not second.out
    assert 1.0 <= first.bound < 1.01 < second.bound < 1.04
    assert [advice.question.name(rival) for rival in advice.ranges[0].rivals] == ["b"]


BLOCKS, DRIFT = (1.0, 100.0, 3.0, 30.0, 10.0, 1.5, 60.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


@pytest.mark.parametrize(
    ("us", "fastest"),
    [  # though medians of launches say otherwise, in blocks that differ a hundredfold
     ({"a": [10 * block for block in BLOCKS], "b": [9 * block for block in (*BLOCKS[1:6], 70.0, 65.0, 80.0)],
       "c": [9.5 * block for block in BLOCKS]}, "c"),
     # three blocks went wrong: the plain median would still be higher
     ({"a": [10 * block for block in DRIFT], "b": [1e6, 1e6, 1e6, *(9 * block for block in DRIFT[3:])]}, "b")],
)  # fmt: skip
def test_the_fastest_is_that_of_the_largest_least_ratio(
    advised: Advised, us: dict[str, list[float]], fastest: str
) -> None:
    advice = advised({made_case(image=name): [time * US for time in times] for name, times in us.items()})
    ratios = {advice.question.name(option): of.ratio for option, of in advice.sizes[0].options.items()}
    assert [name for name, ratio in ratios.items() if ratio == 1.0] == [fastest]


def test_a_choice_that_flips_makes_two_ranges_and_a_crossing_between_them_but_by_noise(tmp_path: Path) -> None:
    # openmpi 2 us + 2 ns/B, mpich 10 us + 1 ns/B: equal at 8000 B
    sizes = {size: (2 + size * 2e-3, 10 + size * 1e-3) for size in (1 << power for power in range(3, 21))}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert taken(advice) == [("openmpi", 8192), ("mpich", 1 << 20)]
    below, above = (one.option for one in advice.ranges)
    flip = crossover(advice.question, below, above, True)
    assert flip is not None and flip.size == pytest.approx(8000, rel=0.03)
    assert flip.interval == (4096.0, 8192.0)  # no size between them was measured, however sure the crossing is
    assert crossover(advice.question, above, below, True) is None  # the other way round it never flips
    assert complete([advice], True)[0].crossovers == (flip,)
    by_noise = {8: (10.0, 10.02), 64: (10.02, 10.0), 512: (10.0, 10.02)}
    assert [len(one.ranges) for one in advice_on(two_libraries(tmp_path / "noise", by_noise))] == [1]


@pytest.mark.parametrize(
    ("openmpi", "mpich", "interval"),
    [({7: around(10), 1000: around(10), 1 << 20: around(30)}, {7: around(30), 1000: around(11), 1 << 20: around(10)},
      (1000, 1 << 20)),
     ({7: around(10), 1000: around(10), 1 << 20: around(30)}, {7: around(30), 1000: around(10), 1 << 20: around(10)},
      (7, 1000)),  # equal at a measured size
     ({7: around(10), 1000: around(10), 1 << 20: around(10)}, {7: around(11), 1000: around(9), 1 << 20: around(8)},
      (7, 1000)),
     ({8: around(10, 5), 64: around(30, 5)}, {8: around(30, 5), 64: around(10, 5)}, None),  # too few launches
     # noise moves it beyond the sizes measured
     ({8: [10 * US] * 10, 64: [10 * US] * 10}, {8: [20 * US] * 10, 64: [8 * US] * 7 + [12 * US] * 3}, (8, math.inf))],
)  # fmt: skip
def test_the_interval_of_a_flip_ends_at_measured_sizes(
    advised: Advised, openmpi: BySize, mpich: BySize, interval: tuple[float, float] | None
) -> None:
    libraries = {"openmpi": openmpi, "mpich": mpich}
    advice = advised({case: entries for name, of in libraries.items()
                      for case, entries in by_size(made_case(image=name), of).items()})  # fmt: skip
    flip = crossover(advice.question, *by_library(advice), True)
    assert flip is not None and flip.interval == interval


def test_affinity_and_hosts_are_named_where_they_vary(advised: Advised) -> None:
    far = SINGLE.having(affinity="far")
    advice = advised({HOST: around(100), SINGLE: around(200), far: around(300)})
    assert (taken(advice), advice.ranges[0].bound) == ([("host, affinity near", 1024)], 1.0)
    effect = factor_effects(advice.question, advice.sizes[0])["affinity"]
    assert effect[:2] == pytest.approx((1.5, 1.5), rel=0.01) and effect.slowest == "far"
    advice = advised({HOST.having(engine="slurm", hosts=hosts): around(10 * hosts) for hosts in (1, 2)})
    assert list(map(advice.question.name, advice.sizes[0].options)) == ["hosts 1", "hosts 2"]


def test_a_factor_matters_by_the_ratio_of_its_values_in_otherwise_equal_options(advised: Advised) -> None:
    """Of two libraries one container for each costs 2 and 6 times the host, and the step 1 and 1.5 times."""
    times = {"a": {("host", None): 10, ("single", "ipc"): 20, ("single", "strict"): 20},
             "b": {("host", None): 10, ("single", "ipc"): 40, ("single", "strict"): 60}}  # fmt: skip
    advice = advised({made_case(*at, image=name): [us * US] * 8 for name, of in times.items() for at, us in of.items()})
    effects = factor_effects(advice.question, advice.sizes[0])
    assert {factor: effect.slowest for factor, effect in effects.items()} == {
        "policy": "single", "library": "b", "isolation": "strict"}  # fmt: skip
    assert effects["policy"][:2] == pytest.approx((2.0, 6.0)) and effects["library"][:2] == pytest.approx((2.0, 3.0))
    assert effects["isolation"][:2] == pytest.approx((1.0, 1.5))


def test_sides_of_a_plan_are_options_and_named_first(here: Collbench, tmp_path: Path) -> None:
    host, inside = made_case(image="openmpi"), made_case("single", "strict", image="openmpi")
    cells = {case.having(side=side): around(us * factor) for side, factor in zip(SIDES, (1, 3), strict=True)
             for case, us in ((host, 1), (inside, 2))}  # fmt: skip
    run = write_run(tmp_path / "run", cells, experiment=made_runs.experiment(("openmpi",)))
    (entry,) = json.loads(here("advise", run, "--style", "json").out)["advice"]
    places = ("host", "single strict")
    assert list(entry["sizes"][0]["options"]) == [f"{side}, {place}" for side in SIDES for place in places]
    (entry,) = json.loads(here("advise", run, "--given", "side=other", "--style", "json").out)["advice"]
    assert list(entry["sizes"][0]["options"]) == ["host", "single strict"]


#: Of eight GPUs even ones are on one socket and odd ones on the other, in NVLink pairs: 0-2, 4-6, 1-3, 5-7.
FOUR_GPUS = (
    Chosen(axis="gpus", choice="first", ranks=4, members=(0, 1, 2, 3), of=8, pairs={"NV4": 2, "SYS": 4}, limit=160e9,
           nvlinks=4, pcie=True),
    Chosen(axis="gpus", choice="close", ranks=4, members=(0, 2, 4, 6), of=8, pairs={"NV4": 2, "PHB": 4}, limit=160e9,
           nvlinks=4, pcie=True),
    Chosen(axis="gpus", choice="spread", ranks=4, members=(0, 1, 4, 5), of=8, pairs={"PHB": 2, "SYS": 4}, limit=60e9,
           pcie=True),
)  # fmt: skip
TWO_CORES = (
    Chosen(axis="cores", choice="first", ranks=2, members=(0, 1), of=16, pairs={"last-level cache": 1}),
    Chosen(axis="cores", choice="spread", ranks=2, members=(0, 8), of=16, pairs={"no socket": 1}),
)


def choices(path: Path, chosen: Sequence[Chosen], us: Mapping[Case, Sequence[float]]) -> Path:
    """A run in which each case takes so many microseconds with each choice."""
    cells = {case.having(ranks=one.ranks, **{one.axis: one.choice}): around(time)
             for case, times in us.items() for one, time in zip(chosen, times, strict=True)}  # fmt: skip
    return write_run(path, cells, experiment=made_runs.experiment(("a",), chosen=tuple(chosen)))


def by_choice(first: Sequence[float], *others: Sequence[float]) -> dict[Case, Sequence[float]]:
    """Microseconds at 8 bytes, 1 MiB and 256 MiB."""
    return dict(zip([HOST.having(size=size) for size in (8, 1 << 20, 1 << 28)], (first, *others), strict=True))


def test_a_choice_of_gpus_or_cores_is_advised_by_its_members_with_what_the_others_cost(
    here: Collbench, tmp_path: Path, golden: Golden
) -> None:
    """Close is the best but at 8 bytes; then first is nowhere slower; then spread is, at the largest size."""
    slower = by_choice((10, 10, 10), (131, 100, 150), (6550, 5000, 10500))
    equal = by_choice((10, 10, 13.1), (100, 100.2, 210), (6000, 6000, 12000))
    turned = by_choice((10, 12, 15), (100, 100, 150), (14000, 10500, 7000))
    few = {HOST: (10.0, 20.0)}
    runs = [choices(tmp_path / f"{n}", FOUR_GPUS, us) for n, us in enumerate((slower, equal, turned))]
    runs.append(choices(tmp_path / "places", TWO_CORES, {HOST: (10, 15), MULTI: (12, 30)}))
    runs.append(
        choices(tmp_path / "listed", [msgspec.structs.replace(FOUR_GPUS[1], choice="0,2,4,6"), FOUR_GPUS[2]], few)
    )
    summed = {HOST.having(op=op, size=case["size"]): us for op in ("sum", "min", "max") for case, us in slower.items()}
    runs.append(choices(tmp_path / "summed", FOUR_GPUS, summed))
    given = [(runs[3], "--given", "cores=first"), (runs[3], "--given", "cores=first", "--given", "policy=host")]
    golden("advise-members.txt", "\n".join(here("advise", *words).out for words in (*((run,) for run in runs), *given)))


def test_the_slowest_choice_is_named_where_it_is_the_usual_one(tmp_path: Path) -> None:
    (advice,) = advice_on(choices(tmp_path / "run", TWO_CORES, {HOST: (20, 10)}))
    assert factor_effects(advice.question, advice.sizes[0])["cores"].slowest == "first"


def test_members_of_a_choice_are_those_of_its_number_of_ranks(here: Collbench, tmp_path: Path) -> None:
    two = tuple(msgspec.structs.replace(one, ranks=2, members=one.members[1:3]) for one in FOUR_GPUS)
    run = choices(tmp_path / "run", (*FOUR_GPUS, *two), {HOST: (10, 20, 30, 10, 20, 30)})
    entries = json.loads(here("advise", run, "--style", "json").out)["advice"]
    known = [{name: tuple(one["members"]) for name, one in entry["chosen"].items()} for entry in entries]
    assert known == [{f"gpus {one.choice}": one.members for one in of_ranks} for of_ranks in (FOUR_GPUS, two)]


def test_a_choice_that_came_to_two_things_has_no_members(tmp_path: Path) -> None:
    other = msgspec.structs.replace(FOUR_GPUS[1], members=(2, 3, 6, 7))
    run = choices(tmp_path / "run", (*FOUR_GPUS, other), {HOST: (10, 20, 30, 20)})
    (advice,) = advice_on(run)
    known = {option["gpus"] or "first": advice.question.chosen(option) for option in advice.question.options}
    assert known == {"first": FOUR_GPUS[0], "close": None, "spread": FOUR_GPUS[2]}


def test_what_a_choice_came_to_stands_beside_its_bound_and_the_bandwidth_it_reached(
    here: Collbench, tmp_path: Path, golden: Golden
) -> None:
    """An all-reduce of 1 KiB on two ranks in 1 ns: 1024 GB/s; in 2 ns half of it. Cores read and write 60 GB/s."""
    host = made_case(image="openmpi")
    close = Chosen(axis="gpus", choice="close", ranks=2, members=(0, 3), of=4, pairs={"NV4": 1}, limit=106e9, nvlinks=4)
    first = Chosen(
        axis="gpus", choice="first", ranks=2, members=(0, 1), of=4, pairs={"SYS": 1}, limit=31.5e9, pcie=True
    )
    spread_ = Chosen(axis="cores", choice="spread", ranks=2, members=(0, 8), of=16, pairs={"no socket": 1})
    cells = {host: [2e-9] * 8, host.having(gpus="close"): [1e-9] * 8}
    gpus = write_run(
        tmp_path / "gpus", cells, experiment=made_runs.experiment(("openmpi",), chosen=(first, close), launches=8)
    )
    cells = {host: [2e-7] * 8, host.having(cores="spread"): [1e-7] * 8}
    cores = write_run(
        tmp_path / "cores", cells, experiment=made_runs.experiment(("openmpi",), chosen=(spread_,), launches=8)
    )
    there, before = host.having(cores="spread"), [56.0, 60.0, 64.0]
    readings: list[tuple[Case, Moment, float]] = [(there, "after", 6.0), (host, "before", 9.0)]
    for case, moment, copy in [*((there, "before", rate) for rate in before), *readings]:
        append_reading(cores, YardstickReading(
            launch=0, sequence=0, cells=(case.where,), cores="0,8", moment=moment, monotonic=0.0, wall=0.0,
            values={"copy": copy}))  # fmt: skip
    golden("advise-choices.txt", "\n".join(here("advise", run).out for run in (gpus, cores)))


# The best of many options may be the best by chance -------------------------------------------------------------------


def question(times: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Question:
    """Options with such launch medians (s), [options, launches]."""
    cells = {}
    for number, medians in enumerate(times.tolist()):
        name = f"option{number:02d}"
        option = Option(tuple(name if factor == "library" else "" for factor in FACTORS))
        cells[option] = made_runs.made_cell(made_case(image=name), medians)
    return Question(made_case(), {8: cells}, ("library",))


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 10])
def test_the_best_option_is_seldom_out_and_losses_are_seldom_larger_than_their_bounds(n: int) -> None:
    """Of 6 options, equal or up to 10 % apart, the first is the best; both errors are below 5 % and two deviations."""
    draw = np.random.default_rng([6, n])
    trials, options, ends = 200, 6, (0.0, 0.1)
    lost = wrong = 0
    for end in ends:
        effects = np.linspace(0, end, options)[:, None]
        for _ in range(trials):
            each = question(np.exp(effects + draw.normal(0, 0.05, (options, n))))
            (size,) = advise([each], True)[0].sizes
            results = [size.options[option] for option in sorted(size.options)]
            lost += results[0].out
            wrong += any(result.bound < math.exp(effect)
                         for result, effect in zip(results, effects[:, 0].tolist(), strict=True))  # fmt: skip
    most = 0.05 + 2 * math.sqrt(0.05 * 0.95 / (trials * len(ends)))
    assert lost / (trials * len(ends)) <= most and wrong / (trials * len(ends)) <= most


def test_an_option_that_is_better_than_all_is_taken_among_many() -> None:
    times = np.exp(np.random.default_rng(2).normal(0, 0.01, (18, 7)))
    times[3] *= 1.5
    times[11] *= 0.8
    (size,) = advise([question(times)], True)[0].sizes
    assert size.bound == 1.0 and [option["library"] for option in size.possible] == ["option11"]


# What advice is asked about -------------------------------------------------------------------------------------------


def test_what_is_given_leaves_the_rest_to_choose(tmp_path: Path) -> None:
    run = ladder(tmp_path / "run")
    (advice,) = advice_on(run, policy="single")
    assert (advice.question.varying, taken(advice)) == (("isolation",), [("ipc", 1024)])
    with pytest.raises(RequestError, match=r"policy .*host or multi or single"):
        advice_on(run, policy="singel")
    for text, named in (("policy", "FACTOR=VALUE"), ("polcy=single", r"polcy.*\bpolicy\b"), ("=x", "factor")):
        with pytest.raises(RequestError, match=named):
            parse_fixed([text], [HOST])


@pytest.mark.parametrize(
    ("given", "left"),
    [("engine=docker", 2), ("engine=host", 1), ("affinity=near", 3), ("in-place=false", 3), ("in-place=no", 3),
     ("dtype=float32", 3), ("policy=single strict", 1), ("policy=single", 2), ("isolation=none", 1), ("graph=0", 3),
     ("isolation=strict", 2), ("size=1K", 3), ("size=1024", 3), ("ranks=2", 3),
     ("workload=allreduce", 3)],  # at strict the host, which has no step, stays
)  # fmt: skip
def test_factors_and_axes_can_be_given_by_their_names(tmp_path: Path, given: str, left: int) -> None:
    cases = [HOST, SINGLE, SINGLE.having(isolation="net")]
    observed = observe(write_run(tmp_path / "run", dict.fromkeys(cases, around(1, 7))))
    assert [len(question.options) for question in questions(observed, parse_fixed([given], observed.cells))] == [left]


def test_numbers_of_ranks_are_questions_of_their_own(tmp_path: Path) -> None:
    cells = {made_case(image=image, ranks=ranks): around(us)
             for ranks in (2, 4) for image, us in (("a", 10 * ranks), ("b", 50 / ranks))}  # fmt: skip
    advice = advice_on(write_run(tmp_path / "run", cells))
    assert {of.question.case.where.ranks: taken(of) for of in advice} == {2: [("a", 1024)], 4: [("b", 1024)]}


def test_images_keep_their_names_and_those_of_one_name_with_other_libraries_are_two_options(tmp_path: Path) -> None:
    def with_image(folder: str, name: str, held: Library, us: float = 10) -> Observed:
        sides = (made_runs.image(name, libraries=(held,)),)
        about = made_runs.experiment((), images=sides, environments=sides, launches=10)
        case = made_case("multi", "strict", image=name)
        return observe(write_run(tmp_path / folder, {case: around(us)}, libraries=(held,), experiment=about))

    apart = merged([with_image("a", "a", library()), with_image("b", "b", library("MPICH", "5.0.2"))])
    assert {case.where.image for case in apart.cells} == {"a", "b"}
    newer = with_image("newer", "openmpi", library("Open MPI", "5.0.11", "0" * 64), 20)
    together = merged([newer, with_image("older", "openmpi", library("Open MPI", "5.0.8", "1" * 64), 40)])
    (advice,) = advise(questions(together, {}), together.interleaved)
    names = sorted(map(advice.question.name, advice.question.options))
    assert names == ["openmpi (Open MPI 5.0.11)", "openmpi (Open MPI 5.0.8)"]
    with pytest.raises(RequestError, match=r"\bopenmpi\b"):
        merged([newer, with_image("rebuilt", "openmpi", library("Open MPI", "5.0.11", "f" * 64), 1)])


def test_runs_of_different_machines_do_not_advise_together_unless_told_to(tmp_path: Path) -> None:
    hosts = [made_runs.host(cpu=cpu) for cpu in ("EPYC", "Xeon")]
    runs = [observe(write_run(tmp_path / host.cpu, {made_case(): [US]}, hosts=(host,))) for host in hosts]
    with pytest.raises(RequestError, match=r"cpu EPYC against Xeon.*--ignore cpu"):
        merged(runs)
    assert merged(runs, frozenset({"cpu"})).cells


def test_runs_with_different_libraries_advise_together_and_in_turns_in_blocks(tmp_path: Path) -> None:
    """Both drift by a third over ten launches; in every block MPICH takes 10 % longer."""
    times = [10 * US * (1 + n / 27) for n in range(10)]
    openmpi = observe(write_launches(tmp_path / "o", {made_case(): times}))
    mpich = observe(write_launches(tmp_path / "m", {made_case(): [1.1 * time for time in times]},
                                   libraries=(structs.replace(library("MPICH", "5.0.2"), settings=("A=1",)),),
                                   launcher="MPICH's mpiexec"))  # fmt: skip
    for in_blocks, possible in ((False, 2), (True, 1)):
        together = merged([openmpi, mpich], in_blocks=in_blocks)
        (advice,) = advise(questions(together, {}), together.interleaved)
        assert (taken(advice), len(advice.sizes[0].possible)) == ([("Open MPI 5.0.11", 1024)], possible)
        assert [len(cell.medians) for cell in together.cells.values()] == [10, 10]
    with pytest.raises(RequestError, match="--in-blocks"):
        merged([openmpi, openmpi], in_blocks=True)


def copying(block: int) -> Case:
    """A case of a program with an axis of its own."""
    return case_of("dd", {"measure": "copy", "block": block, "driver": "native"})


def test_an_axis_of_a_workloads_own_can_be_given_and_one_option_is_no_choice(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {copying(block): around(1, 7) for block in (4096, 65536)})
    advice = here("advise", run, "--given", "block=4096")
    assert advice.code == 0 and "block 4096" in advice.out and "block 65536" not in advice.out
    assert here("report", run, "--given", "block=4096", "-o", tmp_path / "report.md").code == 0
    listed = re.findall(r"[\w-]+", here("advise", run, "--given", "zzz=1").err.rpartition(": ")[2])
    assert "block" in listed and len(listed) == len(set(listed))
    alone, _ = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [(one["take"], list(one["options"])) for one in alone["sizes"]] == [(None, ["host"])]


@pytest.mark.parametrize("value", ["yes", "true", "True"])
def test_booleans_are_yes_and_no(here: Collbench, tmp_path: Path, value: str) -> None:
    run = write_run(tmp_path / "run", {made_case(in_place=place): around(1, 7) for place in (False, True)})
    assert here("advise", run, "--given", f"in-place={value}").code == 0
    sides = [here("compare", run, "--by", "in-place", *between).out.partition(":")[0].split(" vs ")
             for between in ((), ("--between", f"{value},no"))]  # fmt: skip
    assert sides == [["yes", "no"], ["no", "yes"]]


def test_given_and_cautions_in_words(here: Collbench, tmp_path: Path, golden: Golden) -> None:
    """Values that no cell has, hosts and boots that differ between runs, launches that depend on those before."""
    blocks = write_run(tmp_path / "blocks", {copying(block): around(1, 7) for block in (4096, 65536)})
    places = write_run(tmp_path / "places", {made_case(in_place=place): around(1, 7) for place in (False, True)})
    first = write_run(tmp_path / "first", {made_case(): around(1)})
    moved = write_run(tmp_path / "moved", {made_case(): around(2)}, libraries=(library("MPICH", "5.0.2"),),
                      hosts=(made_runs.host(name="node2", boot_id="b9"),))  # fmt: skip
    waves = write_run(tmp_path / "waves", {HOST: around(1, 24, 0.001), MULTI: in_waves(24)})
    turns = write_run(tmp_path / "turns", {HOST: around(1, 24, 0.001), MULTI: around(1, 24)})
    commands = ((blocks, "--given", "block=1"), (places, "--given", "in-place=maybe"), (first,), (first, moved),
                (waves,), (turns,))  # fmt: skip
    shown = [f"{' '.join(map(str, words))}\n{''.join(here('advise', *words)[1:])}" for words in commands]
    golden("advise-words.txt", "\n".join(shown).replace(f"{tmp_path}/", ""))


# Advice where something was not measured, or in another way, or with wrong results ------------------------------------

AT_2K = MULTI.having(size=2048)


@pytest.mark.parametrize(
    ("at_2k", "take", "kind"),
    [(None, "host", "not measured"), (["segmentation fault"] * 10, "host", "failed"),
     ([made_failure(AT_2K, launch, "no such", "skipped") for launch in range(10)], "host", "skipped"),
     (records(AT_2K, 5, check=ResultCheck(wrong=17)), "host", "failed"),
     ([*records(AT_2K, 5)[:9], made_record(AT_2K, 9, 5 * US, check=ResultCheck(wrong=1))], "host", "not comparable"),
     # a barrier makes small operations look faster; a side that passed one is the fastest, and not known to be the best
     (records(AT_2K, 10, align="barrier"), "multi strict", "not comparable"),
     (records(AT_2K, 5, cadence="streaming"), "multi strict", "not comparable")],
)  # fmt: skip
def test_what_is_not_compared_is_not_known(advised: Advised, at_2k: list[Entry] | None, take: str, kind: str) -> None:
    """The container is twice as fast at 1K and 4K."""
    inside = {1024: around(10), 4096: around(10)} | ({2048: at_2k} if at_2k else {})
    advice = advised({**by_size(HOST, dict.fromkeys((1024, 2048, 4096), around(20))), **by_size(MULTI, inside)})
    assert taken(advice) == [("multi strict", 1024), (take, 2048), ("multi strict", 4096)]
    assert [size.known for size in advice.sizes] == [True, False, True]
    assert apart(advice, 2048) == {"host" if take == "multi strict" else "multi strict": kind}


def test_what_differs_in_the_way_of_measuring_is_told_and_one_launch_changes_nothing(advised: Advised) -> None:
    advice = advised({HOST: around(20), MULTI: records(MULTI, 10, align="barrier")})
    (why,) = (one.why for one in advice.sizes[0].apart.values())
    pair = pair_of(advice.question, 1024, *advice.question.options)
    assert why is not None and why.values == method_differences(pair) != ()
    slower = records(MULTI, 40)
    slower[3] = made_record(MULTI, 3, 40 * US, align="barrier")
    advice = advised({HOST: around(20), MULTI: slower})
    assert taken(advice) == [("host", 1024)] and advice.sizes[0].bound == 1.0


def test_what_cannot_be_taken_leaves_nothing_open_between_others(advised: Advised) -> None:
    for entries, kind in (
        (["died"] * 10, "failed"), ([made_failure(MULTI, n, "no such", "skipped") for n in range(10)], "skipped"),
        ([0.0] * 10, "not comparable"), (records(MULTI, 20, cadence="streaming"), "not comparable"),
    ):  # fmt: skip
        advice = advised({HOST: around(10), SINGLE: around(30), MULTI: entries})
        assert taken(advice) == [("host", 1024)] and advice.sizes[0].bound == 1.0
        assert apart(advice) == {"multi strict": kind}
    nothing = advised({HOST: ["died"] * 3})
    assert not nothing.sizes and not nothing.ranges


def test_an_option_that_ends_before_the_largest_size_is_not_taken_beyond(advised: Advised) -> None:
    """Of two, nothing is known of the larger sizes; of three, what was the best is named there."""
    sizes = dict.fromkeys((1024, 2048, 4096), around(20))
    advice = advised({**by_size(HOST, sizes), MULTI: around(10)})
    assert taken(advice) == [("multi strict", 1024), ("host", 4096)]
    assert [one.known for one in advice.sizes] == [True, False, False]
    third = by_size(SINGLE, dict.fromkeys(sizes, around(40)))
    advice = advised({**by_size(HOST, sizes), **third, **by_size(MULTI, {1024: around(10), 2048: around(10)})})
    assert taken(advice) == [("multi strict", 2048), ("host", 4096)]
    (entry,) = document(complete([advice], True), [])["advice"]
    assert [(of["size"], of["take"], of["not_compared"]) for of in entry["sizes"]] == [
        (1024, "multi strict", {}), (2048, "multi strict", {}),
        (4096, "host", {"multi strict": "not measured"})]  # fmt: skip


def test_an_option_that_fails_now_and_then_is_taken_last_of_those_that_may_be_the_best(advised: Advised) -> None:
    """Twice as fast it is taken, with its failures; about as fast it is not."""
    for us, name in ((10, "multi strict"), (19.98, "host")):
        failing = [time if n % 2 else "segmentation fault" for n, time in enumerate(around(us, 20, 0.002))]
        advice = advised({HOST: around(20, 20), MULTI: failing})
        assert taken(advice)[0][0] == name
        assert list(advice.sizes[0].failing.values()) == [(10, 20)]


def test_the_side_that_is_never_slow_is_taken_of_two_with_one_median(advised: Advised) -> None:
    """One is a little faster in the median, and twice as slow in every third launch."""
    steady = spread(10 * US, 60, 0.002)
    jumping = [0.999 * time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    for name, cells in (("host", {HOST: steady, MULTI: jumping}), ("multi strict", {HOST: jumping, MULTI: steady})):
        advice = advised(cells)
        assert taken(advice) == [(name, 1024)]
        assert [one.slow_at_times for one in advice.sizes[0].options.values()] == [False, True]


def in_waves(launches: int) -> list[Entry]:
    """Of six launches."""
    return [US * (1 + 0.2 * ((block // 6) % 2)) for block in range(launches)]


def test_nothing_is_bounded_where_launches_depend_on_those_before(advised: Advised) -> None:
    """Of fewer than twenty it cannot be seen well enough."""
    for launches, known in ((24, False), (18, True)):
        advice = advised({HOST: around(1, launches, 0.001), MULTI: in_waves(launches)})
        assert advice.sizes[0].known is known
        assert all((one.at_most == "dependent") is not known for one in advice.sizes[0].options.values())


# Advice on programs ---------------------------------------------------------------------------------------------------


def test_what_has_no_size_is_advised_without_one(here: Collbench, tmp_path: Path) -> None:
    run = write_suite(tmp_path / "run", CPU + IO, slower={"dd": 1.06, "linpack": 0.9}, share={"ioping": 0.03})
    out = here("advise", run, "--why").out
    assert " at 0" not in out and " 0:" not in out
    entries = json.loads(here("advise", run, "--style", "json").out)["advice"]
    takes = {entry["operation"].split()[0].rstrip(","): [of["take"] for of in entry["ranges"]] for entry in entries}
    assert takes["linpack"] == ["single strict"] and takes["dd"] == ["host, storage overlay"]
    linpack = next(entry["sizes"][0]["options"] for entry in entries if entry["operation"].startswith("linpack"))
    assert (linpack["host"]["may_be_best"], round(linpack["host"]["ratio"], 2)) == (False, 1.11)


# Where the difference of two options changes its sign for good --------------------------------------------------------


@pytest.mark.parametrize(
    ("difference", "at"),
    [((4, 2, -2, -4, -6), 5.0),  # half way between 4 and 6
     ((3, -1, -2, -3, -4), 3.75), ((1, 1, 1, 1, -3), 7.25),
     ((2, 1, 0, -1, -1), 6.0),  # equal at a measured size
     ((1, 0, 0, -1, -1), 4.0),  # where it ends to be positive, not where it begins to be negative
     ((2, -2, -1, 1, -1), 7.5),  # the last of several: only beyond it does the upper one stay the better
     ((-1, -1, -1, -1, -1), 2.0), ((0, 0, 0, 0, 0), 2.0), ((0, -1, -1, -2, -2), 2.0),  # never positive
     ((1, 1, 1, 1, 1), 9.0), ((-1, -1, -1, -1, 1), 9.0), ((1, -1, -1, -1, 1), 9.0)],  # positive at the end
)  # fmt: skip
def test_a_crossing_lies_on_the_line_between_two_sizes(difference: tuple[float, ...], at: float) -> None:
    axis = np.array([3.0, 4.0, 6.0, 7.0, 8.0])
    assert crossing(axis, np.array(difference, float)) == pytest.approx(at)


# What a step gives back of what isolation costs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "isolated", "step", "share"),
    [(100, 300, 140, 0.8), (100, 300, 300, 0.0), (1, 3, 2, 0.5), (10, 30, 15, 0.75),
     (100, 300, 400, -0.5),  # slower than the most isolated
     (100, 300, 50, 1.25),  # quicker than without isolation
     (100, 100.5, 10, 100.0), (100, 100.5, 900, -100.0),  # next to nothing to give back: all of it
     (100, 100, 90, 100.0), (100, 80, 70, 100.0), (100, 80, 80, -100.0), (100, 80, 90, -100.0)],  # costs nothing
)  # fmt: skip
def test_the_part_of_the_cost_that_a_step_saves(free: float, isolated: float, step: float, share: float) -> None:
    rows = np.array([[free, isolated, step], [100, 300, 140]], float)
    assert shares(rows) == pytest.approx([share, 0.8])


def recovered(advised: Advised, cells: Mapping[Case, float]) -> list[Recovery]:
    """Of cells with these microseconds."""
    return recoveries(advised({case: around(us) for case, us in cells.items()}).question, 1024, True)


def at_steps(**us: float) -> dict[Case, float]:
    """Those of the host, and of single at these steps."""
    return {HOST if step == "host" else SINGLE.having(isolation=step): time for step, time in us.items()}


def test_all_steps_but_the_most_isolated_are_held_against_it(advised: Advised) -> None:
    steps = {
        one.step["isolation"]: one for one in recovered(advised, at_steps(host=100, strict=300, limits=250, ipc=120))
    }
    assert {step: round(one.share, 2) for step, one in steps.items()} == {"limits": 0.25, "ipc": 0.9}
    for one in steps.values():
        assert (one.size, one.isolated["isolation"], one.free["policy"]) == (1024, "strict", "host")
        assert one.cost == pytest.approx(3.0) and one.cost_interval == pytest.approx((3.0, 3.0))
        assert one.share_interval == pytest.approx((one.share, one.share))


def policies(free: str, isolated: str) -> dict[Case, float]:
    cases = ((free, "ipc", 100), (isolated, "strict", 300), (isolated, "ipc", 140))
    return {made_case(policy, step, image="a"): us for policy, step, us in cases}


@pytest.mark.parametrize(
    ("us", "held_against"),
    [(policies("multi", "pairs"), {("", "pairs", "multi")}),
     (policies("pairs", "single"), {("", "single", "pairs")}), (policies("packed:4", "pairs"), set()),
     ({HOST: 1, **{SINGLE.having(engine=engine, isolation=step): us for engine in ("docker", "podman")
                   for step, us in (("net", 2), ("strict", 3))}},
      {("docker", "single", "host"), ("podman", "single", "host")}),
     # near memory is not what isolation with far memory costs
     ({MULTI.having(isolation="ipc"): 100, **dict.fromkeys(
         [SINGLE.having(affinity="far", isolation=step) for step in ("strict", "ipc")], 300)}, set()),
     # isolation that costs nothing, no other step, nothing less isolated
     *((at_steps(host=100, strict=strict, ipc=80), set()) for strict in (100, 90)),
     (at_steps(host=100, strict=300), set()), (at_steps(strict=300, ipc=100), set())],
)  # fmt: skip
def test_what_isolation_costs_is_told_over_a_policy_that_is_surely_less_isolated(
    advised: Advised, us: dict[Case, float], held_against: set[tuple[str, str, str]]
) -> None:
    """Of a policy that is not known, it is known that one container for all is less, and one for each rank more."""
    isolated = [(one.isolated["engine"], one.isolated["policy"], one.free["policy"]) for one in recovered(advised, us)]
    assert sorted(isolated) == sorted(held_against)


def test_a_share_is_decided_where_its_interval_excludes_nothing_or_is_close_to_it(advised: Advised) -> None:
    (step,) = recovered(advised, at_steps(host=100, strict=300, ipc=120))
    intervals = {None: False, (-0.2, 0.4): False, (0.3, 0.9): True, (-0.9, -0.3): True, (-0.05, 0.08): True}
    assert {interval: replace(step, share_interval=interval).decided for interval in intervals} == intervals


def test_steps_whose_share_is_noise_are_named_once_without_a_number(advised: Advised) -> None:
    noisy: list[Entry] = [300 * US * (0.7 if block % 2 else 1.4) for block in range(10)]
    cells = {case: around(us) for case, us in at_steps(host=100, strict=300, ipc=120).items()}
    (completed,) = complete([advised({**cells, SINGLE.having(isolation="limits"): noisy})], True)
    decided = {one.step["isolation"]: one.decided for one in completed.recoveries}
    assert decided == {"ipc": True, "limits": False}
