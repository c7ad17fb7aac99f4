"""Check `speculation`: whether containers pay for a mitigation that the host does not have.

Kernels before 5.16 disable speculative stores past unknown addresses (SSBD) for every process with a filter of system
calls, which is what Docker gives its containers.
"""

from __future__ import annotations

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, status

#: Lines of /proc/self/status begin so: Speculation_Store_Bypass, SpeculationIndirectBranch.
_LINES = "Speculation"

_BYPASS = "sys/devices/system/cpu/vulnerabilities/spec_store_bypass"


def run(machine: Machine) -> Finding:
    lines = status(machine)
    states = [f"{name} {value}" for name, value in lines.items() if name.startswith(_LINES)]
    bypass, kernel = machine.read(_BYPASS), machine.read("proc/sys/kernel/osrelease")
    seen = "; ".join((*states, *([f"spec_store_bypass: {bypass}"] if bypass else ())))
    mitigated = "mitigated" in lines.get("Speculation_Store_Bypass", "")
    # `Mitigation: Speculative Store Bypass disabled via prctl and seccomp`: the state of kernels before 5.16
    problem = _by_filter(kernel, mitigated) if "seccomp" in (bypass or "") else _own(mitigated)
    return found(seen or "the kernel does not say", problem)


_EFFECT = "loads wait for earlier stores: programs that access much memory are several per cent slower, in "


def _by_filter(kernel: str | None, mitigated: bool) -> Problem:
    where = "and this process has one" if mitigated else "as Docker's containers have, and the host's have not"
    return Problem(
        "warn",
        f"kernel {kernel or 'unknown'} disables store bypass (SSBD) in processes with a filter of system calls,"
        f" {where}",
        f"{_EFFECT}containers only",
        'seccomp = ["default", "unconfined"] in the launch plan, then compare --by seccomp; or boot with '
        "spec_store_bypass_disable=prctl",
    )


def _own(mitigated: bool) -> Problem | None:
    if not mitigated:
        return None
    cause = "store bypass is disabled for this process (SSBD), by what started it or for the whole machine"
    fix = "grep Speculation /proc/1/status shows whether it is for all; else start collbench without that"
    return Problem("warn", cause, f"{_EFFECT}this process and what it starts", fix)
