"""Where a run was measured, how its sides differ, and what could mislead a reader."""

from __future__ import annotations

from collections.abc import Iterator

from collbench.analysis import environment
from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell, Observed
from collbench.analysis.ordering import place
from collbench.report.tables import Table
from collbench.schema.manifest import Image, Manifest


def about(observed: Observed) -> tuple[Table, ...]:
    """The facts of the machine, and of an experiment what stands on both sides."""
    first = observed.manifests[0]
    rows = [(name, value) for name, value in environment.facts(observed, observed.cells).items() if value]
    rows += [("measured", first.created), ("command", " ".join(first.command))]
    found = [Table("Where and how it was measured", ("fact", "value"), tuple(rows))]
    if first.experiment is not None:
        found.append(_sides(first))
    return tuple(found)


def _sides(manifest: Manifest) -> Table:
    assert manifest.experiment is not None
    images = {image.name: image for image in manifest.experiment.images}
    hosts = {image.name: image for image in manifest.experiment.environments}
    rows = []
    for name in dict.fromkeys((*images, *hosts)):
        for label, mine, theirs in _facts(hosts.get(name), images.get(name)):
            rows.append((name, label, mine, theirs, "no" if mine == theirs else "yes"))
    columns = ("image", "fact", "on the host", "in the image", "differs")
    return Table("Both sides: the environment on the host, and the image", columns, tuple(rows))


def _facts(host: Image | None, image: Image | None) -> Iterator[tuple[str, str, str]]:
    def said(side: Image | None, of: str) -> str:
        if side is None:
            return "-"
        if of == "python":
            return side.python or "-"
        if of == "libraries":
            return ", ".join(f"{one.name} {one.version} ({(one.sha256 or 'no hash')[:12]})" for one in side.libraries)
        return side.packages.get(of, "-")

    packages = dict.fromkeys(name for side in (host, image) if side is not None for name in side.packages)
    for of in ("libraries", "python", *packages):
        yield of, said(host, of), said(image, of)


def misleading(observed: Observed) -> tuple[str, ...]:
    """What a reader could be misled by, the worst first."""
    cells = list(observed.cells.values())
    return tuple(line for found in (_grave, _disturbed, _of_launches, _told) for line in found(observed, cells))


def _grave(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    if any(manifest.simulated for manifest in observed.manifests):
        yield "Simulated: the times were made up by the backend fake. They say nothing about any machine."
    for counter, text in (
        ("wrong", "measurements had wrong results"),
        ("failed", "measurements failed"),
        ("skipped", "measurements were skipped"),
        ("shared_gpu", "measurements shared a GPU between ranks: a test of function, no time to rely on"),
    ):
        number = sum(getattr(cell, counter) for cell in cells)
        if number:
            reasons = sorted({reason for cell in cells for reason in cell.reasons})[:3]
            why = f": {'; '.join(reasons)}" if counter in ("failed", "skipped") and reasons else ""
            yield f"{number} {text}{why}."
    yield from (f"{doubt}." for doubt in observed.doubts)
    if observed.truncated:
        yield "The last record was cut off and is left out."


def _disturbed(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    launches = sum(len(cell.medians) for cell in cells)
    crowded = sum(cell.oversubscribed for cell in cells)
    if crowded:
        yield f"{crowded} of {launches} measurements had more ranks than cores: those times are the scheduler's."
    contended = sum(cell.contended for cell in cells)
    if contended:
        yield f"Tasks waited for a CPU during {contended} of {launches} measurements (/proc/pressure/cpu)."
    late, samples = sum(cell.late for cell in cells), sum(cell.samples for cell in cells)
    if late:
        yield f"{late} of {samples} samples ({late / samples:.1%}) began late at the gate and are in no statistic."
    slowed = sorted({reason for cell in cells for reason in cell.slowed})
    if slowed:
        yield f"GPUs were slowed down: {', '.join(slowed)}."
    for manifest in observed.manifests[:1]:
        governors = {host.governor for host in manifest.hosts if host.governor}
        if governors - {"performance"}:
            yield f"CPU frequency governor {', '.join(sorted(governors))}: clocks may have changed meanwhile."


def _of_launches(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    few = [cell for cell in cells if 0 < len(cell.medians) < FEWEST]
    if few:
        yield f"{len(few)} of {len(cells)} cells have fewer than {FEWEST} launches: no interval, no verdict."
    if not observed.interleaved and len(cells) > 1:
        yield "Launches were not interleaved in random blocks: what drifted meanwhile counts as a difference."
    wide = [cell for cell in cells if len(cell.medians) >= FEWEST and max(cell.medians) > 1.5 * min(cell.medians)]
    if wide:
        yield f"In {len(wide)} of {len(cells)} cells launches of one thing differ by more than half: see the samples."


def _told(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    notes: dict[str, set[str]] = {}
    for cell in cells:
        for note in sorted(cell.notes):
            notes.setdefault(note, set()).add(f"{cell.case.where.image or ''} {place(cell.case)}".strip())
    for note, places in notes.items():
        yield f"{note} ({', '.join(sorted(places))})."
    for manifest in observed.manifests[:1]:
        if manifest.experiment is not None:
            yield from (f"{text}." for text in manifest.experiment.differences)
