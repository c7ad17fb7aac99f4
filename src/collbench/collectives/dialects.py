"""The arguments that each dialect gives to a row's binder. Backends implement these; no library is imported here.

Buffers are [blocks, count] of the dialect's own kind (NumPy arrays for mpi, or device memory for mpi and nccl, tensors
for torch).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from collbench.collectives.row import C, CallStep


class Arguments(Protocol):
    """What a dialect offers to a row: buffers on demand, and the handles of its library.

    `send` and `recv` are allocated when first used, with the number of blocks that `Collective.blocks` gives for
    this rank. In `in_place` cases a row uses only one of them.
    """

    rank: int
    ranks: int
    root: int
    count: int
    in_place: bool
    send: Any  # [blocks.send, count] elements to send
    recv: Any  # [blocks.recv, count] elements to receive into


class MpiArguments(Arguments, Protocol):
    """Handles of an MPI library, as mpi4py has them. A row's `c` arguments are any of these, buffers, ints, None."""

    comm: Any
    datatype: Any
    op: Any
    IN_PLACE: Any
    status: Any  # an object that outlives the call

    def buffer(self, blocks: int) -> Any:
        """Another buffer [blocks, count] than `send` and `recv`."""

    def spec(self, buffer: Any) -> Any:
        """A buffer with its datatype, as mpi4py takes it; IN_PLACE and None pass through."""


class NcclDialectArguments(Arguments, Protocol):
    """Handles of NCCL and of the ranks' GPUs. Buffers and slices of them have an `address`.

    `comm` is the communicator, `datatype` and `op` the library's numbers, `stream` a handle.
    """

    comm: Any
    datatype: int
    op: int
    stream: int

    def buffer(self, blocks: int) -> Any:
        """Other device memory [blocks, count] than `send` and `recv`."""

    def send_to(self, blocks: Any, peer: int) -> CallStep:
        """ncclSend."""

    def recv_from(self, blocks: Any, peer: int) -> CallStep:
        """ncclRecv."""

    def grouped(self, *steps: CallStep) -> CallStep:
        """Steps between ncclGroupStart and ncclGroupEnd."""

    def direct(self, function: str, source: Any, target: Any, *numbers: int) -> CallStep | None:
        """A function of NCCL that CuPy lacks; None where this NCCL lacks it, too. `source` or `target` may be None."""


def nccl_step(a: NcclDialectArguments, function: str, python: Any, source: Any, target: Any, *numbers: int) -> CallStep:
    """A function of NCCL and the method of its communicator that does the same; without a `target` on some ranks."""
    addresses = (source.address, 0 if target is None else target.address)
    call = C(function, source, target, *numbers, a.comm, a.stream)
    return CallStep(partial(python, *addresses, *numbers, a.stream), (call,))


class Served(Protocol):
    """For a collective with a server, whose `send` and `recv` are in host memory. The chief is the first worker."""

    serving: bool
    chief: bool

    def landing(self, blocks: int) -> Any:
        """The chief's host memory [blocks, count], for what goes to or comes from the server."""


class ServedArguments(NcclDialectArguments, Served, Protocol):
    """`rank`, `ranks` and `root` are those of the world, `comm` is the workers', in which the chief is rank 0."""

    def link_send(self, blocks: Any) -> CallStep:
        """MPI_Send of host memory, from the server to the chief or from the chief to the server."""

    def link_recv(self, blocks: Any) -> CallStep:
        """MPI_Recv into host memory, between the same two."""

    def copy_in(self, target: Any, source: Any) -> CallStep:
        """Host memory to device memory, in the stream."""

    def copy_out(self, target: Any, source: Any) -> CallStep:
        """Device memory to host memory, in the stream."""

    def wait(self) -> CallStep:
        """Until everything in the stream is done."""


class TorchDialectArguments(Arguments, Protocol):
    """torch.distributed as `dist`; `op` is a ReduceOp."""

    dist: Any
    op: Any

    def function(self, *names: str) -> Any:
        """The first of these names that this version of torch.distributed has."""

    def exchange(self, send: Any, after: int, recv: Any, before: int) -> Callable[[], object]:
        """A send to one rank and a receive from another at the same time."""

    def out_of_place_only(self, function: str) -> None:
        """Raises `Unsupported` in in-place cases: `function` has no in-place form."""


class TorchServedArguments(TorchDialectArguments, Served, Protocol):
    """Where workers have GPUs: `dist` is the workers' group, `link` for host memory, and `chief_rank` is the chief."""

    chief_rank: int
    link: Any

    def buffer(self, blocks: int) -> Any:
        """Other GPU memory [blocks, count] than `send` and `recv`."""

    def wait(self) -> None:
        """Until everything on this GPU is done."""
