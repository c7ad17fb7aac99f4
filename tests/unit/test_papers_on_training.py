"""Conclusions on training with parameter servers, on runs that are made up: each verdict, and what is shown beside."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.made_papers import judged, sysbench, write
from tests.unit.made_runs import Entry, made_record, spread, with_facts, write_run

from collbench.analysis.conclusions import PartVerdict, judge, planned_conclusions
from collbench.analysis.papers import Item, items_of, kinds_of
from collbench.analysis.runs import Observed, observe
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
    (3, ALONE | {single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, 0.001, "not measured"),
    (4, {single(1, 2): 1.0, multi(1, 2): 0.7}, 0.001, "not measured"),
    (5, grid("single", "multi"), 0.001, "holds here"),
    (5, grid("single"), 0.001, "unclear"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(3, 2): 0.9}, 0.001, "does not hold here"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.05}, 0.3, "unclear"),
    (5, {single(1, 2): 1.0, single(2, 4): 0.5, multi(2, 2): 0.5}, 0.001, "not measured"),
    (5, {single(1, 2): 1.0, single(2, 2): 1.2, single(1, 2, "even"): 1.0, single(2, 2, "even"): 0.5}, 0.001,
     "unclear"),
    (6, grid("single", "multi", shard="even"), 0.001, "holds here"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.6}, 0.001, "does not hold here"),
    (6, {multi(1, 2, "even"): 1.0, multi(2, 2, "even"): 0.95}, 0.3, "unclear"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "times", "share", "verdict"), CASES)
def test_every_conclusion_comes_out_each_way(
    tmp_path: Path, number: int, times: dict[Way, float], share: float, verdict: str
) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", times, share))[number]
    assert found.verdict == verdict, found


#: Of Docker Multiple and Docker CPU Affinity against Docker Single, if containers were not pinned.
EXISTS: list[tuple[dict[Way, float], list[str]]] = [
    ({single(1, 2): 1.5, single(1, 4): 0.8, multi(1, 4): 0.7}, ["holds here", "holds here"]),
    ({single(1, 2): 1.5, single(1, 1): 1.5, multi(1, 2): 1.2}, ["unclear", "unclear"]),
    ({single(1, 2): 0.8}, ["holds here", "not measured"]),
    ({single(1, 2, "even"): 0.8, multi(1, 2, "even"): 0.7}, ["not measured", "not measured"]),
    (grid("single", "multi", ratio=1.5) | dict.fromkeys(
        [(policy, 1, workers, "variable") for policy in ("single", "multi") for workers in range(1, 25)], 1.4),
     ["does not hold here", "does not hold here"]),
]  # fmt: skip


@pytest.mark.parametrize(("times", "verdicts"), EXISTS)
def test_a_part_of_the_grid_does_not_refute_that_something_is_in_it(
    tmp_path: Path, times: dict[Way, float], verdicts: list[str]
) -> None:
    found = without_reasons(trained(tmp_path / "run", ALONE | times), 3)
    assert [one.verdict for one in found] == verdicts


def test_what_was_not_measured_of_the_grid_is_known(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE | {single(1, 1): 1.5, single(1, 2): 1.5})
    multiple, _ = without_reasons(observed, 3)
    assert (multiple.verdict, multiple.against, multiple.total) == ("unclear", 2, 72)
    assert multiple.missing == {"servers": (2, 3), "workers": tuple(range(3, 25))}


def test_pinned_containers_have_a_reason_and_no_verdict(tmp_path: Path) -> None:
    found = judged("zhao2018", trained(tmp_path / "run", ALONE | {single(1, 2): 1.5, multi(1, 2): 1.5}))
    for one in (found[3], found[4]):
        assert one.verdict == "not measured" and all(part.part.lacking for part in one.parts)
        assert {evidence.verdict for evidence in one.evidence} == {"not measured"}
    assert len(found[3].evidence) == 2


def test_a_part_that_no_run_can_show_leaves_no_verdict_to_the_others(tmp_path: Path) -> None:
    published = paper("zhao2018")
    third, fifth = published.conclusions[2], published.conclusions[4]
    both = msgspec.structs.replace(fifth, parts=(third.parts[0], *fifth.parts))
    asked = msgspec.structs.replace(published, conclusions=(fifth, both))
    observed = trained(tmp_path / "run", ALONE | {single(1, 2): 1.5, single(2, 2): 1.0})
    found = judge(asked, kinds_of([observed], asked)[0])
    assert [one.verdict for one in found] == ["does not hold here", "not measured"]
    items = items_of(observed)
    assert [one.can_refute for one in planned_conclusions(asked, items)] == [True, False]


def test_more_ranks_than_cores_are_no_evidence_on_the_server(tmp_path: Path) -> None:
    times = {single(1, 2): 1.0, multi(1, 2): 1.5}
    (idle,) = without_reasons(trained(tmp_path / "idle", times), 4)
    observed = with_facts(trained(tmp_path / "crowded", times), oversubscribed=True)
    (crowded,) = without_reasons(observed, 4)
    assert (idle.verdict, crowded.verdict) == ("does not hold here", "not measured")
    assert [one.reason for one in crowded.evidence] == ["crowded"]


def test_the_host_is_no_part_of_a_claim(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", ALONE | {("host", 1, 2, "variable"): 0.5, ("host", 2, 2, "variable"): 0.2})
    assert {one.verdict for one in judged("zhao2018", observed).values()} == {"not measured"}


def test_what_failed_decides_nothing(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        case(ONE_PROCESS): measured(ONE_PROCESS, [2.0] * 8),
        case(single(1, 2)): ["killed"] * 8,
    }
    found = without_reasons(observe(write_run(tmp_path / "run", cells)), 3)
    assert found[0].verdict == "not measured"
    assert found[0].evidence[0].reason == "not comparable" and "killed" in str(found[0].evidence[0].why)


def test_a_run_that_lacks_one_side_of_every_claim_names_it(tmp_path: Path) -> None:
    observed = trained(tmp_path / "run", {("host", 1, 2, "variable"): 1.0, multi(1, 2): 1.1, multi(1, 4): 1.2})
    found = judged("zhao2018", observed)
    assert [one.values["servers"] for one in found[3].parts[1].absent] == [0]
    assert [one.values["policy"] for one in found[4].parts[0].absent] == ["single"]


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


def test_published_ratios_follow_from_the_published_times() -> None:
    published = paper("zhao2018")
    times = {(one.machine, msgspec.json.encode(one.cell)): one.seconds for one in published.figures}
    for one in published.ratios:
        (machine,) = {machine for machine, _ in times if f"({machine})" in one.text}
        of, over = (times[machine, msgspec.json.encode(cell)] for cell in (one.of, one.over))
        assert one.ratio == pytest.approx(of / over, abs=0.005)


def test_ratios_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    shown = beside([trained(tmp_path / "run", ALONE | {single(1, 7): 0.9, multi(1, 7): 0.8})], paper("zhao2018"))
    rows = {row[0]: row[1:] for table in shown.more if table.title.startswith("ratios") for row in table.rows}
    assert rows["training, Docker Multiple, 1 server, 7 workers over Docker Single (server)"] == ("0.22x", "0.90x")
    assert rows["training, Docker CPU Affinity, 1 server, 7 workers over Docker Single (laptop)"] == ("0.82x", "0.80x")
    assert rows["training, Docker Multiple, 1 server, 12 workers over Docker Single (laptop)"][1] == "not measured"


def test_a_run_of_sysbench_has_no_tables_of_training(tmp_path: Path) -> None:
    observed = write(tmp_path / "run", [sysbench("cpu", 1.01)])
    shown = beside([observed], paper("zhao2018"))
    assert not any(table.title.startswith("ratios") for table in shown.more)
    found = judged("zhao2018", observed)
    assert {found[number].verdict for number in range(2, 7)} == {"not measured"}
