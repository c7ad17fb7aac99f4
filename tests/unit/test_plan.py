from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collbench.errors import CollbenchError, PlanError
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.site import read_site
from collbench.schema.axes import MOST_SIZES, Sizes, sizes_in_bytes
from collbench.schema.plan import Plan, check_plan, load_plan


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plan_is_read(tmp_path: Path) -> None:
    text = """
        title = "two collectives"
        collectives = ["allreduce", "bcast"]
        drivers = ["native", "python"]
        roots = [0, 1]
        in_place = [false, true]
        iters = 30
        budget = 0.5
        timeout = "2m"
        [sizes]
        min = "8"
        max = 1024
        factor = 4
    """
    plan = load_plan(written(tmp_path, text))
    assert plan.collectives == ("allreduce", "bcast")
    assert plan["drivers"] == ("native", "python")
    assert sizes_in_bytes(plan["sizes"]) == (8, 32, 128, 512)
    assert (plan.iters, plan.budget_seconds, plan.timeout_seconds) == (30, 0.5, 120.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colectives = ['allreduce']", r"unknown key 'colectives'. Did you mean collectives\?"),
        ("collectives = ['bcast']\nsizes = { mim = 8 }", r"sizes: unknown key 'mim'. Did you mean min\?"),
        ("collectives = ['bcast']\nqqqq = 1", "unknown key 'qqqq'. There are: title, collectives"),
        ("collectives = 'bcast'", r'collectives: expected a list such as \["bcast"\]'),
        ("collectives = [1]", "str"),
        ("collectives = ['bcast']\niters = '5'", "iters: expected a whole number"),
        ("collectives = ['bcast']\niters = true", "iters: expected a whole number"),
        ("collectives = ['bcast']\niters = 1.5", "iters: expected a whole number"),
        ("collectives = ['bcast']\ndrivers = ['rust']", "rust"),
        ("collectives = ['bcast']\nthread_level = 'some'", "some"),
        ("collectives = ['bcast']\nsizes = { min = 1.5 }", "min"),
        ("collectives = ['bcast']\nsizes = 8", "sizes"),
        ("", "collectives"),
        ("collectives = [", "not TOML"),
        ("collectives = []", "collectives: the list is empty"),
        ("collectives = ['bcast']\nsizes = []", "sizes: the list is empty"),
        ("collectives = ['bcast']\ngate = 'door'", "gate 'door': choose one of auto, roundtime, barrier, none"),
        ("collectives = ['bcast']\ncadence = 'slow'", "cadence 'slow': choose one of isolated, streaming"),
        ("collectives = ['bcast']\nfloor = 9\ncap = 8", "cap 8: is below floor 9"),
        ("collectives = ['bcast']\nfloor = 0", "floor 0: must be at least 1"),
        ("collectives = ['bcast']\niters = 0", "iters 0: must be at least 1"),
        ("collectives = ['bcast']\nwarmup = -1", "warmup -1: must be at least 0"),
        ("collectives = ['bcast']\ncudagraph = -1", "cudagraph -1: must be at least 0"),
        ("collectives = ['bcast']\ncudagraph = 10000001", "cudagraph 10000001: at most 10,000,000"),
        ("collectives = ['bcast']\nops = []", "ops: the list is empty"),
        ("collectives = ['bcast']\nregistered = [1]", "registered: expected true or false"),
        ("collectives = ['bcast']\nalgorithm = ['Ring']", r"unknown key 'algorithm'. Did you mean algorithms\?"),
        ("collectives = ['bcast']\nbudget = 0", "longer than 0 s"),
        ("collectives = ['bcast']\ntimeout = '0s'", "longer than 0 s"),
        ("collectives = ['bcast']\nbudget = 'soon'", "'soon': not a duration"),
        ("collectives = ['bcast']\nsizes = ['8', 'x']", "size 'x'"),
        ("collectives = ['bcast']\nsizes = { min = 64, max = 8 }", "min 64 is above max 8"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CollbenchError, match=message) as refused:
        load_plan(written(tmp_path, text))
    assert refused.value.exit_code == 2
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("line", ["budget = 'inf'", "floor = 0", "sizes = ['8Q']", "sizes = { min = '9', max = '8' }"])
def test_a_bad_value_is_reported_with_the_file(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"collectives = ['bcast']\n{line}\n")
    with pytest.raises(PlanError, match=rf"plan {path}: {line.split()[0][:4]}"):
        load_plan(path)


def test_a_byte_order_mark_is_no_part_of_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xef\xbb\xbfcollectives = ['bcast']\n")
    assert load_plan(path).collectives == ("bcast",)


def test_a_plan_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="not TOML"):
        load_plan(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(min="8", max="64"), (8, 16, 32, 64)),
        (Sizes(min="8", max="100", factor=3), (8, 24, 72)),
        (Sizes(min="1K", max="2K", step="512"), (1024, 1536, 2048)),
        (Sizes(min=0, max=4), (0, 1, 2, 4)),
        (Sizes(min=0, max=10, step=5), (0, 5, 10)),
        (Sizes(min=7, max=7, factor=0), (7,)),
    ],
)
def test_sweeps(sizes: Sizes, expected: tuple[int, ...]) -> None:
    assert sizes.expand() == expected


def test_a_list_of_sizes_keeps_its_order() -> None:
    assert sizes_in_bytes(("1K", 8, "1M")) == (1024, 8, 1 << 20)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (Sizes(min=64, max=8), "Swap them"),
        (Sizes(min=8, max=64, factor=1), "factor 1 never reaches max"),
        (Sizes(min=8, max=64, step=0), "step must be at least 1"),
        (Sizes(min=0, max=MOST_SIZES, step=1), f"more than {MOST_SIZES} sizes"),
        (Sizes(min=0, max="1T", step=1), f"more than {MOST_SIZES} sizes"),
    ],
)
def test_sweeps_that_never_end_are_refused(sizes: Sizes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sizes.expand()


def test_the_longest_sweep_is_allowed() -> None:
    assert len(Sizes(min=1, max=MOST_SIZES, step=1).expand()) == MOST_SIZES


def test_a_plan_that_makes_sense_passes() -> None:
    plan = Plan(collectives=("bcast",))
    assert check_plan(plan) is plan


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [("algorithms", "foo", "Ring"), ("algorithms", "Ring,Treee", "Tree"), ("protocols", "allreduce:LL12", "LL128")],
)
def test_what_nccl_does_not_know_is_refused(key: str, value: str, known: str) -> None:
    with pytest.raises(PlanError, match=f"{key} .*NCCL has no .*{known}"):
        check_plan(msgspec.structs.replace(Plan(collectives=("allreduce",)), **{key: (value,)}))


@pytest.mark.parametrize("value", ["", "ring", "^NVLS", "allreduce:Tree,Ring;broadcast:Ring", "PAT"])
def test_what_nccl_knows_is_taken(value: str) -> None:
    check_plan(Plan(collectives=("allreduce",), algorithms=(value,)))


@pytest.mark.parametrize(
    ("text", "why"),
    [("title = " + "[" * 100_000, "deeply"), ("a." * 50_000 + "b = 1", "dots"), ("# a plan\n" * 120_000, "MiB"),
     (f"iters = {'9' * 5000}", "digits"), ("title = '\udcff'", "utf-8")],
)  # fmt: skip
def test_a_file_that_no_hand_wrote(tmp_path: Path, text: str, why: str) -> None:
    """Deep, of many parts (tomllib takes time by their square), long, with a number that Python does not read."""
    path = tmp_path / "file.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(PlanError, match=why):
        load_plan(path)
    with pytest.raises(PlanError, match=why):
        read_site(str(path), "slurm", SlurmSite)


@pytest.mark.parametrize("name", ["plan.toml", "plan.json"])
def test_a_plan_that_is_nested_too_deep(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"title = {'[' * 100_000}" if path.suffix == ".toml" else '{"title":' + "[" * 100_000)
    with pytest.raises(PlanError, match=f"plan {path}: not {path.suffix[1:].upper()}: ") as error:
        load_plan(path)
    assert len(str(error.value).splitlines()) == 1
