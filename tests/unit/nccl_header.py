"""What a header of NCCL declares, of what we call; as a program it prints that of several headers as JSON.

python -m tests.unit.nccl_header NCCL_H... > tests/unit/nccl-headers.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TypedDict

VALUES = re.compile(
    r"(?<!p)\b(nccl(?:Int8|Uint8|Int32|Uint32|Int64|Uint64|Float16|Float32|Float64|Bfloat16|Float8e4m3|Float8e5m2"
    r"|Sum|Prod|Max|Min|Avg))\s*=\s*(\d+)"
    r"|#define\s+(NCCL_WIN_\w+|NCCL_CTA_POLICY_\w+)\s+(0x\w+|\d+)"
)
FUNCTION = re.compile(
    r"^ncclResult_t\s+(nccl(?:AllReduce|Reduce|Broadcast|AllGather|ReduceScatter|Send|Recv|AlltoAll|Gather|Scatter|GroupStart"
    r"|GroupEnd|MemAlloc|MemFree|CommRegister|CommDeregister|CommWindowRegister|CommWindowDeregister|GetVersion))"
    r"\s*\(([^)]*)\)",
    re.MULTILINE,
)
CONFIG = re.compile(r"typedef struct ncclConfig_v\d+ \{(.*?)\} ncclConfig_t;", re.DOTALL)
FIELD = re.compile(r"^\s*((?:const |unsigned )?\w+(?: ?\*)?) ?(\w+);", re.MULTILINE)
VERSION = re.compile(r"#define NCCL_(MAJOR|MINOR|PATCH) (\d+)")


class Header(TypedDict):
    """`functions` have the types of their parameters without names, `config` the fields of ncclConfig_t with theirs."""

    values: dict[str, int]
    functions: dict[str, list[str]]
    config: list[str]


def parameters(text: str) -> list[str]:
    """`const void* sendbuff, int` -> [`const void*`, `int`]."""
    parts = [" ".join(part.split()) for part in text.split(",")]
    types = (re.sub(r"\s*\b\w+$", "", part) if re.search(r"[\w*] ?\b\w+$", part) else part for part in parts)
    return [kind.replace(" *", "*") for kind in types if kind not in ("", "void")]


def declared(text: str) -> tuple[str, Header]:
    """The version, and what it declares."""
    numbers = dict(VERSION.findall(text))
    values = {name or macro: int(value or number, 0) for name, value, macro, number in VALUES.findall(text)}
    functions = {name: parameters(arguments) for name, arguments in FUNCTION.findall(text)}
    (struct,) = CONFIG.findall(text)
    config = [f"{kind.replace(' *', '*')} {name}" for kind, name in FIELD.findall(struct)]
    version = ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    return version, Header(values=values, functions=functions, config=config)


if __name__ == "__main__":
    headers = dict(declared(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:])
    sys.stdout.write(json.dumps(headers, indent=1, sort_keys=True) + "\n")
