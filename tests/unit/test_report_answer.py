"""The first lines of a report answer its question: what a container costs, and of which operation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.advised_runs import US, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, experiment, image, library, made_case, spread, write_run

from collbench.analysis.compare import Reason
from collbench.analysis.own_sides import planned
from collbench.analysis.runs import observe
from collbench.report.cells import tables
from collbench.report.page.contents import chapter
from collbench.report.page.render import MOST_WORDS, Chapter, seen_at_once
from collbench.report.paper import beside, paper
from collbench.report.verdict import what_tells
from collbench.schema.case import Case

PLACES = {("host", None): 10.0, ("single", "ipc"): 15.0, ("single", "strict"): 20.0}


def told(path: Path, cells: dict[Case, list[Entry]]) -> Chapter:
    return chapter(observe(write_run(path, cells)), {}, 0.02, figures=False)


def test_what_the_most_isolated_place_costs_comes_first_and_the_operation_is_named(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case(*place, size=size): [*spread(time * US)] for place, time in PLACES.items() for size in (8, 64)
    }
    cost, take, *_ = told(tmp_path / "run", cells).answer
    assert cost.startswith("allreduce sum float32, single strict vs host: slower by a factor of 2.00")
    assert take.startswith("allreduce: take host")


def test_of_several_operations_and_of_one_policy_the_cost_is_told_too(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case(*place, op=op): [*spread(time * US)] for place, time in PLACES.items() for op in ("sum", "max")
    }
    cost, *_ = told(tmp_path / "run", cells).answer
    assert "single strict" in cost and "host" in cost
    found = planned(observe(tmp_path / "run"))
    assert {one.pair.base.case["op"] for one in found if one.pair.other_name == "single strict"} == {"sum", "max"}
    assert all(one.verdict == "slower" for one in found if one.pair.other_name == "single strict")
    contained = {case: times for case, times in cells.items() if not case.where.on_host}
    cost, *_ = told(tmp_path / "contained", contained).answer
    assert cost.startswith("strict vs ipc: slower")
    alone = {case: times for case, times in cells.items() if case.where.on_host}
    assert not any(" vs " in line for line in told(tmp_path / "alone", alone).answer)


def test_conclusions_of_a_paper_are_counted_at_every_step(tmp_path: Path) -> None:
    """Two containers take twice the time of one at the strict step, and less at the other one."""
    times = {("multi", "strict"): 10, ("single", "strict"): 20, ("multi", "ipc"): 10, ("single", "ipc"): 5}
    cells: dict[Case, list[Entry]] = {
        made_case(policy, step, image="openmpi", workload=name, op=None if name[:2] == "ps" else "sum",
                  root=0 if name[:2] == "ps" else None): [*spread(time * US)]
        for (policy, step), time in times.items() for name in ("ps_bcast", "allreduce")
    }  # fmt: skip
    sides = (image("openmpi", libraries=(library(),)),)
    known = experiment(("openmpi",), images=sides, environments=sides)
    observed = observe(write_run(tmp_path / "run", cells, experiment=known))
    shown = beside([observed], paper("choi2021"))
    places = {place["isolation"]: place["verdicts"] for place in shown.document["places"]}
    assert places == {
        "strict": {"unclear": 1, "not measured": 4}, "ipc": {"does not hold here": 1, "not measured": 4}
    }  # fmt: skip
    tables = shown.more
    texts = [cell for table in tables for row in (table.columns, *table.rows) for cell in row]
    assert any("ps_bcast, 1 worker: " in text for text in texts)
    assert not any("1 GPU:" in text for text in texts)


def test_advise_names_the_gravest_of_what_could_mislead_and_all_with_why(here: Collbench, tmp_path: Path) -> None:
    host = [US * (1 + launch % 2) for launch in range(8)]
    cells: dict[Case, list[Entry]] = {
        made_case(): [*host], made_case("multi", "strict"): [*spread(9 * US, 8)],
        made_case("single", "strict"): ["died"] * 8,
    }  # fmt: skip
    known = experiment(("openmpi",), launches=8, left_out=("a step that is missing",), differences=("another Python",))
    run = write_run(tmp_path / "run", cells, experiment=known)
    brief = here("advise", run).out
    whole = here("advise", run, "--why").out
    for line, first in (("measurements failed: died", True), ("another Python", False)):
        assert (line in brief) is first and line in whole
    assert "another Python" in here("advise", run, "--style", "json").out


def test_an_answer_is_seen_at_once_and_what_is_longer_is_folded() -> None:
    line = " ".join(["word"] * 20 + ["5 %"])
    assert MOST_WORDS == 60
    assert [seen_at_once([line] * lines) for lines in (1, 2, 3, 4)] == [1, 2, 2, 2], "signs are no words"
    assert seen_at_once([line * 9, line]) == 1


def test_the_size_of_a_small_file_is_not_zero(here: Collbench, tmp_path: Path) -> None:
    cells = {made_case(*place): spread(time * US) for place, time in PLACES.items()}
    out = here("report", write_run(tmp_path / "run", cells), "-o", tmp_path / "x.txt").out
    assert out.endswith(f": {-(-(tmp_path / 'x.txt').stat().st_size // 1000)} kB\n")


def test_reasons_that_differ_in_a_number_are_one(tmp_path: Path) -> None:
    (one,) = planned(observe(two_libraries(tmp_path / "run", {8: (10, 20)})))
    drifting = [replace(one, verdict="unclear", launches_more=None, why=Reason("drift", (share,)))
                for share in (0.1, 0.11)]  # fmt: skip
    others = [
        replace(one, verdict="unclear", launches_more=None, why=Reason(kind))
        for kind in ("clock 0", "dependent", "no common blocks", "no launches")
    ]
    assert len(what_tells(drifting).split("; ")) == 1 and "11 %" in what_tells(drifting)
    assert what_tells([*drifting, *others]).split("; ")[4:] == ["1 other reason"]


def test_a_table_for_a_column_of_a_paper_has_few_columns(tmp_path: Path) -> None:
    """One image a table: what the base took, the difference and the verdict without what it lacks."""
    found = planned(observe(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (10, 20)})))
    found[0] = replace(found[0], verdict="unclear", why=Reason("dependent"))
    whole, narrow = tables(found), tables(found, narrow=True)
    assert {"other (us)", "launches"} <= set(whole[0].columns)
    columns = ("size (B)", "mpich (us)", "difference (%)", "difference 95 %", "verdict")
    assert [table.columns for table in narrow] == [columns]
    assert [row[-1] for table in narrow for row in table.rows] == ["unclear", "faster"]
