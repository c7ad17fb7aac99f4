"""Records and manifests as JSON: what is written is read back, what is not ours is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import RunReadError
from collbench.schema import manifest as manifests
from collbench.schema import record as records

Decode = Callable[..., Any]


@pytest.fixture(params=["record", "manifest"])
def kind(request: pytest.FixtureRequest, stored_run: Path) -> tuple[Decode, dict[str, Any]]:
    """A decoder, and a document that it reads."""
    if request.param == "record":
        return records.decode, json.loads((stored_run / "records.jsonl").read_text().splitlines()[0])
    return manifests.decode, json.loads((stored_run / "manifest.json").read_text())


def test_a_document_of_today_is_read(kind: tuple[Decode, dict[str, Any]]) -> None:
    decode, document = kind
    assert decode(json.dumps(document).encode()).schema == records.SCHEMA == 11


@pytest.mark.parametrize("other", [-1, 1])
def test_another_schema_is_refused_with_the_version_it_has(kind: tuple[Decode, dict[str, Any]], other: int) -> None:
    decode, document = kind
    line = json.dumps(document | {"schema": records.SCHEMA + other, "tomorrow": True}).encode()
    with pytest.raises(RunReadError, match=rf"schema {records.SCHEMA + other}; .* {records.SCHEMA}\."):
        decode(line, "here")


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.5, [1]])
def test_a_document_without_a_version_is_not_ours(kind: tuple[Decode, dict[str, Any]], version: object) -> None:
    decode, document = kind
    with pytest.raises(RunReadError, match="here: no schema version"):
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
    with pytest.raises(RunReadError, match=f"{where} are not in order: min"):
        records.decode(json.dumps(document | places).encode())
