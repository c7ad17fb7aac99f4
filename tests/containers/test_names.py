"""A run measures the images that it found at its start, whatever their names come to mean meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.launch.engines.docker import images, look
from collbench.launch.engines.docker.client import Docker
from collbench.schema.store import read_run
from tests.containers.conftest import Launch, Started, ended
from tests.containers.worlds import LONG, ranks_of
from tests.processes import wait_for


@pytest.fixture
def moving(engine: Docker) -> Iterator[str]:
    """A name that means MPICH's image, until a test gives it to another."""
    name = f"collbench-test/moving:{engine.run}"
    engine.api.tag("collbench/mpich", name)
    yield name
    images.untag(engine, name)


@pytest.mark.docker
def test_a_name_that_moves_to_another_image_in_the_middle_of_a_run(
    clean: Started, launch: Launch, moving: str, tmp_path: Path
) -> None:
    first = look.inspect(clean.engine, moving)["Id"]
    process = launch(LONG.format(image=moving, step="strict", launches=2).replace('"10s"', '"0.3s"'))
    wait_for(lambda: ranks_of(clean))
    clean.engine.api.tag("collbench/openmpi", moving)
    assert look.inspect(clean.engine, moving)["Id"] != first
    code, out, err = ended(process)
    assert code == 0, (out, err)
    run = read_run(tmp_path / "run")
    assert run.manifest.experiment is not None
    assert [image.id for image in run.manifest.experiment.images] == [first]
    assert [(record.launch, record.status) for record in run.records] == [(0, "ok")] * 6 + [(1, "ok")] * 6
    assert all((record.transport or "").startswith("ucx") for record in run.records)  # of MPICH, not of Open MPI
