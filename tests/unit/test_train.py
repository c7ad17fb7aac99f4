"""train: its cases, what it starts and prints, a training of a few steps with torch, and the networks."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.made_files import case_of, measured
from tests.unit.test_datasets import idx_files
from tests.unit.test_placement import machine

from collbench import workloads
from collbench.launch.expansion import expand
from collbench.registry import find_plan
from collbench.schema.plan import load_launch_plan
from collbench.schema.record import Record
from collbench.workloads import software
from collbench.workloads.dl.datasets import NETWORKS, SOURCES, VARIABLE
from collbench.workloads.host.files import kind_of
from collbench.workloads.program import threads_of

TRAIN = workloads.get("train")
PRINTED = {"ns": {"batch": [3_000_000, 2_000_000], "first": [4_000_000_000]}, "slices": None,
           "nonfinite": 0, "loss": 2.302585092994,
           "notes": ["torch 2.13.0, AVX512, 1 thread", "data: made-up 8 x 784, sha256 ab"]}  # fmt: skip


def test_a_case_is_of_the_network_s_own_sizes() -> None:
    case, first = case_of("train"), TRAIN.measures[1]
    assert (case["network"], case["batch"], case["data"], case.how["data"]) == ("fcn5", 0, "made-up", "made-up")
    assert TRAIN.argv(case, 7)[1:] == (
        "-m", "collbench.workloads.dl.train", "--network", "fcn5", "--device", "cpu", "--batch", "512",
        "--steps", "4", "--threads", str(threads_of(0)), "--loaders", "0", "--times", "7",
    )  # fmt: skip
    works = [row.work(case) for row in TRAIN.measures]
    measures = [
        (row.name, work.amount, work.unit, work.shown, row.once)
        for row, work in zip(TRAIN.measures, works, strict=True)
    ]
    assert measures == [("batch", 1, "batches", "time", False), ("first", 4, "batches", "time", True)]
    assert first.amount(case_of("train", epoch=0)) == 60_000 // 512
    assert first.amount(case_of("train", network="lstm", epoch=0, batch=30_000)) == 1
    (made,) = TRAIN.prepare(case_of("train", network="lstm", batch=3, epoch=5))
    assert made.argv[-6:] == ("--network", "lstm", "--data", "made-up", "--examples", "15")
    (dropped,) = TRAIN.before(case_of("train", cache="warm"))
    assert dropped.argv[-3:] == ("collbench.workloads.host.files", "warm", "data")


def test_memory_is_that_of_parameters_and_layers_or_of_the_file() -> None:
    assert TRAIN.memory(case_of("train", batch=1)) == 12 * 14_205_962 + NETWORKS["fcn5"].kib * 1024
    outputs = 12 * 128 * 32 * 10_000
    assert outputs < TRAIN.memory(case_of("train", network="lstm")) < 2 * outputs
    assert TRAIN.memory(case_of("train", network="resnet56", batch=200_000)) > 900 << 30
    assert TRAIN.memory(case_of("train", network="resnet56", batch=1_000, epoch=1, device="cuda")) == 2 * 1_000 * 3073
    assert TRAIN.memory(case_of("train", network="alexnet", epoch=0)) == 2 * 49_920 * 3073
    words = case_of("train", network="lstm", batch=1, epoch=1_000_000)
    assert TRAIN.memory(words) == 2 * 1_000_000 * 33 * 2


@pytest.mark.parametrize(
    ("data", "network"), [("digits", "fcn5"), ("mnist", "fcn5"), ("cifar10", "alexnet"), ("ptb", "lstm")]
)
def test_examples_of_the_right_shape_are_taken(data: str, network: str) -> None:
    assert case_of("train", data=data, network=network)["data"] == data


def test_what_it_prints_becomes_samples_a_check_and_notes() -> None:
    case, output = case_of("train"), json.dumps(PRINTED)
    assert TRAIN.parse(output) == {"batch": [0.003, 0.002], "first": [4.0]}
    assert (TRAIN.verify(case, output), TRAIN.repeatable(case, output)) == (0, {"loss": 2.30259})
    assert TRAIN.slices(output) is None
    assert TRAIN.notes(output) == tuple(PRINTED["notes"])  # type: ignore[arg-type]
    assert TRAIN.verify(case, json.dumps(PRINTED | {"nonfinite": 2, "loss": float("nan")})) == 2


def test_only_cases_whose_data_cannot_be_had_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    uses = workloads.uses(({"name": "train", "data": ("made-up", "mnist")},))
    assert uses == ("train data=made-up", "train data=mnist")
    monkeypatch.setattr(software.Torch, "_folder", lambda self: None)
    reasons = {TRAIN.missing(), TRAIN.missing("made-up"), TRAIN.missing("mnist")}
    assert len(reasons) == 1 and str(*reasons).endswith("pip install torch")
    assert TRAIN.libraries("made-up") == ()
    monkeypatch.setattr(software.Torch, "_folder", lambda self: Path("/opt/torch"))
    monkeypatch.setattr(software, "version", lambda name: "2.13.0+cpu")
    assert (TRAIN.missing(), TRAIN.missing("made-up")) == (None, None)
    assert VARIABLE in str(TRAIN.missing("mnist"))
    (torch,) = TRAIN.libraries("made-up")
    assert (torch.name, torch.version, torch.path) == ("torch", "2.13.0+cpu", "/opt/torch/lib/libtorch_cpu.so")


#: Cases of every benchmark that torch computes, listed in a process in which it cannot be imported.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from collbench.run.cases import program_cases
from collbench.schema.plan import Plan
from collbench.workloads.dl.datasets import NETWORKS
names = ("fathom", "deepbench_conv", "deepbench_rnn", "deepbench_gemm", "ddp", "parameter_server")
tables = ({"name": "train", "network": tuple(NETWORKS)}, *({"name": name} for name in names))
print(len(NETWORKS), [len(program_cases(Plan(benchmarks=(table,)), 1)) for table in tables])
"""


def test_cases_are_listed_without_torch() -> None:
    argv = (sys.executable, "-c", WITHOUT_TORCH)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.returncode) == (f"7 {[7] + [1] * 6}\n", 0), done.stderr


@pytest.mark.parametrize("name", ["train", "fathom", "deepbench_conv", "deepbench_rnn", "deepbench_gemm", "ddp",
                                  "parameter_server"])  # fmt: skip
def test_torch_is_the_library_of_every_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = workloads.get(name)
    monkeypatch.setattr(software.Torch, "_folder", lambda self: Path("/opt/torch"))
    monkeypatch.setattr(software, "version", lambda package: f"1.2.3 of {package}")
    use = next(iter(workloads.uses((name,)))).partition("=")[2]
    (library,) = row.libraries(use) if use else row.libraries()
    assert (library.name, library.version, library.path) == (
        "torch", "1.2.3 of torch", "/opt/torch/lib/libtorch_cpu.so")  # fmt: skip
    monkeypatch.setattr(software.Torch, "_folder", lambda self: None)
    assert str(row.missing()).endswith("pip install torch")
    assert (row.libraries(use) if use else row.libraries()) == ()


def test_a_file_with_the_wrong_hash_fails_the_case_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder = tmp_path / "data", tmp_path / "files"
    data.mkdir()
    folder.mkdir()
    idx_files(data)
    (data / "SHA256SUMS").write_text(f"{'0' * 64}  train-images-idx3-ubyte\n", encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(data))
    row = replace(TRAIN, software=(), argv=lambda case, times: pytest.fail("was started"))
    monkeypatch.setattr(workloads, "get", lambda name: row)
    for record in measured({"name": "train", "data": "mnist"}, folder):
        assert record.status == "failed"
        assert f"data=mnist: {data}/train-images-idx3-ubyte: " in str(record.reason)
    assert list(folder.iterdir()) == []


def test_the_plan_trains_the_networks_of_the_paper_on_both_sides() -> None:
    expanded = expand(load_launch_plan(find_plan("xu2017-train")), lambda engine: machine(1, 4))
    assert [cell.policy for cell in expanded.cells] == ["host", "multi"]
    for cases in expanded.expected.values():
        assert sorted({(case["network"], case["measure"]) for case in cases}) == [
            (network, measure) for network in ("alexnet", "fcn5", "lstm", "resnet56") for measure in ("batch", "first")
        ]


# With torch ----------------------------------------------------------------------------------------------------------


def with_torch(test: Any) -> Any:
    lacking = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
    return pytest.mark.torch(pytest.mark.slow(lacking(test)))


SMALL = {"name": "train", "network": "alexnet", "batch": 2, "epoch": 2, "threads": 1}


def trained(folder: Path, **values: Any) -> dict[str, Record]:
    """Records by measure, of three samples after a warm-up; nothing is left in the folder."""
    cache = "warm" if kind_of(folder) == "tmpfs" else "cold"
    records = measured({**SMALL, "cache": cache, **values}, folder, iters=3, warmup=1)
    assert list(folder.iterdir()) == []
    return {record.case["measure"]: record for record in records}


@with_torch
def test_a_training_is_measured_and_its_loss_does_not_depend_on_how_it_is_loaded(tmp_path: Path) -> None:
    usual = trained(tmp_path, steps=9)
    by_others = trained(tmp_path, steps=9, loaders=2)
    for record in (*usual.values(), *by_others.values()):
        assert (record.status, record.reason) == ("ok", None)
        assert record.check is not None and record.check.wrong == 0
        assert record.check.figures == {"resident": 1.0 if record.case["cache"] == "warm" else 0.0}
        assert record.check.repeatable == usual["batch"].check.repeatable != {}  # type: ignore[union-attr]
        assert any(note.startswith("data: made-up 4 x 3072, sha256 ") for note in record.notes)
        assert any(note.endswith(", 1 thread, batches of 2") for note in record.notes)
    numbers = {name: (record.samples.n, record.samples.warmup) for name, record in usual.items() if record.samples}
    assert numbers == {"batch": (3, 1), "first": (1, 0)}
    assert trained(tmp_path, steps=1)["batch"].check != usual["batch"].check


@with_torch
@pytest.mark.parametrize("network", NETWORKS)
def test_batches_have_the_shape_that_a_network_takes(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from collbench.workloads.dl.datasets import FILE, write
    from collbench.workloads.dl.train import Batches

    monkeypatch.chdir(tmp_path)
    of = NETWORKS[network]
    examples = SOURCES["made-up"].read(of, 7)
    batches = Batches(of, write(examples, 7), 3)
    assert len(batches) == 2
    rows = np.fromfile(FILE, examples.rows.dtype).reshape(7, -1)
    inputs, targets = batches[1]
    assert inputs.shape == (3, *of.example) and targets.shape == (3, *of.targets)
    expected = rows[3:6, :-1].astype(float) / (1 if of.tokens else 255)
    assert torch.allclose(inputs.double().flatten(1), torch.from_numpy(expected))
    assert targets.flatten().tolist() == (rows[3:6, 1:] if of.tokens else rows[3:6, -1]).flatten().tolist()


ALEXNET = ("--network", "alexnet", "--batch", "2", "--steps", "1", "--threads", "1", "--loaders", "0", "--times", "2")
MEMNET = ("--network", "memnet", "--batch", "8", "--threads", "1", "--times", "1")


@with_torch
@pytest.mark.parametrize(
    ("program", "argv", "named"),
    [("train", ALEXNET, r"alexnet .* 2 .* GPU"), ("fathom", MEMNET, r"memnet .* 8 .* GPU")],
)
def test_without_a_gpu_it_is_skipped_and_one_that_is_full_is_named(
    program: str, argv: tuple[str, ...], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    def full(flags: argparse.Namespace) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried 1 GiB. GPU 0 has none.")

    module = importlib.import_module(f"collbench.workloads.dl.{program}")
    monkeypatch.setattr(sys, "argv", ["x", *argv, "--device", "cuda"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert (ended.value.code, capsys.readouterr().err[:19]) == (77, "device=cuda: torch ")
    monkeypatch.setattr(module, "run", full)
    with pytest.raises(SystemExit) as ended:
        module.main()
    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (1, "") and re.match(named, output.err) and output.err.count("\n") == 1


@with_torch
def test_losses_that_are_no_finite_numbers_are_counted(tmp_path: Path) -> None:
    examples = ("--network", "alexnet", "--data", "made-up", "--examples", "4")
    make = (sys.executable, "-m", "collbench.workloads.dl.datasets", *examples)
    subprocess.run(make, cwd=tmp_path, check=True, timeout=300)
    script = """if True:
        from collbench.workloads.dl import train
        train.loss_of = lambda module, inputs, targets: module(inputs).sum() * float('inf')
        train.main()"""
    argv = (sys.executable, "-c", script, *ALEXNET, "--device", "cpu")
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert TRAIN.verify(case_of("train"), done.stdout) == json.loads(done.stdout)["nonfinite"] == 4, done.stderr


# Networks ------------------------------------------------------------------------------------------------------------

#: Names with the exact number of parameters, and the shapes of one example and of its target.
KNOWN = {
    "fcn5": (14_205_962, (784,), ()),
    "alexnet": (85_098, (3, 32, 32), ()),
    "resnet56": (855_050, (3, 32, 32), ()),
    "resnet50": (23_528_522, (3, 32, 32), ()),
    "lstm": (6_182_672, (32,), (32,)),
    "gpt2": (124_439_808, (1024,), (1024,)),
    "gpt-tiny": (2_081_536, (64,), (64,)),
}


@pytest.mark.torch
def test_what_networks_are_known_by() -> None:
    assert {name: (network.parameters, network.example, network.targets) for name, network in NETWORKS.items()} == KNOWN
    assert [network.name for network in NETWORKS.values()] == list(NETWORKS)
    assert [name for name, network in NETWORKS.items() if network.tokens] == [
        "lstm", "gpt2", "gpt-tiny"]  # fmt: skip
    assert [NETWORKS[name].classes for name in ("lstm", "gpt2", "gpt-tiny")] == [10_000, 50_257, 10_000]


@with_torch
@pytest.mark.parametrize("name", KNOWN)
def test_a_network_has_so_many_parameters_and_a_step_lowers_its_loss(name: str) -> None:
    import torch

    from collbench.workloads.dl.train import loss_of, module_of

    network = NETWORKS[name]
    torch.manual_seed(1)
    module = module_of(network)
    assert sum(parameter.numel() for parameter in module.parameters()) == network.parameters
    if network.tokens:
        inputs = torch.randint(network.classes, (8, *network.example))
    else:
        inputs = torch.rand((8, *network.example))
    targets = torch.randint(network.classes, (8, *network.targets))
    if name == "gpt2":  # of its context a part, or it would need 12 GB
        inputs, targets = inputs[:1, :32], targets[:1, :32]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.001)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss: Any = loss_of(module, inputs, targets)
        assert loss.shape == ()
        loss.backward()
        assert all(parameter.grad is not None for parameter in module.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
