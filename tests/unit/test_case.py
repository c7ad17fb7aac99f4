"""A case: its identity, its axes, and what two of them have in common."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from collbench import collectives
from collbench.bindings.spec import numpy_dtype
from collbench.collectives.row import CollectiveCase
from collbench.errors import RunReadError
from collbench.schema.axes import AXES, DTYPE_ALIASES, DTYPES
from collbench.schema.case import Case, Where, case_of, names_in, refuse_odd

CASE = CollectiveCase(collective="allreduce", backend="mpi", driver="native", thread_level="single", size=65536,
                      dtype="float32", op="sum", root=None, ranks=4)  # fmt: skip
SAME = CASE.identity

#: A value on every axis that `SAME` does not have.
OTHER = {
    "measure": "triad",
    "workload": "reduce", "backend": "fake", "driver": "python", "thread_level": "multiple", "size": 65537,
    "dtype": "float64", "op": "max", "root": 0, "ranks": 5, "in_place": True, "engine": "docker", "image": "openmpi",
    "policy": "single", "isolation": "strict", "affinity": "far", "staging": "pinned", "algorithm": "RING",
    "protocol": "LL", "registration": "local", "storage": "volume", "seccomp": "unconfined", "hosts": 2,
    "side": "other", "graph": 1, "cta_policy": "zero", "gpus": "close", "cores": "0,3",
    "array": "of its own",
}  # fmt: skip


def test_a_key_stays_what_it_was() -> None:
    """Keys seed the fake backend, and name new samples files: the same case has the same on every machine."""
    assert SAME.key == "e7779ea77f75"


@pytest.mark.parametrize(("axis", "value"), OTHER.items())
def test_every_axis_is_part_of_the_identity(axis: str, value: Any) -> None:
    other = SAME.having(**{axis: value})
    assert other != SAME and other.key != SAME.key and other[axis] == value
    assert hash(other) != hash(SAME)
    assert other.without((axis,)) == SAME.without((axis,))


def test_the_list_above_is_complete() -> None:
    assert set(AXES) == set(OTHER) - {"workload", "array"}
    assert {axis.name for axis in AXES.values() if axis.kind == "where"} == set(Where.__struct_fields__)


def test_a_collective_says_what_it_has_and_nothing_else() -> None:
    assert SAME.what == {"size": 65536, "dtype": "float32", "op": "sum"}
    assert SAME.how == {"backend": "mpi", "driver": "native", "thread_level": "single"}
    assert msgspec.json.decode(msgspec.json.encode(SAME))["where"] == {"ranks": 4}
    for name in collectives.names():
        row = collectives.get(name)
        identity = msgspec.structs.replace(CASE, collective=name, size=0).identity
        assert ("size" in identity.what, "dtype" in identity.what) == (row.moves_data, row.moves_data)


def test_values_that_say_nothing_are_no_part_of_a_case() -> None:
    """Whoever writes a record may leave them out or not."""
    how, where = b'"how":{"registration":"none","graph":0}', b'"where":{"policy":"host"}'
    text = b'{"workload":"w","what":{"op":null,"size":0},%b,%b}' % (how, where)
    assert msgspec.json.decode(text, type=Case) == case_of("w", {"size": 0}) == case_of("w", {"size": 0, "op": None})
    assert case_of("w", {"size": 0}) != case_of("w", {})


def test_cases_that_are_equal_have_one_key() -> None:
    """On the host with one rank too, whoever made them."""
    texts = (
        b'{"workload":"w","what":{},"where":{}}',
        b'{"workload":"w","where":{"policy":"host","engine":"host","affinity":"near","isolation":null,"ranks":1}}',
    )
    copied = case_of("w", {"policy": "".join(("ho", "st"))})
    read = [msgspec.json.decode(text, type=Case) for text in texts]
    made = (case_of("w", {}), case_of("w", {"ranks": 1}), copied, *read)
    assert len({case.key for case in made}) == len(set(made)) == 1
    assert all(msgspec.to_builtins(case).get("where", {}) == {} for case in made)


@pytest.mark.parametrize(("name", "value"), [("size", True), ("root", True), ("registration", 1), ("dtype", 4)])
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    kind = AXES[name].kind
    with pytest.raises(RunReadError, match=f"{name} .*type"):
        refuse_odd(Case(workload="w", what={name: value} if kind == "what" else {},
                        how={name: value} if kind == "how" else {}, where=Where(ranks=4)), "here")  # fmt: skip


def test_cases_that_are_equal_have_one_hash() -> None:
    swapped = Case(workload="allreduce", what=dict(reversed(SAME.what.items())), how=SAME.how, where=SAME.where)
    assert swapped == SAME and hash(swapped) == hash(SAME) and swapped.key == SAME.key
    with pytest.raises(AttributeError):
        SAME.workload = "other"  # type: ignore[misc]


def test_axes_of_a_workload_stand_before_those_of_the_table() -> None:
    case = SAME.having(kernel="triad", root=0)
    assert [axis.name for axis in case.axes] == ["kernel", "op", "dtype", "root", "size", "backend", "driver",
                                                 "thread_level", "ranks"]  # fmt: skip
    assert list(names_in([case, SAME]))[-1] == "kernel"
    assert case["kernel"] == "triad" and SAME["kernel"] is None


@pytest.mark.parametrize(("what", "how", "said"), [
    ({"root": 4}, {}, "root 4 .* 4 ranks"), ({"root": -1}, {}, "root -1 .* 4 ranks"), ({"size": -8}, {}, "size -8"),
    ({"dtype": 4}, {}, "dtype 4 .*str"), ({"backend": "mpi"}, {}, "`how`"),
    ({}, {"size": 8}, "`what`"), ({"policy": "multi"}, {}, "`where`"),
])  # fmt: skip
def test_values_that_cannot_be_are_refused(what: dict[str, Any], how: dict[str, Any], said: str) -> None:
    with pytest.raises(RunReadError, match=f"here: .*{said}"):
        refuse_odd(Case(workload="w", what=what, how=how, where=Where(ranks=4)), "here")


def test_a_case_has_no_thousand_settings() -> None:
    many = {f"s{n}": n for n in range(65)}
    with pytest.raises(msgspec.ValidationError, match=r"\b64\b"):
        msgspec.convert({"workload": "w", "what": many}, Case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_sizes_are_numpys(dtype: str) -> None:
    assert DTYPES[dtype] == numpy_dtype(dtype).itemsize == np.zeros(1, numpy_dtype(dtype)).nbytes


def test_aliases_name_dtypes_that_exist() -> None:
    assert set(DTYPE_ALIASES.values()) <= set(DTYPES)


def test_a_size_is_named_where_there_is_one() -> None:
    assert case_of("allreduce", {"size": 1024}).short == "allreduce 1K"
    assert case_of("allreduce", {"size": 0}).short == "allreduce 0"
    assert case_of("linpack", {"n": 2000}).short == "linpack"
