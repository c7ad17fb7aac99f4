"""A program: append records of the run SOURCE to the new run TARGET until the disk is full. Prints how many it kept.

Exit code 0 when the writer said so in its own words and the run could be closed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from collbench.errors import RunWriteError
from collbench.schema.manifest import read_manifest
from collbench.schema.record import Samples
from collbench.schema.store import RecordStream, RunWriter

ENOUGH = 100_000


def main(source: str, target: str) -> int:
    first, *_ = RecordStream(Path(source))
    record = msgspec.structs.replace(first, samples=Samples(n=100, invalid=0, warmup=5))
    samples = np.arange(1, 401).reshape(4, 100)
    kept = 0
    try:
        with RunWriter(Path(target), read_manifest(Path(source))) as writer:
            for launch in range(ENOUGH):
                writer.append(msgspec.structs.replace(record, launch=launch), samples)
                kept += 1
    except RunWriteError as error:
        sys.stderr.write(f"{error}\n")
        sys.stdout.write(f"{kept}\n")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
