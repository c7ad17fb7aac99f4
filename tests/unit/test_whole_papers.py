"""A paper by all its plans: which of them a machine takes, what they measure of its tables, and its verdicts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_papers import dd, sysbench, write
from tests.unit.made_runs import made_record
from tests.unit.test_papers import (
    ALONE_TRAINING,
    WORLD,
    measured,
    measured_training,
    multi,
    observed_run,
    single,
    trained,
    training,
)  # fmt: skip

from collbench.analysis.papers import kinds_of
from collbench.analysis.runs import runs_in
from collbench.cli import launch
from collbench.cli.plan import PaperChoice, exhibits, is_paper, plans_of
from collbench.errors import EngineError, Interrupted, PlanError
from collbench.launch.expansion import expand
from collbench.launch.placement import Slot
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.registry import find_plan, plans
from collbench.report.paper import paper, papers
from collbench.report.paper_tables import tables_beside
from collbench.report.tables import Table
from collbench.schema.plan import Plan, load_launch_plan
from collbench.schema.record import Record, ResultCheck

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
XU, ZHAO, CHOI = "xu2017", "zhao2018", "choi2021"
SMALL = Topology((Core(0), Core(1)))
LARGE = Topology(tuple(Core(number, number // 32) for number in range(64)),
                 tuple(TopologyGpu(f"GPU-{number}", number // 2) for number in range(4)))  # fmt: skip


class Usual:
    """Flags that nobody gave."""

    def __getattr__(self, name: str) -> None:
        return None


def choices(reference: str, machine: Topology) -> list[PaperChoice]:
    options: Any = Usual()
    return plans_of(paper(reference), options, lambda engine: machine)


@pytest.mark.parametrize("reference", papers())
def test_a_paper_is_no_plan_and_has_plans_that_are_there(reference: str) -> None:
    published = paper(reference)
    named = [name for entry in published.plans for name in entry.names]
    assert reference not in plans() and set(named) <= plans().keys() and len(set(named)) == len(named)
    assert {load_launch_plan(find_plan(name)).paper for name in named} <= {reference, ""}
    assert not any(choice.unfit or choice.expanded is None for choice in choices(reference, LARGE))


def test_a_smaller_plan_takes_the_place_of_one_that_does_not_fit() -> None:
    taken = {reference: [(one.name, one.expanded is not None, one.unfit and one.unfit[0])
                         for one in choices(reference, SMALL)] for reference in (CHOI, ZHAO, XU)}  # fmt: skip
    assert taken == {
        CHOI: [("choi2021-cpu", True, "choi2021-gpu")],
        ZHAO: [("zhao2018-sysbench", True, None), ("zhao2018-ps", True, "zhao2018-grid")],
        XU: [("xu2017-linpack", True, None), ("xu2017-io", True, None), ("xu2017-gpu", False, "xu2017-gpu"),
             ("xu2017-train", True, "xu2017-train-gpu")],
    }  # fmt: skip
    why = choices(CHOI, SMALL)[0].unfit
    assert why is not None and "GPU" in why[1]


def test_what_is_missing_on_one_side_is_no_cell_of_a_table() -> None:
    (choice,) = (one for one in choices(XU, SMALL) if one.name == "xu2017-io")
    for missing, cells in (((), "1 of 1"), (("hpcg",), "0 of 1")):
        rows = exhibits(paper(XU), [choice._replace(missing=missing)]).rows
        assert next(row for row in rows if row[0] == "Table VIII")[-1] == cells


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_a_misspelt_paper_is_refused(here: Collbench, command: str) -> None:
    assert here(command, "xu2018").code == 2


def test_the_manual_has_every_table_and_figure_with_what_is_measured_of_it() -> None:
    """COLLBENCH_UPDATE_GOLDEN=1 writes the table of docs/papers.md anew."""
    rows = []
    for reference in papers():
        small, large = (exhibits(paper(reference), choices(reference, machine)).rows for machine in (SMALL, LARGE))
        for (name, about, plan, cells), (*_, on_large, cells_there) in zip(small, large, strict=True):
            here, there = (f"{number}, `{taken}`" if taken != "-" else "-"
                           for taken, number in ((plan, cells), (on_large, cells_there)))  # fmt: skip
            rows.append(f"| {reference} | {name} | {about} | {here} | {there} |")
    text = PAGE.read_text(encoding="utf-8")
    table = re.compile(r"(?<=with GPUs \|\n\| --- \| --- \| --- \| --- \| --- \|\n)(\|.*\n)*")
    written = table.sub(lambda _: "".join(f"{row}\n" for row in rows), text)
    if os.environ.get("COLLBENCH_UPDATE_GOLDEN") == "1":
        PAGE.write_text(written, encoding="utf-8")
    assert len(rows) == 32 and not any(row.endswith("| - |") for row in rows), "with GPUs there is all of them"
    assert PAGE.read_text(encoding="utf-8") == written


# launch PAPER --------------------------------------------------------------------------------------------------------


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Plans that were performed, each with whether its run was continued; their runs are made up, or there."""
    begun: dict[str, bool] = {}

    def perform(plan: Plan, folder: Path, check: object, purpose: object, before: Plan | None) -> list[Any]:
        begun[folder.name] = before is not None
        if not folder.exists():
            planted = [sysbench("cpu", 1.013)] if "sysbench" in folder.name else [dd(16, 1.0)]
            write(folder, planted, launches=plan.launches, plan=msgspec.to_builtins(plan.document))
        return [made_record(training(single(1, 1)), 0, 1.0)]

    monkeypatch.setattr(launch, "perform", perform)
    monkeypatch.setattr("collbench.cli.plan.expand", lambda plan, machine: expand(plan, lambda engine: SMALL))
    return begun


def test_all_plans_are_performed_and_judged_together(
    here: Collbench, performed: dict[str, bool], tmp_path: Path
) -> None:
    done = here("launch", ZHAO, "--out", tmp_path / "all")
    assert (done.code, performed) == (0, {"zhao2018-sysbench": False, "zhao2018-ps": False})
    assert done.out.startswith("zhao2018: ") and f"collbench report {tmp_path / 'all'} --against zhao2018" in done.out
    assert runs_in(tmp_path / "all") == [tmp_path / "all" / name for name in ("zhao2018-ps", "zhao2018-sysbench")]
    judged = here("compare", tmp_path / "all", "--against", ZHAO)
    assert judged.code == 0 and judged.out.splitlines()[0] == done.out.splitlines()[0]
    (tmp_path / "all" / "zhao2018-ps" / "records.jsonl").write_bytes(b"")
    without = here("compare", tmp_path / "all", "--against", ZHAO)
    assert without.code == 0 and "zhao2018-ps: no records" in without.err
    again = here("launch", ZHAO, "--out", tmp_path / "all")
    assert again.code == 2 and f"--resume {tmp_path / 'all'}" in again.err
    (tmp_path / "all" / "zhao2018-ps" / "manifest.json").unlink()
    assert runs_in(tmp_path / "all") == [tmp_path / "all"], "a single one is no folder of several plans"


def test_a_plan_that_is_refused_leaves_the_others_and_is_continued(
    here: Collbench, performed: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform: Any = launch.perform

    def refusing(plan: Plan, folder: Path, *more: Any) -> Any:
        if folder.name == "zhao2018-ps":
            raise PlanError("image torch: is not there")
        return perform(plan, folder, *more)

    monkeypatch.setattr(launch, "perform", refusing)
    done = here("launch", ZHAO, "--out", tmp_path / "all")
    assert done.code == 1 and "zhao2018-ps was not measured" in done.err
    assert done.err.count("image torch: is not there") == 1
    assert done.out.startswith("zhao2018: ")
    monkeypatch.setattr(launch, "perform", perform)
    assert here("launch", ZHAO, "--resume", tmp_path / "all").code == 0
    assert performed == {"zhao2018-sysbench": True, "zhao2018-ps": False}


def test_what_was_measured_before_an_error_is_judged(
    here: Collbench, performed: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform: Any = launch.perform

    def ending(plan: Plan, folder: Path, *more: Any) -> Any:
        perform(plan, folder, *more)
        raise EngineError("the engine does not answer.")

    monkeypatch.setattr(launch, "perform", ending)
    done = here("launch", ZHAO, "--out", tmp_path / "all")
    assert done.code == 1 and done.out.startswith("zhao2018: ") and all(name in done.err for name in performed)
    assert done.err.count(f"collbench launch zhao2018 --resume {tmp_path / 'all'}") == 2


def test_an_interrupted_paper_says_how_to_continue(
    here: Collbench, performed: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted("interrupted.")

    monkeypatch.setattr(launch, "perform", interrupted)
    done = here("launch", ZHAO, "--out", tmp_path / "all")
    assert done.code == 130 and "--resume" not in done.err
    (tmp_path / "all").mkdir()
    done = here("launch", ZHAO, "--launches", "9", "--out", tmp_path / "all")
    go_on = f"collbench launch zhao2018 --resume {tmp_path / 'all'} --launches 9\n"
    assert done.code == 130 and done.err.endswith(go_on)
    assert here("launch", ZHAO, "--resume", tmp_path / "nowhere").code == 2


def test_a_file_of_a_papers_name_is_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_paper(XU) and not is_paper("xu2017-io")
    (tmp_path / XU).touch()
    (tmp_path / ZHAO).mkdir()
    assert is_paper(ZHAO) and not is_paper(XU)


@pytest.mark.parametrize("words", [
    ("plan", XU, "--order"), ("launch", XU, "--command", "true"), ("launch", XU, "--", "true"),
    ("launch", XU, "--metric", "(x)"),
])  # fmt: skip
def test_what_does_not_go_with_a_paper(here: Collbench, words: tuple[str, ...]) -> None:
    assert here(*words).code == 2


# What papers list beside their conclusions ---------------------------------------------------------------------------


def tables(observed: Any, reference: str) -> dict[str, Table]:
    published = paper(reference)
    return {table.title.split(" ")[0]: table for table in tables_beside(published, kinds_of([observed], published))}


def test_best_mean_and_deviation_over_launches(tmp_path: Path) -> None:
    spread = tables(write(tmp_path / "run", [dd(16, 2.0)]), XU)["spread"]
    host, inside, *published = spread.rows
    assert (host[0], host[1], inside[1]) == ("dd", "host", "multi strict")
    rate = float(host[3])
    assert float(host[2]) == rate and float(host[4]) == 0 and float(inside[3]) == pytest.approx(rate / 2, rel=0.01)
    assert float(inside[4]) > 0 and published[0][2:] == ("322.0", "306.5", "19.61")
    assert tables(write(tmp_path / "other", [sysbench("cpu", 1.0)]), XU)["spread"].rows == ()


def test_best_and_worst_of_collectives(tmp_path: Path) -> None:
    rows = {row[:2]: row[2:] for row in tables(measured(tmp_path / "run", WORLD), CHOI)["best"].rows}
    assert len(rows) == 11, "1 to 4 workers of two operations, 2 to 4 of another"
    assert rows["ps_bcast", "4"] == ("multi CUDA-aware Open MPI", "single MPICH", "200.00x",
                                     "multi CUDA-aware Open MPI",
                                     "single CUDA-aware Open MPI", "4.01x")  # fmt: skip
    assert rows["allreduce", "3"][3:] == ("", "", "")


def test_curves_are_those_of_the_fastest_cell_of_a_placement(tmp_path: Path) -> None:
    def entries(way: Any, seconds: float, right: float) -> dict[Any, Any]:
        figures = {"accuracy": right, "accuracy at step 500": right / 2, "accuracy at step 1000": right,
                   "seconds at step 500": seconds / 4, "seconds at step 1000": seconds}  # fmt: skip
        ((case, records),) = measured_training(way, [seconds] * 8).items()
        return {
            case: [
                msgspec.structs.replace(one, check=ResultCheck(wrong=0, figures=figures))
                for one in records
                if isinstance(one, Record)
            ]
        }

    ways = {("multi", 0, 1, "variable"): (2.0, 0.9), single(1, 1): (4.0, 0.8), single(1, 2): (3.0, 0.7),
            multi(1, 2): (5.0, 0.6)}  # fmt: skip
    cells = {case: record for way, (seconds, right) in ways.items()
             for case, record in entries(way, seconds, right).items()}  # fmt: skip
    rows = tables(observed_run(tmp_path / "run", cells), ZHAO)["training"].rows
    assert [(row[0].split()[-1], *row[2:]) for row in rows] == [
        ("Single", "500", "0.450", "10.0"), ("Single", "1000", "0.900", "30.0"),
        ("Multiple", "500", "0.350", "30.0"), ("Multiple", "1000", "0.700", "90.0"),
        ("Affinity", "500", "0.300", "50.0"), ("Affinity", "1000", "0.600", "150"),
    ], "ten steps of each worker"  # fmt: skip
    assert tables(trained(tmp_path / "none", ALONE_TRAINING), ZHAO)["training"].rows == ()


# Unpinned ------------------------------------------------------------------------------------------------------------


def test_unpinned_ranks_may_use_every_core() -> None:
    plan = Plan(collectives=("bcast",), images=("openmpi",), policies=("single",), ranks=(2,),
                affinity=("near", "unpinned"))  # fmt: skip
    two, one = (Topology(tuple(Core(number, first_sibling=number % cores) for number in range(4))) for cores in (4, 1))
    pinned, free = expand(plan, lambda engine: two).placements.values()
    assert [slot.cores for slot in pinned.slots] == [(0,), (1,)]
    assert free.slots == (Slot((0, 1, 2, 3), (0,)),) * 2 and len(free.boxes) == 2
    assert (free.crowded, free.idle) == (False, ())
    assert all(place.crowded for place in expand(plan, lambda engine: one).placements.values()), "threads of one core"
    cluster = Topology(tuple(map(Core, range(4))), of_cluster=True)
    with pytest.raises(PlanError, match="unpinned"):
        expand(plan, lambda engine: cluster)
