"""Starters: how each library starts its ranks across containers. One file for each: a pure table of commands."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from collbench.errors import ImageMissing
from collbench.launch.starters.starter import Starter
from collbench.registry import defined


@cache
def names() -> tuple[str, ...]:
    """Every library that can be started.

    Raises:
        OSError: this folder cannot be read, as where too many files are open.
    """
    files = (path.stem for path in Path(__file__).parent.iterdir() if path.suffix == ".py")
    return tuple(sorted(name for name in files if name not in ("__init__", "starter")))


def get(vendor: str, image: str) -> Starter:
    """The starter of the library in an image (or environment).

    Raises:
        ImageMissing: it holds no library that can be started.
    """
    if vendor not in names():
        raise ImageMissing(f"image {image}: holds {vendor or 'no MPI'}; the launcher starts {', '.join(names())}.")
    starter: Starter = defined(__name__, vendor, "STARTER")
    return starter
