"""NCCL's own log: where NCCL_DEBUG_FILE says, of the subsystems that NCCL_DEBUG_SUBSYS says, read when first needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO


class DoubleLog:
    """Reads the environment at the first line, and again after `reset`."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._subsystems: frozenset[str] | None = None

    def reset(self) -> None:
        """ncclResetDebugInit."""
        self._subsystems = None

    def _open(self) -> frozenset[str]:
        level = os.environ.get("NCCL_DEBUG", "")
        names = os.environ.get("NCCL_DEBUG_SUBSYS", "INIT").split(",") if level == "INFO" else ()
        where = os.environ.get("NCCL_DEBUG_FILE")
        self._file = Path(where).open("w", encoding="utf-8", buffering=1) if where and names else None  # noqa: SIM115
        return frozenset(names)

    def info(self, subsystem: str, text: str) -> None:
        """A line, where this subsystem is logged and a file is named."""
        if subsystem in self._logged():
            self._write(f"INFO {text}")

    def warn(self, text: str) -> None:
        """A line, where a file is named."""
        self._logged()
        self._write(f"WARN {text}")

    def _logged(self) -> frozenset[str]:
        """The subsystems."""
        if self._subsystems is None:
            self._subsystems = self._open()
        return self._subsystems

    def _write(self, text: str) -> None:
        if self._file is not None:
            self._file.write(f"double:{os.getpid()}:{os.getpid()} [0] NCCL {text}\n")
