"""Workloads of other packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit import made_packages

from collbench import workloads
from collbench.errors import PlanError
from collbench.run.cases import program_cases
from collbench.schema.plan import Plan

#: The example of the manual: a module, then a plan, then its entry point.
CHAPTER = made_packages.EXTENDING.split("\n## A workload\n")[1].split("\n## ")[0]
MODULE = re.findall(r"^```python\n(.*?)^```", CHAPTER, re.MULTILINE | re.DOTALL)[0]

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with made_packages.shown(tmp_path, "site_zeros", MODULE, workloads) as show:
        yield show


def test_a_package_adds_a_workload(install: Install) -> None:
    install(zeros="site_zeros:WORKLOAD")
    assert "zeros" in workloads.names()
    cases = program_cases(Plan(benchmarks=({"name": "zeros", "block": (4096, 65536)},)), 1)
    assert [case.case["block"] for case in cases] == [4096, 65536]


@pytest.mark.parametrize(
    ("name", "value"), [("other", "site_zeros:WORKLOAD"), ("zeros", "site_zeros:verify"), ("zeros", "site_zeros:none")]
)
def test_what_is_no_workload_is_refused_where_it_is_named(install: Install, name: str, value: str) -> None:
    install(**{name: value})
    with pytest.raises(PlanError, match=name):
        workloads.get(name)
    assert workloads.get("stream").name == "stream"
    assert "site_zeros" in str(workloads.missing(name))


def test_names_of_ours_cannot_be_taken(install: Install) -> None:
    install(stream="site_zeros:WORKLOAD")
    assert workloads.get("stream").name == "stream"
