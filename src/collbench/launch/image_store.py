"""The images of an engine: looked up, built, untagged, and asked by running a command in one."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable
from typing import Any

from collbench.errors import EngineError, ImageMissing
from collbench.launch.connection import ANSWER, Connection, translated
from collbench.launch.identity import driver_identity
from collbench.launch.specs import DRIVER_LABEL, RUN_LABEL

#: Longest wait for the next line of a build (s), and lines of a failed build that its message holds.
BUILD_SILENCE, BUILD_LINES = 600, 8


def inspect(engine: Connection, reference: str) -> dict[str, Any]:
    """What the engine knows of an image: id, digests, labels.

    Raises:
        ImageMissing: it is not there.
    """
    import docker.errors

    with translated(f"image {reference}"):
        try:
            found: dict[str, Any] = engine.client.api.inspect_image(reference)
        except docker.errors.ImageNotFound as error:
            raise ImageMissing(f"image {reference}: not on this engine ({engine.host}).") from error
    return found


def labelled(engine: Connection, label: str) -> list[dict[str, Any]]:
    """Images with a label, as the engine lists them."""
    with translated("listing images"):
        found: list[dict[str, Any]] = engine.client.api.images(filters={"label": label})
        return found


def build(
    engine: Connection, context: bytes, dockerfile: str, tag: str, arguments: dict[str, str], no_cache: bool,
    labels: dict[str, str], hear: Callable[[str], None],
) -> None:  # fmt: skip
    """Build and tag an image from a context in a tar; the builder's lines go to `hear`.

    Raises:
        EngineError: it failed; the builder's last lines are in the message.
    """
    said: deque[str] = deque(maxlen=BUILD_LINES)
    with translated(f"image {tag}"):
        stream = engine.client.api.build(
            fileobj=io.BytesIO(context), custom_context=True, dockerfile=dockerfile, tag=tag, buildargs=arguments,
            nocache=no_cache, labels=labels, rm=True, forcerm=True, decode=True, timeout=BUILD_SILENCE,
        )  # fmt: skip
        for piece in stream:
            if "error" in piece:
                last = " | ".join(line.strip() for line in said)
                raise EngineError(f"image {tag}: the build failed: {piece['error'].strip()} Last lines: {last}")
            for line in str(piece.get("stream", "")).splitlines():
                if line.strip():
                    said.append(line)
                    hear(line)


def untag(engine: Connection, tag: str) -> None:
    """Take a tag away from an image."""
    with translated(f"image {tag}"):
        engine.client.api.remove_image(tag, noprune=True)


def run_once(engine: Connection, reference: str, argv: tuple[str, ...], **settings: Any) -> tuple[int, str]:
    """A command in a container of its own: exit code, and what it printed. The container is removed."""
    with translated(f"image {reference}: cannot run {argv[0]}"):
        labels = {RUN_LABEL: "probe", DRIVER_LABEL: driver_identity()}  # to be swept if we are killed
        made = engine.client.containers.create(reference, list(argv), init=True, labels=labels, **settings)
    try:
        with translated(f"image {reference}: cannot run {argv[0]}"):
            made.start()
            code = int(made.wait(timeout=ANSWER)["StatusCode"])
            return code, made.logs().decode("utf-8", "replace")
    finally:
        with contextlib.suppress(Exception):
            made.remove(force=True)
