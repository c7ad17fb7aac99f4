"""What advice is asked about: values that are given, runs that are read together, what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.advised_runs import US, advice_on, ladder
from tests.unit.conftest import Collbench
from tests.unit.made_runs import (
    Entry,
    experiment,
    host,
    library,
    made_case,
    made_record,
    spread,
    write_launches,
    write_run,
)
from tests.unit.made_runs import image as made_image

from collbench.analysis.advise import advise, pair_of
from collbench.analysis.options import merged, parse_given, questions
from collbench.analysis.pairs import method_differences
from collbench.analysis.runs import observe
from collbench.analysis.tradeoffs import recoveries
from collbench.errors import RequestError
from collbench.schema.case import Case, case_of


def test_what_is_given_leaves_the_rest_to_choose(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"), policy="single")
    assert advice.question.varying == ("isolation",)
    assert advice.question.name(advice.ranges[0].option) == "ipc"


def test_a_step_that_is_given_leaves_the_host_in(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"), isolation="strict")
    assert {option["policy"] for option in advice.question.options} == {"host", "multi", "single"}


@pytest.mark.parametrize(
    ("factor", "value", "left"),
    [("engine", "docker", 2), ("engine", "host", 1), ("affinity", "near", 3), ("in-place", "false", 3),
     ("in-place", "no", 3),
     ("dtype", "float32", 3), ("policy", "single strict", 1), ("policy", "single", 2), ("isolation", "none", 1),
     ("graph", "0", 3)],
)  # fmt: skip
def test_every_factor_of_compare_can_be_given_by_the_names_that_its_sides_have(
    tmp_path: Path, factor: str, value: str, left: int
) -> None:
    cases = [made_case(image="openmpi"), *(made_case("single", step, image="openmpi") for step in ("net", "strict"))]
    observed = observe(write_run(tmp_path / "run", {case: spread(1e-6, 7) for case in cases}))
    (question,) = questions(observed, parse_given([f"{factor}={value}"]))
    assert len(question.options) == left


def test_the_host_is_what_isolation_costs_more_than_on_every_engine(tmp_path: Path) -> None:
    cases = {made_case(image="openmpi"): 1e-6}
    for engine in ("docker", "podman"):
        cases |= {made_case("single", step, image="openmpi", engine=engine): time
                  for step, time in (("net", 2e-6), ("strict", 3e-6))}  # fmt: skip
    observed = observe(write_run(tmp_path / "run", {case: spread(time, 7) for case, time in cases.items()}))
    (question,) = questions(observed, {})
    found = recoveries(question, 1024, observed.interleaved)
    assert {(one.isolated["engine"], one.free["policy"]) for one in found} == {("docker", "host"), ("podman", "host")}


def test_given_values_that_do_not_exist_are_answered_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="policy is host, multi, single"):
        advice_on(ladder(tmp_path / "run"), policy="singel")


@pytest.mark.parametrize(
    ("text", "said"), [("policy", "FACTOR=VALUE"), ("polcy=single", "Did you mean policy"), ("=x", "factor")]
)
def test_given_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse_given([text])


def test_numbers_of_ranks_are_questions_of_their_own(tmp_path: Path) -> None:
    cells = {made_case(image=image, ranks=ranks): spread(time * US)
             for ranks in (2, 4) for image, time in (("a", 10 * ranks), ("b", 50 / ranks))}  # fmt: skip
    found = {
        one.question.case.where.ranks: one.question.name(one.ranges[0].option)
        for one in advice_on(write_run(tmp_path / "r", cells))
    }
    assert found == {2: "a", 4: "b"}


def test_cells_measured_in_another_way_are_not_advised_against(tmp_path: Path) -> None:

    quick, odd = made_case(image="a"), made_case(image="b")
    late = [made_record(odd, launch, 20 * US, gate="barrier") for launch in range(10)]
    (advice,) = advice_on(write_run(tmp_path / "run", {quick: spread(10 * US), odd: late}))
    ((option, why),) = advice.sizes[0].apart.items()
    assert (advice.question.name(option), why.kind) == ("b", "not comparable")
    assert why.why is not None
    assert why.why.values == method_differences(pair_of(advice.question, 1024, *advice.question.options))


def test_options_are_named_with_their_hosts_where_these_vary(tmp_path: Path) -> None:
    one, two = (made_case("host", image="openmpi", engine="slurm", hosts=hosts) for hosts in (1, 2))
    (advice,) = advice_on(write_run(tmp_path / "run", {one: spread(10 * US), two: spread(20 * US)}))
    assert list(map(advice.question.name, advice.sizes[0].options)) == ["hosts 1", "hosts 2"]


def test_failed_skipped_and_zero_cells_are_left_out(tmp_path: Path) -> None:
    cells: dict[Case, list[Entry]] = {
        made_case(image="a"): list(spread(10 * US)),
        made_case(image="b"): ["died"] * 10,
        made_case(image="c"): [0.0] * 10,
    }
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert list(map(advice.question.name, advice.sizes[0].options)) == ["a"]
    assert set(map(advice.question.name, advice.sizes[0].apart)) == {"b", "c"}


def test_a_size_with_one_option_is_no_contest(tmp_path: Path) -> None:
    cells = {made_case(image="a", size=size): spread(10 * US) for size in (8, 64)}
    cells[made_case(image="b", size=8)] = spread(20 * US)
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert [(one.size, one.known) for one in advice.sizes] == [(8, True), (64, False)]
    assert len(advice.ranges) == 2


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    (advice,) = advice_on(write_run(tmp_path / "run", {made_case(image="a"): ["died"] * 3}))
    assert not advice.sizes and not advice.ranges


def test_runs_with_different_libraries_advise_together(tmp_path: Path) -> None:
    openmpi = write_launches(tmp_path / "o", {made_case(): spread(10 * US)})
    mpich = write_launches(tmp_path / "m", {made_case(): spread(20 * US)}, libraries=(library("MPICH", "5.0.2"),),
                           launcher="MPICH's mpiexec")  # fmt: skip
    together = merged([observe(openmpi), observe(mpich)])
    (advice,) = advise(questions(together, {}), together.interleaved)
    assert advice.question.name(advice.ranges[0].option) == "Open MPI 5.0.11"
    assert [len(cell.medians) for cell in together.cells.values()] == [10, 10]


def test_an_image_that_another_run_does_not_have_keeps_its_name(tmp_path: Path) -> None:
    sides = {"a": made_image("a"), "b": made_image("b", libraries=(library("MPICH", "5.0.2"),))}
    runs = [
        observe(write_run(
            tmp_path / name, {made_case(image=name): spread(10 * US)}, libraries=side.libraries,
            experiment=experiment((name,), images=(side,), environments=(side,)),
        ))
        for name, side in sides.items()
    ]  # fmt: skip
    assert {case.where.image for case in merged(runs).cells} == {"a", "b"}


def test_runs_of_different_machines_do_not_advise_together_unless_told_to(tmp_path: Path) -> None:
    one = write_run(tmp_path / "1", {made_case(): [US]})
    other = write_run(tmp_path / "2", {made_case(): [US]}, hosts=(host(cpu="Xeon"),))
    with pytest.raises(RequestError, match=r"cpu EPYC 7003 against Xeon.*--ignore cpu"):
        merged([observe(one), observe(other)])
    assert merged([observe(one), observe(other)], frozenset({"cpu"})).cells


def copying(block: int) -> Case:
    """A case of a program with an axis of its own."""
    return case_of("dd", {"measure": "copy", "block": block, "driver": "native"})


def test_an_axis_of_a_workloads_own_can_be_given(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {copying(block): spread(1e-6, 7) for block in (4096, 65536)})
    found = here("advise", run, "--given", "block=4096")
    assert found.code == 0 and "block 4096" in found.out and "block 65536" not in found.out
    assert "block is 4096, 65536" in here("advise", run, "--given", "block=1").err
    assert here("report", run, "--given", "block=4096", "-o", tmp_path / "report.md").code == 0
    unknown = here("advise", run, "--given", "zzz=1").err
    listed = unknown.partition("There are: ")[2].rstrip(".\n").split(", ")
    assert "block" in listed and len(listed) == len(set(listed))


def test_one_option_alone_is_no_table_of_choices(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {copying(4096): spread(1e-6, 7)})
    (entry,) = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [(one["take"], list(one["options"])) for one in entry["sizes"]] == [(None, ["host"])]


@pytest.mark.parametrize("value", ["yes", "true", "True"])
def test_booleans_are_yes_and_no(here: Collbench, tmp_path: Path, value: str) -> None:
    run = write_run(tmp_path / "run", {made_case(in_place=place): spread(1e-6, 7) for place in (False, True)})
    assert here("advise", run, "--given", f"in-place={value}").code == 0
    assert "where in-place is no, yes." in here("advise", run, "--given", "in-place=maybe").err
    assert here("compare", run, "--by", "in-place").out.startswith("yes vs no: ")
    found = here("compare", run, "--by", "in-place", "--between", f"{value},no")
    assert found.code == 0 and found.out.startswith("no vs yes: ")
