"""`python -m collbench.workloads.programs.train_data --network NAME --data NAME --examples N`: the file to train from.

Writes `data` into the current folder, N rows of a data set in random order, from the first again where there are fewer,
and `data.json`, which says what they are. A file of the user's that is not what it should be ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from collbench.workloads._datasets import SEED, SOURCES, BadData, Examples, Rows
from collbench.workloads.networks import NETWORKS
from collbench.workloads.programs.ending import end

#: The rows, and what they are.
FILE, ABOUT = "data", "data.json"


@dataclass(frozen=True)
class About:
    """Rows of `width` values of type `dtype`, and their SHA-256."""

    label: str
    examples: int
    width: int
    dtype: str
    sha256: str


def as_many(rows: Rows, examples: int) -> Rows:
    """So many of the rows in random order from a fixed seed; from the first again where there are fewer."""
    order = np.random.RandomState(SEED).permutation(len(rows))
    return rows[np.resize(order, examples)]


def told(found: Examples, examples: int) -> str:
    """`MNIST, 2048 of 60000 examples (train-images-idx3-ubyte sha256 ba891046e650)`."""
    if not found.files:
        return found.label
    number = len(found.rows)
    some = f"{examples} of {number} examples" if examples <= number else f"{number} examples, repeated up to {examples}"
    hashes = ", ".join(f"{name} sha256 {sha256[:12]}" for name, sha256 in found.files.items())
    return f"{found.label}, {some} ({hashes})"


def write(found: Examples, examples: int) -> About:
    """Both files."""
    rows = as_many(found.rows, examples)
    with open(FILE, "wb") as file:  # noqa: PTH123 - tofile takes an open file
        rows.tofile(file)
    sha256 = hashlib.sha256(rows.data).hexdigest()
    about = About(told(found, examples), examples, rows.shape[1], str(rows.dtype), sha256)
    Path(ABOUT).write_text(json.dumps(asdict(about)), encoding="utf-8")
    return about


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--data", choices=SOURCES, required=True)
    parser.add_argument("--examples", type=int, required=True)
    flags = parser.parse_args()
    try:
        write(SOURCES[flags.data].read(NETWORKS[flags.network], flags.examples), flags.examples)
    except BadData as error:
        end(1, f"data={flags.data}: {error}")
    except OSError as error:
        end(1, f"data={flags.data}: {error.filename or FILE}: {error.strerror}")


if __name__ == "__main__":
    main()
