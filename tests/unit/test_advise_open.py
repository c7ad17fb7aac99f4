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

from collbench.analysis.advise import Advice, advise, pair_of
from collbench.analysis.options import merged, questions
from collbench.analysis.pairs import method_differences
from collbench.analysis.runs import observe
from collbench.errors import RequestError
from collbench.report.advice import complete, document
from collbench.schema.case import Case
from collbench.schema.record import ResultCheck

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
    with pytest.raises(RequestError, match="different software under the name openmpi"):
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
        assert ("launches depend on those before them" in out) is said
