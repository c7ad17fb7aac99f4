"""Records of schemas 1 to 4 in the words of today: every field arrives, and what was refused then is refused now."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from collbench.errors import RunReadError
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.record import FlatCase, case_to_5, to_5

OLD = {
    "collective": "reduce", "backend": "nccl", "driver": "python", "thread_level": "multiple", "bytes": 4096,
    "dtype": "float64", "op": "max", "root": 2, "ranks": 4, "in_place": True, "image": "openmpi",
    "policy": "packed:2/far", "isolation": "strict", "staging": "pageable", "algorithm": "Ring", "protocol": "LL",
    "registered": True, "graph": 3,
}  # fmt: skip

#: The fields that every case of schema 1 had, and nothing besides.
LEAST = {
    "collective": "bcast", "backend": "mpi", "driver": "native", "thread_level": "single", "bytes": 8,
    "dtype": "int8", "op": None, "root": None, "ranks": 2,
}  # fmt: skip


def case(old: object) -> Case:
    """What a reader makes of it."""
    return msgspec.convert(case_to_5(old), Case)


def line(old: dict[str, Any], **more: Any) -> bytes:
    """A record of schema 4 that was skipped, so that it needs nothing else."""
    return json.dumps({"case": old, "launch": 0, "status": "skipped", "schema": 4} | more).encode()


def test_every_field_of_an_old_case_has_its_place() -> None:
    assert msgspec.to_builtins(case(OLD)) == {
        "workload": "reduce",
        "what": {"op": "max", "root": 2, "size": 4096, "dtype": "float64"},
        "how": {
            "backend": "nccl", "driver": "python", "thread_level": "multiple", "in_place": True,
            "staging": "pageable", "algorithm": "Ring", "protocol": "LL", "registered": True, "graph": 3,
        },
        "where": {
            "ranks": 4, "engine": "docker", "image": "openmpi", "policy": "packed:2", "isolation": "strict",
            "affinity": "far",
        },
    }  # fmt: skip
    assert set(OLD) == set(FlatCase.__struct_fields__)


def test_a_case_of_schema_1_says_what_it_said() -> None:
    assert msgspec.to_builtins(case(LEAST)) == {
        "workload": "bcast",
        "what": {"size": 8, "dtype": "int8"},
        "how": {"backend": "mpi", "driver": "native", "thread_level": "single"},
        "where": {"ranks": 2},
    }


@pytest.mark.parametrize("name", sorted(OLD))
def test_no_two_old_cases_become_one(name: str) -> None:
    """Each field, changed alone, changes the case, and back."""
    other: dict[str, Any] = OLD | {name: {"driver": "native", "thread_level": "single", "op": "sum", "root": 1,
                                          "in_place": False, "registered": False, "staging": "pinned", "bytes": 8,
                                          "ranks": 5, "graph": 0}.get(name, "another")}  # fmt: skip
    assert case(other) != case(OLD)
    assert case(other | {name: OLD[name]}) == case(OLD)


@pytest.mark.parametrize("name", ["op", "root", "image", "isolation", "staging", "algorithm", "protocol"])
def test_null_and_absent_are_the_same(name: str) -> None:
    assert case(LEAST | {name: None}) == case(LEAST)
    assert case(OLD | {name: None})[name] is None


@pytest.mark.parametrize(
    ("policy", "engine", "now", "affinity"),
    [
        ("host", "host", "host", "near"), ("host/far", "host", "host", "far"), ("multi", "docker", "multi", "near"),
        ("multi/far", "docker", "multi", "far"), ("packed:4", "docker", "packed:4", "near"),
        ("single/far", "docker", "single", "far"),
    ],
)  # fmt: skip
def test_a_policy_is_taken_apart(policy: str, engine: str, now: str, affinity: str) -> None:
    where = case(LEAST | {"policy": policy}).where
    assert (where.engine, where.policy, where.affinity) == (engine, now, affinity)
    assert where.on_host == (engine == "host")


def test_a_barrier_had_a_size_and_a_dtype_only_in_name() -> None:
    found = case(LEAST | {"collective": "barrier", "bytes": 0})
    assert (found.what, found["size"]) == ({}, 0)
    assert case(LEAST | {"bytes": 0}).what == {"size": 0, "dtype": "int8"}


def test_work_is_an_amount_of_bytes() -> None:
    work = {"bytes": 960, "count": 80, "bus_factor": 0.5}
    found = to_5({"case": LEAST, "work": work, "schema": 4})
    assert found["work"] == {"amount": 960, "count": 80, "bus_factor": 0.5}
    assert work == {"bytes": 960, "count": 80, "bus_factor": 0.5}
    assert msgspec.convert(found["work"], records.Work) == records.Work(amount=960, count=80, bus_factor=0.5)
    assert to_5({"case": LEAST, "work": None, "schema": 4})["work"] is None


def test_manifests_stay_as_they_are() -> None:
    manifest = {"title": "any", "plan": {"collectives": ["bcast"]}, "schema": 4}
    assert to_5(manifest) == manifest | {"schema": 5}


@pytest.mark.parametrize("schema", [1, 2, 3, 4])
def test_a_record_of_every_schema_is_read(schema: int) -> None:
    found = records.decode(line(LEAST, schema=schema))
    assert (found.case, found.schema) == (case(LEAST), records.SCHEMA)
    assert records.decode(records.encode(found)) == found


@pytest.mark.parametrize("name", sorted(set(OLD) - {"policy"}))
@pytest.mark.parametrize("value", [[], {"a": 1}, 1e30, -1, "x" * 600])
def test_values_of_another_kind_are_refused(name: str, value: object) -> None:
    with pytest.raises(RunReadError):
        records.decode(line(OLD | {name: value}))


@pytest.mark.parametrize("value", [None, 7, [], "x" * 600])
def test_a_policy_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(RunReadError):
        records.decode(line(OLD | {"policy": value}))


@pytest.mark.parametrize("name", sorted(LEAST))
def test_a_field_that_must_be_there_is_missed(name: str) -> None:
    with pytest.raises(RunReadError, match=name):
        records.decode(line({field: value for field, value in LEAST.items() if field != name}))


@pytest.mark.parametrize("name", ["bytes", "dtype", "backend", "driver", "thread_level", "ranks", "in_place", "graph"])
def test_null_is_refused_where_it_meant_nothing(name: str) -> None:
    with pytest.raises(RunReadError):
        records.decode(line(OLD | {name: None}))


@pytest.mark.parametrize("more", [{"what": {"size": 9}}, {"where": {}}, {"workload": "x"}, {"array": 5}])
def test_an_unknown_field_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RunReadError, match="unknown field"):
        records.decode(line(LEAST | more))


@pytest.mark.parametrize("old", [None, 3, "bcast", [LEAST], {}, {"workload": "bcast"}])
def test_what_is_no_case_is_refused(old: Any) -> None:
    with pytest.raises(RunReadError):
        records.decode(line(old))


def test_work_that_says_both_is_refused() -> None:
    work = {"bytes": 960, "amount": 4, "count": 80, "bus_factor": 0.5}
    with pytest.raises(RunReadError, match="unknown field"):
        records.decode(line(LEAST, work=work))


def test_a_root_that_is_no_rank_is_refused() -> None:
    with pytest.raises(RunReadError, match="root 2 does not exist; there are 2 ranks"):
        records.decode(line(LEAST | {"root": 2}))
