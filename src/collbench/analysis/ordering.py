"""The order in which places and other choices stand in tables: from the least isolated to the most."""

from __future__ import annotations

from collbench.schema.case import Case

#: From no isolation at all to what Docker gives by default.
STEPS = (None, "visible", "net", "ipc", "limits", "strict")

#: After these come `packed:K` (the more ranks share a container, the earlier) and `single`.
_POLICIES = ("host", "multi")


def policy_order(policy: str) -> tuple[int, int, str]:
    """`host`, `multi`, `packed:4`, `packed:2`, `single`; memory that is near before memory that is far."""
    kind, _, affinity = policy.partition("/")
    if kind in _POLICIES:
        return (_POLICIES.index(kind), 0, affinity)
    _, _, shared = kind.partition(":")
    return (2, -int(shared), affinity) if shared.isdecimal() and len(shared) < 10 else (3, 0, affinity)


def step_order(step: str | None) -> int:
    """Place of a step on the ladder; an unknown one stands last."""
    return STEPS.index(step) if step in STEPS else len(STEPS)


def place_order(case: Case) -> tuple[str, str, tuple[int, int, str], int]:
    """Image by image, near before far: from the host through one container to the most isolated."""
    _, _, affinity = case.policy.partition("/")
    return (case.image or "", affinity, policy_order(case.policy), step_order(case.isolation))


def place(case: Case) -> str:
    """`single strict`, `host`."""
    return " ".join(word for word in (case.policy, case.isolation) if word)
