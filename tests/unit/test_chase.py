"""chase: its cycle, its check, its sizes, and a time that is shown as that of one access."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.made_programs import PLAN as STREAM
from tests.unit.made_programs import replace_benchmark, run_row

from collbench import workloads
from collbench.report.numbers import Units, each_of
from collbench.report.page import figures
from collbench.run.cases import program_cases
from collbench.schema.plan import Plan
from collbench.schema.record import Work
from collbench.units import parse_size
from collbench.workloads.host import chase
from collbench.workloads.host.memory import private

WORKLOAD = workloads.get("chase")
built = pytest.mark.skipif(WORKLOAD.needs() is not None, reason=WORKLOAD.needs() or "")


@built
@pytest.mark.parametrize(("size", "line"), [(128, 64), (4096, 64), (64 * 1001, 64), (1 << 20, 256), (40, 8)])
def test_the_cycle_visits_every_line_once(size: int, line: int) -> None:
    from collbench.workloads import _chase

    buffer, n = private(size), size // line
    _chase.link(buffer, line, chase.SEED)
    places = [0]
    for _ in range(n):
        ns, place = _chase.chase(buffer, line, places[-1], 1)
        assert ns > 0
        places.append(place)
    assert places[-1] == 0 and sorted(places[:-1]) == list(range(n))
    assert _chase.lap(buffer, line) == (n, n * (n - 1) // 2)
    assert _chase.chase(buffer, line, 0, 3 * n + 1)[1] == places[1]
    near = sum(abs(one - other) == 1 for one, other in pairwise(places))
    assert n < 1000 or near < n / 100  # a random cycle has two of them


@built
def test_the_same_seed_makes_the_same_cycle() -> None:
    from collbench.workloads import _chase

    def places(seed: int) -> list[int]:
        buffer = private(4096)
        _chase.link(buffer, 64, seed)
        return [_chase.chase(buffer, 64, 0, loads)[1] for loads in range(64)]

    assert places(1) == places(1) != places(2)


@built
def test_a_cycle_that_misses_lines_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.workloads import _chase

    monkeypatch.setattr(chase, "LOADS", 1000)
    assert chase.run(4096, 64, 3)["wrong"] == 0
    link, jump = _chase.link, _chase.chase

    def with_a_short_cut(buffer: Any, line: int, seed: int) -> None:
        link(buffer, line, seed)
        second = jump(buffer, line, 0, 2)[1]
        buffer[:8] = buffer[line * jump(buffer, line, 0, 1)[1] :][:8]
        assert jump(buffer, line, 0, 1)[1] == second

    monkeypatch.setattr(_chase, "link", with_a_short_cut)
    assert chase.run(4096, 64, 3)["wrong"] >= 2  # a line, and the sum
    monkeypatch.setattr(_chase, "link", link)
    monkeypatch.setattr(_chase, "chase", lambda buffer, line, place, loads: jump(buffer, line, place, loads - 1))
    assert chase.run(4096, 64, 3)["wrong"] == 1


@built
def test_lines_that_hold_no_address_and_places_that_are_not_there_are_refused() -> None:
    from collbench.workloads import _chase

    for size, line in ((4096, 12), (4096, 0), (32, 64)):
        with pytest.raises(ValueError, match="line"):
            _chase.link(bytearray(size), line, 1)
    with pytest.raises(ValueError, match="place"):
        _chase.chase(private(4096), 64, 64, 1)


@built
def test_a_record_has_the_loads_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace_benchmark(STREAM, {"name": "chase", "size": 4096})
    ((record, samples),) = run_row(monkeypatch, WORKLOAD, plan)
    assert (record.status, record.work) == ("ok", Work(amount=chase.LOADS, unit="accesses", shown="time"))
    assert samples.shape == (1, 3) and samples.min() > chase.LOADS // 10  # no load takes less than 0.1 ns
    assert record.check is not None and record.check.wrong == 0


@pytest.mark.parametrize(("size", "line"), [(64, 64), (4100, 64), (4092, 12), (0, 64)])
def test_sizes_without_whole_lines_are_refused(size: int, line: int) -> None:
    from collbench.errors import PlanError

    with pytest.raises(PlanError):
        program_cases(Plan(benchmarks=({"name": "chase", "size": size, "line": line},)), 1)


@pytest.mark.parametrize(
    ("largest", "last"), [("128M", ("64M", "128M")), ("1506M", ("1G", "1506M")), ("1M", ("256K", "1M"))]
)
def test_sizes_rise_to_what_no_cache_holds(largest: str, last: tuple[str, ...]) -> None:
    sizes = chase.usual_sizes(largest)
    assert (sizes[0], sizes[-2:]) == ("4K", last)
    assert all(parse_size(size) < parse_size(following) for size, following in pairwise(sizes))


def test_a_time_is_that_of_one_access_in_ns() -> None:
    work = Work(amount=1000, unit="accesses", shown="time")
    rows = [(work, 1.25e-6), (work, 1.2e-4)]
    assert Units(rows).times("time", rows) == {"time (ns an access)": ["1.250", "120.0"]}
    assert each_of([Work(amount=1, unit="requests")]) == " a request"


def test_a_curve_is_of_the_time_of_one_access() -> None:
    work = Work(amount=1000, unit="accesses", shown="time")
    cells = {size: {0: SimpleNamespace(medians=(size * 1e-6,), half_step=0.0, work=work)} for size in (4, 8)}
    question: Any = SimpleNamespace(sizes=(4, 8), cells=cells)
    option: Any = 0
    assert [time for _, time, _ in figures._times(question, option)] == pytest.approx([4e-9, 8e-9])
