"""The order in which places and other choices stand in tables: from the least isolated to the most."""

from __future__ import annotations

from collbench.schema import policy as schema
from collbench.schema.case import Case

#: From no isolation at all to what Docker gives by default.
STEPS = (None, "visible", "net", "ipc", "limits", "strict")

#: As `policy_order` gives it: class of isolation, name, number, affinity.
PolicyOrder = tuple[int, str, int, str]


def policy_order(policy: str) -> PolicyOrder:
    """`host`, `multi`, others by name (`packed:4`, `packed:2`), `single`; near memory before memory that is far."""
    kind, _, affinity = policy.partition("/")
    return (*schema.policy_order(kind), affinity)


def step_order(step: str | None) -> int:
    """Place of a step on the ladder; an unknown one stands last."""
    return STEPS.index(step) if step in STEPS else len(STEPS)


def place_order(case: Case) -> tuple[str, str, PolicyOrder, int]:
    """Image by image, near before far: from the host through one container to the most isolated."""
    _, _, affinity = case.policy.partition("/")
    return (case.image or "", affinity, policy_order(case.policy), step_order(case.isolation))


def place(case: Case) -> str:
    """`single strict`, `host`."""
    return " ".join(word for word in (case.policy, case.isolation) if word)
