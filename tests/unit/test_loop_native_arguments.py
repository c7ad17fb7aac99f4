"""Wrong arguments to the native loop are refused before anything is called, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collbench.timing.call import Words
from collbench.timing.loop import native_loop

loop: Any = native_loop()
pytestmark = pytest.mark.skipif(loop is None, reason="no native loop was built here (no C compiler at installation)")

NONE, BARRIER, ROUNDTIME = 0, 1, 2


def wrong_arguments() -> dict[str, tuple[Any, ...]]:
    call: Words = (1,)
    start, stamps, late = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(2, np.uint8)
    gate = (NONE, None, None, start, False, 0, 0)
    frozen = np.zeros(2, np.int64)
    frozen.flags.writeable = False
    return {
        "nothing": (),
        "too few": (call, None, gate, stamps, stamps),
        "no call": (None, None, gate, stamps, stamps, late),
        "a call that is a number": (5, None, gate, stamps, stamps, late),
        "a call that is a list": ([1], None, gate, stamps, stamps, late),
        "an empty call": ((), None, gate, stamps, stamps, late),
        "address zero": ((0,), None, gate, stamps, stamps, late),
        "an address that is text": (("a",), None, gate, stamps, stamps, late),
        "a word that is a float": ((1, 2.5), None, gate, stamps, stamps, late),
        "thirteen words": ((1, *range(13)), None, gate, stamps, stamps, late),
        "a completion that is text": (call, "x", gate, stamps, stamps, late),
        "a completion at zero": (call, (0,), gate, stamps, stamps, late),
        "no gate": (call, None, None, stamps, stamps, late),
        "a gate of two fields": (call, None, (0, None), stamps, stamps, late),
        "an unknown gate": (call, None, (3, call, call, start, False, 0, 0), stamps, stamps, late),
        "a negative gate": (call, None, (-1, call, call, start, False, 0, 0), stamps, stamps, late),
        "a barrier gate without barrier": (call, None, (BARRIER, None, None, start, False, 0, 0), stamps, stamps, late),
        "round time without announcement": (
            call,
            None,
            (ROUNDTIME, call, None, start, False, 0, 0),
            stamps,
            stamps,
            late,
        ),
        "a start that is None": (call, None, (NONE, None, None, None, False, 0, 0), stamps, stamps, late),
        "a start of 4 bytes": (
            call,
            None,
            (NONE, None, None, np.zeros(1, np.int32), False, 0, 0),
            stamps,
            stamps,
            late,
        ),
        "a slack that is text": (call, None, (NONE, None, None, start, False, "x", 0), stamps, stamps, late),
        "stamps that are a list": (call, None, gate, [0, 0], stamps, late),
        "stamps of different lengths": (call, None, gate, np.zeros(3, np.int64), stamps, late),
        "late of another length": (call, None, gate, stamps, stamps, np.zeros(3, np.uint8)),
        "late as wide as the stamps": (call, None, gate, stamps, stamps, np.zeros(2, np.int64)),
        "stamps that are read-only": (call, None, gate, frozen, stamps, late),
        "stamps with holes": (call, None, gate, np.zeros(4, np.int64)[::2], stamps, late),
        "bytes": (call, None, gate, stamps, stamps, b"\0\0"),
    }


def whole(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Call, completion, gate, entered, left, late, as arguments of an operation of one call."""
    if len(given) < 6:
        return given
    call, completion, gate, *buffers = given
    return (((call,),), completion, gate, 1, *buffers, None, None, None, bytearray(4))


def wrong_stages() -> dict[str, tuple[Any, ...]]:
    call: Words = (1,)
    gate, two = (NONE, None, None, np.zeros(1, np.int64), False, 0, 0), ((call,), (call,))
    into = (np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.uint8))
    marks, device, halt = np.zeros(2, np.int64), np.zeros(2, np.float32), bytearray(4)
    return {
        "no stages": ((), None, gate, 1, *into, None, None, None, halt),
        "nine stages": (((call,),) * 9, None, gate, 1, *into, None, None, None, halt),
        "stages that are a list": ([(call,)], None, gate, 1, *into, None, None, None, halt),
        "a stage that is a list": (([call],), None, gate, 1, *into, None, None, None, halt),
        "too many calls": (((call,) * 4097,), None, gate, 1, *into, None, None, None, halt),
        "a burst of none": (((call,),), None, gate, 0, *into, None, None, None, halt),
        "a burst of stages": (two, None, gate, 2, *into, marks, None, None, halt),
        "marks for too many stages": (two, None, gate, 1, *into, np.zeros(4, np.int64), None, None, halt),
        "a device without reading": (((call,),), None, gate, 1, *into, None, None, device, halt),
        "a reading without address": (((call,),), None, gate, 1, *into, None, (call,), device, halt),
        "a reading at zero": (((call,),), None, gate, 1, *into, None, (call, 0), device, halt),
        "a device of another length": (
            ((call,),),
            None,
            gate,
            1,
            *into,
            None,
            (call, 8),
            np.zeros(3, np.float32),
            halt,
        ),
        "no halt": (((call,),), None, gate, 1, *into, None, None, None, None),
        "a halt of one byte": (((call,),), None, gate, 1, *into, None, None, None, bytearray(1)),
    }


@pytest.mark.parametrize("what", wrong_stages())
def test_wrong_stages_are_refused(what: str) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        loop.measure(*wrong_stages()[what])


@pytest.mark.parametrize("what", wrong_arguments())
def test_wrong_arguments_are_refused(what: str) -> None:
    """Before anything is called: address 1 would end the process."""
    with pytest.raises((TypeError, ValueError, BufferError)):
        loop.measure(*whole(wrong_arguments()[what]))


def test_refused_buffers_are_let_go() -> None:
    """A buffer that stayed exported could not be resized."""
    for position in range(3):
        buffers: list[Any] = [bytearray(16), bytearray(16), bytearray(2)]
        start = bytearray(8)
        buffers[position] = b"0" * 16
        with pytest.raises(BufferError):
            loop.measure(*whole(((1,), None, (NONE, None, None, start, False, 0, 0), *buffers)))
        for held in (*buffers, start):
            if isinstance(held, bytearray):
                held.append(0)
