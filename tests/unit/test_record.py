"""Records and manifests as JSON: what is written is read back, what is not ours is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collbench.errors import RunReadError
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.case import Case
from collbench.schema.record import Record

Decode = Callable[..., Any]


@pytest.fixture(params=["record", "manifest"])
def kind(request: pytest.FixtureRequest, stored_run: Path) -> tuple[Decode, dict[str, Any]]:
    """A decoder, and a document that it reads."""
    if request.param == "record":
        return records.decode, json.loads((stored_run / "records.jsonl").read_text().splitlines()[0])
    return manifests.decode, json.loads((stored_run / "manifest.json").read_text())


def test_a_document_of_today_is_read(kind: tuple[Decode, dict[str, Any]]) -> None:
    decode, document = kind
    assert decode(json.dumps(document).encode()).schema == records.SCHEMA == 1


@pytest.mark.parametrize("other", [1, 10])
def test_another_schema_is_refused_with_the_version_it_has(kind: tuple[Decode, dict[str, Any]], other: int) -> None:
    decode, document = kind
    line = json.dumps(document | {"schema": records.SCHEMA + other, "tomorrow": True}).encode()
    with pytest.raises(RunReadError, match=rf"here: .*schema {records.SCHEMA + other}; .* {records.SCHEMA}\."):
        decode(line, "here")


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.5, [1]])
def test_a_document_without_a_version_is_not_ours(kind: tuple[Decode, dict[str, Any]], version: object) -> None:
    decode, document = kind
    with pytest.raises(RunReadError, match="here: no schema"):
        decode(json.dumps(document | {"schema": version}).encode(), "here")


def test_an_unknown_field_is_refused_at_every_depth(kind: tuple[Decode, dict[str, Any]]) -> None:
    decode, document = kind
    inner = next(name for name, value in document.items() if isinstance(value, dict) and name != "thread_level")
    with pytest.raises(RunReadError, match=r"here: .*extra"):
        decode(json.dumps(document | {"extra": 1}).encode(), "here")
    with pytest.raises(RunReadError, match=r"here: .*extra"):
        decode(json.dumps(document | {inner: document[inner] | {"extra": 1}}).encode(), "here")


def test_a_missing_field_is_refused(kind: tuple[Decode, dict[str, Any]]) -> None:
    decode, document = kind
    missing = "case" if "case" in document else "hosts"
    with pytest.raises(RunReadError, match=missing):
        decode(json.dumps({name: value for name, value in document.items() if name != missing}).encode())


@pytest.mark.parametrize(
    ("field", "value"), [("launch", "0"), ("status", "fine"), ("seconds", {"min": 1}), ("driver", "rust")]
)
def test_a_value_of_the_wrong_kind_is_refused(stored_run: Path, field: str, value: object) -> None:
    document = json.loads((stored_run / "records.jsonl").read_text().splitlines()[0])
    with pytest.raises(RunReadError, match=field):
        records.decode(json.dumps(document | {field: value}).encode())


def test_bandwidths_follow_from_work_and_median(stored_run: Path) -> None:
    lines = (stored_run / "records.jsonl").read_bytes().splitlines()
    large, failed, barrier = (records.decode(lines[i]) for i in (2, 3, 6))
    assert large.algbw == pytest.approx(1048576 / 2.2e-4 / 1e9)
    assert large.busbw == pytest.approx(1.5 * 1048576 / 2.2e-4 / 1e9)
    assert (failed.algbw, failed.busbw) == (None, None)
    assert (barrier.algbw, barrier.busbw) == (0.0, 0.0)


def test_the_stored_run_is_written_as_it_was(stored_run: Path) -> None:
    """What it says, with what it leaves out: another field is another schema."""
    for line in (stored_run / "records.jsonl").read_bytes().splitlines():
        before, now = json.loads(line), json.loads(records.encode(records.decode(line)))
        assert now | {name: before[name] for name in before if name not in ("work", "ranks")} == now
        for part in ("work", "ranks"):
            assert (before[part] is None) == (now[part] is None)
            assert (before[part] or {}).items() <= (now[part] or {}).items()
    whole = (stored_run / "manifest.json").read_bytes()
    before = json.loads(whole)
    now = json.loads(manifests.encode(manifests.decode(whole)))
    assert {name for name in now if name not in before} == {"experiment", "rank_gpus"}
    of_host = {"clock_step", "cache", "priority", "huge_pages", "gpus", "disks"}
    assert [set(one) - set(was) for one, was in zip(now["hosts"], before["hosts"], strict=True)] == [of_host] * 2


@pytest.mark.parametrize("changed", [
    {"min": 2.0}, {"p50": 0.0}, {"p95": 0.0}, {"p99": 0.0}, {"max": 0.0}, {"mean": 2.0}, {"ci95": [0.0, 0.0]},
    {"ci95": [2.0, 2.0]},
])  # fmt: skip
@pytest.mark.parametrize("where", ["seconds", "device", "leg"])
def test_a_summary_in_no_order_is_refused(stored_run: Path, where: str, changed: dict[str, Any]) -> None:
    document = json.loads((stored_run / "records.jsonl").read_text().splitlines()[0])
    summary = document["seconds"]
    assert records.decode(json.dumps(document | {"device": summary, "legs": {"leg": summary}}).encode()).device
    places = {"legs": {"leg": summary | changed}} if where == "leg" else {where: summary | changed}
    with pytest.raises(RunReadError, match=where):
        records.decode(json.dumps(document | places).encode())


# A line as this program writes it is decoded in two parts; what it says must not depend on that ----------------------


@pytest.fixture
def first(stored_run: Path) -> Record:
    """A measured record."""
    return records.decode((stored_run / "records.jsonl").read_bytes().splitlines()[0])


def document_of(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(records.encode(record))
    return document


def test_launches_of_one_case_share_it(first: Record) -> None:
    line = records.encode(first)
    later = records.encode(msgspec.structs.replace(first, launch=3))
    one, other = records.decode(line), records.decode(later)
    assert (one, other.launch) == (first, 3)
    assert one.case is other.case


def test_cases_in_one_place_share_it(first: Record) -> None:
    """A hundred thousand cases in a few places."""
    cases = [
        first.case.having(size=size, policy=policy) for size, policy in ((8, "multi"), (16, "multi"), (8, "single"))
    ]
    one, other, elsewhere = (
        records.decode(records.encode(msgspec.structs.replace(first, case=case))).case.where for case in cases
    )
    assert one is other
    assert [one, elsewhere] == [cases[0].where, cases[2].where]


def test_cases_that_differ_are_not_confused(first: Record) -> None:
    sizes = [
        records.decode(records.encode(msgspec.structs.replace(first, case=first.case.having(size=size)))).case["size"]
        for size in (8, 16, 8)
    ]
    assert sizes == [8, 16, 8]


def test_a_setting_called_launch_is_no_end_of_the_case(first: Record) -> None:
    for number in (1, 2):
        case = Case(workload="program", what={"first": "a", "launch": number})
        line = records.encode(msgspec.structs.replace(first, case=case, launch=7))
        assert (records.decode(line).case, records.decode(line).launch) == (case, 7)


def test_the_last_of_two_cases_counts_as_in_any_json(first: Record) -> None:
    document = document_of(first)
    other = msgspec.json.encode(document | {"case": {"workload": "other"}})
    twice = records.encode(first)[:-1] + b"," + other[1:]
    assert records.decode(twice).case == Case(workload="other")


def test_a_document_that_begins_with_something_else_is_read_the_long_way(first: Record) -> None:
    document = document_of(first)
    backwards = msgspec.json.encode(dict(reversed(document.items())))
    assert records.decode(backwards) == first
    headless = records.encode(first).removeprefix(b'{"case":')
    with pytest.raises(RunReadError):
        records.decode(headless)


@pytest.mark.parametrize("case", [None, [], "allreduce", {"workload": "w", "where": {"ranks": 0}}, {"what": {}}])
def test_a_case_that_is_none_is_refused(first: Record, case: object) -> None:
    with pytest.raises(RunReadError, match=r"here: .*case"):
        records.decode(msgspec.json.encode(document_of(first) | {"case": case}), "here")


def test_an_odd_case_is_refused_each_time(first: Record) -> None:
    line = msgspec.json.encode(document_of(first) | {"case": {"workload": "w", "what": {"size": -8}}})
    for _ in range(2):
        with pytest.raises(RunReadError, match=r"here: .*size -8"):
            records.decode(line, "here")


def test_more_cases_than_are_remembered_are_read(first: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_CASES", 2)
    for size in (8, 16, 24, 32, 8):
        case = first.case.having(size=size)
        assert records.decode(records.encode(msgspec.structs.replace(first, case=case))).case == case
    assert len(records._CASES) <= 2


def test_a_case_with_a_long_text_is_read_and_not_remembered(first: Record) -> None:
    line = records.encode(first).replace(b'{"case":{', b'{"case":{' + b" " * records.LONGEST_PART, 1)
    before = dict(records._CASES)
    assert records.decode(line) == first
    assert before == records._CASES


def test_launches_of_another_program_share_their_case(stored_run: Path) -> None:
    """It leaves spaces where this one leaves none."""
    line = json.dumps(json.loads((stored_run / "records.jsonl").read_bytes().splitlines()[0])).encode()
    assert b'", "' in line
    assert records.decode(line).case is records.decode(line).case


def test_what_the_records_of_a_world_share_is_read_once(first: Record) -> None:
    assert first.seconds is not None and first.ranks is not None
    for launch in range(5):
        seconds = msgspec.structs.replace(first.seconds, lag1=launch / 8)
        ranks = msgspec.structs.replace(first.ranks, p50=tuple(launch * p50 for p50 in first.ranks.p50))
        record = msgspec.structs.replace(first, launch=launch, seconds=seconds, ranks=ranks)
        assert records.decode(records.encode(record)) == record
    parts = [part for part in records._PARTS.values() if part is not None]
    assert any(part.ranks is not None and part.ranks.binding == first.ranks.binding for part in parts)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"n":', b'"n":-', "samples.n"),
        (b'"status":"ok"', b'"status":"fine"', "fine"),
        (b'"status":"ok"', b'"status":"ok","speed":1', "speed"),
        (b'"binding":[', b'"binding":[1,', "binding"),
        (b'"shared_gpu":false', b'"shared_gpu":0', "shared_gpu"),
    ],
)
def test_damage_is_refused_after_a_record_of_the_same_world(first: Record, old: bytes, new: bytes, why: str) -> None:
    line = records.encode(first)
    assert old in line
    for _ in range(3):
        assert records.decode(line) == first
        with pytest.raises(RunReadError, match=f"here: .*{why}"):
            records.decode(line.replace(old, new, 1), "here")


def test_the_last_of_two_values_counts_in_what_records_share(first: Record) -> None:
    twice = records.encode(first)[:-1] + b',"launch":9}'
    for _ in range(3):
        assert records.decode(twice).launch == 9
        assert records.decode(records.encode(first)) == first
