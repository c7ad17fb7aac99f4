"""A site file: what somebody who knows a cluster says of it once. It says where, never what is measured."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from collbench.errors import PlanError

Described = TypeVar("Described")


def read_site(path: str, engine: str, kind: type[Described]) -> Described:
    """The table of an engine in a site file.

    Raises:
        PlanError: no file was named, it cannot be read, has no such table, or a key that is unknown or of another type.
    """
    if not path:
        raise PlanError(f"engine {engine}: needs a site file, which describes the cluster. Name it: --site site.toml.")
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"site {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"site {path}: is not TOML: {error}.") from error
    if engine not in document:
        raise PlanError(f"site {path}: has no table [{engine}]. docs/cluster.md shows one.")
    try:
        return msgspec.convert(document[engine], kind)
    except msgspec.ValidationError as error:
        raise PlanError(f"site {path}: [{engine}]: {error}.") from error
