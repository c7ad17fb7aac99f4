"""A world of several ranks in which a program is started on each: ranks meet over gloo, and are idle meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

from collbench import workloads
from collbench.bindings.spec import Backend, HostBackend, Options, Session
from collbench.bindings.torch.world import TorchSession, join, missing_torch
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, Unsupported
from collbench.machine import launcher
from collbench.run.alone import Alone
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library


class StoredFailures:
    """What ranks say of their failures in a store of torch's; a store that does not answer has lost its rank."""

    def __init__(self, store: Any) -> None:
        self._store, self._acts = store, 0

    def begin(self) -> None:
        self._acts += 1

    def tell(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(f"failed {self._acts}", "")

    def told(self) -> bool:
        try:
            return bool(self._store.check([f"failed {self._acts}"]))
        except RuntimeError:
            return True


class TogetherSession(TorchSession):
    """One rank, which starts its process of a program."""

    transport: str | None = None

    def __init__(self, backend: Backend, torch: Any, thread_level: ThreadLevel, store: Any) -> None:
        super().__init__(backend, torch, thread_level)
        self.failures = StoredFailures(store)

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> NoReturn:
        raise Unsupported(f"{row.name}: needs a communication library")


class Together(HostBackend):
    """Stands where a backend stands, and is not one of those that a plan can name."""

    name = "workloads"
    summary = "ranks that start the processes of a program"
    ops: tuple[Op, ...] = ()

    def __init__(self, programs: tuple[str, ...]) -> None:
        self._programs = programs

    def missing(self) -> str | None:
        return missing_torch()

    def world_size(self, options: Options) -> int:
        """As many as the launcher started."""
        return launcher.detect().size

    def dtypes(self) -> tuple[str, ...]:
        return ()

    def libraries(self) -> tuple[Library, ...]:
        """What the workloads start or load."""
        return workloads.libraries(self._programs)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Rendezvous, the body, and destruction of the process group.

        Raises:
            BackendUnavailable: there is no torch by which ranks could meet.
        """
        if (missing := self.missing()) is not None:
            raise BackendUnavailable(f"benchmarks of several ranks: {missing}")
        import torch

        level, store = join(self.name, torch.distributed, launcher.detect(), options)
        try:
            body(TogetherSession(self, torch, level, store))
        finally:
            torch.distributed.destroy_process_group()


def world_for(benchmarks: tuple[str, ...], uses: tuple[str, ...]) -> Alone | Together:
    """What starts these programs: ranks together where all of them take several and the launcher started several."""
    distributed = all(workloads.get(name).distributed for name in benchmarks)
    return Together(uses) if distributed and launcher.detect().size > 1 else Alone(uses)
