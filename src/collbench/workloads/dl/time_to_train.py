"""`python -m collbench.workloads.dl.time_to_train --network NAME --target LOSS ...`: train until held-out loss is low.

The examples are those of `datasets` in the current folder, of which the first batches are held out. As in MLPerf
Training (P. Mattson et al., MLSys 2020), the time begins before the first step and ends with the evaluation that finds
the target reached; evaluations are part of it. Prints JSON: `ns`, the time `train`; `steps` until then; `loss`, that of
the held-out examples; `nonfinite`, how many losses of steps are no finite numbers; and `notes`. A training that does
not reach its target ends with exit code 1, and a GPU that is not there with 77.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from collbench.units import counted
from collbench.workloads.dl.datasets import ABOUT, NETWORKS, About
from collbench.workloads.dl.suite import HELD, TIME_TO_TRAIN
from collbench.workloads.dl.train import Batches, Training, notes_of
from collbench.workloads.protocol import arguments, end, printed, refuse_without_gpu


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """Steps in the order of the file, epoch after epoch, until an evaluation finds the target reached."""
    refuse_without_gpu(torch, flags.device)
    torch.set_num_threads(flags.threads)
    network, about = NETWORKS[flags.network], About(**json.loads(Path(ABOUT).read_text(encoding="utf-8")))
    batches, training = Batches(network, about, flags.batch), Training(network, flags.device)
    held, epoch, lowest = [batches[number] for number in range(HELD)], len(batches) - HELD, math.inf
    began, loss = time.perf_counter_ns(), math.inf
    for step in range(flags.steps):
        training.step(batches[HELD + step % epoch])
        if (step + 1) % flags.every == 0 or step + 1 == flags.steps:
            loss = training.held_out(held)
            lowest = min(lowest, loss)
        if loss <= flags.target:
            break
    else:
        end(1, f"target {flags.target:g} was not reached within {counted(flags.steps, 'step')}: the lowest loss of "
               f"held-out examples was {lowest:g}; use more steps, or a higher target")  # fmt: skip
    return {
        "ns": {"train": [time.perf_counter_ns() - began]}, "steps": len(training.losses), "loss": loss,
        "nonfinite": sum(not math.isfinite(value) for value in training.losses),
        "notes": [*notes_of(flags, about), f"{counted(HELD * flags.batch, 'example')} held out"],
    }  # fmt: skip


def main() -> None:
    """Print what `run` finds."""
    flags = arguments(__doc__, TIME_TO_TRAIN)
    flags.batch = flags.batch or NETWORKS[flags.network].batch
    printed(lambda: run(flags), f"{flags.network} in batches of {flags.batch}")


if __name__ == "__main__":
    main()
