"""What Slurm is given, as the golden files show it."""

from __future__ import annotations


def without_its_loop(text: str) -> str:
    """A job and its steps, without what every job does: it performs them. `slurm-bare.sh` has it."""
    head, _, rest = text.partition("exec {never}")
    return head + rest[rest.index("\ndone\n") + len("\ndone\n") :]
