"""Advice on programs: most have no size, and none is spoken of."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.conftest import Collbench
from tests.unit.made_suite import CPU, IO, write_suite


def test_what_has_no_size_is_advised_without_one(here: Collbench, tmp_path: Path) -> None:
    slower, share = {"dd": 1.06, "linpack": 0.9}, {"ioping": 0.03}
    run = write_suite(tmp_path / "run", CPU + IO, slower=slower, share=share)
    out = here("advise", run, "--why").out
    assert " at 0" not in out and " 0:" not in out
    entries = json.loads(here("advise", run, "--style", "json").out)["advice"]
    found = {one["operation"].split()[0].rstrip(","): [of["take"] for of in one["ranges"]] for one in entries}
    assert found["linpack"] == ["single strict"] and found["dd"] == ["host, storage overlay"]


def test_a_report_advises_on_programs_by_their_verdicts(here: Collbench, tmp_path: Path) -> None:
    run = write_suite(tmp_path / "run", CPU[:1], slower={"linpack": 1.5})
    (entry,) = json.loads(here("advise", run, "--style", "json").out)["advice"]
    (size,) = entry["sizes"]
    assert size["options"]["single strict"]["may_be_best"] is False
    assert round(size["options"]["single strict"]["ratio"], 2) == 1.5
