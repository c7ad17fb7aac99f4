"""Check `compiler`: the native timing loop, and what is missing to build it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.timing.loop import native_loop

_EFFECT = (
    "--driver native falls back to python: times of small operations include mpi4py and Python, "
    "8 bytes take two to three times the library's own latency"
)
REINSTALL = "pip install --force-reinstall --no-deps --no-cache-dir -v ."


def judge(machine: Machine, loop: str | None, headers: Path) -> Finding:
    """`loop` is the file of the built loop, or None; `headers` the directory in which Python.h belongs."""
    if loop is not None:
        return found(f"native loop built ({loop})")
    compiler = (machine.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    missing = []
    if machine.which(compiler) is None:
        missing.append(f"no C compiler ({compiler}) on PATH")
    if not (headers / "Python.h").is_file():
        missing.append(f"no Python.h in {headers}")
    if missing:
        seen = f"native loop not built: {', '.join(missing)}"
        fix = f"sudo apt-get install -y gcc libc6-dev python3-dev (Debian, Ubuntu), then in the checkout: {REINSTALL}"
        return found(seen, Problem("warn", f"collbench was installed with {' and '.join(missing)}", _EFFECT, fix))
    cause = f"{compiler} and Python.h are here now: they were installed after collbench, or the build failed"
    fix = f"in the checkout, and read what it prints about collbench.timing._loop: {REINSTALL}"
    return found("native loop not built", Problem("warn", cause, _EFFECT, fix))


def run(machine: Machine) -> Finding:
    loop = native_loop()
    return judge(machine, None if loop is None else loop.__file__, Path(sysconfig.get_path("include")))
