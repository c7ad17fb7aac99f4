"""Whether two sides differ in what was asked, and in nothing else: images, variables, files that ranks loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from collbench.analysis import environment
from collbench.analysis.observations import Cell, Observed
from collbench.schema.axes import SOFTWARE
from collbench.schema.gate_plan import GatePlan, Side
from collbench.schema.loaded import UNREAD, Loaded, read
from collbench.schema.manifest import Image, Library, Manifest

#: Keys of a plan in which sides may differ, by what was asked.
_OF_IMAGES = frozenset({"images", "environments", "image_backends"})
_OF_FILES = frozenset({"libraries", "preload"})

_LOADER = "LD_"


class Verified(NamedTuple):
    """`asked`: differences that were asked for. `refused`: all others, each with its name."""

    asked: tuple[str, ...]
    refused: tuple[str, ...]


def unverified(plan: GatePlan, base: Observed, other: Observed) -> Verified:
    """How the sides differ, by their manifests; what ranks loaded is in the cells (`not_loaded`)."""
    if not base.manifests or not other.manifests:
        return Verified((), ("a side has no manifest",))
    manifests = base.manifests[0], other.manifests[0]
    facts = [
        environment.facts(run, [cases[number] for cases in plan.cells]) for number, run in enumerate((base, other))
    ]
    differences = environment.differences(*facts)
    allowed = _allowed(plan, differences)
    refused = [f"{name}: {text}" for name, text in differences.items() if name not in allowed]
    refused += _of_plans(plan, *manifests)
    refused += [] if _images_replaced(plan) else _of_libraries(plan, *manifests)
    return Verified(
        tuple(f"{name}: {text}" for name, text in differences.items() if name in allowed),
        tuple(f"the sides differ in more than was asked: {text}" for text in refused),
    )


def _images_replaced(plan: GatePlan) -> bool:
    return any(side.images for side in plan.sides)


def _allowed(plan: GatePlan, differences: Mapping[str, str]) -> frozenset[str]:
    """Names of facts that may differ."""
    if _images_replaced(plan):
        return SOFTWARE | {"python", "packages", "image-id", *(name for name in differences if name.startswith("env:"))}
    variables = {name for side in plan.sides for name in side.variables}
    loads = any(side.files for side in plan.sides) or any(name.startswith(_LOADER) for name in variables)
    files = {"library", "library-file"} if loads else set()
    return frozenset({*(f"env:{name}" for name in variables), *files})


def _of_plans(plan: GatePlan, base: Manifest, other: Manifest) -> Iterator[str]:
    """Keys of the two plans that differ, and should not."""
    of_base, of_other = base.plan or {}, other.plan or {}
    variables = {name for side in plan.sides for name in side.variables}
    allowed = {*(_OF_IMAGES if _images_replaced(plan) else ()), *_OF_FILES}
    for key in sorted(of_base.keys() | of_other.keys()):
        one, two = of_base.get(key), of_other.get(key)
        if key == "variables":
            one, two = (
                {name: value for name, value in _table(side).items() if name not in variables} for side in (one, two)
            )
        if one != two and key not in allowed:
            yield f"{key} of the plan: {one!r} against {two!r}"


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_libraries(plan: GatePlan, base: Manifest, other: Manifest) -> Iterator[str]:
    """Files of libraries that differ though nobody put another version of them in front."""
    if any(name.startswith(_LOADER) for side in plan.sides for name in side.variables):
        return
    for of_base, of_other in zip(_software(base), _software(other), strict=False):
        theirs = {(one.name, one.used_by): one for one in of_other.libraries}
        for one in of_base.libraries:
            two = theirs.get((one.name, one.used_by))
            if (
                two is not None
                and one.sha256 != two.sha256
                and not _is_watched(plan, one)
                and not _is_watched(plan, two)
            ):
                yield f"{one.name}: file {one.path} ({_hash(one.sha256)}) against {two.path} ({_hash(two.sha256)})"


def _is_watched(plan: GatePlan, library: Library) -> bool:
    hashes = {sha256 for side in plan.sides for sha256 in side.files.values()}
    name = Path(library.path or "").name
    return library.sha256 in hashes or any(name == stem or name.startswith(f"{stem}.") for stem in plan.watched)


def _software(manifest: Manifest) -> tuple[Image, ...]:
    experiment = manifest.experiment
    return () if experiment is None else (*experiment.images, *experiment.environments)


def not_loaded(plan: GatePlan, side: Side, cell: Cell) -> str:
    """Why it is not known that ranks loaded the files of their side, or one file of those of the other; else empty."""
    told = [found for note in cell.notes if (found := read(note)) is not None]
    wanted = {stem: (path, side.files[path]) for path in side.files for stem in plan.watched
              if Path(path).name.startswith(stem)}  # fmt: skip
    for stem in plan.watched:
        if why := _of_one(stem, [one for one in told if one.name == stem], wanted.get(stem), side.preload):
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


def alike(plan: GatePlan, base: Observed, other: Observed) -> str:
    """That both sides are the same, where they are, by hash: a line; else empty."""
    if not any(side.asked for side in plan.sides):
        return "both sides are the plan as it stands: whatever differs is chance"
    if _images_replaced(plan):
        ids = [sorted(str(image.id) for image in _software(run.manifests[0])) for run in (base, other) if run.manifests]
        return f"both sides have the same image, {ids[0][0]}" if ids and ids[0] == ids[-1] and ids[0] else ""
    return _alike_files(plan, base, other)


def _alike_files(plan: GatePlan, base: Observed, other: Observed) -> str:
    variables = [side.variables for side in plan.sides]
    if variables[0] != variables[1]:
        return ""
    loaded = [
        {(one.name, one.sha256) for cell in run.cells.values() for note in cell.notes if (one := read(note))}
        for run in (base, other)
    ]
    if not plan.watched:
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
