"""The mpi dialect: what a row gets from an MPI library, and how its C arguments become machine words."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np

from collbench.bindings.host_buffers import HostArguments
from collbench.bindings.mpi.loading import function_address
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import C, Collective
from collbench.errors import Unsupported
from collbench.schema.axes import Op
from collbench.timing.call import Native, Words

_DATATYPE = {
    "int8": "INT8_T", "int16": "INT16_T", "int32": "INT32_T", "int64": "INT64_T",
    "uint8": "UINT8_T", "uint16": "UINT16_T", "uint32": "UINT32_T", "uint64": "UINT64_T",
    "float16": "FLOAT16_T", "bfloat16": "BFLOAT16_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip

LARGEST_COUNT = 2**31 - 1


def datatype(mpi: Any, dtype: str) -> Any:
    """The MPI datatype of a dtype.

    Raises:
        Unsupported: this library has none.
    """
    handle = getattr(mpi, _DATATYPE[dtype], mpi.DATATYPE_NULL)
    if handle == mpi.DATATYPE_NULL:
        raise Unsupported(f"this MPI library has no datatype for {dtype}")
    return handle


def operation(mpi: Any, op: Op | None) -> Any:
    """The MPI_Op of a reduction; None for None.

    Raises:
        Unsupported: MPI has none.
    """
    if op == "avg":
        raise Unsupported("MPI has no average; its ops are sum, prod, min and max")
    return None if op is None else getattr(mpi, op.upper())


class HostMpiArguments(HostArguments):
    """`MpiArguments` with NumPy buffers."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int) -> None:
        if count > LARGEST_COUNT:
            raise Unsupported(f"{count} elements in one call; MPI's int counts end at {LARGEST_COUNT}")
        self.datatype = datatype(mpi, case.dtype)
        super().__init__(case, row, count, mpi.COMM_WORLD.rank)
        self._mpi = mpi
        self.comm = mpi.COMM_WORLD
        self.op = operation(mpi, case.op)
        self.IN_PLACE = mpi.IN_PLACE

    @cached_property
    def status(self) -> Any:
        return self._mpi.Status()

    def spec(self, buffer: Any) -> Any:
        """[buffer, datatype] for mpi4py; IN_PLACE and None as they are."""
        return [buffer, self.datatype] if isinstance(buffer, np.ndarray) else buffer


def to_word(mpi: Any, argument: Any) -> int:
    """One C argument as a machine word: addresses of buffers and statuses, values of handles and integers."""
    if argument is None:
        return 0
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    if (address := getattr(argument, "address", None)) is not None:  # device memory
        return int(address)
    if isinstance(argument, int) or argument is mpi.IN_PLACE:  # IN_PLACE converts to the C constant
        return int(argument)
    if isinstance(argument, mpi.Status):
        return int(mpi._addressof(argument))
    return int(mpi._handleof(argument))


def to_words(mpi: Any, function: str, arguments: tuple[Any, ...]) -> Words | None:
    """Address and words of a C call; None where the library does not have the function."""
    address = function_address(function)
    return None if address is None else (address, *(to_word(mpi, argument) for argument in arguments))


class MpiSymbols:
    """C calls of the MPI library, as machine words."""

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi

    def native(self, call: C) -> Native | None:
        """The call as words; None where the library does not have the function."""
        words = to_words(self._mpi, call.function, call.arguments)
        return None if words is None else Native(words, partial(error_text, self._mpi))


def error_text(mpi: Any, code: int) -> str:
    """The library's words for an error. It cuts them at MPI_MAX_ERROR_STRING: what is cut ends with a whole word."""
    text: str = mpi.Get_error_string(code)
    if len(text) < mpi.MAX_ERROR_STRING - 1:
        return text
    return f"{text.rpartition(' ')[0] or text} ..."
