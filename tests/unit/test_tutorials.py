"""Programs of the tutorials, on files that are made up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from tests.processes import LIMIT
from tests.unit.manual import PAGES

from collbench.cli import cli

#: What all_reduce_perf of nccl-tests 2.17 prints on two ranks.
OUTPUT = """\
# nccl-tests version 2.17.6 nccl-headers=22903 nccl-library=22903
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 128(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1001 on       node device  0 [0000:01:00] NVIDIA H100
#  Rank  1 Group  0 Pid   1002 on       node device  1 [0000:02:00] NVIDIA H100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1  {0:7.2f}    0.00    0.00       0  {0:7.2f}    0.00    0.00       0
        1024           256     float     sum      -1  {1:7.2f}    0.06    0.06       0  {1:7.2f}    0.06    0.06       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.03
#
"""


def test_files_of_nccl_tests_become_a_run(tmp_path: Path) -> None:
    """Tree takes a fifth longer at 1 KiB, and the same at 8 B."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGES["tutorials/nccl-tests.md"], re.MULTILINE | re.DOTALL)
    draw = np.random.default_rng(1)
    for turn in range(8):
        for side, factor in (("ring", 1.0), ("tree", 1.2)):
            small, large = 10 * draw.lognormal(0, 0.005), 16 * factor * draw.lognormal(0, 0.005)
            (tmp_path / f"{side}-{turn}.txt").write_text(OUTPUT.format(small, large), encoding="utf-8")
    (tmp_path / "from_nccl_tests.py").write_text(program, encoding="utf-8")
    files = sorted(path.name for path in tmp_path.glob("*-*.txt"))
    words = [sys.executable, "-I", "from_nccl_tests.py", "run", *files]
    subprocess.run(words, cwd=tmp_path, timeout=LIMIT, check=True)
    compared = ["compare", str(tmp_path / "run"), "--by", "algorithm", "--style", "json"]
    done = CliRunner().invoke(cli, compared, catch_exceptions=False)
    verdicts = {
        cell["base"]["case"]["what"]["size"]: cell["verdict"] for cell in json.loads(done.stdout)["comparisons"]
    }
    assert verdicts == {8: "same", 1024: "slower"}
