"""Which cells of two sides are paired: environments, programs, engines, libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.unit.made_program_runs import program_record
from tests.unit.made_runs import (
    Entry,
    experiment,
    gpu,
    host,
    image,
    library,
    made_case,
    made_record,
    protocol,
    spread,
    write_launches,
    write_run,
)

from collbench.analysis.compare import compare
from collbench.analysis.environment import facts
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Differences, Pair, across, alike, within, without_partner
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError, RunReadError
from collbench.report.cells import tables
from collbench.schema.axes import Value
from collbench.schema.case import Case, Where, case_of
from collbench.schema.manifest import Allocation, Library

TIMES = [1e-6, 2e-6]
NOTHING = frozenset[str]()


def sides(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.base_name, pair.other_name) for pair in pairs]


def pairs_of(folder: Path, by: str, *cases: Case, between: tuple[str, ...] = (), ignored: frozenset[str] = NOTHING,
             **fields: Any) -> list[Pair]:  # fmt: skip
    run = write_run(folder / "run", dict.fromkeys(cases, TIMES), **fields)
    return within(observe(run), find_factor(by), ignored, between)


def placed(policy: str, step: str | None = None, **fields: Any) -> Case:
    return made_case(policy, step, **{"image": "openmpi"} | fields)


def test_the_host_is_what_every_place_is_held_against(tmp_path: Path) -> None:
    cases = [placed("single", "strict"), placed("multi", "net"), placed("multi", "strict"), placed("host"),
             placed("packed:2", "strict")]  # fmt: skip
    found = sides(pairs_of(tmp_path, "policy", *cases))
    assert {base for base, _ in found} == {"host"}
    assert sorted(other for _, other in found) == ["multi net", "multi strict", "packed:2 strict", "single strict"]


def test_without_a_host_policies_meet_at_one_step(tmp_path: Path) -> None:
    cases = [placed(policy, step) for policy in ("single", "multi") for step in ("net", "strict")]
    found = sides(pairs_of(tmp_path, "policy", *cases, placed("single", "ipc")))
    assert sorted(found) == [("multi net", "single net"), ("multi strict", "single strict")]


def test_near_and_far_memory_are_never_mixed(tmp_path: Path) -> None:
    cases = [placed(policy, None if policy == "host" else "strict", affinity=memory)
             for policy in ("host", "multi") for memory in ("near", "far")]  # fmt: skip
    found = sides(pairs_of(tmp_path, "policy", *cases))
    assert sorted(found) == [("host", "multi strict"), ("host far", "multi strict far")]


def test_policies_of_two_engines_are_never_mixed(tmp_path: Path) -> None:
    cases = [placed("multi", "strict"), placed("single", "strict", engine="podman")]
    with pytest.raises(RequestError, match=r"by policy\b.*multi strict, single strict"):
        pairs_of(tmp_path / "1", "policy", *cases)
    assert sides(pairs_of(tmp_path / "2", "policy", *cases, placed("single", "strict"))) == [
        ("multi strict", "single strict")
    ]
    assert len(pairs_of(tmp_path / "3", "policy", *cases, placed("host"))) == 2


def test_engines_meet_at_one_policy_and_step(tmp_path: Path) -> None:
    cases = [placed(policy, step, engine=engine) for engine in ("docker", "podman")
             for policy, step in (("multi", "net"), ("single", "strict"), ("multi", "strict"))]  # fmt: skip
    found = pairs_of(tmp_path / "1", "engine", *cases)
    assert set(sides(found)) == {
        (f"docker {place}", f"podman {place}") for place in ("multi net", "single strict", "multi strict")
    }
    assert sides(pairs_of(tmp_path / "2", "engine", *cases, between=("podman", "docker"))) == [
        (other, base) for base, other in sides(found)
    ]
    beside_host = sides(pairs_of(tmp_path / "3", "engine", *cases, placed("host")))
    assert sorted(beside_host) == sorted(("host", side) for pair in sides(found) for side in pair)


def test_between_two_sides_the_first_is_the_base(tmp_path: Path) -> None:
    cases = [placed("host"), placed("multi", "strict"), placed("single", "strict")]
    assert sides(pairs_of(tmp_path / "1", "policy", *cases, between=("single", "multi"))) == [
        ("single strict", "multi strict")
    ]
    assert sides(pairs_of(tmp_path / "2", "policy", *cases, between=("multi strict", "host"))) == [
        ("multi strict", "host")
    ]


def test_a_policy_without_a_step_means_each_of_its_steps(tmp_path: Path) -> None:
    cases = [placed("host"), *(placed("multi", step) for step in ("net", "strict")), placed("single", "net")]
    for number, between in enumerate((("host", "multi"), ("multi", "host"))):
        found = sides(pairs_of(tmp_path / str(number), "policy", *cases, between=between))
        assert sorted(map(sorted, found)) == [["host", "multi net"], ["host", "multi strict"]]
        assert {pair[number] for pair in found} == {"host"}


def test_steps_of_one_policy_are_held_against_the_least_isolated(tmp_path: Path) -> None:
    cases = [placed("multi", step) for step in ("strict", "visible", "net")]
    assert sides(pairs_of(tmp_path, "isolation", *cases)) == [("visible", "net"), ("visible", "strict")]


def test_everything_shared_but_files_is_the_least_isolated(tmp_path: Path) -> None:
    cases = [placed("multi", step) for step in ("strict", "visible", "files")]
    assert sides(pairs_of(tmp_path, "isolation", *cases)) == [("files", "visible"), ("files", "strict")]


def test_images_meet_place_by_place_and_size_by_size(tmp_path: Path) -> None:
    cases = [placed(policy, step, image=name, size=size) for name in ("mpich", "openmpi") for size in (8, 64)
             for policy, step in (("host", None), ("multi", "strict"))]  # fmt: skip
    found = pairs_of(tmp_path, "image", *cases)
    assert sides(found) == [("mpich", "openmpi")] * 4
    for pair in found:
        assert pair.base.case.having(image="openmpi") == pair.other.case


@pytest.mark.parametrize(
    ("by", "one", "other"),
    [("backend", "mpi", "torch-gloo"), ("driver", "native", "python"), ("dtype", "float32", "float64"),
     ("op", "max", "sum"), ("staging", "pageable", "pinned"), ("algorithm", "Ring", "Tree"), ("in-place", False, True),
     ("thread-level", "multiple", "single"), ("root", 0, 1), ("registered", False, True), ("graph", 0, 8)],
)  # fmt: skip
def test_every_field_that_may_differ_is_a_question(tmp_path: Path, by: str, one: Any, other: Any) -> None:
    cases = [made_case(**{by.replace("-", "_"): value}) for value in (other, one)]
    [pair] = pairs_of(tmp_path, by, *cases)
    names = [("no", "yes")[value] if isinstance(value, bool) else str(value) for value in (one, other)]
    assert [pair.base_name, pair.other_name] == names
    assert not alike(pair, True).refused


def test_what_is_no_pair_is_refused_with_what_would_make_it_one(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    two_dtypes = [made_case(dtype="float32", size=8), made_case(dtype="float64", size=16)]
    three_ways = [two_dtypes[0], two_dtypes[1].having(thread_level="multiple")]
    three_stacks = [made_case(image=image, backend=backend)
                    for image, backend in (("openmpi", "mpi"), ("mpich", "mpi"), ("torch", "torch-gloo"))]  # fmt: skip
    asked: list[tuple[str, list[Case], dict[str, Any]]] = [
        ("dtype", two_dtypes, {}), ("backend", two_dtypes, {}), ("policy", two_dtypes, {"between": ("multi", "host")}),
        ("dtype", three_ways, {}), ("backend", three_stacks, {}), ("polcy", two_dtypes, {}),
    ]  # fmt: skip
    sentences = []
    for number, (by, cases, between) in enumerate(asked):
        with pytest.raises(RequestError) as refused:
            pairs_of(tmp_path / str(number), by, *cases, **between)
        sentences.append(f"{str(refused.value).replace(str(tmp_path), 'TMP')}\n")
    golden("pairs-refusals.txt", "\n".join(sentences))
    assert len(pairs_of(tmp_path / "dtypes", "dtype", *two_dtypes, ignored=frozenset({"size"}))) == 1
    both = frozenset({"size", "thread-level"})
    assert len(pairs_of(tmp_path / "ways", "dtype", *three_ways, ignored=both)) == 1
    stacks = sides(pairs_of(tmp_path / "stacks", "backend", *three_stacks, ignored=frozenset({"image"})))
    assert stacks == [("mpi", "torch-gloo")]


def test_factors_are_named_in_any_writing_and_the_nearest_where_unknown() -> None:
    with pytest.raises(RequestError, match=r"\blibrary\b"):
        find_factor("libary", {"library"})
    assert find_factor("Thread_Level").name == "thread-level"


def test_what_alone_is_in_the_way_of_an_own_axis_is_named(tmp_path: Path) -> None:
    """Servers are ranks: a world with more of them has more ranks, and without that there is something to compare."""
    alone = case_of("parameter_server", {"steps": 10, "servers": 0, "shard": "even", "ranks": 1, "measure": "steps"})
    other = alone.having(servers=1, ranks=3)

    def refused(name: str, *cases: Case) -> str:
        cells: dict[Case, list[Entry]] = {case: [program_record(case, 0, 1.0)] for case in cases}
        observed = observe(write_run(tmp_path / name, cells))
        with pytest.raises(RequestError) as found:
            within(observed, find_factor("servers", own=["servers"]), NOTHING)
        return str(found.value).rpartition("To let other factors differ too: ")[2]

    assert refused("one", alone, alone.having(shard="variable"), other) == "--ignore ranks."
    assert refused("two", alone, other.having(shard="variable")) in (
        "--ignore shard, --ignore ranks.",
        "--ignore ranks, --ignore shard.",
    )


def test_another_dtype_has_no_case_in_common_and_says_what_insists(tmp_path: Path) -> None:
    base = observe(write_run(tmp_path / "a", {made_case(): TIMES}))
    other = observe(write_run(tmp_path / "b", {made_case(dtype="float64"): TIMES}))
    with pytest.raises(RequestError, match=r"dtype float32 against float64.*--ignore dtype"):
        across(base, other, None, NOTHING)
    assert len(across(base, other, None, frozenset({"dtype"}))) == 1
    assert len(across(base, other, find_factor("dtype"), NOTHING)) == 1


def test_two_runs_are_compared_where_both_measured(tmp_path: Path) -> None:
    base = observe(write_run(tmp_path / "a", dict.fromkeys([made_case(size=size) for size in (8, 16, 32)], TIMES)))
    other = observe(write_run(tmp_path / "b", dict.fromkeys([made_case(size=size) for size in (16, 64)], TIMES)))
    assert [pair.base.case["size"] for pair in across(base, other, None, NOTHING)] == [16]


def test_cells_of_a_side_that_have_no_partner_are_counted(tmp_path: Path) -> None:
    """The host has three sizes, the container one of them; the step ipc is no side of this question."""
    host = [made_case("host", image="openmpi", size=size) for size in (8, 16, 32)]
    boxes = [made_case("multi", step, image="openmpi", size=16) for step in ("strict", "ipc")]
    observed = observe(write_run(tmp_path / "run", dict.fromkeys([*host, *boxes], TIMES)))
    factor = find_factor("policy")
    pairs = within(observed, factor, NOTHING, ("host", "multi strict"))
    assert (len(pairs), without_partner(observed, factor, pairs)) == (1, 2)


def test_a_driver_that_fell_back_on_one_side_is_not_comparable(tmp_path: Path) -> None:
    case = made_case()
    base = observe(write_run(tmp_path / "a", {case: TIMES}))
    fell = [made_record(case, launch, 1e-6, driver="python") for launch in range(2)]
    other = observe(write_run(tmp_path / "b", {case: fell}))
    assert refused(across(base, other, None, NOTHING)) == (("driver", "native", "python"),)
    assert not refused(across(base, other, None, frozenset({"driver"})))
    mixed = observe(write_run(tmp_path / "c", {case: [TIMES[0], fell[1]]}))
    assert refused(across(base, mixed, None, NOTHING)) == (("driver", "native", "native and python"),)


def refused(pairs: list[Pair]) -> Differences:
    """Why the first pair is not comparable."""
    return alike(pairs[0], in_blocks=False).refused


@pytest.mark.parametrize(("name", "value"), [("gate", "barrier"), ("cadence", "streaming"), ("clock", "local"),
                                             ("burst", 20)])  # fmt: skip
def test_another_way_of_measuring_is_not_comparable_until_ignored(tmp_path: Path, name: str, value: Any) -> None:
    base = observe(write_run(tmp_path / "a", {made_case(): TIMES}))
    record = made_record(made_case(), 0, 1e-6, **{name: value})
    other = observe(write_run(tmp_path / "b", {made_case(): [record]}))
    [pair] = across(base, other, None, NOTHING)
    ((differs, _, of_other),) = refused([pair])
    assert (differs, of_other) == (name, str(value))
    assert not refused(across(base, other, None, frozenset({name})))


def test_a_share_of_ranks_that_is_no_plain_number_is_just_another_policy(tmp_path: Path) -> None:
    """Python takes a superscript for a digit, and for no number."""
    cases = [placed("packed:²", "net"), placed("multi", "net"), placed("packed:2", "net")]
    assert sides(pairs_of(tmp_path, "policy", *cases)) == [("multi net", "packed:2 net"), ("multi net", "packed:² net")]


# When two sides of a comparison differ in their environments ----------------------------------------------------------


def two(folder: Path, changes: dict[str, Any], by: str | None = None, ignored: frozenset[str] = NOTHING,
        medians: dict[Case, Sequence[Entry]] | None = None,
        base: dict[str, Any] | None = None) -> list[Pair]:  # fmt: skip
    """The same cases twice, the second time with another manifest."""
    medians = medians or {made_case(): TIMES}
    first = observe(write_run(folder / "base", medians, **(base or {})))
    other = observe(write_run(folder / "other", medians, **changes))
    known = frozenset({by}) if by else NOTHING
    return across(first, other, find_factor(by, known) if by else None, ignored)


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("cpu", "EPYC 7003 against Xeon", {"hosts": (host(cpu="Xeon"),)}),
        ("kernel", "6.1.0 against 6.6.0", {"hosts": (host(kernel="6.6.0"),)}),
        ("cores", "4 against 8", {"hosts": (host(cores=8),)}),
        ("governor", "none against powersave", {"hosts": (host(governor="powersave"),)}),
        ("limits", "none against 2 CPUs, 1.0 GiB", {"hosts": (host(cgroup_cpus=2.0, cgroup_memory=1 << 30),)}),
        ("gpu-driver", "none against 570.1", {"hosts": (host(gpus=(gpu(),)),)}),
        ("library", "Open MPI 5.0.11 against Open MPI 5.0.12", {"libraries": (library(version="5.0.12"),)}),
        ("library-file", "sha256 aaaaaaaaaaaa against sha256 bbbbbbbbbbbb", {"libraries": (library(sha256="b" * 64),)}),
        ("collbench", "0.1.0 against 0.2.0", {"collbench": "0.2.0"}),
        ("launcher", "Open MPI's mpirun against torchrun", {"launcher": "torchrun"}),
        ("granted-thread-level", "single against multiple", {"thread_level": {"granted": "multiple"}}),
        ("warmup", "5 against 0", {"protocol": protocol(warmup=0)}),
        ("simulated", "no against yes", {"simulated": True}),
        ("env:NCCL_ALGO", "not set against Ring", {"environment": {"NCCL_ALGO": "Ring"}}),
    ],
)
def test_another_environment_is_refused_by_name_until_somebody_insists(
    tmp_path: Path, name: str, text: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as refused:
        two(tmp_path / "refused", changes)
    message = str(refused.value)
    assert f"\n  {name}: {text}\n" in message
    insisting = message.rpartition("--ignore ")[2].split(",")
    assert name in insisting
    [pair] = two(tmp_path / "ignored", changes, ignored=frozenset(insisting))
    assert f"{name}: {text}" in pair.remarks


def test_another_setting_of_huge_pages_is_refused_and_one_that_older_runs_lack_is_not(tmp_path: Path) -> None:
    medians: dict[Case, Sequence[Entry]] = {made_case(): TIMES}
    older, always, never = (observe(write_run(tmp_path / str(setting), medians, hosts=(host(huge_pages=setting),)))
                            for setting in (None, "always", "never"))  # fmt: skip
    with pytest.raises(RequestError, match="huge-pages: always against never"):
        across(always, never, None, NOTHING)
    assert len(across(older, never, None, NOTHING)) == 1


def test_another_gpu_driver_alone_is_named_alone(tmp_path: Path) -> None:
    medians: dict[Case, Sequence[Entry]] = {made_case(): TIMES}
    runs = [observe(write_run(tmp_path / version, medians, hosts=(host(gpus=(gpu(driver=version),)),)))
            for version in ("570.1", "580.2")]  # fmt: skip
    with pytest.raises(RequestError, match=r"gpu-driver: 570.1 against 580.2\n.*--by gpu-driver.*--ignore gpu-driver$"):
        across(runs[0], runs[1], None, NOTHING)
    assert len(across(runs[0], runs[1], find_factor("gpu-driver", {"gpu-driver"}), NOTHING)) == 1


def test_the_variables_of_a_side_count_where_it_has_its_own(tmp_path: Path) -> None:
    cases: dict[Case, Sequence[Entry]] = {placed("host", None): TIMES, placed("single", "strict"): TIMES}
    tuned = {"UCX_TLS": "tcp"}

    def run(name: str, **sides: Any) -> Any:
        return observe(write_run(tmp_path / name, cases, environment={"NCCL_ALGO": "Ring"},
                                 experiment=experiment(["openmpi"], **sides)))  # fmt: skip

    plain, everywhere = (image(environment=variables) for variables in ({}, tuned))
    without, with_it = (run(name, images=(side,), environments=(side,))
                        for name, side in (("without", plain), ("with", everywhere)))  # fmt: skip
    with pytest.raises(RequestError, match=r"\n  env:UCX_TLS: not set against tcp\n"):
        across(without, with_it, None, NOTHING)
    inside_alone = run("inside", images=(everywhere,), environments=(plain,))
    with pytest.raises(RequestError, match=r"\n  env:UCX_TLS: not set against tcp\n"):
        within(inside_alone, find_factor("policy"), NOTHING)
    old = image(environment=None)
    with pytest.raises(RequestError, match=r"\n  env:NCCL_ALGO: Ring against not set\n"):
        across(run("old", images=(old,), environments=(old,)), without, None, NOTHING)


def test_another_allocation_is_said_and_not_refused(tmp_path: Path) -> None:
    runs = [observe(write_run(tmp_path / job, {made_case(): TIMES}, experiment=experiment(
        [], allocation=Allocation(job=job, partition="all", nodes="n[0-1]")))) for job in ("3", "4")]  # fmt: skip
    [pair] = across(runs[0], runs[1], None, NOTHING)
    assert pair.remarks == (
        "allocation: job 3 in partition all on n[0-1] against job 4 in partition all on n[0-1]",
    )  # fmt: skip


def test_what_a_site_file_asks_for_beside_the_plan_is_refused_by_name(tmp_path: Path) -> None:
    cluster = Allocation(job="1", partition="bench", nodes="any node")
    tuned = structs.replace(cluster, options=("pod.spec.hostNetwork=true", "resources.rdma/hca=1"))
    plain, fast = (experiment([], allocation=given) for given in (cluster, tuned))
    with pytest.raises(RequestError) as refused:
        two(tmp_path / "refused", {"experiment": fast}, base={"experiment": plain})
    assert "\n  job-options: none against pod.spec.hostNetwork=true resources.rdma/hca=1\n" in str(refused.value)
    insisting = frozenset({"job-options"})
    [pair] = two(tmp_path / "ignored", {"experiment": fast}, ignored=insisting, base={"experiment": plain})
    assert any(remark.startswith("job-options: none against") for remark in pair.remarks)


def test_what_changes_no_number_is_said_and_not_refused(tmp_path: Path) -> None:
    changes = {"packages": {"mpi4py": "4.0.0"}, "python": "3.12.1", "protocol": protocol(budget=1.0),
               "hosts": (host(name="vm2", boot_id="other"),)}  # fmt: skip
    [pair] = two(tmp_path, changes)
    assert [remark.partition(":")[0] for remark in pair.remarks] == ["boot", "host", "packages", "python", "samples"]


def test_packages_count_where_python_is_timed(tmp_path: Path) -> None:
    medians: dict[Case, Sequence[Entry]] = {made_case(driver="python"): TIMES}
    with pytest.raises(RequestError, match=r"packages: mpi4py 4.1.2 against mpi4py 4.0.0"):
        two(tmp_path, {"packages": {"mpi4py": "4.0.0"}}, medians=medians)


def test_the_library_may_be_the_question(tmp_path: Path) -> None:
    changes = {"libraries": (library("MPICH", "4.3", "b" * 64),), "launcher": "MPICH's mpiexec"}
    [pair] = two(tmp_path, changes, by="library")
    assert not alike(pair, True).refused
    with pytest.raises(RequestError, match=r"kernel: 6.1.0 against 6.6.0"):
        two(tmp_path / "more", changes | {"hosts": (host(kernel="6.6.0"),)}, by="library")


def test_what_is_ignored_must_still_leave_one_cell_for_one(tmp_path: Path) -> None:
    medians: dict[Case, Sequence[Entry]] = {made_case(dtype=dtype): TIMES for dtype in ("float32", "float64")}
    with pytest.raises(RequestError, match=r"dtype float32 and float64"):
        two(tmp_path, {}, ignored=frozenset({"dtype"}), medians=medians)


def test_an_image_with_another_library_than_its_host_is_refused(tmp_path: Path) -> None:
    made = experiment(["openmpi"], images=(image(libraries=(library(version="4.1.6"),)),))
    with pytest.raises(RequestError, match=r"host and multi strict .*\n  library: .*5.0.11 against .*4.1.6"):
        pairs_of(tmp_path, "policy", placed("host"), placed("multi", "strict"), experiment=made)
    sides_of = pairs_of(tmp_path / "2", "policy", placed("host"), placed("multi", "strict"), experiment=made,
                        ignored=frozenset({"library"}))  # fmt: skip
    assert len(sides_of) == 1


def test_images_of_other_libraries_are_a_question_without_being_asked_twice(tmp_path: Path) -> None:
    both = (image("mpich", libraries=(library("MPICH", "4.3"),)), image("openmpi"))
    made = experiment((), images=both, environments=both)
    cases = [placed("multi", "strict", image=name) for name in ("mpich", "openmpi")]
    [pair] = pairs_of(tmp_path, "image", *cases, experiment=made)
    assert not pair.remarks


def test_launches_in_a_folder_that_were_made_on_two_machines_say_so(tmp_path: Path) -> None:
    folder = write_launches(tmp_path / "a", {made_case(): TIMES})
    write_run(folder / "other", {made_case(): [3e-6]}, hosts=(host(cpu="Xeon"),))
    base = observe(write_run(tmp_path / "b", {made_case(): TIMES}))
    with pytest.raises(RequestError, match=r"cpu: EPYC 7003 against EPYC 7003 and Xeon"):
        across(base, observe(folder), None, NOTHING)


def test_a_machine_of_as_many_bytes_as_a_kernel_can_tell_has_facts(tmp_path: Path) -> None:
    most = 2**63 - 1
    [pair] = two(tmp_path, {"hosts": (host(memory=most, cgroup_memory=most),)}, ignored=frozenset({"memory", "limits"}))
    assert "memory: 16 GiB against 8589934592 GiB" in pair.remarks


@pytest.mark.parametrize("field", ["memory", "cgroup_memory"])
def test_a_machine_of_more_bytes_is_refused(tmp_path: Path, field: str) -> None:
    run = write_run(tmp_path / "run", {made_case(): TIMES})
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["hosts"][0][field] = 10**400
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunReadError, match=field):
        observe(run)


@pytest.mark.parametrize(("base", "refused"), [("nice 0, other", True), ("nice 19, other", False), (None, False)])
def test_another_priority_is_refused_where_both_runs_know_theirs(
    tmp_path: Path, base: str | None, refused: bool
) -> None:
    first = observe(write_run(tmp_path / "base", {made_case(): TIMES}, hosts=(host(priority=base),)))
    second = observe(write_run(tmp_path / "other", {made_case(): TIMES}, hosts=(host(priority="nice 19, other"),)))
    if not refused:
        assert len(across(first, second, None, NOTHING)) == 1
        return
    with pytest.raises(RequestError, match="priority"):
        across(first, second, None, NOTHING)
    assert len(across(first, second, None, frozenset({"priority"}))) == 1


@pytest.mark.parametrize("factor", ["side", "image"])
def test_nothing_comes_with_a_factor_in_which_two_runs_do_not_differ(tmp_path: Path, factor: str) -> None:
    """Its environments are compared as without it."""
    with pytest.raises(RequestError, match="library"):
        two(tmp_path, {"libraries": (library("MPICH", "4.3", "b" * 64),)}, by=factor)


# Runs of two engines, or over other numbers of hosts ------------------------------------------------------------------


def of_engines(folder: Path, steps: tuple[str, ...] = ("strict",), policies: Sequence[str] = ("multi", "single"),
               by: str = "engine") -> list[Pair]:  # fmt: skip
    """A plan in Docker, and on Slurm, where there is another step, and of images no ID."""
    inside = [placed(policy, step) for policy in policies for step in steps]
    slurm = [placed(policy, "files", engine="slurm") for policy in policies]
    runs = {"docker": [placed("host"), *inside], "slurm": [placed("host", engine="slurm"), *slurm]}
    base, other = (
        observe(write_run(folder / name, dict.fromkeys(cases, TIMES), experiment=experiment(
            ["openmpi"], engine=name, images=(image(id=f"sha256:{'d' * 12}" if name == "docker" else None),))))
        for name, cases in runs.items()
    )  # fmt: skip
    return across(base, other, find_factor(by) if by else None, NOTHING)


def test_engines_of_two_runs_meet_at_one_policy_where_each_has_a_step_of_its_own(tmp_path: Path) -> None:
    found = of_engines(tmp_path)
    assert [(pair.base.case.where.text, pair.other.case.where.text) for pair in found] == [
        ("host", "host"), ("multi strict", "multi files"), ("single strict", "single files")
    ]  # fmt: skip
    shown = [row[1].replace(f"{tmp_path}/", "") for row in tables(compare(found, 0.02, in_blocks=False))[0].rows]
    assert shown == ["slurm vs docker", *(f"slurm vs docker (slurm {policy} files and docker {policy} strict)"
                                         for policy in ("multi", "single"))]  # fmt: skip
    assert {pair.asked for pair in found} == {("engine: docker against slurm",)}
    assert {pair.remarks for pair in found} == {()}, "an image's ID is the engine's own"


def test_several_cells_of_an_engine_name_what_would_choose_one(tmp_path: Path) -> None:
    hosts = of_engines(tmp_path / "1", steps=("strict", "ipc"))
    assert [pair.base.case.where.text for pair in hosts] == ["host"], "what both have, where a run has several steps"
    with pytest.raises(RequestError, match=r"policy .*--given policy=single\. --by"):
        of_engines(tmp_path / "2", by="policy")
    with pytest.raises(RequestError, match=r"policy .*--given policy=host\. --by"):
        of_engines(tmp_path / "3", steps=("strict", "ipc"), by="policy")


def test_an_id_that_one_engine_does_not_know_is_mentioned(tmp_path: Path) -> None:
    ids = ("sha256:aaa", None, "sha256:bbb")
    runs = [observe(write_run(tmp_path / str(number), {placed("multi", "strict"): TIMES}, experiment=experiment(
        ["openmpi"], images=(image(id=name),)))) for number, name in enumerate(ids)]  # fmt: skip
    [pair] = across(runs[0], runs[1], None, NOTHING)
    assert pair.remarks == ("image-id: aaa against none",)
    with pytest.raises(RequestError, match="image-id: aaa against bbb"):
        across(runs[0], runs[2], None, NOTHING)


def test_numbers_of_hosts_may_be_the_question_between_two_runs(tmp_path: Path) -> None:
    machines = [(host(name="n0"),), (host(name="n0"), host(name="n1"))]
    runs = [observe(write_run(tmp_path / str(len(of_run)), {placed("host", engine="slurm", hosts=len(of_run)): TIMES},
                              hosts=of_run)) for of_run in machines]  # fmt: skip
    [pair] = across(runs[0], runs[1], find_factor("hosts"), NOTHING)
    assert pair.remarks == ()
    with pytest.raises(RequestError, match="hosts 1 against 2"):
        across(runs[0], runs[1], None, NOTHING)


# Comparisons of benchmarks that use one library or another, as a parameter says ---------------------------------------

SEVEN = spread(1.0)


def run_with(blas: str, workload: str = "linpack") -> Case:
    what: dict[str, Value] = {"n": 100, "size": 1024}
    return Case(workload=workload, what=what, how={"blas": blas, "driver": "native"}, where=Where(ranks=1))


def linked(name: str, version: str, *users: str, kernel: str | None = None) -> Library:
    return Library(name=name, version=version, sha256=version * 64, used_by=users, kernel=kernel)


def run(path: Path, mkl: str, *cases: Case) -> Observed:
    libraries = (
        linked("OpenBLAS", "3", "linpack blas=openblas", kernel="Prescott"),
        linked("MKL", mkl, "linpack blas=mkl", "dgemm blas=mkl"),
        linked("HPL", "2", "hpl"),
    )
    return observe(write_run(path, dict.fromkeys(cases, SEVEN), libraries=libraries))


def test_a_case_has_the_libraries_that_it_uses(tmp_path: Path) -> None:
    cases = (run_with("openblas"), run_with("mkl"), run_with("mkl", "dgemm"), run_with("mkl", "hpl"))
    found = run(tmp_path / "run", "1", *cases)
    assert [facts(found, [case])["library"] for case in cases] == ["OpenBLAS 3 (Prescott)", "MKL 1", "MKL 1", "HPL 2"]


def test_libraries_may_differ_where_they_are_what_is_compared(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "1", run_with("openblas"), run_with("mkl"))
    (pair,) = within(found, find_factor("blas", own=("blas",)), NOTHING)
    assert {pair.base_name, pair.other_name} == {"openblas", "mkl"}


def test_only_the_cases_whose_library_differs_are_refused(tmp_path: Path) -> None:
    base, other = (run(tmp_path / version, version, run_with("openblas")) for version in ("1", "2"))
    assert len(across(base, other, None, NOTHING)) == 1
    base, other = (run(tmp_path / f"mkl{version}", version, run_with("mkl")) for version in ("1", "2"))
    with pytest.raises(RequestError, match="MKL 1 against MKL 2"):
        across(base, other, None, NOTHING)


def test_nccl_counts_for_what_communicates_through_it(tmp_path: Path) -> None:
    """An environment may hold it beside the library of another backend."""
    libraries = (linked("torch (gloo)", "2"), linked("NCCL", "3"))
    cases = [
        Case(workload="allreduce", how={"backend": backend, "driver": "python"})
        for backend in ("torch-gloo", "torch-nccl")
    ]
    found = observe(write_run(tmp_path / "run", dict.fromkeys(cases, SEVEN), libraries=libraries))
    assert [facts(found, [case])["library"] for case in cases] == ["torch (gloo) 2", "torch (gloo) 2, NCCL 3"]


def test_places_of_files_say_nothing_between_host_and_image(tmp_path: Path) -> None:
    """Without a hash it is not known whether they are the same."""
    sides = [image("torch", libraries=(Library(name="torch (gloo)", version="2", path=path),)) for path in ("/a", "/b")]
    where = Where(image="torch", engine="docker", policy="multi", isolation="strict")
    cases = [Case(workload="allreduce", how={"backend": "torch-gloo", "driver": "python"}, where=place)
             for place in (where, Where(image="torch"))]  # fmt: skip
    made = experiment((), images=(sides[0],), environments=(sides[1],))
    found = observe(write_run(tmp_path / "run", dict.fromkeys(cases, SEVEN), experiment=made))
    assert [facts(found, [case])["library-file"] for case in cases] == ["", ""]
