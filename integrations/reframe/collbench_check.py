"""A ReFrame check that measures a launch plan, and judges it by the verdicts of collbench.

    reframe -c collbench_check.py -r -S plan=/path/plan.toml
    reframe -c collbench_check.py -r -S plan=/path/plan.toml -S baseline=/path/baseline.json

It fails if a launch or a result does. Its performance variables are the times of all cells. With a baseline, which
`collbench compare RUN --save-baseline FILE` wrote, they are the times over those of the baseline, and ReFrame's
reference of a cell comes from the verdict on it: a cell that collbench calls slower may not be above 1. A cell of the
baseline that has no ratio with an interval, such as one with too few launches, fails too.
"""

import json
import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import deferrable, run_before, sanity_function, variable


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
        self.executable_opts = ["launch", shlex.quote(self.plan), "--out", "run"]
        if self.baseline:
            baseline = shlex.quote(self.baseline)
            compare = f"collbench compare run --baseline {baseline} --margin {self.margin} --style json"
            self.postrun_cmds = [f"{compare} > measured.json 2> refused.txt || echo null > measured.json"]
        else:
            self.postrun_cmds = ["collbench show run --style bencher > measured.json"]

    @sanity_function
    def every_launch_and_result_is_right(self):
        statuses = sn.extractall(r'"status":"(\w+)"', "run/records.jsonl", 1)
        right = [sn.assert_gt(sn.count(statuses), 0), sn.assert_not_in("failed", statuses)]
        if self.baseline:
            right.append(sn.assert_eq(self.cells_without_a_ratio(), [], "not compared: {0}"))
        return sn.all(right)

    @deferrable
    def cells_without_a_ratio(self):
        """By name; or what collbench says where it compares nothing."""
        measured = self.measured()
        if measured is None:
            return [(Path(self.stagedir) / "refused.txt").read_text(encoding="utf-8").strip()]
        baseline = json.loads(Path(self.baseline).read_text(encoding="utf-8"))
        compared = {name for name, (_, _, _, interval) in ratios(measured).items() if interval}
        return sorted({name_of(cell["case"]) for cell in baseline["cells"]} - compared)

    def measured(self):
        return json.loads((Path(self.stagedir) / "measured.json").read_text(encoding="utf-8"))

    @run_before("performance")
    def set_performance_variables(self):
        cells = ratios(self.measured()) if self.baseline else times(self.measured())
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit) for name, (value, unit, *_) in cells.items()
        }
        self.reference = {"*": {name: (1, None, 0, unit) for name, (_, unit, slower, _) in cells.items() if slower}}


def times(metrics):
    """Of every cell by name: the median in ns."""
    return {name: (of["latency"]["value"], "ns", False, None) for name, of in metrics.items()}


def ratios(comparison):
    """Of every cell by name: its time over that of the baseline, whether it is slower, and the interval."""
    return {
        name_of(cell["base"]["case"]): (
            cell["ratio"]["value"],
            "times the baseline",
            cell["verdict"] == "slower",
            cell["ratio"]["interval"],
        )
        for cell in comparison["comparisons"]
        if cell["ratio"] is not None
    }


def name_of(case):
    """`allreduce float32 sum 8 mpi ...`: the workload and its values, in the order of the names of the axes."""
    values = [str(value) for part in ("what", "how", "where") for _, value in sorted(case.get(part, {}).items())]
    return " ".join([case["workload"], *values])
