"""Pods played by containers: an MPIJob and an Indexed Job."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.toy_slurm import OUTSIDE, docker

from collbench.launch.cells import inner_plan
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import Recipe
from collbench.launch.engines.k8s import all_launches
from collbench.launch.engines.k8s.objects import HOSTFILE, KEYS, Launchable, Object, manifests
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.spec import Stack, WorldSpec
from collbench.launch.expansion import expand, launcher_of
from collbench.launch.folders import folders_in
from collbench.launch.waiting import Stopping
from collbench.schema.plan import Plan
from tests.containers.conftest import Started
from tests.containers.test_launch import need

ROOT = Path(__file__).parents[2]

#: What the MPI Operator sets in the launcher, by library; and a line of its hostfile.
OPERATOR = {
    "openmpi": {
        "OMPI_MCA_orte_default_hostfile": HOSTFILE, "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "1", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "mpich": {"HYDRA_HOST_FILE": HOSTFILE, "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
    "intelmpi": {
        "I_MPI_HYDRA_HOST_FILE": HOSTFILE, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
}  # fmt: skip
LINE = {"openmpi": "{host} slots={slots}\n", "mpich": "{host}:{slots}\n", "intelmpi": "{host}:{slots}\n"}


@dataclass
class Pods:
    """Containers that play the pods of an MPIJob. `folder` holds what the operator and Kubernetes mount."""

    library: str
    image: str
    job: Object
    folder: Path
    network: str
    started: list[str] = field(default_factory=list)

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["spec"]
        return found

    def name_of(self, worker: int) -> str:
        return f"{self.job['metadata']['name']}-worker-{worker}"

    def up(self) -> None:
        """As the operator: a key, a hostfile, a network with the service's names, and the workers."""
        name, workers = self.job["metadata"]["name"], self.spec["mpiReplicaSpecs"]["Worker"]["replicas"]
        keys, etc = self.folder / "keys", self.folder / "etc"
        for folder in (self.folder, keys, etc):
            folder.mkdir(exist_ok=True)
        keygen = ("ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", "key")
        text = docker("run", "--rm", self.image, "sh", "-c", f"cd && {shell(keygen)} && cat key key.pub")
        private, _, public = text.partition("-----END OPENSSH PRIVATE KEY-----\n")
        (keys / "id_rsa").write_text(private + "-----END OPENSSH PRIVATE KEY-----\n")
        for file in ("id_rsa.pub", "authorized_keys"):
            (keys / file).write_text(public)
        hosts = [f"{self.name_of(number)}.{name}.{self.job['metadata']['namespace']}.svc" for number in range(workers)]
        line = LINE[self.library]
        (etc / "hostfile").write_text(
            "".join(line.format(host=host, slots=self.spec["slotsPerWorker"]) for host in hosts)
        )
        docker("network", "create", "--internal", self.network)
        for number, host in enumerate(hosts):
            self.start("Worker", self.name_of(number), ("--network-alias", host, f"--cpuset-cpus={number % 2}"))

    def start(self, part: str, hostname: str, flags: tuple[str, ...], argv: list[str] | None = None) -> str:
        """A pod, with what its template says that a container can have."""
        template = self.spec["mpiReplicaSpecs"][part]["template"]["spec"]
        (container,) = template["containers"]
        fields = {"spec.nodeName": f"node-of-{hostname}", "metadata.name": hostname}
        variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        of_pod = {
            one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"] if "value" not in one
        }
        variables |= {key: fields[path] for key, path in of_pod.items() if path in fields}
        variables |= OPERATOR[self.library] if part == "Launcher" else {}
        variables |= {"PYTHONPATH": "/src"}
        listed = [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
        name = f"{self.network}-{hostname}"
        self.started.append(name)
        docker(
            "run", "-d", "--name", name, "--hostname", hostname, "--network", self.network, *flags, *listed,
            "--user", str(template["securityContext"]["runAsUser"]), "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--tmpfs", "/results:mode=1777",
            "--volume", f"{self.folder / 'keys'}:{KEYS}:ro", "--volume", f"{self.folder / 'etc'}:/etc/mpi:ro",
            "--volume", f"{self.folder / 'plan'}:/collbench:ro", "--volume", f"{ROOT / 'src'}:/src:ro",
            self.image, *(argv or container["command"]),
        )  # fmt: skip
        return name

    def launch(self, without: tuple[str, ...] = ()) -> tuple[int, str]:
        """The launcher, to its end: exit code and output. `without`: words that its command lacks."""
        (container,) = self.spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
        address = "$(hostname -i)"  # Kubernetes knows it
        argv = [word for word in container["command"] if word not in without]
        words = " ".join(address if word == "$(POD_IP)" else shell((word,)) for word in argv)
        name = self.start("Launcher", "launcher", (), ["sh", "-c", f"exec {words}"])
        end = time.monotonic() + 90
        while (code := read(name, "/results/code")) == "":
            assert time.monotonic() < end, docker("logs", name)
            time.sleep(0.2)
        done = subprocess.run(("docker", "logs", name), capture_output=True, text=True, check=True)
        return int(code), done.stdout + done.stderr

    def records(self) -> list[dict[str, Any]]:
        """What rank 0 wrote, in the pod that the results are copied from."""
        text = read(f"{self.network}-{self.name_of(0)}", "/results/out/records.jsonl")
        return [json.loads(line) for line in text.splitlines()]

    def down(self) -> None:
        if self.started:
            docker("rm", "-f", *self.started)
        subprocess.run(("docker", "network", "rm", self.network), capture_output=True, check=False)


def shell(words: tuple[str, ...]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def read(container: str, path: str) -> str:
    done = subprocess.run(("docker", "exec", container, "cat", path), capture_output=True, text=True, check=False)
    return done.stdout


def mpi_job(library: str, folder: Path, ranks: int, policy: str) -> Object:
    """The MPIJob of a launch over two hosts, and its ConfigMap as files."""
    plan = Plan(images=(library,), policies=(policy,), collectives=("allreduce",), sizes=("8",), ranks=(ranks,),
                      hosts=(2,), launches=1, iters=5, warmup=1, timeout="40s", engine="k8s")  # fmt: skip
    site = K8sSite(cores=ranks, images={library: library}, objects="mpijob", namespace="bench")
    (folder / "site.toml").write_text(
        f'[k8s]\ncores = {ranks}\nobjects = "mpijob"\nimages = {{ {library} = "{library}" }}\n'
    )
    done = expand(msgspec.structs.replace(plan, site=str(folder / "site.toml")))
    (cell,) = done.cells
    stack = Stack(launcher_of(library, {}, plan), "")
    world = WorldSpec("cb", "cb-0", "", cell, done.placements[cell], stack, folders_in(Path("x")), (0, 0))
    config, job = manifests(Launchable(world, site, msgspec.json.encode(inner_plan(plan, cell).document).decode()))
    (folder / "plan").mkdir()
    (folder / "plan/plan.json").write_text(config["data"]["plan.json"])
    return job


@pytest.fixture
def pods(request: pytest.FixtureRequest, started: Started, tmp_path: Path) -> Iterator[Pods]:
    """A rank on each of two workers, with the library that the test names."""
    library = request.param
    need(started, library)
    made_of = images.prepare_with("sshd", library, Recipe())
    images.build(started.engine, made_of, lambda line: None, Stopping())
    image = f"collbench/{library}-sshd"
    folder = OUTSIDE / f"cbpods-{time.time_ns() % 10**8}"
    folder.mkdir()
    made = Pods(library, image, mpi_job(library, folder, 2, "single"), folder, folder.name)
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.docker
@pytest.mark.parametrize("pods", list(OPERATOR), indirect=True)
def test_a_rank_in_each_worker(pods: Pods) -> None:
    code, output = pods.launch()
    assert code == 0, output
    (record,) = pods.records()
    assert record["status"] == "ok"
    assert record["ranks"]["container"] == ["c0", "c1"]
    manifest = json.loads(read(f"{pods.network}-{pods.name_of(0)}", "/results/out/manifest.json"))
    assert [host["name"] for host in manifest["hosts"]] == [f"node-of-{pods.name_of(number)}" for number in range(2)]


@pytest.mark.docker
@pytest.mark.parametrize("pods", ["openmpi"], indirect=True)
def test_without_the_hostfile_open_mpi_stays_in_the_launcher_and_the_shape_says_so(pods: Pods) -> None:
    """What the operator's variables alone do: they are those of an older Open MPI."""
    code, output = pods.launch(without=("--hostfile", HOSTFILE))
    assert code != 0
    assert re.search(r"\b2 hosts .*\b1 \(node-of-launcher\)", output), output


#: Whatever may be a key, in the image or in a host's folder of them.
KEYS_IN_IMAGE = ("find", "/", "-xdev", "(", "-name", "ssh_host_*", "-o", "-name", "id_*", "-path", "*ssh*", "-o",
                 "-name", "authorized_keys*", ")", "-type", "f")  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("pods", ["openmpi"], indirect=True)
def test_who_has_no_key_of_the_operators_does_not_get_in(pods: Pods) -> None:
    """A container of the same image on the same network: there is no key in it, and nothing but a key counts."""
    found = docker("run", "--rm", "--user", "0", pods.image, *KEYS_IN_IMAGE)
    assert found.split() == []
    host = pods.name_of(0)
    stranger = ("run", "--rm", "--network", pods.network, pods.image, "ssh", "-o", "BatchMode=yes")
    done = subprocess.run(
        ("docker", *stranger, f"{pods.network}-{host}", "true"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Permission denied (publickey)." in done.stderr) == (255, True), done.stderr


# The pods of an Indexed Job, played by containers ---------------------------------------------------------------------


def job_of(folder: Path) -> dict[str, Any]:
    """A Job of two hosts with two ranks in a container on each; its ConfigMap as a file."""
    (folder / "site.toml").write_text('[k8s]\ncores = 2\nimages = { torch = "collbench/torch" }\n')
    done = expand(Plan(
        images=("torch",), backends=("torch-gloo",), policies=("multi",), collectives=("allreduce",), sizes=("8",),
        ranks=(4,), hosts=(2,), launches=1, iters=5, warmup=1, timeout="60s", engine="k8s", oversubscribe=False,
        site=str(folder / "site.toml"),
    ))  # fmt: skip
    documents = all_launches(done.plan, done.order, done.placements).split("---\n")
    config, _, job = (json.loads(document) for document in documents[1:])
    (folder / "plan.json").write_text(config["data"]["plan.json"])
    found: dict[str, Any] = job
    return found


def read_job(container: str, path: str) -> str:
    return subprocess.run(
        ("docker", "exec", container, "cat", path), capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.docker
@pytest.mark.torch
def test_torch_over_two_pods(started: Started) -> None:
    need(started, "torch")
    folder = OUTSIDE / f"cbjob-{time.time_ns() % 10**8}"
    folder.mkdir()
    names: list[str] = []
    try:
        job = job_of(folder)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        docker("network", "create", "--internal", folder.name)
        for index in range(job["spec"]["completions"]):
            host = f"{job['metadata']['name']}-{index}"
            variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
            variables |= {"JOB_COMPLETION_INDEX": str(index), "COLLBENCH_HOST": f"node-{index}", "PYTHONPATH": "/src"}
            # Two cores on this machine: those of a pod are not its own.
            shape = json.loads(variables["COLLBENCH_SHAPE"]) | {"crowded": True}
            variables["COLLBENCH_SHAPE"] = json.dumps(shape)
            names.append(f"{folder.name}-{index}")
            docker(
                "run", "-d", "--name", names[-1], "--hostname", host, "--network", folder.name, "--network-alias",
                f"{host}.{job['spec']['template']['spec']['subdomain']}", "--user", "1000", "--cap-drop", "ALL",
                *(word for key, value in variables.items() for word in ("--env", f"{key}={value}")),
                "--tmpfs", "/results:mode=1777", "--volume", f"{folder}:/collbench:ro",
                "--volume", f"{ROOT / 'src'}:/src:ro", container["image"], *container["command"],
            )  # fmt: skip
        end = time.monotonic() + 120
        while (code := read_job(names[0], "/results/code")) == "":
            assert time.monotonic() < end, docker("logs", names[0])
            time.sleep(0.5)
        said = subprocess.run(("docker", "logs", names[0]), capture_output=True, text=True, check=True)
        assert code == "0\n", said.stderr
        record = json.loads(read_job(names[0], "/results/out/records.jsonl"))
        assert record["status"] == "ok"
        assert record["ranks"]["container"] == ["c0", "c0", "c1", "c1"]
    finally:
        if names:
            docker("rm", "-f", *names)
        subprocess.run(("docker", "network", "rm", folder.name), capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
