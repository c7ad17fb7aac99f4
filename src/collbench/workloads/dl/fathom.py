"""fathom: a training step of the networks of Fathom, defined anew in torch, on made-up data.

After R. Adolf, S. Rama, B. Reagen, G. Wei, D. Brooks, "Fathom: Reference Workloads for Modern Deep Learning Methods",
IISWC 2016, as its public source runs.

`python -m collbench.workloads.dl.fathom --network NAME --batch N --device D --threads T --times K`: K steps. A step is
what a training repeats: the batch goes to the device, forward, backward, the weights change, and the loss comes back.
The batch is made before the clock starts. Prints JSON: `ns`, the time of each step; `losses`, of each step; `loss`,
that of an early step by a name that says which, to six digits; `repeatable`, whether this device gives the same loss
each time; `notes`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads import protocol
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of
from collbench.workloads.software import Torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from collbench.workloads.dl.fathom_networks import FathomNetwork


@dataclass(frozen=True)
class FathomSize:
    """How large a network is.

    `batch` is that of the original, and `on_cpu` the one that a processor gets in its place. `parameters` are numbers
    that are trained; there are so many `copies` of them at a time: weights, gradients, what the optimizer keeps, and
    what it needs while it works. `activations` are the bytes that a sample needs beside them, about.
    """

    batch: int
    parameters: int
    copies: int
    activations: int
    on_cpu: int = 0

    def usual(self, device: str) -> int:
        """The batch where none is asked for."""
        return self.on_cpu if device == "cpu" and self.on_cpu else self.batch


MIB = 1 << 20

NETWORKS = {
    "seq2seq": FathomSize(64, 34_633_792, 3, 8 * MIB),
    "memnet": FathomSize(32, 1_800, 6, MIB),
    "speech": FathomSize(32, 2_190_398, 3, 80 * MIB),
    "speech-recurrent": FathomSize(32, 6_386_750, 3, 160 * MIB, on_cpu=1),
    "autoenc": FathomSize(128, 471_584, 6, MIB),
    "residual": FathomSize(16, 6_178_624, 6, 400 * MIB, on_cpu=1),
    "vgg": FathomSize(8, 137_771_561, 6, 240 * MIB, on_cpu=1),
    "alexnet": FathomSize(64, 61_104_937, 6, 16 * MIB),
    "deepq": FathomSize(32, 1_686_180, 5, MIB),
}


def argv(case: Case, times: int) -> Sequence[str]:
    settings = {name: case[name] for name in ("network", "batch", "device")}
    return protocol.started("dl.fathom", **settings, threads=threads_of(case["threads"]), times=times)


def memory(case: Case) -> int:
    """Bytes of the host, about: on a GPU the weights (float32) alone, which are made here."""
    size, device = NETWORKS[case["network"]], case["device"]
    weights, batch = 4 * size.parameters, case["batch"] or size.usual(device)
    return int(weights * size.copies + batch * size.activations if device == "cpu" else weights)


def loss(case: Case, output: str) -> Mapping[str, float]:
    return json.loads(output)["loss"]  # type: ignore[no-any-return]


WORKLOAD = Program(
    name="fathom", suite="fathom", title="Fathom",
    summary="a training step of each of Fathom's networks, in torch, on made-up data",
    measures=(Measure("step", lambda case: 1, "steps", shown="time"),),
    argv=argv, parse=lambda output: {"step": [ns * 1e-9 for ns in json.loads(output)["ns"]]},
    verify=lambda case, output: sum(not math.isfinite(value) for value in json.loads(output)["losses"]),
    figures=loss, repeatable=lambda case, output: loss(case, output) if json.loads(output)["repeatable"] else {},
    notes=protocol.notes, memory=memory, software=(Torch(),),
    axes=(
        parameter("network", "alexnet", f"one of {', '.join(NETWORKS)}; all: each of them", among=tuple(NETWORKS),
                  groups={"all": tuple(NETWORKS)}),
        parameter("batch", 0, "samples of a step; 0: as many as the original has", least=0, most=65_536),
        parameter("device", "cpu", "where it is trained", among=("cpu", "cuda"), kind="how"),
        parameter("threads", ALL_CORES, "threads of torch; 0: as many as cores", least=0, most=4096, kind="how"),
    ),
)  # fmt: skip

SEED = 1


def made(name: str) -> FathomNetwork:
    """A network by its name in NETWORKS, with its weights."""
    from collbench.workloads.dl import fathom_networks, fathom_sequences

    network: FathomNetwork = (fathom_networks.NETWORKS | fathom_sequences.NETWORKS)[name]()
    return network


def step(network: FathomNetwork, optimizer: Optimizer, batch: tuple[Tensor, ...], device: str) -> float:
    """One step of training. Returns the loss, for which everything before must be done, on a GPU too."""
    optimizer.zero_grad()
    loss = network.loss(*(tensor.to(device) for tensor in batch))
    loss.backward()  # type: ignore[no-untyped-call]
    network.change_gradients()
    optimizer.step()
    return loss.item()


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """See the module. Unusable: there is no such device."""
    import torch

    protocol.refuse_without_gpu(torch, flags.device)
    torch.set_num_threads(flags.threads)
    torch.manual_seed(SEED)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    network = made(flags.network).to(flags.device)
    optimizer, data = network.optimizer(), torch.Generator().manual_seed(SEED)
    size, ns, losses = size_of(flags), list[int](), list[float]()
    for _ in range(flags.times):
        batch = network.batch(size, data)
        began = time.perf_counter_ns()
        losses.append(step(network, optimizer, batch, flags.device))
        ns.append(time.perf_counter_ns() - began)
    return {
        "ns": ns, "losses": losses, "loss": compared(losses),
        "repeatable": flags.device == "cpu" or network.repeatable_on_gpu, "notes": notes(flags),
    }  # fmt: skip


def size_of(flags: argparse.Namespace) -> int:
    """The samples of a step."""
    batch: int = flags.batch
    return batch or NETWORKS[flags.network].usual(flags.device)


def compared(losses: list[float]) -> dict[str, float]:
    """The loss of the third step or the last: later ones say no more, and have magnified differences in rounding."""
    number = min(3, len(losses))
    return {f"loss of step {number}": protocol.compared(losses[number - 1])}


def notes(flags: argparse.Namespace) -> list[str]:
    """What a reader of the times must know."""
    size, original = size_of(flags), NETWORKS[flags.network].batch
    usual = f"made-up data of the original's shapes, batches of {size}, {counted(flags.threads, 'thread')}"
    smaller = (f"{flags.network} with a batch of {size}, because a step of the original's {original} takes long on a "
               f"processor; batch={original} asks for it")  # fmt: skip
    return [usual] if flags.batch or size == original else [usual, smaller]


def main() -> None:
    """Print the result as JSON; exit code 77 where there is no such device."""
    flags = protocol.arguments(__doc__, WORKLOAD)
    protocol.printed(lambda: run(flags), f"{flags.network} with a batch of {size_of(flags)}")


if __name__ == "__main__":
    main()
