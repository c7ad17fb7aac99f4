"""What integrations/ has for other tools: ReFrame runs the check; recipes have the dependencies and read the output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.mpi.jobs import BIN, environment, skip_or_fail
from tests.processes import LIMIT
from tests.unit.manual import ROOT

FOLDER = ROOT / "integrations"

PLAN = """\
policies = ["host"]
images = ["openmpi"]
ranks = [2]
collectives = ["allreduce"]
sizes = ["8", "64K"]
launches = 10
"""


def reframe(folder: Path, *settings: str) -> list[dict[str, Any]]:
    """The report of each check: `reframe -r` in a folder, with a plan of two sizes there."""
    words = ["-c", str(FOLDER / "reframe" / "collbench_check.py"), "-r", "-S", f"plan={folder / 'plan.toml'}"]
    variables = environment(PATH=f"{BIN}:{os.environ['PATH']}", RFM_REPORT_FILE=str(folder / "report.json"))
    done = subprocess.run([BIN / "reframe", *words, *(word for one in settings for word in ("-S", one))], cwd=folder,
                          env=variables, capture_output=True, text=True, timeout=10 * LIMIT, check=False)  # fmt: skip
    assert (folder / "report.json").exists(), done.stdout + done.stderr
    (run,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))["runs"]
    checks: list[dict[str, Any]] = run["testcases"]
    return checks


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.one_mpi
def test_reframe_fails_what_is_slower_than_a_baseline(tmp_path: Path) -> None:
    """The baseline says of one size that it took a tenth of the time, of the other that it took ten times as long."""
    if not (BIN / "reframe").exists():
        skip_or_fail("reframe", "reframe-hpc is not installed in this environment")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    (check,) = reframe(tmp_path)
    times = {name.rpartition(":")[2]: value[0] for name, value in check["perfvalues"].items()}
    assert (check["result"], len(times)) == ("pass", 2) and min(times.values()) > 0
    (run,) = tmp_path.glob("output/**/run")
    save = [str(BIN / "collbench"), "compare", str(run), "--save-baseline", "baseline.json"]
    subprocess.run(save, cwd=tmp_path, timeout=LIMIT, check=True)
    baseline = json.loads((tmp_path / "baseline.json").read_text(encoding="utf-8"))
    for cell in baseline["cells"]:
        factor = 0.1 if cell["case"]["what"]["size"] == 8 else 10
        cell |= {name: [factor * seconds for seconds in cell[name]] for name in ("medians", "means")}
    (tmp_path / "baseline.json").write_text(json.dumps(baseline), encoding="utf-8")
    (check,) = reframe(tmp_path, f"baseline={tmp_path / 'baseline.json'}")
    above = {name.rpartition(":")[2]: value[0] > 1 for name, value in check["perfvalues"].items()}
    assert (check["result"], sorted(above.values())) == ("fail", [False, True])
    assert next(name for name, slower in above.items() if slower) in check["fail_reason"]


def test_spack_has_the_dependencies_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (FOLDER / "spack/spack_repo/collbench/packages/py_collbench/package.py").read_text(encoding="utf-8")
    found = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):"', recipe))
    lists = [
        project["dependencies"],
        *(project["optional-dependencies"][extra] for extra in ("mpi", "analysis", "launch")),
    ]
    matches = [re.match(r"([\w-]+)>=([\d.]+)", line) for lines in lists for line in lines]
    wanted = {match[1].replace("_", "-"): match[2] for match in matches if match} | {"setuptools": "77"}
    assert found == wanted
    python = project["requires-python"].removeprefix(">=")
    assert f'depends_on("python@{python}:"' in recipe


def test_ramble_reads_what_is_printed() -> None:
    """Its figures of merit are those of the rows that --style nccl-tests prints."""
    application = (FOLDER / "ramble/applications/collbench/application.py").read_text(encoding="utf-8")
    (parts,) = re.findall(r"row = \(\n(.*?)\n    \)", application, re.DOTALL)
    row = "".join(re.findall(r'r"(.*?)"', parts))
    words = ["allreduce", "--backend", "fake", "-b", "8", "-e", "1K", "-n", "5", "--style", "nccl-tests"]
    printed = subprocess.run([sys.executable, "-m", "collbench", *words], stdout=subprocess.PIPE, text=True,
                             timeout=LIMIT, check=True).stdout  # fmt: skip
    found = [match.groupdict() for match in re.finditer(row, printed, re.MULTILINE)]
    assert [int(one["size"]) for one in found] == [2**power for power in range(3, 11)]
    assert all(float(one["time"]) > 0 and float(one["busbw"]) >= 0 and one["wrong"] == "0" for one in found)
    (success,) = re.findall(r'match=r"(.*?)"', application)
    assert re.search(success, printed)
