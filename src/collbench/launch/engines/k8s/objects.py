"""What Kubernetes is given for a launch: a ConfigMap, and a Job with its Service, or an MPIJob. Pure."""

from __future__ import annotations

import math

from collbench.launch.engines.k8s.pods import (
    DRIVER,
    LAUNCH,
    PART,
    RANK,
    RUN,
    Launchable,
    Object,
    container,
    launcher_container,
    pod,
    program,
    rank_container,
    script_alone,
    script_direct,
    script_launcher,
    script_look,
    script_worker,
    template,
)
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.starters.starter import Argv
from collbench.launch.starters.torch import PORT

#: Kueue's label of what waits in a queue.
QUEUE = "kueue.x-k8s.io/queue-name"

#: How long (s) an object that has ended stays, should nobody remove it.
STAYS = 600

#: Where the MPI Operator puts the hosts, and where the images look for the key that it makes.
HOSTFILE, KEYS = "/etc/mpi/hostfile", "/home/collbench/.ssh"

#: The port of sshd in the images.
SSH = 2222


def manifests(launch: Launchable) -> tuple[Object, ...]:
    """All objects of a launch."""
    plan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(launch), "data": {"plan.json": launch.inner}}
    if launch.by_ssh:
        return (plan, _mpi_job(launch))
    service = (_service(launch),) if launch.pods > 1 else ()
    return (plan, *service, _job(launch))


def look_job(site: K8sSite, run: str, name: str, driver: str, image: str, argv: Argv) -> Object:
    """A pod that prints what an image holds."""
    labels = {RUN: run, LAUNCH: name}
    resources = {"cpu": str(site.threads_per_core), "memory": site.memory}
    asked = container(site, "ranks", image, script_look(argv), resources)
    queue = {QUEUE: site.queue} if site.queue else {}
    metadata = {"name": name, "namespace": site.namespace, "labels": labels | queue, "annotations": {DRIVER: driver}}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": STAYS, "ttlSecondsAfterFinished": STAYS,
                 "template": template(site, labels | {PART: "ranks"}, {"containers": [asked]})},
    }  # fmt: skip


def kinds(launch: Launchable) -> str:
    """Of these objects, as kubectl spells them."""
    return "configmaps,mpijobs" if launch.by_ssh else "configmaps,services,jobs"


def _metadata(launch: Launchable, queued: bool = False) -> Object:
    world, site = launch.world, launch.site
    queue = {QUEUE: site.queue} if queued and site.queue else {}
    return {"name": world.name, "namespace": site.namespace, "labels": launch.labels | queue,
            "annotations": {DRIVER: world.driver}}  # fmt: skip


def _service(launch: Launchable) -> Object:
    """Gives every pod a name, before it is ready."""
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": _metadata(launch),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": launch.labels},
    }  # fmt: skip


def _job(launch: Launchable) -> Object:
    ranks = pod(launch, "ranks", _containers(launch))
    if launch.pods > 1:
        ranks["spec"]["subdomain"] = launch.world.name
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(launch, queued=True),
        "spec": {
            "completionMode": "Indexed", "completions": launch.pods, "parallelism": launch.pods, "backoffLimit": 0,
            "activeDeadlineSeconds": launch.site.deadline, "ttlSecondsAfterFinished": STAYS, "template": ranks,
        },
    }  # fmt: skip


def _containers(launch: Launchable) -> list[Object]:
    """Of a pod: one for each of its boxes. A single box starts its ranks as on one machine."""
    world, boxes = launch.world, launch.boxes
    if len(world.placement.boxes) == 1:
        argv = world.stack.starter.local(world.cell.ranks, world.placement.crowded, program())
        return [rank_container(launch, boxes[0], "ranks", script_alone(argv), {})]
    more = {"WORLD_SIZE": str(world.cell.ranks), "MASTER_ADDR": f"{world.name}-0.{world.name}", "MASTER_PORT": PORT}
    if launch.pods == 1:
        more["MASTER_ADDR"] = "localhost"
    return [
        rank_container(launch, box, "ranks" if number == 0 else f"ranks-{number}",
                       script_direct(boxes, number, program()), more)
        for number, box in enumerate(boxes)
    ]  # fmt: skip


def _mpi_job(launch: Launchable) -> Object:
    """The hosts are named in the command: the operator's variables are not those of Open MPI 5, nor all of hydra's."""
    world, box = launch.world, launch.boxes[0]
    starter = world.stack.starter
    argv = starter.over_ssh(HOSTFILE, world.cell.ranks, (*RANK, *program()))
    launcher = pod(launch, "launcher", [launcher_container(launch, script_launcher(HOSTFILE, argv))])
    answers = {"tcpSocket": {"port": SSH}, "periodSeconds": 1, "failureThreshold": math.ceil(launch.site.patience)}
    ready = rank_container(launch, box, "ranks", script_worker(), {}) | {"startupProbe": answers}
    worker = pod(launch, "ranks", [ready])
    return {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": _metadata(launch, queued=True),
        "spec": {
            "mpiImplementation": starter.operator,
            "slotsPerWorker": len(box.ranks),
            "sshAuthMountPath": KEYS,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {
                "cleanPodPolicy": "None", "backoffLimit": 0, "activeDeadlineSeconds": launch.site.deadline,
                "ttlSecondsAfterFinished": STAYS,
            },
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                "Worker": {"replicas": launch.pods, "restartPolicy": "Never", "template": worker},
            },
        },
    }  # fmt: skip
