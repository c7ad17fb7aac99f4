"""Buffers that do not fit are refused before a world is started."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.test_launch_campaign import PLAN

from collbench.errors import PlanError
from collbench.launch import expansion
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.expansion import buffers, refuse_too_large
from collbench.schema.plan import Plan

MULTI = msgspec.structs.replace(PLAN, policies=("multi",), launches=1)


def test_buffers_are_counted_rank_by_rank() -> None:
    def of(name: str, in_place: bool = False, ranks: int = 3, root: int = 0) -> int:
        plan = Plan(collectives=(name,), images=("openmpi",), sizes=("120",), in_place=(in_place,),
                          ranks=(ranks,), roots=(root,), policies=("multi",), engine="fake")  # fmt: skip
        ((case,),) = (cases_in(plan, LaunchCell("openmpi", "multi", "strict", ranks)),)
        return buffers(case)  # type: ignore[arg-type]

    assert of("allreduce") == 3 * 2 * 120
    assert of("allreduce", in_place=True) == 3 * 120
    assert of("allgather") == 3 * (1 + 3) * 32, "120 B are three blocks of 32 B, rounded to whole ones"
    assert of("allgather", in_place=True) == 3 * 3 * 32
    assert of("gather", root=2) == 3 * 32 + 3 * 32
    assert of("barrier") == 0


def test_programs_and_gpus_look_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = LaunchCell("openmpi", "multi", "strict", 2, engine="fake")
    cases = {cell: cases_in(MULTI, cell)}
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1)
    with pytest.raises(PlanError, match=r"^openmpi multi strict, 2 ranks: bcast of 16 B needs .* and 1 B are free\."):
        refuse_too_large(MULTI, cases)
    refuse_too_large(msgspec.structs.replace(MULTI, device="gpu"), cases)
    monkeypatch.setattr(expansion, "available_bytes", lambda: None)
    refuse_too_large(MULTI, cases)
    needed = max(buffers(case) for case in cases[cell])  # type: ignore[arg-type]
    enough = next(free for free in range(needed, 2 * needed) if free * 0.95 >= needed)
    refuse_too_large(MULTI, cases, free=enough)
    with pytest.raises(PlanError):
        refuse_too_large(MULTI, cases, free=enough - 1)


def test_a_training_that_does_not_fit_says_what_would_make_it_smaller() -> None:
    training = {"name": "ddp", "network": "resnet50", "batch": 1 << 20}
    plan = Plan(images=("torch",), benchmarks=(training,), ranks=(2,), policies=("multi",), engine="fake")
    cell = LaunchCell("torch", "multi", "strict", 2, engine="fake")
    with pytest.raises(PlanError, match=r"batch=1048576 .* needs .* TiB .* Lower the batch or the number of ranks\.$"):
        refuse_too_large(plan, {cell: cases_in(plan, cell)}, free=1 << 40)
