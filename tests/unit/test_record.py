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


def test_a_newer_schema_is_refused_with_the_version_it_needs(kind: tuple[Decode, dict[str, Any]]) -> None:
    decode, document = kind
    newer = json.dumps(document | {"schema": records.SCHEMA + 1, "tomorrow": True}).encode()
    with pytest.raises(RunReadError, match=rf"schema {records.SCHEMA + 1}; .* {records.SCHEMA}\."):
        decode(newer, "here")


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


def test_older_schemas_are_migrated_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(document: dict[str, Any]) -> dict[str, Any]:
        return {"middle" if name == "old" else name: value for name, value in document.items()}

    def double(document: dict[str, Any]) -> dict[str, Any]:
        return {"new": document["middle"] * 2}

    monkeypatch.setattr(records, "SCHEMA", 3)
    monkeypatch.setattr(records, "MIGRATIONS", {1: rename, 2: double})
    assert records.migrate({"schema": 1, "old": 4}, "here") == {"new": 8}
    assert records.migrate({"schema": 2, "middle": 4}, "here") == {"new": 8}
    assert records.migrate({"schema": 3, "new": 4}, "here") == {"schema": 3, "new": 4}


def test_every_schema_before_today_has_a_migration() -> None:
    assert sorted(records.MIGRATIONS) == list(range(1, records.SCHEMA))


def test_bandwidths_follow_from_work_and_median(stored_run: Path) -> None:
    lines = (stored_run / "records.jsonl").read_bytes().splitlines()
    large, failed, barrier = (records.decode(lines[i]) for i in (2, 3, 6))
    assert large.algbw == pytest.approx(1048576 / 2.2e-4 / 1e9)
    assert large.busbw == pytest.approx(1.5 * 1048576 / 2.2e-4 / 1e9)
    assert (failed.algbw, failed.busbw) == (None, None)
    assert (barrier.algbw, barrier.busbw) == (0.0, 0.0)


def in_four_words(case: dict[str, Any]) -> dict[str, Any]:
    """A case of schema 1, on the host or in containers, as it is written today."""
    what = {"size": case["bytes"], "dtype": case["dtype"], "op": case["op"], "root": case["root"]}
    how = {name: case[name] for name in ("backend", "driver", "thread_level")}
    how |= {"in_place": True} if case["in_place"] else {}
    if case["collective"] == "barrier":
        what = {}
    said = {name: value for name, value in what.items() if value is not None}
    where = {"ranks": case["ranks"]}
    if case.get("image"):
        where |= {"engine": "docker", "image": case["image"], "policy": case["policy"], "isolation": case["isolation"]}
    found = {"workload": case["collective"], "what": said, "how": how, "where": where}
    return {name: value for name, value in found.items() if value != {}}


def test_the_stored_run_is_written_as_it_was(stored_run: Path) -> None:
    """The fields of schema 1, whatever their order, and what schemas 2 to 11 added: another one is another schema."""
    of_record = {
        "schema": 11, "how": None, "alone": None, "duet": None,
        "confinement": [], "burst": 1, "legs": {}, "device": None, "algorithm": None, "protocol": None,
        "gpus": [], "shared_gpu": False, "cpu": None, "messages": [],
        "clock_error": None,
    }  # fmt: skip
    for line in (stored_run / "records.jsonl").read_bytes().splitlines():
        before = json.loads(line)
        now = before | of_record | {"case": in_four_words(before["case"])}
        if before["work"] is not None:
            moved = {"amount": before["work"]["bytes"], "unit": "bytes", "shown": "time"}
            now["work"] = moved | {name: before["work"][name] for name in ("count", "bus_factor")}
        if before["ranks"] is not None:
            now["ranks"] = before["ranks"] | {"gpu": [], "host": [], "siblings": [], "machines": [], "slowest": []}
        assert json.loads(records.encode(records.decode(line))) == now
    whole = (stored_run / "manifest.json").read_bytes()
    before = json.loads(whole)
    of_host: dict[str, Any] = dict.fromkeys(("clock_step", "cache", "priority", "huge_pages")) | {
        "gpus": [],
        "disks": [],
    }
    assert json.loads(manifests.encode(manifests.decode(whole))) == before | {
        "schema": 11,
        "libraries": [library | {"used_by": [], "kernel": None} for library in before["libraries"]],
        "experiment": None,
        "rank_gpus": [],
        "protocol": before["protocol"] | {"burst": 1},
        "hosts": [host | of_host for host in before["hosts"]],
    }


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
