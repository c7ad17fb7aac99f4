"""ddp: what its workload reads of the output, and the program itself in processes that find each other."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
from tests.processes import LIMIT

from collbench import workloads
from collbench.schema.case import Case, case_of
from collbench.workloads.dl.networks import NETWORKS

RANKS = 2
PROGRAM = ("-m", "collbench.workloads.dl.ddp")

#: The program with `before(rank, number)` called before each step of a training.
CHANGED = """
import os, signal
from collbench.workloads.dl import ddp
from collbench.workloads.dl.ddp import Replica
step, numbers = Replica.step, []
def changed(replica):
    numbers.append(len(numbers))
    before(int(os.environ["RANK"]), numbers[-1], replica)
    step(replica)
Replica.step = changed
{before}
ddp.main()
"""


def case(**values: Any) -> Case:
    usual: dict[str, Any] = {
        "network": "alexnet",
        "batch": 2,
        "bucket": 25,
        "threads": 1,
        "device": "cpu",
        "ranks": RANKS,
    }
    return case_of("ddp", usual | values)


def output(**values: Any) -> str:
    taken = {"step": [5, 6], "compute": [3, 4], "communication": [1, 2]}
    return json.dumps(
        {"ns": taken, "messages": [8, 16], "loss": 2.30258512, "apart": 0, "nonfinite": 0, "notes": ["torch 2.13.0"]}
        | values
    )


@contextmanager
def started(arguments: Sequence[str], ranks: int = RANKS) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each rank, as `distributed` programs are started; all are gone in the end."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    found = [
        subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.communicate()


def flags(asked: Case, times: int) -> list[str]:
    """What follows the module's name on the command line."""
    return list(workloads.get("ddp").argv(asked, times))[1 + len(PROGRAM) :]


def printed(asked: Case, times: int = 2, program: Sequence[str] = PROGRAM, ranks: int = RANKS) -> list[str]:
    """What every rank prints."""
    with started([*program, *flags(asked, times)], ranks) as processes:
        outputs = [process.communicate(timeout=LIMIT) for process in processes]
        assert [process.returncode for process in processes] == [0] * ranks, outputs
    return [text for text, _ in outputs]


def changed(before: str) -> tuple[str, str]:
    return ("-c", CHANGED.format(before=before))


def test_the_output_is_read() -> None:
    row = workloads.get("ddp")
    found = {"step": [5e-9, 6e-9], "compute": [3e-9, 4e-9], "communication": [1e-9, 2e-9]}
    assert {name: pytest.approx(seconds) for name, seconds in row.parse(output()).items()} == found
    assert [measure.name for measure in row.measures] == ["step", "compute", "communication"]
    assert row.verify(case(), output()) == 0
    assert tuple(row.notes(output())) == ("torch 2.13.0",)
    assert tuple(row.messages(case(), output())) == (8, 16)
    assert row.repeatable(case(), output()) == {"loss": 2.30259}


@pytest.mark.parametrize(("said", "wrong"), [({"apart": 1}, 1), ({"nonfinite": 2}, 2), ({"apart": 3}, 3)])
def test_ranks_apart_and_a_loss_that_is_no_number_are_wrong(said: dict[str, Any], wrong: int) -> None:
    assert workloads.get("ddp").verify(case(), output(**said)) == wrong


def test_memory_is_that_of_all_ranks() -> None:
    row = workloads.get("ddp")
    one = row.memory(case(ranks=1))
    assert one > 4 * NETWORKS["alexnet"].parameters and row.memory(case(ranks=4)) == 4 * one
    batch = row.memory(case(ranks=2, network="resnet50", batch=1 << 20))
    assert batch > 4 << 40, "what layers keep of two batches of a million images"
    assert row.memory(case(ranks=2, network="resnet50", batch=1 << 20, device="cuda")) == 2 * 4 * 23_528_522
    assert row.memory(case(batch=0)) == row.memory(case(batch=256))


@pytest.mark.torch
@pytest.mark.slow
class TestProcesses:
    """Ranks that train."""

    def test_every_rank_has_times_and_the_same_messages_and_loss(self) -> None:
        row, asked = workloads.get("ddp"), case()
        texts = printed(asked, times=3)
        for text in texts:
            assert {name: len(taken) for name, taken in row.parse(text).items()} == dict.fromkeys(
                row.parse(output()), 3
            )
            assert row.verify(asked, text) == 0
            assert list(row.messages(asked, text)) == [4 * NETWORKS["alexnet"].parameters]
        losses = {json.dumps(dict(row.repeatable(asked, text))) for text in [*texts, *printed(asked, times=1)]}
        assert len(losses) == 1

    def test_buckets_are_told_in_their_order(self) -> None:
        asked = case(network="resnet56", batch=1, bucket=1)
        first, second = (list(workloads.get("ddp").messages(asked, text)) for text in printed(asked, times=1))
        assert first == second and len(first) > 2
        assert sum(first) == 4 * NETWORKS["resnet56"].parameters

    def test_parameters_that_differ_are_wrong(self) -> None:
        spoil = "def before(rank, number, replica):\n    replica.parameters[0].data[0] += rank * (number == 2)"
        asked = case()
        assert [workloads.get("ddp").verify(asked, text) for text in printed(asked, 1, changed(spoil))] == [1, 1]

    def test_a_killed_rank_ends_the_others(self) -> None:
        """Before a step that it would have shared."""
        kill = "def before(rank, number, replica):\n    rank and number == 8 and os.kill(os.getpid(), signal.SIGKILL)"
        with started([*changed(kill), *flags(case(), 10**6)]) as (survivor, killed):
            _, said = survivor.communicate(timeout=LIMIT)
            assert survivor.returncode == 1 and killed.wait(LIMIT) == -signal.SIGKILL
        assert said.splitlines()[-1].startswith("rank 0: ") and "peer" in said.splitlines()[-1]

    def test_one_rank_communicates_with_nobody(self) -> None:
        (text,) = printed(case(ranks=1), times=1, ranks=1)
        assert workloads.get("ddp").verify(case(ranks=1), text) == 0


@pytest.mark.torch
@pytest.mark.slow
def test_without_a_gpu_of_its_own_a_rank_skips_the_case() -> None:
    with started([*PROGRAM, *flags(case(device="cuda"), 1)], ranks=1) as (process,):
        _, said = process.communicate(timeout=LIMIT)
    if process.returncode != 77:
        pytest.skip("there is a GPU")
    assert said.splitlines()[-1].startswith("device=cuda: torch ") and said.endswith("; use device=cpu\n")


def test_it_is_skipped_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else find_spec(name))
    assert "torch" in str(workloads.get("ddp").missing())
