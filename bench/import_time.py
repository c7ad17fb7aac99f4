"""Reads what `python -X importtime` prints: which package an import was made for, and what it took."""

from __future__ import annotations

import re

#: What a rank imports; `python` is the interpreter's own start.
PACKAGES = ("python", "numpy", "mpi4py", "click", "msgspec", "tabulate", "tqdm", "ml_dtypes", "collbench")

_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| ( *)([\w.]+)$", re.MULTILINE)


def times_of(text: str) -> dict[str, tuple[float, float]]:
    """Seconds by package: of its own modules, and of standard modules that were first imported on its behalf.

    Python prints a module after the modules that it imports, two spaces deeper each; read backwards, importers come
    first.
    """
    own, others = dict.fromkeys(PACKAGES, 0.0), dict.fromkeys(PACKAGES, 0.0)
    importers: list[str] = []
    for microseconds, indent, module in reversed(_LINE.findall(text)):
        depth = len(indent) // 2
        package = module.partition(".")[0]
        del importers[depth:]
        responsible = package if package in PACKAGES else importers[-1] if importers else "python"
        importers.append(responsible)
        (own if package == responsible else others)[responsible] += int(microseconds) * 1e-6
    return {package: (own[package], others[package]) for package in PACKAGES}
