"""collbench with binders whose C form is wrong: `python wrong_c.py KIND collbench-arguments...`.

`function` calls another function of the same signature, `count` moves half of the elements, `op` reduces with another
operation, `refused` passes a count that the library refuses. The Python forms stay as they are, so only what looks at
the native call can notice.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

from collbench import collectives
from collbench.bindings.mpi import MpiBackend
from collbench.cli import main
from collbench.collectives.row import Binder, C, Prepared

#: Of the same signature. MPI_Comm_test_inter(comm, &flag) returns at once: a barrier that is none.
OTHERS = {"MPI_Allreduce": "MPI_Scan", "MPI_Barrier": "MPI_Comm_test_inter"}


def changed(kind: str, argument: Any, a: Any) -> Any:
    """One argument of the C call, made wrong."""
    if kind == "op" and argument is a.op and a.op is not None:
        return a._mpi.MIN
    if isinstance(argument, int) and argument == a.count:
        return {"count": argument // 2, "refused": -1}.get(kind, argument)
    return argument


def wrong(binder: Binder, kind: str) -> Binder:
    def prepare(a: Any) -> Prepared:
        prepared = binder(a)
        assert prepared.c is not None
        (call,) = prepared.c
        function = call.function
        arguments: tuple[Any, ...] = tuple(changed(kind, argument, a) for argument in call.arguments)
        if kind == "function" and function in OTHERS:
            function = OTHERS[function]
            arguments += (np.zeros(1, np.int32),) if function == "MPI_Comm_test_inter" else ()
        return dataclasses.replace(prepared, c=(C(function, *arguments),))

    return prepare


if __name__ == "__main__":
    MpiBackend.binders = {
        name: wrong(collectives.get(name).dialects["mpi"], sys.argv[1]) for name in collectives.names()
    }
    sys.argv = ["collbench", *sys.argv[2:]]
    main()
