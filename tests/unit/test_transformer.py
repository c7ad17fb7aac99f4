"""Transformers: their layers, what a training of them needs and shows, and the plan for GPUs."""

from __future__ import annotations

import math
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from tests.unit.made_files import case_of
from tests.unit.test_distributed import command, outputs
from tests.unit.test_placement import with_gpus

from collbench import workloads
from collbench.launch.expansion import expand
from collbench.registry import find_plan
from collbench.run.cases import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan, load_launch_plan
from collbench.workloads.dl.datasets import NETWORKS
from collbench.workloads.program import Program

TRAIN, DDP = workloads.get("train"), workloads.get("ddp")
GPTS = ("gpt2", "gpt-tiny")


def of_ranks(ranks: int, **parameters: Any) -> Case:
    (case,) = program_cases(Plan(benchmarks=({"name": "ddp", **parameters},)), ranks)
    return case.case


def works(program: Program, case: Case) -> dict[str, tuple[float, str, str]]:
    of_measures = {measure.name: measure.work(case) for measure in program.measures}
    return {name: (work.amount, work.unit, work.shown) for name, work in of_measures.items()}


def test_a_training_of_words_is_shown_in_tokens() -> None:
    assert works(TRAIN, case_of("train", network="gpt2")) == {
        "batch": (8 * 1024, "tokens", "rate"), "first": (4, "batches", "time")}  # fmt: skip
    assert works(TRAIN, case_of("train", network="lstm", batch=3))["batch"] == (3 * 32, "tokens", "rate")
    assert works(DDP, of_ranks(4, network="gpt-tiny")) == {
        "step": (4 * 16 * 64, "tokens", "rate"), "compute": (1, "steps", "time"), "communication": (1, "steps", "time"),
    }  # fmt: skip
    assert works(DDP, of_ranks(4, network="fcn5"))["step"] == (1, "steps", "time")


def test_memory_is_that_of_both_moments() -> None:
    """A training keeps weight, gradient and two moments; data-parallel there are two, with buckets, and messages."""
    network = NETWORKS["gpt-tiny"]
    layers = 16 * network.kib * 1024
    assert TRAIN.memory(case_of("train", network="gpt-tiny")) == 4 * 4 * network.parameters + layers
    assert DDP.memory(of_ranks(2, network="gpt-tiny")) == 2 * (11 * 4 * network.parameters + layers)
    assert DDP.memory(of_ranks(1, network="gpt2", device="cuda")) == 4 * NETWORKS["gpt2"].parameters


def test_the_plan_trains_on_gpus_beside_the_all_reduces_that_foretell_it() -> None:
    expanded = expand(load_launch_plan(find_plan("ddp-gpu"), "ddp-gpu"), lambda engine: with_gpus(1, 16, 4))
    assert {(cell.policy, cell.ranks) for cell in expanded.cells} == {
        (policy, ranks) for policy in ("host", "multi", "single") for ranks in (1, 2, 4)}  # fmt: skip
    for cases in expanded.expected.values():
        assert {(case["network"], case["device"]) for case in cases if case.workload == "ddp"} == {("gpt2", "cuda")}
        sizes = [case["size"] for case in cases if case["backend"] == "torch-nccl"]
        assert min(sizes) <= 1 << 20 and max(sizes) >= 4 * NETWORKS["gpt2"].classes * 768, "every message"


# With torch ----------------------------------------------------------------------------------------------------------

torch: Any = import_module("torch") if find_spec("torch") is not None else None


def with_torch(test: Any) -> Any:
    return pytest.mark.torch(pytest.mark.skipif(torch is None, reason="torch is not installed")(test))


def module_of(name: str) -> Any:
    from collbench.workloads.dl.train import module_of

    torch.manual_seed(1)
    return module_of(NETWORKS[name])


@with_torch
@pytest.mark.parametrize("name", GPTS)
def test_it_has_the_parameters_that_its_layers_have(name: str) -> None:
    """Of gpt2 without memory for them. The weights of the output are those of the embedding, and count once."""
    from collbench.workloads.dl.transformer import SIZES

    with torch.device("meta"):
        found = sum(parameter.numel() for parameter in module_of(name).parameters())
    network, (width, layers, _) = NETWORKS[name], SIZES[name]
    of_block = 12 * width**2 + 13 * width  # four matrices with biases, two normalisations
    of_words = (network.classes + network.example[0]) * width
    assert found == network.parameters == of_words + layers * of_block + 2 * width


@with_torch
def test_no_position_sees_a_later_word() -> None:
    module, network = module_of("gpt-tiny").eval(), NETWORKS["gpt-tiny"]
    words = torch.randint(network.classes, (2, *network.example))
    changed, at = words.clone(), 40
    changed[:, at] = (changed[:, at] + 1) % network.classes
    with torch.no_grad():
        before, after = module(words), module(changed)
    assert before.shape == (2, 64, network.classes)
    assert torch.equal(before[:, :at], after[:, :at])
    assert all((before[:, step] != after[:, step]).any() for step in range(at, 64))


@with_torch
def test_attention_is_softmax_of_scaled_products_with_what_came_before() -> None:
    from collbench.workloads.dl.transformer import Attention

    torch.manual_seed(1)
    layer, hidden = Attention(12, 3).double(), torch.rand(2, 5, 12, dtype=torch.float64)
    queries, keys, values = layer.inputs(hidden).split(12, -1)
    heads = []
    for one in range(3):
        query, key, value = (whole[..., 4 * one : 4 * one + 4] for whole in (queries, keys, values))
        products = (query @ key.transpose(1, 2) / math.sqrt(4)).masked_fill(~torch.ones(5, 5).tril().bool(), -math.inf)
        heads.append(products.softmax(-1) @ value)
    assert torch.allclose(layer(hidden), layer.output(torch.cat(heads, -1)))


@with_torch
def test_weights_are_drawn_as_those_of_gpt_2() -> None:
    module = module_of("gpt-tiny")
    block = module.blocks[0]
    drawn = {
        0.02: (module.embedding, block.attention.inputs, block.layers[0]), 0.01: (module.positions,),
        0.02 / math.sqrt(8): (block.attention.output, block.layers[2]),
    }  # fmt: skip
    for deviation, layers in drawn.items():
        for layer in layers:
            assert float(layer.weight.detach().std()) == pytest.approx(deviation, rel=0.05)
    vectors = {name: parameter for name, parameter in module.named_parameters() if name.endswith("bias")}
    assert vectors and not any(parameter.any() for parameter in vectors.values())


@with_torch
def test_it_is_trained_by_adamw_and_others_by_gradient_descent() -> None:
    from collbench.workloads.dl.train import optimizer_of

    module = module_of("gpt-tiny")
    optimizer = optimizer_of(module, NETWORKS["gpt-tiny"])
    (group,) = optimizer.param_groups
    assert (type(optimizer).__name__, group["weight_decay"], group["lr"]) == ("AdamW", 0.1, 1e-3)
    assert sum(parameter.numel() for parameter in group["params"]) == NETWORKS["gpt-tiny"].parameters
    assert type(optimizer_of(torch.nn.Linear(1, 1), NETWORKS["lstm"])).__name__ == "SGD"


@with_torch
@pytest.mark.slow
def test_ranks_reduce_every_gradient_and_come_to_the_same_loss_again() -> None:
    case = of_ranks(2, network="gpt-tiny", batch=2, threads=1)
    texts = [*outputs(command(case, 1)), *outputs(command(case, 1))]
    assert [DDP.verify(case, text) for text in texts] == [0] * 4
    ((*messages,),) = {tuple(DDP.messages(case, text)) for text in texts}
    assert sum(messages) == 4 * NETWORKS["gpt-tiny"].parameters
    (loss,) = {DDP.repeatable(case, text)["loss"] for text in texts}
    assert 5 < loss < math.log(10_000) + 0.5
