"""Which backends a plan means, which of them are usable here, and which ranks need a GPU in its cases."""

from __future__ import annotations

from collbench import backends, collectives
from collbench.bindings.spec import Backend, Roles
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.machine import launcher
from collbench.schema.plan import Plan

_DEFAULT = {("cpu", True): "torch-gloo", ("cpu", False): "mpi", ("gpu", True): "torch-nccl", ("gpu", False): "nccl"}


def default_backend(device: str = "cpu") -> str:
    """`mpi`, and on GPUs `nccl`; under torchrun `torch-gloo` and `torch-nccl`."""
    return _DEFAULT[device, launcher.detect().kind == "torchrun"]


def chosen_backends(plan: Plan) -> tuple[tuple[Backend, ...], dict[str, str]]:
    """The backends to measure, none without collectives, and of those that the plan allows to be missing the reason.

    Raises:
        PlanError: simulated and real ones are mixed, whether they are usable here or not.
        BackendUnavailable: one is missing that must not be, or all are.
    """
    if not plan.collectives:
        return (), {}
    names = tuple(dict.fromkeys(plan["backends"] or (default_backend(),)))
    simulated = [name for name in names if backends.get(name).simulated]
    if simulated and (plan.workloads or len(simulated) < len(names)):
        made_up = ", ".join(simulated)
        raise PlanError(f"backends: the times of {made_up} are simulated; measure them in a separate run.")
    absent: dict[str, str] = {}
    if plan.unusable == "skip":
        absent = {name: reason for name in names if (reason := backends.missing(name)) is not None}
    if len(absent) == len(names):
        absent = {}
    return tuple(backends.usable(name) for name in names if name not in absent), absent


def roles_of(cases: tuple[tuple[CollectiveCase, ...], ...]) -> Roles:
    """Who is a parameter server in which cases, and whether there are cases without one."""
    servers = {case.root or 0 for group in cases for case in group if collectives.get(case.collective).has_server}
    plain = any(not collectives.get(case.collective).has_server for group in cases for case in group)
    return Roles(plain, frozenset(servers))
