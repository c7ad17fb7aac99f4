"""The JSON Schemas in the package: as the code has them, and true of every plan and every committed run."""

from __future__ import annotations

import json
import random
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.unit.manual import ROOT
from tools import schemas

from collbench.schema.plan import LAUNCH_KEYS, WORLD_KEYS, plan_from

PLANS = sorted(path for path in (ROOT / "launch").glob("*.toml"))
RUNS = sorted(path.parent for path in (ROOT / "results").rglob("manifest.json"))
BASE = {"collectives": ["allreduce"], "sizes": ["8"]}


@cache
def validator(name: str) -> Any:
    schema = json.loads((schemas.FOLDER / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def mistakes(name: str, document: object) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:300] for error in validator(name).iter_errors(document)]


def test_files_are_as_the_code_has_them() -> None:
    made = schemas.schemas()
    assert set(schemas.FOLDER.iterdir()) == set(made)
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make reference"


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_plans_that_come_with_the_package(path: Path) -> None:
    assert mistakes("plan.schema.json", tomllib.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "key",
    [
        {"collectivs": ["allreduce"]}, {"check": "twice"}, {"unusable": "ignore"}, {"sizes": {"most": 8}},
        {"benchmarks": [{"name": "stream", "thread": 2}]}, {"benchmarks": [{"name": "stream", "threads": 1.5}]},
        {"benchmarks": [{}]}, {"sides": {"new": {"image": {}}}}, {"only": ["x"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_plan_that_is_refused(key: dict[str, Any]) -> None:
    assert mistakes("plan.schema.json", BASE) == []
    assert len(mistakes("plan.schema.json", BASE | key)) == 1


@pytest.mark.parametrize(
    "key",
    [
        {"sizes": {"min": "8", "max": "64", "step": 8}},
        {"benchmarks": ["stream", {"name": "stream", "threads": ["2", 4]}]},
        {"benchmarks": [{"command": ["true"], "metric": "(1)"}]}, {"benchmarks": [{"name": "of-a-package", "any": 1}]},
        {"cores_per_rank": "share", "images": ["openmpi"], "launches": 3, "sides": {"new": {"variables": {"A": "1"}}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_plan_that_is_read(key: dict[str, Any]) -> None:
    assert mistakes("plan.schema.json", BASE | key) == []
    if "of-a-package" not in str(key):
        plan_from(BASE | key, (*WORLD_KEYS, *LAUNCH_KEYS), Path("plan.toml"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.relative_to(ROOT / "results")))
def test_manifests_of_committed_runs(run: Path) -> None:
    assert mistakes("manifest-1.schema.json", json.loads((run / "manifest.json").read_text(encoding="utf-8"))) == []


def records() -> list[str]:
    return [line for run in RUNS for line in (run / "records.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_tenth_of_the_records_of_committed_runs() -> None:
    lines = records()
    chosen = random.Random(1).sample(lines, len(lines) // 10)  # noqa: S311 - no secret
    assert {line: found for line in chosen if (found := mistakes("record-1.schema.json", json.loads(line)))} == {}


@pytest.mark.rare
@pytest.mark.slow
def test_all_records_of_committed_runs() -> None:
    assert {line: found for line in records() if (found := mistakes("record-1.schema.json", json.loads(line)))} == {}


def test_a_record_that_is_refused() -> None:
    record = json.loads(records()[0])
    assert mistakes("record-1.schema.json", record) == []
    for changed in ({"status": "fine"}, {"case": None}, {"seconds": 1}):
        assert mistakes("record-1.schema.json", record | changed)
    del record["case"]
    assert mistakes("record-1.schema.json", record)
