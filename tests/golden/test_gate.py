"""What a gate says, byte by byte, on runs that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate, noisy, told
from tests.unit.made_runs import made_case, spread
from tests.unit.test_gate import judged

from collbench.analysis.gate import Cause, Doubt, Judgement, Unfinished
from collbench.analysis.runs import Flaw
from collbench.report.gate import cause_text, doubt_text, markdown, names_of
from collbench.report.gate import tables as gate_tables
from collbench.report.tables import terminal
from collbench.schema.plan import Side
from collbench.schema.record import UNREAD, ResultCheck, Samples

Golden = Callable[[str, str], None]

THIRD = made_case(image="openmpi", size=8)


def said(found: Judgement) -> str:
    names = names_of(found.answers)
    return f"{terminal(gate_tables(found, names))}\n--- gate.md\n{markdown(found, names)}"


def unlike(**fields: Any) -> Medians:
    """Two cells, of which the larger has records with these fields."""
    return {SMALL: spread(1e-6), LARGE: told(LARGE, spread(1e-4), **fields)}


LATE = Samples(n=100, invalid=20, warmup=5)

SIDES: dict[str, tuple[Medians, Medians]] = {
    "loss-and-broken": (
        {**fine(), THIRD: spread(1e-6)},
        {SMALL: spread(1.0001e-6), LARGE: spread(1.2e-4), THIRD: ["it hangs"] * 10},
    ),
    "pass": (fine(), {**fine(), LARGE: spread(1.004e-4)}),
    "gains": (fine(), {SMALL: spread(0.9e-6), LARGE: spread(0.7e-4)}),
    "twice": (fine(), {SMALL: spread(2.5e-6), LARGE: spread(1e-4)}),
    "unchecked": (unlike(check=ResultCheck(wrong=None)), unlike(check=ResultCheck(wrong=None))),
    "late": (
        unlike(samples=Samples(n=100, invalid=20, warmup=5)),
        unlike(samples=Samples(n=100, invalid=20, warmup=5)),
    ),
    "not-comparable": (fine(), {SMALL: told(SMALL, spread(1.5e-6), gate="barrier"), LARGE: spread(1e-4)}),
    "two-reasons": (fine(), {SMALL: noisy(1e-6), LARGE: told(LARGE, spread(1e-4), contended=True)}),
    "long-reason": (fine(), {SMALL: ["error: " + " ".join(map(str, range(600)))] * 10, LARGE: spread(1e-4)}),
}


OTHER_VARIABLES = (Side(), Side(variables={"OMPI_MCA_btl": "self,sm"}))


@pytest.mark.parametrize("name", SIDES)
def test_an_answer(golden: Golden, tmp_path: Path, name: str) -> None:
    golden(f"gate-{name}.txt", said(judged(made_gate(tmp_path, *SIDES[name], sides=OTHER_VARIABLES))))


def test_accepted_doubts_are_said(golden: Golden, tmp_path: Path) -> None:
    contended: Medians = {case: told(case, spread(1e-6), contended=True) for case in (SMALL, LARGE)}
    golden("gate-accepted.txt", said(judged(made_gate(tmp_path, contended, contended), accepted=("contended",))))


def test_an_interrupted_gate(golden: Golden, tmp_path: Path) -> None:
    found = judged(made_gate(tmp_path, fine(), {SMALL: spread(1e-6), LARGE: spread(1.2e-4)}))
    golden("gate-interrupted.txt", said(replace(found, unfinished=Unfinished(6, 40, True), folder="kept")))


def test_words_of_doubts(golden: Golden) -> None:
    """Those that no run above has."""
    path, ours, theirs = "/build/libmpi.so.40", "1" * 64, "a" * 64
    causes = [
        Cause("differs", ("kernel", "Linux 6.1 against 6.6")), Cause("flaw", (Flaw("cut off", Path("runs/a")),)),
        Cause("file differs", ("NCCL", "/a/libnccl.so", ours, "/b/libnccl.so", None)),
        Cause("not told", ("other", "libmpi.so")), Cause("none loaded", ("other", "libmpi.so", path)),
        *(Cause("other loaded", ("other", "/opt/libmpi.so", found, path, ours, preloaded))
          for found, preloaded in ((theirs, False), (theirs, True), (UNREAD, False))),
        Cause("plan"), Cause("same image", ("sha256:9",)), Cause("asked"), Cause("same file", ("libmpi.so", ours[:12])),
        Cause("no file", ("libmpi.so",)), Cause("unread file", ("libmpi.so",)),
    ]  # fmt: skip
    doubts = [
        Doubt("broken", ("other", 1, 1, "it hangs", "no memory")), Doubt("failed", ("base", 2, 10)), Doubt("missing"),
        Doubt("missing", ("other",)), Doubt("skipped", ("base", "no torch")), Doubt("results differ", ("loss",)),
        Doubt("unchecked"), Doubt("incomplete", ("other", 9, 10)), Doubt("too few launches", (4, 2, 1, 3)),
        Doubt("contended", ("base", 5, 10)), Doubt("oversubscribed", ("base",)), Doubt("shared GPU", ("other",)),
        Doubt("late", ("other", 600, 1000)), Doubt("drift"),
    ]  # fmt: skip
    golden("gate-words.txt", "".join(f"{line}\n" for line in (*map(cause_text, causes), *map(doubt_text, doubts))))
