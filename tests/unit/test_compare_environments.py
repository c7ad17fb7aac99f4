"""When two sides of a comparison differ in their environments: what is refused, named or ignored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.unit.made_runs import (
    Entry,
    experiment,
    gpu,
    host,
    image,
    library,
    made_case,
    protocol,
    write_launches,
    write_run,
)
from tests.unit.test_compare_pairs import NOTHING, TIMES, pairs_of, placed

from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Pair, across, alike, within
from collbench.analysis.runs import observe
from collbench.errors import RequestError, RunReadError
from collbench.schema.case import Case
from collbench.schema.manifest import Allocation


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
    with pytest.raises(
        RequestError, match=r"differ in more than what is asked about:\n  env:UCX_TLS: not set against tcp\n"
    ):
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
    with pytest.raises(RequestError, match=r"several cells of one case, which differ in dtype float32 and float64"):
        two(tmp_path, {}, ignored=frozenset({"dtype"}), medians=medians)


def test_an_image_with_another_library_than_its_host_is_refused(tmp_path: Path) -> None:
    made = experiment(["openmpi"], images=(image(libraries=(library(version="4.1.6"),)),))
    with pytest.raises(RequestError, match=r"host and multi strict differ.*\n  library: .*5.0.11 against .*4.1.6"):
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
