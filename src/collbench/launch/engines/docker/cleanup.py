"""What was made over a connection to an engine is removed at the end, or an error says that something is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from collbench.errors import CollbenchError, EngineError
from collbench.launch.engines.docker.containers import Docker

_ADVICE = "collbench launch --sweep removes them."


@contextlib.contextmanager
def nothing_left(engine: Docker) -> Iterator[None]:
    """A context at whose end everything made in it is removed: a launch cannot do that while the engine is away.

    Raises:
        EngineError: something is left. Where another error ends this, its notes say so.
    """
    try:
        yield
    except KeyboardInterrupt as error:  # a second signal: nothing is waited for any more
        error.add_note(f" Containers may be left; {_ADVICE}")
        raise
    except BaseException as error:
        if (leftovers := _leftovers(engine)) is not None:
            error.add_note(f" {leftovers}")
        raise
    if (leftovers := _leftovers(engine)) is not None:
        raise EngineError(leftovers)


def clear(engine: Docker) -> int:
    """Remove all containers and networks of this run; how many remain.

    Raises:
        EngineError: the engine does not answer.
    """
    labels = tuple(f"{name}={value}" for name, value in engine.labels.items())
    engine.remove(engine.labelled(*labels), engine.networks(*labels))
    return len(engine.labelled(*labels)) + len(engine.networks(*labels))


def _leftovers(engine: Docker) -> str | None:
    """Remove everything; what may be left, if anything."""
    try:
        if engine.silent:  # it is asked once more, and for no more than a ping
            engine.wait(lambda: None, limit=0)
        number = clear(engine)
    except CollbenchError as error:
        return f"Containers may be left ({str(error).rstrip('.')}); {_ADVICE}"
    return f"{number} containers and networks are left; {_ADVICE}" if number else None
