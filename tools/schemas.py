"""Writes the JSON Schemas of plans, manifests and records, which the package contains. `make reference`.

The types in the code are the source of all three. A plan's schema has every benchmark with its parameters, so that an
editor completes them, and says what each key means.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from tools.plan_keys import LAUNCH, SIZES, WORLD
from tools.reference import meaning

from collbench import workloads
from collbench.schema.manifest import Manifest
from collbench.schema.plan import WRITTEN_KEYS, Plan
from collbench.schema.record import SCHEMA, Record
from collbench.workloads.program import Program

FOLDER = Path(__file__).parents[1] / "src" / "collbench" / "schema" / "json"
DIALECT, SITE = "https://json-schema.org/draft/2020-12/schema", "https://collbench.github.io/collbench"

JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def of_struct(kind: type[msgspec.Struct], name: str, title: str) -> dict[str, Any]:
    """The schema of a type, at the top of its file."""
    schema = msgspec.json.schema(kind)
    definitions = schema["$defs"]
    for definition in definitions.values():  # as msgspec has it from 0.23 on
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    own = definitions.pop(schema["$ref"].rpartition("/")[2])
    if "schema" in own["properties"]:  # a file without it, or of another version, is refused
        own["properties"]["schema"] = {"const": SCHEMA}
        own["required"].append("schema")
    return {"$schema": DIALECT, "$id": f"{SITE}/{name}", **own, "title": title, "$defs": definitions}


def parameter(of: type, means: str, default: Any) -> dict[str, Any]:
    """A parameter of a benchmark: a value, as text too if it is a number, or a list of them."""
    value = {"type": [JSON_TYPES[of]] + ["string"] * (of is not str)}
    return {"description": means, "default": default, "anyOf": [value, {"type": "array", "items": value}]}


def benchmark(program: Program) -> dict[str, Any]:
    """The table of a benchmark."""
    properties: dict[str, Any] = {"name": {"const": program.name, "description": program.summary}}
    for axis in program.axes:
        of = type(axis.neutral) if axis.neutral is not None else str
        properties[axis.name] = parameter(of, axis.means, axis.neutral)
    if program.sizes:
        properties["size"] = parameter(int, "bytes", list(program.sizes))
    return {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}


def table(**properties: Any) -> dict[str, Any]:
    """One that has these keys, and any others."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def describe(properties: dict[str, Any], meanings: Mapping[str, str]) -> None:
    """What each key means, without links."""
    for key, text in meanings.items():
        properties[key]["description"] = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", meaning(text)).replace(r"\|", "|")


def of_plans() -> dict[str, Any]:
    """Every key, and the table of each benchmark that comes with collbench; others have any keys."""
    schema = of_struct(Plan, "plan.schema.json", "Plan of collbench")
    for key in WRITTEN_KEYS:
        del schema["properties"][key]
    describe(schema["properties"], WORLD | LAUNCH)
    describe(schema["$defs"]["Sizes"]["properties"], SIZES)
    known = [name for name in workloads.names() if name != "command"]
    named = {"anyOf": [{"enum": known}, {"type": "string"}]}
    command = table(command={"description": "a command of yours"})
    other = table(name={"not": {"enum": known}})
    tables = [benchmark(workloads.get(name)) for name in known]
    schema["properties"]["benchmarks"]["items"] = {"anyOf": [named, *tables, command, other]}
    return schema


def schemas() -> dict[Path, str]:
    """The text of each file."""
    made = {
        "plan.schema.json": of_plans(),
        **{
            f"{word}-{SCHEMA}.schema.json": of_struct(kind, f"{word}-{SCHEMA}.schema.json", f"A {word} of collbench")
            for word, kind in (("manifest", Manifest), ("record", Record))
        },
    }
    return {
        FOLDER / name: json.dumps(schema, ensure_ascii=False, separators=(",", ":")) + "\n"
        for name, schema in made.items()
    }
