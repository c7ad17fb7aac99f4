"""Launches of programs during which others used the cores leave a comparison on both sides; and CPU seconds."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.unit.advised_runs import advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program_case
from tests.unit.made_runs import made_case, made_record, spread, write_run

from collbench.analysis import baseline
from collbench.analysis.compare import Comparison, Reason
from collbench.analysis.compare import compare as compared
from collbench.analysis.factors import find_factor
from collbench.analysis.launches import together
from collbench.analysis.pairs import across, within
from collbench.analysis.results import joined
from collbench.analysis.runs import Observed, observe

HOST, INSIDE = program_case(), program_case("multi", "strict")

#: Blocks 2 and 5 were contended in the container, which took twice the time, and block 7 on the host.
SLOW = [2.0 if block in (2, 5) else time for block, time in enumerate(spread(1.0))]
HOST_SLOW = [3.0 if block == 7 else time for block, time in enumerate(spread(1.0))]


def written(path: Path, of_host: Collection[int] = (7,), inside: Collection[int] = (2, 5)) -> Path:
    records = {HOST: launches_of(HOST, HOST_SLOW, of_host), INSIDE: launches_of(INSIDE, SLOW, inside)}
    return write_run(path / "run", records)


def by_policy(run: Observed) -> Comparison:
    [comparison] = compared(within(run, find_factor("policy"), frozenset()))
    return comparison


def test_a_block_that_was_contended_on_either_side_leaves_both(tmp_path: Path) -> None:
    found = by_policy(observe(written(tmp_path)))
    assert (found.contended, found.launches, found.left_out, found.verdict) == (3, (7, 7), 0, "same")
    assert found.base is not None and found.base.n == 7
    assert len(found.pair.base.medians) == 10, "the table says of how many"
    assert found.paper_diff == pytest.approx(0.0, abs=0.5)


def test_a_launch_without_its_partner_is_no_block_that_is_left_out(tmp_path: Path) -> None:
    for name, more in (("host", HOST), ("inside", INSIDE)):
        records = {case: launches_of(case, spread(1.0, 12 if case == more else 10), (11,)) for case in (HOST, INSIDE)}
        assert by_policy(observe(write_run(tmp_path / name, records))).contended == 0


def test_ranks_are_compared_as_before(tmp_path: Path) -> None:
    cases = [made_case(), made_case("multi", "strict")]
    records = {case: [made_record(case, n, 1.0, contended=n == 3) for n in range(8)] for case in cases}
    found = by_policy(observe(write_run(tmp_path / "run", records)))
    assert (found.contended, found.launches) == (0, (8, 8))


def test_too_few_that_are_left_are_undecided_with_the_reason(tmp_path: Path) -> None:
    found = by_policy(observe(written(tmp_path, of_host=range(5))))
    assert (found.verdict, found.launches_more) == ("unclear", 2)
    assert found.why == Reason("few launches", (2,), contended=6)
    none = by_policy(observe(written(tmp_path / "none", range(5), range(5, 10))))
    assert (none.verdict, none.launches, none.contended, none.ratio) == ("unclear", (0, 0), 10, None)
    assert none.why == Reason("no launches", contended=10)
    assert none.base is not None and none.cpu[0] is not None, "what was measured is shown"


def test_what_left_is_said_in_table_and_json(compare: Collbench, tmp_path: Path) -> None:
    run = written(tmp_path)
    text = compare(run, "--by", "policy", "--all").out
    assert "7 of 10" in text
    assert "launches left out, because tasks waited for a CPU on either side: 3" in text
    document = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    assert document["comparisons"][0]["contended"] == 3
    assert "launches left out, because tasks waited for a CPU on either side: 3" in document["notes"]


def test_a_check_fails_where_nothing_is_left(compare: Collbench, tmp_path: Path) -> None:
    assert compare(written(tmp_path), "--by", "policy", "--fail-on", "slower").code == 0
    found = compare(written(tmp_path / "2", range(10)), "--by", "policy", "--all", "--fail-on", "slower")
    assert found.code == 1 and "1 with fewer than 6 launches a side" in found.err
    assert "0 of 10" in found.out


def test_of_two_runs_each_side_loses_its_own(tmp_path: Path) -> None:
    base, other = (
        observe(write_run(tmp_path / str(len(busy)), {HOST: launches_of(HOST, spread(1.0), busy)}))
        for busy in ((1, 2), (3,))
    )
    [found] = compared(across(base, other, None, frozenset()), in_blocks=False)
    assert (found.contended, found.launches) == (3, (8, 9))


def test_a_baseline_keeps_which_launches_were_contended_and_the_cpu_seconds(tmp_path: Path) -> None:
    run = observe(written(tmp_path))
    baseline.keep(run, tmp_path / "baseline.json")
    stored = baseline.load(tmp_path / "baseline.json")
    assert stored.cells[INSIDE].contended == {2, 5}
    assert stored.cells[INSIDE].cpu == run.cells[INSIDE].cpu
    [found] = compared(across(stored, run, None, frozenset({"policy"}))[:1], in_blocks=False)
    assert found.contended == 2


def test_runs_taken_together_move_the_numbers_of_contended_launches(tmp_path: Path) -> None:
    one, two = observe(written(tmp_path / "1")), observe(written(tmp_path / "2"))
    cell = joined([(one.cells, 0), (two.cells, 10)])[INSIDE]
    assert cell.contended == {2, 5, 12, 15} and cell.cpu.keys() == set(range(20))


def test_advice_is_taken_from_launches_that_were_not_contended(tmp_path: Path) -> None:
    """The container is faster, and was contended in most blocks."""
    busy = range(8)
    times = [5.0 if block in busy else 0.5 for block in range(14)]
    records = {HOST: launches_of(HOST, spread(1.0, 14)), INSIDE: launches_of(INSIDE, times, busy)}
    [advice] = advice_on(write_run(tmp_path / "run", records))
    [at] = advice.sizes
    assert at.take["policy"] == "multi" and at.bound == 1.0
    assert [one.out for one in at.options.values()] == [False, True]


def test_advice_where_every_launch_was_contended_is_none(tmp_path: Path) -> None:
    [advice] = advice_on(written(tmp_path, range(10), range(10)))
    assert (advice.sizes, advice.ranges) == ((), ())


def test_cells_side_by_side_have_no_contended_block(tmp_path: Path) -> None:
    cells = list(observe(written(tmp_path)).cells.values())
    assert len(together(cells, in_blocks=True)) == 7
    assert len(together(cells, in_blocks=False)) == 8
    assert together(cells, in_blocks=True).max() < 1.5


def test_cpu_seconds_tell_waiting_from_computing(compare: Collbench, tmp_path: Path) -> None:
    def printed(name: str, cpu: float) -> str:
        records = {HOST: launches_of(HOST, spread(0.8), cpu=0.75), INSIDE: launches_of(INSIDE, spread(1.6), cpu=cpu)}
        return " ".join(compare(write_run(tmp_path / name, records), "--by", "policy", "--all").out.split())

    remark = "same CPU seconds for each sample (host 0.75 s, multi strict 0.76 s), in 1.6 s against 0.8 s: " \
             "multi strict waited"  # fmt: skip
    waited = printed("waited", 0.76)
    assert remark in waited and "CPU s/s" in waited
    computed = printed("computed", 1.5)
    assert "waited" not in computed and "CPU s/s" not in computed  # the same on both sides


def test_times_that_agree_are_not_remarked(tmp_path: Path, compare: Collbench) -> None:
    records = {case: launches_of(case, spread(1.0), cpu=0.1) for case in (HOST, INSIDE)}
    assert "waited" not in compare(write_run(tmp_path / "run", records), "--by", "policy", "--all").out


def test_cpu_seconds_are_those_of_the_launches_that_are_compared(tmp_path: Path) -> None:
    busy = range(8)
    times = [9.0 if block in busy else 1.0 for block in range(14)]
    records = {HOST: launches_of(HOST, spread(1.0, 14)), INSIDE: launches_of(INSIDE, times, busy)}
    found = by_policy(observe(write_run(tmp_path / "run", records)))
    assert found.cpu[1] is not None and found.cpu[1].seconds == pytest.approx(1.0, rel=0.01)
    assert found.cpu[1].share == pytest.approx(1.0)


def test_json_has_cpu_seconds_of_each_side_and_null_for_ranks(compare: Collbench, tmp_path: Path) -> None:
    [entry] = json.loads(compare(written(tmp_path), "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["base"]["cpu"] == {"seconds": pytest.approx(1.0, rel=0.01), "wall": pytest.approx(1.0, rel=0.01),
                                    "share": 1.0}  # fmt: skip
    ranks = {case: spread(1e-6) for case in (made_case(), made_case("multi", "strict"))}
    run = write_run(tmp_path / "ranks", ranks)
    [entry] = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["base"]["cpu"] is None
    assert "CPU" not in compare(run, "--by", "policy").out
