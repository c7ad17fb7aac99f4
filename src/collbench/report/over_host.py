"""The ratio of a cell to the one on the host, as in tables of a run: of the launches that were measured alike."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.alike import alike
from collbench.analysis.contended import undisturbed
from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell
from collbench.analysis.pair import Pair
from collbench.analysis.sequential import ratio_in_blocks_of
from collbench.report.cells import image_and_place, interval


class OverHost:
    """Ratios as texts, and what the table must say of them: cells that have none, and launches that do not count."""

    def __init__(self) -> None:
        self._refused: dict[str, dict[str, None]] = {}
        self._left_out = 0
        self._few = False

    def __call__(self, cell: Cell, host: Cell) -> str:
        """`1.72 (1.65 .. 1.80)`: the time over that of the host, in blocks that both have; empty without one."""
        pair, _ = undisturbed(Pair(host, cell, "host", cell.case.where.policy), in_blocks=True)
        both = alike(pair, in_blocks=True)
        if both.refused:
            self._refused.setdefault(both.refused, {})[image_and_place(cell)] = None
            return ""
        self._left_out += both.left_out
        times = [
            (time, of_host) for time, of_host in zip(both.other, both.base, strict=True) if time > 0.0 and of_host > 0.0
        ]
        if not times:
            return ""
        steps, estimated = (cell.half_step, host.half_step), ratio_in_blocks_of(cell)
        ratio = estimated([time for time, _ in times], [of_host for _, of_host in times], half_steps=steps)
        self._few |= ratio.interval is None
        return f"{ratio.value:.2f}{interval(ratio.interval, '{:.2f}'.format)}"

    def notes(self, cells: Sequence[Cell]) -> list[str]:
        """What a ratio is, and where there is none although both sides were measured; `cells`: the table's."""
        if len({cell.case.where.on_host for cell in cells if cell.medians}) < 2:
            return []
        hint = f"; an interval needs {FEWEST} blocks" if self._few else ""
        quiet = " in which no task waited for a CPU" if any(cell.disturbed for cell in cells) else ""
        lines = [f"over the host: the median of the ratios within each block of launches{quiet}{hint}"]
        lines += [f"not over the host ({', '.join(places)}), because it was measured differently: {why}"
                  for why, places in self._refused.items()]  # fmt: skip
        if self._left_out:
            lines.append(f"over the host: launches left out, because they were measured differently: {self._left_out}")
        return lines
