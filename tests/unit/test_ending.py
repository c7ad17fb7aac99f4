"""How programs end where a device or memory is lacking: one line, and what would work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collbench.workloads.protocol import Unusable, lacking_memory, printed, refuse_without_gpu

#: As torch says it.
ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4000 bytes. Error code 12 (Cannot allocate memory)"
)
LOADER = "DataLoader worker (pid 4711) is killed by signal: Killed. "


def torch(cuda: str | None, available: bool = False) -> Any:
    return SimpleNamespace(
        __version__="2.13.0", version=SimpleNamespace(cuda=cuda), cuda=SimpleNamespace(is_available=lambda: available)
    )


@pytest.mark.parametrize(("cuda", "why"), [(None, "is built without CUDA"), ("12.8", "finds no GPU that it can use")])
def test_a_gpu_that_is_not_there_is_said_in_the_same_words_everywhere(cuda: str | None, why: str) -> None:
    with pytest.raises(Unusable) as refused:
        refuse_without_gpu(torch(cuda), "cuda")
    assert str(refused.value) == f"device=cuda: torch 2.13.0 {why}; use device=cpu"
    refuse_without_gpu(torch(cuda), "cpu")
    refuse_without_gpu(torch("12.8", available=True), "cuda")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(ALLOCATOR), " does not fit into memory; use a smaller batch (it tried to allocate 4000 bytes)"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
         " does not fit into the memory of the GPU; use a smaller batch (it tried to allocate 2.00 GiB)"),
        (MemoryError(), " does not fit into memory; use a smaller batch"),
        (RuntimeError(LOADER), ": DataLoader worker (pid 4711) is killed by signal: Killed, perhaps because memory "
                               "ran out; use fewer loaders, or a smaller batch"),
        (RuntimeError("Connection closed by peer"), None),
    ],
)  # fmt: skip
def test_errors_of_torch_that_mean_memory_say_what_would_fit(error: Exception, said: str | None) -> None:
    assert lacking_memory(error, "lstm") == (None if said is None else f"lstm{said}")


def test_a_program_ends_with_a_result_or_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(error: Exception) -> Any:
        def run() -> dict[str, Any]:
            raise error

        return run

    printed(lambda: {"ns": [1]}, "x")
    assert capsys.readouterr().out == '{"ns": [1]}\n'
    for error, code in ((Unusable("no GPU"), 77), (MemoryError(), 1)):
        with pytest.raises(SystemExit) as ended:
            printed(failing(error), "x")
        assert ended.value.code == code and len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(RuntimeError, match="closed"):
        printed(failing(RuntimeError("closed")), "x")
