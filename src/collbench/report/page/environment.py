"""Where a run was measured, how its sides differ, and what could mislead a reader."""

from __future__ import annotations

from collections.abc import Iterator

from collbench.analysis import environment
from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell, Observed
from collbench.report.cells import image_and_place, late_samples
from collbench.report.remarks import OVERSUBSCRIBED
from collbench.report.tables import Table
from collbench.schema.manifest import Image, Manifest


def about(observed: Observed) -> tuple[Table, ...]:
    """The facts of the machine, and the software of both sides of an experiment."""
    first = observed.manifests[0]
    rows = [(name, value) for name, value in environment.facts(observed, observed.cells).items() if value]
    rows += [("measured", first.created), ("command", " ".join(first.command))]
    machine = Table("Where and how it was measured", ("fact", "value"), tuple(rows))
    return (machine,) if first.experiment is None else (machine, _sides(first))


def _sides(manifest: Manifest) -> Table:
    assert manifest.experiment is not None
    images = {image.name: image for image in manifest.experiment.images}
    hosts = {image.name: image for image in manifest.experiment.environments}
    rows = []
    for name in dict.fromkeys((*images, *hosts)):
        for label, on_host, in_image in _facts(hosts.get(name), images.get(name)):
            rows.append((name, label, on_host, in_image, "no" if on_host == in_image else "yes"))
    columns = ("image", "fact", "on the host", "in the image", "differs")
    return Table("Both sides: the environment on the host, and the image", columns, tuple(rows))


def _facts(host: Image | None, image: Image | None) -> Iterator[tuple[str, str, str]]:
    packages = dict.fromkeys(name for side in (host, image) if side is not None for name in side.packages)
    for name in ("libraries", "python", *packages):
        yield name, _fact(host, name), _fact(image, name)


def _fact(side: Image | None, name: str) -> str:
    if side is None:
        return "-"
    if name == "python":
        return side.python or "-"
    if name == "libraries":
        return ", ".join(
            f"{library.name} {library.version} ({(library.sha256 or 'no hash')[:12]})" for library in side.libraries
        )
    return side.packages.get(name, "-")


def misleading(observed: Observed) -> tuple[str, ...]:
    """What could mislead a reader, the worst first."""
    cells = list(observed.cells.values())
    return tuple(line for lines in (_grave, _disturbed, _of_launches, _noted) for line in lines(observed, cells))


def _grave(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    if any(manifest.simulated for manifest in observed.manifests):
        yield "Simulated: the backend fake generated these times. They say nothing about any machine."
    for counter, text in (
        ("wrong", "measurements had wrong results"),
        ("failed", "measurements failed"),
        ("skipped", "measurements were skipped"),
        ("shared_gpu", "measurements had several ranks on one GPU: a functional test, whose times mean nothing"),
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
        yield f"{crowded} of {launches} measurements had {OVERSUBSCRIBED}."
    contended = sum(cell.contended for cell in cells)
    if contended:
        yield f"Tasks waited for a CPU during {contended} of {launches} measurements (/proc/pressure/cpu)."
    if late := late_samples(cells):
        yield f"{late}."
    slowed = sorted({reason for cell in cells for reason in cell.slowed})
    if slowed:
        yield f"GPUs were throttled: {', '.join(slowed)}."
    for manifest in observed.manifests[:1]:
        governors = {host.governor for host in manifest.hosts if host.governor}
        if governors - {"performance"}:
            yield f"CPU frequency governor {', '.join(sorted(governors))}: the frequency may have changed meanwhile."


def _of_launches(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    few = [cell for cell in cells if 0 < len(cell.medians) < FEWEST]
    if few:
        yield f"{len(few)} of {len(cells)} cells have fewer than {FEWEST} launches: no interval, no verdict."
    if not observed.interleaved and len(cells) > 1:
        yield "Launches were not interleaved in random blocks: drift counts as a difference."
    wide = [cell for cell in cells if len(cell.medians) >= FEWEST and max(cell.medians) > 1.5 * min(cell.medians)]
    if wide:
        yield f"In {len(wide)} of {len(cells)} cells launches differ by more than half: see the samples."


def _noted(observed: Observed, cells: list[Cell]) -> Iterator[str]:
    notes: dict[str, set[str]] = {}
    for cell in cells:
        for note in sorted(cell.notes):
            notes.setdefault(note, set()).add(image_and_place(cell))
    for note, places in notes.items():
        yield f"{note} ({', '.join(sorted(places))})."
    for manifest in observed.manifests[:1]:
        if manifest.experiment is not None:
            yield from (f"{text}." for text in manifest.experiment.differences)
