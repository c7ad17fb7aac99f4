"""NVIDIA's libraries in a process: found in memory maps, refused when there are two."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from collbench.bindings.gpu import shared_library
from collbench.bindings.gpu.shared_library import SharedLibrary, load, loaded, to_word
from collbench.collectives.row import C
from collbench.errors import BackendUnavailable

MAPS = """\
55d0c6a4c000-55d0c6a4d000 r--p 00000000 08:01 131 /usr/bin/python3.11
7f1a00000000-7f1a00021000 rw-p 00000000 00:00 0
7f1a10000000-7f1a10001000 r--p 00000000 08:01 200 /env/nvidia/nccl/lib/libnccl.so.2
7f1a10001000-7f1a10002000 r-xp 00001000 08:01 200 /env/nvidia/nccl/lib/libnccl.so.2
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/nvidia/lib/libcudart-9335f6a2.so.12.0.107
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/lib/libnccl_net.so
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/lib/libmynccl.so.2
7f1a30000000-7f1a30001000 r-xp 00000000 08:01 202 /usr/local/cuda/lib64/libcudart.so.12
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
"""


def test_libraries_of_a_name_once_each() -> None:
    """A wheel may carry a copy under a name of its own; other libraries may have the name within theirs."""
    assert loaded("nccl", MAPS) == ("/env/nvidia/nccl/lib/libnccl.so.2",)
    assert loaded("cudart", MAPS) == (
        "/env/nvidia/lib/libcudart-9335f6a2.so.12.0.107", "/usr/local/cuda/lib64/libcudart.so.12",
    )  # fmt: skip
    assert loaded("net", MAPS) == loaded("nccl", "") == ()


def test_the_own_memory_map() -> None:
    ctypes.CDLL(None)
    assert any(path.startswith("/") for path in loaded("c"))


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ways in which libraries would be loaded, in turn."""
    ways: list[str] = []
    for way in ("_from_wheels", "_by_path_finder", "_by_linker"):
        monkeypatch.setattr(shared_library, way, lambda name, soname, way=way: ways.append(way))
    return ways


def put(monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    monkeypatch.setattr(shared_library, "loaded", lambda name: paths)


def test_two_libraries_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch, brought: list[str]) -> None:
    put(monkeypatch, "/a/libnccl.so.2", "/b/libnccl.so.2")
    with pytest.raises(BackendUnavailable) as refused:
        load("nccl", "libnccl.so.2")
    assert str(refused.value).startswith("2 different libnccl are in this process (/a/libnccl.so.2, /b/libnccl.so.2)")
    assert brought == []


def test_a_library_that_comes_second_later_is_refused_then(monkeypatch: pytest.MonkeyPatch, brought: list[str]) -> None:
    """A package that is imported later may bring its own: each use looks again, and opens a file once."""
    libc = loaded("c")[0]
    put(monkeypatch, libc)
    assert load("nccl", "libnccl.so.2") is load("nccl", "libnccl.so.2")
    put(monkeypatch, libc, "/b/libnccl.so.2")
    with pytest.raises(BackendUnavailable, match="2 different libnccl"):
        load("nccl", "libnccl.so.2")


def test_no_library_is_refused_with_what_would_help(monkeypatch: pytest.MonkeyPatch, brought: list[str]) -> None:
    put(monkeypatch)
    with pytest.raises(BackendUnavailable, match=r"libnccl\.so\.2 was not found; .*nvidia-nccl-cu12.*nvidia-nccl-cu13"):
        load("nccl", "libnccl.so.2")
    assert brought == ["_from_wheels", "_by_path_finder", "_by_linker"]


def test_of_several_the_first_of_the_version_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, brought: list[str]
) -> None:
    """A toolkit's of another major version may be there too; an older driver refuses each of its calls."""
    own = "/env/lib/libcudart-9335f6a2.so.12.0.107"
    put(monkeypatch, "/cuda/libcudart.so.13", "/cuda/libcudart.so.120", own, "/usr/libcudart.so.12")
    monkeypatch.setattr(shared_library, "_opened", str)
    assert str(load("cudart", "libcudart.so.12", only=False)) == own
    assert brought == []


def test_another_version_alone_is_not_taken(monkeypatch: pytest.MonkeyPatch, brought: list[str]) -> None:
    """Nor is one that the path finder brings; the linker is asked after it."""
    put(monkeypatch, "/cuda/libcudart.so.13")
    with pytest.raises(
        BackendUnavailable, match=r"libcudart\.so\.12 was not found \(in this process: /cuda/libcudart\.so\.13\)"
    ):
        load("cudart", "libcudart.so.12", only=False)
    assert brought == ["_from_wheels", "_by_path_finder", "_by_linker"]


def test_a_call_is_the_address_and_its_words() -> None:
    library = SharedLibrary("libc", ctypes.CDLL(None))
    native = library.native(C("abs", 5), str)
    assert native is not None
    assert native.words == (ctypes.cast(library.handle.abs, ctypes.c_void_p).value, 5)
    assert native.explain is str
    assert library.address("no_such_function") is None
    assert library.native(C("no_such_function"), str) is None


def test_arguments_as_words() -> None:
    array = np.zeros(3)
    assert to_word(array) == array.ctypes.data
    assert to_word(SimpleNamespace(address=0xD0)) == 0xD0
    assert to_word(SimpleNamespace(address=0)) == 0
    assert [to_word(argument) for argument in (None, 7, -1, True)] == [0, 7, -1, 1]
