"""The host's environment beside an image: where they differ in anything but the container."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from collbench.launch.probe import Contents
from collbench.launch.stacks import differences_of
from collbench.schema.manifest import Library

MPI = Library(name="Open MPI", version="5.0.11", sha256="aa")
SAME = Contents(collbench="1", python="3.11.7", vendor="openmpi", libraries=(MPI,), packages={"mpi4py": "4.1.2"},
                native=True, missing={})  # fmt: skip


def inside(**fields: Any) -> list[str]:
    """How an image that differs by these fields differs from the environment."""
    return differences_of(SAME, msgspec.structs.replace(SAME, **fields))


def library(**fields: Any) -> tuple[Library, ...]:
    return (msgspec.structs.replace(MPI, **fields),)


def test_what_is_the_same_does_not_differ() -> None:
    assert inside() == []
    assert inside(missing={"nccl": "no GPU"}, cuda="12") == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": "3.12.1"}, "Python 3.11.7 on the host, 3.12.1 in the image"),
        ({"native": False}, "the native loop is missing in the image"),
        ({"libraries": library(version="5.0.5")}, "Open MPI 5.0.11 on the host, 5.0.5 in the image"),
        ({"libraries": library(sha256="bb")}, "Open MPI 5.0.11: two builds, aa and bb"),
        ({"libraries": ()}, "Open MPI 5.0.11 on the host, missing in the image"),
        ({"libraries": (MPI, Library(name="NCCL", version="2.27"))}, "NCCL missing on the host, 2.27 in the image"),
        ({"packages": {"mpi4py": "4.0.0"}}, "mpi4py 4.1.2 on the host, 4.0.0 in the image"),
        ({"packages": {}}, "mpi4py 4.1.2 on the host, missing in the image"),
        ({"packages": {"mpi4py": "4.1.2", "cupy": "13"}}, "cupy missing on the host, 13 in the image"),
    ],
)
def test_each_difference_besides_the_container_is_said(fields: dict[str, Any], said: str) -> None:
    assert inside(**fields) == [said]


@pytest.mark.parametrize("kernel", ["Katmai", None])
def test_another_kernel_of_the_same_blas_is_a_difference(kernel: str | None) -> None:
    """As OPENBLAS_CORETYPE chooses it on the host alone."""
    blas = Library(name="OpenBLAS", version="0.3.34", sha256="aa", used_by=("linpack",), kernel=kernel)
    host, image = (
        msgspec.structs.replace(SAME, libraries=(msgspec.structs.replace(blas, kernel=name),))
        for name in (kernel, "SkylakeX")
    )
    (line,) = differences_of(host, image, communicate=False)
    assert "OpenBLAS" in line
    assert "SkylakeX" in line
    assert differences_of(image, image) == []


def test_the_native_loop_may_be_missing_on_the_host() -> None:
    without = msgspec.structs.replace(SAME, native=False)
    assert differences_of(without, SAME) == ["the native loop is missing on the host"]
    assert differences_of(without, without) == []


def test_a_library_of_another_version_is_no_second_build_of_one() -> None:
    (line,) = inside(libraries=library(version="5.0.5", sha256="bb"))
    assert "builds" not in line


def test_torch_is_compared_as_a_library_alone() -> None:
    """Its package says the CUDA that it is made for, which the library's version says too."""
    assert inside(packages={"mpi4py": "4.1.2", "torch": "2.9.0+cpu"}) == []
