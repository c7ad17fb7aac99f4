"""What a backend hands to the timing loop, looked at without a loop."""

from __future__ import annotations

import pytest
from tests.unit.c_functions import Library

from collbench.timing.call import Call, Native, Stage, whole


@pytest.mark.parametrize("arguments", [(), (7,), (7, 8, 2**63)])
def test_a_c_call_made_at_once_has_its_arguments_and_gives_its_code(arguments: tuple[int, ...]) -> None:
    library, heard = Library(), list[tuple[int, ...]]()

    def called(*words: int) -> int:
        heard.append(words)
        return -3

    assert Native((library.function(called, len(arguments)), *arguments))() == -3
    assert heard == [arguments]


def nothing() -> None:
    pass


NATIVE, IDLE, PYTHON = Stage(nothing, (Native((1,)),)), Stage(nothing, ()), Stage(nothing)


@pytest.mark.parametrize(
    ("call", "native", "streams"),
    [
        (Call((NATIVE,)), True, False),
        (Call((IDLE,)), True, False),
        (Call((PYTHON,)), False, False),
        (Call((NATIVE, PYTHON)), False, False),
        (Call((NATIVE,), NATIVE), True, True),
        (Call((NATIVE,), PYTHON), False, True),
        (Call((NATIVE, NATIVE), NATIVE), True, False),
    ],
)
def test_a_call_has_a_c_form_where_all_parts_have_and_streams_where_it_is_completed_apart(
    call: Call, native: bool, streams: bool
) -> None:
    assert (call.has_native, call.streams) == (native, streams)


def test_a_whole_operation_is_one_stage() -> None:
    assert whole(nothing, Native((1,))).stages == (NATIVE,)
    without = whole(nothing, why_not_native="the library has none")
    assert (without.stages, without.why_not_native) == ((PYTHON,), "the library has none")
