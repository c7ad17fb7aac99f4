"""A site file: what somebody who knows a cluster says of it once. It says where, never what is measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collbench.errors import PlanError, suggestion
from collbench.launch import launchers
from collbench.machine.facts import Core, Topology, TopologyGpu
from collbench.schema.files import read_toml
from collbench.schema.plan import mistake_in

#: The tables of a site file: a cluster may be known to both engines.
TABLES = ("slurm", "k8s")

#: Most cores and GPUs of a node that a site file may name: above every machine that there is, so that a slip of the
#: hand does not fill the memory.
MOST_CORES, MOST_GPUS = 16_384, 1_024

#: Names of variables, and those that collbench gives ranks itself.
_VARIABLE, _OWN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "COLLBENCH_"


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every engine needs to know of a cluster.

    `cores` and `gpus` are those of a node that ranks may have. `images` are references by the names in plans,
    `libraries` the library by image where its name does not say it. `variables` are set for every rank.
    """

    cores: int
    gpus: int = 0
    images: dict[str, str] = {}
    libraries: dict[str, str] = {}
    variables: dict[str, str] = {}

    @property
    def node(self) -> Topology:
        """A node: its processors are numbered, which of them ranks get the cluster decides."""
        of_node = tuple(TopologyGpu(f"GPU {number} of the node") for number in range(self.gpus))
        why_none = "" if self.gpus else "gpus in the site file"
        return Topology(tuple(map(Core, range(self.cores))), of_node, why_none, "a node of the site")


ClusterT = TypeVar("ClusterT", bound=Cluster)


def read_site(path: str, engine: str, kind: type[ClusterT]) -> ClusterT:
    """The table of an engine in a site file.

    Raises:
        PlanError: no file was named, it cannot be read, has no such table, lacks a key, or has one that is unknown or
            of another type; cores or GPUs that no node has, a library that collbench does not know, a variable that no
            shell takes or that collbench sets itself.
    """
    if not path:
        raise PlanError(f"engine {engine}: needs a site file, which describes the cluster. Name it: --site site.toml.")
    document = read_toml(Path(path), "site")
    for name, value in document.items():
        if not isinstance(value, dict):
            raise PlanError(f"site {path}: {name}: stands in no table. Write it below [{engine}].")
        if name not in TABLES:
            raise PlanError(f"site {path}: unknown table [{name}]. {suggestion(name, TABLES)}")
    if engine not in document:
        raise PlanError(f"site {path}: has no table [{engine}]. docs/cluster.md shows one.")
    site = _described(document[engine], f"site {path}: [{engine}]", kind)
    _refuse_nonsense(f"site {path}", site)
    return site


def _refuse_nonsense(where: str, site: Cluster) -> None:
    for name, number, least, most in (("cores", site.cores, 1, MOST_CORES), ("gpus", site.gpus, 0, MOST_GPUS)):
        if not least <= number <= most:
            shown = str(number) if number.bit_length() < 64 else "that"
            raise PlanError(f"{where}: {name} = {shown}: must be {least} or more, and at most {most}: of one node.")
    refuse_libraries(f"{where}: libraries", site.libraries.values())
    for name in site.variables:
        if _VARIABLE.fullmatch(name) is None:
            raise PlanError(f"{where}: variables: {name!r} is no name of a variable: letters, digits and _.")
        if name.startswith(_OWN):
            raise PlanError(f"{where}: variables: {name} is set by collbench itself. Leave it out.")


def _described(table: dict[str, Any], where: str, kind: type[ClusterT]) -> ClusterT:
    _refuse_unknown(table, where, kind)
    fields = msgspec.structs.fields(kind)
    if lacking := [field.name for field in fields if field.required and field.name not in table]:
        raise PlanError(f"{where}: lacks {', '.join(lacking)}. docs/cluster.md says what they are.")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: {mistake_in(table, kind) or error}.") from error


def _refuse_unknown(table: dict[str, Any], where: str, kind: type[msgspec.Struct]) -> None:
    for key, value in table.items():
        if key not in kind.__struct_fields__:
            raise PlanError(f"{where}: unknown key {key!r}. {suggestion(key, kind.__struct_fields__)}")
        of = next(field.type for field in msgspec.structs.fields(kind) if field.name == key)
        if isinstance(value, dict) and isinstance(of, type) and issubclass(of, msgspec.Struct):
            _refuse_unknown(value, f"{where} {key}", of)


def refuse_libraries(where: str, libraries: Iterable[str]) -> None:
    """Names of libraries that no launcher has.

    Raises:
        PlanError: the first.
    """
    for library in libraries:
        if library not in launchers.names():
            raise PlanError(f"{where}: library {library!r}: unknown. {suggestion(library, launchers.names())}")
