"""Launches on a Slurm cluster of containers: real srun, every MPI and torch, Charliecloud, and what may go wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.toy_slurm import ToySlurm, docker, unpacked

from collbench.schema.record import Record
from tests.containers.conftest import Started
from tests.containers.test_launch import need
from tests.runs import read_run
from tests.turns import assert_slept

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.docker

PLAN = """\
images = ["{image}"]
policies = {policies}
collectives = ["allreduce"]
backends = ["{backend}"]
sizes = ["8"]
ranks = [{hosts}]
hosts = [{hosts}]
launches = {launches}
warmup = 1
iters = {iters}
timeout = "{timeout}"
"""

SITE = """\
[slurm]
folder = "{folder}"
cores = 1
runtime = "{runtime}"
images = {{ openmpi = "/shared/img/openmpi" }}
environments = {{ openmpi = "{openmpi}", {others} }}
time = "10"
options = {options}
{more}
"""

OTHERS = ", ".join(f'"{name}" = "/opt/collbench"' for name in ("openmpi-4.1", "mpich", "intelmpi", "torch"))


#: Ctrl-C, which `docker exec` does not pass on.
INTERRUPT = """\
for process in /proc/[0-9]*; do
  tr "\\0" " " < $process/cmdline 2>/dev/null | grep -q "[c]ollbench launch" && kill -INT ${process#/proc/}
done; true"""


#: A signal to one rank of those on a node.
SIGNAL_ONE = """\
for process in /proc/[0-9]*; do
  tr "\\0" " " < $process/cmdline 2>/dev/null | grep -q "^[^ ]*python -m [c]ollbench run" || continue
  kill -SIGNAL ${process#/proc/}; exit
done; exit 1"""


#: Sizes whose operations last so long that a disturbed machine can still synchronise clocks well enough for them.
LONG = '"1M", "4M"'


#: A Python whose ranks but the first are in a time namespace: their monotonic clock is ahead by 12345 s.
OTHER_CLOCK = """\
#!/bin/sh
[ "${SLURM_PROCID:-0}" = 0 ] && exec /opt/collbench/bin/python "$@"
exec unshare --user --map-current-user --time --fork --monotonic 12345 --boottime 777 -- /opt/collbench/bin/python "$@"
"""


class Cluster(ToySlurm):
    """A cluster with files of ours in its shared folder."""

    def write(self, name: str, text: str) -> None:
        (self.share / name).write_text(text)

    def plan(
        self, image: str = "openmpi", policies: str = '["host"]', backend: str = "mpi", launches: int = 1,
        iters: int = 5, timeout: str = "60s", hosts: str = "2",
    ) -> None:  # fmt: skip
        given = {"image": image, "policies": policies, "backend": backend, "launches": launches, "iters": iters}
        self.write("plan.toml", PLAN.format(timeout=timeout, hosts=hosts, **given))

    def site(
        self, runtime: str = "none", options: str = "[]", more: str = "", openmpi: str = "/opt/collbench",
        folder: str = "/shared/collbench",
    ) -> None:  # fmt: skip
        given = {"runtime": runtime, "options": options, "more": more, "openmpi": openmpi, "others": OTHERS}
        self.write("site.toml", SITE.format(folder=folder, **given))

    def with_other_clocks(self) -> None:
        """An environment, /shared/other, whose ranks have another clock, but for the first."""
        python = self.share / "other/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(OTHER_CLOCK)
        python.chmod(0o755)

    def launch(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.user("collbench", "launch", "plan.toml", "--on", "slurm", "--site", "site.toml", *flags)

    def start(self) -> subprocess.Popen[str]:
        """As `launch`, and it goes on."""
        whole = ("docker", "exec", "--user", "1000", "--workdir", "/shared", self.node(0), "collbench", "launch",
                 "plan.toml", "--on", "slurm", "--site", "site.toml", "--out", "run")  # fmt: skip
        return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def measures(self) -> bool:
        """Whether the ranks of a launch have met."""
        return any((self.share / "collbench").glob("*/*/out/manifest.json"))

    def records(self, run: str = "run") -> tuple[Record, ...]:
        return tuple(read_run(self.share / run).records)

    def left(self) -> str:
        """Jobs that are still there, and folders of ours."""
        jobs = self.root(0, "squeue", "-h", "-t", "PENDING,RUNNING")
        folder = self.share / "collbench"
        return jobs + " ".join(path.name for path in folder.glob("*")) if folder.exists() else jobs


@pytest.fixture
def cluster(request: pytest.FixtureRequest, started: Started, tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of the image that the test names, and perhaps of so many processors, some to a core."""
    image, cpus, threads = (*getattr(request, "param", ("openmpi",)), 1, 1)[:3]
    need(started, image)
    share = Path("/var/tmp") / tmp_path.name  # noqa: S108 - a folder that the engine sees
    sources = ("--volume", f"{ROOT / 'src'}:/src:ro", "--security-opt", "seccomp=unconfined", "--cap-add", "SYS_ADMIN")
    made = Cluster(f"cbtoy-{time.time_ns() % 10**8}", f"collbench/{image}", share, options=sources, cpus=cpus,
                   threads=threads, environment={"USER": "collbench", "PYTHONPATH": "/src"})  # fmt: skip
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(share, ignore_errors=True)


@pytest.mark.parametrize("cluster", [("openmpi",), ("openmpi-4.1",), ("mpich",), ("intelmpi",)], indirect=True)
def test_every_library_over_two_nodes(cluster: Cluster) -> None:
    image = cluster.image.rpartition("/")[2]
    cluster.plan(image, launches=2)
    cluster.site()
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    records = cluster.records()
    assert [(r.status, r.case.where.engine, r.case.where.hosts, r.case.where.policy) for r in records] == [
        ("ok", "slurm", 2, "host")
    ] * 2
    assert [host.name for host in read_run(cluster.share / "run").manifest.hosts] == ["n0", "n1"]
    assert all(record.transport and "tcp" in record.transport for record in records)
    assert cluster.left() == ""


@pytest.mark.parametrize("cluster", [("openmpi", 4, 2)], indirect=True)
def test_each_rank_has_a_core_whatever_its_threads_and_steps_have_the_jobs_environment(cluster: Cluster) -> None:
    cluster.plan(hosts="1")
    plan = (cluster.share / "plan.toml").read_text()
    cluster.write("plan.toml", plan.replace("ranks = [1]", "ranks = [2]"))
    cluster.site(options='["--export=NONE", "--distribution=cyclic"]', more='variables = { PYTHONPATH = "/src" }')
    cluster.write("site.toml", (cluster.share / "site.toml").read_text().replace("cores = 1", "cores = 2"))
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr + "\n".join(cluster.records()[0].notes)
    assert "NumCPUs=4 " in cluster.root(0, "scontrol", "--oneliner", "show", "job", "1"), "both threads of two cores"
    (record,) = cluster.records()
    assert (record.status, record.ranks is not None and record.ranks.host) == ("ok", ("n0", "n0")), record.notes
    assert record.transport == "ob1: sm", "as one of the two says"
    experiment = read_run(cluster.share / "run").manifest.experiment
    assert experiment is not None and experiment.allocation is not None
    assert experiment.allocation.options == ("--distribution=cyclic",)


SIDES = """\
images = ["{image}"]
policies = {policies}
collectives = ["allreduce"]
backends = ["mpi"]
sizes = ["8", "64K"]
ranks = [2]
hosts = [1]
launches = {launches}
timeout = "60s"
{more}
"""


def of_two_cores(
    cluster: Cluster, policies: str = '["host"]', launches: int = 2, sides: str = "ab", runtime: str = "none"
) -> None:
    """A plan of two ranks on a node, with sides that do not differ, and a site to which a task is a core."""
    tables = "".join(f"[sides.{name}]\nvariables = {{}}\n" for name in sides)
    image = cluster.image.rpartition("/")[2]
    cluster.write("plan.toml", SIDES.format(image=image, policies=policies, launches=launches, more=tables))
    cluster.site(runtime=runtime)
    cluster.write("site.toml", (cluster.share / "site.toml").read_text().replace("cores = 1", "cores = 2"))


def temporary_folders(cluster: Cluster) -> str:
    """Those of ranks, on the nodes."""
    return "".join(cluster.root(node, "sh", "-c", "ls -d /tmp/collbench-* 2>/dev/null; true") for node in range(2))


@pytest.mark.parametrize("cluster", [("openmpi", 2), ("openmpi-4.1", 2), ("mpich", 2), ("intelmpi", 2)], indirect=True)
def test_two_steps_on_the_same_cores_take_turns(cluster: Cluster) -> None:
    of_two_cores(cluster)
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    records = cluster.records()
    assert [(record.status, record.how, record.alone) for record in records] == [("ok", "duet", None)] * 8
    for record in records:
        assert record.duet is not None and record.duet.worlds == 2
        assert record.ranks is not None and len(set(record.ranks.host)) == 1
    for key in {(record.case["size"], record.launch) for record in records}:
        beside = [record.duet for record in records if (record.case["size"], record.launch) == key]
        assert_slept([duet for duet in beside if duet is not None], ranks=2)
    assert cluster.left() == "" and temporary_folders(cluster) == ""


@pytest.mark.parametrize("cluster", [("openmpi",), ("mpich",)], indirect=True)
def test_two_steps_over_two_nodes_take_turns_on_clocks_that_differ(cluster: Cluster) -> None:
    cluster.with_other_clocks()
    of_two_cores(cluster)
    plan = (cluster.share / "plan.toml").read_text()
    cluster.write("plan.toml", plan.replace("hosts = [1]", "hosts = [2]").replace('"8", "64K"', LONG))
    site = (cluster.share / "site.toml").read_text().replace("cores = 2", "cores = 1")
    cluster.write("site.toml", site.replace('"/opt/collbench"', '"/shared/other"'))
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    records = cluster.records()
    assert [(record.status, record.how, record.alone) for record in records] == [("ok", "duet", None)] * 8
    for record in records:
        assert record.duet is not None and record.duet.worlds == 2 and record.duet.seconds < 1.0
        assert record.ranks is not None and record.ranks.host == ("n0", "n1")
        assert record.clock == "synced", record.notes
    assert cluster.left() == "" and temporary_folders(cluster) == ""


@pytest.mark.parametrize("cluster", [("openmpi", 2)], indirect=True)
def test_a_side_in_containers_of_a_runtime_takes_turns_with_the_host(cluster: Cluster) -> None:
    unpacked("collbench/openmpi", cluster.share / "img/openmpi", "/shared/collbench")
    of_two_cores(cluster, '["host", "multi", "single"]', launches=1, sides="", runtime="charliecloud")
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    found = {(record.case.where.policy, record.how, record.duet and record.duet.worlds) for record in cluster.records()}
    assert found == {(policy, "duet", 3) for policy in ("host", "multi", "single")}
    assert cluster.left() == "" and temporary_folders(cluster) == ""


TRAININGS = """\
images = ["torch"]
policies = ["host"]
ranks = [2]
launches = 1
warmup = 0
iters = 6
timeout = "120s"
benchmarks = [{ name = "ddp", network = "alexnet", batch = 2 }]
[sides.a]
variables = {}
[sides.b]
variables = {}
"""


@pytest.mark.torch
@pytest.mark.parametrize("cluster", [("torch", 2)], indirect=True)
def test_trainings_take_turns(cluster: Cluster) -> None:
    """Their processes have connections of their own beside those of the ranks that start them."""
    of_two_cores(cluster)
    cluster.write("plan.toml", TRAININGS)
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    found = {(record.case.where.side, record.status, record.how) for record in cluster.records()}
    assert found == {("a", "ok", "duet"), ("b", "ok", "duet")}
    assert cluster.left() == "" and temporary_folders(cluster) == ""


@pytest.mark.parametrize("cluster", [("openmpi", 2)], indirect=True)
@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_of_two_steps_one_is_lost_and_the_other_goes_on(cluster: Cluster, signal: str) -> None:
    of_two_cores(cluster, launches=1)
    plan = (cluster.share / "plan.toml").read_text()
    cluster.write("plan.toml", plan.replace('timeout = "60s"', 'timeout = "8s"'))
    process = cluster.start()
    until(lambda: len(list((cluster.share / "collbench").glob("*/*/out/manifest.json"))) == 2)
    cluster.root(0, "sh", "-c", SIGNAL_ONE.replace("SIGNAL", signal))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    by_side = {record.case.where.side: [] for record in cluster.records()}  # type: ignore[var-annotated]
    for record in cluster.records():
        by_side[record.case.where.side].append(record.status)
    assert sorted(by_side.values(), key=str)[-1] == ["ok", "ok"] and "failed" in sorted(by_side.values(), key=str)[0]
    assert cluster.left() == ""


@pytest.mark.parametrize("cluster", [("openmpi", 2)], indirect=True)
def test_interrupted_turns_are_resumed_and_leave_nothing(cluster: Cluster) -> None:
    of_two_cores(cluster, launches=3)
    process = cluster.start()
    lines = cluster.share / "run/records.jsonl"
    until(lambda: lines.exists() and lines.read_bytes().count(b"\n") >= 4 and cluster.measures())
    cluster.root(0, "sh", "-c", INTERRUPT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in err, err
    assert cluster.left() == "" and temporary_folders(cluster) == ""
    again = cluster.launch("--resume", "run")
    assert again.returncode == 0, again.stderr
    assert [record.how for record in cluster.records()] == ["duet"] * 12
    assert cluster.left() == ""


def test_an_allocation_is_used_for_all_launches(cluster: Cluster) -> None:
    cluster.plan(launches=2)
    cluster.site()
    launch = ("collbench", "launch", "plan.toml", "--on", "slurm", "--site", "site.toml", "--out")
    done = cluster.user("salloc", "--nodes=2", "--exclusive", *launch, "run")
    assert done.returncode == 0, done.stderr
    assert [(record.status, record.ranks and record.ranks.host) for record in cluster.records()] == [
        ("ok", ("n0", "n1"))
    ] * 2
    experiment = read_run(cluster.share / "run").manifest.experiment
    assert experiment is not None and experiment.allocation is not None
    assert (experiment.allocation.job, experiment.allocation.nodes) == ("1", "n[0-1]")
    small = cluster.user("salloc", "--nodes=1", *launch, "small")
    assert small.returncode == 2 and "2 nodes" in small.stderr, small.stderr
    assert cluster.left() == "" and "JobId=3" not in cluster.root(0, "scontrol", "show", "job")


@pytest.mark.torch
@pytest.mark.parametrize("cluster", [("torch",)], indirect=True)
def test_torch_needs_no_pmi(cluster: Cluster) -> None:
    cluster.plan("torch", backend="torch-gloo")
    cluster.site()
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    assert [record.status for record in cluster.records()] == ["ok"]


SERVERS = """\
images = ["torch"]
policies = ["host"]
workers = [1]
hosts = [2]
launches = 1
warmup = 0
iters = 1
benchmarks = [{ name = "parameter_server", steps = 20 }]
"""


@pytest.mark.torch
@pytest.mark.parametrize("cluster", [("torch",)], indirect=True)
def test_a_server_on_a_node_of_its_own(cluster: Cluster) -> None:
    cluster.write("plan.toml", SERVERS)
    cluster.site()
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    (record,) = cluster.records()
    assert (record.status, record.case["servers"], record.case.where.ranks, record.case.where.hosts) == ("ok", 1, 2, 2)
    assert record.ranks is not None and record.ranks.container == ("n0", "n1"), "nodes, which are containers here"
    assert [host.name for host in read_run(cluster.share / "run").manifest.hosts] == ["n0", "n1"]
    assert cluster.left() == ""
    again = cluster.launch("--resume", "run")
    assert (again.returncode, cluster.records()) == (0, (record,)), again.stderr


def test_containers_of_a_runtime(cluster: Cluster) -> None:
    tree = cluster.share / "img/openmpi"
    unpacked(cluster.image, tree, "/shared/collbench")
    (site,) = tree.glob("opt/collbench/lib/python3*/site-packages/collbench")
    shutil.copytree(ROOT / "src/collbench", site, dirs_exist_ok=True)
    cluster.plan(policies='["host", "multi", "single"]')
    plan = (cluster.share / "plan.toml").read_text()
    cluster.write("plan.toml", f'{plan}isolation = ["strict", "files"]\n')  # as leelee2024 has them
    cluster.site("charliecloud", more='variables = { UCX_TLS = "tcp" }\nsetup = ["export UCX_LOG_LEVEL=error"]')
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    experiment = read_run(cluster.share / "run").manifest.experiment
    assert experiment is not None and experiment.allocation is not None
    assert (experiment.allocation.partition, experiment.allocation.nodes) == ("all", "n[0-1]")
    reached = {"UCX_LOG_LEVEL": "error", "UCX_TLS": "tcp"}
    assert [side.environment for side in (*experiment.environments, *experiment.images)] == [reached] * 2
    by_policy = {record.case.where.policy: record for record in cluster.records()}
    assert {name: record.case.where.isolation for name, record in by_policy.items()} == {
        "host": None, "multi": "files", "single": "files"
    }  # fmt: skip
    experiment = read_run(cluster.share / "run").manifest.experiment
    assert experiment is not None and experiment.left_out[0].startswith("isolation strict: ")
    nodes = ("n0", "n1")  # they are containers themselves
    found = {name: record.ranks.container for name, record in by_policy.items() if record.ranks is not None}
    assert found == {"host": nodes, "multi": ("c0", "c1"), "single": ("c0", "c1")}


def test_nodes_whose_clocks_differ_are_synchronised(cluster: Cluster) -> None:
    cluster.with_other_clocks()
    cluster.plan(iters=200)
    plan = (cluster.share / "plan.toml").read_text()
    cluster.write("plan.toml", plan.replace('"8"', LONG.partition(",")[0]))
    cluster.site(openmpi="/shared/other")
    done = cluster.launch("--out", "run")
    assert done.returncode == 0, done.stderr
    (record,) = cluster.records()
    assert record.clock == "synced", record.notes
    assert record.clock_error is not None and record.clock_error.hosts == 2
    assert record.seconds is not None and record.seconds.p50 < 1.0, "the clocks are 12345 s apart"


#: A folder that every node has to itself.
OF_A_NODE = "/tmp/mine"  # noqa: S108


def doctor(cluster: Cluster) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and by check the status and all causes."""
    done = cluster.user("collbench", "doctor", "--json", "--on", "slurm", "--site", "site.toml")
    assert done.stdout, done.stderr
    findings = json.loads(done.stdout)["findings"]
    causes = {one["check"]: " ".join(problem["cause"] for problem in one["problems"]) for one in findings}
    return done.returncode, {one["check"]: (one["status"], causes[one["check"]]) for one in findings}


def test_doctor_examines_the_cluster(cluster: Cluster) -> None:
    cluster.site(more='mpi = { openmpi = "pmix" }')
    text = (cluster.share / "site.toml").read_text()
    only = re.sub("environments = .*", 'environments = { openmpi = "/opt/collbench" }', text)
    cluster.write("site.toml", only)
    code, found = doctor(cluster)
    assert (code, {status for status, _ in found.values()}) == (0, {"ok"}), found
    assert cluster.left() == ""
    cluster.site("apptainer", options='["--partition=all"]', more='mpi = { openmpi = "pmi2" }', openmpi="/none")
    code, found = doctor(cluster)
    assert code == 1 and {"openmpi", "pmi2"} <= set(re.findall(r"\w+", found["mpi"][1]))
    for cause in ("apptainer", "/none/bin/python"):
        assert cause in found["software"][1], cause
    cluster.write("site.toml", only.replace("/shared/collbench", OF_A_NODE))
    code, found = doctor(cluster)
    assert code == 1 and "node n1 " in found["node"][1] and OF_A_NODE in found["node"][1], found
    cluster.site(options='["--partition=gpu"]')
    code, found = doctor(cluster)
    assert code == 1 and "invalid partition specified: gpu" in found["job"][1]
    cluster.root(0, "scontrol", "update", "PartitionName=all", "MaxTime=5")
    cluster.plan()
    cluster.site()
    code, found = doctor(cluster)
    assert code == 1 and found["time"][0] == "fail"
    done = cluster.launch("--out", "run")
    assert done.returncode == 2 and "PartitionTimeLimit" in done.stderr.splitlines()[-1], done.stderr
    assert cluster.left() == ""


def test_what_is_missing_or_another_one_on_one_node_is_named_by_doctor_and_launch(cluster: Cluster) -> None:
    """A node that is not the first: no environment there, then one of other files."""
    cluster.plan()
    cluster.site(openmpi="/opt/own")
    text = (cluster.share / "site.toml").read_text()
    cluster.write("site.toml", re.sub("environments = .*", 'environments = { openmpi = "/opt/own" }', text))
    cluster.root(0, "ln", "-s", "/opt/collbench", "/opt/own")
    code, found = doctor(cluster)
    assert code == 1 and "node n1: " in found["software"][1] and "127" in found["software"][1], found
    done = cluster.launch("--out", "run")
    assert done.returncode == 2 and "node n1: " in done.stderr and "/opt/own/bin/python" in done.stderr, done.stderr
    assert not (cluster.share / "run/records.jsonl").exists(), "before the first launch"
    assert cluster.left() == ""
    cluster.root(1, "sh", "-ec", OTHER_FILES)
    code, found = doctor(cluster)
    assert code == 1 and "other code" in found["software"][1] and "node n1" in found["software"][1], found
    done = cluster.launch("--out", "run")
    assert done.returncode == 2 and "node n1" in done.stderr, done.stderr
    assert cluster.left() == ""


#: An environment whose collbench was changed, on the node where this runs.
OTHER_FILES = """\
mkdir -p /opt/own/bin /opt/changed; cp -r /src/collbench /opt/changed
echo "# changed" >> /opt/changed/collbench/run/measure.py
printf '#!/bin/sh\nPYTHONPATH=/opt/changed exec /opt/collbench/bin/python "$@"\n' > /opt/own/bin/python
chmod -R a+rX /opt/own /opt/changed; chmod 755 /opt/own/bin/python"""


def test_an_interrupted_launch_is_resumed_and_leaves_no_job(cluster: Cluster) -> None:
    cluster.plan(launches=8)
    cluster.site()
    process = cluster.start()
    lines = cluster.share / "run/records.jsonl"
    until(lambda: lines.exists() and lines.read_bytes().count(b"\n") >= 2)
    cluster.root(0, "sh", "-c", INTERRUPT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in err, err
    assert cluster.left() == ""
    before = len(cluster.records())
    cluster.write(
        "plan.toml", (cluster.share / "plan.toml").read_text().replace("launches = 8", f"launches = {before + 1}")
    )
    refused = cluster.launch("--resume", "run")
    assert refused.returncode == 2 and "another plan" in refused.stderr
    cluster.plan(launches=8)
    again = cluster.launch("--resume", "run")
    assert again.returncode == 0, again.stderr
    assert sorted(record.launch for record in cluster.records()) == list(range(8))
    assert cluster.left() == ""


def test_a_node_that_dies_fails_its_launch_and_ends_the_experiment(cluster: Cluster) -> None:
    cluster.plan(launches=3, iters=10_000_000, timeout="10s")
    cluster.site()
    process = cluster.start()
    until(cluster.measures)
    docker("kill", cluster.node(1))
    _, err = process.communicate(timeout=150)
    records = cluster.records()
    assert process.returncode == 2 and "NODE_FAIL" in err and "--resume" in err, err
    assert {record.status for record in records} == {"failed"} and len(records) < 3
    assert cluster.left() == ""


def test_a_job_that_somebody_cancels_ends_the_experiment(cluster: Cluster) -> None:
    cluster.plan(launches=2, iters=10_000_000)
    cluster.site()
    process = cluster.start()
    until(cluster.measures)
    cluster.root(0, "scancel", "1")
    _, err = process.communicate(timeout=60)
    (record,) = cluster.records()
    assert record.lost and "CANCELLED" in str(record.reason), record.reason
    assert process.returncode == 2 and "job 1 has ended" in err and "--resume" in err, err
    assert cluster.left() == ""


REFUSED = [
    ({"options": '["--partition=gpu"]'}, {}, "sbatch says: invalid partition specified: gpu; Batch job submission"),
    ({"options": '["--acount=x"]'}, {}, "sbatch says: unrecognized option '--acount=x'"),
    ({"more": 'setup = ["module load nosuch"]'}, {}, "from: module load nosuch"),
    ({}, {"hosts": "3"}, "will not begin: PENDING (PartitionConfig): the partition does not have so many nodes"),
    ({"folder": "/tmp/own"}, {}, "node n1 does not see /tmp/own/"),  # noqa: S108 - n0 has it alone
    (
        {"runtime": "charliecloud"},
        {"policies": '["multi"]'},
        "every node: does not say what it holds (exit code 1: ch-run: ",
    ),
    ({"more": 'mpi = { openmpi = "pmi2" }'}, {}, "srun --mpi=pmix"),
    ({"more": 'mpi = { openmpi = "nonsense" }'}, {}, "nonsense"),
]


@pytest.mark.parametrize(("site", "plan", "says"), REFUSED)
def test_what_a_cluster_refuses(cluster: Cluster, site: dict[str, str], plan: dict[str, str], says: str) -> None:
    cluster.plan(policies=plan.get("policies", '["host"]'), hosts=plan.get("hosts", "2"))
    cluster.site(**site)
    done = cluster.launch("--out", "run")
    assert done.returncode == 2
    assert says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert cluster.left() == ""


def until(there: Callable[[], bool], limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not there():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)
