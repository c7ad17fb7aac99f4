"""How programs end: with a result, with exit code 77 where they cannot be used here, or with a line on what failed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

#: With this exit code a program says that it cannot be used here, as test programs do (GNU Automake's manual).
SKIPPED = 77

#: What torch's allocators say.
_TRIED = re.compile(r"ried to (allocate [0-9.]+ [A-Za-z]+)")


class Unusable(Exception):
    """A device or a library is not there; the text says why, and what would work."""


def refuse_without_gpu(torch: Any, device: str) -> None:
    """Whether torch can use the device.

    Raises:
        Unusable: it finds no GPU, or is built without CUDA.
    """
    if device == "cuda" and not torch.cuda.is_available():
        why = "finds no GPU that it can use" if torch.version.cuda else "is built without CUDA"
        raise Unusable(f"device=cuda: torch {torch.__version__} {why}; use device=cpu")


def printed(run: Callable[[], dict[str, Any]], asked: str, less: str = "a smaller batch") -> None:
    """Print the result of `run` as JSON, or end with the reason; `asked` may not fit into memory, where `less` may."""
    try:
        result = run()
    except Unusable as error:
        end(SKIPPED, str(error))
    except (MemoryError, RuntimeError) as error:
        if (why := lacking_memory(error, asked, less)) is None:
            raise
        end(1, why)
    sys.stdout.write(json.dumps(result) + "\n")


def lacking_memory(error: Exception, asked: str, less: str = "a smaller batch") -> str | None:
    """What failed, and what would work, where memory was too small; None where the error says something else."""
    said = str(error)
    if "DataLoader worker" in said and "killed" in said:
        loader = said.partition("\n")[0].rstrip(". ")
        return f"{asked}: {loader}, perhaps because memory ran out; use fewer loaders, or {less}"
    words = said.lower()
    if isinstance(error, MemoryError) or "out of memory" in words or "can't allocate memory" in words:
        where = "the memory of the GPU" if "CUDA" in said else "memory"
        tried = _TRIED.search(said)
        return f"{asked} does not fit into {where}; use {less}{f' (it tried to {tried[1]})' if tried else ''}"
    return None


def end(code: int, text: str) -> NoReturn:
    """The last line on standard error is the reason."""
    sys.stderr.write(f"{text}\n")
    sys.exit(code)
