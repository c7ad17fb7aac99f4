"""The table [k8s] of a site file."""

from __future__ import annotations

from typing import Literal

import msgspec

from collbench.errors import PlanError, UnitError
from collbench.launch.site import read_site
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


def read(path: str) -> K8sSite:
    """The site in a file, checked as far as that takes no cluster.

    Raises:
        PlanError: it cannot be read, or a value makes no sense.
    """
    site = read_site(path, "k8s", K8sSite)
    if site.cores < 1 or site.gpus < 0:
        raise PlanError(f"site {path}: cores must be 1 or more and gpus 0 or more: those of one node.")
    for name in ("timeout", "time"):
        try:
            parse_duration(getattr(site, name), name)
        except UnitError as error:
            raise PlanError(f"site {path}: {error}") from error
    return site
