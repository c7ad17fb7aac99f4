"""What is found by being there: one thing in each module of a package, and what other packages add by entry points.

And the launch plans and Dockerfiles that come with collbench, by name, in a clone and in an installation.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.errors import PlanError, RequestError, nearest_and_all

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def modules_of(path: Iterable[str], others: Container[str] = (), packages: bool = False) -> tuple[str, ...]:
    """Names of the modules in a package's `__path__`, in alphabetical order, without importing any.

    `others` are what the modules have in common, and no entries; nor is what begins with an underscore. `packages`:
    an entry may be a package too.
    """
    names = (module.name for module in pkgutil.iter_modules(path) if packages or not module.ispkg)
    return tuple(sorted(name for name in names if name not in others and not name.startswith("_")))


def defined(package: str, module: str, name: str) -> Any:
    """What a module of the package defines under that name; RequestError: it does not, or cannot be imported."""
    try:
        return getattr(importlib.import_module(f"{package}.{module}"), name)
    except Exception as error:  # whatever a module raises that somebody else put there
        raise _unloadable(f"{package}.{module}", error) from error


def entry_points_of(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """By name, the entry points of a group, without importing any; more than one where packages disagree."""
    from importlib.metadata import entry_points  # the search takes longer than most of a start

    by_name: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group):
        by_name.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in by_name.items()}


def loaded(points: tuple[EntryPoint, ...]) -> Any:
    """What the only one of these entry points names; RequestError: there are several, or it cannot be imported."""
    if len(points) > 1:
        values = ", ".join(point.value for point in points)
        raise RequestError(f"defined more than once: {values}. Uninstall all but one.")
    (point,) = points
    try:
        return point.load()
    except Exception as error:  # somebody else's module: whatever it raises
        raise _unloadable(point.value, error) from error


def _unloadable(what: str, error: Exception) -> RequestError:
    return RequestError(f"{what} cannot be loaded: {type(error).__name__}: {error}.")


#: The folder of the package.
PACKAGE = Path(__file__).resolve().parent

_DOCKERFILE = ".Dockerfile"

#: What Docker takes as a part of an image's name.
IMAGE_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


def source_tree() -> Path:
    """The folder that holds launch/ and containers/: in an installed package, else the clone around the code."""
    installed = PACKAGE / "source_tree"
    return installed if installed.is_dir() else PACKAGE.parents[1]


def plans() -> dict[str, Path]:
    return _by_name("launch", ".toml")


def dockerfiles(folder: str = "containers") -> dict[str, Path]:
    return _by_name(folder, _DOCKERFILE)


def _by_name(folder: str, ending: str) -> dict[str, Path]:
    files = sorted((source_tree() / folder).glob(f"*{ending}"), key=lambda path: path.name.removesuffix(ending))
    return {path.name.removesuffix(ending): path for path in files}


def find_plan(text: str, others: Sequence[str] = ()) -> Path:
    """The file of this path, else the plan of this name, or PlanError: neither; `others` would have worked too."""
    path, known = Path(text), plans()
    if text in known and not path.is_file():
        return known[text]
    try:
        path.stat()
    except FileNotFoundError as error:
        hint = nearest_and_all(path.stem, (*known, *others))
        raise PlanError(f"plan {text}: no such file, and no plan of this name. {hint}") from error
    except OSError:
        return path  # reading it raises the error
    return path


def find_dockerfile(text: str) -> tuple[str, Path]:
    """The image's name and its Dockerfile, of this path or this name; RequestError: none, or no name of an image."""
    path, known = Path(text), dockerfiles()
    name = path.name.removesuffix(_DOCKERFILE)
    if text.endswith(_DOCKERFILE) and path.is_file():
        if IMAGE_NAME.fullmatch(name) is None:
            rule = "the image is named like the file; use lower-case letters, digits and single . _ -."
            raise RequestError(f"image {text}: {rule}")
        return name, path
    if text in known:
        return text, known[text]
    hint = nearest_and_all(name, tuple(known))
    raise RequestError(f"image {text}: no such Dockerfile, and no image of this name. {hint}")


def find_layer(text: str) -> Path:
    """The Dockerfile of what can be put on an image, or RequestError: there is none of this name."""
    known = dockerfiles("containers/with")
    if text not in known:
        raise RequestError(f"--with {text}: unknown. {nearest_and_all(text, tuple(known))}")
    return known[text]
