"""What Kubernetes is given for a launch: a ConfigMap, and a Job with its Service, or an MPIJob; and their pods. Pure.

Every command of a pod ends by writing its exit code, and then waits, so that what the ranks wrote can still be copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from collbench.launch.engines.k8s.site import K8sSite, merged
from collbench.launch.engines.spec import LARGE_SHM, WorldSpec
from collbench.launch.expansion import OF_EVERY_RANK, cores_of, shape_of
from collbench.launch.launchers import PORT, Argv
from collbench.launch.placement import Box
from collbench.schema.world import HOST, SHAPE

Object = dict[str, Any]

#: Labels and the annotation of everything that is made: the experiment, the launch, what a pod is of it, its driver.
RUN, LAUNCH, PART, DRIVER = "collbench/run", "collbench/launch", "collbench/part", "collbench/driver"

#: Where containers find the inner plan, and where they write.
PLAN, RESULTS = "/collbench/plan.json", "/results"

#: The command of a rank.
PROGRAM: Argv = ("python", "-m", "collbench", "run", PLAN, "--out", f"{RESULTS}/out", "--style", "csv")

#: The user of collbench's images, by number: Kubernetes believes no name.
USER = 1000

#: How long (s) a launch that has ended waits to be copied, and how long a pod has to end when it is deleted.
KEPT, GRACE = 600, 2

#: The rest of every script: what it ran has ended with `$code`.
_KEEP = f'echo "$code" > {RESULTS}/code.part; mv {RESULTS}/code.part {RESULTS}/code; exec sleep {KEPT}'

#: The environment of a container, for the ranks that ssh starts there: sshd gives them none.
_ENVIRONMENT = f"export -p > {RESULTS}/environment"

#: What stands before a rank that was started by ssh.
RANK: Argv = ("sh", "-c", f'. {RESULTS}/environment; exec "$@"', "rank")

_WORKER = (
    f"export COLLBENCH_CONTAINER=c${{POD_NAME##*-}}; {_ENVIRONMENT}; "
    "exec /usr/sbin/sshd -De -f /etc/ssh/collbench_sshd_config"
)

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

#: Kueue's label of what waits in a queue.
QUEUE = "kueue.x-k8s.io/queue-name"

#: How long (s) an object that has ended stays, should nobody remove it.
STAYS = 600

#: Where the MPI Operator puts the hosts, and where the images look for the key that it makes.
HOSTFILE, KEYS = "/etc/mpi/hostfile", "/home/collbench/.ssh"

#: The port of sshd in the images.
SSH = 2222


@dataclass(frozen=True)
class Launchable:
    """A launch as Kubernetes is given it. `inner` is the plan of its ranks, as JSON.

    `nodes` are those that it is to have; empty: any.
    """

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


def template(site: K8sSite, labels: dict[str, str], more: Object, seccomp: str = "RuntimeDefault") -> Object:
    """A pod template: no rights, no token, the nodes of the site and its fragments. `more` is of its specification."""
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "seccompProfile": {"type": seccomp},
        },
    }  # fmt: skip
    spec |= {"nodeSelector": dict(site.node_selector)} if site.node_selector else {}
    made = merged({"metadata": {"labels": labels}, "spec": spec | more}, site.pod)
    if made["spec"].get("hostNetwork"):
        made["spec"].setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    return made


def pod(launch: Launchable, part: str, containers: list[Object]) -> Object:
    """A pod template. Its requests are its limits, so that a node with the static policy gives it whole cores."""
    cell = launch.world.cell
    volumes: list[Object] = [
        {"name": "plan", "configMap": {"name": launch.world.name}},
        {"name": "results", "emptyDir": {}},
    ]
    if _has_large_shm(launch, part):
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


def _has_large_shm(launch: Launchable, part: str) -> bool:
    return launch.world.cell.isolation in ("limits", "net") and part == "ranks"


def rank_container(launch: Launchable, box: Box, name: str, command: Argv, more: dict[str, str]) -> Object:
    """A container with ranks: cores, memory and GPUs are its own."""
    placement = launch.world.placement
    cpus = cores_of(placement) * len(box.ranks) * launch.site.threads_per_core
    resources = {"cpu": str(cpus), "memory": launch.site.memory}
    if box.gpus:
        resources[launch.site.gpu_resource] = str(len(box.gpus))
    resources |= {resource: str(value) for resource, value in launch.site.resources.items()}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}] if _has_large_shm(launch, "ranks") else []  # noqa: S108
    return _container(launch, name, command, resources, variables(launch) | more, mounts)


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
        "name": name,
        "image": site.images.get(image, ""),
        "command": list(command),
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return merged(made, site.container)


def variables(launch: Launchable) -> dict[str, str]:
    """What every rank shares."""
    world = launch.world
    shape = msgspec.json.encode(shape_of(world.cell, world.placement)).decode()
    return {SHAPE: shape, **OF_EVERY_RANK, **world.stack.launcher.environment, **launch.site.variables}


def script_launcher(hostfile: str, argv: Argv) -> Argv:
    """A command that starts ranks in the pods of a hostfile, whose path needs no quotes."""
    return ("sh", "-c", _LAUNCHER.replace("HOSTFILE", hostfile), "launch", *argv)


def script_direct(boxes: tuple[Box, ...], box: int, argv: Argv) -> Argv:
    """All ranks of one of the boxes of a pod."""
    before, each = sum(len(one.ranks) for one in boxes[:box]), sum(len(one.ranks) for one in boxes)
    ranks = len(boxes[box].ranks)
    text = _DIRECT.format(boxes=len(boxes), box=box, ranks=ranks, each=each, before=before)
    return ("sh", "-c", text + (_KEEP if box == 0 else f"exec sleep {KEPT}"), "launch", *argv)


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
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(site, labels, driver, queued=True),
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": STAYS, "ttlSecondsAfterFinished": STAYS,
                 "template": template(site, labels | {PART: "ranks"}, {"containers": [looks]})},
    }  # fmt: skip


def kinds(launch: Launchable) -> str:
    """Of these objects, as kubectl spells them."""
    return "configmaps,mpijobs" if launch.by_ssh else "configmaps,services,jobs"


def _metadata(site: K8sSite, labels: dict[str, str], driver: str, queued: bool = False) -> Object:
    queue = {QUEUE: site.queue} if queued and site.queue else {}
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
        containers = [
            rank_container(launch, box, "ranks" if number == 0 else f"ranks-{number}",
                           script_direct(boxes, number, PROGRAM), more)
            for number, box in enumerate(boxes)
        ]  # fmt: skip
    ranks = pod(launch, "ranks", containers)
    if launch.pods > 1:
        ranks["spec"]["subdomain"] = launch.world.name
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": launch.metadata(queued=True),
        "spec": {
            "completionMode": "Indexed", "completions": launch.pods, "parallelism": launch.pods, "backoffLimit": 0,
            "activeDeadlineSeconds": launch.site.deadline, "ttlSecondsAfterFinished": STAYS, "template": ranks,
        },
    }  # fmt: skip


def _mpi_job(launch: Launchable) -> Object:
    """The hosts are named in the command: the operator's variables are not those of Open MPI 5, nor all of hydra's."""
    world, box = launch.world, launch.boxes[0]
    launcher = world.stack.launcher
    argv = launcher.over_ssh(HOSTFILE, world.cell.ranks, (*RANK, *PROGRAM))
    resources = {"cpu": str(launch.site.threads_per_core), "memory": "1Gi"}
    starts = _container(launch, "launcher", script_launcher(HOSTFILE, argv), resources, variables(launch))
    first = pod(launch, "launcher", [starts])
    answers = {"tcpSocket": {"port": SSH}, "periodSeconds": 1, "failureThreshold": math.ceil(launch.site.patience)}
    ready = rank_container(launch, box, "ranks", ("sh", "-c", _WORKER), {}) | {"startupProbe": answers}
    worker = pod(launch, "ranks", [ready])
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": launch.metadata(queued=True),
        "spec": {
            "mpiImplementation": launcher.operator,
            "slotsPerWorker": len(box.ranks),
            "sshAuthMountPath": KEYS,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {
                "cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": launch.site.deadline,
                "ttlSecondsAfterFinished": STAYS,
            },
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": first},
                "Worker": {"replicas": launch.pods, "restartPolicy": "Never", "template": worker},
            },
        },
    }  # fmt: skip
