"""Which cells of two sides are paired: environments, programs, engines, libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from tests.unit import made_runs
from tests.unit.made_program_runs import program_record
from tests.unit.made_runs import experiment, gpu, host, image, library, made_case, protocol, write_launches, write_run

from collbench.analysis.compare import compare
from collbench.analysis.factors import facts_of, find_factor
from collbench.analysis.pairs import Differences, Pair, across, alike, refuse_not_alternated, within, without_partner
from collbench.analysis.runs import Observed, observe
from collbench.errors import RequestError, RunReadError
from collbench.report.cells import tables
from collbench.schema.axes import Value
from collbench.schema.case import Case, Where, case_of
from collbench.schema.manifest import Allocation, Library

PLAIN = made_case()
TIMES = [1e-6, 2e-6]

Run = Callable[..., Observed]
Golden = Callable[[str, str], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`run(*cases, ...)`: a run with two launches of each case, and these fields of its manifest."""

    def made(*cases: Case, **fields: Any) -> Observed:
        path = tmp_path / f"run-{len([*tmp_path.iterdir()])}"
        return observe(write_run(path, dict.fromkeys(cases or (PLAIN,), TIMES), **fields))

    return made


def of_run(observed: Observed, by: str, *ignored: str, between: tuple[str, ...] = ()) -> list[Pair]:
    return within(observed, find_factor(by), frozenset(ignored), between)


def of_runs(base: Observed, other: Observed, by: str | None = None, ignored: Collection[str] = ()) -> list[Pair]:
    return across(base, other, find_factor(by, {by}) if by else None, frozenset(ignored))


def sides(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.base_name, pair.other_name) for pair in pairs]


def placed(policy: str, step: str | None = None, **fields: Any) -> Case:
    return made_case(policy, step, **{"image": "openmpi"} | fields)


def places(*names: str, **fields: Any) -> list[Case]:
    """`multi strict`, `host`."""
    return [placed(*name.split(), **fields) for name in names]


STEPS = places("host", "multi net", "multi strict", "single net")
ENGINES = [case for engine in ("docker", "podman")
           for case in places("multi net", "single strict", "multi strict", engine=engine)]  # fmt: skip
ON_ENGINES = [(f"docker {place}", f"podman {place}") for place in ("multi net", "single strict", "multi strict")]

#: What the question is, the cases of a run, the sides between which it is asked, and those that are paired.
PAIRED: dict[str, tuple[str, list[Case], tuple[str, ...], list[tuple[str, str]]]] = {
    "the host is what every place is held against": (
        "policy", places("single strict", "multi net", "multi strict", "host", "packed:2 strict"), (),
        [("host", place) for place in ("multi net", "multi strict", "packed:2 strict", "single strict")]),
    "without a host policies meet at one step": (
        "policy", places("single net", "single strict", "multi net", "multi strict", "single ipc"), (),
        [("multi net", "single net"), ("multi strict", "single strict")]),
    "near and far memory are not mixed": (
        "policy", [case for memory in ("near", "far") for case in places("host", "multi strict", affinity=memory)], (),
        [("host", "multi strict"), ("host far", "multi strict far")]),
    "policies of two engines are not mixed": (
        "policy", [*places("multi strict", "single strict"), placed("single", "strict", engine="podman")], (),
        [("multi strict", "single strict")]),
    "engines meet at one policy and step": ("engine", ENGINES, (), ON_ENGINES),
    "engines the other way round": (
        "engine", ENGINES, ("podman", "docker"), [(podman, docker) for docker, podman in ON_ENGINES]),
    "engines beside the host": (
        "engine", [*ENGINES, *places("host")], (), [("host", side) for both in ON_ENGINES for side in both]),
    "between two sides the first is the base": (
        "policy", places("host", "multi strict", "single strict"), ("single", "multi"),
        [("single strict", "multi strict")]),
    "and may be the host": ("policy", STEPS, ("multi strict", "host"), [("multi strict", "host")]),
    "a policy without a step means each of its steps": (
        "policy", STEPS, ("host", "multi"), [("host", "multi net"), ("host", "multi strict")]),
    "each of its steps as the base": (
        "policy", STEPS, ("multi", "host"), [("multi net", "host"), ("multi strict", "host")]),
    "steps are held against the least isolated": (
        "isolation", places("multi strict", "multi visible", "multi net"), (),
        [("visible", "net"), ("visible", "strict")]),
    "everything shared but files is the least isolated": (
        "isolation", places("multi strict", "multi visible", "multi files"), (),
        [("files", "strict"), ("files", "visible")]),
    # Python takes a superscript for a digit, and for no number
    "a share of ranks that is no plain number is another policy": (
        "policy", places("packed:² net", "multi net", "packed:2 net"), (),
        [("multi net", "packed:2 net"), ("multi net", "packed:² net")]),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRED)
def test_which_sides_of_a_run_are_paired(run: Run, what: str) -> None:
    by, cases, between, expected = PAIRED[what]
    assert sorted(sides(of_run(run(*cases), by, between=between))) == sorted(expected)


def test_policies_of_two_engines_meet_at_the_host_alone(run: Run) -> None:
    cases = [placed("multi", "strict"), placed("single", "strict", engine="podman")]
    with pytest.raises(RequestError, match=r"by policy\b.*multi strict, single strict"):
        of_run(run(*cases), "policy")
    assert len(of_run(run(*cases, placed("host")), "policy")) == 2


def test_images_meet_place_by_place_and_size_by_size(run: Run) -> None:
    cases = [case for name in ("mpich", "openmpi") for size in (8, 64)
             for case in places("host", "multi strict", image=name, size=size)]  # fmt: skip
    pairs = of_run(run(*cases), "image")
    assert sides(pairs) == [("mpich", "openmpi")] * 4
    assert all(pair.base.case.having(image="openmpi") == pair.other.case for pair in pairs)


@pytest.mark.parametrize(
    ("by", "one", "other"),
    [("backend", "mpi", "torch-gloo"), ("driver", "native", "python"), ("dtype", "float32", "float64"),
     ("op", "max", "sum"), ("staging", "pageable", "pinned"), ("algorithm", "Ring", "Tree"), ("in-place", False, True),
     ("thread-level", "multiple", "single"), ("root", 0, 1), ("registration", "none", "local"), ("graph", 0, 8)],
)  # fmt: skip
def test_every_field_that_may_differ_is_a_question(run: Run, by: str, one: Any, other: Any) -> None:
    [pair] = of_run(run(*(made_case(**{by.replace("-", "_"): value}) for value in (other, one))), by)
    names = [("no", "yes")[value] if isinstance(value, bool) else str(value) for value in (one, other)]
    assert [pair.base_name, pair.other_name] == names
    assert not alike(pair, True).refused


def test_what_is_no_pair_is_refused(run: Run, tmp_path: Path, golden: Golden) -> None:
    dtypes = [made_case(dtype="float32", size=8), made_case(dtype="float64", size=16)]
    ways = [dtypes[0], dtypes[1].having(thread_level="multiple")]
    stacks = [made_case(image=image, backend=backend)
              for image, backend in (("openmpi", "mpi"), ("mpich", "mpi"), ("torch", "torch-gloo"))]  # fmt: skip
    sentences = []
    for by, cases, *between in (("dtype", dtypes), ("backend", dtypes), ("policy", dtypes, "multi", "host"),
                                ("dtype", ways), ("backend", stacks), ("polcy", dtypes)):  # fmt: skip
        with pytest.raises(RequestError) as refused:
            of_run(run(*cases), str(by), between=tuple(map(str, between)))
        sentences.append(f"{refused.value}\n".replace(str(tmp_path), "TMP"))
    golden("pairs-refusals.txt", "\n".join(sentences))
    assert len(of_run(run(*dtypes), "dtype", "size")) == len(of_run(run(*ways), "dtype", "size", "thread-level")) == 1
    assert sides(of_run(run(*stacks), "backend", "image")) == [("mpi", "torch-gloo")]
    with pytest.raises(RequestError, match=r"\blibrary\b"):
        find_factor("libary", {"library"})
    assert find_factor("Thread_Level").name == "thread-level"


def test_what_alone_is_in_the_way_of_an_own_axis_is_named(tmp_path: Path) -> None:
    """Servers are ranks: a world with more of them has more ranks, and without that there is something to compare."""
    alone = case_of("parameter_server", {"steps": 10, "servers": 0, "shard": "even", "ranks": 1, "measure": "steps"})
    other, variable = alone.having(servers=1, ranks=3), alone.having(shard="variable")
    for number, cases, axes in ((0, (alone, variable, other), {"ranks"}),
                                (1, (alone, other.having(shard="variable")), {"ranks", "shard"})):  # fmt: skip
        observed = observe(write_run(tmp_path / f"{number}", {case: [program_record(case, 0, 1.0)] for case in cases}))
        with pytest.raises(RequestError) as refused:
            within(observed, find_factor("servers", workload_axes=["servers"]), frozenset())
        assert {word.strip(" ,.") for word in str(refused.value).split("--ignore")[1:]} == axes


def test_two_runs_are_compared_where_both_measured(run: Run) -> None:
    """Another dtype has no case in common, and what insists is named."""
    base, other = (run(*(made_case(size=size) for size in sizes)) for sizes in ((8, 16, 32), (16, 64)))
    assert [pair.base.case["size"] for pair in of_runs(base, other)] == [16]
    plain, double = run(), run(made_case(dtype="float64"))
    with pytest.raises(RequestError, match=r"dtype float32 against float64.*--ignore dtype"):
        of_runs(plain, double)
    assert len(of_runs(plain, double, ignored={"dtype"})) == len(of_runs(plain, double, "dtype")) == 1
    both = run(*(made_case(dtype=dtype) for dtype in ("float32", "float64")))
    with pytest.raises(RequestError, match=r"dtype float32 and float64"):  # not one cell for one
        of_runs(both, both, ignored={"dtype"})


def test_cells_of_a_side_that_have_no_partner_are_counted(run: Run) -> None:
    """The host has three sizes, the container one of them; the step ipc is no side of this question."""
    sizes = [placed("host", size=size) for size in (8, 16, 32)]
    observed = run(*sizes, *places("multi strict", "multi ipc", size=16))
    pairs = of_run(observed, "policy", between=("host", "multi strict"))
    assert (len(pairs), without_partner(observed, find_factor("policy"), pairs)) == (1, 2)


def refused(pairs: list[Pair]) -> Differences:
    """Why the first pair is not comparable."""
    return alike(pairs[0], in_blocks=False).refused


@pytest.mark.parametrize(
    ("name", "launches", "values"),
    [("driver", ["python", "python"], ("native", "python")),
     ("driver", ["native", "python"], ("native", "native and python")),
     ("align", ["barrier"], ("roundtime", "barrier")), ("cadence", ["streaming"], ("isolated", "streaming")),
     ("clock", ["local"], ("common", "local")), ("burst", [20], ("1", "20"))],
)  # fmt: skip
def test_another_way_of_measuring_is_not_comparable_until_ignored(
    run: Run, tmp_path: Path, name: str, launches: list[Any], values: tuple[str, str]
) -> None:
    records = [made_runs.made_record(PLAIN, launch, 1e-6, **{name: value}) for launch, value in enumerate(launches)]
    base, other = run(), observe(write_run(tmp_path / "other", {PLAIN: records}))
    assert refused(of_runs(base, other)) == ((name, *values),)
    assert not refused(of_runs(base, other, ignored={name}))


# When two sides of a comparison differ in their environments ----------------------------------------------------------


def with_settings(*settings: str) -> Library:
    return structs.replace(library(), settings=settings)


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [("cpu", "EPYC 7003 against Xeon", {"hosts": (host(cpu="Xeon"),)}),
     ("kernel", "6.1.0 against 6.6.0", {"hosts": (host(kernel="6.6.0"),)}),
     ("cores", "4 against 8", {"hosts": (host(cores=8),)}),
     ("governor", "none against powersave", {"hosts": (host(governor="powersave"),)}),
     ("limits", "none against 2 CPUs, 1.0 GiB", {"hosts": (host(cgroup_cpus=2.0, cgroup_memory=1 << 30),)}),
     # as many bytes as a kernel can tell
     ("memory", "16 GiB against 8589934592 GiB", {"hosts": (host(memory=2**63 - 1, cgroup_memory=2**63 - 1),)}),
     ("gpu-driver", "none against 570.1", {"hosts": (host(gpus=(gpu(),)),)}),
     ("library", "Open MPI 5.0.11 against Open MPI 5.0.12", {"libraries": (library(version="5.0.12"),)}),
     ("library-file", "sha256 aaaaaaaaaaaa against sha256 bbbbbbbbbbbb", {"libraries": (library(sha256="b" * 64),)}),
     ("collbench", "0.1.0 against 0.2.0", {"collbench": "0.2.0"}),
     ("launcher", "Open MPI's mpirun against torchrun", {"launcher": "torchrun"}),
     ("granted-thread-level", "single against multiple", {"thread_level": {"granted": "multiple"}}),
     ("warmup", "5 against 0", {"protocol": protocol(warmup=0)}), ("simulated", "no against yes", {"simulated": True}),
     ("setting:NCCL_ALGO", "not set against Ring", {"libraries": (with_settings("NCCL_ALGO=Ring"),)}),
     ("env:NCCL_ALGO", "not set against Ring", {"environment": {"NCCL_ALGO": "Ring"}})],
)  # fmt: skip
def test_another_environment_is_refused_until_ignored(run: Run, name: str, text: str, changes: dict[str, Any]) -> None:
    base, other = run(), run(**changes)
    with pytest.raises(RequestError) as refused:
        of_runs(base, other)
    message = str(refused.value)
    assert f"\n  {name}: {text}\n" in message
    insisting = message.rpartition("--ignore ")[2].split(",")
    assert name in insisting
    [pair] = of_runs(base, other, ignored=insisting)
    assert f"{name}: {text}" in pair.remarks


def test_settings_come_with_another_library_and_with_the_variable_that_sets_them(run: Run) -> None:
    base = run(libraries=(with_settings("NCCL_A=1", "NCCL_B=1"),))
    newer = run(libraries=(structs.replace(with_settings("NCCL_A=2"), version="5.0.12"),))
    with pytest.raises(RequestError, match=r"\bsetting:NCCL_A\b(?s:.*)--by library\b"):
        of_runs(base, newer)
    assert of_runs(base, newer, "library")
    other = run(libraries=(with_settings("NCCL_A=2", "NCCL_B=1"),), environment={"NCCL_A": "2"})
    assert of_runs(base, other, "env:NCCL_A")
    with pytest.raises(RequestError, match="env:NCCL_A"):
        of_runs(base, other, "setting:NCCL_A")


@pytest.mark.parametrize(
    ("name", "first", "second", "accepted"),
    [("huge-pages: always against never", {"huge_pages": "always"}, {"huge_pages": "never"}, False),
     ("huge-pages", {"huge_pages": None}, {"huge_pages": "never"}, True),  # older runs lack it
     ("priority", {"priority": "nice 0, other"}, {"priority": "nice 19, other"}, False),
     ("priority", {"priority": "nice 19, other"}, {"priority": "nice 19, other"}, True),
     ("priority", {"priority": None}, {"priority": "nice 19, other"}, True)],
)  # fmt: skip
def test_refused_where_both_runs_know_theirs(
    run: Run, name: str, first: dict[str, Any], second: dict[str, Any], accepted: bool
) -> None:
    base, other = (run(hosts=(host(**fields),)) for fields in (first, second))
    if not accepted:
        with pytest.raises(RequestError, match=name):
            of_runs(base, other)
    assert len(of_runs(base, other, ignored=() if accepted else {name.partition(":")[0]})) == 1


def test_another_gpu_driver_alone_is_named_alone(run: Run) -> None:
    older, newer = (run(hosts=(host(gpus=(gpu(driver=version),)),)) for version in ("570.1", "580.2"))
    with pytest.raises(RequestError, match=r"gpu-driver: 570.1 against 580.2\n.*--by gpu-driver.*--ignore gpu-driver$"):
        of_runs(older, newer)
    assert len(of_runs(older, newer, "gpu-driver")) == 1


def test_the_variables_of_a_side_count_where_it_has_its_own(run: Run) -> None:
    def of_sides(inside: dict[str, str] | None, beside: dict[str, str] | None) -> Observed:
        images, environments = ((image(environment=variables),) for variables in (inside, beside))
        made = experiment(["openmpi"], images=images, environments=environments)
        return run(*places("host", "single strict"), environment={"NCCL_ALGO": "Ring"}, experiment=made)

    tuned = {"UCX_TLS": "tcp"}
    plain = of_sides({}, {})
    with pytest.raises(RequestError, match=r"\n  env:UCX_TLS: not set against tcp\n"):
        of_runs(plain, of_sides(tuned, tuned))
    with pytest.raises(RequestError, match=r"\n  env:UCX_TLS: not set against tcp\n"):
        of_run(of_sides(tuned, {}), "policy")
    with pytest.raises(RequestError, match=r"\n  env:NCCL_ALGO: Ring against not set\n"):
        of_runs(of_sides(None, None), plain)


def test_what_a_site_file_asks_for_beside_the_plan_is_refused_by_name(run: Run) -> None:
    cluster = Allocation(job="1", partition="bench", nodes="any node")
    tuned = structs.replace(cluster, options=("pod.spec.hostNetwork=true", "resources.rdma/hca=1"))
    plain, fast = (run(experiment=experiment([], allocation=given)) for given in (cluster, tuned))
    options = "job-options: none against pod.spec.hostNetwork=true resources.rdma/hca=1"
    with pytest.raises(RequestError, match=f"\n  {options}\n"):
        of_runs(plain, fast)
    [pair] = of_runs(plain, fast, ignored={"job-options"})
    assert options in pair.remarks


def test_what_changes_no_number_is_said_and_not_refused(run: Run) -> None:
    """And packages count where Python is timed."""
    other = run(packages={"mpi4py": "4.0.0"}, python="3.12.1", protocol=protocol(budget=1.0),
                hosts=(host(name="vm2", boot_id="other"),))  # fmt: skip
    [pair] = of_runs(run(), other)
    assert [remark.partition(":")[0] for remark in pair.remarks] == ["boot", "host", "packages", "python", "samples"]
    jobs = (Allocation(job=job, partition="all", nodes="n[0-1]") for job in "34")
    third, fourth = (run(experiment=experiment([], allocation=job)) for job in jobs)
    [pair] = of_runs(third, fourth)
    assert [remark.partition(":")[0] for remark in pair.remarks] == ["allocation"]
    in_python = made_case(driver="python")
    with pytest.raises(RequestError, match=r"packages: mpi4py 4.1.2 against mpi4py 4.0.0"):
        of_runs(run(in_python), run(in_python, packages={"mpi4py": "4.0.0"}))


def test_the_library_may_be_the_question_and_nothing_comes_with_a_factor_in_which_runs_do_not_differ(run: Run) -> None:
    mpich = {"libraries": (library("MPICH", "4.3", "b" * 64),), "launcher": "MPICH's mpiexec"}
    [pair] = of_runs(run(), run(**mpich), "library")
    assert not alike(pair, True).refused
    with pytest.raises(RequestError, match=r"kernel: 6.1.0 against 6.6.0"):
        of_runs(run(), run(**mpich, hosts=(host(kernel="6.6.0"),)), "library")
    for factor in ("side", "image"):
        with pytest.raises(RequestError, match="library"):
            of_runs(run(), run(libraries=mpich["libraries"]), factor)


def test_an_image_with_another_library_than_its_host_is_refused(run: Run) -> None:
    """Images of other libraries are a question without being asked twice."""
    made = experiment(["openmpi"], images=(image(libraries=(library(version="4.1.6"),)),))
    observed = run(*places("host", "multi strict"), experiment=made)
    with pytest.raises(RequestError, match=r"host and multi strict .*\n  library: .*5.0.11 against .*4.1.6"):
        of_run(observed, "policy")
    assert len(of_run(observed, "policy", "library")) == 1
    both = (image("mpich", libraries=(library("MPICH", "4.3"),)), image("openmpi"))
    cases = [placed("multi", "strict", image=name) for name in ("mpich", "openmpi")]
    [pair] = of_run(run(*cases, experiment=experiment((), images=both, environments=both)), "image")
    assert not pair.remarks


def test_launches_of_two_machines_and_a_machine_of_too_many_bytes(run: Run, tmp_path: Path) -> None:
    folder = write_launches(tmp_path / "a", {PLAIN: TIMES})
    write_run(folder / "other", {PLAIN: [3e-6]}, hosts=(host(cpu="Xeon"),))
    with pytest.raises(RequestError, match=r"cpu: EPYC 7003 against EPYC 7003 and Xeon"):
        of_runs(run(), observe(folder))
    for field in ("memory", "cgroup_memory"):
        path = write_run(tmp_path / field, {PLAIN: TIMES}) / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["hosts"][0][field] = 10**400
        path.write_text(json.dumps(manifest))
        with pytest.raises(RunReadError, match=field):
            observe(path.parent)


# Runs of two engines, or over other numbers of hosts ------------------------------------------------------------------


def of_engines(run: Run, steps: Sequence[str] = ("strict",), by: str = "engine") -> list[Pair]:
    """A plan in Docker, and on Slurm, where there is another step, and of images no ID."""
    in_docker = places("host", *(f"{policy} {step}" for policy in ("multi", "single") for step in steps))
    on_slurm = places("host", "multi files", "single files", engine="slurm")
    sides = (("docker", in_docker, "sha256:dddddddddddd"), ("slurm", on_slurm, None))
    docker, slurm = (run(*cases, experiment=experiment(["openmpi"], engine=name, images=(image(id=of_image),)))
                     for name, cases, of_image in sides)  # fmt: skip
    return of_runs(docker, slurm, by)


def test_engines_of_two_runs_meet_at_one_policy_where_each_has_a_step_of_its_own(run: Run) -> None:
    pairs = of_engines(run)
    assert [(pair.base.case.where.text, pair.other.case.where.text) for pair in pairs] == [
        ("host", "host"), ("multi strict", "multi files"), ("single strict", "single files")]  # fmt: skip
    shown = [row[1] for row in tables(compare(pairs, 0.02, in_blocks=False))[0].rows]
    assert [name.partition(" (")[2] for name in shown] == [
        "", *(f"slurm {policy} files and docker {policy} strict)" for policy in ("multi", "single"))]  # fmt: skip
    assert {pair.factor_differences for pair in pairs} == {("engine: docker against slurm",)}
    assert {pair.remarks for pair in pairs} == {()}, "an image's ID is the engine's own"


def test_several_cells_of_an_engine_name_what_would_choose_one(run: Run) -> None:
    hosts = of_engines(run, ("strict", "ipc"))
    assert [pair.base.case.where.text for pair in hosts] == ["host"], "what both have, where a run has several steps"
    for steps, policy in ((("strict",), "single"), (("strict", "ipc"), "host")):
        with pytest.raises(RequestError, match=rf"policy .*--given policy={policy}\. --by"):
            of_engines(run, steps, by="policy")


def test_an_id_that_one_engine_does_not_know_is_mentioned_and_hosts_may_be_the_question(run: Run) -> None:
    known, unknown, other = (run(placed("multi", "strict"), experiment=experiment(["openmpi"], images=(image(id=of),)))
                             for of in ("sha256:aaa", None, "sha256:bbb"))  # fmt: skip
    [pair] = of_runs(known, unknown)
    assert pair.remarks == ("image-id: aaa against none",)
    with pytest.raises(RequestError, match="image-id: aaa against bbb"):
        of_runs(known, other)
    one, two = (run(placed("host", engine="slurm", hosts=len(names)), hosts=tuple(host(name=name) for name in names))
                for names in (("n0",), ("n0", "n1")))  # fmt: skip
    [pair] = of_runs(one, two, "hosts")
    assert pair.remarks == ()
    with pytest.raises(RequestError, match="hosts 1 against 2"):
        of_runs(one, two)


# Comparisons of benchmarks that use one library or another, as a parameter says ---------------------------------------


def run_with(blas: str, workload: str = "linpack") -> Case:
    what: dict[str, Value] = {"n": 100, "size": 1024}
    return Case(workload=workload, what=what, how={"blas": blas, "driver": "native"}, where=Where(ranks=1))


def linked(name: str, version: str, *users: str, kernel: str | None = None) -> Library:
    return Library(name=name, version=version, sha256=version * 64, used_by=users, kernel=kernel)


def with_mkl(version: str) -> dict[str, Any]:
    mkl = linked("MKL", version, "linpack blas=mkl", "dgemm blas=mkl")
    openblas = linked("OpenBLAS", "3", "linpack blas=openblas", kernel="Prescott")
    return {"libraries": (openblas, mkl, linked("HPL", "2", "hpl"))}


def test_a_case_has_the_libraries_that_it_uses(run: Run) -> None:
    """NCCL counts for what communicates through it: an environment may hold it beside that of another backend."""
    cases = [run_with("openblas"), run_with("mkl"), run_with("mkl", "dgemm"), run_with("mkl", "hpl")]
    observed = run(*cases, **with_mkl("1"))
    assert [facts_of(observed, [case])["library"] for case in cases] == [
        "OpenBLAS 3 (Prescott)", "MKL 1", "MKL 1", "HPL 2"]  # fmt: skip
    (pair,) = within(observed, find_factor("blas", workload_axes=("blas",)), frozenset())
    assert {pair.base_name, pair.other_name} == {"openblas", "mkl"}
    backends = ("torch-gloo", "torch-nccl")
    cases = [Case(workload="allreduce", how={"backend": name, "driver": "python"}) for name in backends]
    observed = run(*cases, libraries=(linked("torch (gloo)", "2"), linked("NCCL", "3")))
    assert [facts_of(observed, [case])["library"] for case in cases] == ["torch (gloo) 2", "torch (gloo) 2, NCCL 3"]


def test_only_the_cases_whose_library_differs_are_refused(run: Run) -> None:
    assert len(of_runs(run(run_with("openblas"), **with_mkl("1")), run(run_with("openblas"), **with_mkl("2")))) == 1
    with pytest.raises(RequestError, match="MKL 1 against MKL 2"):
        of_runs(run(run_with("mkl"), **with_mkl("1")), run(run_with("mkl"), **with_mkl("2")))
    # places of files say nothing between host and image: without a hash it is not known whether they are the same
    libraries = (Library(name="torch (gloo)", version="2", path=path) for path in ("/a", "/b"))
    inside, beside = (image("torch", libraries=(one,)) for one in libraries)
    bare = Case(workload="allreduce", how={"backend": "torch-gloo", "driver": "python"}, where=Where(image="torch"))
    cases = [bare.having(engine="docker", policy="multi", isolation="strict"), bare]
    observed = run(*cases, experiment=experiment((), images=(inside,), environments=(beside,)))
    assert [facts_of(observed, [case])["library-file"] for case in cases] == ["", ""]


def test_launches_of_equal_number_are_a_block_only_where_runs_took_turns() -> None:
    """By when their launches began, whichever run is named first."""

    def begun(*hours: int) -> Any:
        folders = [(hour, Path(f"{number}")) for number, hour in enumerate(hours)]
        manifests = [SimpleNamespace(created=f"{hour:02}") for hour in hours]
        return SimpleNamespace(name="run", folders=folders, manifests=manifests)

    for one, other in (((0, 2), (1, 3)), ((1, 3), (0, 2)), ((0,), (5,))):
        refuse_not_alternated(begun(*one), begun(*other))
    for one, other in (((0, 1), (2, 3)), ((2, 3), (0, 1))):
        with pytest.raises(RequestError, match="--in-blocks"):
            refuse_not_alternated(begun(*one), begun(*other))
