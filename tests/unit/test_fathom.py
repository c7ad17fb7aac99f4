"""fathom: its cases and what its output becomes; its networks in torch, their sizes, a step of each, their oddities."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row

from collbench import workloads
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.workloads import software
from collbench.workloads.dl import fathom
from collbench.workloads.dl.fathom import NETWORKS

FATHOM = workloads.get("fathom")

#: Of four steps.
OUTPUT = {
    "ns": [9_000, 1_000, 2_000, 3_000],
    "losses": [4.0, 3.0, 2.5, 2.0],
    "loss": {"loss of step 3": 2.5},
    "repeatable": True,
    "notes": ["made-up data"],
}


def cases_of(**values: Any) -> tuple[Case, ...]:
    return tuple(planned.case for planned in program_cases(Plan(benchmarks=({"name": "fathom", **values},)), 1))


def recorded(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Record:
    """The record of a program that prints this."""
    monkeypatch.setattr(software.Torch, "missing", lambda self: None)
    row = replace(FATHOM, argv=printing(json.dumps(OUTPUT | changed)))
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": "fathom"}))
    return record


def test_steps_become_a_record_with_the_loss_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    record = recorded(monkeypatch)
    assert record.status == "ok" and record.seconds is not None and record.work is not None
    assert record.seconds.p50 == pytest.approx(2e-6)
    assert (record.work.amount, record.work.unit, record.work.shown) == (1, "steps", "time")
    assert record.check is not None
    assert record.check.figures == record.check.repeatable == {"loss of step 3": 2.5}
    assert record.notes[-1] == "made-up data"


def test_a_loss_that_differs_each_time_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    check = recorded(monkeypatch, repeatable=False).check
    assert check is not None and (check.figures, check.repeatable) == ({"loss of step 3": 2.5}, {})


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_each_loss_that_is_no_number_is_a_wrong_result(monkeypatch: pytest.MonkeyPatch, loss: float) -> None:
    record = recorded(monkeypatch, losses=[4.0, 3.0, loss, loss])
    assert record.status == "failed"
    assert record.check is not None and record.check.wrong == 2


def test_the_command_names_everything_that_was_asked_for() -> None:
    (case,) = cases_of(network="speech-recurrent", batch=4, device="cuda", threads=3)
    assert tuple(FATHOM.argv(case, 7)) == (
        sys.executable, "-m", "collbench.workloads.dl.fathom", "--network", "speech-recurrent", "--batch", "4",
        "--device", "cuda", "--threads", "3", "--times", "7",
    )  # fmt: skip
    assert (case.what, case.how) == ({"network": "speech-recurrent", "batch": 4}, {"device": "cuda", "threads": 3})


def test_all_networks_have_one_name() -> None:
    assert [case["network"] for case in cases_of(network="all")] == list(NETWORKS)
    assert len(NETWORKS) == 9


def test_what_takes_minutes_on_a_processor_has_a_smaller_batch_there() -> None:
    usual = {name: (size.usual("cpu"), size.usual("cuda")) for name, size in NETWORKS.items()}
    assert usual["residual"] == (1, 16) and usual["vgg"] == (1, 8) and usual["alexnet"] == (64, 64)
    assert all(on_gpu == NETWORKS[name].batch for name, (_, on_gpu) in usual.items())


def test_memory_grows_with_the_batch_and_stays_on_the_gpu() -> None:
    variants: tuple[dict[str, Any], ...] = ({}, {"batch": 64}, {"device": "cuda"})
    usual, large, on_gpu = (FATHOM.memory(*cases_of(network="vgg", **values)) for values in variants)
    assert on_gpu == 4 * NETWORKS["vgg"].parameters
    assert usual > 4 * on_gpu
    assert large - usual == 63 * NETWORKS["vgg"].activations


def test_without_torch_it_is_skipped_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: None)
    assert str(FATHOM.missing()).endswith("pip install torch")
    assert FATHOM.libraries() == ()
    ((record, _),) = run_row(monkeypatch, FATHOM, replace_benchmark(PLAN, {"name": "fathom"}))
    assert (record.status, record.reason) == ("skipped", FATHOM.missing())


def test_every_network_is_defined() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from collbench.workloads.dl import fathom_networks, fathom_sequences

    assert fathom_networks.NETWORKS.keys() | fathom_sequences.NETWORKS.keys() == NETWORKS.keys()


# Networks ------------------------------------------------------------------------------------------------------------

#: Forward, in GFLOP a sample, as products and convolutions count: 2 for a multiplication with its addition.
GFLOP = {
    "seq2seq": 0.367, "memnet": 3.2e-6, "speech": 6.85, "speech-recurrent": 19.99, "autoenc": 0.00094, "residual": 32.4,
    "vgg": 27.2, "alexnet": 1.43, "deepq": 2 * 0.0187,  # and its target network
}  # fmt: skip

#: Samples of a step here.
TINY = {"memnet": 4, "autoenc": 4, "deepq": 4, "seq2seq": 2}


@pytest.fixture
def one_thread() -> None:
    """Of a busy machine several would wait for each other at every operation."""
    if importlib.util.find_spec("torch") is None:
        skip_or_fail("torch", "torch is not installed in this environment")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)


def in_torch(test: Any) -> Any:
    return pytest.mark.torch(pytest.mark.slow(pytest.mark.usefixtures("one_thread")(test)))


def flags(network: str, times: int = 2, **values: Any) -> argparse.Namespace:
    usual = {"network": network, "batch": TINY.get(network, 1), "device": "cpu", "threads": 1, "times": times}
    return argparse.Namespace(**usual | values)


def batch_of(network: Any, size: int) -> Any:
    import torch

    return network.batch(size, torch.Generator().manual_seed(1))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer frames of speech."""
    monkeypatch.setattr("collbench.workloads.dl.fathom_sequences.FRAMES", 80)


@in_torch
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_at_a_tiny_batch_gives_the_same_loss_twice(short: None, name: str) -> None:
    first, again = (fathom.run(flags(name)) for _ in range(2))
    assert all(map(math.isfinite, first["losses"])) and min(first["ns"]) > 0
    assert first["loss"] == again["loss"] and list(first["loss"]) == ["loss of step 2"]
    assert first["repeatable"]
    assert (first["losses"][0] != first["losses"][1]) or name == "speech"


@in_torch
@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_flop_are_those_of_the_original_and_all_are_trained(name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    network, size = fathom.made(name), TINY.get(name, 1)
    trained = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    assert trained == NETWORKS[name].parameters
    batch = batch_of(network, size)
    with FlopCounterMode(display=False) as counter:
        loss: Any = network.loss(*batch)
    assert counter.get_total_flops() / size / 1e9 == pytest.approx(GFLOP[name], rel=0.01)
    loss.backward()
    lacking = [key for key, one in network.named_parameters() if one.requires_grad and one.grad is None]
    assert lacking == []


@in_torch
def test_the_loss_that_is_compared_is_of_an_early_step_to_six_digits() -> None:
    assert fathom.compared([1.0, 2.0, 3.123456789, 4.0]) == {"loss of step 3": 3.12346}
    assert fathom.compared([7.0]) == {"loss of step 1": 7.0}


@in_torch
def test_speech_as_it_runs_learns_nothing() -> None:
    """Its loss is ln 62 for each label, of as many frames as labels."""
    network: Any = fathom.made("speech")
    batch = batch_of(network, 3)
    loss = network.loss(*batch)
    assert loss.item() == pytest.approx(int(batch[2].sum()) * math.log(62), rel=1e-5)
    loss.backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in network.parameters())


@in_torch
@pytest.mark.parametrize("changed", [0, 5])
def test_the_recurrent_layer_looks_back_and_ahead(changed: int) -> None:
    """A change of the first or the last frame reaches all."""
    import torch

    network: Any = fathom.made("speech-recurrent")
    frames = torch.randn(1, 6, 26)
    with torch.no_grad():
        before = network.features(frames)
        frames[0, changed] += 1.0
        after = network.features(frames)
    assert (before != after).any(2).all()


@in_torch
@pytest.mark.parametrize("kept", [True, False])
def test_a_step_moves_weights_by_gradients_as_they_were_changed(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    network: Any = fathom.made("memnet")
    if not kept:
        monkeypatch.setattr(network, "change_gradients", lambda: [one.grad.zero_() for one in network.parameters()])
    before = [one.detach().clone() for one in network.parameters()]
    fathom.step(network, network.optimizer(), batch_of(network, 4), "cpu")
    assert [not torch.equal(*both) for both in zip(before, network.parameters(), strict=True)] == [kept] * len(before)


@in_torch
def test_gradients_of_one_step_do_not_reach_the_next() -> None:
    network: Any = fathom.made("deepq")
    optimizer, batch = network.optimizer(), batch_of(network, 4)
    fathom.step(network, optimizer, batch, "cpu")
    for parameter in network.rating.parameters():
        parameter.grad.fill_(math.nan)
    fathom.step(network, optimizer, batch, "cpu")
    assert math.isfinite(fathom.step(network, optimizer, batch, "cpu"))


@in_torch
def test_gradients_of_memnet_are_clipped_and_disturbed() -> None:
    import torch

    network: Any = fathom.made("memnet")
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    network.change_gradients()
    for parameter in network.parameters():
        assert parameter.grad.norm() == pytest.approx(40.0, rel=0.05)
        assert parameter.grad.std() > 0
    assert not network.story_words.grad[0].any() and not network.question_words.grad[0].any()


@in_torch
def test_vgg_has_twelve_convolutions_and_logits_above_zero() -> None:
    import torch
    from torch import nn

    with torch.device("meta"):  # without weights
        networks: dict[str, Any] = {name: fathom.made(name) for name in ("vgg", "residual", "alexnet")}
    kinds = {name: [type(module) for module in network.modules()] for name, network in networks.items()}
    assert [kinds[name].count(nn.Conv2d) for name in networks] == [12, 41, 5]
    assert [kinds[name].count(nn.Dropout) for name in networks] == [2, 0, 0]
    assert networks["vgg"].layers[-1][-1](torch.tensor(-1.0)) == 0


@in_torch
def test_residual_stays_at_56_by_56_without_normalization() -> None:
    import torch
    from torch import nn

    network: Any = fathom.made("residual")
    sides = set[int]()
    for module in network.layers[5:-3]:
        module.register_forward_hook(lambda module, inputs, output: sides.add(output.shape[-1]))
    with torch.no_grad():
        network.loss(*batch_of(network, 1))
    assert sides == {56}
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


@in_torch
def test_ratings_below_zero_count_as_zero() -> None:
    import torch
    from torch import nn

    network: Any = fathom.made("deepq")
    seen, after, actions, _, _ = batch_of(network, 4)
    nn.init.constant_(network.rating[-1].bias, -5.0)
    ends, rewards = torch.ones(4), torch.full((4,), 3.0)
    assert network.loss(seen, after, actions, ends, rewards).item() == pytest.approx(4 * (3.0 - 0.5))


@in_torch
def test_sentences_are_in_the_bucket_that_holds_them() -> None:
    import torch

    from collbench.workloads.dl import fathom_sequences as seq2seq

    network: Any = fathom.made("seq2seq")
    source, fed, wanted, weights = batch_of(network, 3)
    assert (source.shape, fed.shape) == ((40, 3), (50, 3))
    assert source[:3].eq(seq2seq.PAD).all() and source[3:].ne(seq2seq.PAD).all()  # reversed
    assert fed[1:45].equal(wanted[:44]) and wanted[43].eq(seq2seq.END).all()
    assert weights.sum(0).tolist() == [44.0] * 3
    network.pair = tuple(torch.full((words,), 9) for words in (4, 8))
    assert batch_of(network, 1)[1].shape == (10, 1)


@in_torch
def test_samples_are_as_likely_as_the_correction_says() -> None:
    from collbench.workloads.dl import fathom_sequences as sampled_softmax

    assert sampled_softmax.chances(40_000).sum().item() == pytest.approx(1.0)
    assert sampled_softmax.expected(40_000).exp().sum().item() == pytest.approx(sampled_softmax.SAMPLES, rel=0.01)


@in_torch
def test_the_program_prints_what_the_benchmark_reads() -> None:
    ((case,),) = [program_cases(Plan(benchmarks=({"name": "fathom", "network": "memnet", "threads": 1},)), 1)]
    program = workloads.get("fathom")
    argv = program.argv(case.case, 4)
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=LIMIT).stdout
    assert len(program.parse(output)["step"]) == 4
    assert program.verify(case.case, output) == 0
    assert program.repeatable(case.case, output) == program.figures(case.case, output) == json.loads(output)["loss"]
    (note,) = program.notes(output)
    assert note.endswith("batches of 32, 1 thread")


@in_torch
def test_a_smaller_batch_than_the_originals_is_told() -> None:
    _, note = fathom.notes(flags("vgg", batch=0))
    assert re.match(r"vgg .* 1, .* 8 ", note)
    assert len(fathom.notes(flags("vgg", batch=1))) == len(fathom.notes(flags("vgg", batch=0, device="cuda"))) == 1
