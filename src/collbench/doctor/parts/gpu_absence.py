"""Where NVML lists no GPU: whether there is none, or one that cannot be used, and what a container lacks."""

from __future__ import annotations

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine

NONE_HERE = "no NVIDIA GPU: backends mpi-staged, mpi-cuda, nccl and torch-nccl are not usable here"

_EFFECT = "backends mpi-staged, mpi-cuda, nccl and torch-nccl do not start here; mpi and torch-gloo are not affected"
_ASK_KERNEL = "sudo dmesg | grep -i nvrm (messages of the driver)"

#: On a host, by NVML's error.
_HOST_FIXES = {
    "Driver Not Loaded": "sudo modprobe nvidia; where that fails: sudo dmesg | grep -i nvrm",
    "NVML Shared Library Not Found": "sudo ubuntu-drivers install --gpgpu (Ubuntu; elsewhere its own driver)",
    "RM has detected an NVML/RM version mismatch.": "sudo reboot (the driver was replaced while it was loaded)",
}

GIVE_GPUS = "docker run --gpus all ..."
CAPABLE = f"{GIVE_GPUS[:-4]} -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."


def devices(machine: Machine) -> tuple[str, ...]:
    """The files of the NVIDIA driver in /dev."""
    return tuple(sorted(path.name for path in machine.path("dev").glob("nvidia*")))


def on_bus(machine: Machine) -> int:
    """How many NVIDIA devices of PCI class display there are. A container sees all of its host's."""
    folders = machine.path("sys/bus/pci/devices").glob("*")
    ids = ((machine.read(f"{folder}/vendor"), machine.read(f"{folder}/class") or "") for folder in folders)
    return sum(vendor == "0x10de" and kind.startswith("0x03") for vendor, kind in ids)


def explain(machine: Machine, reason: str) -> Finding:
    """The finding where NVML lists no GPU; `reason` is its own."""
    files, cards = devices(machine), on_bus(machine)
    if not files and not cards:
        return found(NONE_HERE)
    seen = f"NVIDIA devices: {cards} on the PCI bus, {', '.join(files) or 'none'} in /dev"
    if machine.container is not None and not files:
        return found(f"no GPU in this container; {seen}", _not_given(machine))
    cause = f"{seen}, but {reason}"
    if "not installed" in reason:
        effect = "GPUs, their driver, clocks and connections cannot be examined"
        return found(seen, Problem("unknown", cause, effect, "pip install nvidia-ml-py"))
    fix = _HOST_FIXES.get(reason.removeprefix("NVML: "), _ASK_KERNEL)
    if machine.container is not None:
        cause, fix = _in_container(machine, cause, "Library Not Found" in reason)
    return found(f"{seen}; {reason}", Problem("fail", cause, _EFFECT, fix))


def _not_given(machine: Machine) -> Problem:
    """A warning only: backends without a GPU work in a container without GPUs."""
    requested = machine.environ.get("NVIDIA_VISIBLE_DEVICES")
    setting = f" (NVIDIA_VISIBLE_DEVICES={requested})" if requested is not None else ""
    return Problem(
        "warn",
        f"this container was given none of its host's GPUs{setting}: no nvidia* in its /dev",
        _EFFECT,
        f"{GIVE_GPUS}; where the engine refuses that, on the host: sudo apt-get install -y nvidia-container-toolkit && "
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    )


def _in_container(machine: Machine, cause: str, no_library: bool) -> tuple[str, str]:
    """Cause and fix where there are devices, and the driver's library is missing or fails."""
    if not no_library:
        return cause, f"{GIVE_GPUS} (a new container: a running one loses its GPUs when the host reloads systemd)"
    return f"{cause}; {capabilities(machine)}", CAPABLE


def capabilities(machine: Machine) -> str:
    """What the container requested of the NVIDIA runtime, by which that mounts the driver's libraries."""
    requested = machine.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    return f"NVIDIA_DRIVER_CAPABILITIES is {requested or 'not set'}: libcuda needs compute, NVML needs utility"
