"""Kernels and cuBLAS through CuPy, against a made-up CuPy: the words of a launch, and what is missing."""

from __future__ import annotations

import ctypes
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.double.device import DoubleDevice

from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.cupy_device import CupyCompute, Grid
from collbench.errors import BackendUnavailable
from collbench.timing.call import Native

Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is asked of a CuPy that does nothing."""
    made: Calls = []

    def record(name: str) -> Any:
        return lambda *words: made.append((name, *words))

    def raw_module(code: str, options: tuple[str, ...]) -> Any:
        made.append(("module", code, options))
        return SimpleNamespace(get_function=lambda name: SimpleNamespace(kernel=SimpleNamespace(ptr=0xF0)))

    class Stream:
        def __init__(self, pointer: int) -> None:
            self.pointer = pointer

        def use(self) -> None:
            made.append(("stream", self.pointer))

    cublas = SimpleNamespace(create=lambda: 7, setMathMode=record("math"), sgemm=record("sgemm"))
    nvrtc = SimpleNamespace(getVersion=lambda: (12, 9))
    cuda = ModuleType("cupy.cuda")
    vars(cuda).update(
        ExternalStream=Stream, driver=SimpleNamespace(launchKernel=record("launch")), cublas=cublas, nvrtc=nvrtc
    )
    cupy = ModuleType("cupy")
    cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    vars(cupy).update(cuda=cuda, RawModule=raw_module, __version__="14.2.0", __file__="/cupy/__init__.py")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    library = SimpleNamespace(native=lambda call, explain: Native((1, *call.arguments), explain))
    monkeypatch.setattr(cupy_device, "driver_library", lambda: library)
    return made


def words_at(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def test_a_launch_has_the_words_of_cu_launch_kernel_in_both_forms(calls: Calls) -> None:
    device = DoubleDevice("GPU-0")
    memory = device.allocate(64)
    compute = CupyCompute(device)
    stage = compute.compile("source", {"BINS": 64}).launch("count", Grid((3, 5), (32, 8)), memory, 17)
    assert calls == [("stream", device.stream), ("module", "source", ("-std=c++14", "-DBINS=64"))]
    assert stage.native is not None
    (native,) = stage.native
    _, function, *shape, shared, stream, parameters, extra = native.words
    assert (function, shape, shared, stream, extra) == (0xF0, [3, 5, 1, 32, 8, 1], 0, device.stream, 0)
    pointers = words_at(parameters, 2)
    assert [words_at(pointer, 1)[0] for pointer in pointers] == [memory.address, 17]
    stage.python()
    assert calls[-1] == ("launch", *native.words[1:])


def test_the_product_is_that_of_the_transposed_matrices_without_tf32(calls: Calls) -> None:
    device = DoubleDevice("GPU-0")
    a, b, c = (device.allocate(64) for _ in range(3))
    stage = CupyCompute(device).sgemm(2, 3, 4, a, b, c)
    assert stage.native is None
    stage.python()
    assert calls[1] == ("math", 7, 0)
    name, handle, no, also_no, m, n, k, one, first, lda, second, ldb, zero, result, ldc = calls[-1]
    assert (name, handle, no, also_no, m, n, k) == ("sgemm", 7, 0, 0, 3, 2, 4)
    assert (first, lda, second, ldb, result, ldc) == (b.address, 3, a.address, 4, c.address, 3)
    scale = [float(np.ctypeslib.as_array((ctypes.c_float * 1).from_address(at))[0]) for at in (one, zero)]
    assert scale == [1.0, 0.0]


@pytest.mark.parametrize(("library", "function"), [("nvrtc", "getVersion"), ("cublas", "create")])
def test_a_library_that_cannot_be_loaded_is_named(calls: Calls, library: str, function: str) -> None:
    def fails() -> None:
        raise RuntimeError(f"CuPy failed to load lib{library}.so.12")

    setattr(getattr(sys.modules["cupy.cuda"], library), function, fails)
    compute, memory = CupyCompute(DoubleDevice("GPU-0")), SimpleNamespace(address=0)
    uses: dict[str, Callable[[], object]] = {
        "nvrtc": lambda: compute.compile("", {}),
        "cublas": lambda: compute.sgemm(1, 1, 1, memory, memory, memory),
    }
    with pytest.raises(BackendUnavailable, match=rf"cannot be used \(CuPy failed to load lib{library}\.so\.12\)"):
        uses[library]()


def test_cupy_says_its_version(calls: Calls) -> None:
    assert CupyCompute(DoubleDevice("GPU-0")).described() == {"version": "14.2.0", "path": "/cupy/__init__.py"}


def test_the_driver_explains_its_codes() -> None:
    words = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))

    def get_error_string(code: int, into: Any) -> int:
        into[0] = b"invalid argument"
        return 0

    library = SimpleNamespace(handle=SimpleNamespace(cuGetErrorString=words(get_error_string)))
    assert cupy_device.explained(library, 1) == "invalid argument"  # type: ignore[arg-type]
