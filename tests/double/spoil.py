"""Mistakes that a GPU backend could make, made on purpose: the checks must notice each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from collbench.backends import mpi_staged, nccl
from collbench.backends.nccl import NcclArguments
from collbench.bindings.gpu.nccl import DATATYPE
from collbench.collectives.row import CallStep, Part, idle, in_turn
from collbench.timing.loop import Call


def no_copy(name: str) -> None:
    copying: Callable[..., Part] = mpi_staged.copying

    def without(part: str, *arguments: Any) -> Part:
        return Part(part, idle, ()) if part == name else copying(part, *arguments)

    vars(mpi_staged)["copying"] = without


def no_wait_after_copies() -> None:
    copying: Callable[..., Part] = mpi_staged.copying

    def hasty(name: str, device: Any, copies: Any) -> Part:
        whole = copying(name, device, copies)
        steps = [partial(device.copy, *copy) for copy in copies]

        def python() -> None:
            for step in steps:
                step()

        return Part(name, python, (whole.c or ())[:-1]) if whole.c else whole

    vars(mpi_staged)["copying"] = hasty


def no_completion() -> None:
    make: Callable[..., Call] = vars(nccl)["make_call"]

    def incomplete(*arguments: Any, **options: Any) -> Call:
        return dataclasses.replace(make(*arguments, **options), completion=None)

    vars(nccl)["make_call"] = incomplete


def result_stays_on_the_host() -> None:
    parts: Callable[..., Any] = vars(mpi_staged)["staged_parts"]

    def without(prepared: Any, *arguments: Any) -> Any:
        return parts(dataclasses.replace(prepared, untouched=True), *arguments)

    vars(mpi_staged)["staged_parts"] = without


def does_not_say_that_gpus_are_shared() -> None:
    vars(nccl)["share_variables"] = lambda version, rank: {}


def leaves_groups_open() -> None:
    grouped: Callable[..., CallStep] = NcclArguments.grouped

    def without(self: Any, *steps: CallStep) -> CallStep:
        whole = grouped(self, *steps)
        return CallStep(in_turn(self._nccl.group_start, *(step.python for step in steps)), whole.c[:-1])

    setattr(NcclArguments, "grouped", without)  # noqa: B010 - mypy forbids the plain form


def receives_as_another_type() -> None:
    recv_from: Callable[..., CallStep] = NcclArguments.recv_from

    def wrong(self: Any, blocks: Any, peer: int) -> CallStep:
        datatype, self.datatype = self.datatype, DATATYPE["int8"]
        try:
            return recv_from(self, blocks, peer)
        finally:
            self.datatype = datatype

    setattr(NcclArguments, "recv_from", wrong)  # noqa: B010 - mypy forbids the plain form


KINDS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "no copy to host": lambda: no_copy(mpi_staged.TO_HOST),
    "no copy to device": lambda: no_copy(mpi_staged.TO_DEVICE),
    "no wait after copies": no_wait_after_copies,
    "no completion": no_completion,
    "result stays on the host": result_stays_on_the_host,
    "does not say that GPUs are shared": does_not_say_that_gpus_are_shared,
    "leaves groups open": leaves_groups_open,
    "receives as another type": receives_as_another_type,
}


def spoil(kind: str) -> None:
    """Make the mistake of that name."""
    KINDS[kind]()
