"""Left-overs of drivers that were killed: found by label, removed when their driver is gone, and nothing else."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from collbench.launch.engine import Engine
from collbench.launch.identity import namespace
from collbench.launch.specs import DRIVER_LABEL, RUN_LABEL
from collbench.launch.world import DRIVER, FOLDER


def sweep(engine: Engine) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left; returns the names that were removed, and those of drivers that may be alive."""
    containers, networks = engine.labelled(), engine.networks()
    running = {_run(found) for found in containers if found.get("State") == "running"}
    dead = [found for found in containers if is_dead(_driver(found), _run(found) in running)]
    orphaned = [found for found in networks if is_dead(_driver(found), _run(found) in running)]
    engine.remove(dead, orphaned)
    kept = [_name(found) for found in (*engine.labelled(), *engine.networks())]
    removed = [_name(found) for found in (*dead, *orphaned) if _name(found) not in kept]
    return [*removed, *sweep_folders()], kept


def sweep_folders() -> list[str]:
    """Remove temporary folders of ours whose driver is dead; returns their paths."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            driver = (folder / DRIVER).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            continue
        if is_dead(driver, running=False):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(str(folder))
    return removed


def is_dead(driver: str, running: bool) -> bool:
    """Whether the process that a label names (boot/PID namespace/pid/start) is gone. A strange label: not.

    Of another boot or namespace: gone when nothing of its run is running; else it drives this engine from another
    machine, or from a container.
    """
    boot, *numbers = driver.split("/")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return False
    place, number, started = numbers
    here = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    if (boot, int(place)) != (here, namespace()):
        return not running
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[19] != started


def _run(found: dict[str, Any]) -> str:
    return str((found.get("Labels") or {}).get(RUN_LABEL, ""))


def _driver(found: dict[str, Any]) -> str:
    return str((found.get("Labels") or {}).get(DRIVER_LABEL, ""))


def _name(found: dict[str, Any]) -> str:
    names = found.get("Names") or [found.get("Name", "?")]
    return str(names[0]).lstrip("/")
