"""`python -m collbench.workloads.programs.fathom --network NAME --batch N --device D --threads T --times K`: K steps.

A step is what a training repeats: the batch goes to the device, forward, backward, the weights change, and the loss
comes back. The batch is made before the clock starts.

Prints JSON: `ns`, the time of each step; `losses`, of each step; `loss`, that of an early step by a name that says
which, to six digits; `repeatable`, whether this device gives the same loss each time; `notes`.
"""

from __future__ import annotations

import argparse
import importlib
import time
from typing import TYPE_CHECKING, Any

from collbench.units import counted
from collbench.workloads import _own
from collbench.workloads.fathom_networks import NETWORKS
from collbench.workloads.programs.ending import printed, refuse_without_gpu

if TYPE_CHECKING:
    import torch

    from collbench.workloads.fathom_networks.network import Network

SEED = 1

#: The loss of this step is compared: later ones say no more, and have magnified more differences in rounding.
COMPARED = 3


def made(name: str) -> Network:
    """A network by its name in NETWORKS, with its weights."""
    module = importlib.import_module(f"collbench.workloads.fathom_networks.{name.replace('-', '_')}")
    network: Network = module.NETWORK()
    return network


def step(network: Network, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, ...], device: str) -> float:
    """One step of training. Returns the loss, for which everything before must be done, on a GPU too."""
    optimizer.zero_grad()
    loss = network.loss(*(one.to(device) for one in batch))
    loss.backward()  # type: ignore[no-untyped-call]
    network.change_gradients()
    optimizer.step()
    return loss.item()


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """See the module.

    Raises:
        Unusable: there is no such device.
    """
    import torch

    refuse_without_gpu(torch, flags.device)
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
        "ns": ns,
        "losses": losses,
        "loss": compared(losses),
        "repeatable": flags.device == "cpu" or network.repeatable_on_gpu,
        "notes": notes(flags),
    }


def size_of(flags: argparse.Namespace) -> int:
    """The samples of a step."""
    asked: int = flags.batch
    return asked or NETWORKS[flags.network].usual(flags.device)


def compared(losses: list[float]) -> dict[str, float]:
    """The loss of an early step, to six digits: that of the last one where there are fewer."""
    number = min(COMPARED, len(losses))
    return {f"loss of step {number}": _own.compared(losses[number - 1])}


def notes(flags: argparse.Namespace) -> list[str]:
    """What a reader of the times must know."""
    size, original = size_of(flags), NETWORKS[flags.network].batch
    found = [f"made-up data of the original's shapes, batches of {size}, {counted(flags.threads, 'thread')}"]
    if not flags.batch and size != original:
        found.append(
            f"{flags.network} with a batch of {size}, because a step of the original's {original} takes long on a "
            f"processor; batch={original} asks for it"
        )
    return found


def main() -> None:
    """Print the result as JSON; exit code 77 where there is no such device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True, choices=NETWORKS, help="which network")
    parser.add_argument("--device", required=True, choices=("cpu", "cuda"), help="where it is trained")
    for flag, means in (("--batch", "samples of a step; 0: the usual number"), ("--threads", "threads of torch"),
                        ("--times", "how many steps")):  # fmt: skip
        parser.add_argument(flag, type=int, required=True, help=means)
    flags = parser.parse_args()
    printed(lambda: run(flags), f"{flags.network} with a batch of {size_of(flags)}")


if __name__ == "__main__":
    main()
