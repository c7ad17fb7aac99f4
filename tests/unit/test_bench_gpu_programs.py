"""Programs and libraries that collbench is held against on GPUs: found, built or carried, without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench_modules import bench, installation, results_in


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    results_in(tmp_path, monkeypatch)
    return tmp_path


def test_libraries_are_asked_for_one_by_one() -> None:
    """collbench's answer first; what it does not find is looked for by file; one that is not there hides no other."""

    def fails() -> dict[str, str]:
        raise RuntimeError("libnccl was not found")

    find = bench("gpu_search").find
    searches = ((fails, lambda: {"nccl": "/by/file"}), (lambda: {"cudart": "/first"}, lambda: {"cudart": "/second"}))
    assert find(searches) == {"nccl": "/by/file", "cudart": "/first", "problems": ["fails: libnccl was not found"]}
    assert find(((fails,), searches[1])) == {"cudart": "/first", "problems": ["fails: libnccl was not found"]}


def asked(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**({"nccl": None, "cudart": None} | given))


def test_what_is_not_found_is_a_reason_and_no_end(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = bench("gpu_libraries")
    here = installation(out)
    monkeypatch.setattr(bench("installation"), "run", lambda *_: '{"cudart": "/c", "problems": ["no libnccl"]}\n')
    assert libraries.libraries_or_reason(here, asked()) == "NVIDIA's libraries are not known: no libnccl"
    found = libraries.libraries_or_reason(here, asked(nccl=Path("/n/lib/libnccl.so.2")))
    assert (found.nccl, found.cudart, found.version) == (Path("/n/lib/libnccl.so.2"), Path("/c"), "unknown")


def made_libraries(where: Path) -> Any:
    """Two wheels and a toolkit whose header is included by one of them."""
    for name in ("nccl", "cudart", "toolkit"):
        (where / name / "include").mkdir(parents=True)
        (where / name / "lib").mkdir()
    (where / "nccl" / "include" / "nccl.h").touch()
    (where / "cudart" / "include" / "cuda_runtime_api.h").touch()
    (where / "toolkit" / "include" / "host_defines.h").touch()
    folders = tuple(where / name / "include" for name in ("nccl", "cudart", "toolkit"))
    nccl, cudart = where / "nccl/lib/libnccl.so.2", where / "cudart/lib/libcudart.so.13"
    return bench("gpu_libraries").Libraries(nccl, "2.28.9", cudart, folders, where / "toolkit/bin/nvcc")


def test_the_compiler_gets_every_folder_of_headers(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's wheels split headers that include each other."""
    programs, found = bench("gpu_programs"), made_libraries(out)
    lines: list[tuple[str, ...]] = []
    monkeypatch.setattr(programs, "run", lambda argv, *_: lines.append(argv))
    programs.build_floor(found, None, out)
    assert [word for word in lines[0] if word.startswith("-I")] == [f"-I{folder}" for folder in found.includes]
    assert "-DUSE_MPI" not in lines[0]


class Builder:
    """In the place of `run` in gpu_programs: compilers leave what they are to make, trials end as told."""

    def __init__(self, works: bool) -> None:
        self.works, self.lines = works, list[tuple[str, ...]]()

    def __call__(self, argv: tuple[str, ...], *_: object) -> str:
        self.lines.append(argv)
        if "-o" in argv:
            Path(argv[argv.index("-o") + 1]).touch()
        elif argv[0] == "make":
            for word in argv:
                if word.startswith("/") and word.endswith("_perf"):
                    Path(word).touch()
        elif not self.works:
            raise bench("installation").LaunchFailed("no CUDA driver")
        return ""


@pytest.mark.parametrize(("ranks", "works", "built"), [(1, True, 0), (1, False, 2), (2, True, 2)])
def test_carried_programs_are_taken_where_one_gpu_is_and_they_start(
    out: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, works: bool, built: int
) -> None:
    programs, builder = bench("gpu_programs"), Builder(works)
    monkeypatch.setattr(programs, "run", builder)
    for folder in ("carried", "programs", "source/src"):
        (out / folder).mkdir(parents=True)
    for name in programs.TRIALS:
        (out / "carried" / name).touch()
    there = programs.Programs(out / "programs")
    here = installation(out, ranks=ranks)
    assert programs.provide(here, made_libraries(out / "w"), out / "source", out / "carried", there) == []
    assert sum("-o" in line or line[0] == "make" for line in builder.lines) == built
    assert all(there.path(name).exists() for name in programs.TRIALS)
    assert not any(map(there.with_mpi, programs.TRIALS))  # no mpicc is beside this mpirun
    assert there.start("gpu_floor", here, "allreduce") == (str(out / "programs" / "gpu_floor"), "allreduce")
    there.add("gpu_floor", out / "carried" / "gpu_floor", mpi=True)
    assert there.start("gpu_floor", here, "allreduce")[0] == str(out / "bin" / "mpirun")


def test_one_program_that_cannot_be_had_hides_no_other(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = bench("gpu_programs")
    monkeypatch.setattr(programs, "run", Builder(works=True))
    (out / "programs").mkdir()
    there = programs.Programs(out / "programs")
    (missing,) = programs.provide(installation(out), made_libraries(out / "w"), out / "nowhere", out / "carried", there)
    assert missing.startswith("all_reduce_perf, sendrecv_perf: there is no nccl-tests in ")
    assert there.path("gpu_floor").exists()
    with pytest.raises(bench("installation").LaunchFailed, match="there is no sendrecv_perf in "):
        there.path("sendrecv_perf")
