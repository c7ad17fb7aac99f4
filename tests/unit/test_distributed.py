"""ddp and parameter_server: what is read of their output, and their programs in processes that find each other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT
from tests.unit.made_programs import printing, run_row

from collbench import workloads
from collbench.run.cases import program_cases
from collbench.schema.case import Case, case_of
from collbench.schema.plan import Plan
from collbench.schema.record import Work
from collbench.workloads.dl.datasets import NETWORKS, Examples
from collbench.workloads.dl.parameter_server import PLACES, WEIGHTS, length, shares

DDP, SERVERS = workloads.get("ddp"), workloads.get("parameter_server")
RANKS = 2


@pytest.fixture
def needs_torch() -> None:
    if find_spec("torch") is None:
        skip_or_fail("torch", "torch is not installed in this environment")


def in_torch(test: Any) -> Any:
    return pytest.mark.torch(pytest.mark.slow(pytest.mark.usefixtures("needs_torch")(test)))


Rank = tuple[int, str, str]


@contextmanager
def started(arguments: Sequence[str], ranks: int = RANKS, **variables: str) -> Iterator[list[subprocess.Popen[str]]]:
    """A Python for each rank, as `distributed` programs are started; all are gone in the end."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
    world = os.environ | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables}
    processes = [
        subprocess.Popen([sys.executable, *arguments], env=world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True) for rank in range(ranks)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ended(arguments: Sequence[str], ranks: int = RANKS, **variables: str) -> list[Rank]:
    """Exit code, output and the last line of standard error of every rank."""
    with started(arguments, ranks, **variables) as processes:
        texts = [process.communicate(timeout=LIMIT) for process in processes]
        codes = [process.returncode for process in processes]
    return [(code, out, (err.splitlines() or [""])[-1]) for code, (out, err) in zip(codes, texts, strict=True)]


def outputs(arguments: Sequence[str], ranks: int = RANKS) -> list[str]:
    """What every rank prints."""
    of_ranks = ended(arguments, ranks)
    assert [code for code, _, _ in of_ranks] == [0] * ranks, of_ranks
    return [out for _, out, _ in of_ranks]


# ddp -----------------------------------------------------------------------------------------------------------------

#: The program with `before(rank, number, replica)` called before each step of a training.
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

OF_DDP = {"ns": {"step": [5, 6], "compute": [3, 4], "communication": [1, 2]}, "messages": [8, 16], "loss": 2.30258512,
          "apart": 0, "nonfinite": 0, "notes": ["torch 2.13.0"]}  # fmt: skip


def of_ddp(**values: Any) -> Case:
    usual: dict[str, Any] = {
        "network": "alexnet",
        "batch": 2,
        "bucket": 25,
        "threads": 1,
        "device": "cpu",
        "ranks": RANKS,
    }
    return case_of("ddp", usual | values)


def command(case: Case, times: int, before: str = "") -> list[str]:
    """The arguments of Python."""
    _, option, module, *flags = DDP.argv(case, times)
    return ["-c", CHANGED.format(before=before), *flags] if before else [option, module, *flags]


def test_the_output_of_ddp_is_read() -> None:
    output = json.dumps(OF_DDP)
    seconds = {"step": [5e-9, 6e-9], "compute": [3e-9, 4e-9], "communication": [1e-9, 2e-9]}
    assert {name: pytest.approx(taken) for name, taken in DDP.parse(output).items()} == seconds
    assert [measure.name for measure in DDP.measures] == list(seconds)
    assert tuple(DDP.notes(output)) == ("torch 2.13.0",)
    assert tuple(DDP.messages(of_ddp(), output)) == (8, 16)
    assert DDP.repeatable(of_ddp(), output) == {"loss": 2.30259}
    for fields, wrong in (({}, 0), ({"apart": 1}, 1), ({"nonfinite": 2}, 2), ({"apart": 3}, 3)):
        assert DDP.verify(of_ddp(), json.dumps(OF_DDP | fields)) == wrong


def test_memory_of_ddp_is_that_of_all_ranks() -> None:
    alone = DDP.memory(of_ddp(ranks=1))
    assert alone > 4 * NETWORKS["alexnet"].parameters and DDP.memory(of_ddp(ranks=4)) == 4 * alone
    batch = DDP.memory(of_ddp(network="resnet50", batch=1 << 20))
    assert batch > 4 << 40, "what layers keep of two batches of a million images"
    assert DDP.memory(of_ddp(network="resnet50", batch=1 << 20, device="cuda")) == 2 * 4 * 23_528_522
    assert DDP.memory(of_ddp(batch=0)) == DDP.memory(of_ddp(batch=256))


@in_torch
def test_every_rank_has_times_and_the_same_messages_and_loss() -> None:
    case = of_ddp()
    texts = outputs(command(case, 3))
    for text in texts:
        assert {name: len(taken) for name, taken in DDP.parse(text).items()} == dict.fromkeys(OF_DDP["ns"], 3)  # type: ignore[call-overload]
        assert DDP.verify(case, text) == 0
        assert list(DDP.messages(case, text)) == [4 * NETWORKS["alexnet"].parameters]
    again = outputs(command(case, 1))
    assert len({json.dumps(dict(DDP.repeatable(case, text))) for text in (*texts, *again)}) == 1


@in_torch
def test_buckets_are_told_in_their_order() -> None:
    """One rank communicates with nobody."""
    case = of_ddp(network="resnet56", batch=1, bucket=1)
    first, second = (list(DDP.messages(case, text)) for text in outputs(command(case, 1)))
    assert first == second and len(first) > 2
    assert sum(first) == 4 * NETWORKS["resnet56"].parameters
    alone = of_ddp(ranks=1)
    assert [DDP.verify(alone, text) for text in outputs(command(alone, 1), 1)] == [0]


@in_torch
def test_parameters_that_differ_are_wrong_and_a_killed_rank_of_ddp_ends_the_others() -> None:
    """Before a step that it would have shared."""
    spoil = "def before(rank, number, replica):\n    replica.parameters[0].data[0] += rank * (number == 2)"
    assert [DDP.verify(of_ddp(), text) for text in outputs(command(of_ddp(), 1, spoil))] == [1, 1]
    kill = "def before(rank, number, replica):\n    rank and number == 8 and os.kill(os.getpid(), signal.SIGKILL)"
    (code, _, line), (killed, _, _) = ended(command(of_ddp(), 10**6, kill))
    assert (code, killed) == (1, -signal.SIGKILL)
    assert line.startswith("rank 0: ") and "peer" in line


@in_torch
def test_without_a_gpu_of_its_own_a_rank_skips_the_case() -> None:
    ((code, _, line),) = ended(command(of_ddp(device="cuda"), 1), 1)
    if code != 77:
        pytest.skip("there is a GPU")
    assert line.startswith("device=cuda: torch ") and line.endswith("device=cpu")


# parameter_server ----------------------------------------------------------------------------------------------------

#: What one process alone prints.
ALONE = {"ns": [5_000_000_000], "steps": [40], "applied": [], "bytes": [], "accuracy": 0.5, "loss": 1.23456789,
         "data": "made-up 60000 x 784", "curve": [[20, 2_000_000_000, 0.25], [40, 5_000_000_000, 0.5]]}  # fmt: skip

#: The figures of its curve.
CURVE = {"accuracy at step 20": 0.25, "seconds at step 20": 2.0, "accuracy at step 40": 0.5, "seconds at step 40": 5.0}

#: Two servers and two workers.
SHARED = ALONE | {"steps": [25, 15], "applied": [40, 40], "bytes": [440, 317_600]}

#: The program on a rank that is killed when it calls something for the fifth time.
KILLED = """
import os, signal, sys
import torch.distributed as dist
from collbench.workloads.dl.parameter_server import MnistNetwork, main

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


def plan(**values: Any) -> Plan:
    return Plan(benchmarks=({"name": "parameter_server", "steps": 40} | values,), warmup=0, iters=1)


def of_servers(ranks: int = 1, **values: Any) -> Case:
    (case,) = program_cases(plan(**values), ranks)
    return case.case


@pytest.mark.parametrize(("servers", "shard", "weights"), [
    (1, "variable", [79_510]), (2, "variable", [110, 79_400]), (3, "variable", [1_000, 78_410, 100]),
    (4, "variable", [10, 78_400, 100, 1_000]), (1, "even", [79_510]), (2, "even", [39_755, 39_755]),
    (3, "even", [26_503, 26_503, 26_504])
])  # fmt: skip
def test_a_server_holds_whole_variables_in_turn_or_an_even_part(servers: int, shard: str, weights: list[int]) -> None:
    held_by = shares(servers, shard)
    assert [length(share) for share in held_by] == weights
    held = sorted(number for share in held_by for part in share for number in range(part.start, part.stop))
    assert held == list(range(WEIGHTS))
    if shard == "variable":
        assert {(part.start, part.stop) for share in held_by for part in share} == {(p.start, p.stop) for p in PLACES}


def test_a_case_of_servers_has_a_worker_and_its_command_names_every_parameter() -> None:
    """Workers with their images need memory."""
    assert (of_servers()["servers"], of_servers(2, servers=1)["ranks"]) == (0, 2)
    assert of_servers(7, servers=4)["servers"] == 4
    words = list(SERVERS.argv(of_servers(3, servers=2, shard="even", seed=7, threads=2), 1))
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        "--servers": "2", "--shard": "even", "--steps": "40", "--data": "made-up", "--seed": "7", "--threads": "2",
    }  # fmt: skip
    (few,), (many,) = (program_cases(plan(servers=1), ranks) for ranks in (2, 9))
    assert many.memory == 8 * few.memory > 8 * 60_000 * 784


def test_a_sample_is_the_time_of_all_steps() -> None:
    case, output = of_servers(4, servers=2), json.dumps(SHARED)
    assert SERVERS.parse(output) == {"steps": [5.0]}
    assert SERVERS.figures(case, output) == CURVE | {"accuracy": 0.5, "steps of worker 0": 25, "steps of worker 1": 15,
                                             "bytes of server 0": 440, "bytes of server 1": 317_600}  # fmt: skip
    assert "made-up 60000 x 784" in SERVERS.notes(output)[0]
    assert SERVERS.measures[0].work(case).amount == 40
    for fields, wrong in (({}, 0), ({"steps": [25, 14]}, 1), ({"steps": [25, 17]}, 2), ({"applied": [40, 39]}, 1),
                          ({"applied": [42, 40]}, 2)):  # fmt: skip
        assert SERVERS.verify(case, json.dumps(SHARED | fields)) == wrong, "steps that do not add up"


def test_the_loss_can_be_repeated_with_one_worker_only() -> None:
    assert SERVERS.repeatable(of_servers(), json.dumps(ALONE)) == {"loss": 1.23457}
    assert SERVERS.repeatable(of_servers(4, servers=2), json.dumps(SHARED)) == {}
    assert SERVERS.figures(of_servers(), json.dumps(ALONE)) == CURVE | {"accuracy": 0.5}


@pytest.mark.parametrize(("fields", "reason"), [({}, None), ({"steps": [39]}, r" 1 wrong value$"),
                                                ({"loss": float("nan")}, r": loss .* nan$"),
                                                ({"ns": []}, r" 0 .* steps; .* 1$")])  # fmt: skip
def test_what_is_printed_becomes_a_record_unless_it_is_spoilt(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any],
                                                              reason: str | None) -> None:  # fmt: skip
    """Of a program that prints this at once, without the seconds that it says it took."""
    row = replace(SERVERS, argv=printing(json.dumps(ALONE | fields)), software=(), elapsed=lambda *_: 0.0)
    ((record, samples),) = run_row(monkeypatch, row, plan())
    if reason is None:
        assert record.status == "ok" and samples.tolist() == [[5_000_000_000]]
        assert record.work == Work(amount=40, unit="steps", shown="time")
    else:
        assert record.status == "failed" and re.search(reason, str(record.reason))


def serving(ranks: int, **values: Any) -> list[str]:
    """The arguments of Python."""
    return list(SERVERS.argv(of_servers(ranks, **values), 1))[1:]


def printed(ranks: int, **values: Any) -> dict[str, Any]:
    """What every rank printed."""
    first, *others = (json.loads(text) for text in outputs(serving(ranks, **values), ranks))
    assert all(other == first for other in others)
    return dict(first)


@in_torch
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


@in_torch
def test_real_images_are_shuffled_and_a_twelfth_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.workloads.dl import parameter_server as examples

    rows = np.zeros((1200, 785), np.uint8)
    rows[:, 0] = rows[:, -1] = np.repeat(np.arange(10), 120)
    source = SimpleNamespace(read=lambda network, images: Examples(rows, "ten digits"))
    monkeypatch.setattr(examples, "SOURCES", {"digits": source})
    images = examples.examples("digits", 1)
    pixels, labels = images.held_out()
    assert images.label == "ten digits" and pixels.shape == (100, 784)
    assert (pixels[:, 0] * 255).round().int().tolist() == labels.tolist()
    assert len(set(labels.tolist())) > 5
    batches = images.batches(1)
    assert [len(next(batches)[1]) for _ in range(11)] == [100] * 11, "1200, without those that are held out"


@in_torch
def test_data_that_cannot_be_had_ends_the_program_with_the_reason() -> None:
    arguments = [word.replace("made-up", "mnist") for word in serving(1)]
    ((code, out, line),) = ended(arguments, 1, COLLBENCH_DATA="/no/such")
    assert (code, out) == (1, "")
    assert line.startswith("data=mnist: ") and "/no/such" in line


@in_torch
@pytest.mark.parametrize(("servers", "workers", "shard", "held"), [
    (1, 1, "variable", [318_040]), (2, 1, "variable", [440, 317_600]), (2, 2, "even", [159_020, 159_020])
])  # fmt: skip
def test_every_step_is_taken_once(servers: int, workers: int, shard: str, held: list[int]) -> None:
    result = printed(servers + workers, servers=servers, shard=shard)
    assert sum(result["steps"]) == 40 and len(result["steps"]) == workers
    assert (result["applied"], result["bytes"]) == ([40] * servers, held)
    assert result["ns"][0] > 0 and result["accuracy"] >= 0.05
    marks, times, right = zip(*result["curve"], strict=True)
    assert (marks, times[-1], right[-1]) == (tuple(range(4, 41, 4)), result["ns"][0], result["accuracy"])
    assert sorted(times) == list(times) and len(set(right)) > 1


@in_torch
def test_one_worker_learns_what_one_process_does_wherever_the_weights_are() -> None:
    alone = printed(1)
    for shared in (printed(2, servers=1), printed(3, servers=2, shard="even")):
        assert shared["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert alone["steps"] == [40] and alone["loss"] < 2.0 and alone["accuracy"] > 0.3


@in_torch
@pytest.mark.parametrize(("rank", "what", "last_lines"), [
    (2, "MnistNetwork.learn", {0: r"server 0 \(rank 0\): worker 1 \(rank 2\) ended", 1: r"worker 0 \(rank 1\) lost"}),
    (0, "dist.recv", {1: r"worker 0 \(rank 1\) lost", 2: r"worker 1 \(rank 2\) lost"}),
])  # fmt: skip
def test_a_rank_that_is_killed_ends_all(rank: int, what: str, last_lines: dict[int, str]) -> None:
    flags = serving(3, servers=1, steps=100_000_000)[2:]
    of_ranks = ended(["-c", KILLED.format(rank=rank, what=what), *flags], 3)
    assert of_ranks[rank][0] == -signal.SIGKILL
    for other, start in last_lines.items():
        code, out, line = of_ranks[other]
        assert (code, out) == (1, "") and re.match(start, line), line
