"""The table [k8s] of a site file."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from collbench.errors import PlanError, UnitError
from collbench.launch.site import read_site, refuse_libraries, refuse_sizes, refuse_variables
from collbench.units import parse_duration


class K8sSite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Kubernetes needs to know of a cluster.

    `cores` and `gpus` are those of a node that pods may have. `images` are references in a registry, by the names in
    plans, `libraries` the library by image where its name does not say it. `objects` says what the cluster has: Jobs
    alone, or the MPI Operator's MPIJobs too. `memory` is that of a container. `node_selector` chooses nodes by labels,
    `queue` is a local queue of Kueue. `variables` are set for every rank. Pods may take `timeout` to run, and a launch
    `time`; Kubernetes ends it then. `context` is kubectl's; empty for its current one.
    """

    cores: int
    images: dict[str, str]
    namespace: str = "default"
    context: str = ""
    objects: Literal["job", "mpijob"] = "job"
    gpus: int = 0
    memory: str = "4Gi"
    libraries: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    queue: str = ""
    variables: dict[str, str] = {}
    timeout: str = "10m"
    time: str = "120m"

    @property
    def patience(self) -> float:
        """Longest wait until pods run (s)."""
        return parse_duration(self.timeout)

    @property
    def deadline(self) -> int:
        """Longest time of a launch (s)."""
        return max(1, int(parse_duration(self.time)))


#: What Kubernetes takes: a quantity, the name of an object, the key and the value of a label, a reference of an image.
_QUANTITY = re.compile(r"\d+(\.\d+)?(k|[MGTPE]|[KMGTPE]i|e\d+)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE, _KEY = re.compile(_WORD), re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")
_IMAGE = re.compile(
    r"([A-Za-z0-9][-A-Za-z0-9.]*(:\d+)?/)?[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)

_NAMED = "lower-case letters, digits and -, at most 63"


def refuse_formats(where: str, site: K8sSite) -> None:
    """Values that Kubernetes would refuse when the first object is made.

    Raises:
        PlanError: the first, with what it takes.
    """
    formats = [("memory", site.memory, _QUANTITY, "write 8Gi, say"), ("namespace", site.namespace, _NAME, _NAMED)]
    formats += [("queue", site.queue, _NAME, _NAMED)] if site.queue else []
    formats += [(f"images: {name}", image, _IMAGE, "write registry.site/openmpi:tag, say")
                for name, image in site.images.items()]  # fmt: skip
    for key, value in site.node_selector.items():
        formats.append(("node_selector", key, _KEY, "the key of a label, such as pool or site.org/pool"))
        formats.append((f"node_selector: {key}", value, _VALUE, "the value of a label: letters, digits and - _ ."))
    for key, value, form, instead in formats:
        if form.fullmatch(value) is None:
            raise PlanError(f"{where}: {key} {value!r}: Kubernetes does not take it; {instead}.")


def read(path: str) -> K8sSite:
    """The site in a file, checked as far as that takes no cluster.

    Raises:
        PlanError: it cannot be read, or a value makes no sense.
    """
    site = read_site(path, "k8s", K8sSite)
    refuse_sizes(f"site {path}", site.cores, site.gpus)
    where = f"site {path}"
    refuse_libraries(f"{where}: libraries", site.libraries.values())
    refuse_variables(where, site.variables)
    refuse_formats(where, site)
    for name in ("timeout", "time"):
        try:
            parse_duration(getattr(site, name), name)
        except UnitError as error:
            raise PlanError(f"site {path}: {error}") from error
    return site
