"""What duets are worth: equal sides, host against container, sleepers, a restless machine, planted differences.

    python bench/duet.py --env DIR [--env DIR] --part equal [--part question ...]
    python bench/duet.py --env DIR --part planted --scan

Runs in an environment with collbench and the extra `analysis`, and needs Docker with the images of its libraries. Each
part is kept beside those measured at other times; without --part the page is made again. Two ranks, all-reduce.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, mean, stdev
from typing import Any, NamedTuple

import duet_sleeper
from duet_page import page
from installation import Installation, LaunchFailed, add_env, as_root, end_on_sigterm, run
from machine import describe
from results import HERE, write
from scipy import stats

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import opposed
from collbench.analysis.runs import observe
from collbench.schema.case import Case
from collbench.schema.store import RecordStream
from collbench.units import format_size

SIZES = ("8", "64K", "1M")
PLACES = {"host": "host", "container": "multi"}
LAUNCHES = 8
#: Of trainings, whose launches spread more.
TRAININGS = 12
LIMIT = 900.0
#: What a duet measures of a case on each side (s), for launches in blocks.
BUDGET = "0.8s"

#: Variables that change how an all-reduce of Open MPI is made, for --scan; those of the part `planted`.
RULES = "OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_tuned_allreduce_algorithm="
SCANNED = (*(f"{RULES}{number}" for number in range(1, 7)),
           *(f"{RULES}5 OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize={size}" for size in (4096, 65536)),
           *(f"OMPI_MCA_btl_sm_eager_limit={size}" for size in (1024, 16384, 65536)),
           *(f"OMPI_MCA_btl_sm_max_send_size={size}" for size in (8192, 16384, 65536)),
           "OMPI_MCA_btl_sm_fbox_threshold=1", "OMPI_MCA_btl_sm_fbox_size=65536", "OMPI_MCA_btl_sm_fbox_max=0",
           "OMPI_MCA_pml_monitoring_enable=1", "OMPI_MCA_mpi_spc_attach=all", "OMPI_MCA_op=^avx", "OMPI_MCA_smsc=^cma",
           "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")  # fmt: skip
PLANTED = "OMPI_MCA_pml_monitoring_enable=1"

#: A neighbour, whose times to rest, to compute and to copy come from a seed; it ends with who started it.
NEIGHBOUR = """
import os, random, sys, time
draw, parent, block = random.Random(int(sys.argv[1])), os.getppid(), bytearray(1 << 26)
while os.getppid() == parent:
    time.sleep(draw.expovariate(1 / 3))
    until, copies = time.monotonic() + min(draw.expovariate(1 / 2), 10), draw.random() < 0.5
    while time.monotonic() < until:
        if copies:
            bytes(block)
"""

Found = dict[str, Any]


class Time(NamedTuple):
    """That of an operation in a launch (s); as which of its duet the world was started."""

    seconds: float
    started: int | None


@dataclass(frozen=True)
class Performed:
    """A run: times by what was measured, side and launch; its comparisons; how long it took (s); the libraries.

    `alone` counts what was measured in blocks, by the reason.
    """

    times: Mapping[str, Mapping[str, Mapping[int, Time]]]
    comparisons: Sequence[Comparison]
    seconds: float
    libraries: tuple[str, ...]
    alone: Mapping[str, int]

    def logs(self, what: str, over: Sequence[str]) -> dict[int, float]:
        """By launch, the logarithm of the time of the second side over that of the first."""
        base, other = (self.times[what][side] for side in over)
        return {number: math.log(other[number].seconds / base[number].seconds) for number in base if number in other}

    def compared(self) -> Found:
        """As `compare` tells it, by what was measured."""
        return {_label(one.pair.base.case): {
            "ratio": one.ratio and one.ratio.value, "interval": one.ratio and one.ratio.interval,
            "verdict": one.verdict, "differs": one.ratio is not None and one.ratio.excludes(1.0),
        } for one in self.comparisons}  # fmt: skip


def _label(case: Case) -> str:
    return format_size(int(case["size"])) if case["backend"] else str(case["measure"])


def plan(library: Installation, policies: Sequence[str], sides: Mapping[str, str] | None = None, **keys: Any) -> str:
    """A launch plan; `sides` are by name what variables they have: NAME=VALUE, separated by spaces."""
    usual: Found = {"images": [library.name], "policies": list(policies), "ranks": [2], "launches": LAUNCHES,
                    "budget": BUDGET, "timeout": "60s"}  # fmt: skip
    if "benchmarks" not in keys:
        usual |= {"collectives": ["allreduce"], "sizes": list(SIZES)}
    tables = "".join(f"[[benchmarks]]\n{_keys(one)}" for one in keys.pop("benchmarks", ()))
    for name, variables in (sides or {}).items():
        pairs = dict(variable.split("=", 1) for variable in variables.split())
        tables += f"[sides.{name}.variables]\n{_keys(pairs)}"
    usual |= keys
    environments = {image: str(library.directory) for image in usual["images"]}
    return f"{_keys(usual)}[environments]\n{_keys(environments)}{tables}"


def _keys(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def perform(text: str, by: str, program: Sequence[str] = (sys.executable, "-m", "collbench")) -> Performed:
    """Launch a plan, and compare its sides by a factor."""
    with tempfile.TemporaryDirectory() as folder:
        out, file = Path(folder) / "run", Path(folder) / "plan.toml"
        file.write_text(text, encoding="utf-8")
        began = time.monotonic()
        run((*program, "launch", str(file), "--out", str(out)), LIMIT, dict(os.environ))
        took = time.monotonic() - began
        times: Found = defaultdict(lambda: defaultdict(dict))
        alone = Counter[str]()
        for record in RecordStream(out):
            if record.seconds is not None:
                alone.update([record.alone] if record.alone else ())
                side = record.case.where.side or record.case.where.policy
                seconds, started = record.seconds.p50, None
                if record.duet is not None:
                    seconds, started = record.duet.seconds, record.duet.started
                times[_label(record.case)][side][record.launch] = Time(seconds, started)
        observed = observe(out)
        libraries = dict.fromkeys(f"{one.name} {one.version}" for one in observed.manifests[0].libraries)
        return Performed(
            times, compare(opposed(observed.cells.values(), find_factor(by))), took, tuple(libraries), alone
        )


def interval(values: Sequence[float]) -> list[float]:
    """The mean with its 95 % interval by Student's t."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return [fmean(values), fmean(values) - half, fmean(values) + half]


def difference(of: Sequence[float], to: Sequence[float]) -> list[float] | None:
    """The difference of two means with its 95 % interval by Welch's test; None: too few values."""
    if min(len(of), len(to)) < 2:
        return None
    ends = stats.ttest_ind(of, to, equal_var=False).confidence_interval(0.95)
    return [fmean(of) - fmean(to), float(ends.low), float(ends.high)]


def equal(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """Experiments whose sides do not differ."""
    found: Found = {"experiments": [], "start": {}, "failed": []}
    kinds = [(library, place) for library in asked.installations for place in PLACES]
    for number in range(asked.experiments):
        library, place = kinds[number % len(kinds)]
        try:
            text = plan(library, [PLACES[place]], {"a": "", "b": ""}, seed=asked.seed + number)
            played = perform(text, "side")
        except LaunchFailed as error:
            found["failed"].append(f"{library.name}, {place}: {error}")
            continue
        found["experiments"].append({
            "library": library.name, "place": place, "seconds": played.seconds, "sizes": played.compared(),
            "spread": {size: _spread(played, size, ("a", "b")) for size in played.times},
            "second over first": {size: _by_start(played, size, ("a", "b")) for size in played.times},
            "libraries": played.libraries, "alone": played.alone,
        })  # fmt: skip
        done(found)
    for size in SIZES:
        pooled = [log for one in found["experiments"] for log in one["second over first"].get(size, ())]
        found["start"][size] = interval(pooled) if len(pooled) > 1 else None
    return found


def _spread(played: Performed, size: str, sides: Sequence[str]) -> list[float]:
    """Standard deviations between launches: of the logarithm of a side's time, and of the ratio."""
    of_sides = [stdev(math.log(one.seconds) for one in played.times[size][side].values()) for side in sides]
    return [math.sqrt(mean(one * one for one in of_sides)), stdev(played.logs(size, sides).values())]


def _by_start(played: Performed, size: str, sides: Sequence[str]) -> list[float]:
    """By launch, the logarithm of the time of the world started second over that of the first."""
    first = played.times[size][sides[0]]
    return [log if first[number].started == 0 else -log for number, log in played.logs(size, sides).items()
            if first[number].started is not None]  # fmt: skip


def question(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """Host against container, and what the order of starts does to it."""
    found: Found = {}
    for library in asked.installations:
        played = perform(plan(library, list(PLACES.values()), seed=asked.seed), "policy")
        start = {}
        for size in played.times:
            host = played.times[size]["host"]
            logs = played.logs(size, tuple(PLACES.values()))
            halves = ([log for number, log in logs.items() if host[number].started == place] for place in (0, 1))
            start[size] = difference(*halves)
        found[library.name] = {"seconds": played.seconds, "sizes": played.compared(), "start": start,
                               "libraries": played.libraries}  # fmt: skip
        done(found)
    return found


def sleeper(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """What a sleeping world costs the one that measures."""
    policies = ("host", "multi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.toml"
        file.write_text(plan(asked.installations[0], policies, timeout="5m"), encoding="utf-8")
        found = duet_sleeper.costs(file, policies, asked.lives, asked.seed, done)
    costs = found["costs"]
    enough = [size for size in SIZES if all(len(costs[policy].get(size, ())) > 1 for policy in policies)]
    found["mean"] = {policy: {size: interval(costs[policy][size]) for size in enough} for policy in policies}
    found["difference"] = {size: difference(costs["multi"][size], costs["host"][size]) for size in enough}
    return found


@contextlib.contextmanager
def neighbours(seed: int) -> Iterator[None]:
    """Two processes that disturb."""
    started = [subprocess.Popen((sys.executable, "-c", NEIGHBOUR, str(seed + number))) for number in range(2)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def restless(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """Launches of equal sides in duets and in blocks, one after the other, beside neighbours."""
    logs: Found = {how: defaultdict(list) for how in ("duet", "blocks")}
    found: Found = {"logs": logs, "failed": []}
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    with neighbours(asked.seed):
        for number in range(asked.launches):
            for how in order.sample(sorted(logs), 2):
                text = plan(asked.installations[0], ["host"], {"a": "", "b": ""}, launches=1, how=how,
                            seed=asked.seed + number)  # fmt: skip
                try:
                    played = perform(text, "side")
                except LaunchFailed as error:
                    found["failed"].append(f"{how}: {error}")
                    continue
                for size in played.times:
                    logs[how][size] += played.logs(size, ("a", "b")).values()
                found["libraries"] = played.libraries
            done(found)
    found["spread"] = {size: [stdev(logs[how][size]) for how in ("duet", "blocks")] for size in SIZES}
    return found


def planted(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """A difference between sides that is known to be there."""
    found: Found = {"variables": asked.variables, "places": {}}
    for place, policy in PLACES.items():
        text = plan(asked.installations[0], [policy], {"a": "", "b": asked.variables}, seed=asked.seed)
        played = perform(text, "side")
        found["places"][place] = {"seconds": played.seconds, "sizes": played.compared(), "libraries": played.libraries}
        done(found)
    return found


def scan(asked: argparse.Namespace) -> None:
    """Print what each of some variables does, by two launches."""
    for variables in SCANNED:
        try:
            played = perform(plan(asked.installations[0], ["host"], {"a": "", "b": variables}, launches=2), "side")
        except LaunchFailed as error:
            print(f"{variables}: {error}", flush=True)
            continue
        effects = (f"{size} {math.exp(fmean(played.logs(size, ('a', 'b')).values())):.3f}" for size in SIZES)
        print(f"{variables}: {', '.join(effects)}", flush=True)


def training(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """A step of a training on the host against a container, in turns."""
    text = plan(asked.installations[0], list(PLACES.values()), images=["torch"], warmup=2, floor=8, timeout="5m",
                launches=TRAININGS,
                benchmarks=[{"name": "ddp", "network": "fcn5", "batch": 64}], seed=asked.seed)  # fmt: skip
    played = perform(text, "policy")
    return {"launches": TRAININGS, "seconds": played.seconds, "sizes": played.compared(), "libraries": played.libraries}


#: Rules of slices: how long (s), in how many rounds, what is left out before each (s).
RULES_OF_SLICES = ((0.1, 6, 0.01), (0.025, 20, 0.005), (0.01, 40, 0.003))

#: `collbench launch` with another rule.
RULED = """
import runpy, sys
from collbench.schema.plan import Plan
from collbench.schema.world import SliceRule
seconds, rounds, discard = map(float, sys.argv[1:4])
rule = SliceRule(rounds=int(rounds), seconds=seconds, discard_seconds=discard)
Plan.slices = property(lambda plan: rule)
sys.argv = ["collbench", *sys.argv[4:]]
runpy.run_module("collbench", run_name="__main__")
"""


def slices(asked: argparse.Namespace, done: Callable[[Found], None]) -> Found:
    """Launches of equal sides with slices of several lengths, one after the other."""
    logs: Found = {str(rule): defaultdict(list) for rule in range(len(RULES_OF_SLICES))}
    found: Found = {"rules": RULES_OF_SLICES, "logs": logs, "seconds": defaultdict(list), "failed": []}
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    for number in range(asked.launches):
        for rule in order.sample(sorted(logs), len(logs)):
            text = plan(asked.installations[0], ["host"], {"a": "", "b": ""}, launches=1, seed=asked.seed + number)
            program = (sys.executable, "-c", RULED, *map(str, RULES_OF_SLICES[int(rule)]))
            try:
                played = perform(text, "side", program)
            except LaunchFailed as error:
                found["failed"].append(f"{rule}: {error}")
                continue
            found["seconds"][rule].append(played.seconds)
            for size in played.times:
                logs[rule][size] += played.logs(size, ("a", "b")).values()
            found["libraries"] = played.libraries
        done(found)
    found["spread"] = {rule: [stdev(of[size]) for size in SIZES] for rule, of in logs.items()}
    return found


PARTS = {one.__name__: one for one in (equal, question, sleeper, slices, restless, planted, training)}


def _pressure() -> str:
    """How long tasks waited for a processor (PSI of the kernel's documentation)."""
    with contextlib.suppress(OSError):
        return Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
    return "unknown"


def _commit() -> str:
    """The present one; `dirty` where the code that measures differs from it."""

    def git(*argv: str) -> subprocess.CompletedProcess[str]:
        command = ("git", "-C", str(HERE.parent), *argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    changed = git("diff", "--quiet", "HEAD", "--", "src", "bench/*.py").returncode != 0
    return git("rev-parse", "--short", "HEAD").stdout.strip() + ("-dirty" if changed else "")


def main() -> None:
    """Measure parts, and keep them with those of other times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--part", dest="parts", action="append", choices=tuple(PARTS), default=[], help="repeat it")
    parser.add_argument("--experiments", type=int, default=20, help="of equal sides [20]")
    parser.add_argument("--lives", type=int, default=16, help="of each world beside which others sleep [16]")
    parser.add_argument("--launches", type=int, default=20, help="on the restless machine, of each kind [20]")
    parser.add_argument("--variables", default=PLANTED, help=f"NAME=VALUE ..., what is planted [{PLANTED}]")
    parser.add_argument("--scan", action="store_true", help="show what several variables do, and keep nothing")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    end_on_sigterm()
    os.environ.update(as_root())
    if asked.scan:
        scan(asked)
        return
    file = HERE / "results-duet.json"
    data: Found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in asked.parts:
        entry: Found = {"when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "commit": _commit(),
                        "machine": describe(), "seed": asked.seed, "pressure": [_pressure()]}  # fmt: skip

        def done(found: Found, name: str = name, entry: Found = entry) -> None:
            """What there is is kept, should this be cut off."""
            write("duet", data | {name: entry | {"whole": False, "found": found}}, lambda: page(data))

        found = PARTS[name](asked, done)
        data[name] = entry | {"whole": True, "pressure": [*entry["pressure"], _pressure()], "found": found}
        write("duet", data, lambda: page(data))
    print(page(data))
    write("duet", data, lambda: page(data))


if __name__ == "__main__":
    main()
