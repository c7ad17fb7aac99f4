"""`--base` and `--other`: what a side of a gate has in place of what the plan says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from collbench.cli.gating.shared_object import HEADER, refuse_missing_needs, refuse_no_library
from collbench.cli.gating.utf8 import refuse_other_bytes
from collbench.errors import RequestError
from collbench.schema.gate_plan import Side
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.untrusted import refuse_irregular
from collbench.spelling import suggestion

Values = dict[str, list[str]]


def side_of(flag: str, texts: Sequence[str], plan: LaunchPlan) -> Side:
    """A side as it was typed: `image=REF`, `env=NAME=VALUE`, `lib=PATH` and `preload=PATH`, each any number of times.

    Raises:
        RequestError: none of them, bytes that are not UTF-8, an image that is not the plan's, a file that cannot be
            read or is no library, or one that needs others which ranks on the host would not find.
    """
    values: Values = {kind: [] for kind in KINDS}
    for text in texts:
        refuse_other_bytes(f"{flag} {text}")
        kind, equals, value = text.partition("=")
        if kind not in KINDS or not equals or not value:
            hint = "" if kind in KINDS else f" {suggestion(kind, tuple(KINDS))}"
            raise RequestError(f"{flag} {text}: write {', '.join(KINDS.values())}.{hint}")
        values[kind].append(value)
    paths = [_whole(path) for path in (*values["lib"], *values["preload"])]
    for path in paths:
        refuse_other_bytes(f"{flag}: {path}")
    files = {path: _hashed(flag, path) for path in paths}
    variables = _variables(flag, values["env"])
    if "host" in plan.policies:
        refuse_missing_needs(flag, files, {**plan.variables, **variables})
    return Side(
        asked=tuple(texts), images=_images(flag, values["image"], plan), variables=variables,
        files=files, preload=tuple(map(_whole, values["preload"])),
    )  # fmt: skip


#: Kinds of what a side has, and how each is written.
KINDS = {"image": "image=REF", "env": "env=NAME=VALUE", "lib": "lib=PATH", "preload": "preload=PATH"}


def _images(flag: str, values: Sequence[str], plan: LaunchPlan) -> dict[str, str]:
    """By the plan's name of an image, the one in its place."""
    found = {}
    for value in values:
        name, equals, reference = value.partition("=")
        if not equals:
            name, reference = plan.images[0], value
        several = len(plan.images) > 1 and not equals
        if several or name not in plan.images:
            listed = ", ".join(plan.images)
            raise RequestError(
                f"{flag} image={value}: the plan's images are {listed}: write image={plan.images[0]}=REF."
            )
        found[name] = reference
    if found and "host" in plan.policies:
        raise RequestError(
            f"{flag} image={values[0]}: the plan has policy host, whose ranks are in no image. Give it policies = "
            '["single"], say; for two environments on the host: env=NAME=VALUE, lib=PATH.'
        )
    return found


def _variables(flag: str, values: Sequence[str]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals:
            raise RequestError(f"{flag} env={value}: write env={value}=VALUE.")
        found[name] = setting
    return found


def _whole(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _hashed(flag: str, path: str) -> str:
    try:
        refuse_irregular(Path(path))
        with Path(path).open("rb") as file:
            refuse_no_library(flag, path, file.read(HEADER))
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"{flag}: {path}: {error.strerror}. Name a library file.") from error
