"""From a prepared row to the call of the timing loop: every C call as machine words of the library that has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from collbench.bindings.spec import Backend
from collbench.collectives.row import Binder, C, Collective, Part, Prepared
from collbench.errors import Unsupported
from collbench.timing.call import Call, Halt, Native, Stage, Stopwatch


def binder_of(backend: Backend, row: Collective, dialect: str = "", title: str = "") -> Binder:
    """What makes a backend's call of a row: its own binder, else the row's for the dialect (`title` in messages).

    Raises:
        Unsupported: there is neither.
    """
    binder = backend.binders.get(row.name) or row.dialects.get(dialect)
    if binder is None:
        raise Unsupported(f"{row.name} has no {title or backend.name} form")
    return binder


class Symbols(Protocol):
    """The C functions of a library, or of several."""

    def native(self, call: C) -> Native | None:
        """The call as words; None where no library here has the function."""


def make_call(
    prepared: Prepared,
    symbols: Symbols,
    keep: tuple[object, ...],
    completion: Stage | None = None,
    stopwatch: Stopwatch | None = None,
    halt: Halt | None = None,
) -> Call:
    """The call of a prepared row, in both forms. `halt`: the session's, where it may take its library down."""
    missing = [call.function for part in prepared.all_parts for call in part.c or () if symbols.native(call) is None]
    reason = f"{missing[0]} was not found in the library" if missing else None
    stages = tuple(stage_of(part, symbols) for part in prepared.all_parts)
    return Call(stages, completion, stopwatch, reason, (prepared, *keep), halt or Halt())


def stage_of(part: Part, symbols: Symbols) -> Stage:
    """A part with its C calls as words."""
    if part.c is None:
        return Stage(part.python, None, part.name)
    calls = tuple(native for call in part.c if (native := _native(call, symbols)) is not None)
    return Stage(part.python, calls if len(calls) == len(part.c) else None, part.name)


def _native(call: C, symbols: Symbols) -> Native | None:
    native = symbols.native(call)
    if native is None or call.after_error is None:
        return native
    return replace(native, after_error=symbols.native(call.after_error))


class AllOf:
    """Several libraries as one: a function is taken from the first that has it. None is one that is not used."""

    def __init__(self, *libraries: Symbols | None) -> None:
        self._libraries = tuple(library for library in libraries if library is not None)

    def native(self, call: C) -> Native | None:
        calls = (library.native(call) for library in self._libraries)
        return next((native for native in calls if native is not None), None)
