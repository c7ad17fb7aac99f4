"""The pods of an Indexed Job, played by containers: torch finds its first rank by the name that a Service gives it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tools.toy_slurm import OUTSIDE, docker

from collbench.launch.engines.k8s import all_launches
from collbench.launch.expansion import expand
from collbench.schema.plan import Plan
from tests.containers.conftest import Started
from tests.containers.test_launch import need

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.docker, pytest.mark.torch]


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


def read(container: str, path: str) -> str:
    return subprocess.run(
        ("docker", "exec", container, "cat", path), capture_output=True, text=True, check=False
    ).stdout


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
        while (code := read(names[0], "/results/code")) == "":
            assert time.monotonic() < end, docker("logs", names[0])
            time.sleep(0.5)
        said = subprocess.run(("docker", "logs", names[0]), capture_output=True, text=True, check=True)
        assert code == "0\n", said.stderr
        record = json.loads(read(names[0], "/results/out/records.jsonl"))
        assert record["status"] == "ok"
        assert record["ranks"]["container"] == ["c0", "c0", "c1", "c1"]
    finally:
        if names:
            docker("rm", "-f", *names)
        subprocess.run(("docker", "network", "rm", folder.name), capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
