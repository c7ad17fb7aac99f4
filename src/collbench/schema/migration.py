"""Records of older schemas, as plain decoded JSON, brought to the current one."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.schema.axes import Driver, Op, Staging, ThreadLevel
from collbench.schema.untrusted import Count, Name, Rank, RankCount

#: The only operation of those schemas that moves no data.
_SIZELESS = "barrier"


class FlatCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case up to schema 4, as strict as the readers of those schemas were.

    `policy` ends in `/far` where memory was on another node than the cores.
    """

    collective: Name
    backend: Name
    driver: Driver
    thread_level: ThreadLevel
    bytes: Count
    dtype: Name
    op: Op | None
    root: Rank | None
    ranks: RankCount
    in_place: bool = False
    image: Name | None = None
    policy: Name = "host"
    isolation: Name | None = None
    staging: Staging | None = None
    algorithm: Name | None = None
    protocol: Name | None = None
    registered: bool = False
    graph: Count = 0


def to_5(document: dict[str, Any]) -> dict[str, Any]:
    """From schema 4 to 5: a case says what, how and where, and work is an amount of a unit. Manifests stay.

    Raises:
        msgspec.ValidationError: not a case of schema 4.
    """
    migrated = document | {"schema": 5}
    if "case" in document:
        migrated["case"] = case_to_5(document["case"])
    work = document.get("work")
    if isinstance(work, dict) and "bytes" in work and "amount" not in work:
        migrated["work"] = {"amount" if name == "bytes" else name: value for name, value in work.items()}
    return migrated


def case_to_5(case: Any) -> dict[str, Any]:
    """A flat case as workload, what, how and where. Every container of those schemas was Docker's.

    Raises:
        msgspec.ValidationError: an unknown or missing field, or a value of the wrong type.
    """
    flat = msgspec.convert(case, FlatCase)
    policy, _, affinity = flat.policy.partition("/")
    what: dict[str, Any] = {"op": flat.op, "root": flat.root}
    if flat.collective != _SIZELESS:
        what |= {"size": flat.bytes, "dtype": flat.dtype}
    how = {
        "backend": flat.backend, "driver": flat.driver, "thread_level": flat.thread_level, "in_place": flat.in_place,
        "staging": flat.staging, "algorithm": flat.algorithm, "protocol": flat.protocol,
        "registered": flat.registered, "graph": flat.graph,
    }  # fmt: skip
    where = {
        "ranks": flat.ranks, "engine": "host" if policy == "host" else "docker", "image": flat.image,
        "policy": policy, "isolation": flat.isolation, "affinity": affinity or "near",
    }  # fmt: skip
    return {"workload": flat.collective, "what": what, "how": how, "where": where}
