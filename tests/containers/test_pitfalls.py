"""What is known to go wrong with MPI in containers: the launcher makes it impossible, or doctor and record say it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.look import allowed_calls, find
from collbench.schema.record import Record
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import LADDER
from tests.processes import LIMIT


def records_of(launch: Launch, folder: Path, plan: str) -> tuple[Record, ...]:
    code, out, err = ended(launch(plan))
    assert code == 0, (out, err)
    return read_run(folder / "run").records


def findings_of(*arguments: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "collbench", "doctor", "--image", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return {row["check"]: row for row in json.loads(done.stdout)["findings"]}


@pytest.mark.docker
def test_containers_never_share_a_core(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """Else every MPI binds its first rank to the same one."""
    for record in records_of(launch, tmp_path, LADDER.format(image="mpich", policies='"single"')):
        assert record.ranks is not None
        assert len(set(record.ranks.binding)) == 2, record.case.where.isolation


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_ranks_that_may_not_read_each_others_memory(clean: Started, launch: Launch, tmp_path: Path, image: str) -> None:
    """MPICH would abort from 64 KiB on, Open MPI copies twice in silence: the record says it, and so does doctor."""
    plan = LADDER.format(image=image, policies='"multi"').replace('"limits", "ipc", "net", "visible"', '"ipc"')
    found = {
        (record.case.where.isolation, record.case["size"]): record for record in records_of(launch, tmp_path, plan)
    }
    assert len(found) == 4
    needed = {"process_vm_readv"} if image == "mpich" else {"process_vm_readv", "kcmp"}
    refused = bool(needed - allowed_calls(clean.engine, find(clean.engine, f"collbench/{image}")))
    said = {key: any("refused at this step" in note for note in record.notes) for key, record in found.items()}
    assert said == {(step, size): refused and step == "strict" for step in ("strict", "ipc") for size in (8, 131072)}
    off = {
        any("MPIR_CVAR_CH4_CMA_ENABLE=0" in note for note in record.notes) for key, record in found.items() if said[key]
    }
    assert off == ({image == "mpich"} if refused else set())
    assert findings_of(image, "--policy", "multi")["cma"]["status"] == ("warn" if refused else "ok")
    assert findings_of(image, "--policy", "multi", "--isolation", "ipc")["cma"]["status"] == "ok"


@pytest.mark.docker
def test_shared_memory_is_not_taken_for_granted(clean: Started, launch: Launch, tmp_path: Path) -> None:
    """Open MPI uses it inside one container only, whatever is shared: the transport is in the record."""
    plan = LADDER.format(image="openmpi", policies='"multi", "single"')
    found = {(one.case.where.policy, one.case.where.isolation): one for one in records_of(launch, tmp_path, plan)}
    assert {place: record.transport for place, record in found.items()} == {
        (policy, step): "ob1: sm" if policy == "multi" else "ob1: tcp" for policy, step in found
    }
    hung = [one for one in found.values() if any("OMPI_MCA_coll=^han" in note for note in one.notes)]
    assert {one.case.where.isolation for one in hung} == {"net", "visible"}  # containers of one hostname


@pytest.mark.docker
def test_ucx_gets_shared_memory_back_with_the_ipc_namespace(clean: Started, launch: Launch, tmp_path: Path) -> None:
    found = records_of(launch, tmp_path, LADDER.format(image="mpich", policies='"single"'))
    lanes = {record.case.where.isolation: record.transport or "" for record in found}
    assert all(lanes[step].startswith("ucx inter-node tcp/") for step in ("strict", "limits")), lanes
    assert all(lanes[step].startswith("ucx intra-node sysv/memory") for step in ("ipc", "net", "visible")), lanes


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_more_ranks_than_cores_take_a_word_and_are_marked(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    ranks = 2 * len(os.sched_getaffinity(0))
    plan = LADDER.format(image=image, policies='"multi", "single"').replace(
        '"limits", "ipc", "net", "visible"', '"net"'
    )
    plan = plan.replace("iters = 20", f"iters = 3\nranks = [{ranks}]")
    code, _, err = ended(launch(plan))
    assert code == 2
    assert "set oversubscribe = true" in err
    found = records_of(launch, tmp_path, plan + "oversubscribe = true\n")
    assert len(found) == 8
    assert all(record.status == "ok" and record.oversubscribed for record in found)


@pytest.mark.docker
def test_a_quota_is_seen_although_nproc_does_not_show_it(engine: Docker) -> None:
    """The quota comes down once ranks have started: to less than a busy machine leaves them."""
    quota = ("docker", "run", "--rm", "--cpus", "0.5")
    name = f"collbench-tests-quota-{os.getpid()}"
    measure = ("mpirun", "--bind-to", "none", "-n", "2", "collbench", "allreduce", "-b", "1M", "-e", "1M", "--gate",
               "barrier", "--budget", "4s", "-J", "/dev/stderr")  # fmt: skip
    command = (*quota, "--name", name, "collbench/openmpi", *measure)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("# collbench")
        subprocess.run(("docker", "update", "--cpus", "0.05", name), capture_output=True, timeout=LIMIT, check=True)
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    (record,) = json.loads(said)["records"]
    assert record["contended"] is True
    assert any("its CPU quota was used up" in note for note in record["notes"]), record["notes"]
    done = subprocess.run(
        (*quota, "collbench/openmpi", "collbench", "doctor", "--json"),
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    cores = next(row for row in json.loads(done.stdout)["findings"] if row["check"] == "cores")
    assert cores["status"] == "warn"
    assert "0.5" in json.dumps(cores)


@pytest.mark.docker
@pytest.mark.parametrize("policy", ["single", "multi"])
def test_doctor_looks_into_an_image(clean: Started, policy: str) -> None:
    findings = findings_of("mpich", "--policy", policy)
    assert findings["mpi"]["status"] == "ok"
    assert findings["shm"]["status"] == "warn"
    assert "MPICH 5" in findings["mpi"]["seen"]
