"""A virtual environment that holds the packages of an image: the same library for policy `host`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from collbench.errors import EngineError, PlanError, RequestError
from collbench.launch.engines import host
from collbench.launch.engines.docker.images import BUILD_LINES, ImageBuild, Recipe
from collbench.launch.job import end_with_parent
from collbench.launch.probe import Contents

#: Longest time for each of the commands that make an environment (s).
LIMIT = 1800.0


def folder_of(name: str) -> Path:
    """Where `launch` looks for the environment beside the image of that name."""
    return host.ENVIRONMENTS / name


def refuse_unmatched(build: ImageBuild) -> None:
    """Raises RequestError: the image compiles its MPI, so that no package of an index is the same library."""
    if (origin := build.origin) is not None and not origin.startswith("wheel "):
        raise RequestError(
            f"--with-environment: the image {build.name} compiles its MPI, which is in no wheel. Install the same on "
            f'the host, and name its environment in the plan: environments = {{ "{build.name}" = "PATH" }}'
        )


def make(build: ImageBuild, contents: Contents, recipe: Recipe) -> Contents:
    """Create the environment beside an image, or update the one that is there. Returns what it then holds.

    `contents` are the image's, whose packages are installed in the same versions. An environment that has them stays
    as it is, and so does the one that this program runs in: they may be editable installations.

    Raises EngineError: a command failed, or took longer than `LIMIT`.
    """
    folder = folder_of(build.name).absolute()
    if folder != Path(sys.prefix) and not _has(folder, contents):
        _install(build, contents, recipe, folder)
    return host.probe(folder, contents.vendor)


def _has(folder: Path, contents: Contents) -> bool:
    """Whether there is this collbench, and the packages of an image."""
    try:
        return contents.packages.items() <= host.probe(folder, contents.vendor).packages.items()
    except PlanError:
        return False


def _install(build: ImageBuild, contents: Contents, recipe: Recipe, folder: Path) -> None:
    python = str(folder / "bin" / "python")
    source = ("--find-links", str(recipe.wheelhouse)) if recipe.wheelhouse is not None else ()
    install = (python, "-m", "pip", "install", *source, *(("--no-index",) if recipe.no_index else ()))
    pinned = [f"{name}=={version}" for name, version in sorted(contents.packages.items())]
    with tempfile.TemporaryDirectory(prefix="collbench-source-") as place:
        tree = Path(place)
        for name, file in build.files.items():  # the code of the image, as its builder gets it
            if not name.startswith("containers/"):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_bytes(file.read_bytes())
        constraints = ("-c", str(tree / "constraints.txt"))
        for argv in (
            (sys.executable, "-m", "venv", str(folder)),
            (*install, "setuptools>=77", *pinned),
            (*install, *constraints, "--no-build-isolation", str(tree)),
        ):
            _execute(argv, folder)


def _execute(argv: tuple[str, ...], folder: Path) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
            check=False, preexec_fn=end_with_parent,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"environment {folder}: {error}.") from error
    if done.returncode:
        lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines()[-BUILD_LINES:]]
        raise EngineError(f"environment {folder}: {' '.join(argv[1:4])} failed. Last lines: {' | '.join(lines)}")
