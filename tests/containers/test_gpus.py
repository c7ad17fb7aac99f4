"""Images and plans for GPUs, on an engine without any: what can be seen there, and what is refused."""

from __future__ import annotations

import json
import subprocess

import pytest

from collbench.launch.engines.docker import look
from collbench.launch.engines.docker.look import contents_of, find
from collbench.machine import topology
from tests.containers.conftest import ROOT, Launch, Started, ended
from tests.containers.test_launch import need
from tests.processes import LIMIT

ALLREDUCE = ("collbench", "allreduce", "--backend", "nccl")

WITHOUT = pytest.mark.skipif(bool(topology.here().gpus), reason="this machine has GPUs")


def inside(image: str, *command: str) -> subprocess.CompletedProcess[str]:
    argv = ("docker", "run", "--rm", "--network", "none", f"collbench/{image}", *command)
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.docker
def test_the_image_with_cuda_holds_cupy_and_one_nccl(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    found = contents_of(clean.engine, find(clean.engine, "openmpi-cuda"))
    (nccl,) = (library for library in found.libraries if library.name == "NCCL")
    packages = {name: version for name, version in found.packages.items() if name.startswith(("cupy", "nvidia-nccl"))}
    assert found.cuda in ("12", "13")
    assert packages == {f"cupy-cuda{found.cuda}x": packages[f"cupy-cuda{found.cuda}x"],
                        f"nvidia-nccl-cu{found.cuda}": nccl.version}  # fmt: skip
    labels = look.inspect(clean.engine, "collbench/openmpi-cuda")["Config"]["Labels"]
    assert labels["collbench.nccl"] == nccl.version
    assert labels["collbench.nccl.sha256"] == nccl.sha256
    assert labels["collbench.cuda"] == found.cuda
    assert labels["collbench.cupy"] == packages[f"cupy-cuda{found.cuda}x"]
    loads = (
        "from collbench.bindings.gpu.shared_library import load; from cupy.cuda import nccl, runtime; "
        "load('cudart', f'libcudart.so.{runtime.runtimeGetVersion() // 1000}', only=False); print(nccl.get_version())"
    )
    done = inside("openmpi-cuda", "python", "-c", loads)
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    assert f"{number // 10_000}.{number // 100 % 100}.{number % 100}" == nccl.version


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich", "openmpi-cuda", "torch"])
def test_no_image_asks_for_gpus_by_itself(clean: Started, image: str) -> None:
    need(clean, image)
    variables = look.inspect(clean.engine, f"collbench/{image}")["Config"]["Env"]
    assert {one for one in variables if one.startswith("NVIDIA_")} == {
        "NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    }  # fmt: skip


@pytest.mark.docker
def test_nccl_without_a_gpu_is_refused_in_one_line(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    done = inside("openmpi-cuda", *ALLREDUCE)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "collbench: backend nccl: no NVIDIA driver is loaded (in a container: it was started without"
    )
    done = inside("openmpi-cuda", "mpirun", "-n", "2", *ALLREDUCE)
    assert done.returncode == 2
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("collbench: "))
    assert "rank 0 on " in line and "has no GPU to use: no NVIDIA driver is loaded" in line


@pytest.mark.docker
def test_doctor_finds_cupy_and_nccl_in_it(clean: Started) -> None:
    need(clean, "openmpi-cuda")
    found = {
        row["check"]: row
        for row in json.loads(inside("openmpi-cuda", "collbench", "doctor", "--json").stdout)["findings"]
    }
    assert "nvidia-nccl wheel" in found["nccl"]["seen"]


@WITHOUT
@pytest.mark.docker
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_plan_for_gpus_is_refused_before_anything_starts(
    clean: Started, launch: Launch, more: tuple[str, ...]
) -> None:
    plan = (ROOT / "launch" / "choi2021-gpu.toml").read_text(encoding="utf-8")
    process = launch(plan, *more)
    code, out, err = ended(process)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "device gpu: 1 worker needs a GPU, and this machine offers none (" in line
    assert line.endswith('Lower ranks or workers, or use device = "cpu".')


@pytest.mark.docker
def test_a_backend_of_gpus_with_slots_of_cores_is_refused(clean: Started, launch: Launch) -> None:
    plan = 'collectives = ["allreduce"]\nimages = ["mpich"]\nbackends = ["nccl"]\n'
    code, out, err = ended(launch(plan))
    assert (code, out) == (2, "")
    assert 'Set device = "gpu"' in err
