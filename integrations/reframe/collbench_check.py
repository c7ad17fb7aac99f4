"""A ReFrame check that measures a launch plan, and judges it by the verdicts of collbench.

    reframe -c collbench_check.py -r -S plan=/path/plan.toml
    reframe -c collbench_check.py -r -S plan=/path/plan.toml -S baseline=/path/baseline.json

It fails if a launch or a result does. Its performance variables are the times of all cells. With a baseline, which
`collbench compare RUN --save-baseline FILE` wrote, they are the times over those of the baseline, and ReFrame's
reference of a cell comes from the verdict on it: a cell that collbench calls slower may not be above 1.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable


@rfm.simple_test
class CollbenchCheck(rfm.RunOnlyRegressionTest):
    """A launch plan on the machine on which ReFrame runs; it starts its ranks and containers itself."""

    descr = "collbench: a launch plan, beside a baseline"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    local = True
    executable = "collbench"
    keep_files = ["run"]

    plan = variable(str, value="one-container")
    baseline = variable(str, value="")
    margin = variable(float, value=0.05)

    @run_before("run")
    def set_commands(self):
        self.executable_opts = ["launch", self.plan, "--out", "run"]
        if self.baseline:
            compare = f"collbench compare run --baseline {self.baseline} --margin {self.margin} --style json"
            self.postrun_cmds = [f"{compare} > measured.json"]
        else:
            self.postrun_cmds = ["collbench show run --style bencher > measured.json"]

    @sanity_function
    def every_launch_and_result_is_right(self):
        statuses = sn.extractall(r'"status":"(\w+)"', "run/records.jsonl", 1)
        return sn.all([sn.assert_gt(sn.count(statuses), 0), sn.assert_not_in("failed", statuses)])

    @run_before("performance")
    def set_performance_variables(self):
        measured = json.loads((Path(self.stagedir) / "measured.json").read_text(encoding="utf-8"))
        cells = ratios(measured) if self.baseline else times(measured)
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit) for name, (value, unit, _) in cells.items()
        }
        self.reference = {"*": {name: (1, None, 0, unit) for name, (_, unit, slower) in cells.items() if slower}}


def times(metrics):
    """Of every cell by name: the median in ns."""
    return {name: (of["latency"]["value"], "ns", False) for name, of in metrics.items()}


def ratios(comparison):
    """Of every cell by name: its time over that of the baseline, and whether it is slower."""
    cells = {}
    for cell in comparison["comparisons"]:
        if cell["ratio"] is not None:
            case = cell["base"]["case"]
            words = [case["workload"], *case["what"].values(), *case["how"].values(), *case["where"].values()]
            name = " ".join(str(word) for word in words)
            cells[name] = (cell["ratio"]["value"], "times the baseline", cell["verdict"] == "slower")
    return cells
