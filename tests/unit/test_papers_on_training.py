"""Conclusions on training with parameter servers, on runs that are made up: each verdict, and what is shown beside."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.made_papers import judged, sysbench, write
from tests.unit.made_runs import Entry, made_record, spread, write_run

from collbench.analysis.observations import Observed, observe
from collbench.analysis.paper.cells import Item, items_of, kinds_of
from collbench.analysis.paper.judge import PartVerdict, foreseen, judge
from collbench.report.paper import beside, paper
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


def without_reasons(observed: Observed, number: int) -> tuple[PartVerdict, ...]:
    """The parts of a conclusion, as if containers were not pinned."""
    published = paper("zhao2018")
    conclusions = [
        msgspec.structs.replace(one, parts=tuple(msgspec.structs.replace(part, lacking="") for part in one.parts))
        for one in published.conclusions
    ]
    published = msgspec.structs.replace(published, conclusions=tuple(conclusions))
    found = {one.conclusion.number: one for one in judge(published, kinds_of([observed], published)[0])}
    return found[number].parts


def single(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("single", servers, workers, shard)


def multi(servers: int, workers: int, shard: str = "variable") -> Way:
    return ("multi", servers, workers, shard)


ALONE = {ONE_PROCESS: 1.0}


def grid(*policies: str, ratio: float = 1.2, shard: str = "variable") -> dict[Way, float]:
    """Every cell of several servers takes so many times the time of one server."""
    return {
        (policy, servers, workers, shard): 1.0 if servers == 1 else ratio
        for policy in policies for servers in (1, 2, 3) for workers in range(1, 25)
    }  # fmt: skip


#: Conclusion, times, how much they vary, verdict.
CASES: list[tuple[int, dict[Way, float], float, str]] = [
    (3, ALONE | {single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, 0.001, "not measurable here"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.7}, 0.001, "not measurable here"),
    (5, grid("single", "multi"), 0.001, "confirmed"),
    (5, grid("single"), 0.001, "undecided"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(3, 2): 0.9}, 0.001, "refuted"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.05}, 0.3, "undecided"),
    (5, {single(1, 2): 1.0, single(2, 4): 0.5, multi(2, 2): 0.5}, 0.001, "not measurable here"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(1, 2, "even"): 1.0, single(2, 2, "even"): 0.5}, 0.001,
     "undecided"),
    (6, grid("single", "multi", shard="even"), 0.001, "confirmed"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.6}, 0.001, "refuted"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.95}, 0.3, "undecided"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "times", "share", "finding"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, number: int, times: dict[Way, float], share: float, finding: str
) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", times, share))[number]
    assert found.finding == finding, found


#: Of Docker Multiple and Docker CPU Affinity against Docker Single, if containers were not pinned.
EXISTS: list[tuple[dict[Way, float], list[str]]] = [
    ({single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, ["confirmed", "confirmed"]),
    ({single(1, 2): 1.5, single(1, 1): 1.5, multi(1, 2): 1.2}, ["undecided", "undecided"]),
    ({single(1, 2): 0.8}, ["confirmed", "not measurable here"]),
    ({single(1, 2, "even"): 0.8, multi(1, 2, "even"): 0.7}, ["not measurable here", "not measurable here"]),
    (grid("single", "multi", ratio=1.5) | dict.fromkeys(
        [(policy, 1, workers, "variable") for policy in ("single", "multi") for workers in range(1, 25)], 1.4),
     ["refuted", "refuted"]),
]  # fmt: skip


@pytest.mark.parametrize(("times", "findings"), EXISTS)
def test_a_part_of_the_grid_does_not_refute_that_something_is_in_it(
    tmp_path: Path, times: dict[Way, float], findings: list[str]
) -> None:
    found = without_reasons(trained(tmp_path / "run", ALONE | times), 3)
    assert [one.finding for one in found] == findings


def test_what_was_not_measured_of_the_grid_is_known(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE | {single(1, 1): 1.5, single(1, 2): 1.5})
    multiple, _ = without_reasons(observed, 3)
    assert (multiple.finding, multiple.against, multiple.total) == ("undecided", 2, 72)
    assert multiple.missing == {"servers": (2, 3), "workers": tuple(range(3, 25))}


def test_pinned_containers_have_a_reason_and_no_verdict(tmp_path: Path) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", ALONE | {single(1, 2): 1.5, multi(1, 2): 1.5}))
    for one in (found[3], found[4]):
        assert one.finding == "not measurable here" and all(part.part.lacking for part in one.parts)
        assert {evidence.finding for evidence in one.evidence} == {"not measurable here"}
    assert len(found[3].evidence) == 2


def test_a_part_that_no_run_can_show_leaves_no_verdict_to_the_others(tmp_path: Path) -> None:
    published = paper("zhao2018")
    third, fifth = published.conclusions[2], published.conclusions[4]
    both = msgspec.structs.replace(fifth, parts=(third.parts[0], *fifth.parts))
    asked = msgspec.structs.replace(published, conclusions=(fifth, both))
    observed = trained(tmp_path / "run", ALONE | {single(1, 2): 1.5, single(2, 2): 1.0})
    found = judge(asked, kinds_of([observed], asked)[0])
    assert [one.finding for one in found] == ["refuted", "not measurable here"]
    items = items_of(observed)
    assert [one.can_refute for one in foreseen(asked, items)] == [True, False]


def test_more_ranks_than_cores_are_no_evidence_on_the_server(tmp_path: Path) -> None:
    times = {single(1, 2): 1.0, multi(1, 2): 1.5}
    (idle,) = without_reasons(trained(tmp_path / "idle", times), 4)
    observed = trained(tmp_path / "crowded", times)
    for cell in observed.cells.values():
        cell.oversubscribed = LAUNCHES
    (crowded,) = without_reasons(observed, 4)
    assert (idle.finding, crowded.finding) == ("refuted", "not measurable here")
    assert [one.reason for one in crowded.evidence] == ["crowded"]


def test_the_host_is_no_part_of_a_claim(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE | {("host", 1, 2, "variable"): 0.5, ("host", 2, 2, "variable"): 0.2})
    assert {one.finding for one in judged("zhao2018", observed).values()} == {"not measurable here"}


def test_what_failed_decides_nothing(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        case(ONE_PROCESS): measured(ONE_PROCESS, [2.0] * 8),
        case(single(1, 2)): ["killed"] * 8,
    }
    found = without_reasons(observe(write_run(tmp_path / "run", cells)), 3)
    assert found[0].finding == "not measurable here"
    assert found[0].evidence[0].reason == "not comparable" and "killed" in found[0].evidence[0].detail[0]


def test_a_run_that_lacks_one_side_of_every_claim_names_it_and_shows_its_times(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", {("host", 1, 2, "variable"): 1.0, multi(1, 2): 1.1, multi(1, 4): 1.2})
    found = judged("zhao2018", observed)
    assert [one.values["servers"] for one in found[3].parts[1].absent] == [0]
    assert [one.values["policy"] for one in found[4].parts[0].absent] == ["single"]
    (shown,) = beside([observed], paper("zhao2018"))
    times = next(table for table in shown.tables if table.title.startswith("times"))
    assert ("1", "2", "multi strict", "variable") in [row[:4] for row in times.rows]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (ONE_PROCESS, "multi strict, one process"),
        (single(2, 4, "even"), "single strict, 2 servers (even), 4 workers"),
        (("host", 1, 1, "variable"), "host, 1 server, 1 worker"),
    ],
)  # fmt: skip
def test_a_way_is_named(place: Way, text: str) -> None:
    assert Item(case(place)).name == text


def test_times_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    times = ALONE | {single(1, 7): 0.9, multi(1, 7): 0.8}
    (shown,) = beside([trained(tmp_path / "run", times)], paper("zhao2018"))
    rows = {row[:4]: row[4:] for row in next(one for one in shown.tables if one.title.startswith("times")).rows}
    assert rows["0", "1", "multi strict", "variable"] == ("22.52 s", "46.5 s", "2 s")
    assert rows["1", "7", "single strict", "variable"][:2] == ("", "10.11 s, 0.22")
    assert rows["1", "7", "single strict", "variable"][2].startswith("1.8 s, 0.90 (0.90 .. 0.90")
    assert rows["1", "7", "multi strict", "variable"][:2] == ("18.46 s, 0.82", "7.07 s, 0.15")
    assert rows["1", "12", "single", "variable"] == ("17.12 s, 0.76", "", "not measured")


def test_a_run_of_sysbench_has_no_tables_of_training(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [sysbench("cpu", 1.01)])
    (shown,) = beside([observed], paper("zhao2018"))
    assert not any("training" in table.title for table in shown.tables)
    found = judged("zhao2018", observed)
    assert {found[number].finding for number in range(2, 7)} == {"not measurable here"}
