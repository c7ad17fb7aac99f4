"""Launches in which nothing could be measured."""

from __future__ import annotations

from tests.unit.test_launch_campaign import leave
from tests.unit.test_launch_outcomes import MULTI, carried_out

from collbench.launch.engines.fake import FakeCommand
from collbench.schema import record as records
from collbench.schema.record import Record


def test_a_launch_in_which_every_case_was_skipped_has_no_more_to_say() -> None:
    """Inside, exit code 2 says that nothing was measured; each record says why."""

    def play(command: FakeCommand) -> int:
        leave(command, MULTI)
        path = command.world.folders.out / "records.jsonl"
        cases = [records.decode(line).case for line in path.read_bytes().splitlines()]
        skipped = (Record(case=case, launch=0, status="skipped", reason="not there") for case in cases)
        path.write_bytes(b"".join(records.encode(each) + b"\n" for each in skipped))
        return 2

    heard, _ = carried_out(MULTI, play)
    assert {(record.status, record.reason, record.notes) for record in heard.records} == {("skipped", "not there", ())}
    assert heard.said == [None]
