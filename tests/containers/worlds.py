"""What the tests of launches share: plans, a look at what runs, and ways to disturb it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.containers.conftest import Launch, Started, ended
from tests.processes import wait_for
from tests.runs import read_run

LADDER = """
collectives = ["allreduce"]
sizes = ["8", "128K"]
images = ["{image}"]
policies = [{policies}]
isolation = ["strict", "limits", "ipc", "net", "visible"]
launches = 1
iters = 20
align = "barrier"
timeout = "300s"
"""

#: One world that measures for a minute, so that there is time to disturb it.
LONG = """
collectives = ["allreduce"]
sizes = ["8", "16", "32", "64", "128", "256"]
images = ["{image}"]
policies = ["single"]
isolation = ["{step}"]
launches = {launches}
budget = "10s"
cap = 10000000
align = "barrier"
timeout = "300s"
"""


def ranks_of(started: Started) -> list[dict[str, Any]]:
    """Both containers, when collbench runs in both."""
    api = started.engine.api
    names = [found for found in started.containers() if found["Names"][0].endswith(("c0", "c1"))]
    busy = [found for found in names if any("collbench" in " ".join(p) and "run" in p for p in _processes(api, found))]
    return busy if len(busy) == 2 else []


def _processes(api: Any, found: dict[str, Any]) -> list[list[str]]:
    try:
        return [" ".join(row).split() for row in api.top(found["Id"])["Processes"]]
    except Exception:
        return []


def kill_container(started: Started) -> None:
    started.engine.api.kill(wait_for(lambda: ranks_of(started))[0]["Id"])


def remove_network(started: Started) -> None:
    there = wait_for(lambda: ranks_of(started))
    (network,) = started.networks()
    for container in there:
        started.engine.api.disconnect_container_from_network(container["Id"], network["Id"], force=True)


def kill_rank(started: Started) -> None:
    container = wait_for(lambda: ranks_of(started))[-1]
    api = started.engine.api
    api.exec_start(api.exec_create(container["Id"], ["sh", "-c", KILL])["Id"])


#: Kills the process whose command is `collbench run`; there is no pkill in the image.
KILL = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q 'bin/collbench run' && "
    "kill -9 ${p#/proc/}; done; true"
)


def disturbed(
    clean: Started, launch: Launch, tmp_path: Path, image: str, disturb: Callable[[Started], None], step: str = "strict"
) -> None:
    """A world of two ranks, disturbed once they have met, is one failed record, and the experiment says so."""
    process = launch(LONG.format(image=image, step=step, launches=1).replace('"300s"', '"20s"'))
    try:
        wait_for(lambda: list(Path(tempfile.gettempdir()).glob("collbench-*/out/manifest.json")))
        disturb(clean)
        code, _, err = ended(process)
    finally:
        process.kill()
        process.communicate()
    assert code == 1, err
    failed = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    assert len(failed) == 1
    assert failed[0].reason
    assert f"collbench: launch 0 ({image} single {step}, 2 ranks) failed:" in err
