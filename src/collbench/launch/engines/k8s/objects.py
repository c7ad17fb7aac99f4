"""What Kubernetes is given of a launch: a ConfigMap, and a Job with its Service, or an MPIJob; claims to GPUs.

Every command of a pod ends by writing its exit code, and then waits, so that what the ranks wrote can still be copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.spec import LARGE_SHM, WorldSpec
from collbench.launch.expansion import cores_of, shape_of, with_threads
from collbench.launch.launchers import PORT, Argv
from collbench.launch.placement import Box
from collbench.schema.world import HOST, SHAPE

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

#: The claim of a pod to the channel of a ComputeDomain.
CHANNEL = "channel"

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
        kinds = ("configmaps", "mpijobs") if self.by_ssh else ("configmaps", "services", "jobs")
        claims = ("resourceclaimtemplates",) * bool(self.claims) + ("computedomains",) * bool(self.channel)
        return ",".join((*kinds, *claims))

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the templates of its claims to GPUs, one for each number that a container has."""
        if not self.site.device_class:
            return ()
        return tuple(sorted({self.claim_of(box) for box in self.boxes if box.gpus}))

    def claim_of(self, box: Box) -> str:
        return f"{self.world.name}-gpus-{len(box.gpus)}"

    @property
    def channel(self) -> str:
        """The name of the template of a claim to the channel of a ComputeDomain; empty without one."""
        spread = self.site.compute_domain and self.world.cell.hosts > 1 and bool(self.world.placement.gpus)
        return f"{self.world.name}-channel" if spread else ""

    @property
    def variables(self) -> dict[str, str]:
        """What every rank shares."""
        shape = msgspec.json.encode(shape_of(self.world.cell, self.world.placement)).decode()
        return with_threads({SHAPE: shape, **self.world.stack.launcher.environment, **self.site.variables})


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
    if part == "ranks" and (claimed := _claimed(launch, containers)):
        spec["resourceClaims"] = claimed
    if part == "ranks" and (affinity := _affinity(launch)):
        spec["affinity"] = affinity
    seccomp = "Unconfined" if cell.seccomp == "unconfined" else "RuntimeDefault"
    return template(launch.site, launch.labels | {PART: part}, spec, seccomp)


def _claimed(launch: Launchable, containers: Sequence[Object]) -> list[Object]:
    """What the containers of a pod claim: its GPUs each for itself, a channel together."""
    boxes = zip(containers, launch.boxes, strict=True) if launch.claims else ()
    claims = [(f"{container['name']}-gpus", launch.claim_of(box)) for container, box in boxes if box.gpus]
    claims += [(CHANNEL, launch.channel)] if launch.channel else []
    return [{"name": name, "resourceClaimTemplateName": template_name} for name, template_name in claims]


def _claim_templates(launch: Launchable) -> list[Object]:
    """Of dynamic resource allocation (resource.k8s.io/v1), and of NVIDIA's driver for it."""
    made: list[Object] = []
    for box in {launch.claim_of(box): box for box in launch.boxes if launch.claims and box.gpus}.values():
        exactly = {"deviceClassName": launch.site.device_class, "allocationMode": "ExactCount", "count": len(box.gpus)}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
        metadata = launch.metadata() | {"name": launch.claim_of(box)}
        made.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata,
                     "spec": {"spec": spec}})  # fmt: skip
    if launch.channel:
        domain = {"numNodes": launch.world.cell.hosts, "channel": {"resourceClaimTemplate": {"name": launch.channel}}}
        made.append({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
                     "metadata": launch.metadata(), "spec": domain})  # fmt: skip
    return made


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
    if box.gpus and not launch.claims:
        resources[launch.site.gpu_resource] = str(len(box.gpus))
    resources |= {resource: str(value) for resource, value in launch.site.resources.items()}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}] if launch.large_shm else []  # noqa: S108
    made = _container(launch, name, command, resources, launch.variables | more, mounts)
    claims = [f"{name}-gpus"] * bool(launch.claims and box.gpus) + [CHANNEL] * bool(launch.channel)
    if claims:
        made["resources"]["claims"] = [{"name": claim} for claim in claims]
    return made


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
    claims = _claim_templates(launch)
    if launch.by_ssh:
        return (plan, *claims, _mpi_job(launch))
    service = {  # gives every pod a name, before it is ready
        "apiVersion": "v1", "kind": "Service", "metadata": launch.metadata(),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": launch.labels},
    }  # fmt: skip
    return (plan, *claims, *((service,) if launch.pods > 1 else ()), _job(launch))


def look_job(site: K8sSite, run: str, name: str, driver: str, image: str, argv: Argv) -> Object:
    """A pod that prints what an image holds."""
    labels = {RUN: run, LAUNCH: name}
    resources = {"cpu": str(site.threads_per_core), "memory": site.memory}
    looks = container(site, "ranks", image, ("sh", "-c", _LOOK, "look", *argv), resources)
    looks["env"] = [{"name": name, "value": value} for name, value in site.variables.items()]
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
