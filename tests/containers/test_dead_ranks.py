"""A rank that dies in a container whose launcher hangs: the launch ends, long before its time-out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import KILL, LONG, ranks_of
from tests.processes import wait_for

#: What starts ranks in a container stops.
STOP = 'for p in /proc/[0-9]*; do case "$(cat $p/comm)" in prte*|hydra*) kill -STOP ${p#/proc/};; esac; done; '


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_launcher_in_a_container_that_hangs_is_not_waited_for(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    process = launch(LONG.format(image=image, step="strict", launches=1).replace('"300s"', '"1h"'))
    try:
        wait_for(lambda: list(Path(tempfile.gettempdir()).glob("collbench-*/out/manifest.json")))
        api, container = clean.engine.api, wait_for(lambda: ranks_of(clean))[-1]
        api.exec_start(api.exec_create(container["Id"], ["sh", "-c", STOP + KILL])["Id"])
        code, _, err = ended(process)
    finally:
        process.kill()
        process.communicate()
    assert code == 1, err
    (record,) = [record for record in read_run(tmp_path / "run").records if record.status == "failed"]
    said = (
        "a rank was ended by signal 9 (Killed), and mp",
        "all ranks have ended, and mp",
    )  # Open MPI's other rank sees it
    assert (record.reason or "").startswith(said), record.reason
    assert f"collbench: launch 0 ({image} single strict, 2 ranks) failed: {record.reason}" in err
