"""The Python environments that the host uses beside images: found, and asked what they hold."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec

from collbench import workloads
from collbench.errors import PlanError
from collbench.launch import launchers
from collbench.launch.cells import communicates
from collbench.launch.engines.spec import Look
from collbench.launch.folders import signed_folder
from collbench.launch.job import end_with_parent
from collbench.launch.overrides import LIBRARY_PATH, NO_OVERRIDES, Overrides, overrides_of
from collbench.launch.probe import Contents
from collbench.launch.shipped import source_tree
from collbench.schema.plan import LaunchPlan

#: Longest wait for an environment to say what it holds (s).
ANSWER = 60.0


def look_beside(plan: LaunchPlan, image: str, in_image: str) -> Look:
    """What the environment beside an image holds. `in_image` is the library in the image; empty: nobody looked.

    Raises:
        PlanError: it holds another library than the image, or it is not known which one the image holds.
    """
    environment, before = find_environment(image, plan.environments.get(image)), os.environ.get(LIBRARY_PATH, "")
    wanted = (in_image or _vendor_in(image)) if communicates(plan) else ""
    contents = probe(environment, wanted, workloads.uses(plan.benchmarks), overrides_of(plan, before))
    if wanted and contents.vendor != wanted:
        raise PlanError(
            f"policy host: image {image} stands for {wanted}, and the environment {environment} holds "
            f"{contents.vendor or 'no library that can be started'}. Name one that holds the same: "
            f'environments = {{ {image} = "PATH" }}; or make one (python3 -m venv .venvs/{image} && '
            f".venvs/{image}/bin/pip install '.[{wanted}]' in a clone, or with a wheel for the dot); or leave host out."
        )
    title = f"the environment beside {image} ({environment})"
    return Look(contents, str(environment), title, library_path=before)


def _vendor_in(image: str) -> str:
    """Which library an image stands for where no engine is asked: its name has to say it."""
    vendor = next((vendor for vendor in launchers.names() if vendor in image), None)
    if vendor is None:
        raise PlanError(
            f"image {image!r}: the plan has no containers, so the image's name must say which library the host is to "
            f"use: {', '.join(launchers.names())}."
        )
    return vendor


def find_environment(image: str, given: str | None) -> Path:
    """The environment beside an image: the plan's, else `.venvs/IMAGE`, else the one that this program runs in.

    Raises:
        PlanError: the plan names a folder that is not an environment.
    """
    if given is not None:
        named = Path(given).expanduser()
        if not (named / "bin" / "python").exists():
            raise PlanError(f"environments: {image}: {given} has no bin/python. Name a virtual environment.")
        return named.absolute()
    beside = Path(".venvs") / image
    return beside.absolute() if (beside / "bin" / "python").exists() else Path(sys.prefix)


def probe(
    environment: Path, vendor: str = "", benchmarks: tuple[str, ...] = (), given: Overrides = NO_OVERRIDES
) -> Contents:
    """What an environment holds; with vendor `torch`, what torch ranks use there, though there be an MPI too.

    `given` is what a plan sets for its ranks, and so for this.

    Raises:
        PlanError: collbench is not installed there, or it does not answer.
    """
    flags = ("--torch",) if vendor == "torch" else ()
    argv = (str(environment / "bin" / "python"), "-m", "collbench.launch.probe", *flags, *benchmarks)
    try:
        with signed_folder(None) as folder:
            given.link(folder / "lib")
            variables = {**os.environ, **given.variables, **given.on_host(folder / "lib")}
            done = subprocess.run(
                argv, capture_output=True, timeout=ANSWER, check=False, cwd="/", env=variables,
                start_new_session=True, preexec_fn=end_with_parent,  # Ctrl-C ends the driver, at a safe point
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"environment {environment}: {error}.") from error
    try:
        contents = msgspec.json.decode(done.stdout, type=Contents)
    except msgspec.DecodeError as error:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PlanError(
            f"environment {environment}: does not say what it holds ({errors[-1] if errors else error}). "
            f"{_install(environment)}"
        ) from error
    if contents.another is not None:
        raise PlanError(f"environment {environment}: {contents.another}. {_install(environment)}")
    return contents


def _install(environment: Path) -> str:
    """How this collbench gets into an environment: from its clone, or from the wheel that it was installed from."""
    clone = source_tree()
    source = shlex.quote(str(clone)) if (clone / "src").is_dir() else "WHEEL"
    return f"Install this collbench there: {environment}/bin/pip install --force-reinstall --no-deps {source}"
