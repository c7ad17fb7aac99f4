"""Programs, trainings and GPUs on a real engine; what is tried before, and what a sweep leaves alone."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.docker import images, sweep
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.images import ask, contents_of, find
from collbench.launch.engines.docker.spec import DRIVER_LABEL
from collbench.launch.folders import SHARED_MEMORY, namespace
from collbench.machine.cgroup import under
from collbench.machine.facts import topology_here
from collbench.schema.record import Record
from tests.containers.conftest import ROOT, Launch, Started, ended, skip_or_fail
from tests.containers.test_launch import need
from tests.containers.worlds import LONG, ranks_of
from tests.processes import LIMIT, wait_for
from tests.runs import read_run

FOLDER = "/var/tmp"  # noqa: S108 - the default of plans

PLAN = """\
images = ["tools"]
policies = ["host", "multi"]
launches = 1
warmup = 0
iters = 1
timeout = "60s"
{more}
"""


def folders() -> set[Path]:
    """What launches make for their files."""
    return {path for parent in (FOLDER, SHARED_MEMORY) for path in Path(parent).glob("collbench-*")}


def by_place(run: Path) -> dict[tuple[str, str | None], Record]:
    """One record of each place and storage."""
    return {(record.case.where.engine, record.case.where.storage): record for record in read_run(run).records}


@pytest.mark.docker
def test_every_storage_is_what_it_says_and_nothing_is_left(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    before, volumes = folders(), len(clean.engine.api.volumes()["Volumes"] or ())
    more = 'storage = ["overlay", "volume", "bind", "tmpfs"]\nbenchmarks = [{ name = "dd", count = 2 }]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    assert code == 0, err
    found = by_place(tmp_path / "run")
    assert {record.status for record in found.values()} == {"ok"}
    disk = under(Path(FOLDER)).text
    layers = under(Path(str(clean.engine.describe()["DockerRootDir"]))).text
    expected = {"overlay": f"overlay on {layers}", "volume": layers, "bind": disk, "tmpfs": "tmpfs"}
    assert {storage: found["docker", storage].transport for storage in expected} == expected
    on_host = dict.fromkeys(("overlay", "volume", "bind"), disk) | {"tmpfs": under(Path(SHARED_MEMORY)).text}
    assert {storage: found["host", storage].transport for storage in on_host} == on_host
    assert folders() == before
    assert len(clean.engine.api.volumes()["Volumes"] or ()) == volumes


COMMANDS = """
[[benchmarks]]
command = ["./app", "7"]
metric = "took ([0-9.]+) ms"
unit = "ms"
check = "test -x app"

[[benchmarks]]
command = "seq 1 1000 | sort -n | tail -1"
"""


@pytest.mark.docker
def test_a_command_is_the_same_file_on_the_host_and_in_a_container(
    clean: Started, launch: Launch, tmp_path: Path
) -> None:
    need(clean, "tools")
    app = tmp_path / "app"
    app.write_text('#!/bin/sh\nls; pwd; echo took $1.5 ms; test -e /.dockerenv || test "$(pwd)" != /\n')
    app.chmod(0o755)
    tmp_path.chmod(0o755)
    before = folders()
    code, _, err = ended(launch(PLAN.format(more=COMMANDS)))
    assert code == 0, err
    run = read_run(tmp_path / "run")
    printed = [record for record in run.records if record.case["metric"]]
    assert [record.status for record in run.records] == ["ok"] * 4
    assert {record.case.where.policy for record in printed} == {"host", "multi"}
    assert [record.seconds and record.seconds.p50 for record in printed] == pytest.approx([7.5e-3] * 2)
    experiment = run.manifest.experiment
    assert experiment is not None
    hashes = [{library.sha256 for library in side.libraries if library.name == "app"}
              for side in (*experiment.images, *experiment.environments)]  # fmt: skip
    assert len(hashes) == 2 and hashes[0] == hashes[1] != {None}
    assert folders() == before


def suite_of(name: str, *words: str) -> subprocess.Popen[str]:
    command = ("-m", "collbench", "suite", name, "--style", "json", *words)
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def starting(engine: Docker) -> list[dict[str, Any]]:
    """Containers that container_start has made."""
    return [made for made in engine.labelled() if made["Command"].startswith("/_clock")]


@pytest.mark.docker
def test_phases_of_containers_and_of_a_bare_process(clean: Started) -> None:
    need(clean, "tools")
    with suite_of("container_start", "process=bare,container:none,container:host", "-n", "2", "-w", "0") as process:
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    records = json.loads(out)["records"]
    assert {record["status"] for record in records} == {"ok"}, records
    cases = [(record["case"]["how"]["process"], record["case"]["what"]["measure"]) for record in records]
    measured = {kind: [measure for other, measure in cases if other == kind] for kind, _ in cases}
    phases = ["create", "start", "exit", "removal", "total"]
    assert measured == {"bare": ["start", "exit", "total"], "container:none": phases, "container:host": phases}
    assert starting(clean.engine) == []


@pytest.mark.docker
def test_a_server_in_a_container_answers_a_client_on_the_host(clean: Started) -> None:
    need(clean, "torch")
    if shutil.which("qperf") is None:
        skip_or_fail("the host has no qperf")
    processes = ("bare", "container:bridge", "container:host")
    done = suite_of("qperf_host", "seconds=1", f"process={','.join(processes)}", "-n", "1", "-w", "0")
    out, err = done.communicate(timeout=LIMIT)
    assert done.returncode == 0, err
    records = json.loads(out)["records"]
    assert [(record["case"]["how"]["process"], record["status"]) for record in records] == [
        (process, "ok") for process in processes for measure in ("transfer", "message")
    ]
    assert clean.engine.labelled() == []


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_starts_that_are_ended_leave_no_container(clean: Started, number: signal.Signals) -> None:
    need(clean, "tools")
    with suite_of("container_start", "process=container:none", "-n", "10000") as process:
        try:
            wait_for(lambda: starting(clean.engine))
        finally:
            process.send_signal(number)
            process.communicate(timeout=LIMIT)
    found: list[bool] = []  # between two samples there is none either

    def none_for_a_second() -> bool:
        found.append(starting(clean.engine) == [])
        time.sleep(0.1)
        return len(found) >= 10 and all(found[-10:])

    wait_for(none_for_a_second)


@pytest.mark.docker
def test_the_filter_of_system_calls_is_the_engines_or_none(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    more = 'seccomp = ["default", "unconfined"]\nbenchmarks = [{ name = "linpack", n = 50 }]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    assert code == 0, err
    inside = [record for record in read_run(tmp_path / "run").records if not record.case.where.on_host]
    assert {record.case.where.seccomp: record.confinement[0].seccomp for record in inside} == {
        "default": True, "unconfined": False
    }  # fmt: skip
    assert all(record.confinement[0].speculation for record in inside)


@pytest.mark.docker
def test_another_device_is_refused_before_anything_starts(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "tools")
    more = f'folder = "{SHARED_MEMORY}"\nbenchmarks = [{{ name = "dd", count = 2 }}]'
    code, _, err = ended(launch(PLAN.format(more=more)))
    layers = str(clean.engine.describe()["DockerRootDir"])
    assert code == 2
    parts = (f"{layers} on {under(Path(layers)).text}", f"{SHARED_MEMORY} on tmpfs")
    assert all(part in err for part in parts), err
    assert not (tmp_path / "run").exists()


@pytest.mark.docker
def test_what_an_image_lacks_is_refused_or_skipped(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """openmpi has none of the programs."""
    plan = PLAN.replace('"host", ', "").replace("tools", "openmpi")
    code, _, err = ended(launch(plan.format(more='benchmarks = ["ioping"]')))
    assert (code, "image openmpi: benchmark ioping: ioping " in err) == (2, True), err
    more = 'unusable = "skip"\nbenchmarks = ["ioping", { name = "dd", count = 2 }]'
    code, _, err = ended(launch(plan.format(more=more)))
    statuses = {record.case.workload: record.status for record in read_run(tmp_path / "run").records}
    assert (code, statuses) == (0, {"ioping": "skipped", "dd": "ok"}), err


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_launch_leaves_no_files(
    clean: Started, launch: Launch, tmp_path: Path, number: signal.Signals
) -> None:
    need(clean, "tools")
    before = folders()
    more = 'storage = ["bind"]\nbenchmarks = [{ name = "dd", count = 4096 }]'
    process = launch(PLAN.replace("iters = 1", "iters = 1000").format(more=more))
    end = time.monotonic() + 60
    while time.monotonic() < end and folders() == before:
        time.sleep(0.05)
    process.send_signal(number)
    code, _, err = ended(process)
    assert code == 130, err
    assert folders() == before


# Trainings on the host and in containers of a real engine -------------------------------------------------------------

TRAININGS = """\
images = ["torch"]
policies = ["host", "multi", "single"]
oversubscribe = true
launches = 1
warmup = 1
iters = 2
timeout = "120s"
{more}
"""

SERVER = "collbench.workloads.dl.parameter_server"


def records(run: Path) -> dict[tuple[str, str], Record]:
    """By policy and measure."""
    return {(record.case.where.policy, record.case["measure"]): record for record in read_run(run).records}


def boxes(record: Record) -> int:
    """Places that its ranks were in: containers, or the host."""
    return len(set(record.ranks.container if record.ranks else ()))


@pytest.mark.docker
@pytest.mark.torch
def test_servers_and_workers_meet_wherever_they_are(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "torch")
    more = 'workers = [2]\nservers = [1]\nbenchmarks = [{ name = "parameter_server", steps = 50 }]'
    plan = TRAININGS.replace("warmup = 1\niters = 2", "warmup = 0\niters = 1")  # each is an execution
    code, _, err = ended(launch(plan.format(more=more)))
    found = records(tmp_path / "run")
    assert {record.status for record in found.values()} == {"ok"}, err
    assert (code, {policy: boxes(record) for (policy, _), record in found.items()}) == (
        0, {"host": 1, "multi": 1, "single": 3}
    )  # fmt: skip
    assert {(record.case["servers"], record.case.where.ranks) for record in found.values()} == {(1, 3)}


@pytest.mark.docker
@pytest.mark.torch
def test_replicas_learn_the_same_wherever_they_are_beside_their_all_reduces(
    clean: Started, launch: Launch, tmp_path: Path
) -> None:
    need(clean, "torch")
    more = ('ranks = [2]\ncollectives = ["allreduce"]\nbackends = ["torch-gloo"]\nsizes = ["1M"]\n'
            'benchmarks = [{ name = "ddp", network = "alexnet", batch = 4 }]')  # fmt: skip
    code, _, err = ended(launch(TRAININGS.format(more=more)))
    found = records(tmp_path / "run")
    assert (code, {record.status for record in found.values()}) == (0, {"ok"}), err
    steps = [record for (_, measure), record in found.items() if measure == "step"]
    assert len(steps) == 3
    (messages,) = {record.messages for record in steps}
    assert sum(messages) == 4 * 85_098
    assert len({record.check.repeatable["loss"] for record in steps if record.check is not None}) == 1


@pytest.mark.docker
@pytest.mark.torch
def test_a_training_reads_a_cold_file_first(clean: Started, launch: Launch, tmp_path: Path) -> None:
    need(clean, "torch")
    more = 'benchmarks = [{ name = "train", network = "alexnet", batch = 8, epoch = 2 }]'
    code, _, err = ended(launch(TRAININGS.replace(', "single"', "").format(more=more)))
    found = records(tmp_path / "run")
    assert (code, {record.status for record in found.values()}) == (0, {"ok"}), err
    assert {key: record.samples.n for key, record in found.items() if record.samples is not None} == {
        ("host", "batch"): 2, ("host", "first"): 1, ("multi", "batch"): 2, ("multi", "first"): 1
    }  # fmt: skip
    assert all(record.check is not None and record.check.figures["resident"] < 0.01 for record in found.values())


@pytest.mark.docker
@pytest.mark.torch
@pytest.mark.parametrize("later", [0.0, 5.0], ids=["before-they-meet", "while-they-train"])
def test_a_worker_that_is_killed_ends_its_world_and_no_other(
    clean: Started, launch: Launch, tmp_path: Path, later: float
) -> None:
    need(clean, "torch")
    more = 'workers = [1]\nservers = [1]\nbenchmarks = [{ name = "parameter_server", steps = 100000000 }]'
    process = launch(TRAININGS.replace('"host", "multi", ', "").format(more=more))
    end = time.monotonic() + 100
    while time.monotonic() < end and len(running := of_servers()) < 2:
        time.sleep(0.2)
    time.sleep(later)
    began = time.monotonic()
    os.kill(running[-1], signal.SIGKILL)
    code, _, err = ended(process)
    (record,) = records(tmp_path / "run").values()
    assert (code, record.status) == (1, "failed"), err
    assert record.reason is not None and "signal 9" in record.reason
    assert time.monotonic() - began < 60
    assert of_servers() == []


def of_servers() -> list[int]:
    """Processes of such a training, in whatever container."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if SERVER.encode() in words:
            found.append(int(folder.name))
    return sorted(found)


# Images and plans for GPUs, on an engine without any ------------------------------------------------------------------

ALLREDUCE = ("collbench", "allreduce", "--backend", "nccl")

WITHOUT = pytest.mark.skipif(bool(topology_here().gpus), reason="this machine has GPUs")


def inside(image: str, *command: str) -> subprocess.CompletedProcess[str]:
    argv = ("docker", "run", "--rm", "--network", "none", f"collbench/{image}", *command)
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.docker
def test_the_image_with_cuda_holds_cupy_and_one_nccl(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    found = contents_of(clean.engine, find(clean.engine, "openmpi-cuda"))
    (nccl,) = (library for library in found.libraries if library.name == "NCCL")
    packages = {name: version for name, version in found.packages.items() if name.startswith(("cupy", "nvidia-nccl"))}
    assert found.cuda in ("12", "13")
    assert packages == {f"cupy-cuda{found.cuda}x": packages[f"cupy-cuda{found.cuda}x"],
                        f"nvidia-nccl-cu{found.cuda}": nccl.version}  # fmt: skip
    labels = images.inspect(clean.engine, "collbench/openmpi-cuda")["Config"]["Labels"]
    assert labels["collbench.nccl"] == nccl.version
    assert labels["collbench.nccl.sha256"] == nccl.sha256
    assert labels["collbench.cuda"] == found.cuda
    assert labels["collbench.cupy"] == packages[f"cupy-cuda{found.cuda}x"]
    loads = (
        "from collbench.bindings.gpu.device import load; from cupy.cuda import nccl, runtime; "
        "load('cudart', f'libcudart.so.{runtime.runtimeGetVersion() // 1000}', only=False); print(nccl.get_version())"
    )
    done = inside("openmpi-cuda", "python", "-c", loads)
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    assert f"{number // 10_000}.{number // 100 % 100}.{number % 100}" == nccl.version


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich", "openmpi-cuda", "torch"])
def test_no_image_asks_for_gpus_by_itself(clean: Started, image: str) -> None:
    need(clean, image)
    variables = images.inspect(clean.engine, f"collbench/{image}")["Config"]["Env"]
    assert {one for one in variables if one.startswith("NVIDIA_")} == {
        "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    }  # fmt: skip


@pytest.mark.docker
def test_nccl_without_a_gpu_is_refused_in_one_line(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    done = inside("openmpi-cuda", *ALLREDUCE)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("collbench: backend nccl: ") and "NVIDIA driver" in line
    done = inside("openmpi-cuda", "mpirun", "-n", "2", *ALLREDUCE)
    assert done.returncode == 2
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("collbench: "))
    assert "rank 0 on " in line and "NVIDIA driver" in line


@pytest.mark.docker
def test_doctor_finds_cupy_and_nccl_in_it(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    found = {
        row["check"]: row
        for row in json.loads(inside("openmpi-cuda", "collbench", "doctor", "--json").stdout)["findings"]
    }
    assert "nvidia-nccl wheel" in found["nccl"]["seen"]


@WITHOUT
@pytest.mark.docker
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_plan_for_gpus_is_refused_before_anything_starts(
    clean: Started, launch: Launch, more: tuple[str, ...]
) -> None:
    plan = (ROOT / "launch" / "choi2021-gpu.toml").read_text(encoding="utf-8")
    process = launch(plan, *more)
    code, out, err = ended(process)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "device gpu: 1 worker " in line and 'device = "cpu"' in line


@pytest.mark.docker
def test_a_backend_of_gpus_with_slots_of_cores_is_refused(clean: Started, launch: Launch) -> None:
    plan = 'collectives = ["allreduce"]\nimages = ["mpich"]\nbackends = ["nccl"]\n'
    code, out, err = ended(launch(plan))
    assert (code, out) == (2, "")
    assert 'Set device = "gpu"' in err


# What is tried before the first launch --------------------------------------------------------------------------------

#: Of what a probe prints, no more than this is read (bytes): its log has 1 MiB.
MOST = 2 << 20


@pytest.mark.docker
def test_of_what_an_image_prints_the_end_is_read(engine: Docker) -> None:
    flood = "import sys\nfor _ in range(64): sys.stdout.write(('x' * 1023 + '\\n') * 1024)\nprint('the end')"
    code, said = ask(engine, find(engine, "collbench/mpich"), ("python", "-c", flood))
    assert (code, said.splitlines()[-1]) == (0, "the end")
    assert len(said) < MOST


@pytest.mark.docker
def test_who_asks_an_image_has_a_folder_to_write_to(engine: Docker) -> None:
    """CuPy makes one in the home folder when it is imported; the number that asks belongs to nobody in the image."""
    code, said = ask(engine, find(engine, "collbench/mpich"), ("sh", "-c", "touch $HOME/x && echo $USER"))
    assert (code, said.strip()) == (0, "collbench")


@pytest.mark.docker
def test_the_engine_keeps_no_log_of_a_launch(clean: Started, launch: Launch) -> None:
    process = launch(LONG.format(image="mpich", step="ipc", launches=1))
    wait_for(lambda: ranks_of(clean))
    found = [clean.engine.api.inspect_container(one["Id"])["HostConfig"] for one in clean.containers()]
    process.terminate()
    assert ended(process)[0] == 130
    assert [(one["LogConfig"]["Type"], one["PidsLimit"]) for one in found] == [("none", 4096)] * 3


@pytest.mark.docker
def test_a_temporary_folder_that_the_engine_does_not_see(clean: Started, tmp_path: Path) -> None:
    """A driver in a container, or an engine on another machine: one message before anything is started."""
    own = ("unshare", "--mount", "--propagation", "private")
    if subprocess.run((*own, "true"), capture_output=True, check=False).returncode:
        skip_or_fail("a mount namespace of one's own takes root")
    there = tmp_path / "tmp"
    there.mkdir()
    plan = tmp_path / "plan.toml"
    plan.write_text(LONG.format(image="openmpi", step="strict", launches=3))
    command = shlex.join((sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run")))
    done = subprocess.run(
        (*own, "sh", "-c", f"mount -t tmpfs tmpfs {there} && exec {command}"), env={**os.environ, "TMPDIR": str(there)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"collbench: temporary folder {there}: ") and "TMPDIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(there.iterdir()) == []  # the engine has made nothing of its own there
    assert not (tmp_path / "run").exists()


# What a sweep leaves alone --------------------------------------------------------------------------------------------

#: A benchmark of files that are in a folder of the host, where no sweep looks by itself.
IN_FILES = """
images = ["tools"]
policies = ["multi"]
storage = ["bind"]
folder = "{folder}"
launches = 1
warmup = 0
iters = 1
timeout = "10m"
benchmarks = [{{ name = "fio", size = "16M", direct = 0, cache = "warm", runtime = 600, ramp = 0 }}]
"""

#: A PID namespace of its own, as a job in a container has it.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Ours(Docker):
    """Sees what is driven from other PID namespaces than this test's, and was made since.

    Others may use the same engine, and theirs are not this test's to sweep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others: frozenset[str] = frozenset()
        self.others = frozenset(one["Id"] for one in (*self.labelled(), *self.networks()))

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        return self._ours(super().labelled(*labels))

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        return self._ours(super().networks(*labels))

    def _ours(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        here = f"/{namespace('pid')}/"
        return [one for one in found if one["Id"] not in self.others and here not in one["Labels"][DRIVER_LABEL]]


@pytest.fixture
def ours(engine: Docker) -> Docker:
    return Ours()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`elsewhere(toml)`: a launch that is driven from another PID namespace, with the temporary folder of this test."""
    if subprocess.run((*ELSEWHERE, "true"), capture_output=True, check=False).returncode:
        skip_or_fail("a PID namespace of one's own takes root")
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    begun: list[subprocess.Popen[str]] = []

    def start(plan: str) -> subprocess.Popen[str]:
        path = tmp_path / "plan.toml"
        path.write_text(plan)
        argv = (*ELSEWHERE, sys.executable, "-m", "collbench", "launch", str(path), "--out", str(tmp_path / "run"))
        begun.append(subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True))  # fmt: skip
        return begun[0]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_sweeps_all_along_a_launch_in_another_pid_namespace(
    ours: Docker, elsewhere: Any, tmp_path: Path, image: str
) -> None:
    process = elsewhere(LONG.format(image=image, step="ipc", launches=2).replace('"10s"', '"0.2s"'))
    removed, kept = [], set()
    while process.poll() is None:
        gone, left = sweep(ours)
        removed += gone
        kept.update(left)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, (out, err)
    assert removed == []
    assert len(kept) > 6  # probes, and of each launch three containers and a network
    assert [record.status for record in read_run(tmp_path / "run").records] == ["ok"] * 12


@pytest.mark.docker
def test_what_a_killed_driver_of_another_pid_namespace_left_is_swept(ours: Docker, elsewhere: Any) -> None:
    process = elsewhere(LONG.format(image="mpich", step="strict", launches=1))
    names = wait_for(lambda: [one["Names"][0].lstrip("/") for one in ours.labelled() if "-c1" in one["Names"][0]])
    assert sweep(ours)[0] == []
    process.kill()  # and with it what it has started
    process.communicate()
    removed, kept = sweep(ours)
    assert set(names) <= set(removed)
    assert kept == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


@pytest.mark.docker
def test_the_files_of_a_killed_launch_are_swept_wherever_they_are(ours: Docker, elsewhere: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    process = elsewhere(IN_FILES.format(folder=folder))
    wait_for(lambda: process.poll() is not None or list(folder.glob("collbench-*/files/collbench-files-*/data.*")))
    assert process.poll() is None, process.communicate()
    assert sweep(ours)[0] == [] and list(folder.iterdir()) != []
    process.kill()
    process.communicate()
    _, kept = sweep(ours)
    assert kept == []
    assert list(folder.iterdir()) == list(Path(tempfile.gettempdir()).iterdir()) == []
