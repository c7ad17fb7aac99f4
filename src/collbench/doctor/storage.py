"""Check `storage`: on which devices the files of programs are, on the host and in containers."""

from __future__ import annotations

from pathlib import Path

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.machine.cgroup import Mount, disks, under
from collbench.schema.manifest import Disk

#: Where engines keep layers and volumes, without another setting.
ENGINES = ("/var/lib/docker", "/var/lib/containers/storage")

#: Where launch makes the folders of the host, without `folder` in a plan; and storage `tmpfs` of the host.
FOLDER, MEMORY = "/var/tmp", "/dev/shm"  # noqa: S108 - nothing is made there


def judge(machine: Machine, current: Path) -> Finding:
    """`current` is the folder in which a program works without a launch."""
    engines = [name for name in ENGINES if machine.path(name.lstrip("/")).is_dir()]
    names = dict.fromkeys((str(current), FOLDER, *engines, MEMORY))
    mounts = {name: under(Path(name), machine.root) for name in names}
    seen = ", ".join(f"{name} {mount.text}" for name, mount in mounts.items())
    hardware = ", ".join(map(_disk, disks(machine.root)))
    problems = (_apart(name, mounts[name], mounts[FOLDER]) for name in engines)
    return found(f"{seen}{hardware and f'; disks: {hardware}'}", *problems)


def _disk(disk: Disk) -> str:
    kind = {None: "", True: "rotating", False: "not rotating"}[disk.rotational]
    words = (disk.model, kind, disk.scheduler and f"scheduler {disk.scheduler}")
    known = ", ".join(word for word in words if word)
    return f"{disk.name} ({known})" if known else disk.name


def _apart(name: str, engine: Mount, host: Mount) -> Problem | None:
    if not engine.device or not host.device or engine.device == host.device:
        return None
    folder = f"{engine.point.rstrip('/')}/collbench"
    cause = f"the engine's files ({name}) are on {engine.text}, those of the host ({FOLDER}) on {host.text}"
    effect = "two devices would be compared, not host and container: launch refuses storage overlay and volume"
    fix = f'sudo mkdir -m 1777 {folder}; and folder = "{folder}" in the launch plan'
    return Problem("warn", cause, effect, fix)


def run(machine: Machine) -> Finding:
    return judge(machine, Path.cwd())
