"""Whether two sides of a gate differ in what was asked, and in nothing else: images, variables, loaded files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from collbench.analysis import environment
from collbench.analysis.observations import Cell, Observed
from collbench.errors import RunReadError
from collbench.schema.axes import SOFTWARE
from collbench.schema.case import Case
from collbench.schema.gate_plan import SIDES
from collbench.schema.launch_plan import Side
from collbench.schema.loaded import UNREAD, Loaded, read, stem_of
from collbench.schema.manifest import Image, Library, Manifest

_LOADER = "LD_"


class GateSide(NamedTuple):
    """A side as it was measured: its overrides, the SHA-256 of its library files by path, its software."""

    name: str
    overrides: Side
    files: Mapping[str, str]
    software: tuple[Image, ...]

    @property
    def variables(self) -> Mapping[str, str]:
        return self.overrides.variables


Sides = tuple[GateSide, GateSide]


class Verified(NamedTuple):
    """`asked`: differences that were asked for. `refused`: all others, each with its name."""

    asked: tuple[str, ...]
    refused: tuple[str, ...]


def sides_of(manifest: Manifest, where: str) -> Sides:
    """Both sides, as the manifest of the run has them.

    Raises:
        RunReadError: its plan does not have the sides of a gate; `where` names the run.
    """
    try:
        sides = msgspec.convert((manifest.plan or {}).get("sides", {}), dict[str, Side])
        of_plan = [sides[name] for name in SIDES]
    except (msgspec.ValidationError, KeyError) as error:
        raise RunReadError(f"{where}: its plan does not have the sides {' and '.join(SIDES)} of a gate.") from error
    experiment = manifest.experiment
    software = () if experiment is None else (*experiment.images, *experiment.environments)
    base, other = (
        GateSide(name, side, _files(name, side, software), tuple(one for one in software if one.side == name))
        for name, side in zip(SIDES, of_plan, strict=True)
    )
    return base, other


def _files(name: str, side: Side, software: Sequence[Image]) -> dict[str, str]:
    """Of the library files that the side puts in front, the hashes."""
    hashes = {path: sha256 for one in software if one.side == name for path, sha256 in one.files.items()}
    return {path: hashes.get(path, "") for path in (*side.libraries, *side.preload)}


def watched_of(sides: Sides) -> tuple[str, ...]:
    """The libraries of which ranks of both sides tell what they loaded."""
    return tuple(dict.fromkeys(stem_of(path) for side in sides for path in side.files))


def unverified(sides: Sides, run: Observed, cells: Sequence[Case]) -> Verified:
    """How the sides differ, by the manifest; what ranks loaded is in the cells (`not_loaded`)."""
    facts = [environment.facts(run, [case.having(side=name) for case in cells]) for name in SIDES]
    differences = environment.differences(*facts)
    allowed = _allowed(sides, differences)
    refused = [f"{name}: {text}" for name, text in differences.items() if name not in allowed]
    refused += [] if _images_replaced(sides) else _of_libraries(sides)
    return Verified(
        tuple(f"{name}: {text}" for name, text in differences.items() if name in allowed),
        tuple(f"the sides differ in more than was asked: {text}" for text in refused),
    )


def _images_replaced(sides: Sides) -> bool:
    return any(side.overrides.images for side in sides)


def _allowed(sides: Sides, differences: Mapping[str, str]) -> frozenset[str]:
    """Names of facts that may differ."""
    if _images_replaced(sides):
        return SOFTWARE | {"python", "packages", "image-id", *(name for name in differences if name.startswith("env:"))}
    variables = {name for side in sides for name in side.variables}
    loads = any(side.files for side in sides) or any(name.startswith(_LOADER) for name in variables)
    files = {"library", "library-file"} if loads else set()
    return frozenset({*(f"env:{name}" for name in variables), *files})


def _of_libraries(sides: Sides) -> Iterator[str]:
    """Files of libraries that differ though nobody put another version of them in front."""
    if any(name.startswith(_LOADER) for side in sides for name in side.variables):
        return
    for of_base, of_other in zip(*(side.software for side in sides), strict=False):
        theirs = {(one.name, one.used_by): one for one in of_other.libraries}
        for one in of_base.libraries:
            two = theirs.get((one.name, one.used_by))
            watched = two is not None and (_is_watched(sides, one) or _is_watched(sides, two))
            if two is not None and one.sha256 != two.sha256 and not watched:
                yield f"{one.name}: file {one.path} ({_hash(one.sha256)}) against {two.path} ({_hash(two.sha256)})"


def _is_watched(sides: Sides, library: Library) -> bool:
    hashes = {sha256 for side in sides for sha256 in side.files.values()}
    name = Path(library.path or "").name
    return library.sha256 in hashes or any(name == stem or name.startswith(f"{stem}.") for stem in watched_of(sides))


def not_loaded(sides: Sides, side: GateSide, cell: Cell) -> str:
    """Why it is not known that ranks loaded the files of their side, or one file of those of the other; else empty."""
    told = [found for note in cell.notes if (found := read(note)) is not None]
    watched = watched_of(sides)
    wanted = {stem: (path, side.files[path]) for path in side.files for stem in watched
              if Path(path).name.startswith(stem)}  # fmt: skip
    for stem in watched:
        if why := _of_one(stem, [one for one in told if one.name == stem], wanted.get(stem), side.overrides.preload):
            return why
    return ""


def _of_one(stem: str, found: list[Loaded], wanted: tuple[str, str] | None, preload: Collection[str]) -> str:
    if not found:
        return f"its ranks do not tell which {stem} they loaded; build the image again with this collbench"
    if wanted is None:
        return ""
    path, sha256 = wanted
    others = [one for one in found if one.sha256 != sha256]
    if not others:
        return ""
    one = others[0]
    if not one.path:
        return f"its ranks loaded no {stem}, so {path} made no difference: name a library that they load"
    instead = f"its ranks loaded {one.path} ({_hash(one.sha256)}), not {path} ({_hash(sha256)})"
    if one.sha256 == UNREAD:
        return f"{instead}: that file was removed or replaced since. Leave it in place until the gate has ended"
    if path in preload:
        return f"{instead}, which was preloaded: the dynamic linker did not take it. ldd {path} may say why"
    return (
        f"{instead}: its place is fixed in the program, or it is asked for by another name. "
        f"preload={path} puts it before all others"
    )


def alike(sides: Sides, run: Observed) -> str:
    """That both sides are the same, where they are, by hash: a line; else empty."""
    base, other = sides
    if base.overrides == other.overrides == Side():
        return "both sides are the plan as it stands: whatever differs is chance"
    if _images_replaced(sides):
        ids = [sorted(str(image.id) for image in side.software) for side in sides]
        return f"both sides have the same image, {ids[0][0]}" if ids[0] == ids[-1] and ids[0] else ""
    if base.variables != other.variables:
        return ""
    loaded = [
        {(one.name, one.sha256) for case, cell in run.cells.items() if case.where.side == name
         for note in cell.notes if (one := read(note))}
        for name in SIDES
    ]  # fmt: skip
    if not watched_of(sides):
        return "both sides are asked for the same"
    return "; ".join(_of_equal(name, hashes) for name, hashes in _by_name(loaded[0])) if loaded[0] == loaded[1] else ""


def _by_name(loaded: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Hashes of the files that were loaded, by the name of the library; both in order."""
    return [(name, [one[1] for one in group]) for name, group in groupby(sorted(loaded), key=lambda one: one[0])]


def _of_equal(name: str, hashes: Sequence[str]) -> str:
    """What both sides loaded of a library, by these hashes."""
    if UNREAD in hashes:
        return f"whether both sides loaded the same {name} is not known: a file was removed or replaced since"
    known = [sha256[:12] for sha256 in hashes if sha256]
    if not known:
        return f"no rank of either side loaded {name}"
    return f"both sides loaded the same file: {name} with sha256 {', '.join(known)}"


def _hash(sha256: str | None) -> str:
    return f"sha256 {'not known' if not sha256 or sha256 == UNREAD else sha256[:12]}"
