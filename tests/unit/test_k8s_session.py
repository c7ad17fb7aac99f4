"""Launches of the engine `k8s` with a kubectl that is played: the whole way, and what may go wrong on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import EngineError
from collbench.launch.engines.k8s import K8sSession
from collbench.launch.engines.k8s.client import Client
from collbench.launch.engines.k8s.objects import DRIVER, RUN
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.spec import cleaned
from collbench.launch.folders import driver_identity
from collbench.schema.store import read_run

PLAN = """\
images = ["openmpi"]
policies = ["single"]
benchmarks = [{ name = "stream", size = "8M", arrays = "any" }]
ranks = [1]
launches = 2
iters = 3
floor = 1
timeout = "30s"
"""

SITE = 'cores = 1\nimages = { openmpi = "registry/openmpi" }\ntimeout = "1s"\n'

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
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "site.toml").write_text(f"[k8s]\n{SITE}")
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
    (tmp_path / "site.toml").write_text(f"[k8s]\n{SITE}{more}")
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
    (tmp_path / "plan.toml").write_text(PLAN.replace("launches = 2", "launches = 1\ncores_per_rank = 256"))
    (tmp_path / "site.toml").write_text(f"[k8s]\n{SITE}".replace("cores = 1", "cores = 256"))
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
    over_two = PLAN.replace("ranks = [1]", "ranks = [2]\nhosts = [2]").replace("benchmarks", "#")
    (tmp_path / "plan.toml").write_text(over_two + 'collectives = ["barrier"]\n')
    (tmp_path / "site.toml").write_text(f'[k8s]\nobjects = "mpijob"\n{SITE}'.replace('"1s"', '"60s"'))
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
    (tmp_path / "plan.toml").write_text(PLAN.replace("iters = 3", "iters = 25600"))
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
