"""What each dialect hands to a row. The backends that speak a dialect implement these; no library is imported here.

Buffers are [blocks, count] of the dialect's own kind (NumPy arrays for mpi, tensors for torch).
"""

from __future__ import annotations

from typing import Any, Protocol

from collbench.collectives.row import Arguments


class MpiArguments(Arguments, Protocol):
    """Handles of an MPI library, as mpi4py has them. A row's `c` arguments are any of these, buffers, ints, None."""

    comm: Any
    datatype: Any
    op: Any
    IN_PLACE: Any

    @property
    def status(self) -> Any:
        """A status object that outlives the call."""

    def buffer(self, blocks: int) -> Any:
        """A buffer [blocks, count] besides `send` and `recv`."""

    def spec(self, buffer: Any) -> Any:
        """A buffer with its datatype, as mpi4py takes it; IN_PLACE and None pass through."""


class TorchArguments(Arguments, Protocol):
    """torch.distributed as `dist`; `op` is a ReduceOp."""

    dist: Any
    op: Any

    def function(self, *names: str) -> Any:
        """The first of these names that this version of torch.distributed has."""

    def out_of_place_only(self, function: str) -> None:
        """Raises `Unsupported` when the case asks for the in-place form, which `function` does not have."""
