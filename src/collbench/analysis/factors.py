"""What the sides of a comparison may differ in: factors, and facts of machine and software, all by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from collbench.analysis.results import grouped
from collbench.analysis.runs import Observed
from collbench.errors import RequestError, suggestion
from collbench.schema import command
from collbench.schema.axes import AXES, SOFTWARE, Axis, axis_of, policy_order, step_order
from collbench.schema.case import Case
from collbench.schema.manifest import Host, Image, Manifest

#: How facts begin that are called by a name of software: variables, and settings of libraries.
NAMED = ("env:", "setting:")


def is_allowed(allowed: Collection[str], fact: str) -> bool:
    """Whether it is one of these facts; `env:*` among them is every variable, `setting:*` every setting."""
    return fact in allowed or (fact.startswith(NAMED) and f"{fact.partition(':')[0]}:*" in allowed)


@dataclass(frozen=True)
class Factor:
    """What may differ between the sides: `axes` of the case, and the facts of the environment that come with them.

    `label` names a side, `order` puts the base first, and `opposed` says whether two sides can be compared at all.
    `fewer`: of two runs, axes of which fewer may be enough to tell their cells apart, the least first.
    """

    name: str
    axes: tuple[str, ...]
    implied: frozenset[str]
    label: Callable[[Case], str] = lambda case: ""
    order: Callable[[Case], Any] = lambda case: 0
    opposed: Callable[[Case, Case], bool] = lambda base, other: True
    fewer: tuple[tuple[str, ...], ...] = ()

    def implies(self, fact: str) -> bool:
        """Whether a fact of the environment may differ with it."""
        return is_allowed(self.implied, fact)

    def varies(self, cases: Iterable[Case]) -> bool:
        return len({tuple(case[axis] for axis in self.axes) for case in cases}) > 1


def _same_step(base: Case, other: Case) -> bool:
    """The host has no step; two policies in containers are compared at the same step of the same engine."""
    steps = [(where.engine, where.isolation, where.seccomp) for where in (base.where, other.where)]
    alike = base.where.on_host or other.where.on_host or steps[0] == steps[1]
    same = all(getattr(base.where, name) == getattr(other.where, name) for name in ("affinity", "gpus", "cores"))
    return same and alike


def _of_axis(axis: Axis, implied: frozenset[str]) -> Factor:
    return Factor(axis.spelled, (axis.name,), implied, lambda case: axis.label(case[axis.name]),
                  lambda case: axis.order(case[axis.name]))  # fmt: skip


#: Factors that are more than one axis: a policy is named with its step and engine, an engine has its own steps: two of
#: them are compared at the same policy and step, the host with all.
_PLACES = (
    Factor("policy", ("policy", "isolation", "engine", "seccomp"), AXES["policy"].implies, lambda case: case.where.text,
           lambda case: (policy_order(case.where.policy), step_order(case.where.isolation), case.where.seccomp),
           _same_step),
    Factor("engine", ("engine", "policy", "isolation", "seccomp"), AXES["policy"].implies | {"engine", "job-options"},
           lambda case: case.where.text if case.where.on_host else f"{case.where.engine} {case.where.text}",
           lambda case: (not case.where.on_host, case.where.engine),
           lambda base, other: base.where.on_host or other.where.on_host or base.where.text == other.where.text,
           (("engine",), ("engine", "isolation", "seccomp"))),
)  # fmt: skip

#: What `--by` takes within one run, the likeliest first. Sizes are the rows of a table, and numbers of ranks are
#: different questions.
FACTORS = {factor.name: factor for factor in _PLACES} | {
    axis.spelled: _of_axis(axis, axis.implies)
    for axis in sorted(AXES.values(), key=lambda axis: ("where", "how", "what").index(axis.kind))
    if axis.name not in ("size", "ranks", "policy", "engine")
}

#: Within one run: the sides of `policy`, whose libraries and programs are the question.
_LIBRARY = replace(_PLACES[0], name="library", implied=SOFTWARE)


def normalised(name: str) -> str:
    """`thread-level` for `Thread_Level`; the name of a variable, as in `env:NCCL_ALGO`, keeps its spelling."""
    return name if name.startswith(NAMED) else name.replace("_", "-").lower()


def of_fact(name: str) -> Factor:
    """A fact of the environment as the factor, with those that come with it: a variable may be a library's setting."""
    libraries = name in ("library", "library-file")
    return Factor(name, (), SOFTWARE | {"launcher"} if libraries else frozenset({name, setting_of(name)}))


def setting_of(variable: str) -> str:
    """The fact of the setting that a variable (`env:NAME`) sets, where a library tells it."""
    return variable.replace("env:", "setting:", 1)


def find_factor(name: str, more: Iterable[str] = (), workload_axes: Iterable[str] = ()) -> Factor:
    """The factor of that name; `workload_axes` are those of workloads, `more` facts of the environments of two runs.

    Without `more`, within one run, `library` compares places that have their own software. Raises RequestError.
    """
    spelled = normalised(name)
    if spelled in FACTORS:
        return FACTORS[spelled]
    if spelled in (axis.replace("_", "-") for axis in workload_axes):  # which may be the choice of a library
        return _of_axis(axis_of(spelled.replace("-", "_")), frozenset({"library", "library-file", "setting:*"}))
    if spelled in more:
        return of_fact(spelled)
    if spelled == _LIBRARY.name:
        return _LIBRARY
    known = (*FACTORS, *workload_axes, *(more or (_LIBRARY.name,)))
    raise RequestError(f"--by {name!r}: unknown. {suggestion(spelled, known)}")


#: Facts that change no number of the native driver: mentioned where they differ, refused only where Python is timed.
PYTHON = frozenset({"python", "packages"})

#: Facts that are only mentioned where they differ: they change the precision of a number, not its value; or they name
#: machines, whose own facts are compared.
MENTIONED = frozenset({"host", "boot", "allocation", "samples"})

#: Variables that a launcher sets for its own use.
_OF_LAUNCHER = frozenset({"OMPI_MCA_cpu_type", "OMPI_MCA_num_procs", "OMPI_MCA_mpi_oversubscribe"})

#: Where software is: image, side of the plan, whether it is the environment beside that image, users of a library,
#: backend.
SideKey = tuple[str | None, str | None, bool, frozenset[str], str]


def side_of(case: Case) -> SideKey:
    """On which side a case ran: cases of one side have the same facts.

    A manifest may name a case as a user of a library: `linpack`, `linpack blas=mkl`; a collective uses none.
    """
    settings = [f"{case.workload} {name}={value}" for name, value in case.how.items()]
    if case.workload == command.NAME:
        settings.append(command.use_of(case["command"], shlex.split(case["files"] or "")))
    users = frozenset[str]() if case["backend"] else frozenset({case.workload, *settings})
    return (case.where.image, case.where.side, case.where.on_host, users, case["backend"])


def facts_of(observed: Observed, cases: Iterable[Case]) -> dict[str, str]:
    """Every fact of the side that these cases make up, by name; several values are joined by `and`."""
    sides = dict.fromkeys(map(side_of, cases))
    machines = [(manifest, _of_manifest(manifest)) for manifest in observed.manifests]
    each = (machine | software(manifest, image, on_host, users, backend, side)
            for manifest, machine in machines for image, side, on_host, users, backend in sides)  # fmt: skip
    values_of = grouped(fact for facts in each for fact in facts.items())
    return {name: _several(values) for name, values in values_of.items()}


def unlike(observed: Observed) -> dict[str, str]:
    """In what the runs of a folder differ, by name: empty where each is a launch of the same."""
    each = (_of_manifest(manifest) | software(manifest, None, True)
            | {"experiment": "of many launches" if manifest.experiment else "of one"}
            for manifest in observed.manifests)  # fmt: skip
    values_of = grouped(fact for facts in each for fact in facts.items()).items()
    return {name: _several(values) for name, values in values_of if len({*values}) > 1 and name not in MENTIONED}


def _several(values: Iterable[str]) -> str:
    return " and ".join(sorted(value or "none" for value in {*values})) if any(values) else ""


def differences_of(base: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """How each fact differs, by name: `Linux 6.1 against 6.6`; `unknown` or `not set` where a side lacks it."""
    lacking = {name: "not set" if name.startswith(NAMED) else "unknown" for name in sorted(base.keys() | other.keys())}
    values = {name: (base.get(name, none), other.get(name, none)) for name, none in lacking.items()}
    return {name: f"{a or 'none'} against {b or 'none'}" for name, (a, b) in values.items() if a != b}


def _of_manifest(manifest: Manifest) -> dict[str, str]:
    hosts, protocol = manifest.hosts, manifest.protocol
    job = manifest.experiment.allocation if manifest.experiment else None  # by a resource manager
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
        "allocation": f"job {job.job} in partition {job.partition} on {job.nodes}" if job else "",
        "job-options": " ".join(sorted(job.options)) if job else "",
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
        # without users of a library an environment may hold NCCL for other backends
        libraries = tuple(library for library in libraries if (users & {*library.used_by} if users or library.used_by
                                                       else library.name != "NCCL" or "nccl" in backend))  # fmt: skip
    facts = {
        # a BLAS with the kernel that it chose, which says more than its version; what has no version by its hash
        "library": _all(f"{library.name} {library.version or (library.sha256 or '')[:12]}"
                        f"{f' ({library.kernel})' if library.kernel else ''}" for library in libraries),
        # the hash where it is known: the same build may lie in two places
        "library-file": _all(
            f"sha256 {library.sha256[:12]}" if library.sha256 else (library.path or "") * (side is None)
            for library in libraries),
        "packages": _all(f"{name} {version}" for name, version in packages.items()),
        "python": python,
    }  # fmt: skip
    settings = (setting.partition("=") for library in libraries for setting in library.settings)
    facts |= {f"setting:{name}": value for name, _, value in settings}
    facts |= {f"env:{name}": value for name, value in variables.items() if name not in _OF_LAUNCHER}
    return facts if side is None or on_host else facts | {"image-id": (side.id or "").removeprefix("sha256:")[:12]}


def _limits(host: Host) -> str:
    cpus = "" if host.cgroup_cpus is None else f"{host.cgroup_cpus:g} CPUs"
    memory = "" if host.cgroup_memory is None else f"{host.cgroup_memory / 2**30:.1f} GiB"
    return ", ".join(word for word in (cpus, memory) if word)


def _all(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))
