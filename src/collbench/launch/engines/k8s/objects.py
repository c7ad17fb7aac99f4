"""A cluster as the table [k8s] of a site file describes it, what pods cannot do of a plan, and what is given to it.

Of a launch that is a ConfigMap, and a Job with its Service, or an MPIJob. Every command of a pod ends by writing its
exit code, and then waits, so that what the ranks wrote can still be copied.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from collbench.errors import PlanError, UnitError, suggestion
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import LARGE_SHM, SHARING, Cluster, LadderStep, WorldSpec, ladder_of, read_site
from collbench.launch.expansion import OF_EVERY_RANK, cores_of, launcher_of, shape_of
from collbench.launch.launchers import PORT, Argv
from collbench.launch.placement import Box, Placement
from collbench.schema.axes import name_and_number
from collbench.schema.plan import Plan
from collbench.schema.world import HOST, SHAPE
from collbench.units import parse_duration


class K8sSite(Cluster, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Kubernetes needs to know of a cluster.

    `images` are references in a registry. `objects` says what the cluster has: Jobs alone, or the MPI Operator's
    MPIJobs too. `memory` is that of a container. `node_selector` chooses nodes by labels, `queue` is a local queue of
    Kueue. Pods may take `timeout` to run, and a launch `time`; Kubernetes ends it then. `context` is kubectl's; empty
    for its current one.

    Of a core pods get all `threads_per_core`, the hardware threads that kubelet counts as CPUs.
    `gpu_resource` is the resource that counts GPUs. `resources` are further requests, and limits, of each container
    with ranks. `pod` is a fragment of a pod template, `container` one of a container: they are merged into every one.
    """

    images: dict[str, str]
    namespace: str = "default"
    context: str = ""
    objects: Literal["job", "mpijob"] = "job"
    threads_per_core: int = 1
    gpu_resource: str = "nvidia.com/gpu"
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
    def options(self) -> tuple[str, ...]:
        """What of this file may change what is measured, beside the variables: `resources.rdma/hca=1`."""
        listed = [f"gpu_resource={self.gpu_resource}"] if self.gpu_resource != "nvidia.com/gpu" else []
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


def merged(base: Mapping[str, Any], fragment: Mapping[str, Any]) -> dict[str, Any]:
    """A fragment in an object: tables are merged, lists follow each other, and of two other values `base` has its."""
    joined = dict(base)
    for key, value in fragment.items():
        before = joined.get(key)
        if isinstance(before, dict):
            joined[key] = merged(before, value)
        elif isinstance(before, list):
            joined[key] = [*before, *(entry for entry in value if entry not in before)]
        else:
            joined.setdefault(key, value)
    return joined


#: What Kubernetes takes: a quantity, the name of an object, the key and the value of a label, a reference of an image.
_QUANTITY = re.compile(r"\d+(\.\d+)?(k|[MGTPE]|[KMGTPE]i|e\d+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE, _KEY = re.compile(_WORD), re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")
_IMAGE = re.compile(
    r"([A-Za-z0-9][-A-Za-z0-9.]*(:\d+)?/)?[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)

_RESOURCE = re.compile(rf"hugepages-\w+|[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/{_WORD}")

_NAMED = "lower-case letters, digits and -, at most 63"


def refuse_formats(where: str, site: K8sSite) -> None:
    """PlanError for the first value that Kubernetes would refuse when an object is made, with what it takes."""
    formats = [("memory", site.memory, _QUANTITY, "write 8Gi, say"), ("namespace", site.namespace, _NAME, _NAMED)]
    formats += [("queue", site.queue, _NAME, _NAMED)] if site.queue else []
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
    LadderStep("visible", "not in Kubernetes without claims to devices", SHARING["visible"], between=True),
    LadderStep("files", "hostNetwork, hostIPC and hostPID: files and user of their own, everything else the node's",
         replace(SHARING["files"], all_gpus=False)),
)  # fmt: skip

#: Steps that pods cannot do, why, and what would do.
_NO_STEP = {
    "ipc": 'Kubernetes shares ipc within a pod, which shares the network too (step "net", for torch), or with the node '
           '(step "files")',
    "visible": "nvidia.com/gpu gives a GPU to one container; without claims to devices (DRA) none is seen by several. "
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


# What Kubernetes is given ---------------------------------------------------------------------------------------------

Object = dict[str, Any]

#: Labels and the annotation of everything that is made: the experiment, the launch, what a pod is of it, its driver.
RUN, LAUNCH, PART, DRIVER = "collbench/run", "collbench/launch", "collbench/part", "collbench/driver"

#: Where containers find the inner plan, and where they write; and the command of a rank.
PLAN, RESULTS = "/collbench/plan.json", "/results"
PROGRAM: Argv = ("python", "-m", "collbench", "run", PLAN, "--out", f"{RESULTS}/out", "--style", "csv")

#: The user of collbench's images, by number: Kubernetes believes no name. The port of their sshd.
USER, SSH = 1000, 2222

#: How long (s) a launch that has ended waits to be copied, a pod has to end when it is deleted, and an object that has
#: ended stays, should nobody remove it.
KEPT, GRACE, STAYS = 600, 2, 600

#: The rest of every script: what it ran has ended with `$code`.
_KEEP = f'echo "$code" > {RESULTS}/code.part; mv {RESULTS}/code.part {RESULTS}/code; exec sleep {KEPT}'

#: The environment of a container, for the ranks that ssh starts there: sshd gives them none. What stands before these.
_ENVIRONMENT = f"export -p > {RESULTS}/environment"
RANK: Argv = ("sh", "-c", f'. {RESULTS}/environment; exec "$@"', "rank")

_WORKER = (f"export COLLBENCH_CONTAINER=c${{POD_NAME##*-}}; {_ENVIRONMENT}; "
           "exec /usr/sbin/sshd -De -f /etc/ssh/collbench_sshd_config")  # fmt: skip

#: Longest wait (s) of a launcher until the names of all workers have an address: each is asked for once a second.
RESOLVED = 60

_LAUNCHER = f"""\
export COLLBENCH_CONTAINER=launcher; {_ENVIRONMENT}; waited=0
resolved() {{
  for host in $(sed 's/[ :].*//' HOSTFILE); do
    until getent hosts "$host" > /dev/null; do
      if [ $waited -ge {RESOLVED} ]; then echo "collbench: $host has no address after {RESOLVED} s" >&2; return 1; fi
      waited=$((waited + 1)); sleep 1
    done
  done
}}
resolved && "$@"; code=$?; {_KEEP}
"""

_ALONE = f'export COLLBENCH_CONTAINER=c0; "$@"; code=$?; {_KEEP}'

#: The last line that a look at an image prints.
END = "collbench: end"
_LOOK = f'"$@" 2>&1; python -m collbench.machine.facts 2>&1; echo "{END}"; exec sleep {KEPT}'

#: Ranks that need no launcher: all of a container are started here, numbered from those of the containers before.
_DIRECT = """\
export COLLBENCH_CONTAINER=c$((JOB_COMPLETION_INDEX * {boxes} + {box})); code=0; i=0
while [ $i -lt {ranks} ]; do
  RANK=$((JOB_COMPLETION_INDEX * {each} + {before} + i)) LOCAL_RANK=$i "$@" & started="$started $!"; i=$((i + 1))
done
for rank in $started; do wait $rank || code=$?; done
"""

#: Where the MPI Operator puts the hosts, and where the images look for the key that it makes.
HOSTFILE, KEYS = "/etc/mpi/hostfile", "/home/collbench/.ssh"


@dataclass(frozen=True)
class Launchable:
    """A launch as Kubernetes is given it. `inner` is the plan of its ranks, as JSON; `nodes`: of none, it takes any."""

    world: WorldSpec
    site: K8sSite
    inner: str
    nodes: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {RUN: self.world.run, LAUNCH: self.world.name}

    def metadata(self, queued: bool = False) -> Object:
        return _metadata(self.site, self.labels, self.world.driver, queued)

    @property
    def shares_pod(self) -> bool:
        """Whether the containers of a host are in one pod."""
        return self.world.cell.isolation in ("net", "visible")

    @property
    def large_shm(self) -> bool:
        return self.world.cell.isolation in ("limits", "net")

    @property
    def pods(self) -> int:
        """Pods with ranks."""
        return self.world.cell.hosts if self.shares_pod else len(self.world.placement.boxes)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Those of the first pod; all others are like it."""
        every = self.world.placement.boxes
        return every[: len(every) // self.pods]

    @property
    def by_ssh(self) -> bool:
        """Whether a launcher starts the ranks of several pods."""
        return bool(self.world.stack.launcher.operator) and self.pods > 1

    @property
    def head(self) -> str:
        """The part whose command ends with the launch."""
        return "launcher" if self.by_ssh else "ranks"

    @property
    def kinds(self) -> str:
        """Of its objects, as kubectl spells them."""
        return "configmaps,mpijobs" if self.by_ssh else "configmaps,services,jobs"

    @property
    def variables(self) -> dict[str, str]:
        """What every rank shares."""
        shape = msgspec.json.encode(shape_of(self.world.cell, self.world.placement)).decode()
        return {SHAPE: shape, **OF_EVERY_RANK, **self.world.stack.launcher.environment, **self.site.variables}


def template(site: K8sSite, labels: dict[str, str], more: Object, seccomp: str = "RuntimeDefault") -> Object:
    """A pod template: no rights, no token, the nodes of the site and its fragments. `more` is of its specification."""
    user = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "seccompProfile": {"type": seccomp}}
    spec: Object = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE, "securityContext": user,
    }  # fmt: skip
    spec |= {"nodeSelector": dict(site.node_selector)} if site.node_selector else {}
    made = merged({"metadata": {"labels": labels}, "spec": spec | more}, site.pod)
    if made["spec"].get("hostNetwork"):
        made["spec"].setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    return made


def pod(launch: Launchable, part: str, containers: list[Object]) -> Object:
    """A pod template. Its requests are its limits, so that a node with the static policy gives it whole cores."""
    cell = launch.world.cell
    volumes: list[Object] = [{"name": "plan", "configMap": {"name": launch.world.name}},
                             {"name": "results", "emptyDir": {}}]  # fmt: skip
    if launch.large_shm and part == "ranks":
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(LARGE_SHM)}})
    spec: Object = {"containers": containers, "volumes": volumes}
    if cell.isolation == "files" and part != "launcher":
        spec |= {"hostNetwork": True, "hostIPC": True, "hostPID": True}
    if launch.shares_pod:
        spec["shareProcessNamespace"] = True
    if part == "ranks" and (affinity := _affinity(launch)):
        spec["affinity"] = affinity
    seccomp = "Unconfined" if cell.seccomp == "unconfined" else "RuntimeDefault"
    return template(launch.site, launch.labels | {PART: part}, spec, seccomp)


def _affinity(launch: Launchable) -> Object:
    """All on one node, or each on a node of its own; and on which."""
    chosen = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in launch.nodes]
    on_nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": chosen}}
    affinity: Object = {"nodeAffinity": on_nodes} if chosen else {}
    if launch.pods == 1:
        return affinity
    term = {"labelSelector": {"matchLabels": {LAUNCH: launch.world.name, PART: "ranks"}},
            "topologyKey": "kubernetes.io/hostname"}  # fmt: skip
    kind = "podAffinity" if launch.world.cell.hosts == 1 else "podAntiAffinity"
    return affinity | {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def rank_container(launch: Launchable, box: Box, name: str, command: Argv, more: dict[str, str]) -> Object:
    """A container with ranks: cores, memory and GPUs are its own."""
    placement = launch.world.placement
    cpus = cores_of(placement) * len(box.ranks) * launch.site.threads_per_core
    resources = {"cpu": str(cpus), "memory": launch.site.memory}
    if box.gpus:
        resources[launch.site.gpu_resource] = str(len(box.gpus))
    resources |= {resource: str(value) for resource, value in launch.site.resources.items()}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}] if launch.large_shm else []  # noqa: S108
    return _container(launch, name, command, resources, launch.variables | more, mounts)


def _container(
    launch: Launchable, name: str, command: Argv, resources: dict[str, str], environment: dict[str, str],
    mounts: Sequence[Object] = (),
) -> Object:  # fmt: skip
    fields = {HOST: "spec.nodeName", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    listed = [{"name": key, "value": value} for key, value in environment.items()]
    of_pod = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    made = container(launch.site, name, launch.world.cell.image, command, resources)
    of_launch = [{"name": "plan", "mountPath": "/collbench"}, {"name": "results", "mountPath": RESULTS}]
    return made | {"env": [*of_pod, *listed], "volumeMounts": [*of_launch, *mounts, *made.get("volumeMounts", ())]}


def container(site: K8sSite, name: str, image: str, command: Argv, resources: dict[str, str]) -> Object:
    """What every container has: its requests are its limits, no privileges to gain, and the site's fragment.

    No step adds capabilities: Kubernetes gives them to root alone, and PodSecurity refuses pods that ask for them.
    """
    made = {
        "name": name, "image": site.images.get(image, ""), "command": list(command),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip
    return merged(made, site.container)


def script_launcher(hostfile: str, argv: Argv) -> Argv:
    """A command that starts ranks in the pods of a hostfile, whose path needs no quotes."""
    return ("sh", "-c", _LAUNCHER.replace("HOSTFILE", hostfile), "launch", *argv)


def manifests(launch: Launchable) -> tuple[Object, ...]:
    """All objects of a launch."""
    plan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": launch.metadata(), "data": {"plan.json": launch.inner}}
    if launch.by_ssh:
        return (plan, _mpi_job(launch))
    service = {  # gives every pod a name, before it is ready
        "apiVersion": "v1", "kind": "Service", "metadata": launch.metadata(),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": launch.labels},
    }  # fmt: skip
    return (plan, *((service,) if launch.pods > 1 else ()), _job(launch))


def look_job(site: K8sSite, run: str, name: str, driver: str, image: str, argv: Argv) -> Object:
    """A pod that prints what an image holds."""
    labels = {RUN: run, LAUNCH: name}
    resources = {"cpu": str(site.threads_per_core), "memory": site.memory}
    looks = container(site, "ranks", image, ("sh", "-c", _LOOK, "look", *argv), resources)
    pod_template = template(site, labels | {PART: "ranks"}, {"containers": [looks]})
    return _as_job(_metadata(site, labels, driver, queued=True), {}, STAYS, pod_template)


def _metadata(site: K8sSite, labels: dict[str, str], driver: str, queued: bool = False) -> Object:
    queue = {"kueue.x-k8s.io/queue-name": site.queue} if queued and site.queue else {}
    return {"name": labels[LAUNCH], "namespace": site.namespace, "labels": labels | queue,
            "annotations": {DRIVER: driver}}  # fmt: skip


def _job(launch: Launchable) -> Object:
    """A pod has a container for each of its boxes. A single box starts its ranks as on one machine."""
    world, boxes = launch.world, launch.boxes
    if len(world.placement.boxes) == 1:
        argv = world.stack.launcher.local(world.cell.ranks, world.placement.crowded, PROGRAM)
        containers = [rank_container(launch, boxes[0], "ranks", ("sh", "-c", _ALONE, "launch", *argv), {})]
    else:
        address = "localhost" if launch.pods == 1 else f"{world.name}-0.{world.name}"
        more = {"WORLD_SIZE": str(world.cell.ranks), "MASTER_ADDR": address, "MASTER_PORT": PORT}
        containers, ranks = [], [len(box.ranks) for box in boxes]
        for number, box in enumerate(boxes):
            text = _DIRECT.format(boxes=len(boxes), box=number, ranks=ranks[number], each=sum(ranks),
                                  before=sum(ranks[:number]))  # fmt: skip
            argv = ("sh", "-c", text + (f"exec sleep {KEPT}" if number else _KEEP), "launch", *PROGRAM)
            containers.append(rank_container(launch, box, f"ranks-{number}" if number else "ranks", argv, more))
    made = pod(launch, "ranks", containers)
    if launch.pods > 1:
        made["spec"]["subdomain"] = world.name
    pods = {"completionMode": "Indexed", "completions": launch.pods, "parallelism": launch.pods}
    return _as_job(launch.metadata(queued=True), pods, launch.site.deadline, made)


def _as_job(metadata: Object, pods: Object, deadline: int, pod_template: Object) -> Object:
    limits = {"backoffLimit": 0, "activeDeadlineSeconds": deadline, "ttlSecondsAfterFinished": STAYS}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": {**pods, **limits, "template": pod_template}}  # fmt: skip


def _mpi_job(launch: Launchable) -> Object:
    """The hosts are named in the command: the operator's variables are not those of Open MPI 5, nor all of hydra's."""
    site, box, launcher = launch.site, launch.boxes[0], launch.world.stack.launcher
    argv = launcher.over_ssh(HOSTFILE, launch.world.cell.ranks, (*RANK, *PROGRAM))
    resources = {"cpu": str(site.threads_per_core), "memory": "1Gi"}
    starts = _container(launch, "launcher", script_launcher(HOSTFILE, argv), resources, launch.variables)
    answers = {"tcpSocket": {"port": SSH}, "periodSeconds": 1, "failureThreshold": math.ceil(site.patience)}
    ready = rank_container(launch, box, "ranks", ("sh", "-c", _WORKER), {}) | {"startupProbe": answers}
    parts = (("Launcher", 1, pod(launch, "launcher", [starts])), ("Worker", launch.pods, pod(launch, "ranks", [ready])))
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": launch.metadata(queued=True),
        "spec": {
            "mpiImplementation": launcher.operator, "slotsPerWorker": len(box.ranks), "sshAuthMountPath": KEYS,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": site.deadline,
                          "ttlSecondsAfterFinished": STAYS},
            "mpiReplicaSpecs": {part: {"replicas": number, "restartPolicy": "Never", "template": of_pod}
                                for part, number, of_pod in parts},
        },
    }  # fmt: skip
