"""The images of an engine: looked up, built, untagged, and a command run in one."""

from __future__ import annotations

import contextlib
import io
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collbench.errors import EngineError, ImageMissing
from collbench.launch.engines.docker.connection import ANSWER, Connection, objects, translated
from collbench.launch.engines.docker.specs import ACCOUNT, PROCESSES

#: Longest wait for the next line of a build (s), and last lines of a failed build in its message.
BUILD_SILENCE, BUILD_LINES = 600, 8

#: Last lines that are read of a container's output, and the interval of looking whether it ended (s).
LINES, LOOK = 200, 0.05


@dataclass(frozen=True)
class Resolved:
    """The name of an image, for messages, and the id that the name stood for when it was looked up."""

    name: str
    id: str


def resolve(engine: Connection, reference: str) -> Resolved:
    """The image that has this name now; later another image may get it.

    Raises:
        ImageMissing: the engine does not have it.
    """
    return Resolved(reference, str(inspect(engine, reference)["Id"]))


def inspect(engine: Connection, reference: str) -> dict[str, Any]:
    """What the engine knows of an image: id, digests, labels.

    Raises:
        ImageMissing: the engine does not have it.
    """
    import docker.errors

    with translated(f"image {reference}"):
        try:
            (image,) = objects([engine.client.api.inspect_image(reference)])
        except docker.errors.ImageNotFound as error:
            raise ImageMissing(f"image {reference}: not on this engine ({engine.host}).") from error
    return image


def labelled(engine: Connection, label: str) -> list[dict[str, Any]]:
    """Images with a label, as the engine lists them."""
    with translated("listing images"):
        return objects(engine.client.api.images(filters={"label": label}))


def build(
    engine: Connection, context: bytes, dockerfile: str, tag: str, arguments: dict[str, str], no_cache: bool,
    labels: dict[str, str], on_line: Callable[[str], None],
) -> None:  # fmt: skip
    """Build and tag an image from a context in a tar; the builder's lines go to `on_line`.

    Raises:
        EngineError: it failed; the builder's last lines are in the message.
    """
    last: deque[str] = deque(maxlen=BUILD_LINES)
    with translated(f"image {tag}"):
        stream = engine.client.api.build(
            fileobj=io.BytesIO(context), custom_context=True, dockerfile=dockerfile, tag=tag, buildargs=arguments,
            nocache=no_cache, labels=labels, rm=True, forcerm=True, decode=True, timeout=BUILD_SILENCE,
        )  # fmt: skip
        for piece in stream:
            if "error" in piece:
                lines = " | ".join(line.strip() for line in last)
                raise EngineError(f"image {tag}: the build failed: {piece['error'].strip()} Last lines: {lines}")
            for line in filter(str.strip, str(piece.get("stream", "")).splitlines()):
                last.append(line)
                on_line(line)


def untag(engine: Connection, tag: str) -> None:
    with translated(f"image {tag}"):
        engine.client.api.remove_image(tag, noprune=True)


def run_once(
    engine: Connection, image: Resolved, argv: tuple[str, ...], user: str | None = None,
    variables: Mapping[str, str] | None = None, **settings: Any,
) -> tuple[int, str]:  # fmt: skip
    """Run a command in a container of its own: exit code, and the end of its output. The container is removed.

    Without `user` it is the image's; a user that is given has no account there (`ACCOUNT`). `settings` are those of
    `create_host_config`. A container that cannot be removed is found by the labels of `engine` later
    (`containers.nothing_left`).

    Raises:
        EngineError: it could not be run, or did not end within `ANSWER` seconds.
        Interrupted: told to stop.
    """
    what = f"image {image.name}: cannot run {argv[0]}"
    api, number = engine.client.api, None
    try:
        with translated(what):
            host = api.create_host_config(init=True, log_config=_log(), pids_limit=PROCESSES, **settings)
            account = (dict(ACCOUNT) if user is not None else {}) | dict(variables or {}) or None
            made = api.create_container(
                image.id, list(argv), user=user, environment=account, labels=engine.labels, host_config=host
            )
            number = made["Id"]
            api.start(number)
            return _exit_code(engine, number, what), api.logs(number, tail=LINES).decode("utf-8", "replace")
    finally:
        if number is not None:
            with contextlib.suppress(Exception):
                api.remove_container(number, force=True, v=True)


def _log() -> Any:
    """A bounded log: the engine keeps what an image prints until the container is removed."""
    import docker.types

    return docker.types.LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"})


def _exit_code(engine: Connection, number: str, what: str) -> int:
    """The exit code of a container once it ends. Polled, so that a signal can end the wait."""
    until = time.monotonic() + ANSWER
    while (state := engine.client.api.inspect_container(number)["State"])["Status"] not in ("exited", "dead"):
        engine.check()
        if time.monotonic() > until:
            raise EngineError(f"{what}: it did not end within {ANSWER} s.")
        time.sleep(LOOK)
    return int(state["ExitCode"])
