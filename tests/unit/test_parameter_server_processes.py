"""parameter_server with real processes: it ends with the right counts, learns, and ends at once when one is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT

from collbench import workloads
from collbench.run.expand import program_cases
from collbench.schema.plan import Plan
from collbench.workloads.dl.datasets import Examples

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: The program on a rank that is killed when it calls something for the fifth time.
KILLED = """
import os, signal, sys
import torch.distributed as dist
from collbench.workloads.dl.parameter_server import Network, main

def mortal(call):
    calls = []
    def called(*arguments, **named):
        calls.append(None)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return called

if os.environ["RANK"] == "{rank}":
    {what} = mortal({what})
main()
"""


@pytest.fixture(autouse=True)
def needs_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        skip_or_fail("torch", "torch is not installed in this environment")


def command(ranks: int, **values: Any) -> list[str]:
    """The arguments of Python."""
    benchmark = {"name": "parameter_server", "steps": 40} | values
    (case,) = program_cases(Plan(benchmarks=(benchmark,)), ranks)
    return list(workloads.get("parameter_server").argv(case.case, 1))[1:]


def started(arguments: list[str], ranks: int, **variables: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables}
    return [
        subprocess.Popen(
            [sys.executable, *arguments], env=os.environ | world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def said(ranks: int, **values: Any) -> dict[str, Any]:
    """What every rank printed."""
    ended = [process.communicate(timeout=LIMIT) for process in started(command(ranks, **values), ranks)]
    assert all(out for out, _ in ended), [err for _, err in ended]
    found = [json.loads(out) for out, _ in ended]
    assert all(one == found[0] for one in found)
    return dict(found[0])


def test_adam_is_that_of_torch() -> None:
    import torch

    from collbench.workloads.dl.parameter_server import RATE, Adam

    random = torch.Generator().manual_seed(1)
    weights = torch.rand(100, generator=random)
    other, gradient = weights.clone(), torch.zeros(100)
    other.grad = gradient
    ours, theirs = Adam(weights, gradient), torch.optim.Adam([other], lr=RATE)
    for _ in range(20):
        gradient.copy_(torch.randn(100, generator=random))
        ours.step()
        theirs.step()
    assert torch.allclose(weights, other, rtol=1e-5, atol=1e-6)


def test_real_images_are_shuffled_and_a_twelfth_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.workloads.dl import parameter_server as examples

    rows = np.zeros((1200, 785), np.uint8)
    rows[:, 0] = rows[:, -1] = np.repeat(np.arange(10), 120)
    source = SimpleNamespace(read=lambda network, images: Examples(rows, "ten digits"))
    monkeypatch.setattr(examples, "SOURCES", {"digits": source})
    found = examples.examples("digits", 1)
    pixels, labels = found.held_out()
    assert found.label == "ten digits" and pixels.shape == (100, 784)
    assert (pixels[:, 0] * 255).round().int().tolist() == labels.tolist()
    assert len(set(labels.tolist())) > 5
    batches = found.batches(1)
    epoch = [next(batches)[1] for _ in range(11)]
    assert [len(labels) for labels in epoch] == [100] * 11
    assert sum(len(labels) for labels in epoch) + 100 == 1200


def test_data_that_cannot_be_had_ends_the_program_with_the_reason() -> None:
    (process,) = started([word.replace("made-up", "mnist") for word in command(1)], 1, COLLBENCH_DATA="/no/such")
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1].startswith("data=mnist: ") and "/no/such" in err


@pytest.mark.parametrize(
    ("servers", "workers", "shard", "held"),
    [
        (1, 1, "variable", [318_040]),
        (2, 1, "variable", [440, 317_600]),
        (2, 2, "even", [159_020, 159_020]),
    ],
)
def test_every_step_is_taken_once(servers: int, workers: int, shard: str, held: list[int]) -> None:
    found = said(servers + workers, servers=servers, shard=shard)
    assert sum(found["steps"]) == 40 and len(found["steps"]) == workers
    assert found["applied"] == [40] * servers
    assert found["bytes"] == held
    assert found["ns"][0] > 0 and found["accuracy"] >= 0.05


def test_one_worker_learns_what_one_process_does_wherever_the_weights_are() -> None:
    alone, one, two = said(1), said(2, servers=1), said(3, servers=2, shard="even")
    assert one["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert two["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert alone["steps"] == [40] and alone["loss"] < 2.0 and alone["accuracy"] > 0.3


@pytest.mark.parametrize(
    ("rank", "what", "told"),
    [
        (2, "Network.learn", {0: "server 0 (rank 0): worker 1 (rank 2) ended before its last step",
                              1: "worker 0 (rank 1) lost another rank"}),
        (0, "dist.recv", {1: "worker 0 (rank 1) lost another rank", 2: "worker 1 (rank 2) lost another rank"}),
    ],
)  # fmt: skip
def test_a_rank_that_is_killed_ends_all(rank: int, what: str, told: dict[int, str]) -> None:
    flags = command(3, servers=1, steps=100_000_000)[2:]
    processes = started(["-c", KILLED.format(rank=rank, what=what), *flags], 3)
    ended = [process.communicate(timeout=LIMIT) for process in processes]
    assert processes[rank].returncode == -signal.SIGKILL
    for other, reason in told.items():
        out, err = ended[other]
        assert (processes[other].returncode, out) == (1, "")
        assert err.splitlines()[-1].startswith(reason), err
