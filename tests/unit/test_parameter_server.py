"""parameter_server: what it refuses, how weights are shared between servers, and what a right result is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.made_programs import printing, run_row

from collbench import workloads
from collbench.errors import PlanError
from collbench.run.expand import program_cases
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from collbench.schema.record import Work
from collbench.workloads.dl.parameter_server import PLACES, WEIGHTS, length, shares
from collbench.workloads.program import Program

#: What one process alone prints.
ALONE = {"ns": [5_000_000_000], "steps": [40], "applied": [], "bytes": [], "accuracy": 0.5, "loss": 1.23456789,
         "data": "made-up 60000 x 784"}  # fmt: skip

#: Two servers and two workers.
SHARED = ALONE | {"steps": [25, 15], "applied": [40, 40], "bytes": [440, 317_600]}


def plan(**values: Any) -> Plan:
    return Plan(benchmarks=({"name": "parameter_server", "steps": 40} | values,), warmup=0, iters=1)


def case(ranks: int = 1, **values: Any) -> Case:
    (found,) = program_cases(plan(**values), ranks)
    return found.case


@pytest.mark.parametrize(
    ("servers", "shard", "weights"),
    [
        (1, "variable", [79_510]), (2, "variable", [110, 79_400]), (3, "variable", [1_000, 78_410, 100]),
        (4, "variable", [10, 78_400, 100, 1_000]), (1, "even", [79_510]), (2, "even", [39_755, 39_755]),
        (3, "even", [26_503, 26_503, 26_504]),
    ],
)  # fmt: skip
def test_a_server_holds_whole_variables_in_turn_or_an_even_part(servers: int, shard: str, weights: list[int]) -> None:
    found = shares(servers, shard)
    assert [length(share) for share in found] == weights
    held = sorted(number for share in found for part in share for number in range(part.start, part.stop))
    assert held == list(range(WEIGHTS))
    if shard == "variable":
        assert {(part.start, part.stop) for share in found for part in share} == {(p.start, p.stop) for p in PLACES}


@pytest.mark.parametrize(
    ("ranks", "servers", "message"),
    [
        (1, 1, "servers=1 leave no worker among 1 rank; start 2 or more ranks"),
        (2, 3, "servers=3 leave no worker among 2 ranks; start 4 or more ranks"),
        (3, 0, "servers=0 is one process alone, and there are 3 ranks; use servers=1"),
    ],
)
def test_a_world_without_a_worker_is_refused(ranks: int, servers: int, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        case(ranks, servers=servers)


def test_a_world_with_a_worker_is_taken() -> None:
    assert (case()["servers"], case(2, servers=1)["ranks"], case(7, servers=4)["servers"]) == (0, 2, 4)


def test_the_command_names_every_parameter() -> None:
    row = workloads.get("parameter_server")
    words = list(row.argv(case(3, servers=2, shard="even", seed=7, threads=2), 1))
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags == {"--servers": "2", "--shard": "even", "--steps": "40", "--data": "made-up", "--seed": "7",
                     "--threads": "2"}  # fmt: skip


def test_workers_with_their_images_need_memory() -> None:
    (few,), (many,) = (program_cases(plan(servers=1), ranks) for ranks in (2, 9))
    assert many.memory == 8 * few.memory > 8 * 60_000 * 784


def test_a_sample_is_the_time_of_all_steps() -> None:
    row, asked = workloads.get("parameter_server"), case(4, servers=2)
    output = json.dumps(SHARED)
    assert row.parse(output) == {"steps": [5.0]}
    assert row.verify(asked, output) == 0
    assert row.figures(asked, output) == {
        "accuracy": 0.5, "steps of worker 0": 25, "steps of worker 1": 15, "bytes of server 0": 440,
        "bytes of server 1": 317_600,
    }  # fmt: skip
    assert "made-up 60000 x 784" in row.notes(output)[0]
    assert row.measures[0].work(asked).amount == 40


def test_the_loss_can_be_repeated_with_one_worker_only() -> None:
    row = workloads.get("parameter_server")
    assert row.repeatable(case(), json.dumps(ALONE)) == {"loss": 1.23457}
    assert row.repeatable(case(4, servers=2), json.dumps(SHARED)) == {}
    assert row.figures(case(), json.dumps(ALONE)) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("said", "wrong"),
    [({"steps": [25, 14]}, 1), ({"steps": [25, 17]}, 2), ({"applied": [40, 39]}, 1), ({"applied": [42, 40]}, 2)],
)
def test_steps_that_do_not_add_up_are_wrong(said: dict[str, list[int]], wrong: int) -> None:
    assert workloads.get("parameter_server").verify(case(4, servers=2), json.dumps(SHARED | said)) == wrong


def printing_program(said: dict[str, Any]) -> Program:
    """The workload with a program that prints this at once, without the seconds that it says it took."""
    row = workloads.get("parameter_server")
    return replace(row, argv=printing(json.dumps(said)), software=(), elapsed=lambda *_: 0.0)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"steps": [39]}, "wrong result: parameter_server counted 1 wrong value"),
        ({"loss": float("nan")}, "parameter_server: loss is nan"),
        ({"ns": []}, "parameter_server printed 0 times of steps; expected 1"),
    ],
)
def test_a_spoilt_result_fails_the_case(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], reason: str) -> None:
    ((record, _),) = run_row(monkeypatch, printing_program(ALONE | said), plan())
    assert (record.status, record.reason) == ("failed", reason)


def test_what_is_printed_becomes_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    ((record, samples),) = run_row(monkeypatch, printing_program(ALONE), plan())
    assert record.status == "ok" and samples.tolist() == [[5_000_000_000]]
    assert record.work == Work(amount=40, unit="steps", shown="time")
