"""Advice where something was not measured, or in another way, or with wrong results: said, and never surpassed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.advised_runs import US, advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    image,
    library,
    made_case,
    made_failure,
    made_record,
    spread,
    write_launches,
    write_run,
)

from collbench.analysis.advise import advise
from collbench.analysis.observations import observe
from collbench.analysis.options import merged, questions
from collbench.errors import RequestError
from collbench.report.advice.answer import answer
from collbench.report.advice.sentences import complete, sentences
from collbench.report.advice.tables import document
from collbench.schema.case import Case
from collbench.schema.record import ResultCheck

HOST, MULTI = (made_case(policy, step, image="a") for policy, step in (("host", None), ("multi", "strict")))


def places(path: Path, host_: dict[int, list[Entry]], multi: dict[int, list[Entry]]) -> Path:
    """A run on the host and in a container, launches by size."""
    cells = {made_case("host", image="a", size=size): entries for size, entries in host_.items()}
    cells |= {made_case("multi", "strict", image="a", size=size): entries for size, entries in multi.items()}
    return write_run(path, cells)


def test_a_size_at_which_an_option_is_missing_cuts_no_range_and_is_named(tmp_path: Path) -> None:
    """The container is twice as fast at 1K and 4K, and was not measured at 2K."""
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    run = places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast, 4096: fast})
    (advice,) = advice_on(run)
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure) == ("multi strict", "undecided")
    assert [at.size for at in only.open] == [2048]
    first, *_, last = sentences(complete([advice], True)[0])
    assert first == "1K to 4K: take multi strict; not measured at 2K."
    assert last == "Not compared: multi strict (not measured) at 2K."


@pytest.mark.parametrize("why", ["segmentation fault", ResultCheck(wrong=3)])
def test_a_size_at_which_an_option_fails_cuts_the_range(tmp_path: Path, why: str | ResultCheck) -> None:
    """The container is twice as fast, and crashes or is wrong at 2K: there the host is taken."""
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    case = made_case("multi", "strict", image="a", size=2048)
    bad: list[Entry] = [why if isinstance(why, str) else made_record(case, n, 10 * US, check=why) for n in range(10)]
    run = places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast, 2048: bad, 4096: fast})
    (advice,) = advice_on(run)
    assert [advice.question.name(one.option) for one in advice.ranges] == ["multi strict", "host", "multi strict"]
    assert "Failed: multi strict in 10 of 10 launches at 2K." in sentences(complete([advice], True)[0])


def test_an_option_that_fails_now_and_then_is_never_sure(tmp_path: Path) -> None:
    fast: list[Entry] = [time if n % 2 else "segmentation fault" for n, time in enumerate(spread(10 * US, 20))]
    (advice,) = advice_on(places(tmp_path / "run", {1024: list(spread(20 * US, 20))}, {1024: fast}))
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure) == ("multi strict", "undecided")
    said = sentences(complete([advice], True)[0])
    assert said[0] == "1K: undecided; multi strict was the fastest measured; it failed in some launches at 1K."
    assert "Failed: multi strict in 10 of 20 launches at 1K." in said


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
    with pytest.raises(RequestError, match="different software under the name openmpi"):
        merged([runs[0], other])


def test_an_option_that_ends_before_the_largest_size_is_not_taken_beyond(tmp_path: Path) -> None:
    slow, fast = list[Entry](spread(20 * US)), list[Entry](spread(10 * US))
    (advice,) = advice_on(places(tmp_path / "run", {1024: slow, 2048: slow, 4096: slow}, {1024: fast}))
    found = [(advice.question.name(one.option), one.sizes[-1].size, one.sure) for one in advice.ranges]
    assert found == [("multi strict", 1024, "sure"), ("host", 4096, "alone")]


def by_barrier(size: int, times: list[float], *numbers: int) -> list[Entry]:
    case = made_case("multi", "strict", image="a", size=size)
    return [made_record(case, n, time, gate="barrier" if n in numbers else "roundtime") for n, time in enumerate(times)]


def test_what_was_measured_in_another_way_is_not_surpassed(tmp_path: Path) -> None:
    """A barrier makes small operations look faster; nothing is sure of a side that passed one."""
    slow = {size: list[Entry](spread(20 * US)) for size in (1024, 2048)}
    fast = {size: by_barrier(size, spread(10 * US), *range(10)) for size in (1024, 2048)}
    (advice,) = advice_on(places(tmp_path / "run", slow, fast))
    (only,) = advice.ranges
    assert only.sure == "alone"
    first, *_, last = sentences(complete([advice], True)[0])
    assert first == "1K to 2K: nothing could be compared with multi strict."
    why = 'gate barrier against roundtime; gate = "barrier" in the plan (or --gate barrier) measures both'
    assert last == f"Not compared: host ({why}) at 1K, 2K."


def test_one_launch_by_another_gate_changes_no_advice(tmp_path: Path) -> None:
    run = places(tmp_path / "run", {1024: list(spread(20 * US))}, {1024: by_barrier(1024, spread(40 * US), 3)})
    (advice,) = advice_on(run)
    assert advice.ranges[0].sure == "sure"
    assert "Next best: multi strict, 2.00x" in sentences(complete([advice], True)[0])[0]


def test_one_option_of_three_that_was_not_compared_leaves_it_open(tmp_path: Path) -> None:
    case = made_case("multi", "ipc", image="a")
    cells: dict[Case, list[Entry]] = {
        made_case("host", image="a"): list(spread(10 * US)),
        made_case("multi", "strict", image="a"): list(spread(30 * US)),
        case: [made_record(case, n, time, cadence="streaming") for n, time in enumerate(spread(20 * US))],
    }  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert advice.ranges[0].sure == "undecided"


@pytest.mark.parametrize("way", ["barrier", "roundtime"])
def test_a_choice_has_no_cost_while_an_option_of_it_was_not_compared(tmp_path: Path, here: Collbench, way: str) -> None:
    """On the host the library b may be as fast as a: that it is not in a container is not the cost of the library."""
    case = made_case("host", image="b")
    cells: dict[Case, list[Entry]] = {
        made_case("host", image="a"): list(spread(10 * US)),
        case: [made_record(case, n, time, gate=way) for n, time in enumerate(spread(15 * US))],
        made_case("single", "strict", image="b"): list(spread(30 * US)),
    }
    out = here("advise", write_run(tmp_path / "run", cells), "--why").out
    (row,) = (line.split() for line in out.splitlines() if line.startswith("library") and " b " in line)
    assert row[2] == ("open" if way == "barrier" else "1.50x"), out
    assert ("b: undecided" in out) == (way == "barrier"), out


def test_the_side_that_is_never_slow_is_taken_of_two_with_one_median(tmp_path: Path) -> None:
    """The host is a little faster in the median, and twice as slow in every third launch."""
    steady = spread(10 * US, 60, 0.002)
    jumping: list[Entry] = [0.999 * time * (2 if n % 3 == 0 else 1) for n, time in enumerate(steady)]
    still: list[Entry] = [*steady]
    for name, host_, multi in (("host", still, jumping), ("multi strict", jumping, still)):
        (advice,) = advice_on(places(tmp_path / name, {1024: host_}, {1024: multi}))
        (only,) = advice.ranges
        assert advice.question.name(only.option) == name
        said = " ".join(sentences(complete([advice], True)[0]))
        assert "is as fast in the median, but 20 of 60 launches take over 1.25 times the median, 0 of 60 of " in said


def test_results_that_are_wrong_are_never_advised(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    wrong: list[Entry] = [made_record(case, n, 5 * US, check=ResultCheck(wrong=17)) for n in range(10)]
    (advice,) = advice_on(places(tmp_path / "run", {1024: list(spread(10 * US))}, {1024: wrong}))
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure) == ("host", "alone")


def test_an_option_with_wrong_results_in_one_launch_is_not_taken(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    times = spread(5 * US)
    once: list[Entry] = [made_record(case, n, t, check=ResultCheck(wrong=int(n == 3))) for n, t in enumerate(times)]
    (advice,) = advice_on(places(tmp_path / "run", {1024: list(spread(10 * US))}, {1024: once}))
    assert advice.question.name(advice.ranges[0].option) == "host"
    why = "multi strict (results were wrong in 1 launch)"
    assert sentences(complete([advice], True)[0])[-1] == f"Not compared: {why} at 1K."


def test_runs_measured_in_turns_advise_in_blocks(tmp_path: Path) -> None:
    """Both drift by a third over ten launches; in every block MPICH takes 10 % longer."""
    times = [10 * US * (1 + n / 27) for n in range(10)]
    one = observe(write_launches(tmp_path / "o", {made_case(): times}))
    other = observe(write_launches(tmp_path / "m", {made_case(): [1.1 * time for time in times]},
                                   libraries=(library("MPICH", "5.0.2"),), launcher="MPICH's mpiexec"))  # fmt: skip
    for in_blocks, sure in ((False, "undecided"), (True, "sure")):
        together = merged([one, other], in_blocks=in_blocks)
        (advice,) = advise(questions(together, {}), together.interleaved)
        assert advice.ranges[0].sure == sure
    with pytest.raises(RequestError, match=r"--in-blocks: .* measured the same"):
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


def test_what_was_the_best_and_was_not_measured_at_the_largest_size_leaves_it_open(tmp_path: Path) -> None:
    (advice,) = advice_on(three(tmp_path / "run", {1024: 10, 2048: 10}))
    found = [(advice.question.name(one.option), one.sizes[-1].size, one.sure) for one in advice.ranges]
    assert found == [("multi strict", 2048, "sure"), ("host", 4096, "undecided")]
    advised = complete([advice], True)[0]
    assert sentences(advised)[-1] == "Not compared: multi strict (not measured) at 4K."
    assert answer(advised)[-1].endswith("not compared: multi strict at 4K.")
    (entry,) = document([advised], [])["advice"]
    assert [(of["size"], of["take"], of["sure"]) for of in entry["sizes"]] == [
        (1024, "multi strict", "sure"), (2048, "multi strict", "sure"), (4096, None, "undecided")]  # fmt: skip


@pytest.mark.parametrize("third", [{1024: 60, 4096: 60}, {1024: 60, 2048: 60}])
def test_what_is_slower_at_the_nearest_sizes_leaves_nothing_open_where_it_is_missing(
    tmp_path: Path, third: dict[int, float]
) -> None:
    (advice,) = advice_on(three(tmp_path / "run", third))
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure) == ("host", "sure")
    (gap,) = {1024, 2048, 4096} - set(third)
    where = "2K" if gap == 2048 else "4K"
    assert sentences(complete([advice], True)[0])[-1] == f"Not compared: multi strict (not measured) at {where}."


def test_two_options_of_which_the_slow_one_has_a_gap_have_one_range(tmp_path: Path) -> None:
    quick, slow = list[Entry](spread(10 * US)), list[Entry](spread(30 * US))
    run = places(tmp_path / "run", {1024: quick, 2048: quick, 4096: quick}, {1024: slow, 4096: slow})
    (advice,) = advice_on(run)
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure) == ("host", "sure")


def test_what_is_slower_on_one_side_of_a_gap_alone_leaves_it_open(tmp_path: Path) -> None:
    (advice,) = advice_on(three(tmp_path / "run", {1024: 10, 4096: 60}))
    sure = {
        one.size: (advice.question.name(of.option), one.sure(of.option)) for of in advice.ranges for one in of.sizes
    }
    assert sure == {1024: ("multi strict", "sure"), 2048: ("host", "undecided"), 4096: ("host", "sure")}


def test_what_failed_or_was_skipped_cannot_be_taken_and_leaves_nothing_open(tmp_path: Path) -> None:
    case = made_case("multi", "strict", image="a")
    skipped = [made_failure(case, n, "no such", "skipped") for n in range(10)]
    for name, third in (("failed", ["died"] * 10), ("skipped", skipped)):
        cells: dict[Case, list[Entry]] = {
            HOST: [*spread(10 * US)], made_case("single", "strict", image="a"): [*spread(30 * US)],
            case: [*third],
        }  # fmt: skip
        (advice,) = advice_on(write_run(tmp_path / name, cells))
        assert advice.ranges[0].sure == "sure"
        assert any(line.startswith("Not compared: multi strict (") for line in sentences(complete([advice], True)[0]))


def test_the_most_isolated_option_is_the_fastest_of_one_size_and_costs_most_at_another(tmp_path: Path) -> None:
    """About as fast as the host at 64K, and 13 times as slow at 8 B."""
    noise = [0.9, 1.12, 0.95, 1.07, 0.88, 1.1, 0.93, 1.2, 1.05, 0.97]
    run = places(
        tmp_path / "run",
        {8: [*spread(1 * US)], 65536: [*spread(100 * US)]},
        {8: [*spread(13 * US)], 65536: [99 * US * factor for factor in noise]},
    )
    (advice,) = advice_on(run)
    found = complete([advice], True)[0]
    (line,) = (line for line in sentences(found) if "most isolated" in line)
    assert "may be the fastest at 64K" in line or "may be as fast as the fastest at 64K: undecided" in line
    assert line.endswith("and 13.0x (13.0 .. 13.0) the time of the fastest at 8.")
    (entry,) = document([found], [])["advice"]
    assert [of["sure"] for of in entry["sizes"]] == ["sure", "undecided"]


def test_hosts_and_boots_that_differ_between_runs_are_a_caution(here: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", {made_case(): spread(US)})
    other = write_run(tmp_path / "other", {made_case(): spread(2 * US)}, libraries=(library("MPICH", "5.0.2"),),
                      hosts=(host(name="node2", boot_id="b9"),))  # fmt: skip
    out = here("advise", one, other).out
    assert f"other differ: boot {host().boot_id or 'none'} against b9; host {host().name} against node2" in out
    assert " differ: " not in here("advise", one).out


def test_launches_that_depend_on_those_before_are_a_caution(here: Collbench, tmp_path: Path) -> None:
    waves = [US * (1 + 0.2 * ((block // 6) % 2)) for block in range(24)]
    for name, times, said in (("waves", waves, True), ("turns", spread(US, 24), False)):
        out = here("advise", write_run(tmp_path / name, {HOST: spread(US, 24, 0.001), MULTI: times})).out
        assert ("launches depend on those before them" in out) is said


def test_a_library_that_may_be_as_fast_at_a_size_is_open_there_though_it_is_the_best(tmp_path: Path) -> None:
    """At 8 B mpich is a little faster in the median, by noise; at 64K openmpi takes half the time."""
    noise = [0.8 if block % 2 else 1.2 for block in range(10)]
    cells: dict[Case, list[Entry]] = {
        made_case(image="mpich", size=8): [0.99 * US] * 10,
        made_case(image="openmpi", size=8): [US * factor for factor in noise],
        made_case(image="mpich", size=65536): [*spread(20 * US)],
        made_case(image="openmpi", size=65536): [*spread(10 * US)],
    }  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    take, instead, sure = answer(complete([advice], True)[0])
    assert (take, instead) == (
        "Take openmpi at 64K; undecided at 8.",
        "Instead mpich: 2.00x (2.00 .. 2.00) the time at 64K, undecided at 8.",
    )
    assert sure.startswith(
        "How sure: every other option is slower at 64K; undecided at 8: openmpi was the fastest measured; mpich may be "
    )
