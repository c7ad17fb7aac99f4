"""collbench with a fault in it: `python faulty.py KIND RANK N collbench-arguments...`.

The N-th operation of rank RANK raises, hangs, dies by SIGKILL, exits, or gives a wrong result (`corrupt`), on the real
backend: the operation that a row prepared is wrapped before the timing loop gets it.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from typing import Any

from collbench.backends.torch_gloo import GlooSession
from collbench.bindings.mpi import MpiSession
from collbench.bindings.spec import Operation
from collbench.cli import main
from collbench.run import experiment
from collbench.run.failures import StartLimit
from collbench.timing.loop import Stage

_FAULTY: Any = {"count": 0}


def misbehave(kind: str) -> None:
    if kind == "raise":
        raise RuntimeError("raised on purpose")
    if kind == "hang":
        time.sleep(3600)
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(7)


def wrapped(operation: Operation, kind: str, at: int) -> Operation:
    (stage,) = operation.call.stages
    perform = stage.python

    def python() -> None:
        _FAULTY["count"] += 1
        due = _FAULTY["count"] >= at
        if due:
            misbehave(kind)
        perform()
        if due and kind == "corrupt" and operation.output:
            first = operation.output[0].load(0, 0, 1)
            operation.output[0].store(0, 0, first + first.dtype.type(1))

    call = dataclasses.replace(operation.call, stages=(Stage(python),), why_not_native="a fault is wrapped around it")
    return dataclasses.replace(operation, call=call)


def install(session: Any, kind: str, rank: int, at: int) -> None:
    prepare = session.prepare

    def faulty(self: Any, *arguments: Any) -> Operation:
        operation: Operation = prepare(self, *arguments)
        return wrapped(operation, kind, at) if self.world.rank == rank else operation

    session.prepare = faulty


def take_time_to_start() -> None:
    """What a test limits by -T is what comes later; on a busy machine ranks start far apart."""
    vars(experiment)["StartLimit"] = lambda limit, backend: StartLimit(3600.0, backend)


if __name__ == "__main__":
    take_time_to_start()
    fault, rank, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    install(MpiSession, fault, rank, at)
    install(GlooSession, fault, rank, at)
    sys.argv = ["collbench", *sys.argv[4:]]
    main()
