"""A run beside papers on host and container as it is shown: lines, tables, the page, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_papers import dd, ioping, judged, linpack, training, write

from collbench import collectives, workloads
from collbench.analysis.conclusions import planned_conclusions
from collbench.analysis.papers import Item, Scalar, Selector, matches
from collbench.cli.plan import of_paper, show_cells
from collbench.errors import RequestError
from collbench.launch.cells import worlds_of
from collbench.launch.expansion import expand
from collbench.launch.shipped import find_plan
from collbench.machine.topology import Core, Topology, TopologyGpu
from collbench.report.paper import beside, decidable, paper, papers
from collbench.schema.axes import AXES
from collbench.schema.case import case_of
from collbench.schema.plan import load_launch_plan
from collbench.workloads import use_of
from collbench.workloads.dl.deepbench import Conv, Gemm, Rnn, problems


def test_differences_of_the_paper_stand_beside_those_of_the_run(tmp_path: Path) -> None:
    """As time: -4.263 % of a rate are 4.09 % less time."""
    planted = [dd(16, 0.95), dd(1600, 1.01), ("hpcg", {"n": 64}, 1.005), ioping("latency", 0.98)]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    rows = {row[:2]: row for row in cells.rows}
    assert rows["2", "hpcg"][2:5] == ("holds here", "+0.5 % (+0.4 to +0.6 %)", "pc +0.6 %, server +0.2 %")
    assert rows["4", "dd (count 16)"][4] == "pc -4 %, server -4 %"
    assert rows["5", "dd (count 1600)"][2] == "compared with"
    assert rows["7", "ioping"][4] == "pc -99 %, server -4 %"


def test_each_network_of_a_training_stands_beside_its_bound(tmp_path: Path) -> None:
    other_batch = ("train", {"network": "fcn5", "batch": 1024, "measure": "batch", "storage": "overlay"}, 1.03)
    planted = [*training("batch", 1.02, 1.01, 1.0, 0.99), *training("first", 0.5), other_batch]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    bounds = {row[1]: row[4] for row in cells.rows}
    assert len(bounds) == 6 and set(bounds.values()) == {"both within 5 %", "both within 77 %"}
    assert sum("fcn5" in cell and "batch 1024" in cell for cell in bounds) == 1


@pytest.mark.parametrize("sides", [("host",), ("multi",)])
def test_a_run_of_one_side_is_refused(tmp_path: Path, sides: tuple[str, ...]) -> None:
    observed = write(tmp_path / "run", [dd(16, 1.0)])
    cells = {case: cell for case, cell in observed.cells.items() if case.where.policy in sides}
    with pytest.raises(RequestError, match=r"nothing to compare with xu2017, .*linpack"):
        beside([replace(observed, cells=cells)], paper("xu2017"))


def test_an_unknown_paper_is_answered_with_the_list() -> None:
    files = resources.files("collbench.report") / "reference"
    assert papers() == sorted(file.name.removesuffix(".json") for file in files.iterdir())
    assert {"choi2021", "siddaramanna2018", "xu2017", "zhao2018"} <= set(papers())
    with pytest.raises(
        RequestError, match=r"no such paper. Did you mean xu2017\? There are: choi2021, siddaramanna2018"
    ):
        paper("xu2018x")


def test_published_diff_follows_from_the_results_where_both_are_published() -> None:
    for reference in papers():
        published = paper(reference)
        assert published.reference == reference
        for one in published.experiments:
            if one.host is not None and one.docker is not None:
                assert (one.host - one.docker) / one.host * 100 == pytest.approx(one.diff, abs=0.02)
    laptop = {one.experiment: one.diff for one in paper("zhao2018").experiments if one.cell}
    assert laptop == pytest.approx({"cpu": -1.27, "memory": -3.86, "threads": -22.51, "fileio": 9.96}, abs=0.005)


@pytest.mark.parametrize("ending", ["html", "txt", "csv"])
def test_the_report_has_verdicts_cells_and_assumptions(tmp_path: Path, here: Collbench, ending: str) -> None:
    write(tmp_path / "run", [dd(16, 0.95), ("hpcg", {"n": 64}, 1.005)])
    out = tmp_path / f"report.{ending}"
    told = here("report", tmp_path / "run", "--against", "xu2017", "-o", out)
    assert told.code == 0, told.err
    text = " ".join(unescape(out.read_text(encoding="utf-8")).split())
    for said in ("2 hold here", "Disk, dd: small files are", "pc -4", "cells of xu2017"):
        assert said in text, said
    assert ("ResNet-56" in text) is (ending != "csv")


def test_compare_prints_the_screen_and_with_all_the_cells(
    tmp_path: Path, here: Collbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.report.tables.LONGEST_LINE", 100)
    write(tmp_path / "run", [dd(16, 0.95), dd(8192, 1.03), ("hpcg", {"n": 64}, 1.005)])
    words = ("compare", tmp_path / "run", "--against", "xu2017")
    first, every = here(*words).out, here(*words, "--all").out
    for text in (first, every):
        assert max(map(len, text.splitlines())) <= 100
    assert every.startswith(first.rstrip("\n")) and "cells of xu2017" in every and "cells of xu2017" not in first
    found = json.loads(here(*words, "--style", "json").out)
    (place,) = found["places"]
    assert place["verdicts"] == {"not measured": 6, "holds here": 2, "unclear": 1}
    second, fifth = place["conclusions"][1], place["conclusions"][4]
    assert second["decided_by"]["ratio"]["value"] == pytest.approx(1.005, abs=0.001)
    assert (fifth["measured"], fifth["cells"], fifth["verdict"], fifth["plans"]) == (1, 2, "unclear", ["xu2017"])
    refused = here(*words, "--by", "policy", "--fail-on", "slower")
    assert refused.code == 2 and "--by, --fail-on" in refused.err


def test_the_next_step_is_the_plan_that_measures_the_rest(tmp_path: Path) -> None:
    planted = [*linpack(2000), dd(16, 0.95), dd(8192, 1.03), dd(16384, 1.03)]
    shown = beside([write(tmp_path / "run", planted)], paper("xu2017"))
    assert shown.screen.notes[-1].endswith("xu2017-linpack (for 1), then xu2017 (2,6,7), xu2017-gpu (3), train (8,9)")
    rows = {row[0]: row[2:] for row in shown.screen.rows}
    assert (rows["1"][0], rows["1"][2], rows["2"]) == ("unclear", "1 of 14", ("not measured", "-", "0 of 1"))


def test_an_unknown_paper_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path, "--against", "xu2018", "-o", tmp_path / "report.txt")
    assert told.code == 2 and "xu2018: no such paper. Did you mean xu2017?" in told.err


def test_what_was_not_measured_is_known(tmp_path: Path) -> None:
    found = judged("xu2017", write(tmp_path / "run", [dd(8192, 1.03), *linpack(2000)]))
    assert found[5].parts[0].missing == {"count": (16384,)}
    linpack_ = found[1].parts[0]
    assert (linpack_.support, linpack_.total, linpack_.needed, len(linpack_.missing["n"])) == (1, 14, 8, 13)
    assert found[4].verdict == "not measured"
    assert [part.absent for part in found[3].parts] == [(part.part.of,) for part in found[3].parts]


#: Of each published Diff%, the conclusion that it belongs to; of the others the paper draws none.
OWN = {("hpcg", ""): 2, ("dd", "16"): 4, ("dd", "8192"): 5, ("dd", "16384"): 5, ("ioping", "cached"): 6,
       ("ioping", "direct"): 7, ("ioping", "latency"): 7, ("cpu", ""): 1, ("memory", ""): 1, ("threads", ""): 2,
       ("fileio", ""): 2}  # fmt: skip


@pytest.mark.parametrize(("reference", "machine"), [("xu2017", "pc"), ("xu2017", "server"), ("zhao2018", "laptop")])
def test_what_a_paper_published_confirms_its_conclusions(tmp_path: Path, reference: str, machine: str) -> None:
    """Every published Diff% as if it had been measured, and nothing else."""
    planted, numbers = [], set()
    for one in paper(reference).experiments:
        if one.machine == machine and one.cell is not None and one.diff is not None:
            ratio = 1 - one.diff / 100
            values = dict(one.cell.values)
            files = {"storage": "overlay"} if workloads.get(one.cell.workload).files else {}
            planted.append((one.cell.workload, {**values, **files}, ratio if one.cell.shown == "time" else 1 / ratio))
            which = next((str(values[name]) for name in ("count", "mode") if name in values), "")
            numbers |= {OWN[one.experiment, which]} if (one.experiment, which) in OWN else set()
    found = judged(reference, write(tmp_path / "run", planted, share=1e-6))
    assert {number: found[number].verdict for number in numbers} == dict.fromkeys(numbers, "holds here")
    assert not [one for one in found.values() if one.verdict == "does not hold here"]
    assert len(planted) > 3 and len(numbers) >= 2


def test_runs_of_one_paper_are_judged_together(tmp_path: Path) -> None:
    disk = write(tmp_path / "disk", [dd(16, 0.95), dd(8192, 1.03)])
    more = write(tmp_path / "more", [dd(16384, 1.03), ("hpcg", {"n": 64}, 1.0)])
    found = judged("xu2017", disk, more)
    assert [found[number].verdict for number in (2, 4, 5)] == ["holds here"] * 3
    assert [Path(one.sides[0].run).name for one in found[5].evidence] == ["disk", "more"]
    shown = beside([disk, more], paper("xu2017"))
    assert shown.runs == (disk.name, more.name)
    cells = next(table for table in shown.more if table.title.startswith("cells"))
    assert "run" in cells.columns


def test_what_two_runs_of_one_machine_measured_must_agree(tmp_path: Path) -> None:
    runs = [write(tmp_path / str(ratio), [dd(16, ratio)]) for ratio in (0.95, 1.05)]
    assert judged("xu2017", *runs)[4].verdict == "does not hold here"
    assert judged("xu2017", runs[0])[4].verdict == "holds here"


def test_one_cell_on_two_machines_is_refused(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, [dd(16, ratio)]) for name, ratio in (("a", 0.95), ("b", 1.05)))
    other = write(tmp_path / "c", [("hpcg", {"n": 64}, 1.0)])
    manifest = second.manifests[0]
    hosts = tuple(msgspec.structs.replace(host, name="another") for host in manifest.hosts)
    moved, apart = (
        replace(run, manifests=(msgspec.structs.replace(manifest, hosts=hosts),)) for run in (second, other)
    )
    with pytest.raises(
        RequestError, match=f"{first.name} and {moved.name} measured dd on different machines .*another"
    ):
        beside([first, moved, other], paper("xu2017"))
    assert beside([first, apart], paper("xu2017")).runs == (first.name, apart.name)


def test_several_runs_have_one_chapter_beside_the_paper(tmp_path: Path, here: Collbench) -> None:
    for name, planted in (("disk", [dd(16, 0.95)]), ("cpu", [("hpcg", {"n": 64}, 1.005)])):
        write(tmp_path / name, planted)
    out = tmp_path / "report.md"
    told = here("report", tmp_path / "disk", tmp_path / "cpu", "--against", "xu2017", "-o", out)
    assert told.code == 0, told.err
    text = out.read_text(encoding="utf-8")
    assert text.count("### conclusions of xu2017") == 1


def test_what_papers_name_is_what_benchmarks_have() -> None:
    """Workloads, axes, measures, and values that these may have."""
    for reference in papers():
        published = paper(reference)
        for part in published.parts:
            grid = {name: values for name, values in part.grid.items() if not isinstance(values, int)}
            for selector in part.selectors:
                _has_values(selector, {**selector.values, **({} if selector is part.than else _own(grid))})
            for name in (*part.at, *part.grid):
                assert name.removeprefix("than.") in _axes(part.of.workload), (reference, name)
        others = [one for conclusion in published.conclusions for one in conclusion.beside]
        others += [one.cell for one in published.experiments if one.cell]
        others += [one.cell for one in published.figures]
        others += [one for ratio in published.ratios for one in (ratio.of, ratio.over)]
        for selector in others:
            _has_values(selector, selector.values)


def _axes(pattern: str) -> set[str]:
    """Those of all workloads of a pattern, and two that items have besides."""
    fitting = [name for name in (*workloads.names(), *collectives.names()) if matches(name, pattern)]
    assert fitting, pattern
    own = [{axis.name for axis in workloads.get(name).axes} for name in fitting if name in workloads.names()]
    return set.intersection(*own or [set()]) | {*AXES, "measure", "library", "workers", "workload"}


def _own(grid: Mapping[str, tuple[Scalar, ...]]) -> dict[str, tuple[Scalar, ...]]:
    return {name: values for name, values in grid.items() if not name.startswith("than.")}


def _has_values(selector: Selector, values: Mapping[str, Scalar | tuple[Scalar, ...]]) -> None:
    assert _axes(selector.workload) >= set(values), selector
    if selector.workload not in workloads.names():  # collectives have no values of their own
        return
    row = workloads.get(selector.workload)
    checks = {axis.name: axis.plan_key.check for axis in row.axes if axis.plan_key is not None}
    for name, value in values.items():
        for one in value if isinstance(value, tuple) else (value,):
            if name == "measure":
                assert one in {measure.name for measure in row.measures}, selector
            elif name in checks and "*" not in str(one):
                checks[name](name, one)


def test_the_plans_of_a_conclusion_measure_it() -> None:
    for reference in papers():
        for conclusion in paper(reference).conclusions:
            for name in conclusion.plans:
                found = of_paper(expand(load_launch_plan(find_plan(name)), lambda _: MACHINE))
                assert found is not None and found[0].reference == reference
                (judgement,) = [one for one in found[1] if one.conclusion.number == conclusion.number]
                assert sum(part.open for part in judgement.parts) > 0, (reference, conclusion.number, name)


def test_the_cells_of_deepbench_are_those_of_its_tables() -> None:
    kinds = {"deepbench_gemm": Gemm, "deepbench_conv": Conv, "deepbench_rnn": Rnn}
    counted = 0
    for part in paper("siddaramanna2018").parts:
        if part.of.workload in kinds:
            pattern = str(part.of.values.get("problem", "*"))
            names = [name for name in problems(kinds[part.of.workload]) if matches(name, pattern)]
            assert part.total == len(names), part
            counted += 1
    assert counted == 5


#: Plans of papers: conclusions that they can confirm, and that they can refute.
PLANS = {
    "xu2017": ({2, 4, 5, 6, 7}, {2, 4, 5, 6, 7}),
    "xu2017-linpack": ({1}, {1}),
    "xu2017-gpu": ({3}, {3}),
    "train": ({8, 9}, {8, 9}),
    "choi2021-cpu": (set(), {1}),
    "choi2021": (set(), {1}),
    "choi2021-gpu": ({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}),
    "gpu-affinity": ({4}, {3, 4}),
    "zhao2018-ps": (set(), {5, 6}),
    "zhao2018-sysbench": ({1, 2}, {1, 2}),
    "siddaramanna2018-cpu": (set(), {1}),
    "fathom": ({5}, {5}),
}


CORES = tuple(Core(number, node=number % 2) for number in range(32))
MACHINE = Topology(CORES, tuple(TopologyGpu(f"GPU-{letter}", node=0) for letter in "abcd"))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_says_what_it_can_decide_of_its_paper(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = load_launch_plan(find_plan(name))
    expanded = expand(plan, lambda _: MACHINE)
    found = of_paper(expanded)
    assert found is not None and found[0].reference == plan.paper
    confirms = {one.conclusion.number for one in found[1] if one.can_confirm}
    refutes = {one.conclusion.number for one in found[1] if one.can_refute}
    assert (confirms, refutes) == PLANS[name]
    show_cells(expanded)
    assert f"conclusions of {plan.paper}" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["host", "docker"])
def test_what_needs_a_program_that_is_missing_cannot_be_decided(engine: str) -> None:
    expanded = expand(load_launch_plan(find_plan("xu2017")), lambda _: MACHINE)
    found = of_paper(expanded, {(engine, "tools", None): {"hpcg": "xhpcg was not found"}})
    assert found is not None
    published, judged, lacking = found
    decided = {one.conclusion.number for one in judged if one.can_confirm or one.can_refute}
    assert (decided, set(lacking)) == ({4, 5, 6, 7}, {"hpcg"})
    said = {line.split(":")[0]: line for line in decidable(published, judged, lacking)[1:]}
    assert set(said) == {f"  conclusion {number}" for number in (1, 2, 3, 8, 9)}
    assert ["hpcg" in line for line in said.values()] == [False, True, False, False, False]


def test_of_a_program_with_alternatives_the_one_that_is_missing_counts() -> None:
    expanded = expand(load_launch_plan(find_plan("xu2017-linpack")), lambda _: MACHINE)
    (image,) = expanded.plan.images
    (used,) = {use_of(case) for cases in expanded.expected.values() for case in cases}
    for use, lacking in ((used, {"linpack"}), ("linpack blas=another", set())):
        found = of_paper(expanded, {("host", image, None): {use: "not found"}})
        assert found is not None and found[2] == lacking


def test_what_others_are_compared_with_must_be_planned() -> None:
    cases = [case_of(f"sysbench_{test}", {"image": "tools"}) for test in ("threads", "fileio", "cpu", "memory")]
    cases[3] = cases[3].having(access="write")
    inside = [case.having(engine="docker", policy="multi", isolation="strict") for case in cases]
    for number, able in ((4, True), (3, False)):
        items = [Item(case) for case in (*cases[:number], *inside[:number])]
        found = {one.conclusion.number: one for one in planned_conclusions(paper("zhao2018"), items)}
        assert (found[2].can_confirm, found[2].can_refute) == (able, True)


@pytest.mark.parametrize("name", ["choi2021", "choi2021-gpu"])
def test_the_plans_of_collectives_have_no_world_of_one_rank(name: str) -> None:
    plan = load_launch_plan(find_plan(name))
    assert 1 in plan.workers and min(ranks for ranks, _ in worlds_of(plan)) == 2


def test_a_plan_of_an_unknown_paper_is_refused(tmp_path: Path, here: Collbench) -> None:
    text = 'images = ["tools"]\npolicies = ["host"]\nbenchmarks = ["stream"]\npaper = "xu2018"\n'
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    told = here("plan", tmp_path / "plan.toml")
    assert told.code == 2 and "xu2017" in told.err


def test_a_report_that_could_not_be_written_is_refused_before_the_run_is_read(tmp_path: Path, here: Collbench) -> None:
    told = here("report", tmp_path / "none", "-o", tmp_path / "nowhere" / "x.html")
    assert told.code != 0 and told.err.endswith(f"x.html: there is no folder {tmp_path / 'nowhere'}.\n")
