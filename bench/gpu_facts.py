"""What a machine with GPUs is: printed, each answer on its own, so that one that fails hides no other.

python bench/gpu_facts.py
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import site
import subprocess
import sys

COMMANDS = (
    ("nvidia-smi",),
    ("nvidia-smi", "topo", "-m"),
    ("uname", "-a"),
    ("lscpu",),
    ("ip", "-brief", "address"),
    ("df", "-h", "/dev/shm", "/tmp"),  # noqa: S108 - looked at, not written to
    ("nvcc", "--version"),
    ("cc", "--version"),
    ("mpirun", "--version"),
)
TOLD = ("cupy", "torch", "nccl", "cuda", "mpi", "numpy", "msgspec", "nvidia", "pytest")
LIMIT = 15.0  # s


def show(argv: tuple[str, ...]) -> None:
    """What a command prints, or why it prints nothing."""
    print(f"\n$ {' '.join(argv)}", flush=True)
    if shutil.which(argv[0]) is None:
        print("(not there)")
        return
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
        print(done.stdout.decode(errors="replace").rstrip())
    except (OSError, subprocess.SubprocessError) as error:
        print(f"({error})")


def main() -> None:
    print(platform.platform(), sys.version, sys.prefix, *site.getsitepackages(), sep="\n")
    for name, version in sorted({(one.name.lower(), one.version) for one in importlib.metadata.distributions()}):
        if any(word in name for word in TOLD):
            print(name, version)
    for argv in COMMANDS:
        show(argv)


if __name__ == "__main__":
    main()
