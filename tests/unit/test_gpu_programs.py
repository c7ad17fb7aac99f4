"""Benchmarks of suite `gpu` from the command line to the record, on the made-up device and where there is no GPU."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT
from tests.unit.test_placement import machine, with_gpus

from collbench import workloads
from collbench.errors import PlanError, to_install
from collbench.launch.expansion import expand
from collbench.run.expand import program_cases
from collbench.schema.plan import Plan, load_launch_plan
from collbench.workloads import software
from collbench.workloads.gpu import suite as gpu

ROOT = Path(__file__).parents[2]
SMALL = (
    "gpu", "size=64", "memory=pageable", "side=32", "variant=diagonal", "m=5", "n=6", "k=7", "burst=100", "bins=64"
)  # fmt: skip

Suite = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        skip_or_fail("cuda", "there is no g++, which compiles CUDA kernels for the host")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def suite(kernels: Path, bare_environment: dict[str, str]) -> Suite:
    """`suite(words..., NAME=VALUE...)`: `collbench suite` on the double: exit code, records, standard error."""

    def start(*words: str, **variables: str) -> tuple[int, list[dict[str, Any]], str]:
        argv = (sys.executable, "-m", "tests.double.main", "suite", *words, "-n", "2", "--style", "json")
        env = bare_environment | {"DOUBLE_KERNELS": str(kernels)} | variables
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.returncode, json.loads(done.stdout)["records"] if done.stdout else [], done.stderr

    return start


@pytest.mark.slow
def test_the_suite_from_the_command_line(suite: Suite) -> None:
    code, records, errors = suite(*SMALL)
    assert (code, [record["reason"] for record in records if record["status"] != "ok"]) == (0, []), errors
    found: dict[str, list[str]] = {}
    for record in records:
        found.setdefault(record["case"]["workload"], []).append(record["case"]["what"]["measure"])
        assert record["check"]["wrong"] == 0
        assert record["samples"]["n"] == 2
        assert record["notes"][-1] != "" and any(note == "Double GPU-0, driver 0" for note in record["notes"])
    assert found == {name: [one.name for one in workloads.get(name).measures] for name in workloads.suites()["gpu"]}
    work = {record["case"]["workload"]: record["work"] for record in records}
    amounts = {name: (one["amount"], one["unit"]) for name, one in work.items()}
    assert amounts == {
        "gpu_copy": (64, "bytes"), "gpu_convolution": (32 * 32, "pixels"), "gpu_gemm": (2 * 5 * 6 * 7, "flop"),
        "gpu_histogram": (64, "bytes"), "gpu_transpose": (8 * 32 * 32, "bytes"), "gpu_launch": (100, "launches"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_wrong_result_fails_the_case(suite: Suite) -> None:
    code, (record,), _ = suite("gpu_transpose", "side=16", "variant=naive", DOUBLE_EDIT="i < TILE=>i < 1 - TILE")
    assert (code, record["status"]) == (1, "failed")
    assert record["reason"] == "wrong result: gpu_transpose counted 256 wrong values"


@pytest.mark.slow
def test_without_a_gpu_the_case_is_skipped_with_the_reason(suite: Suite) -> None:
    code, records, _ = suite("gpu_launch", DOUBLE_GPUS="0")
    reason = "no CUDA device is visible (the double has none)"
    assert {(record["status"], record["reason"]) for record in records} == {("skipped", reason)}
    assert code == 2


@pytest.mark.slow
def test_a_gpu_that_is_full_is_one_message(suite: Suite) -> None:
    code, (record,), errors = suite("gpu_gemm", "m=64", "n=64", "k=64", DOUBLE_MEMORY="20000")
    assert (code, record["status"]) == (1, "failed")
    assert record["reason"].endswith("Double: 16384 bytes are asked for, 3616 of 20000 are free")
    assert "Traceback" not in errors


def test_this_machine_says_what_it_lacks(collbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Whatever that is: CuPy, its compiler, a driver, a GPU."""
    reason = workloads.missing("gpu_copy")
    listed = collbench("suite").stdout
    assert "gpu_copy" in listed
    assert reason is None or reason in listed
    if importlib.util.find_spec("cupy") is None:
        assert reason is not None and to_install("cuda12") in reason


def test_what_cupy_is_comes_from_a_process_that_tried_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    answers = {
        'print(\'{"version": "14.2.0", "path": "/c"}\')': ("14.2.0", None),
        "import sys; sys.exit('stray\\nno CUDA device is visible')": (None, "no CUDA device is visible"),
        "print('[]')": (None, "CuPy: "),
        "import sys; sys.exit(3)": (None, "CuPy: its exit code is 3"),
    }
    for program, (version, reason) in answers.items():
        monkeypatch.setattr(gpu, "started", lambda *words, program=program: (sys.executable, "-c", program))
        software.describe.cache_clear()
        library, missing = gpu.CUPY.library(), gpu.CUPY.missing()
        assert (library.version if library else None) == version
        assert missing is None if reason is None else str(missing).startswith(reason)
    software.describe.cache_clear()


@pytest.mark.parametrize(("benchmark", "message"), [
    ({"name": "gpu_transpose", "side": 100}, "the side must be a multiple of 16"),
    ({"name": "gpu_histogram", "bins": 128}, "bins must be 64 or 256"),
    ({"name": "gpu_histogram", "size": 6}, "the size must be a multiple of 4 bytes"),
    ({"name": "gpu_launch", "burst": 150}, "burst must be a multiple of 100"),
    ({"name": "gpu_copy", "size": 0}, "the size must be at least 1 byte"),
    ({"name": "gpu_copy", "memory": "pined"}, "memory 'pined': Did you mean pinned\\? There are: pinned, pageable"),
    ({"name": "gpu_gemm", "k": 17_000_000}, "k 17000000: at most 16,000,000"),
])  # fmt: skip
def test_cases_that_cannot_be_are_refused(benchmark: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        program_cases(Plan(benchmarks=(benchmark,)), 1)


def test_flags_are_those_of_the_program() -> None:
    (case,) = program_cases(Plan(benchmarks=({"name": "gpu_histogram", "size": "64", "bins": 64},)), 1)
    argv = workloads.get("gpu_histogram").argv(case.case, 7)
    assert argv[1:] == (
        "-m", "collbench.workloads.gpu.suite", "histogram", "--bins", "64", "--size", "64", "--times", "7"
    )  # fmt: skip


def test_the_plan_of_the_paper_has_its_sizes_and_expands_without_a_gpu() -> None:
    plan = load_launch_plan(ROOT / "launch" / "xu2017-gpu.toml")
    expanded = expand(plan, lambda engine: machine(1, 4))
    notes = {placement.note for placement in expanded.placements.values()}
    assert notes == {"this machine offers no GPU: benchmarks that need one are skipped"}
    assert [(cell.policy, cell.image) for cell in expanded.cells] == [("host", "openmpi"), ("multi", "openmpi")]
    cases = {identity for cases in expanded.expected.values() for identity in cases}
    work = {
        (case.workload, measure.work(case).amount)
        for case in cases
        for measure in workloads.get(case.workload).measures
    }
    assert ("gpu_gemm", 2.0 * 23040 * 17280 * 11520) in work
    assert ("gpu_convolution", 18432**2) in work
    assert ("gpu_histogram", 67108864) in work
    assert len({case["variant"] for case in cases if case.workload == "gpu_transpose"}) == 8


def test_with_a_gpu_the_plan_is_placed_on_it() -> None:
    plan = load_launch_plan(ROOT / "launch" / "xu2017-gpu.toml")
    placements = expand(plan, lambda engine: with_gpus(1, 4, 1)).placements
    assert [(len(one.gpus), one.note) for one in placements.values()] == [(1, ""), (1, "")]


@pytest.mark.parametrize(
    "change", [{"unusable": "refuse"}, {"collectives": ("allreduce",), "image_backends": {"openmpi": ("nccl",)}}]
)
def test_what_may_not_be_skipped_needs_a_gpu(change: dict[str, Any]) -> None:
    plan = msgspec.structs.replace(load_launch_plan(ROOT / "launch" / "xu2017-gpu.toml"), **change)
    with pytest.raises(PlanError, match=r"device gpu: .* and this machine offers none"):
        expand(plan, lambda engine: machine(1, 4))


def test_affinity_is_that_of_the_gpu() -> None:
    plan = load_launch_plan(ROOT / "launch" / "gpu-affinity.toml")
    placements = expand(plan, lambda engine: with_gpus(2, 4, 2)).placements
    cores = {cell.affinity: [slot.nodes for slot in placement.slots] for cell, placement in placements.items()}
    assert cores["near"] != cores["far"]
