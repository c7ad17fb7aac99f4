"""The plan that a launch gives to its world: which cases are measured, executed without a record, or left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contract.test_fake import Kept
from tests.unit.test_experiment import OPTIONS, MadeBackend, carried_out, found, made, plan

from collbench.bindings.spec import Roles
from collbench.errors import PlanError
from collbench.run.experiment import plan_experiment
from collbench.run.measure import measure
from collbench.run.sampling import Fixed, Method, StopRule
from collbench.schema.plan import Plan, load_plan

__all__ = ["made"]  # a fixture


def world_plan(asked: Plan, measured: list[int], brief: list[int]) -> Plan:
    """The plan of a launch that executes these of its cases, by number."""
    identities = plan_experiment(asked, OPTIONS, ()).identities
    return asked.of_world([identities[number] for number in measured], [identities[number] for number in brief])


def test_a_launch_of_some_cases_has_their_records_and_the_plan_s_order(made: Callable[..., None]) -> None:
    """The brief ones are executed in their places, with one sample that nobody gets; the rest is not prepared."""
    prepared: list[int] = []

    def listening(session: Any) -> None:
        prepare = session.prepare

        def heard(case: Any, *rest: Any) -> Any:
            if session.world.rank == 0 and case.size:  # not the barrier of the gate
                prepared.append(case.size)
            return prepare(case, *rest)

        session.prepare = heard

    began: list[int] = []

    class Begun(Kept):
        def begin(self, manifest: Any, cases: int) -> None:
            super().begin(manifest, cases)
            began.append(cases)

    made(MadeBackend(change=listening))
    asked = plan(sizes=("8", "16", "32", "64", "128"))
    kept = carried_out(world_plan(asked, [4, 1], [2]), kept=Begun())
    assert found(kept.records) == [("one", 16, "ok", None), ("one", 128, "ok", None)]
    assert prepared == [16, 32, 128]
    assert began == [2]
    assert [samples.shape for samples in kept.samples if samples is not None] == [(2, 2)] * 2


def test_a_brief_execution_has_one_sample(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[StopRule] = []

    def heard(case: Any, row: Any, session: Any, method: Method, *rest: Any) -> Any:
        if session.world.rank == 0:
            rules.append(method.stop)
        return measure(case, row, session, method, *rest)

    monkeypatch.setattr("collbench.run.experiment.measure", heard)
    made(MadeBackend())
    carried_out(world_plan(plan(), [1], [0]))
    assert rules == [Fixed(1), Fixed(2)]


def test_a_backend_of_which_nothing_is_executed_is_not_started(made: Callable[..., None]) -> None:
    first, second = MadeBackend(), MadeBackend("two", late="no GPU")
    made(first, second)
    kept = carried_out(world_plan(plan("one", "two"), [0], []))
    assert found(kept.records) == [("one", 8, "ok", None)]
    assert second.given == []
    kept = carried_out(world_plan(plan("one", "two", unusable="skip"), [1, 2], [3]))
    assert found(kept.records) == [("one", 16, "ok", None), ("two", 8, "skipped", "no GPU")]
    missing = MadeBackend("two", why="no GPU")
    made(first, missing)
    kept = carried_out(world_plan(plan("one", "two", unusable="skip"), [1], []))
    assert found(kept.records) == [("one", 16, "ok", None)]


def test_what_is_not_executed_is_still_part_of_the_world(made: Callable[..., None]) -> None:
    """The roles of the ranks, on which GPUs depend, are those of all cases."""
    backend = MadeBackend()
    made(backend)
    both = plan(collectives=("ps_bcast", "bcast"), sizes=("8",), roots=(1,))
    carried_out(world_plan(both, [0], []))
    assert [options.roles for options in backend.given] == [Roles(True, frozenset({1}))]


# Its file ------------------------------------------------------------------------------------------------------------


def test_it_is_read_as_it_was_written(tmp_path: Path, made: Callable[..., None]) -> None:
    made(MadeBackend())
    written = world_plan(plan(), [1], [0])
    assert (len(written.only), len(written.brief)) == (1, 1)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(written.document))
    assert load_plan(tmp_path / "plan.json") == written
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan().document))
    assert load_plan(tmp_path / "plan.json") == plan()


def test_a_plan_of_a_user_has_no_such_keys(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('collectives = ["bcast"]\nonly = ["0123456789ab"]\n')
    with pytest.raises(PlanError, match="unknown key 'only'"):
        load_plan(tmp_path / "plan.toml")
