"""Whether the buffers of all ranks fit into their machines, before anything is measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.test_case import CASE

from collbench.bindings.host_buffers import USABLE_SHARE
from collbench.bindings.spec import Options
from collbench.errors import DoesNotFit
from collbench.machine import cgroup
from collbench.machine.facts import rank_facts
from collbench.run import memory_check
from collbench.run.expand_programs import program_cases
from collbench.run.experiment import perform, plan_experiment
from collbench.run.memory_check import does_not_fit, programs_do_not_fit
from collbench.run.watchdog import Unwatched
from collbench.schema.plan import Plan

HERE = replace(rank_facts(), kernel_id="here", host="node")
CASES = tuple(msgspec.structs.replace(CASE, size=size) for size in (8, 64))
NEED = 1000


def refused(monkeypatch: pytest.MonkeyPatch, *reports: tuple[str, int | None]) -> str:
    """What rank 0 says where all ranks need 1000 bytes; `reports` are machine and free bytes of each rank."""
    monkeypatch.setattr(memory_check, "_needed_bytes", lambda session, case, size, watch: NEED * (size == 64))
    monkeypatch.setattr(memory_check, "available_bytes", lambda: reports[0][1])

    def gather(mine: Any) -> list[Any]:
        return [mine, *((machine, NEED, left) for machine, left in reports[1:])]

    session: Any = SimpleNamespace(world=SimpleNamespace(rank=0, gather=gather, bcast=lambda value: value))
    ranks = tuple(replace(HERE, kernel_id=machine, host=f"node-{machine}") for machine, _ in reports)
    return str(does_not_fit(session, ranks, CASES, Unwatched()) or "")


ENOUGH = int(2 * NEED / USABLE_SHARE)


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ((("here", ENOUGH + 2), ("here", ENOUGH + 2)), ""),
        ((("here", ENOUGH - 2), ("here", ENOUGH + 2)), "size 64 B: the buffers of 2 ranks on node-here need"),
        ((("here", None), ("here", ENOUGH - 2)), "size 64 B: the buffers of 2 ranks on node-here need"),
        ((("here", None), ("here", None)), ""),
        ((("here", ENOUGH - 2), ("there", ENOUGH - 2)), ""),
        ((("here", ENOUGH), ("there", ENOUGH - 2), ("there", ENOUGH)), "the buffers of 2 ranks on node-there need"),
    ],
)
def test_the_ranks_of_a_machine_share_what_the_least_of_them_sees(
    monkeypatch: pytest.MonkeyPatch, reports: tuple[tuple[str, int | None], ...], said: str
) -> None:
    found = refused(monkeypatch, *reports)
    assert found.startswith(said) if said.startswith("size") else said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (3 << 20, "stream size=1048576: needs 3.00 MiB of memory, and 3.00 MiB are free. Lower the sizes."),
        (4 << 20, None),
        (None, None),
    ],
)
def test_a_program_has_to_fit_into_the_limit_of_its_container(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, said: str | None
) -> None:
    monkeypatch.setattr(cgroup, "memory_left", lambda: limit)
    refused = programs_do_not_fit(program_cases(Plan(workloads=("stream",), sizes=("8", "1M")), 1))
    assert (None if refused is None else str(refused)) == said


def test_a_run_whose_program_does_not_fit_starts_none() -> None:
    plan = plan_experiment(Plan(workloads=("stream",), sizes=("4096T",), iters=1), Options(), ())
    with pytest.raises(DoesNotFit, match=r"stream size=4503599627370496: needs 12288\.00 TiB of memory"):
        perform(plan, cast("Any", None))
