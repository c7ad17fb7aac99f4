"""The engine k8s: site files, objects, refusals, and sessions with a kubectl that is played."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runs import read_run
from tests.unit.k8s_objects import check
from tests.unit.refusals import refusals
from tests.unit.test_slurm import play, write_site

from collbench.errors import EngineError
from collbench.launch.engines import k8s
from collbench.launch.engines.k8s import Client, K8sSession, all_launches, copy, unpack
from collbench.launch.engines.k8s.objects import (
    DRIVER,
    RUN,
    Launchable,
    look_job,
    manifests,
    script_launcher,
)
from collbench.launch.engines.k8s.site import K8sSite, read
from collbench.launch.engines.spec import Stack, WorldSpec, cleaned
from collbench.launch.expansion import ExpandedPlan, expand, launcher_of
from collbench.launch.folders import driver_identity, folders_in
from collbench.schema.plan import Plan

Golden = Callable[[str, str], None]
Object = dict[str, Any]

SITE: Object = {
    "cores": 8, "objects": "mpijob", "namespace": "bench",
    "images": {name: f"registry/{name}:1" for name in ("openmpi", "mpich", "torch")},
}  # fmt: skip

PLAN = Plan(images=("openmpi",), policies=("single",), collectives=("allreduce",), sizes=("8",), ranks=(2,),
            hosts=(2,), launches=1, engine="k8s")  # fmt: skip

TORCH: Object = {"images": ("torch",), "backends": ("torch-gloo",)}
FOUR_IN_TWO_PODS: Object = {"policies": ("multi",), "ranks": (4,)}
ON_GPUS: Object = FOUR_IN_TWO_PODS | {"device": "gpu", "backends": ("nccl",)}

#: What a tainted pool of GPUs with a fast fabric needs.
TOLERATED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
NETWORKS = {"k8s.v1.cni.cncf.io/networks": "rdma-a"}
POOL: Object = {
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


def site_file(where: Path, lines: str = "", /, **changes: Any) -> str:
    return write_site(where, "k8s", SITE | changes, lines)


def expanded(folder: Path, plan: Object | None = None, **site: Any) -> ExpandedPlan:
    return expand(msgspec.structs.replace(PLAN, site=site_file(folder, **site), **(plan or {})))


def printed(folder: Path, plan: Object | None = None, **site: Any) -> str:
    done = expanded(folder, plan, **site)
    return all_launches(done.plan, done.order, done.placements)


def objects(text: str) -> list[Object]:
    """The documents of what is printed, without the comments between them."""
    documents = (re.sub("(?m)^#.*$", "", part) for part in text.split("---\n"))
    return [json.loads(document) for document in documents if document.strip()]


def templates(text: str) -> list[Object]:
    """The pod templates of a launch, a launcher's first."""
    specs = [document["spec"] for document in objects(text) if document["kind"] in ("Job", "MPIJob")]
    return [part["template"] for spec in specs for part in spec.get("mpiReplicaSpecs", {"Job": spec}).values()]


def look(site: K8sSite) -> Object:
    return look_job(site, "run", "run-look-0", "driver", "openmpi", ("python",))


@pytest.mark.parametrize(
    ("name", "plan", "site"),
    [
        ("openmpi", {}, {}),
        # The network of the node is what step files measures, whatever the site file says.
        ("mpich", FOUR_IN_TWO_PODS | {"images": ("mpich",), "isolation": ("files",)},
         {"queue": "a", "pod": {"spec": {"hostNetwork": False}}}),
        # A worker is asked until sshd answers, and not while ranks are timed.
        ("packed", {"policies": ("packed:2",), "ranks": (4,), "hosts": (1,), "isolation": ("limits",)},
         {"timeout": "90s"}),
        ("torch", TORCH, {"node_selector": {"pool": "h100"}, "variables": {"GLOO_SOCKET_IFNAME": "eth0"}}),
        ("torch-net", TORCH | {"ranks": (4,), "isolation": ("net",)}, {"objects": "job"}),
        ("one-pod", {"policies": ("multi",), "hosts": (1,), "seccomp": ("unconfined",)}, {"objects": "job"}),
        ("gpus", ON_GPUS, {"gpus": 2}),
        ("pool", {"isolation": ("limits",)}, POOL),
    ],
)  # fmt: skip
def test_what_is_given_to_kubernetes(golden: Golden, tmp_path: Path, name: str, plan: Object, site: Object) -> None:
    text = printed(tmp_path, plan, **site)
    golden(f"k8s-{name}.yaml", text)
    for document in objects(text):
        check(document)


@pytest.mark.parametrize(("right", "wrong"), [("slotsPerWorker", "slotPerWorker"), ("sizeLimit", "sizelimit")])
def test_a_misspelt_field_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    text = printed(tmp_path, {"isolation": ("limits",)})
    with pytest.raises(AssertionError, match=wrong):
        check(objects(text.replace(f'"{right}"', f'"{wrong}"'))[-1])


def test_later_launches_have_the_nodes_of_the_first(tmp_path: Path) -> None:
    done = expanded(tmp_path)
    ((cell, placement),) = done.placements.items()
    stack = Stack(launcher_of("openmpi", {}, done.plan), "")
    world = WorldSpec("run", "run-1", "", cell, placement, stack, folders_in(tmp_path), (0, 0))
    _, job = manifests(Launchable(world, read(done.plan.site), "{}", ("a", "b")))
    check(job)
    pods = job["spec"]["mpiReplicaSpecs"]
    chosen = pods["Worker"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = chosen["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["a"], ["b"]]
    assert "affinity" not in pods["Launcher"]["template"]["spec"]


def test_every_pod_reaches_a_tainted_pool(tmp_path: Path) -> None:
    """Looks at images and launchers ask for no device, and must run where the ranks do."""
    launcher, ranks = templates(printed(tmp_path, {"isolation": ("limits",)}, **POOL))
    looked = look(read(site_file(tmp_path, **POOL)))
    check(looked)
    for template in (launcher, ranks, looked["spec"]["template"]):
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert template["metadata"]["annotations"] == NETWORKS
        assert (spec["tolerations"], spec["imagePullSecrets"]) == ([TOLERATED], [{"name": "registry"}])
        assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        assert spec["securityContext"].items() >= {"supplementalGroups": [44], "runAsNonRoot": True}.items()
        assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}
        assert ("rdma/hca" in container["resources"]["limits"]) == (template is ranks)


@pytest.mark.parametrize(
    ("step", "plan"),
    [("strict", {}), ("limits", {}), ("strict", TORCH), ("limits", TORCH), ("net", TORCH | {"ranks": (4,)})],
)
def test_pods_pass_the_restricted_level_of_pod_security(tmp_path: Path, step: str, plan: Object) -> None:
    """All steps but `files`: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    launched = templates(printed(tmp_path, plan | {"isolation": (step,)}))
    for template in (*launched, look(read(site_file(tmp_path)))["spec"]["template"]):
        spec, allowed = template["spec"], {"name", "configMap", "emptyDir"}
        assert not {"hostNetwork", "hostIPC", "hostPID"} & spec.keys()
        assert all(volume.keys() <= allowed for volume in spec.get("volumes", ()))
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["securityContext"] == restricted


@pytest.mark.parametrize(
    ("plan", "site", "cpus", "gpus"),
    [
        (FOUR_IN_TWO_PODS | {"cores_per_rank": 2}, {}, ("1", "4", "1"), {}),
        (FOUR_IN_TWO_PODS, {"threads_per_core": 2}, ("2", "4", "2"), {}),
        (ON_GPUS, {"gpus": 2, "gpu_resource": "nvidia.com/mig"}, ("1", "8", "1"), {"nvidia.com/mig": "2"}),
    ],
)
def test_requests_are_limits_and_whole_cores(
    tmp_path: Path, plan: Object, site: Object, cpus: tuple[str, str, str], gpus: Object
) -> None:
    """Of a launcher, ranks and a look. A node that gives whole cores alone refuses an odd number of threads."""
    pods = (*templates(printed(tmp_path, plan, **site)), look(read(site_file(tmp_path, **site)))["spec"]["template"])
    memory = ({"memory": "1Gi"}, {"memory": "4Gi"} | gpus, {"memory": "4Gi"})
    wanted = [{"cpu": cpu} | more for cpu, more in zip(cpus, memory, strict=True)]
    resources = [pod["spec"]["containers"][0]["resources"] for pod in pods]
    assert resources == [{"requests": amounts, "limits": amounts} for amounts in wanted]


@pytest.mark.parametrize("plan", [ON_GPUS, ON_GPUS | TORCH | {"backends": ("torch-nccl",)}], ids=["mpijob", "job"])
def test_gpus_are_claimed_where_the_site_names_their_class(tmp_path: Path, plan: Object) -> None:
    """Two nodes with two GPUs each: a template of claims, which every container takes; no count of a resource."""
    site = {"gpus": 2, "device_class": "gpu.nvidia.com", "compute_domain": True}
    made = {document["kind"]: document for document in objects(printed(tmp_path, plan, **site))}
    for document in made.values():
        check(document)
    claims, domain = made["ResourceClaimTemplate"], made["ComputeDomain"]
    (request,) = claims["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2}
    assert domain["spec"]["numNodes"] == 2
    *_, ranks = templates(printed(tmp_path, plan, **site))
    (container,) = ranks["spec"]["containers"]
    assert {claim["name"]: claim["resourceClaimTemplateName"] for claim in ranks["spec"]["resourceClaims"]} == {
        "ranks-gpus": claims["metadata"]["name"], "channel": domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    }  # fmt: skip
    assert [claim["name"] for claim in container["resources"]["claims"]] == ["ranks-gpus", "channel"]
    assert not {"nvidia.com/gpu"} & container["resources"]["limits"].keys()


def test_containers_of_a_pod_claim_gpus_each_for_itself(tmp_path: Path) -> None:
    plan = TORCH | {"device": "gpu", "backends": ("torch-nccl",), "policies": ("single",), "isolation": ("net",),
                    "ranks": (2,), "hosts": (1,)}  # fmt: skip
    text = printed(tmp_path, plan, gpus=2, device_class="gpu.nvidia.com", compute_domain=True)
    assert [document["kind"] for document in objects(text)] == ["ConfigMap", "ResourceClaimTemplate", "Job"]
    (pod,) = templates(text)
    claimed = [[claim["name"] for claim in container["resources"]["claims"]]
               for container in pod["spec"]["containers"]]  # fmt: skip
    assert claimed == [["ranks-gpus"], ["ranks-1-gpus"]] and len(pod["spec"]["resourceClaims"]) == 2


def test_of_a_site_what_changes_numbers_is_recorded(tmp_path: Path) -> None:
    assert read(site_file(tmp_path, threads_per_core=2, **POOL)).options == (
        'container.securityContext.capabilities.add=["IPC_LOCK"]',
        'container.volumeMounts=[{"name": "huge", "mountPath": "/hugepages"}]', "gpu_resource=nvidia.com/mig-1g.10gb",
        "pod.metadata.annotations.k8s.v1.cni.cncf.io/networks=rdma-a", "pod.spec.hostNetwork=true",
        "pod.spec.runtimeClassName=nvidia", "pod.spec.securityContext.supplementalGroups=[44]",
        'pod.spec.volumes=[{"name": "huge", "emptyDir": {"medium": "HugePages"}}]', "resources.hugepages-2Mi=5120Mi",
        "resources.rdma/hca=1", "resources.vpc.amazonaws.com/efa=4", "threads_per_core=2",
    )  # fmt: skip
    assert read(site_file(tmp_path)).options == ()


def test_a_fragment_is_a_value_and_never_another_object(tmp_path: Path) -> None:
    odd = 'x"}}\n---\n{"kind": "Pod"}\n---\n'
    text = printed(tmp_path, pod={"metadata": {"annotations": {"a": odd}}, "spec": {"runtimeClassName": odd}})
    assert [document["kind"] for document in objects(text)] == ["ConfigMap", "MPIJob"]
    assert templates(text)[1]["metadata"]["annotations"] == {"a": odd}


NO_VALUES: list[Object] = [
    {"cores": 0}, {"gpus": 2147483648}, {"objects": "pods"}, {"registry": "x"}, {"memory": "8 GB"}, {"memory": "8GB"},
    {"namespace": "My Bench"}, {"queue": "team_a"}, {"images": {"openmpi": "Registry/Open MPI"}},
    {"images": {"openmpi": "registry/OpenMPI"}}, {"node_selector": {"pool": "a b"}}, {"libraries": {"mine": "opnmpi"}},
    {"variables": {"A-B": "x"}}, {"threads_per_core": 0}, {"threads_per_core": 1 << 40}, {"timeout": "soon"},
]  # fmt: skip

HUGE = f"0x{'f' * 5000}"

NO_FRAGMENTS = [
    "pod.spec.containers = []", "pod.spec.hostPID = true", "pod.spec.affinity = {}",
    "pod.spec.securityContext.runAsUser = 0", "container.env = []", "container.resources.limits = {}",
    "container.securityContext.privileged = true", "pod.spek = {}", "pod.metadata.name = 'x'",
    "pod.metadata.labels = { 'collbench/run' = 'x' }", "pod.metadata.annotations = { a = 1 }",
    "pod.spec.tolerations = { key = 'x' }", "pod.spec.tolerations = [1]", "pod.spec.securityContext = 'x'",
    "container.securityContext.capabilities.add = 'IPC_LOCK'", "pod.spec.volumes = [{ name = 'results' }]",
    "container.volumeMounts = [{ mountPath = '/dev/shm/' }]", "pod.spec.x = 2026-01-01",
    "pod.spec.tolerations = [{ tolerationSeconds = nan }]", f"pod.spec.{'.'.join(['a'] * 40)} = 1",
    "resources = { cpu = 2 }", "resources = { 'rdma/hca' = -1 }", "resources = { 'rdma/hca' = [1] }",
    f"resources = {{ 'rdma/hca' = {HUGE} }}", f"pod.spec.x = {HUGE}", f"pod.spec.volumes = {HUGE}",
    "gpu_resource = 'gpu'",
]  # fmt: skip

#: Plans, and changes of the site file.
NOT_IN_PODS: list[tuple[Object, Object]] = [
    *((plan, {}) for plan in (
        {"policies": ("host",)}, {"policies": ("numa",)}, {"isolation": ("ipc",)}, {"isolation": ("visible",)},
        TORCH | {"isolation": ("ipc",)}, TORCH | {"isolation": ("visible",)}, {"isolation": ("net",)},
        {"affinity": ("far",)}, {"ranks": (4,)}, {"hosts": (1,), "isolation": ("files",)},
        {"ranks": (32,), "oversubscribe": True}, {"images": ("openmpi-mine",)}, {"images": ("mine",)},
        {"device": "gpu", "backends": ("nccl",)},
    )),
    ({}, {"objects": "job"}), ({"hosts": (1,)}, {"pod": {"spec": {"hostNetwork": True}}}),
]  # fmt: skip


def test_what_is_refused(golden: Golden, tmp_path: Path) -> None:
    """What no site file may say, and what pods cannot do of a plan."""

    def read_with(lines: str = "", /, **changes: Any) -> object:
        return read(site_file(tmp_path, lines, **changes))

    attempts: list[Callable[[], object]] = [
        *(partial(read_with, line) for line in NO_FRAGMENTS), *(partial(read_with, **site) for site in NO_VALUES),
        *(partial(printed, tmp_path, plan, **site) for plan, site in NOT_IN_PODS),
    ]  # fmt: skip
    golden("k8s-refusals.txt", refusals(attempts, tmp_path))


def test_what_kubernetes_takes(tmp_path: Path) -> None:
    label, digest = {"pool": "h100"}, f"r/openmpi@sha256:{'0' * 64}"
    for memory, image in (("8Gi", "registry.site:5000/a/open-mpi:5.0.11"), ("1.5G", "openmpi"), ("1024", digest)):
        assert read(site_file(tmp_path, memory=memory, images={"openmpi": image}, namespace="team-1", queue="team-a",
                              node_selector=label))  # fmt: skip


@pytest.mark.parametrize("step", ["net", "visible", "ipc"])
def test_a_step_that_adds_nothing_to_one_container_is_the_one_before(tmp_path: Path, step: str) -> None:
    """As with other engines: its ranks share everything already."""
    done = expanded(tmp_path, TORCH | {"policies": ("multi",), "hosts": (1,), "isolation": (step,)})
    assert [cell.isolation for cell in done.cells] == ["limits"]
    assert templates(all_launches(done.plan, done.order, done.placements))


# What Kubernetes says of pods -----------------------------------------------------------------------------------------


def shown(name: str = "run-0-0", part: str = "ranks", index: str | None = None, **status: Any) -> Object:
    """A pod as kubectl prints it."""
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": index}
    return {"metadata": {"name": name, "labels": {"collbench/part": part}, "annotations": annotations},
            "status": status}  # fmt: skip


def state(**how: Any) -> Object:
    return {"containerStatuses": [{"state": how}]}


UNSCHEDULABLE: Object = {"phase": "Pending", "conditions": [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: cpu"}]}  # fmt: skip
NO_IMAGE = state(waiting={"reason": "ImagePullBackOff", "message": "no such image"})


@pytest.mark.parametrize(
    ("status", "waits", "in_vain"),
    [
        (state(running={}), "", False),
        (UNSCHEDULABLE, "run-0-0: Unschedulable: 0/3 nodes: cpu", False),
        (state(waiting={"reason": "ContainerCreating"}), "run-0-0: ContainerCreating", False),
        (state(waiting={"reason": "ErrImagePull"}), "run-0-0: ErrImagePull", False),
        (NO_IMAGE, "run-0-0: ImagePullBackOff: no such image", True),
    ],
)
def test_what_a_pod_waits_for(status: Object, waits: str, in_vain: bool) -> None:
    assert k8s.standing([k8s.Pod.of(shown(**status))], 1) == k8s.Standing(waits, in_vain)


QUOTA = 'pods "x" is forbidden: exceeded quota: team'


@pytest.mark.parametrize(
    ("warnings", "counts", "in_vain"),
    [
        ([("FailedCreate", QUOTA), ("BackOff", "later")], 0, True),
        ([("MPIJobFailed", QUOTA)], 0, True),
        ([("MPIJobFailed", "etcdserver: timed out")], 0, False),
        ([("A", "first"), ("B", "last")], 1, False),
    ],
)
def test_why_pods_are_not_there(warnings: list[tuple[str, str]], counts: int, in_vain: bool) -> None:
    assert k8s.missing(warnings) == k8s.Standing(": ".join(warnings[counts]), in_vain)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (state(terminated={"reason": "OOMKilled", "exitCode": 137}), ("OOMKilled", "137")),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, ("Evicted: low on memory",)),
    ],
)
def test_how_a_pod_ended(status: Object, words: tuple[str, ...]) -> None:
    end = str(k8s.end_of([k8s.Pod.of(shown(**status))]))
    assert all(word in end for word in ("run-0-0", *words))


def test_who_writes_the_run_and_who_ends_it() -> None:
    def first(pods: list[Object], *parts: str) -> str:
        return k8s.of_part(list(map(k8s.Pod.of, pods)), *parts)[0].name

    pods = [*(shown(f"job-worker-{number}") for number in (10, 2, 0)), shown("job-launcher-x7", "launcher")]
    assert (first(pods, "ranks"), first(pods, "launcher", "ranks")) == ("job-worker-0", "job-launcher-x7")
    indexed = [shown("job-1-aaaaa", index="1"), shown("job-0-zzzzz", index="0")]
    assert first(indexed, "launcher", "ranks") == "job-0-zzzzz"


@pytest.mark.parametrize("line", ["{} slots=2", "{}:2"])
@pytest.mark.parametrize(("late", "code", "started"), [(3, "7", True), (1000, "1", False)])
def test_a_launcher_waits_for_the_names_of_its_workers(
    tmp_path: Path, line: str, late: int, code: str, started: bool
) -> None:
    """DNS knows a pod some time after it is ready, and ssh tries a name once."""
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{line.format(host)}\n" for host in ("a.svc", "b.svc")))
    play(tmp_path, "sleep", "")
    play(tmp_path, "getent", f"""cd {tmp_path}; echo "$2" >> tried
[ "$2" = a.svc ] || [ $(grep -c "$2" tried) -gt {late} ]""")  # fmt: skip
    command = script_launcher(str(hostfile), ("sh", "-c", f"touch {tmp_path}/started; exit 7"))
    words = [word.replace("/results", str(tmp_path)) for word in command]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert (tmp_path / "code").read_text() == f"{code}\n", done.stderr
    assert (tmp_path / "started").exists() == started == ("b.svc" not in done.stderr)
    assert (tmp_path / "tried").read_text().split()[0] == "a.svc"


def archive(*names: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as members:
        for name in names:
            member = tarfile.TarInfo(name)
            if name.endswith("link"):
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                member.size = 4
            members.addfile(member, io.BytesIO(b"text"))
    return written.getvalue()


def test_only_files_of_a_run_are_copied(tmp_path: Path) -> None:
    """And a copy that was cut off is an error."""
    out = tmp_path / "out"
    out.mkdir()
    names = ("./records.jsonl", "./samples/0.npy", "../manifest.json", "/etc/x", "other", "samples/../up",
             "samples/link")  # fmt: skip
    unpack(io.BytesIO(archive(*names)), out)
    copied = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert copied == {"out/records.jsonl", "out/samples/0.npy"}
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(archive("./records.jsonl")[:700]), out)


# Launches with a kubectl that is played -------------------------------------------------------------------------------

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

FORBIDDEN = "Error from server (Forbidden): User cannot"

Collbench = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a played cluster, whose kubectl is the first on PATH."""
    folder, programs = tmp_path / "played", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    kubectl = Path(__file__).parent / "played_kubectl.py"
    for name, words in (("kubectl", f"{sys.executable} -I -S {kubectl}"), ("python", sys.executable)):
        play(programs, name, f'exec {words} "$@"')
    monkeypatch.setenv("PLAYED", str(folder))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return folder


def says(cluster: Path, **what: Any) -> None:
    (cluster / "says").write_text(json.dumps(what))


def left(cluster: Path) -> list[str]:
    return sorted(path.name for path in cluster.glob("*-*") if not path.name.startswith("log-"))


@pytest.fixture
def session() -> K8sSession:
    """A cluster, of which nothing has been asked."""
    return K8sSession(K8sSite(cores=1, images={}, timeout="1s"), lambda: None)


def launch(folder: Path, plan: str = PLAYED_PLAN, site: str = PLAYED_SITE) -> tuple[str, ...]:
    """What the program is given."""
    files = {"plan.toml": plan, "site.toml": f"[k8s]\n{site}"}
    for name, text in files.items():
        (folder / name).write_text(text)
    return ("launch", f"{folder}/plan.toml", "--on", "k8s", "--site", f"{folder}/site.toml", "--out", f"{folder}/run")


def played() -> dict[str, str]:
    """What a process needs to find the kubectl that is played, and never another."""
    return {name: os.environ[name] for name in ("PATH", "PLAYED")}


@pytest.mark.slow
def test_the_whole_way(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    more = 'variables = { NCCL_SOCKET_IFNAME = "eth0" }\npod.spec.hostNetwork = true\n'
    done = collbench(*launch(tmp_path, site=PLAYED_SITE + more), **played())
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    measured = {(record.status, record.case.where.engine, record.case.where.isolation, record.launch)
                for record in run.records}  # fmt: skip
    assert measured == {("ok", "k8s", "strict", 0), ("ok", "k8s", "strict", 1)}
    experiment = run.manifest.experiment
    assert experiment is not None and experiment.engine == "kubernetes v1.34.1"
    assert run.manifest.environment == {"NCCL_SOCKET_IFNAME": "eth0"} == experiment.images[0].environment
    assert [(host.name, host.cgroup_cpus) for host in run.manifest.hosts] == [("node-7", None)]
    allocation = experiment.allocation
    assert allocation is not None and (allocation.partition, allocation.nodes) == ("default", "any node")
    assert allocation.options == ("pod.spec.hostNetwork=true",)
    assert any("hostNetwork" in line for line in experiment.differences)
    assert left(cluster) == []
    jobs = [text for text in (cluster / "applied").read_text().split("\n---\n") if '"kind": "Job"' in text]
    assert ["node-7" in text for text in jobs] == [False, False, True]  # a look, and two launches on one node
    asked = (cluster / "asked").read_text()
    assert "delete configmaps,services,jobs --selector=collbench/run=" in asked  # the run, after its launches


@pytest.mark.slow
def test_a_launch_that_fails_is_a_record_with_its_end(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    """Ranks that compare themselves with a shape which no pod has here."""
    plan = PLAYED_PLAN.replace("launches = 2", "launches = 1\ncores_per_rank = 256")
    done = collbench(*launch(tmp_path, plan, PLAYED_SITE.replace("cores = 1", "cores = 256")), **played())
    assert done.returncode == 1 and "256 cores" in done.stderr, done.stderr
    record = read_run(tmp_path / "run").records[0]
    assert record.status == "failed" and re.search(r"rank 0 .*exit code 2\b", str(record.reason)), record.reason
    deleted = [line for line in (cluster / "asked").read_text().splitlines() if "delete" in line]
    assert len(deleted) == 3 and "collbench/launch=collbench-" in deleted[1]  # the look, the launch, the run
    assert left(cluster) == []


#: What Kubernetes says instead of running the first pod, and whether it was given one.
REFUSED: list[tuple[Object, bool]] = [
    ({"apply": f"{FORBIDDEN} create jobs"}, False),
    ({"apply": f"{FORBIDDEN} create jobs", "delete": f"{FORBIDDEN} delete jobs"}, False),  # nothing is left to delete
    ({"apply": 'error: no matches for kind "MPIJob" in version "kubeflow.org/v2beta1"'}, False),
    ({"get": 'error: the server doesn\'t have a resource type "mpijobs"'}, False),
    ({"get": "Unable to connect to the server: dial tcp: i/o timeout"}, False),
    ({"pods": []}, True),
    ({"pods": [shown("look-0-x", **NO_IMAGE)]}, True),
    ({"pods": [shown("look-0-x", **UNSCHEDULABLE)]}, True),
]


def test_what_kubernetes_refuses(golden: Golden, cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    """In its words, and without a run."""
    sentences = []
    for answers, applied in REFUSED:
        says(cluster, **answers)
        done = collbench(*launch(tmp_path), **played())
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        assert left(cluster) == [] and not (tmp_path / "run").exists()
        assert (cluster / "applied").exists() == applied
        sentences.append(re.sub("collbench-[0-9a-f]{8}", "collbench-RUN", done.stderr.splitlines()[-1]))
    golden("k8s-launches-refused.txt", "\n".join(sentences) + "\n")


def test_where_there_is_no_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: K8sSession) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="no kubectl"):
        session.ready()


@pytest.mark.slow
def test_workers_that_are_refused_end_the_run(cluster: Path, tmp_path: Path, collbench: Collbench) -> None:
    """No other launch would do better; the one that met it is repeated by --resume."""
    why = "violates PodSecurity"
    says(cluster, workers=f'worker pod created failed: pods "x" is forbidden: {why}')
    over_two = PLAYED_PLAN.replace("ranks = [1]", "ranks = [2]\nhosts = [2]").replace("benchmarks", "#")
    site = PLAYED_SITE.replace('"1s"', '"60s"') + 'objects = "mpijob"\n'
    done = collbench(*launch(tmp_path, over_two + 'collectives = ["barrier"]\n', site), **played())
    assert done.returncode == 2 and why in done.stderr.splitlines()[-1], done.stderr
    assert (cluster / "applied").read_text().count('"kind": "MPIJob"') == 1
    (record,) = read_run(tmp_path / "run").records
    assert record.lost and why in str(record.reason)
    assert left(cluster) == []


def test_warnings_are_those_of_a_launch(cluster: Path, session: K8sSession) -> None:
    """A quota, or a rule for pods: the Job is there, and its pods are not."""
    event = {"involvedObject": {"name": "run-0"}, "reason": "FailedCreate", "message": "exceeded quota"}
    says(cluster, pods=[], events=[event])
    assert Client(session.site).warnings("run-0") == [("FailedCreate", "exceeded quota")]
    assert Client(session.site).warnings("run-1") == []


@pytest.mark.slow
def test_an_interrupted_launch_leaves_nothing(cluster: Path, tmp_path: Path, bare_environment: dict[str, str]) -> None:
    words = launch(tmp_path, PLAYED_PLAN.replace("iters = 3", "iters = 25600"))
    process = subprocess.Popen((sys.executable, "-m", "collbench", *words), env=bare_environment | played(),
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    end = time.monotonic() + 60
    while not (cluster / "results/out/manifest.json").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in err, err
    assert left(cluster) == []


def test_what_dead_drivers_left_is_swept(cluster: Path, session: K8sSession) -> None:
    """Kubernetes has ended Jobs of a driver on another machine long ago, and keeps the rest."""
    alive = driver_identity()
    dead = "/".join((*alive.split("/")[:2], "999999999", "1", "1"))
    elsewhere = "/".join(("another-boot", *alive.split("/")[1:]))
    long_ago, now = "2026-01-01T00:00:00Z", datetime.now(UTC).isoformat(timespec="seconds")
    for run, driver, kind, created in (
        ("alive", alive, "Job", long_ago), ("dead", dead, "Job", long_ago), ("jobs", elsewhere, "Job", long_ago),
        ("plans", elsewhere, "ConfigMap", long_ago), ("strange", "no driver", "Job", long_ago),
        ("young", elsewhere, "ConfigMap", now),
    ):  # fmt: skip
        metadata = {"name": f"{run}-0", "labels": {RUN: run, "collbench/launch": f"{run}-0"},
                    "annotations": {DRIVER: driver}, "creationTimestamp": created}  # fmt: skip
        (cluster / f"{kind}-{run}-0").write_text(json.dumps({"kind": kind, "metadata": metadata}))
    assert session.sweep() == (["dead-0", "plans-0"], ["alive-0", "jobs-0", "strange-0", "young-0"])
    assert left(cluster) == ["ConfigMap-young-0", "Job-alive-0", "Job-jobs-0", "Job-strange-0"]


def test_what_cannot_be_deleted_is_named(cluster: Path, session: K8sSession) -> None:
    """After another error, in a sentence of its own."""
    says(cluster, delete=f"{FORBIDDEN} delete jobs")
    session._made = True
    with pytest.raises(EngineError) as alone, cleaned(session.close):
        """Nothing else fails."""
    with pytest.raises(EngineError) as second, cleaned(session.close):
        raise EngineError("engine k8s: a node went away")
    (note,) = second.value.__notes__
    assert note == f". {alone.value}"
    for words in ("cannot delete jobs", f"kubectl delete configmaps,services,jobs -l {RUN}={session.run}"):
        assert words in note


def test_a_copy_without_a_run_is_none(cluster: Path, tmp_path: Path, session: K8sSession) -> None:
    copy(Client(session.site), "pod", tmp_path, everything=False)
    assert not (tmp_path / "records.jsonl").exists()
