"""`python -m collbench.launch.node`: prints the facts of the machine that it runs on, as JSON on one line."""

from __future__ import annotations

import sys

import msgspec

from collbench.machine import facts

if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(facts.host()).decode() + "\n")
