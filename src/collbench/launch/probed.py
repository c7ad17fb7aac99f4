"""What an image says of itself where an engine starts the probe in it: asked, decoded, compared with its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from collbench import workloads
from collbench.errors import ImageMissing
from collbench.launch import starters
from collbench.launch.cells import communicates
from collbench.launch.probe import Contents
from collbench.launch.shapes import library_of
from collbench.launch.starters.starter import Argv
from collbench.schema.launch_plan import LaunchPlan

#: Most letters of what came instead of an answer.
_QUOTED = 200


def probe_of(python: str, image: str, libraries: Mapping[str, str], plan: LaunchPlan) -> Argv:
    """The command that prints what an image holds. `libraries` are the site's, by image."""
    torch = ("--torch",) if library_of(image, libraries, plan) == "torch" else ()
    return (python, "-m", "collbench.launch.probe", *torch, *workloads.uses(plan.benchmarks))


def contents_in(
    lines: Sequence[str], title: str, image: str, libraries: Mapping[str, str], plan: LaunchPlan
) -> Contents:
    """What the last line says that is an answer.

    Raises:
        ImageMissing: none is; or the image holds another collbench, or another library than it stands for.
    """
    for line in reversed(lines):
        try:
            contents = msgspec.json.decode(line, type=Contents)
        except msgspec.DecodeError:
            continue
        if contents.another is not None:
            raise ImageMissing(f"{title}: {contents.another}. Make it again with this collbench.")
        _refuse_other_library(title, image, libraries, plan, contents)
        return contents
    said = next((line for line in reversed(lines) if line.strip()), "nothing was printed")
    raise ImageMissing(
        f"{title}: does not say what it holds ({said[:_QUOTED]}). Name one that holds collbench in the site file."
    )


def _refuse_other_library(
    title: str, image: str, libraries: Mapping[str, str], plan: LaunchPlan, contents: Contents
) -> None:
    expected = library_of(image, libraries, plan)
    if communicates(plan) and contents.vendor != expected:
        raise ImageMissing(
            f"{title}: stands for {expected}, and holds {contents.vendor or 'no MPI'}; the launcher starts "
            f"{', '.join(starters.names())}. Say in the site file which it is: libraries = {{ {image} = ... }}"
        )
