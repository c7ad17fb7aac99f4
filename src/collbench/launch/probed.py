"""What an image says of itself where an engine starts the probe in it: asked, decoded, compared with its name.

On a cluster every node is asked, because an environment or an image may be missing, or another one, on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from collbench import workloads
from collbench.errors import ImageMissing
from collbench.launch import starters
from collbench.launch.cells import communicates
from collbench.launch.log import whole_words
from collbench.launch.probe import Contents
from collbench.launch.shapes import library_of
from collbench.launch.starters.starter import Argv
from collbench.schema.launch_plan import LaunchPlan

#: Most letters of what came instead of an answer, most causes in a message, and most nodes that are named for each.
_QUOTED, _CAUSES, _NAMED = 200, 3, 3


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
    quoted = whole_words(said, _QUOTED)
    raise ImageMissing(
        f"{title}: does not say what it holds ({quoted}). Name one that holds collbench in the site file."
    )


def contents_on(
    answers: Mapping[str, Sequence[str]], title: str, image: str, libraries: Mapping[str, str], plan: LaunchPlan
) -> Contents:
    """What all nodes say alike, of the lines that each printed: as the first says it.

    Raises:
        ImageMissing: as `contents_in`, or nodes differ; with the first nodes of each cause.
    """
    said: dict[str, Contents] = {}
    causes: dict[str, list[str]] = {}
    for node, lines in answers.items():
        try:
            said[node] = contents_in(lines, title, image, libraries, plan)
        except ImageMissing as error:
            causes.setdefault(str(error).removeprefix(f"{title}: "), []).append(node)
    if not causes:
        causes = _differences(said)
    if causes:
        first = [f"{nodes_of(nodes, len(answers))}: {cause}" for cause, nodes in list(causes.items())[:_CAUSES]]
        raise ImageMissing(f"{title}: {' '.join(first)}")
    return next(iter(said.values()))


def _differences(said: Mapping[str, Contents]) -> dict[str, list[str]]:
    """Nodes that hold something else than most, by the first thing in which they differ; empty: all are alike."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for node, contents in said.items():
        alike.setdefault(tuple(contents.identity.items()), []).append(node)
    (most, usual), *others = sorted(alike.items(), key=lambda group: -len(group[1]))
    found: dict[str, list[str]] = {}
    for other, nodes in others:
        ours, theirs = dict(most), dict(other)
        name = next(name for name in ours | theirs if ours.get(name) != theirs.get(name))
        cause = (f"{name} is {theirs.get(name, 'missing')}, and {ours.get(name, 'missing')} on "
                 f"{nodes_of(usual, len(said))}. Install the same on every node.")  # fmt: skip
        found.setdefault(cause, []).extend(nodes)
    return found


def nodes_of(nodes: Sequence[str], all_nodes: int) -> str:
    """`every node`, `node c02`, or `8 nodes (c02, c03, c04, ...)`."""
    if len(nodes) == all_nodes:
        return "every node" if all_nodes > 1 else f"node {nodes[0]}"
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    return f"{len(nodes)} nodes ({', '.join((*nodes[:_NAMED], *(('...',) if len(nodes) > _NAMED else ())))})"


def _refuse_other_library(
    title: str, image: str, libraries: Mapping[str, str], plan: LaunchPlan, contents: Contents
) -> None:
    expected = library_of(image, libraries, plan)
    if communicates(plan) and contents.vendor != expected:
        raise ImageMissing(
            f"{title}: stands for {expected}, and holds {contents.vendor or 'no MPI'}; the launcher starts "
            f"{', '.join(starters.names())}. Say in the site file which it is: libraries = {{ {image} = ... }}"
        )
