"""Left-overs of drivers that were killed: found by label, removed when their driver is gone, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collbench.launch.engine import Engine
from collbench.launch.specs import DRIVER_LABEL


def sweep(engine: Engine) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left; returns the names that were removed, and those of drivers that may be alive."""
    containers, networks = engine.labelled(), engine.networks()
    dead = [found for found in containers if is_dead(_driver(found))]
    orphaned = [found for found in networks if is_dead(_driver(found))]
    engine.remove(dead, orphaned)
    removed = [_name(found) for found in (*dead, *orphaned)]
    return removed, [_name(found) for found in (*containers, *networks) if _name(found) not in removed]


def is_dead(driver: str) -> bool:
    """Whether the process that a label names (boot/pid/start) is gone. Of another boot: gone. A strange label: not."""
    boot, _, rest = driver.partition("/")
    number, _, started = rest.partition("/")
    if not number.isdecimal() or not started.isdecimal():
        return False
    if boot != Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip():
        return True
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[19] != started


def _driver(found: dict[str, Any]) -> str:
    return str((found.get("Labels") or {}).get(DRIVER_LABEL, ""))


def _name(found: dict[str, Any]) -> str:
    names = found.get("Names") or [found.get("Name", "?")]
    return str(names[0]).lstrip("/")
