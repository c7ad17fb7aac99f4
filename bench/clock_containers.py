"""Two containers of a collbench image, a core each, as two hosts: `clocks.py --containers` starts its ranks there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Iterator

from installation import HERE, LaunchFailed, run

#: unshare makes a time namespace for a rank; the MPIs look into each other's memory, which they are not to use here.
RIGHTS = ("--cap-add", "SYS_ADMIN", "--cap-add", "SYS_TIME", "--security-opt", "seccomp=unconfined", "-u", "root")
SHELL = "/clone/bench/remote_shell.py"
STARTS = 30.0  # s, until a container serves

#: By MPI, how its launcher starts a rank on hosts a and b, over TCP; what follows the colon is for the second rank.
LAUNCHERS = {
    "openmpi": (
        (
            "mpirun",
            "--prtemca",
            "plm_ssh_agent",
            SHELL,
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "self,tcp",
            "--host",
            "a",
        ),
        ("--host", "b"),
    ),
    "mpich": (("mpiexec", "-launcher", "rsh", "-launcher-exec", SHELL, "-hosts", "a,b", "-ppn", "1"), ()),
}
VARIABLES = {"PYTHONPATH": "/clone/src", "UCX_TLS": "tcp,self", "OMPI_ALLOW_RUN_AS_ROOT": "1",
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip


def docker(*words: str, limit: float = 60.0) -> str:
    """What Docker's client prints.

    Raises:
        LaunchFailed: an error, or more than `limit` seconds.
    """
    return run(("docker", *words), limit, dict(os.environ))


@contextlib.contextmanager
def two_hosts(image: str) -> Iterator[str]:
    """The name of the first container; that of the second ends in b. Removed in any case."""
    name = f"collbench-clocks-{uuid.uuid4().hex[:8]}"
    variables = [word for key, value in VARIABLES.items() for word in ("-e", f"{key}={value}")]
    try:
        docker("network", "create", "--internal", name)
        for core, host in enumerate("ab"):
            place = ("--network", name, "--network-alias", host, "--hostname", host, "--cpuset-cpus", str(core))
            mount = ("-v", f"{HERE.parent}:/clone:ro")
            docker("run", "-d", "--init", "--name", f"{name}-{host}", *place, *RIGHTS, *mount, *variables,
                   f"collbench/{image}", "python", SHELL, "serve")  # fmt: skip
        for host in "ab":
            _wait_for(f"{name}-a", host)
        yield f"{name}-a"
    finally:
        for words in (("rm", "-f", f"{name}-a", f"{name}-b"), ("network", "rm", name)):
            subprocess.run(("docker", *words), capture_output=True, check=False)


def _wait_for(container: str, host: str) -> None:
    """Until a command can be run on a host."""
    until = time.monotonic() + STARTS
    while True:
        try:
            docker("exec", container, SHELL, host, "true")
            return
        except LaunchFailed:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def launched(image: str, program: tuple[str, ...], elsewhere: tuple[str, ...], limit: float) -> str:
    """What a rank on each host prints; `elsewhere` comes before the second one's program."""
    first, second = LAUNCHERS[image]
    with two_hosts(image) as container:
        words = (*first, "-n", "1", *program, ":", *second, "-n", "1", *elsewhere, *program)
        return docker("exec", container, *words, limit=limit)
