"""Commands around launches on a real engine: doctor and gate."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import Docker
from tests.containers.conftest import Started, ended
from tests.mpi.test_duets import ACCEPTED, SLOWER
from tests.processes import LIMIT, wait_for


def doctor(image: str) -> subprocess.Popen[str]:
    argv = (sys.executable, "-m", "collbench", "doctor", "--image", image)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.docker
@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_with_its_network_made(started: Started, times: int) -> None:
    """Once: nothing is left. Twice: what could not be removed in a moment is said, and a network is no exception."""
    process = doctor("mpich")
    started.processes.append(process.pid)
    wait_for(lambda: [one for one in started.networks() if one["Name"].endswith("-0-net")])
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)  # or the system would make one of both
    code, _, err = ended(process)
    assert (code, err.splitlines()[1:]) == (130, [])
    left = [*started.containers(), *started.networks()]
    if times == 1:
        assert left == []
    if left:
        assert "collbench launch --sweep" in err
        started.engine.remove(started.containers(), started.networks())


#: Its collbench ends as no doctor does; the probe is another program.
OTHER = """\
FROM collbench/mpich
USER root
RUN printf '#!/bin/sh\\necho no doctor here >&2\\nexit 77\\n' > /opt/collbench/bin/collbench
USER collbench
"""


@pytest.fixture
def other(engine: Docker) -> Iterator[str]:
    name, context = f"collbench-test/other:{engine.run}", io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(OTHER)
        tar.addfile(member, io.BytesIO(OTHER.encode()))
    images.build_context(engine, context.getvalue(), "Dockerfile", name, {}, False, {}, lambda line: None)
    yield name
    images.untag(engine, name)


@pytest.mark.docker
def test_an_end_that_is_not_doctors_is_an_error(clean: Started, other: str) -> None:
    done = doctor(other)
    clean.processes.append(done.pid)
    code, out, err = ended(done, LIMIT)
    assert (code, out) == (1, "")
    assert err.startswith(f"collbench: image {other}: ") and err.endswith(" 77: no doctor here\n")


# A gate in containers -------------------------------------------------------------------------------------------------

PLAN = """
collectives = ["bcast"]
images = ["openmpi"]
policies = ["multi"]
isolation = ["files"]
sizes = ["64", "256K"]
iters = 30
launches = 6
"""


@pytest.mark.docker
def test_a_variable_in_containers_is_judged(clean: Started, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "gate"
    process = subprocess.Popen(
        [sys.executable, "-m", "collbench", "gate", str(tmp_path / "plan.toml"), "--out", str(out), "--margin", "50%",
         *SLOWER, *ACCEPTED],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    clean.processes.append(process.pid)
    code, printed, err = ended(process)
    assert code == 1, (printed, err)
    told = json.loads((out / "gate.json").read_text())
    answers = {cell["base"]["what"]["size"]: cell["answer"] for cell in told["cells"]}
    assert answers[256 << 10] == "loss"
    assert answers[64] != "loss"
    assert (told["planned"], told["refused"]) == (2, [])
