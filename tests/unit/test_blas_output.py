"""What linpack and dgemm print: read where it is whole, refused where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.made_programs import PLAN, printing, replace_benchmark, run_row
from tests.unit.test_blas import case_of, stored

from collbench import workloads

OUTPUTS = Path(__file__).parents[1] / "data" / "outputs"
LIBRARIES = ("openblas", "mkl", "system")
NAMES = ("linpack", "dgemm")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_stored_output_is_read(name: str, library: str) -> None:
    row, text = workloads.get(name), stored(name, library)
    case, document = case_of(name, blas=library), json.loads(text)
    assert row.verify(case, text) == 0
    assert row.parse(text) == {row.measures[0].name: [ns * 1e-9 for ns in document["ns"]]}
    assert list(row.figures(case, text).values()) == [max(document["figures"])]
    kernel = {"openblas": "OpenBLAS 0.3.34.481.3, kernel SkylakeX", "mkl": "MKL 2024.2",
              "system": "OpenBLAS 0.3.21, kernel Cooperlake"}[library]  # fmt: skip
    assert row.notes(text) == (f"{kernel}, 2 threads",)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_that_is_too_large_or_none_fails_the_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    document = json.loads(stored(name))
    for value in (17.0, float("nan"), float("inf")):
        text = json.dumps(document | {"figures": [document["figures"][0], value, value]})
        row = workloads.get(name)
        assert row.verify(case_of(name), text) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["", "cut", "no key", "old"])
def test_a_damaged_output_fails_the_case(monkeypatch: pytest.MonkeyPatch, name: str, damage: str) -> None:
    from dataclasses import replace

    text = stored(name)
    text = {"": "", "cut": text[:60], "no key": text.replace('"ns"', '"us"'),
            "old": text.replace('"figures"', '"residuals"')}[damage]  # fmt: skip
    row = replace(workloads.get(name), argv=printing(text), alternatives=None)
    ((record, _),) = run_row(monkeypatch, row, replace_benchmark(PLAN, {"name": name, "n": 200}))
    assert record.status == "failed" and str(record.reason).startswith(f"cannot read the output of {name} (")
