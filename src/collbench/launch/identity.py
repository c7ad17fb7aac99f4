"""Who drives a launch: a name for this process that no later process has."""

from __future__ import annotations

import os
from pathlib import Path


def driver_identity() -> str:
    """Names this process for good: boot, PID namespace, process number, start (clock ticks after boot)."""
    started = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{namespace()}/{os.getpid()}/{started}"


def namespace() -> int:
    """In which a process number means something."""
    return Path("/proc/self/ns/pid").stat().st_ino
