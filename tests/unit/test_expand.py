from __future__ import annotations

from typing import Any

import pytest

from collbench import backends, collectives
from collbench.collectives.case import CollectiveCase
from collbench.errors import BackendUnavailable, PlanError, RequestError
from collbench.run.expand import cases_of
from collbench.schema.axes import DTYPES, OPS, BackendSupport, Sizes, plan_keys_of
from collbench.schema.plan import Plan, check_plan


def plan(**fields: Any) -> Plan:
    return Plan(**({"collectives": ("allreduce",), "sizes": (8,)} | fields))


def values_of(axis: str, plan: Plan, backend: str) -> tuple[Any, ...]:
    choice = plan_keys_of("what")[axis]
    return choice.values(plan[choice.key], BackendSupport(collectives.get("allreduce"), backends.get(backend), 2))


def test_every_combination_once_in_the_plans_order() -> None:
    cases = cases_of(
        plan(
            drivers=("python", "native"), dtypes=("int8", "float32"), sizes=Sizes(min=8, max=16), in_place=(False, True)
        ),
        "fake",
        3,
    )
    expected = [
        (driver, dtype, size, in_place)
        for driver in ("python", "native")
        for dtype in ("int8", "float32")
        for size in (8, 16)
        for in_place in (False, True)
    ]
    assert [(c.driver, c.dtype, c.size, c.in_place) for c in cases] == expected
    assert {(c.collective, c.backend, c.ranks, c.root, c.op) for c in cases} == {("allreduce", "fake", 3, None, "sum")}


def test_what_is_asked_for_twice_is_measured_once() -> None:
    twice = plan(collectives=("allreduce", "all-reduce"), dtypes=("float", "float32", "all"), sizes=("1K", 1024))
    cases = cases_of(twice, "fake", 2)
    assert len(cases) == len(set(cases)) == len(DTYPES)
    assert cases[0].dtype == "float32"


def test_fields_that_mean_nothing_do_not_multiply() -> None:
    everything = plan(
        collectives=collectives.names(), ops=("all",), roots=(0, 1), dtypes=("int8", "float64"), in_place=(False, True)
    )
    count = dict.fromkeys(collectives.names(), 0)
    for case in cases_of(everything, "fake", 2):
        count[case.collective] += 1
        row = collectives.get(case.collective)
        assert (case.op is None) != row.reduces
        assert (case.root is None) != row.rooted
    assert count == {
        "allreduce": 20, "reduce": 40, "reduce_scatter": 20, "bcast": 8, "gather": 8, "scatter": 8, "allgather": 4,
        "alltoall": 4, "sendrecv": 4, "ps_bcast": 4, "ps_gather": 4, "barrier": 1,
    }  # fmt: skip


def test_a_barrier_is_one_case() -> None:
    (case,) = cases_of(plan(collectives=("barrier",), sizes=(8, 16), dtypes=("all",)), "fake", 2)
    assert case == CollectiveCase(
        collective="barrier", backend="fake", driver="native", thread_level="single", size=0, dtype="int8", op=None,
        root=None, ranks=2,
    )  # fmt: skip


@pytest.mark.parametrize(("asked", "place"), [((False,), False), ((True,), True), ((False, True), False)])
def test_where_there_is_no_in_place_form(asked: tuple[bool, ...], place: bool) -> None:
    """One case; in place only where nothing else was asked for, so that the reason of the skip is shown."""
    (case,) = cases_of(plan(collectives=("ps_gather",), in_place=asked), "fake", 2)
    assert case.in_place is place


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("float32",), ("float32",)),
        (("half", "float", "double", "char"), ("float16", "float32", "float64", "int8")),
        (("FLOAT64", "Double"), ("float64",)),
        (("all",), tuple(DTYPES)),
        (("int8", "all"), ("int8", *(d for d in DTYPES if d != "int8"))),
    ],
)
def test_dtypes_by_their_proper_names(asked: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert values_of("dtype", plan(dtypes=asked), "fake") == found


@pytest.mark.parametrize(
    ("asked", "found"),
    [(("sum",), ("sum",)), (("MAX", "sum"), ("max", "sum")), (("all",), OPS), (("min", "all"), None)],
)
def test_operations(asked: tuple[str, ...], found: tuple[str, ...] | None) -> None:
    assert values_of("op", plan(ops=asked), "fake") == (found or ("min", "sum", "prod", "max", "avg"))


@pytest.mark.parametrize("backend", ["mpi", "mpi-staged", "mpi-cuda"])
def test_all_operations_are_those_of_the_backend(backend: str) -> None:
    """MPI has no average. Who asks for one by name gets a case, and the reason why it is skipped."""
    assert values_of("op", plan(ops=("all",)), backend) == ("sum", "prod", "min", "max")
    assert values_of("op", plan(ops=("avg", "all")), backend) == ("avg", "sum", "prod", "min", "max")
    assert set(values_of("op", plan(ops=("all",)), "nccl")) == set(OPS)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        (
            {"dtypes": ("float33",)},
            PlanError,
            r"dtype 'float33': unknown. Did you mean float32\?",
        ),
        ({"dtypes": ("",)}, PlanError, "dtype '': unknown. There are: int8"),
        ({"ops": ("add",)}, PlanError, "op 'add': unknown. There are: sum, prod, min, max, avg, all"),
        ({"ops": ("summ",)}, PlanError, r"Did you mean sum\?"),
        ({"ops": ("summ",), "collectives": ("bcast",)}, PlanError, r"Did you mean sum\?"),
        ({"dtypes": ("int3",), "collectives": ("barrier",)}, PlanError, "dtype 'int3': unknown"),
        ({"roots": (2,), "collectives": ("bcast",)}, PlanError, "root 2: there are 2 ranks, 0 to 1"),
        ({"roots": (0, -1), "collectives": ("bcast",)}, PlanError, "root -1: there are 2 ranks, 0 to 1"),
        ({"collectives": ("allreduse",)}, RequestError, r"Did you mean allreduce\?"),
        ({"dtypes": ("all",), "collectives": ("barrier", "nothing")}, RequestError, "'nothing': unknown"),
    ],
)
def test_unknown_names_are_refused(fields: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        cases_of(check_plan(plan(**fields)), "fake", 2)


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(BackendUnavailable, match=r"backend 'fakee': unknown. Did you mean fake\?"):
        cases_of(plan(dtypes=("all",)), "fakee", 2)
