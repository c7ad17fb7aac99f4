"""A network that is taken from under a world: ranks notice once their time-out is over, most of a minute later."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.containers.conftest import Launch, Started
from tests.containers.worlds import disturbed, remove_network


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_a_world_without_its_network_is_one_failed_record(
    clean: Started, launch: Launch, tmp_path: Path, image: str
) -> None:
    disturbed(clean, launch, tmp_path, image, remove_network)
