"""Check `cma`: cross-memory attach, by which ranks on one machine copy once instead of twice. It is tried.

How the libraries use it, by their sources: MPICH disables it unless Yama's ptrace_scope is 0, and otherwise uses it
without a test; Open MPI opts in with PR_SET_PTRACER_ANY where Yama restricts it, then tests it with kcmp.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from collbench.bindings.mpi.loading import load_mpi, vendor
from collbench.doctor.parts import attach_probe
from collbench.doctor.parts.finding import Finding, Problem, Severity, found
from collbench.doctor.parts.processors import Machine
from collbench.errors import BackendUnavailable

Attempts = Mapping[str, Mapping[str, int | None]]

_SCOPE = "proc/sys/kernel/yama/ptrace_scope"
_MPICH_SWITCH = "MPIR_CVAR_CH4_CMA_ENABLE"
_UNRESTRICT = "sudo sysctl kernel.yama.ptrace_scope=0 (on the host, which its containers follow)"
_TWICE = "large messages are copied twice through shared memory, without a message: 2 to 6 times the time (512 KiB)"


def attempt(machine: Machine) -> Attempts:
    """Try it in a child. Of `plain` and `opted` (in with PR_SET_PTRACER_ANY): the errno of `readv` and `kcmp`.

    Raises:
        OSError, TimeoutError: the child did not start or did not answer.
        ValueError: its answer cannot be read.
    """
    output = machine.execute((sys.executable, "-I", "-S", str(Path(attach_probe.__file__))))
    if output.code != 0:
        raise OSError(f"the child that tries it ended with {output.code}: {output.text.strip()[-200:]}")
    attempts: Attempts = json.loads(output.text)
    return attempts


def library_vendor() -> str | None:
    """The vendor of the MPI that mpi4py finds; None where it finds none."""
    try:
        return vendor(load_mpi())
    except BackendUnavailable:
        return None


def judge(machine: Machine, attempts: Attempts, library: str | None) -> Finding:
    """The finding for the library; for both where it is not known."""
    scope = machine.read(_SCOPE)
    plain, opted = attempts["plain"], attempts["opted"]
    seen = (
        f"process_vm_readv {_word(plain['readv'])}"
        + (f" (opted in: {_word(opted['readv'])})" if plain != opted else "")
        + f", kcmp {_word(opted.get('kcmp'))}, "
        + ("no Yama" if scope is None else f"ptrace_scope {scope}")
    )
    problems = {
        "mpich": _mpich(machine, plain["readv"], scope, "fail" if library == "mpich" else "warn"),
        "openmpi": _openmpi(machine, opted, scope),
    }
    if library in problems:
        return found(seen, problems[library])
    return found(seen, *problems.values())


def _word(error: int | None) -> str:
    if error is None:
        return "not tried"
    return "allowed" if error == 0 else f"refused ({errno.errorcode.get(error, error)})"


def _allow(machine: Machine, scope: str | None) -> str:
    """How to allow the call where it was refused."""
    if machine.container is not None:
        return "docker run --cap-add SYS_PTRACE ... (Docker Engine 23 and later allow process_vm_readv without it)"
    if scope not in (None, "0"):
        return _UNRESTRICT
    return "start without the seccomp filter that refuses it (where grep Seccomp /proc/self/status prints 2)"


def _mpich(machine: Machine, readv: int | None, scope: str | None, severity: Severity) -> Problem | None:
    if machine.environ.get(_MPICH_SWITCH) == "0":
        return Problem("warn", f"{_MPICH_SWITCH}=0 is set", f"MPICH: {_TWICE}", f"unset {_MPICH_SWITCH}")
    if scope not in (None, "0"):
        cause = f"Yama's ptrace_scope is {scope}, and MPICH switches cross-memory attach off unless it is 0"
        return Problem("warn", cause, f"MPICH: {_TWICE}", _UNRESTRICT)
    if readv == 0:
        return None
    return Problem(
        severity,
        f"process_vm_readv is {_word(readv)} between processes of one user, and MPICH does not test it",
        "MPICH: messages from about 64 KiB on abort the job (process_vm_readv failed)",
        f"{_allow(machine, scope)}; or export {_MPICH_SWITCH}=0: then messages are copied twice",
    )


def _openmpi(machine: Machine, errors: Mapping[str, int | None], scope: str | None) -> Problem | None:
    refused = [name for name, error in (("process_vm_readv", errors["readv"]), ("kcmp", errors.get("kcmp"))) if error]
    if not refused:
        return None
    cause = f"{' and '.join(refused)} refused: Open MPI's test for cross-memory attach"
    return Problem("warn", cause, f"Open MPI: {_TWICE}", _allow(machine, scope))


def run(machine: Machine) -> Finding:
    return judge(machine, attempt(machine), library_vendor())
