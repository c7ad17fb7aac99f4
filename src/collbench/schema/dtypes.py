"""Types of elements, by the names that plans, flags and records use."""

from __future__ import annotations

#: Item size in bytes of every dtype that exists anywhere in collbench.
DTYPES: dict[str, int] = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip

#: What users of nccl-tests and C type instead.
DTYPE_ALIASES: dict[str, str] = {"half": "float16", "float": "float32", "double": "float64", "char": "int8"}
