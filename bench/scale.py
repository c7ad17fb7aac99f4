"""What grows with the ranks: a made-up world of 10,000 and of 100,000, and 256 real ranks on however many cores.

    python bench/scale.py [--env DIR [--env DIR]]

The made-up worlds (made_up_world.py) need collbench and no MPI. Each runs in a process of its own: machines of 128
ranks, 10,000 samples behind a barrier; what collbench costs rank 0, without the time that messages take. The 256 ranks
are real, on the code of this clone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from installation import HERE, Installation, LaunchFailed, end_on_sigterm, installation
from machine import describe
from results import keep, table, verdict

RANKS, EACH, SAMPLES = (1_000, 10_000, 100_000), 128, 10_000
WORLDS = (("allreduce", False), ("alltoall", False), ("allgather", False), ("allreduce", True))
SECONDS = {10_000: 2.0, 100_000: 30.0}
PEAK, RECORD = 300e6, 20e3  # bytes, at 10,000 ranks

REAL, LIMIT = 256, 600.0  # ranks, s
SWEEP = ("allreduce", "-b", "8", "-e", "8", "-n", "20", "-T", "580s", "--style", "json")


def made_up(ranks: int, collective: str, containers: bool, samples: int = SAMPLES, each: int = EACH) -> dict[str, Any]:
    """A run of one case on rank 0 of a made-up world: seconds of its parts, bytes, and what the world was asked for."""
    from made_up_world import MadeUpSession, MadeUpWorld, made_up_facts

    from collbench import collectives
    from collbench.collectives.row import CollectiveCase
    from collbench.run import facts_of_ranks
    from collbench.run.experiment import does_not_fit
    from collbench.run.facts_of_ranks import facts_of_all
    from collbench.run.failures import Unwatched
    from collbench.run.measure import measure
    from collbench.run.sampling import agreed_method
    from collbench.schema.plan import Plan
    from collbench.schema.store import RunWriter

    row = collectives.get(collective)
    case = CollectiveCase(
        collective=collective, backend="fake", ranks=ranks, driver="python", thread_level="single",
        size=16 * ranks if row.split else 16, dtype="float32", op="sum" if row.reduces else None, root=None,
    )  # fmt: skip
    facts = made_up_facts(ranks, each, containers)
    world = MadeUpWorld(facts)
    session: Any = MadeUpSession(world)
    plan = Plan(collectives=(collective,), iters=samples, align="barrier")
    began = time.perf_counter()
    known = facts_of_all(world, facts[0])
    assert does_not_fit(session, known, (case,), Unwatched()) is None
    method = agreed_method(world, plan, known, simulated=False)
    manifest = facts_of_ranks.manifest(plan, (), (), session, known, method.align, method.cadence)
    started, start_calls, start_bytes = time.perf_counter(), world.calls.copy(), world.received
    record, matrix = measure(case, row, session, method, Unwatched())
    with tempfile.TemporaryDirectory() as folder, RunWriter(Path(folder) / "run", manifest) as writer:
        writer.append(record, matrix)
        ended = time.perf_counter()
        sizes = {path.name: path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}
    assert record.status == "ok" and matrix is not None, record.reason
    return {
        "start": started - began,
        "case": ended - started,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "record": sizes["records.jsonl"],
        "manifest": sizes["manifest.json"],
        "samples": next(size for name, size in sizes.items() if name.endswith(".npy")),
        "rows": len(matrix),
        "confinements": len(record.confinement),
        "start_calls": start_calls,
        "start_bytes": start_bytes,
        "calls": world.calls - start_calls,
        "bytes": world.received - start_bytes,
    }


def in_a_process(ranks: int, collective: str, containers: bool) -> dict[str, Any]:
    """`made_up` in a process of its own, for its peak memory."""
    argv = (sys.executable, __file__, "--made-up", json.dumps([ranks, collective, containers]))
    found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return found


def real(here: Installation) -> dict[str, Any]:
    """Whether 256 ranks finish a case, and in how many seconds."""
    began = time.perf_counter()
    try:
        argv = here.mpirun(REAL, here.collbench, *SWEEP, oversubscribe=True)
        (record,) = json.loads(here.run(argv, LIMIT, PYTHONPATH=str(HERE.parent / "src")))["records"]
    except LaunchFailed as failure:
        return {"seconds": time.perf_counter() - began, "outcome": str(failure)}
    right = record["status"] == "ok" and record["check"]["wrong"] == 0
    return {
        "seconds": time.perf_counter() - began,
        "outcome": "finished" if right else record["reason"],
        "ranks": record["ranks"],
    }


def row_of(found: dict[str, Any], ranks: int, collective: str, containers: bool) -> list[str]:
    """A line of the first table."""
    calls = sum(found["calls"].values())
    met = ranks not in SECONDS or found["case"] <= SECONDS[ranks]
    small = ranks != RANKS[1] or (found["peak"] <= PEAK and found["record"] <= RECORD)
    return [
        f"{ranks:,} {collective}{', a container each' if containers else ''}",
        f"{found['start']:.2f}",
        f"{found['case']:.2f}",
        f"{found['peak'] * 1e-6:.0f}",
        f"{found['record'] * 1e-3:.1f}",
        f"{found['samples'] * 1e-3:.0f}",
        f"{calls}",
        f"{found['bytes'] / ranks:.0f}",
        f"{found['start_bytes'] / ranks:.0f}",
        "" if ranks not in SECONDS else "met" if met and small else "missed",
    ]


HEAD = ("made-up ranks", "start s", "case s", "peak MB", "record kB", "samples kB", "collective calls",
        "bytes a rank", "at the start", "")  # fmt: skip


def page(data: dict[str, Any]) -> str:
    """Everything as tables."""
    targets = (
        f"Targets: with 10,000 ranks a case in {SECONDS[10_000]:g} s, {PEAK * 1e-6:.0f} MB at most, and a record of "
        f"{RECORD * 1e-3:.0f} kB; with 100,000 a case in {SECONDS[100_000]:g} s. `start`: facts, memory check and "
        f"manifest, once a run. `case`: one case of {SAMPLES:,} samples, checked twice, and written. `bytes a rank`: "
        "what rank 0 receives of each for a case, besides reductions."
    )
    rows = [row_of(one["found"], *one["asked"]) for one in data["made_up"]]
    text = f"# Scale\n\n{data['machine']}.\n\n{targets}\n\n{table(HEAD, rows)}"
    if not data["real"]:
        return text
    lines = [[name, f"{one['seconds']:.0f}", one["outcome"], verdict_of(one)] for name, one in data["real"].items()]
    return f"{text}\n## {REAL} real ranks: {' '.join(SWEEP)}\n\n{table(('', 'wall s', 'outcome', ''), lines)}"


def verdict_of(one: dict[str, Any]) -> str:
    return verdict(one["seconds"], LIMIT) if one["outcome"] == "finished" else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", dest="installations", metavar="DIR", type=installation, action="append", default=[],
                        help="a virtual environment with collbench and one MPI; repeat it for another MPI")  # fmt: skip
    parser.add_argument("--made-up", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    end_on_sigterm()
    if asked.made_up is not None:
        print(json.dumps(made_up(*json.loads(asked.made_up))))
        return
    worlds = [(ranks, *world) for ranks in RANKS for world in WORLDS]
    data: dict[str, Any] = {"machine": describe(), "real": {}}
    data["made_up"] = [{"asked": world, "found": in_a_process(*world)} for world in worlds]
    keep("scale", page(data), data)
    for here in asked.installations:
        data["real"][here.name] = real(here)
        keep("scale", page(data), data)


if __name__ == "__main__":
    main()
