"""A session of nccl: nothing is asked of communicators that are being aborted, and the environment does not move."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import LIMIT, wait_for
from tests.unit.test_case import CASE

from collbench import collectives
from collbench.backends.nccl import NcclSession
from collbench.bindings.gpu.nccl import Communicators
from collbench.timing.call import Halt

ALLREDUCE = msgspec.structs.replace(CASE, collective="allreduce", backend="nccl")


def session(comms: Any) -> Any:
    made: Any = NcclSession.__new__(NcclSession)
    made._halt, made._comms, made._in_use = Halt(), comms, None
    return made


def ask(made: Any) -> object:
    return made._communicator(ALLREDUCE, collectives.get("allreduce"))


@pytest.mark.parametrize(
    ("act", "name"),
    [(ask, "get"), (lambda made: made.close(), "close"), (lambda made: made.reset(), "drop")],
)
def test_who_is_halted_asks_nothing_of_communicators(act: Callable[[Any], object], name: str) -> None:
    """Another thread is freeing them; this one blocks until the process ends."""
    asked: list[str] = []
    comms = {one: lambda *_, one=one: asked.append(one) for one in ("get", "close", "drop")}
    made = session(SimpleNamespace(**comms))
    made._halt.set()
    thread = threading.Thread(target=act, args=(made,), daemon=True)
    thread.start()
    wait_for(lambda: asked or made._halt.wait_for_caller(0.0))
    assert asked == []
    made._halt.flag[:] = bytes(4)
    thread.join(LIMIT)
    assert asked == [name]


def test_who_is_halted_while_a_communicator_is_made_does_not_use_it() -> None:
    """Memory would be registered with it next."""
    got: list[object] = []
    made = session(None)
    made._comms = SimpleNamespace(get=lambda *_: made._halt.set())
    thread = threading.Thread(target=lambda: got.append(ask(made)), daemon=True)
    thread.start()
    wait_for(lambda: got or made._halt.wait_for_caller(0.0))
    assert got == []
    made._halt.flag[:] = bytes(4)
    thread.join(LIMIT)
    assert got == [None]


def test_all_communicators_are_destroyed_in_the_order_in_which_all_ranks_used_them() -> None:
    done: list[str] = []
    comms = Communicators()
    for name in ("a", "b", "c"):
        one: Any = SimpleNamespace(destroy=partial(done.append, name), async_error=lambda: "asked")
        comms.get(name, partial(one.__class__, **vars(one)))
    comms.get("server", lambda: None)
    comms.get("a", lambda: None)
    comms.close()
    assert done == ["b", "c", "a"]
    assert comms.async_error() is None


def test_a_communicator_whose_call_failed_is_aborted_and_made_anew() -> None:
    done: list[str] = []
    comms = Communicators()
    for name in ("a", "b"):
        one: Any = SimpleNamespace(abort=partial(done.append, name))
        comms.get(name, partial(one.__class__, **vars(one)))
    for key in ("a", "a", "never made"):
        comms.drop(key)
    assert done == ["a"]
    assert comms.get("a", lambda: None) is None


MOVES = """
import ctypes
from collbench.bindings.gpu.nccl import reserve_settings, settings
block = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ")
names, many = ctypes.cast(block, ctypes.POINTER(ctypes.c_void_p)), 0
while names[many]:
    many += 1
full = (ctypes.c_void_p * (many + 1))(*names[:many], None)  # as where a process begins: without room for a name
block.value = ctypes.addressof(full)
{first}
before = block.value
for names in ({{"NCCL_ALGO": "Ring"}}, {{"NCCL_PROTO": "LL128"}}, {{"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}}):
    with settings(names):
        print(block.value == before)
"""


@pytest.mark.parametrize(("first", "stays"), [("reserve_settings()", "True"), ("", "False")])
def test_settings_of_a_communicator_do_not_move_the_environment(first: str, stays: str) -> None:
    """The library's own threads read it, without a lock."""
    argv = (sys.executable, "-c", MOVES.format(first=first))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert set(done.stdout.split()) >= {stays}
    assert "False" not in done.stdout or not first
