"""Axes that only some backends have, cadences that only some have, and who must be a parameter server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from collbench import backends
from collbench.bindings.spec import Roles
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError, RequestError
from collbench.run.expand import cases_of, refuse_cadence
from collbench.run.experiment import roles_of
from collbench.schema.axes import OPS, Op
from collbench.schema.plan import Plan, check_plan

NEW = ("staging", "algorithm", "protocol", "registered", "graph")


@dataclass(frozen=True)
class Made:
    """As much of a backend as expanding asks for."""

    name: str
    axes: frozenset[str] = frozenset()
    streams: bool = False
    ops: tuple[Op, ...] = OPS

    def dtypes(self) -> tuple[str, ...]:
        return ("float32",)


MADE = {
    made.name: made
    for made in (
        Made("plain"),
        Made("staged", frozenset({"staging"})),
        Made("library", frozenset({"algorithm", "protocol", "registered", "graph", "server staging"}), streams=True),
        Made("stream", streams=True),
    )
}


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "get", MADE.__getitem__)


def plan(**fields: Any) -> Plan:
    everything: dict[str, Any] = {
        "collectives": ("allreduce",), "sizes": (8,), "staging": ("pageable", "pinned"), "algorithms": ("", "RING"),
        "protocols": ("LL", ""), "registered": (False, True), "cudagraph": 1,
    }  # fmt: skip
    return Plan(**(everything | fields))


def of(found: tuple[CollectiveCase, ...], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(case, field) for field in fields) for case in found]


def test_a_backend_without_axes_has_one_case() -> None:
    assert of(cases_of(plan(), "plain", 2), *NEW) == [(None, None, None, False, 0)]


def test_a_backend_varies_what_it_has() -> None:
    assert of(cases_of(plan(), "staged", 2), *NEW) == [
        ("pageable", None, None, False, 0), ("pinned", None, None, False, 0),
    ]  # fmt: skip
    assert of(cases_of(plan(), "library", 2), *NEW) == [
        (None, algorithm, protocol, registered, 1)
        for algorithm in (None, "RING")
        for protocol in ("LL", None)
        for registered in (False, True)
    ]


def test_a_barrier_has_nothing_to_stage() -> None:
    (case,) = cases_of(plan(collectives=("barrier",)), "staged", 2)
    assert case.staging is None


def test_the_servers_leg_is_staged_and_is_in_no_graph() -> None:
    """Its part over MPI cannot be captured; its host memory is a choice on a backend that stages nothing else."""
    found = cases_of(
        plan(collectives=("ps_bcast",), algorithms=("",), protocols=("",), registered=(False,)), "library", 2
    )
    assert of(found, *NEW) == [(staging, None, None, False, 0) for staging in ("pageable", "pinned")]


@pytest.mark.parametrize(
    ("cadence", "cudagraph", "graph"),
    [("isolated", 0, 0), ("isolated", 1, 1), ("streaming", 0, 0), ("streaming", 3, 7)],
)
def test_a_graph_holds_one_operation_or_a_burst(cadence: str, cudagraph: int, graph: int) -> None:
    asked = check_plan(plan(cadence=cadence, cudagraph=cudagraph, burst=7))
    assert {case.graph for case in cases_of(asked, "library", 2)} == {graph}


def test_several_launches_a_sample_are_not_isolated() -> None:
    with pytest.raises(PlanError, match=r"cudagraph 2: .* not isolated; use 1, or cadence streaming"):
        check_plan(plan(cudagraph=2))


def test_streaming_needs_a_backend_that_streams() -> None:
    streaming = plan(cadence="streaming", cudagraph=0)
    with pytest.raises(RequestError, match=r"cadence streaming: plain, staged completes every call before"):
        refuse_cadence(streaming, ["plain", "staged"])
    refuse_cadence(streaming, ["plain", "stream"])
    refuse_cadence(plan(cudagraph=0), ["plain"])


def test_a_graph_needs_a_backend_that_has_them() -> None:
    with pytest.raises(RequestError, match=r"cudagraph 1: plain, stream has no CUDA graphs; use nccl\."):
        refuse_cadence(plan(), ["plain", "stream"])
    refuse_cadence(plan(), ["plain", "library"])


def roles(*collectives: str, roots: tuple[int, ...] = (0,)) -> Roles:
    return roles_of((cases_of(plan(collectives=collectives, roots=roots), "plain", 3),))


def test_who_serves() -> None:
    """The root of a broadcast is no server."""
    assert roles("allreduce", "bcast", roots=(0, 1)) == Roles(True, frozenset())
    assert roles("ps_bcast", "ps_gather", roots=(2,)) == Roles(False, frozenset({2}))
    assert roles("ps_bcast", roots=(0, 2)) == Roles(False, frozenset({0, 2}))
    assert roles("ps_gather", "barrier", roots=(1,)) == Roles(True, frozenset({1}))


def test_roles_are_those_of_all_backends_together() -> None:
    served = cases_of(plan(collectives=("ps_bcast",)), "plain", 3)
    plain = cases_of(plan(), "staged", 3)
    assert roles_of((served, plain)) == Roles(True, frozenset({0}))
