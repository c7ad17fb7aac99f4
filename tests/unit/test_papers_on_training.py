"""Conclusions on training with parameter servers, on runs that are made up: each verdict, and what is shown beside."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.made_papers import programs, sysbench, write
from tests.unit.made_runs import Entry, made_record, spread, write_run

from collbench.analysis.compare import Comparison
from collbench.analysis.observations import Observed, observe
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.training import judge, way
from collbench.report.paper import beside, paper, tally
from collbench.schema.case import Case
from collbench.schema.record import Work

#: Policy, servers, workers, shard.
Way = tuple[str, int, int, str]

ONE_PROCESS: Way = ("multi", 0, 1, "variable")
LAUNCHES = 10


def case(place: Way) -> Case:
    policy, servers, workers, shard = place
    own = Case(workload="parameter_server", what={"steps": 1000}, how={"servers": servers, "shard": shard})
    where = {} if policy == "host" else {"engine": "docker", "policy": policy, "isolation": "strict"}
    return own.having(**where, image="torch", measure="steps", ranks=workers + servers)


def measured(place: Way, seconds: list[float]) -> list[Entry]:
    work = Work(amount=1000, unit="steps")
    return [made_record(case(place), launch, time, work=work, driver=None, gate=None, cadence=None)
            for launch, time in enumerate(seconds)]  # fmt: skip


def trained(path: Path, times: dict[Way, float], share: float = 0.001, seconds: float = 2.0) -> Observed:
    """A run in which these ways take so many times the time of one process in a container."""
    cells: dict[Case, list[Entry]] = {
        case(place): measured(place, spread(seconds * ratio, LAUNCHES, 0.001 if ratio == 1.0 else share))
        for place, ratio in times.items()
    }
    return observe(write_run(path, cells))


def judged(observed: Observed) -> dict[int, Judgement[Comparison]]:
    return {one.number: one for one in judge(programs("zhao2018"), observed)}


def single(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("single", servers, workers, shard)


def multi(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("multi", servers, workers, shard)


ALONE = {ONE_PROCESS: 1.0}

#: Conclusion, times, how much they vary, verdict.
CASES: list[tuple[int, dict[Way, float], float, str]] = [
    (3, ALONE | {single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, 0.001, "confirmed"),
    (3, ALONE | {single(1, 2): 0.8, multi(1, 2): 1.2, multi(2, 2): 1.5}, 0.001, "refuted"),
    (3, ALONE | {single(1, 2): 0.8, multi(1, 2): 0.95}, 0.3, "undecided"),
    (3, ALONE | {single(1, 2): 0.8}, 0.001, "undecided"),
    (3, {single(1, 2): 0.8, multi(1, 2): 0.7}, 0.001, "not measurable here"),
    (3, ALONE | {single(1, 2, "even"): 0.8, multi(1, 2, "even"): 0.7}, 0.001, "not measurable here"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.7, single(1, 4): 2.0, multi(1, 4): 1.5}, 0.001, "confirmed"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.7, single(1, 4): 2.0, multi(1, 4): 2.0}, 0.001, "refuted"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.95}, 0.3, "undecided"),
    (4, {single(1, 2): 1.0, multi(1, 4): 0.7}, 0.001, "not measurable here"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(3, 2): 1.0}, 0.001, "confirmed"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(3, 2): 0.9}, 0.001, "refuted"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.05}, 0.3, "undecided"),
    (5, {single(1, 2): 1.0, single(2, 4): 0.5, multi(2, 2): 0.5}, 0.001, "not measurable here"),
    (
        5,
        {single(1, 2): 1.0, single(2, 2): 1.2, single(1, 2, "even"): 1.0, single(2, 2, "even"): 0.5},
        0.001,
        "confirmed",
    ),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 1.2}, 0.001, "confirmed"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.6}, 0.001, "refuted"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.95}, 0.3, "undecided"),
]


@pytest.mark.parametrize(("number", "times", "share", "finding"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, number: int, times: dict[Way, float], share: float, finding: str
) -> None:
    found = judged(trained(tmp_path / "run", times, share))[number]
    assert found.finding == finding, found.why


def test_all_conclusions_on_training_are_tested_each_way() -> None:
    decided = {(number, finding) for number, _, _, finding in CASES}
    for one in programs("zhao2018").conclusions:
        if one.claims:
            assert {(one.number, word) for word in ("confirmed", "refuted", "undecided")} <= decided


def test_the_host_is_no_part_of_a_claim(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE | {("host", 1, 2, "variable"): 0.5, ("host", 2, 2, "variable"): 0.2})
    assert {one.finding for one in judged(observed).values()} == {"not measurable here"}


def test_what_failed_decides_nothing(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        case(ONE_PROCESS): measured(ONE_PROCESS, [2.0] * 8),
        case(single(1, 2)): ["killed"] * 8,
    }
    found = judged(observe(write_run(tmp_path / "run", cells)))[3]
    assert found.finding == "not measurable here"
    assert found.evidence[0].why == "single strict, 1 server, 2 workers: failed: killed"


def test_reasons_count_the_cells(tmp_path: Path) -> None:
    times = ALONE | {single(1, 1): 2.0, single(1, 2): 1.5, single(1, 4): 0.8}
    assert judged(trained(tmp_path / "run", times))[3].why == (
        "Docker Multiple against Docker Single: 1 of 3 cells is faster, 2 are not; "
        "Docker CPU Affinity against Docker Single: "
        "not measured: parameter_server with policy multi, servers 1, 2 or 3, shard variable")  # fmt: skip


def test_a_run_that_lacks_one_side_of_every_claim_names_it_and_shows_its_times(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", {("host", 1, 2, "variable"): 1.0, multi(1, 2): 1.1, multi(1, 4): 1.2})
    lines, tables = beside(observed, paper("zhao2018"))
    assert "not measured: parameter_server with policy multi, servers 0, shard variable" in lines[2]
    assert "parameter_server with policy single, servers 1, shard variable" in lines[3]
    times = next(table for table in tables if table.title.startswith("times"))
    assert ("1", "2", "multi strict", "variable") in [row[:4] for row in times.rows]
    apart = trained(tmp_path / "apart", {single(1, 2): 1.0, multi(1, 4): 1.1})
    assert "not measured: both sides with the same servers and shard and workers" in judged(apart)[4].why


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (ONE_PROCESS, "multi strict, one process"),
        (single(2, 4, "even"), "single strict, 2 servers (even), 4 workers"),
        (("host", 1, 1, "variable"), "host, 1 server, 1 worker"),
    ],
)  # fmt: skip
def test_a_way_is_named(place: Way, text: str) -> None:
    assert way(case(place)) == text


def test_times_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    host: dict[Way, float] = {("host", 0, 1, "variable"): 1.1, ("host", 1, 1, "variable"): 2.2}
    times = ALONE | host | {single(1, 7): 0.9, multi(1, 7): 0.8}
    lines, tables = beside(trained(tmp_path / "run", times), paper("zhao2018"))
    assert tally(lines) == "2 confirmed, 4 not measurable here"
    assert [line.partition(",")[0] for line in lines] == [f"Conclusion {number}" for number in range(1, 7)]
    rows = {row[:4]: row[4:] for row in next(table for table in tables if table.title.startswith("times")).rows}
    assert rows["0", "1", "multi strict", "variable"] == ("22.52 s", "46.5 s", "2 s", "")
    assert rows["1", "7", "single strict", "variable"][:3] == ("", "10.11 s, 0.22", "1.8 s")
    assert rows["1", "7", "single strict", "variable"][3].startswith("0.90 (0.90 .. 0.90")
    assert rows["1", "7", "multi strict", "variable"][:2] == ("18.46 s, 0.82", "7.07 s, 0.15")
    assert rows["1", "1", "host", "variable"][3].startswith("2.00")
    assert rows["1", "12", "single", "variable"] == ("17.12 s, 0.76", "", "not measured", "")


def test_a_run_of_sysbench_has_no_tables_of_training(tmp_path: Path) -> None:
    lines, tables = beside(write(tmp_path / "run", [sysbench("cpu", 1.01)]), paper("zhao2018"))
    assert len(lines) == 6 and not any("training" in table.title for table in tables)
    assert all("NOT MEASURABLE HERE" in line for line in lines[2:])
