"""The networks that are trained: what they are known by, their parameters, and that they learn."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from collbench.workloads.dl.networks import NETWORKS

pytestmark = pytest.mark.torch

#: Names with the exact number of parameters, and the shapes of one example and of its target.
KNOWN = {
    "fcn5": (14_205_962, (784,), ()),
    "alexnet": (85_098, (3, 32, 32), ()),
    "resnet56": (855_050, (3, 32, 32), ()),
    "resnet50": (23_528_522, (3, 32, 32), ()),
    "lstm": (6_182_672, (32,), (32,)),
}


def test_they_are_listed_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from collbench.workloads.dl.networks import NETWORKS; "
        "from collbench.run.expand import program_cases; from collbench.schema.plan import Plan; "
        "asked = {'name': 'train', 'network': tuple(NETWORKS)}; "
        "print(len(program_cases(Plan(benchmarks=(asked,)), 1)))"
    )
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.returncode) == (f"{len(KNOWN)}\n", 0), done.stderr


def test_what_they_are_known_by() -> None:
    assert {name: (one.parameters, one.example, one.targets) for name, one in NETWORKS.items()} == KNOWN
    assert [one.name for one in NETWORKS.values()] == list(NETWORKS)
    assert [name for name, one in NETWORKS.items() if one.tokens] == ["lstm"]
    assert NETWORKS["lstm"].classes == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_it_has_so_many_parameters_and_a_step_lowers_its_loss(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    network = NETWORKS[name]
    torch.manual_seed(1)
    module = network.build()
    assert sum(parameter.numel() for parameter in module.parameters()) == network.parameters
    if network.tokens:
        inputs = torch.randint(network.classes, (8, *network.example))
    else:
        inputs = torch.rand((8, *network.example))
    targets = torch.randint(network.classes, (8, *network.targets))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.001)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss: Any = network.loss(module, inputs, targets)
        assert loss.shape == ()
        loss.backward()
        assert all(parameter.grad is not None for parameter in module.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
