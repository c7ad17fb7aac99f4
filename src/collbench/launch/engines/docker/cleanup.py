"""What was made over a connection to an engine is removed at the end, or it is said that something is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from collbench.errors import CollbenchError, EngineError
from collbench.launch.engines.docker.containers import Docker

#: What to do about what may be left.
_ADVICE = "collbench launch --sweep removes them."


@contextlib.contextmanager
def nothing_left(engine: Docker) -> Iterator[None]:
    """Whatever ends this, what was made meanwhile is removed: a launch cannot remove its own where the engine is away.

    Raises:
        EngineError: something is left. Where another error ends this, its notes say so.
    """
    try:
        yield
    except KeyboardInterrupt as error:  # asked twice to stop: nothing is waited for any more
        error.add_note(f" Containers may be left; {_ADVICE}")
        raise
    except BaseException as error:
        if (left := _left(engine)) is not None:
            error.add_note(f" {left}")
        raise
    if (left := _left(engine)) is not None:
        raise EngineError(left)


def clear(engine: Docker) -> int:
    """Remove all containers and networks of this run; how many are still there.

    Raises:
        EngineError: the engine does not answer.
    """
    mine = tuple(f"{name}={value}" for name, value in engine.labels.items())
    engine.remove(engine.labelled(*mine), engine.networks(*mine))
    return len(engine.labelled(*mine)) + len(engine.networks(*mine))


def _left(engine: Docker) -> str | None:
    """Why something may be left, if so."""
    try:
        if engine.silent:  # it is asked once more, and for no more than a ping
            engine.wait(lambda: None, limit=0)
        number = clear(engine)
    except CollbenchError as error:
        return f"Containers may be left ({str(error).rstrip('.')}); {_ADVICE}"
    return f"{number} containers and networks are left; {_ADVICE}" if number else None
