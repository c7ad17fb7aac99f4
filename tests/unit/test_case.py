from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from collbench.bindings.host_buffers import numpy_dtype
from collbench.schema.case import DTYPE_ALIASES, DTYPES, Case

CASE = Case(
    collective="allreduce",
    backend="mpi",
    driver="native",
    thread_level="single",
    bytes=65536,
    dtype="float32",
    op="sum",
    root=None,
    ranks=4,
)


def test_a_key_stays_what_it_was() -> None:
    """Keys name samples files of runs on disk: whoever changes this value breaks every run that was kept."""
    assert CASE.key == "249f5b30e6f0"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("collective", "reduce"),
        ("backend", "fake"),
        ("driver", "python"),
        ("thread_level", "multiple"),
        ("bytes", 65537),
        ("dtype", "float64"),
        ("op", "max"),
        ("root", 0),
        ("ranks", 5),
        ("in_place", True),
        ("image", "openmpi"),
        ("policy", "single"),
        ("isolation", "strict"),
        ("staging", "pinned"),
        ("algorithm", "RING"),
        ("protocol", "LL"),
        ("registered", True),
        ("graph", 1),
    ],
)
def test_every_field_is_part_of_the_identity(field: str, value: Any) -> None:
    other = msgspec.structs.replace(CASE, **{field: value})
    assert other != CASE
    assert other.key != CASE.key


def test_the_field_list_above_is_complete() -> None:
    assert len(Case.__struct_fields__) == 18


def test_cases_are_frozen() -> None:
    with pytest.raises(AttributeError):
        CASE.bytes = 8  # type: ignore[misc]
    assert len({CASE, msgspec.structs.replace(CASE)}) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_sizes_are_numpys(dtype: str) -> None:
    assert DTYPES[dtype] == numpy_dtype(dtype).itemsize == np.zeros(1, numpy_dtype(dtype)).nbytes


def test_aliases_name_dtypes_that_exist() -> None:
    assert set(DTYPE_ALIASES.values()) <= set(DTYPES)
