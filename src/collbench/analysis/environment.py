"""What a side was measured on and with, as facts with names, so that two sides can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.analysis.runs import Observed
from collbench.schema.case import Case
from collbench.schema.manifest import Host, Image, Library, Manifest

#: Facts that change no number of the native driver: mentioned where they differ, refused only where Python is timed.
PYTHON = frozenset({"python", "packages"})

#: Facts that are only mentioned where they differ: they change the precision of a number, not its value; or they name
#: machines, whose own facts are compared.
MENTIONED = frozenset({"host", "boot", "allocation", "samples"})


def facts(observed: Observed, cases: Iterable[Case]) -> dict[str, str]:
    """Every fact of the side that these cases make up, by name; several values are joined by `and`."""
    facts: dict[str, set[str]] = {}
    sides = {side_of(case) for case in cases}
    for manifest in observed.manifests:
        machine = _of_manifest(manifest)
        for image, side, on_host, users, backend in sides:
            for name, value in (machine | software(manifest, image, on_host, users, backend, side)).items():
                facts.setdefault(name, set()).add(value)
    return {name: _several(values) for name, values in facts.items()}


#: Where software is: image, side of the plan, whether it is the environment beside that image, users of a library,
#: backend.
SideKey = tuple[str | None, str | None, bool, frozenset[str], str]


def side_of(case: Case) -> SideKey:
    """On which side a case ran: cases of one side have the same facts.

    A manifest may name a case as a user of a library: `linpack`, `linpack blas=mkl`; a collective uses none.
    """
    settings = (f"{case.workload} {name}={value}" for name, value in case.how.items())
    users = frozenset[str]() if case["backend"] else frozenset({case.workload, *settings})
    return (case.where.image, case.where.side, case.where.on_host, users, case["backend"])


def _several(values: set[str]) -> str:
    return " and ".join(sorted(value or "none" for value in values)) if any(values) else ""


def differences(base: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Name of each fact that differs, and how: `Linux 6.1 against 6.6`. A fact that one side lacks is unknown there.

    A variable that it lacks is not set.
    """
    lacking = {name: "not set" if name.startswith("env:") else "unknown" for name in sorted(base.keys() | other.keys())}
    values = {name: (base.get(name, none), other.get(name, none)) for name, none in lacking.items()}
    return {name: f"{a or 'none'} against {b or 'none'}" for name, (a, b) in values.items() if a != b}


def unsaid(base: dict[str, str], other: dict[str, str]) -> frozenset[str]:
    """Names of facts that not every engine knows or older runs lack, where one side does not have them."""
    names = ("image-id", "priority", "huge-pages")
    return frozenset(name for name in names if not (base.get(name) and other.get(name)))


def unlike(observed: Observed) -> dict[str, str]:
    """In what the runs of a folder differ, by name: empty where each is a launch of the same."""
    facts: dict[str, set[str]] = {}
    for manifest in observed.manifests:
        experiment = {"experiment": "of many launches" if manifest.experiment else "of one"}
        for name, value in (_of_manifest(manifest) | software(manifest, None, True) | experiment).items():
            facts.setdefault(name, set()).add(value)
    return {name: _several(values) for name, values in facts.items() if len(values) > 1 and name not in MENTIONED}


def _of_manifest(manifest: Manifest) -> dict[str, str]:
    hosts = manifest.hosts
    protocol = manifest.protocol
    allocation = manifest.experiment.allocation if manifest.experiment else None  # by a resource manager
    return {
        "host": _all(host.name for host in hosts),
        "boot": _all(host.boot_id or "" for host in hosts),
        "hosts": str(len(hosts)),
        "cpu": _all(host.cpu for host in hosts),
        "cores": _all(str(host.cores) for host in hosts),
        "memory": _all(f"{host.memory / 2**30:.0f} GiB" for host in hosts if host.memory is not None),
        "kernel": _all(host.kernel for host in hosts),
        "governor": _all(host.governor or "" for host in hosts),
        "priority": _all(host.priority or "" for host in hosts),
        "huge-pages": _all(host.huge_pages or "" for host in hosts),
        "limits": _all(_limits(host) for host in hosts),
        "gpu": _all(f"{len(host.gpus)} x {_all(gpu.name for gpu in host.gpus)}" for host in hosts if host.gpus),
        "gpu-driver": _all(gpu.driver or "" for host in hosts for gpu in host.gpus),
        "engine": manifest.experiment.engine if manifest.experiment else "",
        "allocation": f"job {allocation.job} in partition {allocation.partition} on {allocation.nodes}"
        if allocation
        else "",
        "job-options": " ".join(sorted(allocation.options)) if allocation else "",
        "collbench": manifest.collbench,
        "launcher": manifest.launcher,
        "granted-thread-level": manifest.thread_level.get("granted", ""),
        "warmup": str(protocol.warmup),
        "check": str(protocol.check),
        "samples": f"iters {protocol.iters}, budget {protocol.budget:g} s, {protocol.floor} to {protocol.cap}",
        "simulated": "yes" if manifest.simulated else "no",
    }


def software(
    manifest: Manifest, image: str | None, on_host: bool, users: frozenset[str] | None = None, backend: str = "",
    of_side: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """Libraries, interpreter, variables of one side: of an image, of the environment beside it, or of the run itself.

    Of its libraries, those that these `users` start or load; where there are none, those that ranks of this `backend`
    communicate through. The two sides of an experiment have their files in other places, so a path says nothing there.
    """
    side: Image | None = None
    if manifest.experiment is not None and image is not None:
        stacks = manifest.experiment.environments if on_host else manifest.experiment.images
        side = next((stack for stack in stacks if (stack.name, stack.side) == (image, of_side)), None)
    libraries, packages, python = manifest.libraries, manifest.packages, manifest.python
    variables = manifest.environment
    if side is not None:
        libraries, packages, python = side.libraries, side.packages, side.python or ""
        variables = variables if side.environment is None else side.environment
    if users is not None:
        libraries = tuple(library for library in libraries if _counts(library, users, backend))
    facts = {
        # a BLAS with the kernel that it chose, which says more than its version
        "library": _all(
            f"{library.name} {library.version}{f' ({library.kernel})' if library.kernel else ''}"
            for library in libraries
        ),
        "library-file": _all(_file(library, paths=side is None) for library in libraries),
        "packages": _all(f"{name} {version}" for name, version in packages.items()),
        "python": python,
    }
    facts |= {f"env:{name}": value for name, value in variables.items() if name not in _OWN}
    return facts if side is None or on_host else facts | {"image-id": (side.id or "").removeprefix("sha256:")[:12]}


#: Variables that a launcher sets for its own use.
_OWN = frozenset({"OMPI_MCA_cpu_type", "OMPI_MCA_num_procs", "OMPI_MCA_mpi_oversubscribe"})


def _counts(library: Library, users: frozenset[str], backend: str) -> bool:
    """Whether a case uses a library. An environment may hold NCCL for other backends."""
    if users or library.used_by:
        return bool(users & set(library.used_by))
    return library.name != "NCCL" or "nccl" in backend


def _file(library: Library, paths: bool) -> str:
    """The hash where it is known: the same build may lie in two places."""
    return f"sha256 {library.sha256[:12]}" if library.sha256 else (library.path or "") * paths


def _limits(host: Host) -> str:
    cpus = "" if host.cgroup_cpus is None else f"{host.cgroup_cpus:g} CPUs"
    memory = "" if host.cgroup_memory is None else f"{host.cgroup_memory / 2**30:.1f} GiB"
    return ", ".join(word for word in (cpus, memory) if word)


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))
