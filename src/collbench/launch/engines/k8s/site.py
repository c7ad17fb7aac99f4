"""A cluster as the table [k8s] of a site file describes it, and what its pods cannot do of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from collbench.errors import PlanError, UnitError, suggestion
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import SHARING, Cluster, LadderStep, ladder_of, read_site
from collbench.launch.expansion import launcher_of
from collbench.launch.placement import Placement
from collbench.schema.axes import name_and_number
from collbench.schema.plan import Plan
from collbench.units import parse_duration


class K8sSite(Cluster, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Kubernetes needs to know of a cluster.

    `images` are references in a registry. `objects` says what the cluster has: Jobs alone, or the MPI Operator's
    MPIJobs too. `memory` is that of a container. `node_selector` chooses nodes by labels, `queue` is a local queue of
    Kueue. Pods may take `timeout` to run, and a launch `time`; Kubernetes ends it then. `context` is kubectl's; empty
    for its current one.

    Of a core pods get all `threads_per_core`, the hardware threads that kubelet counts as CPUs.
    `gpu_resource` is the resource that counts GPUs; with a `device_class` they are claimed instead (DRA), and with
    `compute_domain` pods on several nodes share one of NVIDIA's, for NVLinks between nodes. `resources` are further
    requests, and limits, of each container with ranks. `pod` is a fragment of a pod template, `container` one of a
    container: they are merged into every one.
    """

    images: dict[str, str]
    namespace: str = "default"
    context: str = ""
    objects: Literal["job", "mpijob"] = "job"
    threads_per_core: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    device_class: str = ""
    compute_domain: bool = False
    memory: str = "4Gi"
    resources: dict[str, int | str] = msgspec.field(default_factory=dict)
    pod: dict[str, Any] = msgspec.field(default_factory=dict)
    container: dict[str, Any] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    queue: str = ""
    timeout: str = "10m"
    time: str = "120m"

    @property
    def patience(self) -> float:
        """Longest wait until pods run (s)."""
        return parse_duration(self.timeout)

    @property
    def deadline(self) -> int:
        """Longest time of a launch (s)."""
        return max(1, int(parse_duration(self.time)))

    @property
    def host_network(self) -> bool:
        """Whether every pod shares the network of its node."""
        return bool(self.pod.get("spec", {}).get("hostNetwork"))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of objects that a launch may need, as kubectl spells them, whatever it is of."""
        claims = ("resourceclaimtemplates",) * bool(self.device_class) + ("computedomains",) * self.compute_domain
        return ("configmaps", "services", "jobs", *("mpijobs",) * (self.objects == "mpijob"), *claims)

    @property
    def options(self) -> tuple[str, ...]:
        """What of this file may change what is measured, beside the variables: `resources.rdma/hca=1`."""
        listed = [f"gpu_resource={self.gpu_resource}"] if self.gpu_resource != "nvidia.com/gpu" else []
        listed += [f"device_class={self.device_class}"] if self.device_class else []
        listed += ["compute_domain=true"] if self.compute_domain else []
        listed += [f"threads_per_core={self.threads_per_core}"] if self.threads_per_core > 1 else []
        listed += [f"resources.{name}={value}" for name, value in self.resources.items()]
        for key, fragment in (("pod", self.pod), ("container", self.container)):
            listed += [f"{path}={value if isinstance(value, str) else json.dumps(value)}"
                       for path, value in _leaves(key, fragment) if not path.startswith(_ELSEWHERE)]  # fmt: skip
        return tuple(sorted(listed))


#: Fields of `pod` that say where and when pods run, and who may pull their images.
_ELSEWHERE = tuple(f"pod.{path}" for path in (
    "metadata.labels", "spec.tolerations", "spec.imagePullSecrets", "spec.priority", "spec.preemptionPolicy",
    "spec.schedulerName", "spec.serviceAccountName",
))  # fmt: skip


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What stands in tables within tables, by its path; a list is one value."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{path}.{key}", inner)


#: What Kubernetes takes: a quantity, the name of an object, the key and the value of a label, a reference of an image.
_QUANTITY = re.compile(r"\d+(\.\d+)?(k|[MGTPE]|[KMGTPE]i|e\d+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE, _KEY = re.compile(_WORD), re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")
_IMAGE = re.compile(
    r"([A-Za-z0-9][-A-Za-z0-9.]*(:\d+)?/)?[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)

_CLASS = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESOURCE = re.compile(rf"hugepages-\w+|[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/{_WORD}")

_NAMED = "lower-case letters, digits and -, at most 63"


def refuse_formats(where: str, site: K8sSite) -> None:
    """PlanError for the first value that Kubernetes would refuse when an object is made, with what it takes."""
    formats = [("memory", site.memory, _QUANTITY, "write 8Gi, say"), ("namespace", site.namespace, _NAME, _NAMED)]
    formats += [("queue", site.queue, _NAME, _NAMED)] if site.queue else []
    formats += [("device_class", site.device_class, _CLASS, "write gpu.nvidia.com, say")] if site.device_class else []
    for name, value in {site.gpu_resource: 1, **site.resources}.items():
        formats.append(("resources", name, _RESOURCE, "a resource such as rdma/hca; not cpu or memory"))
        quantity = str(value) if isinstance(value, str) or 0 < value < _LARGEST else "of another size"
        formats.append((f"resources: {name}", quantity, _QUANTITY, "write 1, or 2Gi, say"))
    formats += [(f"images: {name}", image, _IMAGE, "write registry.site/openmpi:tag, say")
                for name, image in site.images.items()]  # fmt: skip
    for key, value in site.node_selector.items():
        formats.append(("node_selector", key, _KEY, "the key of a label, such as pool or site.org/pool"))
        formats.append((f"node_selector: {key}", value, _VALUE, "the value of a label: letters, digits and - _ ."))
    for key, value, form, instead in formats:
        if form.fullmatch(value) is None:
            raise PlanError(f"{where}: {key} {value!r}: Kubernetes does not take it; {instead}.")


#: Fields that follow from the plan and from other keys, by their path: what to write instead, if anything does it.
_SET: dict[str, str] = {
    "pod.spec.containers": "container = { ... } is merged into every container",
    "pod.spec.nodeSelector": "write node_selector", "pod.spec.affinity": "write node_selector", "pod.spec.nodeName": "",
    "pod.spec.hostIPC": "isolation of the plan", "pod.spec.hostPID": "isolation of the plan",
    "pod.spec.shareProcessNamespace": "isolation of the plan", "pod.spec.hostname": "", "pod.spec.subdomain": "",
    "pod.spec.restartPolicy": "", "pod.spec.activeDeadlineSeconds": "write time",
    "pod.spec.terminationGracePeriodSeconds": "", "pod.spec.automountServiceAccountToken": "",
    "pod.spec.enableServiceLinks": "", "pod.spec.resources": "write resources",
    "pod.spec.securityContext.seccompProfile": "seccomp of the plan",
    "container.securityContext.seccompProfile": "seccomp of the plan",
    "container.name": "", "container.image": "write images", "container.command": "", "container.args": "",
    "container.env": "write variables", "container.envFrom": "write variables",
    "container.resources": "write resources",
    "container.startupProbe": "", "container.livenessProbe": "", "container.readinessProbe": "",
    "container.securityContext.privileged": "", "container.securityContext.allowPrivilegeEscalation": "",
    "container.securityContext.capabilities.drop": "",
    **{f"{where}.securityContext.{field}": "" for where in ("pod.spec", "container")
       for field in ("runAsNonRoot", "runAsUser", "runAsGroup")},
}  # fmt: skip

#: Tables and lists of a fragment that are merged with those that every pod has.
_KIND: dict[str, type] = dict.fromkeys((
    "pod.metadata", "pod.metadata.annotations", "pod.metadata.labels", "pod.spec", "pod.spec.securityContext",
    "pod.spec.tolerations[]", "container.securityContext", "container.securityContext.capabilities",
), dict) | dict.fromkeys((
    "pod.spec.volumes", "pod.spec.tolerations", "container.volumeMounts", "container.securityContext.capabilities.add",
), list)  # fmt: skip

#: Keys of tables that take few, of a fragment.
_KEYS = {"pod": ("metadata", "spec"), "pod.metadata": ("annotations", "labels")}

#: Most tables within each other, most hardware threads of a core, and a number that Kubernetes does not have.
_DEEPEST, _MOST_THREADS, _LARGEST = 20, 8, 1 << 63

#: What pods have already, by the path of a list and the key that tells its elements apart.
_TAKEN = {
    "pod.spec.volumes[]": ("name", ("plan", "results", "shm")),
    "container.volumeMounts[]": ("mountPath", ("/collbench", "/results", "/dev/shm")),  # noqa: S108 - in the container
}


def _refuse_values(where: str, path: str, value: Any, depth: int = 0) -> None:
    """PlanError for the first thing of a fragment that cannot be merged."""
    mistake = "no pod has tables within so many tables." if depth > _DEEPEST else _mistake(path, value)
    if mistake is not None:
        raise PlanError(f"{where}: {path}: {mistake}")
    inner = [(f"{path}.{key}", entry) for key, entry in value.items()] if isinstance(value, dict) else []
    inner += [(f"{path}[]", entry) for entry in value] if isinstance(value, list) else []
    for name, entry in inner:
        _refuse_values(where, name, entry, depth + 1)


def _mistake(path: str, value: Any) -> str | None:
    """Why a value of `pod` or `container` cannot be merged."""
    if path in _SET:
        return f"collbench sets it itself{f'; {_SET[path]}' if _SET[path] else '. Leave it out'}."
    kind = _KIND.get(path, object)
    if not isinstance(value, kind):
        return f"must be a {'table' if kind is dict else 'list'}."
    if isinstance(value, dict):
        return _mistake_of_table(path, value)
    number = isinstance(value, int | float) and abs(value) < _LARGEST  # neither inf nor nan
    return None if number or isinstance(value, str | list) else "JSON has no such values. Write a string in quotes."


def _mistake_of_table(path: str, table: dict[str, Any]) -> str | None:
    named, taken = _TAKEN.get(path, ("", ()))
    if str(table.get(named)).rstrip("/") in taken:
        return f"{named} {table[named]!r}: collbench has one of it itself. Take another."
    for key, value in table.items():
        if key not in _KEYS.get(path, table):
            return f"unknown key {key!r}. {suggestion(key, _KEYS[path])}"
        if key.startswith("collbench/"):
            return f"{key}: collbench sets it itself. Leave it out."
        if path.startswith("pod.metadata.") and not isinstance(value, str):
            return f"{key}: must be a string in quotes."
    return None


def read(path: str) -> K8sSite:
    """The site in a file, checked as far as that takes no cluster; PlanError: a value makes no sense."""
    site = read_site(path, "k8s", K8sSite)
    refuse_formats(f"site {path}", site)
    for key, fragment in (("pod", site.pod), ("container", site.container)):
        _refuse_values(f"site {path}", key, fragment)
    if not 1 <= site.threads_per_core <= _MOST_THREADS:
        raise PlanError(f"site {path}: threads_per_core must be from 1 to {_MOST_THREADS}: 2 with hyper-threading.")
    for name in ("timeout", "time"):
        try:
            parse_duration(getattr(site, name), name)
        except UnitError as error:
            raise PlanError(f"site {path}: {error}") from error
    return site


LADDER = ladder_of(
    LadderStep("strict", "a pod for each container; only what it asks for; all capabilities dropped",
               SHARING["strict"]),
    LadderStep("limits", "1 GiB of /dev/shm; locked memory is the node's to limit", SHARING["limits"]),
    LadderStep("ipc", "not in Kubernetes", SHARING["ipc"], between=True),
    LadderStep("net", "one pod on each host: one ipc, pid and network namespace for its containers", SHARING["net"],
         between=True),
    LadderStep("visible", "not in Kubernetes", SHARING["visible"], between=True),
    LadderStep("files", "hostNetwork, hostIPC and hostPID: files and user of their own, everything else the node's",
         replace(SHARING["files"], all_gpus=False)),
)  # fmt: skip

#: Steps that pods cannot do, why, and what would do.
_NO_STEP = {
    "ipc": 'Kubernetes shares ipc within a pod, which shares the network too (step "net", for torch), or with the node '
           '(step "files")',
    "visible": "Kubernetes gives a GPU to one container, and none is seen by several. "
               'Use the step "net" or "files"',
}  # fmt: skip


def refuse(plan: Plan, placements: Mapping[LaunchCell, Placement], site: K8sSite) -> None:
    """PlanError for the first thing of a plan that pods cannot do, with what would."""
    if plan.device == "gpu" and not site.gpus:
        raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')
    for cell, placement in placements.items():
        launcher = launcher_of(cell.image, site.libraries, plan)
        policy, boxes = name_and_number(cell.policy)[0], len(placement.boxes) // cell.hosts  # boxes of each host
        by_ssh = bool(launcher.operator) and len(placement.boxes) > 1
        reasons = (
            (cell.isolation is None,
             "policy host: pods are containers. Leave it out, or compare with the nodes themselves: --on slurm, or a "
             "plan of its own on a node"),
            (policy not in ("multi", "single", "packed"),
             f"policy {cell.policy}: where memory nodes are, only a node knows. Use multi, single, packed:2"),
            (cell.image not in site.images,
             f"image {cell.image}: the site file does not say where it is. Add it to [k8s.images]."),
            (cell.isolation in _NO_STEP, _NO_STEP.get(cell.isolation or "", "")),
            (cell.affinity == "far",
             "affinity far: the node chooses memory (topologyManagerPolicy), and cannot be asked for far memory"),
            (placement.crowded, "oversubscribe: pods have cores of their own. Lower ranks or cores_per_rank"),
            (cell.storage is not None or cell.servers or plan.spare != "idle",
             "benchmarks of storage and parameter servers are for one machine; leave them out of a plan for "
             "Kubernetes"),
            (by_ssh and site.objects != "mpijob",
             f"{launcher.vendor} reaches several pods by ssh, which the MPI Operator prepares. Where there is one, set "
             'objects = "mpijob" in the site file; or use policy multi on one host, or torch'),
            (by_ssh and cell.isolation == "net",
             'the MPI Operator starts one container of a pod. Use torch, or the step "limits" or "files"'),
            (boxes > 1 and cell.hosts > 1 and cell.isolation != "net",
             f"Kubernetes cannot be asked for {boxes} pods on each of {cell.hosts} hosts. Use policy multi, as many "
             'hosts as pods, or for torch the step "net"'),
            (by_ssh and boxes > 1 and (cell.isolation == "files" or site.host_network),
             "several pods of a node share its network, and so one port for sshd. Use policy multi, or the step "
             "limits"),
        )  # fmt: skip
        for holds, why in reasons:
            if holds:
                raise PlanError(why if why.startswith(("policy", "image")) else f"{cell.title}: {why}")
