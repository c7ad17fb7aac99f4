"""The launch plans and Dockerfiles that come with collbench, by name: in a clone and in an installation."""

from __future__ import annotations

import re
from pathlib import Path

from collbench.errors import PlanError, RequestError, nearest_and_all

#: The folder of the package.
PACKAGE = Path(__file__).resolve().parents[1]

_DOCKERFILE = ".Dockerfile"

#: What Docker takes as a part of an image's name.
_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


def source_tree() -> Path:
    """The folder that holds launch/ and containers/: in an installed package, else the clone around the code."""
    installed = PACKAGE / "source_tree"
    return installed if installed.is_dir() else PACKAGE.parents[1]


def plans() -> dict[str, Path]:
    return _by_name("launch", ".toml")


def dockerfiles() -> dict[str, Path]:
    return _by_name("containers", _DOCKERFILE)


def layers() -> dict[str, Path]:
    """Dockerfiles of what can be put on an image."""
    return _by_name("containers/with", _DOCKERFILE)


def _by_name(folder: str, ending: str) -> dict[str, Path]:
    by_name = {path.name.removesuffix(ending): path for path in (source_tree() / folder).glob(f"*{ending}")}
    return dict(sorted(by_name.items()))


def find_plan(text: str) -> Path:
    """The file of this path, else the plan of this name.

    Raises:
        PlanError: there is neither.
    """
    path, known = Path(text), plans()
    if text in known and not path.is_file():
        return known[text]
    try:
        path.stat()
    except FileNotFoundError as error:
        hint = nearest_and_all(path.stem, tuple(known))
        raise PlanError(f"plan {text}: no such file, and no plan of this name. {hint}") from error
    except OSError:
        return path  # reading it raises the error
    return path


def find_dockerfile(text: str) -> tuple[str, Path]:
    """The image's name and its Dockerfile: a path that ends in `.Dockerfile`, else one that comes with collbench.

    Raises:
        RequestError: there is neither, or an image cannot have the file's name.
    """
    path, known = Path(text), dockerfiles()
    name = path.name.removesuffix(_DOCKERFILE)
    if text.endswith(_DOCKERFILE) and path.is_file():
        if _NAME.fullmatch(name) is None:
            raise RequestError(
                f"image {text}: the image is named like the file; use lower-case letters, digits and single . _ -."
            )
        return name, path
    if text in known:
        return text, known[text]
    hint = nearest_and_all(name, tuple(known))
    raise RequestError(f"image {text}: no such Dockerfile, and no image of this name. {hint}")


def find_layer(text: str) -> Path:
    """The Dockerfile of a layer.

    Raises:
        RequestError: there is none of this name.
    """
    known = layers()
    if text not in known:
        raise RequestError(f"--with {text}: unknown. {nearest_and_all(text, tuple(known))}")
    return known[text]
