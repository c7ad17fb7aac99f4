"""Where a run was measured, and how its sides differ."""

from __future__ import annotations

from collections.abc import Iterator

from collbench.analysis import environment
from collbench.analysis.observations import Observed
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
    images = {_name(image): image for image in manifest.experiment.images}
    hosts = {_name(image): image for image in manifest.experiment.environments}
    rows = []
    for name in dict.fromkeys((*images, *hosts)):
        for label, on_host, in_image in _facts(hosts.get(name), images.get(name)):
            known = name in hosts and name in images
            differs = "-" if not known else "no" if on_host == in_image else "yes"
            rows.append((name, label, on_host, in_image, differs))
    columns = ("image", "fact", "on the host", "in the image", "differs")
    return Table("Both sides: the environment on the host, and the image", columns, tuple(rows))


def _name(image: Image) -> str:
    return f"{image.side}: {image.name}" if image.side else image.name


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
