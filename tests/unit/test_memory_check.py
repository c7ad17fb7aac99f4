"""Whether the buffers of all ranks fit into their machines, before anything is measured."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.made_measurements import Change, Heard, case, on_ranks, preparing
from tests.unit.made_pairs import Pair
from tests.unit.test_case import CASE

from collbench.bindings.operations import USABLE_SHARE
from collbench.bindings.spec import Operation, WorldSettings
from collbench.collectives.case import CollectiveCase
from collbench.errors import DoesNotFit, LibraryError, Unsupported
from collbench.machine import cgroup
from collbench.machine.facts import rank_facts
from collbench.run import experiment, facts_of_ranks
from collbench.run.expand import program_cases
from collbench.run.experiment import does_not_fit, perform, plan_experiment, programs_do_not_fit
from collbench.run.failures import Unwatched
from collbench.schema.plan import Plan

HERE = replace(rank_facts(), kernel_id="here", host="node")
CASES = tuple(msgspec.structs.replace(CASE, size=size) for size in (8, 64))
NEED = 1000


def refused(monkeypatch: pytest.MonkeyPatch, *reports: tuple[str, int | None]) -> str:
    """What rank 0 says where all ranks need 1000 bytes; `reports` are machine and free bytes of each rank."""
    monkeypatch.setattr(experiment, "_needed_bytes", lambda session, case, size, watch: NEED * (size == 64))
    monkeypatch.setattr(experiment, "available_bytes", lambda: reports[0][1])

    def gather(mine: Any) -> list[Any]:
        return [mine, *((NEED, left) for _, left in reports[1:])]

    session: Any = SimpleNamespace(world=SimpleNamespace(rank=0, gather=gather, bcast=lambda value: value))
    ranks = tuple(replace(HERE, kernel_id=machine, host=f"node-{machine}") for machine, _ in reports)
    return str(does_not_fit(session, ranks, CASES, Unwatched()) or "")


ENOUGH = int(2 * NEED / USABLE_SHARE)


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ((("here", ENOUGH + 2), ("here", ENOUGH + 2)), ""),
        ((("here", ENOUGH - 2), ("here", ENOUGH + 2)), "size 64 B: the buffers of 2 ranks on node-here need"),
        ((("here", None), ("here", ENOUGH - 2)), "size 64 B: the buffers of 2 ranks on node-here need"),
        ((("here", None), ("here", None)), ""),
        ((("here", ENOUGH - 2), ("there", ENOUGH - 2)), ""),
        ((("here", ENOUGH), ("there", ENOUGH - 2), ("there", ENOUGH)), "the buffers of 2 ranks on node-there need"),
    ],
)
def test_the_ranks_of_a_machine_share_what_the_least_of_them_sees(
    monkeypatch: pytest.MonkeyPatch, reports: tuple[tuple[str, int | None], ...], said: str
) -> None:
    found = refused(monkeypatch, *reports)
    assert found.startswith(said) if said.startswith("size") else said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (3 << 20, "stream size=1M arrays=any: needs 3.00 MiB of memory, and 3.00 MiB are free. Lower the sizes."),
        (4 << 20, None),
        (None, None),
    ],
)
def test_a_program_has_to_fit_into_the_limit_of_its_container(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, said: str | None
) -> None:
    monkeypatch.setattr(cgroup, "memory_left", lambda: limit)
    refused = programs_do_not_fit(
        program_cases(Plan(benchmarks=({"name": "stream", "arrays": "any", "size": ("8", "1M")},)), 1)
    )
    assert (None if refused is None else str(refused)) == said


@pytest.mark.parametrize(
    ("benchmark", "needed"),
    [
        ({"name": "dd", "bs": "1M", "count": 100}, 100 << 20),
        ({"name": "fio", "size": ["4k", "100M"]}, 100 << 20),
        ({"name": "sysbench_fileio", "size": "100M"}, 100 << 20),
        ({"name": "sysbench_memory", "size": "100M"}, 0),
        ({"name": "ioping"}, 0),
    ],
)
@pytest.mark.parametrize("blocks", [1000, 0])
def test_files_have_to_fit_into_what_is_free_in_their_folder(
    monkeypatch: pytest.MonkeyPatch, benchmark: dict[str, Any], needed: int, blocks: int
) -> None:
    """A file system without blocks does not tell what is free."""
    monkeypatch.setattr(experiment, "_missing", lambda case: None)
    cases, enough = program_cases(Plan(benchmarks=(benchmark,)), 1), int(needed / USABLE_SHARE) + 1
    for free, fits in ((enough, True), (max(enough - 2, 0), needed == 0 or blocks == 0)):
        disk = SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=1)
        monkeypatch.setattr("os.statvfs", lambda folder, disk=disk: disk)
        refused = programs_do_not_fit(cases, folder="/data")
        assert (refused is None) == fits
        assert refused is None or ("100.00 MiB" in str(refused) and "/data" in str(refused))


@pytest.mark.parametrize(
    ("here", "ranks", "room", "said"),
    [
        (2, 2, 2, ""),
        (2, 2, 1, "ddp network=resnet50 batch=1048576 .*: needs .* TiB of memory for the 2 ranks on this machine, and "
                  r".* are free\. Lower the batch or the number of ranks\."),
        (1, 2, 1, ""),
        (1, 1, 0.9, r"needs .* TiB of memory, and .* are free\. Lower the batch\."),
    ],
)  # fmt: skip
def test_the_ranks_of_a_training_have_to_fit_into_their_machine(
    monkeypatch: pytest.MonkeyPatch, here: int, ranks: int, room: float, said: str
) -> None:
    monkeypatch.setattr(experiment, "_missing", lambda case: None)
    asked = {"name": "ddp", "network": "resnet50", "batch": 1 << 20}
    cases = program_cases(Plan(benchmarks=(asked,)), ranks)
    one = cases[0].memory / ranks
    monkeypatch.setattr(experiment, "available_bytes", lambda: room * one / USABLE_SHARE + 1)
    refused = programs_do_not_fit(cases, here)
    assert (refused is not None) == bool(said)
    assert re.search(said, str(refused))


@pytest.mark.parametrize(("machines", "here"), [("aab", 2), ("abb", 1), ("aaa", 3)])
def test_ranks_on_other_machines_need_none_of_this_one(
    monkeypatch: pytest.MonkeyPatch, machines: str, here: int
) -> None:
    monkeypatch.setattr(facts_of_ranks, "machine_id", lambda: "a")
    world: Any = SimpleNamespace(rank=0, size=3, bcast=lambda value: value)
    facts = tuple(replace(HERE, kernel_id=machine) for machine in machines)
    assert facts_of_ranks.ranks_here(world, facts) == here


def test_a_run_whose_program_does_not_fit_starts_none() -> None:
    plan = plan_experiment(
        Plan(benchmarks=({"name": "stream", "arrays": "any", "size": "4096T"},), iters=1), WorldSettings(), ()
    )
    with pytest.raises(DoesNotFit, match=r"stream size=4096T arrays=any: needs 12288\.00 TiB of memory"):
        perform(plan, cast("Any", None))


@pytest.mark.parametrize(
    ("machines", "hosts", "said"),
    [
        ("aab", "xyz", "1 ranks on z need 4.88 KiB"),
        ("bba", "xyz", "2 ranks on x need 9.77 KiB"),
        ("abb", "xyz", "2 ranks on y need 9.77 KiB"),
        ("baa", "xyz", "1 ranks on x need 4.88 KiB"),
        ("bab", "xyz", "2 ranks on x need 9.77 KiB"),
    ],
)
def test_the_machine_that_is_too_small_is_named(
    monkeypatch: pytest.MonkeyPatch, machines: str, hosts: str, said: str
) -> None:
    """There is room on machine `a`, and none on `b`; each rank is in a container with a hostname of its own."""
    monkeypatch.setattr(experiment, "available_bytes", lambda: 4096)
    facts = tuple(replace(HERE, kernel_id=one, host=host) for one, host in zip(machines, hosts, strict=True))
    counts: list[int] = []

    def gather(mine: Any) -> list[Any]:
        assert mine == (64, 4096)
        return [(5000, 4096 if one == "b" else 1 << 30) for one in machines]

    def prepare(case: CollectiveCase, row: Any, count: int) -> Any:
        counts.append(count)
        return SimpleNamespace(blocks_held=1)

    world: Any = Pair()  # on which nothing fails when the case is tried
    world.gather = gather
    session: Any = SimpleNamespace(world=world, prepare=prepare)
    assert str(does_not_fit(session, facts, (case(size=64),), Unwatched())) == (
        f"size 64 B: the buffers of {said}, and 4.00 KiB are free. Lower the sizes or the ranks per host."
    )
    assert counts == [1], "to see what is held a block of one element is enough"


# What a rank needs ---------------------------------------------------------------------------------------------------


def tried(
    monkeypatch: pytest.MonkeyPatch, free: int, *cases: CollectiveCase, watch: Unwatched | None = None,
    change: Change = lambda session: None,
) -> str:  # fmt: skip
    """What all ranks of the fake backend find on one machine with so much memory."""
    monkeypatch.setattr(experiment, "available_bytes", lambda: free)

    def body(session: Any) -> str:
        change(session)
        facts = (rank_facts(),) * session.world.size if session.world.rank == 0 else ()
        return str(does_not_fit(session, facts, cases, watch or Unwatched()) or "")

    found = set(on_ranks(2, body))
    assert len(found) == 1, "the same on all ranks of a machine"
    return found.pop()


#: Of a broadcast the root holds what it sends beside what it receives: three blocks of 1000 elements of 4 bytes.
BLOCKS = 3 * 4000


def room_for(needed: int) -> int:
    """The least that must be free."""
    return next(free for free in range(needed, 2 * needed) if free * USABLE_SHARE >= needed)


def test_the_buffers_of_all_ranks_are_counted_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    free = room_for(BLOCKS)
    assert tried(monkeypatch, free, case(size=4000)) == ""
    assert "need 11.72 KiB, and " in tried(monkeypatch, free - 1, case(size=4000))
    assert tried(monkeypatch, free, case(size=8000, dtype="float64")) != ""
    assert tried(monkeypatch, free, case(size=4000, dtype="float64")) == ""


def test_the_largest_of_all_cases_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of one kind are tried once; kinds that differ in anything else are tried each."""
    watch = Heard()
    small, large = case(size=8), case(size=4000)
    assert tried(monkeypatch, room_for(BLOCKS), small, large, small, watch=watch) == ""
    assert watch.said == ["trying bcast on fake with one element"] * 2, "once on each rank"
    for cases in ((small, large, case("barrier")), (case("barrier"), large, small)):
        assert tried(monkeypatch, room_for(BLOCKS) - 1, *cases).startswith("size 3.91 KiB: the buffers of 2 ranks")


@pytest.mark.parametrize("asked", [case("ps_bcast", ranks=1, size=4000), case("ps_gather", size=4000, in_place=True)])
def test_what_will_be_skipped_needs_nothing(monkeypatch: pytest.MonkeyPatch, asked: CollectiveCase) -> None:
    assert tried(monkeypatch, 1, asked) == ""
    assert tried(monkeypatch, 1, msgspec.structs.replace(asked, ranks=2, in_place=False)) != ""


@pytest.mark.parametrize("error", [Unsupported("no"), LibraryError("error 5"), MemoryError()])
def test_what_cannot_be_prepared_says_so_in_its_record(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(rank: int, operation: Operation) -> Operation:
        raise error

    assert tried(monkeypatch, 1, case(size=4000), change=preparing(refuse)) == ""


def test_in_place_needs_the_larger_buffer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for in_place, blocks in ((True, 2), (False, 4)):
        asked = case("allreduce", size=4000, in_place=in_place)
        free = room_for(blocks * 4000)
        assert tried(monkeypatch, free, asked) == ""
        assert tried(monkeypatch, free - 1, asked) != ""
