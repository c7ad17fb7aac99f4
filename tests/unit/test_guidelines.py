"""Performance guidelines: violations are found, what holds is not called one, what was not measured is not judged."""

from __future__ import annotations

from pathlib import Path

from tests.unit.made_runs import Entry, made_case, spread, write_run

from collbench.analysis.guidelines import MONOTONE, RULES, GuidelineResult, check
from collbench.analysis.runs import observe
from collbench.schema.case import Case

US = 1e-6


def operation(name: str, size: int = 1024) -> Case:
    return made_case(workload=name, size=size, op="sum" if "reduce" in name else None,
                     root=0 if name in ("bcast", "gather", "scatter", "reduce") else None)  # fmt: skip


def findings(path: Path, times: dict[str, float], size: int = 1024) -> dict[str, GuidelineResult]:
    cells: dict[Case, list[Entry]] = {operation(name, size): list(spread(time * US)) for name, time in times.items()}
    return {one.rule: one for one in check(observe(write_run(path, cells)))}


def test_an_allreduce_slower_than_reduce_and_bcast_is_a_finding(tmp_path: Path) -> None:
    found = findings(tmp_path / "run", {"allreduce": 100, "reduce": 30, "bcast": 20})
    one = found["allreduce <= reduce + bcast"]
    assert one.state == "violated" and round(one.ratio.value, 6) == 2.0


def test_what_holds_is_no_finding(tmp_path: Path) -> None:
    found = findings(
        tmp_path / "run", {"allreduce": 40, "reduce": 30, "bcast": 20, "scatter": 15, "allgather": 10, "gather": 8}
    )
    assert not any(one.state == "violated" for rule, one in found.items() if rule != "reduce <= allreduce")
    assert found["bcast <= scatter + allgather"].state == found["gather <= allgather"].state == "held"


def test_within_the_margin_is_no_violation(tmp_path: Path) -> None:
    found = findings(tmp_path / "run", {"gather": 10.1, "allgather": 10})
    assert found["gather <= allgather"].state != "violated"


def test_too_few_launches_decide_nothing(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {operation("gather"): [20 * US] * 3, operation("allgather"): [10 * US] * 3}
    (one,) = check(observe(write_run(tmp_path / "run", cells)))
    assert one.state == "undecided"


def test_rules_whose_parts_were_not_measured_are_not_judged(tmp_path: Path) -> None:
    assert not findings(tmp_path / "run", {"allreduce": 100, "gather": 1})


def test_less_data_that_takes_longer_is_a_finding(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        operation("bcast", size): list(spread(time * US)) for size, time in ((8, 5), (1024, 9), (4096, 6))
    }
    found = check(observe(write_run(tmp_path / "run", cells)))
    assert [(one.rule, one.case["size"], one.state == "violated") for one in found] == [
        (MONOTONE, 8, False),
        (MONOTONE, 1024, True),
    ]


def test_places_are_not_mixed(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case("multi", "strict", workload="gather", op=None, root=0, image="a"): list(spread(20 * US)),
        made_case("single", "strict", workload="allgather", op=None, image="a"): list(spread(10 * US)),
    }
    assert not check(observe(write_run(tmp_path / "run", cells)))


def test_every_rule_names_collectives_that_exist() -> None:
    from collbench import collectives

    assert {name for rule in RULES for name in (rule.collective, *rule.parts)} <= set(collectives.names())
