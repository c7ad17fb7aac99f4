"""What `collbench compare` suggests in a refusal works, and nothing else is suggested."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_runs import host, made_case, spread, write_run

AXES_THAT_DIFFER = {"op": "max", "dtype": "float64", "backend": "nccl", "staging": "pinned", "image": "x", "ranks": 4,
                    "policy": "single"}  # fmt: skip


@pytest.mark.parametrize(("axis", "value"), AXES_THAT_DIFFER.items())
def test_what_a_refusal_suggests_to_ignore_can_be_ignored(
    compare: Collbench, tmp_path: Path, axis: str, value: str | int
) -> None:
    sides = {"one": made_case(image="y"), "two": made_case(image="y").having(**{axis: value})}
    runs = [write_run(tmp_path / name, {case: spread(1e-6)}) for name, case in sides.items()]
    refused = compare(*runs)
    assert refused.code == 2 and "None" not in refused.err
    assert f"To compare anyway: --ignore {axis}" in refused.err
    assert compare(*runs, "--ignore", axis).code == 0


def test_nothing_is_suggested_to_ignore_that_leaves_several_cells(compare: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", {made_case(): [1e-6]})
    two = write_run(tmp_path / "two", {made_case(image=name): [1e-6] for name in "ab"})
    refused = compare(one, two)
    assert "image none against a, b. To ignore this would leave several cells of one case" in refused.err
    assert "To compare anyway" not in refused.err
    crossed = [
        write_run(tmp_path / dtype, {made_case(dtype=dtype, op=op, size=size): [1e-6] for op, size in pairs})
        for dtype, pairs in (("float32", (("sum", 8), ("max", 16))), ("float64", (("max", 8), ("sum", 16))))
    ]
    assert "dtype float32 against float64. Without this the cases differ too" in compare(*crossed).err


def test_a_factor_is_suggested_only_where_it_explains_every_difference(compare: Collbench, tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {made_case(): spread(1e-6)})
    two = write_run(tmp_path / "b", {made_case(): spread(1e-6)}, hosts=(host(cpu="Xeon", kernel="6.6"),))
    for chosen in ([], ["--by", "kernel"], ["--by", "cpu"]):
        assert "--by" not in compare(one, two, *chosen).err
    assert "To compare by one of these: --by kernel." in compare(one, two, "--ignore", "cpu").err
    assert compare(one, two, "--ignore", "cpu", "--by", "kernel").code == 0
