"""A baseline: what a run measured, small enough to keep beside the code, and exact enough to compare with later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

import msgspec

from collbench.analysis.results import Builder, Cell, Extra, Facts, Origin, origin_of
from collbench.analysis.runs import Observed
from collbench.errors import RunReadError, RunWriteError
from collbench.schema.case import Case
from collbench.schema.files import Count, FigureValue, ShortText, decode_as, read_whole
from collbench.schema.manifest import Manifest
from collbench.schema.record import Time, Work

VERSION = 3

#: A number of operations in a sample.
_BURST = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)

#: Some three million launches (bytes).
LARGEST = 256 << 20


class BaselineCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell: its work, median and mean of each launch in seconds, and how and over what they were taken.

    `how` lists the ways of measuring, `ways` says by its place in that list which one each launch took. `contended` are
    launches, and `cpu` has CPU seconds and seconds for a sample of a program, by launch. `repeatable` has the values of
    figures that must come out equal.
    """

    case: Case
    work: Work
    launches: tuple[Count, ...]
    medians: tuple[Time, ...]
    means: tuple[Time, ...]
    how: tuple[tuple[tuple[str, str], ...], ...]
    ways: tuple[Count, ...]
    transports: tuple[str, ...] = ()
    contended: tuple[Count, ...] = ()
    cpu: dict[Count, tuple[Time, Time]] = {}
    repeatable: dict[ShortText, tuple[FigureValue, ...]] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cells of a run and the manifests they came with."""

    baseline: int
    name: str
    manifests: tuple[Manifest, ...]
    cells: tuple[BaselineCell, ...]


def keep(observed: Observed, path: Path) -> int:
    """Write what was measured as a baseline; returns the number of cells.

    Raises:
        RunWriteError: the file exists, cannot be written, or would be larger than what `load` accepts.
    """
    cells = tuple(_kept(cell) for cell in observed.cells.values() if cell.medians)
    kept = Baseline(baseline=VERSION, name=observed.name, manifests=observed.manifests, cells=cells)
    content = msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"
    if len(content) > LARGEST:
        raise RunWriteError(
            f"{path}: the baseline of this run would exceed {LARGEST >> 20} MiB. Keep a part of the run."
        )
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise RunWriteError(f"{path}: exists already. Name a file that does not, or remove it first.") from error
    except OSError as error:
        raise RunWriteError(f"{path}: {error.strerror}.") from error
    return len(cells)


def _kept(cell: Cell) -> BaselineCell:
    how = sorted(cell.how)
    return BaselineCell(
        case=cell.case, work=cell.work, launches=tuple(cell.launches), medians=tuple(cell.medians),
        means=tuple(cell.means), how=tuple(how), ways=tuple(map(how.index, cell.ways)),
        transports=tuple(sorted(cell.transports)), contended=tuple(sorted(cell.contended)), cpu=cell.cpu,
        repeatable={name: tuple(sorted(values)) for name, values in cell.repeatable.items()},
    )  # fmt: skip


def load(path: Path) -> Observed:
    """A baseline as if it were a run.

    Raises:
        RunReadError: no such file, or not a baseline of this version.
    """
    try:
        if path.exists() and not path.is_file():
            raise RunReadError(f"{path}: not a baseline, which is a file that --save-baseline wrote.")
        kept = decode_as(read_whole(path, LARGEST), Baseline)
    except OSError as error:
        raise RunReadError(f"{path}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunReadError(f"{path}: not a baseline that --save-baseline wrote: {error}") from error
    if kept.baseline != VERSION:
        raise RunReadError(f"{path}: a baseline of version {kept.baseline}; this collbench reads {VERSION}.")
    builder = Builder()
    for stored in kept.cells:
        if stored.case in builder.cases:
            raise RunReadError(f"{path}: {stored.case.workload} of {stored.case['size']} bytes comes twice.")
        _add(builder, stored, path)
    origin = Origin(clock_step=origin_of(kept.manifests).clock_step)
    return Observed(str(path), kept.manifests, builder.results(origin).cells(), ())


def _add(builder: Builder, stored: BaselineCell, path: Path) -> None:
    launches = len(set(stored.launches))
    if not launches == len(stored.launches) == len(stored.medians) == len(stored.means) == len(stored.ways):
        raise RunReadError(
            f"{path}: a cell with {launches} different launches, {len(stored.medians)} medians, {len(stored.means)} "
            f"means and {len(stored.ways)} ways of measuring."
        )
    if max(stored.ways, default=-1) >= len(stored.how):
        raise RunReadError(
            f"{path}: a launch was measured in way {max(stored.ways)}, and the cell lists {len(stored.how)} ways."
        )
    if not all(_BURST.fullmatch(value) for way in stored.how for name, value in way if name == "burst"):
        raise RunReadError(f"{path}: a burst that is not a number of operations.")
    transports = stored.transports or (None,)
    values = zip(stored.launches, stored.medians, stored.means, stored.ways, cycle(transports), strict=False)
    repeatable: Mapping[str, tuple[float, ...]] = stored.repeatable
    for launch, median, mean, way, transport in values:
        facts = Facts("ok", stored.work, stored.how[way], contended=launch in stored.contended, transport=transport)
        extra = Extra(stored.cpu.get(launch), repeatable=repeatable)
        builder.row(stored.case, launch, facts, extra, median, mean)
        repeatable = {}
