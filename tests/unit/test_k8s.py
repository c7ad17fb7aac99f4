"""The engine k8s: site files, objects, refusals, and sessions with a kubectl that is played."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.k8s_objects import check

from collbench.errors import EngineError, PlanError
from collbench.launch.engines.k8s import K8sSession, all_launches, client, unpack
from collbench.launch.engines.k8s.client import Client
from collbench.launch.engines.k8s.objects import DRIVER, RUN, Launchable, look_job, manifests, script_launcher
from collbench.launch.engines.k8s.site import K8sSite, read
from collbench.launch.engines.spec import Stack, WorldSpec, cleaned
from collbench.launch.expansion import expand, launcher_of
from collbench.launch.folders import driver_identity, folders_in
from collbench.schema.plan import Plan
from collbench.schema.store import read_run

SITE: dict[str, Any] = {
    "cores": 8, "objects": "mpijob", "namespace": "bench",
    "images": {name: f"registry/{name}:1" for name in ("openmpi", "mpich", "torch")},
}  # fmt: skip

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Golden = Callable[[str, str], None]

PLAN = Plan(images=("openmpi",), policies=("single",), collectives=("allreduce",), sizes=("8",), ranks=(2,),
                  hosts=(2,), launches=1, engine="k8s")  # fmt: skip

#: What a tainted pool of GPUs with a fast fabric needs.
TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
NETWORKS = {"k8s.v1.cni.cncf.io/networks": "rdma-a"}
POOL: dict[str, Any] = {
    "gpu_resource": "nvidia.com/mig-1g.10gb",
    "resources": {"rdma/hca": 1, "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5120Mi"},
    "pod": {
        "metadata": {"annotations": NETWORKS, "labels": {"team": "hpc"}},
        "spec": {
            "tolerations": [TOLERATED], "imagePullSecrets": [{"name": "registry"}], "runtimeClassName": "nvidia",
            "priorityClassName": "low", "hostNetwork": True, "securityContext": {"supplementalGroups": [44]},
            "volumes": [{"name": "huge", "emptyDir": {"medium": "HugePages"}}],
        },
    },
    "container": {
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "huge", "mountPath": "/hugepages"}],
    },
}  # fmt: skip

TORCH = {"images": ("torch",), "backends": ("torch-gloo",)}


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value)


def site_file(where: Path, **changes: Any) -> str:
    path = where / "site.toml"
    path.write_text("[k8s]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in (SITE | changes).items()))
    return str(path)


def printed(folder: Path, plan: dict[str, Any] | None = None, **site: Any) -> str:
    done = expand(msgspec.structs.replace(PLAN, site=site_file(folder, **site), **(plan or {})))
    return all_launches(done.plan, done.order, done.placements)


def objects(text: str) -> list[dict[str, Any]]:
    """The documents of what is printed, without the comments between them."""
    documents = ("\n".join(line for line in part.splitlines() if not line.startswith("#"))
                 for part in text.split("---\n"))  # fmt: skip
    return [json.loads(document) for document in documents if document.strip()]


def of_kind(text: str, kind: str) -> dict[str, Any]:
    return next(one for one in objects(text) if one["kind"] == kind)


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("openmpi", {}, {}),
    (
        "mpich",
        {"images": ("mpich",), "policies": ("multi",), "ranks": (4,), "isolation": ("files",)},
        {"queue": "a"},
    ),
    ("packed", {"policies": ("packed:2",), "ranks": (4,), "hosts": (1,), "isolation": ("limits",)}, {}),
    ("torch", TORCH, {"node_selector": {"pool": "h100"}, "variables": {"GLOO_SOCKET_IFNAME": "eth0"}}),
    ("torch-net", TORCH | {"ranks": (4,), "isolation": ("net",)}, {"objects": "job"}),
    ("one-pod", {"policies": ("multi",), "hosts": (1,), "seccomp": ("unconfined",)}, {"objects": "job"}),
    ("gpus", {"device": "gpu", "backends": ("nccl",), "policies": ("multi",), "ranks": (4,)}, {"gpus": 2}),
    ("pool", {"isolation": ("limits",)}, POOL),
]


@pytest.mark.parametrize(("name", "plan", "site"), CASES)
def test_what_is_given_to_kubernetes(
    golden: Golden, tmp_path: Path, name: str, plan: dict[str, Any], site: dict[str, Any]
) -> None:
    golden(f"k8s-{name}.yaml", printed(tmp_path, plan, **site))


@pytest.mark.parametrize(("name", "plan", "site"), CASES)
def test_kubernetes_knows_every_field(tmp_path: Path, name: str, plan: dict[str, Any], site: dict[str, Any]) -> None:
    for one in objects(printed(tmp_path, plan, **site)):
        check(one)


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    text = printed(tmp_path, {"isolation": ("limits",)})
    check(of_kind(text, "MPIJob"))
    for right, wrong in (("slotsPerWorker", "slotPerWorker"), ("sizeLimit", "sizelimit"), ("OpenMPI", "OpenMPI5")):
        with pytest.raises(AssertionError, match=wrong):
            check(of_kind(text.replace(f'"{right}"', f'"{wrong}"'), "MPIJob"))


def test_hosts_and_their_pods(tmp_path: Path) -> None:
    """Pods of one host are on one node, those of several each on their own."""
    one = of_kind(printed(tmp_path, TORCH | {"hosts": (1,)}), "Job")
    several = of_kind(printed(tmp_path, TORCH), "Job")
    assert set(one["spec"]["template"]["spec"]["affinity"]) == {"podAffinity"}
    assert set(several["spec"]["template"]["spec"]["affinity"]) == {"podAntiAffinity"}
    assert (
        "affinity" not in of_kind(printed(tmp_path, {"policies": ("multi",), "hosts": (1,)}), "Job")["spec"]["template"]
    )


def test_later_launches_have_the_nodes_of_the_first(tmp_path: Path) -> None:
    done = expand(msgspec.structs.replace(PLAN, site=site_file(tmp_path)))
    ((cell, placement),) = done.placements.items()
    stack = Stack(launcher_of("openmpi", {}, done.plan), "")
    world = WorldSpec("run", "run-1", "", cell, placement, stack, folders_in(tmp_path), (0, 0))
    _, job = manifests(Launchable(world, read(done.plan.site), "{}", ("a", "b")))
    check(job)
    pods = job["spec"]["mpiReplicaSpecs"]
    terms = pods["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["a"], ["b"]]
    assert "affinity" not in pods["Launcher"]["template"]["spec"]


def templates(text: str) -> list[dict[str, Any]]:
    """The pod templates of a launch, a launcher's first, and that of a look at its image."""
    found: list[dict[str, Any]] = []
    for one in objects(text):
        replicas = one["spec"].get("mpiReplicaSpecs", {}).values() if "spec" in one else ()
        found += [of_part["template"] for of_part in replicas]
        found += [one["spec"]["template"]] if one["kind"] == "Job" else []
    return found


def look(site: K8sSite) -> dict[str, Any]:
    return look_job(site, "run", "run-look-0", "driver", "openmpi", ("python",))


def test_every_pod_reaches_a_tainted_pool(tmp_path: Path) -> None:
    """Looks at images and launchers ask for no device, and must run where the ranks do."""
    launcher, ranks = templates(printed(tmp_path, {"isolation": ("limits",)}, **POOL))
    looked = look(read(site_file(tmp_path, **POOL)))
    check(looked)
    for made in (launcher, ranks, looked["spec"]["template"]):
        assert made["spec"]["tolerations"] == [TOLERATED]
        assert made["metadata"]["annotations"] == NETWORKS
        assert made["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert (made["spec"]["hostNetwork"], made["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert made["spec"]["securityContext"]["supplementalGroups"] == [44]
        assert made["spec"]["securityContext"]["runAsNonRoot"] is True
        (container,) = made["spec"]["containers"]
        assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert ("rdma/hca" in container["resources"]["limits"]) == (made is ranks)
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert ranks["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert [volume["name"] for volume in ranks["spec"]["volumes"]] == ["plan", "results", "shm", "huge"]


@pytest.mark.parametrize(
    ("step", "plan"),
    [("strict", {}), ("limits", {}), ("strict", TORCH), ("limits", TORCH), ("net", TORCH | {"ranks": (4,)})],
)
def test_pods_pass_the_restricted_level_of_pod_security(tmp_path: Path, step: str, plan: dict[str, Any]) -> None:
    """All steps but `files`: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    made = templates(printed(tmp_path, plan | {"isolation": (step,)}))
    for template in (*made, look(read(site_file(tmp_path)))["spec"]["template"]):
        spec, allowed = template["spec"], {"name", "configMap", "emptyDir"}
        assert not {"hostNetwork", "hostIPC", "hostPID"} & spec.keys()
        assert all(volume.keys() <= allowed for volume in spec.get("volumes", ()))
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}
            }  # fmt: skip


def test_gpus_are_counted_by_the_resource_of_the_site(tmp_path: Path) -> None:
    plan = {"device": "gpu", "backends": ("nccl",), "policies": ("multi",), "ranks": (4,)}
    text = printed(tmp_path, plan, gpus=2, gpu_resource="nvidia.com/mig-1g.10gb")
    limits = templates(text)[1]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mig-1g.10gb"] == "2" and "nvidia.com/gpu" not in limits


def test_what_the_step_says_of_the_network_stands(tmp_path: Path) -> None:
    """The network of the node is what step files measures, whatever the site file says."""
    site = {"pod": {"spec": {"hostNetwork": False}}}
    _, ranks = templates(printed(tmp_path, {"policies": ("multi",), "isolation": ("files",)}, **site))
    assert ranks["spec"]["hostNetwork"] is True


def test_of_a_site_what_changes_numbers_is_recorded(tmp_path: Path) -> None:
    assert read(site_file(tmp_path, **POOL)).options == (
        'container.securityContext.capabilities.add=["IPC_LOCK"]',
        'container.volumeMounts=[{"name": "huge", "mountPath": "/hugepages"}]',
        "gpu_resource=nvidia.com/mig-1g.10gb",
        "pod.metadata.annotations.k8s.v1.cni.cncf.io/networks=rdma-a",
        "pod.spec.hostNetwork=true",
        "pod.spec.runtimeClassName=nvidia",
        "pod.spec.securityContext.supplementalGroups=[44]",
        'pod.spec.volumes=[{"name": "huge", "emptyDir": {"medium": "HugePages"}}]',
        "resources.hugepages-2Mi=5120Mi",
        "resources.rdma/hca=1",
        "resources.vpc.amazonaws.com/efa=4",
    )
    assert read(site_file(tmp_path)).options == ()


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("pod.spec.containers = []", "pod.spec.containers: collbench sets it itself"),
        ("pod.spec.hostPID = true", "isolation"),
        ("pod.spec.affinity = {}", "node_selector"),
        ("pod.spec.securityContext.runAsUser = 0", "runAsUser"),
        ("container.env = []", "variables"),
        ("container.resources.limits = {}", "write resources"),
        ("container.securityContext.privileged = true", "privileged"),
        ("pod.spek = {}", "Did you mean spec?"),
        ("pod.metadata.name = 'x'", "unknown key 'name'"),
        ("pod.metadata.labels = { 'collbench/run' = 'x' }", "collbench/run"),
        ("pod.metadata.annotations = { a = 1 }", "must be a string"),
        ("pod.spec.tolerations = { key = 'x' }", "must be a list"),
        ("pod.spec.tolerations = [1]", "must be a table"),
        ("pod.spec.securityContext = 'x'", "must be a table"),
        ("container.securityContext.capabilities.add = 'IPC_LOCK'", "must be a list"),
        ("pod.spec.volumes = [{ name = 'results' }]", "'results'"),
        ("container.volumeMounts = [{ mountPath = '/dev/shm/' }]", "mountPath"),
        ("pod.spec.x = 2026-01-01", "pod.spec.x"),
        ("pod.spec.tolerations = [{ tolerationSeconds = nan }]", "pod.spec.tolerations[]"),
        (f"pod.spec.{'.'.join(['a'] * 40)} = 1", "tables within"),
        ("resources = { cpu = 2 }", "resources 'cpu'"),
        ("resources = { 'rdma/hca' = -1 }", "resources: rdma/hca"),
        ("resources = { 'rdma/hca' = [1] }", "rdma/hca"),
        (f"resources = {{ 'rdma/hca' = 0x{'f' * 5000} }}", "rdma/hca"),
        (f"pod.spec.x = 0x{'f' * 5000}", "pod.spec.x"),
        (f"pod.spec.volumes = 0x{'f' * 5000}", "must be a list"),
        ("gpu_resource = 'gpu'", "'gpu'"),
    ],
)
def test_what_no_fragment_may_say(tmp_path: Path, lines: str, names: str) -> None:
    path = site_file(tmp_path)
    Path(path).write_text(f"{Path(path).read_text()}{lines}\n")
    with pytest.raises(PlanError, match=r"^site .*site\.toml") as refused:
        read(path)
    assert names in str(refused.value)


def test_a_fragment_is_a_value_and_never_another_object(tmp_path: Path) -> None:
    odd = 'x"}}\n---\n{"kind": "Pod"}\n---\n'
    text = printed(tmp_path, pod={"metadata": {"annotations": {"a": odd}}, "spec": {"runtimeClassName": odd}})
    assert [one["kind"] for one in objects(text)] == ["ConfigMap", "MPIJob"]
    assert templates(text)[1]["metadata"]["annotations"] == {"a": odd}


def test_requests_are_limits_and_whole_cores(tmp_path: Path) -> None:
    job = of_kind(printed(tmp_path, {"policies": ("multi",), "ranks": (4,), "cores_per_rank": 2}), "MPIJob")
    (container,) = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["resources"] == {kind: {"cpu": "4", "memory": "4Gi"} for kind in ("requests", "limits")}
    assert job["spec"]["slotsPerWorker"] == 2


def test_pods_get_every_thread_of_their_cores(tmp_path: Path) -> None:
    """A node that gives whole cores alone refuses a pod with an odd number of threads."""
    site = {"threads_per_core": 2}
    launcher, ranks = templates(printed(tmp_path, {"policies": ("multi",), "ranks": (4,)}, **site))
    looked = look(read(site_file(tmp_path, **site)))["spec"]["template"]
    asked = [made["spec"]["containers"][0]["resources"]["requests"]["cpu"] for made in (launcher, ranks, looked)]
    assert asked == ["2", "4", "2"]
    assert "threads_per_core=2" in read(site_file(tmp_path, **site)).options


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cores": 0}, "cores = 0: must be 1 or more"),
        ({"gpus": 2147483648}, "gpus = 2147483648: must be 0 or more, and at most"),
        ({"objects": "pods"}, '[k8s]: objects "pods": choose one of job, mpijob.'),
        ({"registry": "x"}, "[k8s]: unknown key 'registry'. There are: cores"),
        ({"memory": "8 GB"}, "memory '8 GB': Kubernetes does not take it; write 8Gi, say."),
        ({"memory": "8GB"}, "memory '8GB'"),
        ({"namespace": "My Bench"}, "namespace 'My Bench': Kubernetes does not take it; lower-case letters"),
        ({"queue": "team_a"}, "queue 'team_a'"),
        ({"images": {"openmpi": "Registry/Open MPI"}}, "images: openmpi 'Registry/Open MPI'"),
        ({"images": {"openmpi": "registry/OpenMPI"}}, "images: openmpi 'registry/OpenMPI'"),
        ({"node_selector": {"pool": "a b"}}, "node_selector: pool 'a b'"),
        ({"libraries": {"mine": "opnmpi"}}, "library 'opnmpi': unknown. Did you mean openmpi?"),
        ({"variables": {"A-B": "x"}}, "variables: 'A-B' is no name of a variable"),
        ({"threads_per_core": 0}, "threads_per_core must be from 1"),
        ({"threads_per_core": 1 << 40}, "threads_per_core must be from 1"),
        ({"timeout": "soon"}, "timeout 'soon': not a duration"),
    ],
)
def test_a_site_file_that_makes_no_sense(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=r"^site .*site\.toml") as refused:
        read(site_file(tmp_path, **changes))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"memory": "8Gi"}, {"memory": "1.5G"}, {"memory": "1024"}, {"namespace": "team-1"}, {"queue": "team-a"},
        {"images": {"openmpi": "registry.site:5000/a/open-mpi:5.0.11"}}, {"images": {"openmpi": "openmpi"}},
        {"images": {"openmpi": f"r/openmpi@sha256:{'0' * 64}"}}, {"node_selector": {"pool": "h100"}},
    ],
)  # fmt: skip
def test_what_kubernetes_takes(tmp_path: Path, given: dict[str, Any]) -> None:
    assert read(site_file(tmp_path, **given))


@pytest.mark.parametrize("step", ["net", "visible", "ipc"])
def test_a_step_that_adds_nothing_to_one_container_is_the_one_before(tmp_path: Path, step: str) -> None:
    """As with other engines: its ranks share everything already."""
    plan = TORCH | {"policies": ("multi",), "hosts": (1,), "isolation": (step,)}
    done = expand(msgspec.structs.replace(PLAN, site=site_file(tmp_path), **plan))
    assert [cell.isolation for cell in done.cells] == ["limits"]
    assert templates(all_launches(done.plan, done.order, done.placements))


@pytest.mark.parametrize("step", ["ipc", "visible"])
def test_a_step_that_is_refused_is_the_one_that_was_written(tmp_path: Path, step: str) -> None:
    with pytest.raises(PlanError, match=f"single {step},"):
        printed(tmp_path, TORCH | {"isolation": (step,)})


@pytest.mark.parametrize(
    ("plan", "site", "says"),
    [
        ({"policies": ("host",)}, {}, "policy host: pods are containers. Leave it out"),
        ({"policies": ("numa",)}, {}, "policy numa: where memory nodes are, only a node knows. Use multi"),
        ({"isolation": ("ipc",)}, {}, "Kubernetes shares ipc within a pod"),
        ({"isolation": ("visible",)}, {}, "nvidia.com/gpu gives a GPU to one container"),
        ({"isolation": ("net",)}, {}, "the MPI Operator starts one container of a pod. Use torch"),
        ({"affinity": ("far",)}, {}, "affinity far"),
        ({}, {"objects": "job"}, "openmpi reaches several pods by ssh"),
        ({"ranks": (4,)}, {}, "cannot be asked for 2 pods on each of 2 hosts"),
        ({"hosts": (1,), "isolation": ("files",)}, {}, "one port for sshd"),
        ({"hosts": (1,)}, {"pod": {"spec": {"hostNetwork": True}}}, "one port for sshd"),
        ({"ranks": (32,), "oversubscribe": True}, {}, "oversubscribe: pods have cores of their own"),
        ({"images": ("openmpi-mine",)}, {}, "does not say where it is. Add it to [k8s.images]"),
        ({"images": ("mine",)}, {}, "does not say which library"),
        ({"device": "gpu", "backends": ("nccl",)}, {}, "GPU"),
    ],
)
def test_what_pods_cannot_do(tmp_path: Path, plan: dict[str, Any], site: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as refused:
        printed(tmp_path, plan, **site)
    assert says in str(refused.value)


def pod(name: str = "run-0-0", part: str = "ranks", index: str | None = None, **status: Any) -> client.Pod:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": index}
    metadata = {"name": name, "labels": {"collbench/part": part}, "annotations": annotations}
    return client.Pod.of({"metadata": metadata, "status": status})


def state(**how: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"state": how}]}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: cpu."}


@pytest.mark.parametrize(
    ("pods", "running", "waits", "in_vain"),
    [
        ([pod(**state(running={}))], True, "", False),
        ([pod(phase="Pending", conditions=[UNSCHEDULABLE])], False, "run-0-0: Unschedulable: 0/3 nodes: cpu.", False),
        ([pod(**state(waiting={"reason": "ContainerCreating"}))], False, "run-0-0: ContainerCreating", False),
        ([pod(**state(waiting={"reason": "ErrImagePull"}))], False, "run-0-0: ErrImagePull", False),
        ([pod(**state(waiting={"reason": "ImagePullBackOff", "message": "no such image"}))], False,
         "run-0-0: ImagePullBackOff: no such image", True),
        ([], False, "0 of 1 pods are there", False),
    ],
)  # fmt: skip
def test_what_is_said_of_pods(pods: list[client.Pod], running: bool, waits: str, in_vain: bool) -> None:
    found = client.standing(pods, 1)
    assert (not found.waits, found.waits, found.in_vain) == (running, waits, in_vain)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (state(terminated={"reason": "OOMKilled", "exitCode": 137}), "OOMKilled (exit code 137)"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
    ],
)
def test_how_a_pod_ended(status: dict[str, Any], reason: str) -> None:
    assert client.end_of([pod("run-0-0", **status)]) == f"pod run-0-0 ended: {reason}"


QUOTA = 'pods "x" is forbidden: exceeded quota: team'


@pytest.mark.parametrize(
    ("warnings", "waits", "in_vain"),
    [
        ([("FailedCreate", QUOTA), ("BackOff", "later")], f"FailedCreate: {QUOTA}", True),
        ([("MPIJobFailed", QUOTA)], f"MPIJobFailed: {QUOTA}", True),
        ([("MPIJobFailed", "etcdserver: timed out")], "MPIJobFailed: etcdserver: timed out", False),
        ([("A", "first"), ("B", "last")], "B: last", False),
    ],
)
def test_pods_that_are_not_there(warnings: list[tuple[str, str]], waits: str, in_vain: bool) -> None:
    found = client.missing(warnings)
    assert (found.waits, found.in_vain) == (waits, in_vain)


def test_who_writes_the_run_and_who_ends_it() -> None:
    workers = [pod("job-worker-10"), pod("job-worker-2"), pod("job-worker-0")]
    launcher = pod("job-launcher-x7", part="launcher")
    assert client.of_part([*workers, launcher], "ranks")[0].name == "job-worker-0"
    assert client.of_part([*workers, launcher], "launcher", "ranks")[0].name == "job-launcher-x7"
    indexed = [pod("job-1-aaaaa", index="1"), pod("job-0-zzzzz", index="0")]
    assert client.of_part(indexed, "launcher", "ranks")[0].name == "job-0-zzzzz"


GETENT = """\
#!/bin/sh
echo "$2" >> "{0}/tried"
[ "$2" = a.svc ] || [ $(grep -c "$2" "{0}/tried") -gt {1} ]
"""


@pytest.mark.parametrize("line", ["{} slots=2", "{}:2"])
@pytest.mark.parametrize(("late", "code", "started"), [(3, "7", True), (1000, "1", False)])
def test_a_launcher_waits_for_the_names_of_its_workers(
    tmp_path: Path, line: str, late: int, code: str, started: bool
) -> None:
    """DNS knows a pod some time after it is ready, and ssh tries a name once."""
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{line.format(host)}\n" for host in ("a.svc", "b.svc")))
    for name, text in (("getent", GETENT.format(tmp_path, late)), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    command = script_launcher(str(hostfile), ("sh", "-c", f"touch {tmp_path}/started; exit 7"))
    words = [word.replace("/results", str(tmp_path)) for word in command]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert (tmp_path / "code").read_text() == f"{code}\n", done.stderr
    assert (tmp_path / "started").exists() == started == ("b.svc" not in done.stderr)
    assert (tmp_path / "tried").read_text().split()[0] == "a.svc"


def test_a_worker_is_ready_when_sshd_answers(tmp_path: Path) -> None:
    """It is asked until then, and not while ranks are timed."""
    launcher, ranks = (made["spec"]["containers"][0] for made in templates(printed(tmp_path, timeout="90s")))
    assert ranks["startupProbe"] == {"tcpSocket": {"port": 2222}, "periodSeconds": 1, "failureThreshold": 90}
    assert not {"readinessProbe", "livenessProbe"} & ranks.keys() and "startupProbe" not in launcher


def archive(*names: str) -> io.BytesIO:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            if name.endswith("link"):
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                made.addfile(member)
            else:
                member.size = 4
                made.addfile(member, io.BytesIO(b"text"))
    written.seek(0)
    return written


def test_only_files_of_a_run_are_copied(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    unpack(archive("./records.jsonl", "./samples/0.npy", "../manifest.json", "/etc/x", "other", "samples/../up",
                   "samples/link"), out)  # fmt: skip
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        "out/records.jsonl", "out/samples/0.npy"
    }  # fmt: skip


def test_a_copy_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    whole = archive("./records.jsonl").getvalue()
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(whole[:700]), tmp_path)


# Launches of the engine `k8s` with a kubectl that is played -----------------------------------------------------------

PLAYED_PLAN = """\
images = ["openmpi"]
policies = ["single"]
benchmarks = [{ name = "stream", size = "8M", arrays = "any" }]
ranks = [1]
launches = 2
iters = 3
floor = 1
timeout = "30s"
"""

PLAYED_SITE = 'cores = 1\nimages = { openmpi = "registry/openmpi" }\ntimeout = "1s"\n'

Collbench = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a played cluster, whose kubectl is the first on PATH."""
    folder, programs = tmp_path / "played", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    kubectl = Path(__file__).parent / "played_kubectl.py"
    for name, words in (("kubectl", f"{sys.executable} -I -S {kubectl}"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PLAYED", str(folder))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (tmp_path / "plan.toml").write_text(PLAYED_PLAN)
    (tmp_path / "site.toml").write_text(f"[k8s]\n{PLAYED_SITE}")
    return folder


def says(cluster: Path, **what: Any) -> None:
    (cluster / "says").write_text(json.dumps(what))


def left(cluster: Path) -> list[str]:
    return sorted(path.name for path in cluster.glob("*-*") if not path.name.startswith("log-"))


def session(check: Callable[[], None] = lambda: None) -> K8sSession:
    return K8sSession(K8sSite(cores=1, images={}, timeout="1s"), check)


def launched(collbench: Collbench, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    where = () if "--resume" in more else ("--out", tmp_path / "run")
    flags = ("--on", "k8s", "--site", tmp_path / "site.toml", *where, *more)
    return collbench("launch", tmp_path / "plan.toml", *flags, **played())


def played() -> dict[str, str]:
    """What a process needs to find the kubectl that is played, and never another."""
    return {name: os.environ[name] for name in ("PATH", "PLAYED")}


@pytest.mark.slow
def test_the_whole_way(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    more = 'variables = { NCCL_SOCKET_IFNAME = "eth0" }\npod.spec.hostNetwork = true\n'
    (tmp_path / "site.toml").write_text(f"[k8s]\n{PLAYED_SITE}{more}")
    done = launched(collbench, tmp_path)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert {(one.status, one.case.where.engine, one.case.where.isolation, one.launch) for one in run.records} == {
        ("ok", "k8s", "strict", 0), ("ok", "k8s", "strict", 1)
    }  # fmt: skip
    assert run.manifest.experiment is not None and run.manifest.experiment.engine == "kubernetes v1.34.1"
    assert run.manifest.environment == {"NCCL_SOCKET_IFNAME": "eth0"} == run.manifest.experiment.images[0].environment
    assert [(host.name, host.cgroup_cpus) for host in run.manifest.hosts] == [("node-7", None)]
    allocation = run.manifest.experiment.allocation
    assert allocation is not None and (allocation.partition, allocation.nodes) == ("default", "any node")
    assert allocation.options == ("pod.spec.hostNetwork=true",)
    assert any("hostNetwork" in line for line in run.manifest.experiment.differences)
    assert left(cluster) == []
    jobs = [text for text in (cluster / "applied").read_text().split("\n---\n") if '"kind": "Job"' in text]
    assert ["node-7" in text for text in jobs] == [False, False, True]  # a look, and two launches on one node
    asked = (cluster / "asked").read_text()
    assert "delete configmaps,services,jobs --selector=collbench/run=" in asked  # the run, after its launches


@pytest.mark.slow
def test_a_launch_that_fails_is_a_record_with_its_last_lines(
    cluster: Path, tmp_path: Path, collbench: Collbench
) -> None:
    """Ranks that compare themselves with a shape which no pod has here."""
    (tmp_path / "plan.toml").write_text(PLAYED_PLAN.replace("launches = 2", "launches = 1\ncores_per_rank = 256"))
    (tmp_path / "site.toml").write_text(f"[k8s]\n{PLAYED_SITE}".replace("cores = 1", "cores = 256"))
    done = launched(collbench, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "rank 0 was to have 256 cores" in done.stderr
    record = read_run(tmp_path / "run").records[0]
    assert record.status == "failed" and str(record.reason).startswith("rank 0 ended with exit code 2"), record.reason
    deleted = [line for line in (cluster / "asked").read_text().splitlines() if "delete" in line]
    assert len(deleted) == 3 and "collbench/launch=collbench-" in deleted[1]  # the look, the launch, the run
    assert left(cluster) == []


REFUSED = [
    ({"apply": "Error from server (Forbidden): User cannot create jobs"}, "apply says: User cannot create jobs"),
    ({"apply": 'error: no matches for kind "MPIJob" in version "kubeflow.org/v2beta1"'}, "has no MPI Operator"),
    ({"get": "Unable to connect to the server: dial tcp: i/o timeout"}, "kubectl get says: Unable to connect"),
    (
        {"pods": [{"metadata": {"name": "look-0-x"}, "status": {"containerStatuses": [
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}]},
        "engine k8s: look-0-x: ImagePullBackOff: no such image",
    ),
    (
        {"pods": [{"metadata": {"name": "look-0-x"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}}]},
        "do not run after 1s: look-0-x: Unschedulable: 0/3 nodes. Raise timeout",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "message"), REFUSED)
def test_what_kubernetes_refuses_is_said_in_its_words(
    cluster: Path, tmp_path: Path, collbench: Collbench, answers: dict[str, Any], message: str
) -> None:
    says(cluster, **answers)
    done = launched(collbench, tmp_path)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert left(cluster) == [] and not (tmp_path / "run").exists()


def test_of_what_was_never_made_nothing_is_to_be_deleted(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    forbidden = "Error from server (Forbidden): User cannot"
    says(cluster, apply=f"{forbidden} create jobs", delete=f"{forbidden} delete jobs")
    done = launched(collbench, tmp_path)
    assert done.stderr.splitlines()[-1] == "collbench: engine k8s: kubectl apply says: User cannot create jobs"


def test_two_errors_are_two_sentences(cluster: Path) -> None:
    says(cluster, delete="Error from server (Forbidden): User cannot delete jobs")
    ours = session()
    ours._made = True
    with pytest.raises(EngineError) as caught, cleaned(ours.close):
        raise EngineError("engine k8s: a node went away")
    (note,) = caught.value.__notes__
    assert note.startswith(". engine k8s: kubectl delete says: User cannot delete jobs. Delete what is left: kubectl")


def test_without_the_operator_nothing_is_begun(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    says(cluster, get='error: the server doesn\'t have a resource type "mpijobs"')
    done = launched(collbench, tmp_path)
    assert "The cluster has no MPI Operator" in done.stderr and not (cluster / "applied").exists()


def test_no_kubectl_here(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="there is no kubectl here"):
        session().ready()


@pytest.mark.slow
def test_workers_that_are_refused_end_the_run(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    """No other launch would do better; the one that met it is repeated by --resume."""
    over_two = PLAYED_PLAN.replace("ranks = [1]", "ranks = [2]\nhosts = [2]").replace("benchmarks", "#")
    (tmp_path / "plan.toml").write_text(over_two + 'collectives = ["barrier"]\n')
    (tmp_path / "site.toml").write_text(f'[k8s]\nobjects = "mpijob"\n{PLAYED_SITE}'.replace('"1s"', '"60s"'))
    why = "violates PodSecurity"
    says(cluster, workers=f'worker pod created failed: pods "x" is forbidden: {why}')
    done = launched(collbench, tmp_path)
    assert done.returncode == 2 and why in done.stderr.splitlines()[-1], done.stderr
    assert (cluster / "applied").read_text().count('"kind": "MPIJob"') == 1
    (record,) = read_run(tmp_path / "run").records
    assert record.lost and why in str(record.reason)
    assert left(cluster) == []


def test_pods_that_nobody_may_make(cluster: Path) -> None:
    """A quota, or a rule for pods: the Job is there, and its pods are not."""
    event = {"involvedObject": {"name": "run-0"}, "reason": "FailedCreate", "message": "exceeded quota"}
    says(cluster, pods=[], events=[event])
    assert Client(session().site).warnings("run-0") == [("FailedCreate", "exceeded quota")]
    assert Client(session().site).warnings("run-1") == []


@pytest.mark.slow
def test_an_interrupted_launch_leaves_nothing(
    cluster: Path, tmp_path: Path, collbench: Collbench, bare_environment: dict[str, str]
) -> None:
    (tmp_path / "plan.toml").write_text(PLAYED_PLAN.replace("iters = 3", "iters = 25600"))
    command = (sys.executable, "-m", "collbench", "launch", tmp_path / "plan.toml", "--on", "k8s", "--site",
               tmp_path / "site.toml", "--out", tmp_path / "run")  # fmt: skip
    process = subprocess.Popen(
        command, env=bare_environment | played(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not (cluster / "results/out/manifest.json").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in err, err
    assert left(cluster) == []


def made(cluster: Path, run: str, driver: str, kind: str = "Job", created: str = "2026-01-01T00:00:00Z") -> None:
    labels = {RUN: run, "collbench/launch": f"{run}-0"}
    metadata = {"name": f"{run}-0", "labels": labels, "annotations": {DRIVER: driver}, "creationTimestamp": created}
    (cluster / f"{kind}-{run}-0").write_text(json.dumps({"kind": kind, "metadata": metadata}))


def test_what_a_dead_driver_left_is_swept(cluster: Path) -> None:
    alive = driver_identity()
    dead = "/".join((*alive.split("/")[:2], "999999999", "1", "1"))
    for run, driver in (("collbench-a", alive), ("collbench-b", dead), ("collbench-c", "of another machine")):
        made(cluster, run, driver)
    assert session().sweep() == (["collbench-b-0"], ["collbench-a-0", "collbench-c-0"])
    assert left(cluster) == ["Job-collbench-a-0", "Job-collbench-c-0"]


def test_of_a_driver_on_another_machine_what_cannot_run_is_swept(cluster: Path) -> None:
    """Kubernetes has ended its Jobs long ago, and keeps the rest."""
    elsewhere = "/".join(("another-boot", *driver_identity().split("/")[1:]))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    made(cluster, "collbench-a", elsewhere)
    made(cluster, "collbench-b", elsewhere, "ConfigMap")
    made(cluster, "collbench-c", elsewhere, "ConfigMap", now)
    assert session().sweep() == (["collbench-b-0"], ["collbench-a-0", "collbench-c-0"])


def test_what_cannot_be_deleted_is_said(cluster: Path) -> None:
    says(cluster, delete="Error from server (Forbidden): User cannot delete jobs")
    ours = session()
    with (
        pytest.raises(
            EngineError, match=r"cannot delete jobs.* Delete what is left: kubectl delete .*-l collbench/run"
        ),
        cleaned(ours.close),
    ):
        ours._made = True


def test_a_copy_without_a_run_is_none(cluster: Path, tmp_path: Path) -> None:
    from collbench.launch.engines.k8s import copy

    shutil.rmtree(cluster / "results", ignore_errors=True)
    copy(Client(session().site), "pod", tmp_path, everything=False)
    assert not (tmp_path / "records.jsonl").exists()
