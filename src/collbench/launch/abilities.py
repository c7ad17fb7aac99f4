"""What an engine can give to a container: tried before an experiment, so that it neither fails later nor is guessed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from collbench.errors import EngineError
from collbench.launch.connection import Connection
from collbench.launch.image_store import run_once
from collbench.launch.settings import gpu_requests
from collbench.launch.specs import CDI_KIND

#: How an image is asked: as strictly as ranks are held at the first step.
CONFINED = {"network_mode": "none", "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"], "user": "1000:1000"}


def allows_memlock(engine: Connection, reference: str) -> bool:
    """Whether a container may lock memory without limit: not where the engine itself may not."""
    import docker.types

    unlimited = docker.types.Ulimit(name="memlock", soft=-1, hard=-1)
    try:
        return run_once(engine, reference, ("true",), ulimits=[unlimited], **CONFINED)[0] == 0
    except EngineError as error:
        if "rlimit" in str(error):
            return False
        raise


def allowed_calls(engine: Connection, reference: str) -> frozenset[str]:
    """Of `process_vm_readv` and `kcmp`, what processes in a container without capabilities may call on each other."""
    _, said = run_once(engine, reference, ("python", "-m", "collbench.doctor.parts.attach_probe"), **CONFINED)
    try:
        tried = msgspec.json.decode(said.strip(), type=dict[str, dict[str, int | None]])["plain"]
    except (msgspec.DecodeError, KeyError):
        return frozenset()
    return frozenset(name for name, key in (("process_vm_readv", "readv"), ("kcmp", "kcmp")) if tried.get(key) == 0)


def knows_cdi(description: dict[str, Any], root: Path = Path("/")) -> bool:
    """Whether an engine (25 and later) knows a CDI device of NVIDIA's, from its own description (`Engine.describe`).

    It lists devices (28.3 and later), or the folders of their specifications, which are looked into on this machine.
    """
    if any(CDI_KIND in str(one) for one in description.get("DiscoveredDevices") or ()):
        return True
    for folder in description.get("CDISpecDirs") or ():
        for path in (root / str(folder).lstrip("/")).glob("*"):
            with contextlib.suppress(OSError):
                if path.suffix in (".yaml", ".json") and CDI_KIND in path.read_text("utf-8", "replace"):
                    return True
    return False


def refuse_without_gpus(engine: Connection, reference: str, gpus: tuple[str, ...], cdi: bool) -> None:
    """Try a container with GPUs of these UUIDs.

    Raises:
        EngineError: the engine cannot give them to one.
    """
    try:
        run_once(engine, reference, ("true",), device_requests=gpu_requests(gpus, cdi), **CONFINED)
    except EngineError as error:
        raise EngineError(
            f"{error}. The engine cannot give GPUs to containers: install NVIDIA's container toolkit on its machine, "
            "then nvidia-ctk runtime configure (or, from engine 25 on, nvidia-ctk cdi generate), and start it again."
        ) from error
