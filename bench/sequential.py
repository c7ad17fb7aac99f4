"""What launching until decided saves, and how often it errs: made-up launches that are looked at after every block.

    python bench/sequential.py [--questions 200] [--seed 1]

A question is launched until all of its sizes are decided or given up, 20 blocks at most. Needs NumPy, SciPy and
collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from coverage import NOISES, Logs
from results import keep, table

from collbench.analysis.arrangements import ALPHA
from collbench.analysis.compare import MARGIN, Verdict, verdict_on
from collbench.analysis.deciding import LEAST_CHANCE, chance_of_verdict
from collbench.analysis.estimate import FEWEST
from collbench.analysis.sequential import ratio_at_any_time

MOST, SIZES, ADDED = 20, (1, 4, 8), (0.0, 0.1, 0.5)


def looked(logs: Logs) -> tuple[list[list[Verdict]], int]:
    """The verdicts on [sides, blocks, sizes] after every block from the sixth on, and the blocks that were measured."""
    times, sizes = np.exp(logs), logs.shape[2]
    found: list[list[Verdict]] = []
    for blocks in range(FEWEST, MOST + 1):
        verdicts, open_ = list[Verdict](), False
        for size in range(sizes):
            base, other = times[:, :blocks, size]
            ratio = ratio_at_any_time(other, base, 1 - ALPHA / sizes)
            verdicts.append("unclear" if ratio.interval is None else verdict_on(ratio, MARGIN))
            if verdicts[-1] == "unclear":
                logs_of = (np.log(other) - np.log(base)).tolist()
                open_ |= chance_of_verdict(logs_of, MOST - blocks, MARGIN, sizes) >= LEAST_CHANCE
        found.append(verdicts)
        if not open_:
            return found, blocks
    return found, MOST


def row(name: str, sizes: int, added: float, questions: int, seed: int) -> dict[str, Any]:
    """Of questions: those that ever said anything false, the share of sizes with a verdict, and of blocks used."""
    draw, made = np.random.default_rng(seed), NOISES[name][1]
    wrong, decided, used = [], [], []
    for _ in range(questions):
        logs = made(draw, MOST, sizes)
        logs[1] += np.log1p(added)
        found, blocks = looked(logs)
        lies = {"slower", "faster"} if not added else {"faster", "same"} if added > MARGIN else set()
        wrong.append(any(verdict in lies for verdicts in found for verdict in verdicts))
        decided.append(np.mean([verdict != "unclear" for verdict in found[-1]]))
        used.append(blocks / MOST)
    return {"noise": name, "sizes": sizes, "added": added, "wrong": float(np.mean(wrong)),
            "decided": float(np.mean(decided)), "used": float(np.mean(used))}  # fmt: skip


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """One table."""
    lines = [[one["noise"], str(one["sizes"]), f"+{one['added']:.0%}",
              *(f"{one[key] * 100:.1f}" for key in ("wrong", "decided", "used"))] for one in rows]  # fmt: skip
    heads = ("noise", "sizes", "difference", "ever false", "decided", "blocks used")
    return (f"# Launching until decided\n\nOf {questions} questions, margin {MARGIN:.0%}, in per cent: those that said "
            "anything false after any block; sizes with a verdict when the launches ended; and blocks that were used "
            f"of {MOST}.\n\n{table(heads, lines)}")  # fmt: skip


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200, help="of each combination [200]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows = [row(name, sizes, added, asked.questions, asked.seed)
            for name, (half, _) in NOISES.items() if half != "apart" for sizes in SIZES for added in ADDED]  # fmt: skip
    keep("sequential", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
