"""What a backend hands to the timing loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: A C function's address, then its arguments as machine words.
Words = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One operation in its two forms.

    `python` performs it and returns when this rank's part is complete. `native` is None where the library has no C
    function, or none that can be called; `why_not_native` says so. `completion` is called after `native`, inside the
    sample. `explain` turns the library's error code into its words. `keep` holds whatever must stay alive while the
    words are in use.
    """

    python: Callable[[], object]
    native: Words | None = None
    completion: Words | None = None
    why_not_native: str | None = None
    explain: Callable[[int], str] | None = None
    keep: tuple[object, ...] = ()
