"""The environment that bench/gpu.sh makes on top of another one, which is a virtual environment itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.mpi.jobs import skip_or_fail
from tests.unit.bench_modules import BENCH, bench

MAKE = """
import sys
from pathlib import Path
from gpu_environment import Environment
Environment(Path(sys.argv[1]), Path("/nowhere")).make()
"""
FOLDERS = "import site, click; print(*site.getsitepackages(), click.__file__, sep='\\n')"
FIND = """
from cuda.pathfinder import load_nvidia_dynamic_lib
print(load_nvidia_dynamic_lib("nccl").abs_path)
"""


def nested(where: Path) -> Path:
    """The Python of a new environment on top of the one that runs the tests."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in a virtual environment")
    subprocess.run((sys.executable, "-c", MAKE, str(where / "venv")), cwd=BENCH, check=True, timeout=120)
    return where / "venv" / "bin" / "python"


def ask(python: Path, program: str) -> str:
    done = subprocess.run((python, "-c", program), cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_sees_the_packages_of_its_parent_and_counts_them_as_its_own(tmp_path: Path) -> None:
    """What looks along sys.path finds them, and what asks `site`, as NVIDIA's path finder does."""
    *folders, click = ask(nested(tmp_path), FOLDERS).splitlines()
    parent = [folder for folder in folders if folder.startswith(f"{sys.prefix}/")]
    assert folders[0].startswith(str(tmp_path))
    assert [folder for folder in parent if click.startswith(folder)]


@pytest.mark.cuda
def test_nvidias_path_finder_finds_the_parents_nccl(tmp_path: Path) -> None:
    try:
        import cuda.pathfinder  # noqa: F401
        import nvidia.nccl as nccl
    except ImportError:
        skip_or_fail("cuda", "NCCL and cuda-pathfinder are not installed in this environment (extra cuda12)")
    assert Path(ask(nested(tmp_path), FIND)).parent.resolve() == (Path(nccl.__path__[0]) / "lib").resolve()


def test_an_mpirun_whose_ranks_do_not_meet_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = bench("gpu_environment").Environment(tmp_path, tmp_path)
    environment.python = sys.executable
    assert not environment._meets("/bin/false")
    assert not environment._meets("/no/such/mpirun")
    assert "cannot be started" in capsys.readouterr().out


def test_what_is_not_carried_is_said_with_what_would_help(tmp_path: Path) -> None:
    environment = bench("gpu_environment").Environment(tmp_path, tmp_path / "carried")
    environment.python = sys.executable
    with pytest.raises(
        subprocess.SubprocessError, match=r"cannot install no-such: .* lacks must be in .*bench/carry.sh"
    ):
        environment.install("no-such")
