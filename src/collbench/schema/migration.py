"""Records and baselines of older schemas, as plain decoded JSON, in the words of today."""

from __future__ import annotations

from typing import Any

#: Fields of a case up to schema 4, and where they went.
_WHAT = {"bytes": "size", "dtype": "dtype", "op": "op", "root": "root"}
_HOW = ("backend", "driver", "thread_level", "in_place", "staging", "algorithm", "protocol", "registered", "graph")
_WHERE = ("ranks", "image", "isolation")

#: The only operation of those schemas that moves nothing.
_SIZELESS = "barrier"


def to_5(document: dict[str, Any]) -> dict[str, Any]:
    """From schema 4 to 5: a case says what, how and where, and work is an amount of a unit. Manifests stay."""
    found = document | {"schema": 5}
    if "case" in document:
        found["case"] = case_to_5(document["case"])
    if isinstance(work := document.get("work"), dict) and "bytes" in work:
        found["work"] = {"amount" if name == "bytes" else name: value for name, value in work.items()}
    return found


def case_to_5(case: Any) -> Any:
    """A flat case as workload, what, how and where; whatever is unknown in it stays, and is refused by its decoder."""
    if not isinstance(case, dict) or "collective" not in case:
        return case
    rest = dict(case)
    workload = rest.pop("collective")
    what = {name: rest.pop(old) for old, name in _WHAT.items() if old in rest}
    how = {name: rest.pop(name) for name in _HOW if name in rest}
    where = {name: rest.pop(name) for name in _WHERE if rest.get(name) is not None}
    policy = rest.pop("policy", "host")
    if isinstance(policy, str):
        policy, _, affinity = policy.partition("/")
        where |= {"affinity": affinity} if affinity else {}
        where |= {} if policy == "host" else {"policy": policy, "engine": "docker"}
    else:
        where["policy"] = policy
    if workload == _SIZELESS:
        what = {name: value for name, value in what.items() if name not in ("size", "dtype")}
    rest = {name: value for name, value in rest.items() if name not in _WHERE}  # null there
    return {"workload": workload, "what": what, "how": how, "where": where, **rest}
