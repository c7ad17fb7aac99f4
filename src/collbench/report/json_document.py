"""Style `json`: one document, `{"manifest": ..., "records": [...]}`, printed at the end so that it is complete."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.schema.manifest import Manifest
from collbench.schema.record import Record


class JsonStyle:
    """Holds everything until the end."""

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._records: list[dict[str, Any]] = []

    def begin(self, manifest: Manifest) -> str:
        self._manifest = manifest
        return ""

    def add(self, record: Record) -> str:
        """Adds bandwidths to the record: `algbw` and `busbw` in GB/s."""
        fields = msgspec.to_builtins(record)
        self._records.append(fields | {"algbw": record.algbw, "busbw": record.busbw})
        return ""

    def end(self) -> str:
        manifest = None if self._manifest is None else msgspec.to_builtins(self._manifest)
        document = msgspec.json.encode({"manifest": manifest, "records": self._records})
        return msgspec.json.format(document, indent=2).decode() + "\n"


STYLE = JsonStyle
