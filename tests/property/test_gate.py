"""Whatever was measured, each planned cell is accounted for once, and nothing passes that lacks an answer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.made_gates import made_gate, noisy, told
from tests.unit.made_runs import made_case, made_failure, spread

from collbench.analysis.gate import judge
from collbench.analysis.runs import observe
from collbench.report.gate import document as gate_document
from collbench.report.gate import junit, markdown, names_of
from collbench.schema.case import Case
from collbench.schema.store import Margin, read_gate_plan

LAUNCHES = 8

#: From the fastest to the slowest.
GOOD = ("faster", "fine", "slower")
KINDS = (*GOOD, "noisy", "none", "few", "failed", "skipped", "contended", "one failed")


def entries(kind: str, case: Case) -> Sequence[Any]:
    """What a side has of a cell."""
    times = spread(1e-6, LAUNCHES)
    known: dict[str, Sequence[Any]] = {
        "fine": times, "slower": spread(2e-6, LAUNCHES), "faster": spread(0.5e-6, LAUNCHES),
        "noisy": noisy(1e-6, LAUNCHES), "none": [], "few": times[:5], "failed": ["no memory"] * LAUNCHES,
        "skipped": [made_failure(case, number, "not here", "skipped") for number in range(LAUNCHES)],
        "contended": told(case, times, contended=True), "one failed": ["no memory", *times[1:]],
    }  # fmt: skip
    return known[kind]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), min_size=1, max_size=5))
def test_every_planned_cell_is_accounted_for(kinds: list[tuple[str, str]]) -> None:
    cases = [made_case(image="openmpi", size=8 << number) for number in range(len(kinds))]
    base, other = (
        {case: entries(kind[side], case) for case, kind in zip(cases, kinds, strict=True)} for side in (0, 1)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = made_gate(Path(folder), base, other, launches=LAUNCHES)
        found = judge(read_gate_plan(path), observe(path), (Margin(0.02),))
    names = names_of(found.answers)
    told_of = gate_document(found, names)
    assert (
        told_of["planned"] == len(cases) == sum(told_of[name] for name in ("broken", "lost", "no_loss", "not_answered"))
    )
    tests = [*ElementTree.fromstring(junit(found, names)).iter("testcase")]  # noqa: S314 - our own
    assert len(tests) == len(cases)
    assert sum(case.find("failure") is None and case.find("error") is None for case in tests) == told_of["no_loss"]
    assert f"{len(cases)} cells planned" in markdown(found, names)
    for answer, kind in zip(found.answers, kinds, strict=True):
        assert (answer.doubt is None) == (answer.state in ("loss", "no loss"))
        if not set(kind) <= {*GOOD, "noisy"}:
            assert answer.state != "no loss"
            assert found.code != 0
        elif set(kind) <= set(GOOD):
            assert (answer.state == "loss") == (GOOD.index(kind[1]) > GOOD.index(kind[0]))
