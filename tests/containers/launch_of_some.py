"""A plan of two blocks in which launches measure some of their cases; prints what each has records of, as JSON."""

from __future__ import annotations

import json
import sys

from collbench.launch.campaign import prepare, run_campaign
from collbench.launch.cells import LaunchCell, LaunchPart
from collbench.schema.case import Case
from collbench.schema.plan import Plan
from tests.unit.made_worlds import Heard


def main(image: str) -> None:
    plan = Plan(
        collectives=("allreduce",), sizes=("8", "16", "32", "64"), images=(image,), policies=("host", "single"),
        isolation=("strict",), launches=2, iters=5, align="barrier",
        environments={image: ".venvs/openmpi"},
    )  # fmt: skip
    prepared = prepare(plan, lambda: None)
    host, single = prepared.expanded.cells

    def some(cell: LaunchCell, *sizes: int) -> frozenset[Case]:
        return frozenset(case for case in prepared.expanded.expected[cell] if case["size"] in sizes)

    first = {
        host: LaunchPart(some(host, 64, 16), some(host, 32)),
        single: LaunchPart(some(single, 32, 16), some(single, 64)),
    }
    blocks = [first, {single: LaunchPart(some(single, 8))}]
    heard = Heard()
    run_campaign(prepared, heard, frozenset(), {}, lambda: None, lambda block: blocks[block])
    found = [[one.launch, one.case.where.policy, one.case["size"], one.status] for one in heard.records]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
