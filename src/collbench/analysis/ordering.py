"""The order in which places stand in tables: from the least isolated to the most."""

from __future__ import annotations

from collbench.schema.axes import step_order
from collbench.schema.case import Case
from collbench.schema.policy import PolicyOrder, policy_order


def place_order(case: Case) -> tuple[str, str, bool, PolicyOrder, int]:
    """Image by image, near before far: from the host through one container to the most isolated."""
    where = case.where
    return (where.image or "", _near_first(where.affinity), not where.on_host, policy_order(where.policy),
            step_order(where.isolation))  # fmt: skip


def _near_first(affinity: str) -> str:
    return "" if affinity == "near" else affinity


def place(case: Case) -> str:
    """`single strict`, `host`."""
    return case.where.text
