"""Check `cuda_aware`: whether the MPI of mpi4py is built for device pointers, claims to take them, and takes them."""

from __future__ import annotations

from collbench.bindings.mpi import cuda_aware
from collbench.bindings.mpi.cuda_aware import LEVELS, YES_NO, Levels
from collbench.bindings.mpi.loading import library_path, load_mpi, vendor, version_line
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.errors import BackendUnavailable
from collbench.machine import nvml

#: How each MPI is made to look for CUDA at its start, and to print what it finds.
_CLAIM = {
    "openmpi": "export OMPI_MCA_accelerator=cuda (mpirun --mca accelerator_base_verbose 10 shows why it was not taken)",
    "mpich": "export MPIR_CVAR_ENABLE_GPU=1 MPICH_GPU_SUPPORT_ENABLED=1 (the second is Cray's)",
}
_REFUSED = "backend mpi-cuda is refused: it would abort the job, or send what is not in the buffer"
_STAGED = "--backend mpi-staged (measures copies through the host instead)"


def judge(library: str, name: str, levels: Levels, gpu: bool) -> Finding:
    """`library` is the MPI's vendor, `name` with its version. Without a GPU no level is a problem."""
    seen = f"{name}: {', '.join(_known(levels))}" + (f" ({levels.why})" if levels.why else "")
    if not gpu:
        return found(seen)
    return found(seen, _unclaimed(library, name, levels), _untrue(name, levels))


def _known(levels: Levels) -> list[str]:
    """The levels up to the first that is not reached, which decides the others."""
    words = []
    for level in LEVELS:
        reached = getattr(levels, level)
        words.append(f"{level}: {YES_NO[reached]}")
        if not reached:
            break
    return words


def _unclaimed(library: str, name: str, levels: Levels) -> Problem | None:
    if not (levels.built and levels.claimed is False):
        return None
    cause = f"{name} was built with CUDA, and says that it takes no device pointers: its CUDA component did not start"
    return Problem("warn", cause, _REFUSED, f"{_CLAIM.get(library, _CLAIM['mpich'])}; or {_STAGED}")


def _untrue(name: str, levels: Levels) -> Problem | None:
    if not levels.claimed or levels.works is not False:
        return None
    cause = f"{name} says that it takes device pointers, but did not send a device buffer correctly"
    return Problem("warn", cause, _REFUSED, f"{_STAGED}; ucx_info -d | grep -i cuda shows whether its UCX knows CUDA")


def look(version: str, library: str | None, gpus: tuple[str, ...]) -> Levels:
    """What can be found out here. `version` is the text of MPI_Get_library_version, `gpus` are UUIDs."""
    built = cuda_aware.built(version)
    if built is False:
        return Levels(built, why="backend mpi-cuda needs an MPI that is built with CUDA")
    if gpus:
        return cuda_aware.levels(version, library, gpus[0])
    return Levels(built, cuda_aware.claimed(library), why="no GPU here to try it on")


def run(machine: Machine) -> Finding:
    try:
        mpi = load_mpi()
    except BackendUnavailable:
        return found("no MPI library for mpi4py")
    gpus = tuple(gpu.uuid for gpu in nvml.gpus(machine.root)[0])
    levels = look(mpi.Get_library_version(), library_path(), gpus)
    return judge(vendor(mpi), version_line(mpi), levels, bool(gpus))
