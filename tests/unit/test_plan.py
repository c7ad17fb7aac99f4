"""Plans: keys, values that are wrong, and what a launch gives to its world."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.test_experiment import OPTIONS, Begun, MadeBackend, carried_out, made, outcomes, plan

from collbench.bindings.spec import Roles
from collbench.cli.plan import undecidable
from collbench.errors import CollbenchError, PlanError
from collbench.launch.engines.slurm.script import SlurmSite
from collbench.launch.engines.spec import read_site
from collbench.launch.expansion import expand
from collbench.machine.facts import Core, Topology
from collbench.run.experiment import plan_experiment
from collbench.run.measure import measure
from collbench.run.sampling import Method, StopRule
from collbench.schema.axes import MOST_SIZES, Sizes, sizes_in_bytes
from collbench.schema.plan import Plan, check_plan, load_launch_plan, load_plan

__all__ = ["made"]  # fixtures


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
    assert check_plan(plan) is plan


#: Lines of a plan for one world, which has a collective.
LINES = (
    "qqqq = 1", "sizes = { mim = 8 }", "algorithm = ['Ring']", "only = ['0123456789ab']",
    # the type of a value
    "ops = 'sum'", "iters = '20'", "iters = 1.5", "iters = [1]", "iters = true", "iters = 2026-11-22", "budget = []",
    "share_gpu = 1", "registration = 1", "registration = [1]", "registration = ['window']",
    "drivers = 'rust'", "drivers = ['rust']",
    "staging = ['both']", "staging = [1]", "unusable = 'maybe'", "thread_level = 'some'", "benchmarks = 1",
    "benchmarks = [1]", "[[benchmarks]]\nn = [[]]", "sizes = 8", "sizes = [1.5]", "sizes = { min = 1.5 }",
    f"iters = '{'9' * 80}'",
    # the value itself
    "sizes = []", "ops = []", "align = 'door'", "cadence = 'slow'", "floor = 9\ncap = 8", "floor = 0", "iters = 0",
    "warmup = -1", "cudagraph = -1", "cudagraph = 10000001", "budget = 0", "timeout = '0s'", "budget = 'soon'",
    "budget = 'inf'", "sizes = ['8', 'x']", "sizes = ['8Q']", "sizes = { min = 64, max = 8 }",
    "sizes = { min = 8, max = 64, factor = 1 }", "sizes = { min = 8, max = 64, step = 0 }",
    f"sizes = {{ min = 0, max = {MOST_SIZES}, step = 1 }}", "sizes = { min = 0, max = '1T', step = 1 }",
    "algorithms = ['foo']", "algorithms = ['Ring,Treee']", "protocols = ['allreduce:LL12']",
)  # fmt: skip

#: Whole plans for one world.
WORLDS = ("", "colectives = ['allreduce']", "collectives = 'bcast'", "collectives = [1]", "collectives = []")

#: Under the three default policies.
MANY = [f"site/i{number}" for number in range(400)]

#: Lines of a launch plan with a collective, whose image is openmpi where they name none.
LAUNCHES = (
    "cores_per_rank = 'all'", "affinity = ['middle']", "environments = { openmpi = 1 }",
    "image_backends = { openmpi = 'mpi' }", "policy = ['single']", "policies = ['packed:0']",
    "policies = ['single; x']", "policies = ['multi/far']", "images = ['a; rm -rf /']", "images = ['$(touch x)']",
    "images = ['-v/:/host']", "images = ['localhost:x/openmpi']", "images = []", "ranks = [0]",
    "workers = [2]\nranks = [2]", "servers = [2]", "workers = [2]\nservers = [256]", "spare = 'all'",
    "workers = [2]\nroots = [1]", "workers = [256]", "cores_per_rank = 0",
    "image_backends = { torch = ['torch-gloo'] }", "launches = 0",
    f"ranks = {[*range(1, 251)]}\nimages = {MANY}", f"launches = 1000\nimages = {MANY}",
    "environments = { mpich = 'x' }",
)  # fmt: skip

#: Launch plans that name no images.
WITHOUT_IMAGES = ("", "policies = ['host']", "imagse = ['openmpi']", "collectives = ['bcast']")


def test_what_is_refused_of_a_plan(tmp_path: Path, here: Collbench, golden: Callable[[str, str], None]) -> None:
    """With its file and in one line: the key, what was found, and what would work."""
    said = []

    def refuse(load: Callable[[Path], Plan], name: str, text: str) -> None:
        path = written(tmp_path, text)
        with pytest.raises(CollbenchError) as refused:
            load(path)
        assert refused.value.exit_code == 2, text
        (line,) = str(refused.value).splitlines()
        assert line.startswith(f"plan {path}"), line
        name = "; ".join(name.splitlines())[:60]
        said.append(f"{name} -> {line.replace(f'plan {path}', 'plan').replace(str(path), 'PLAN')}\n")

    for line in LINES:
        refuse(load_plan, line, f"collectives = ['bcast']\n{line}")
    for text in WORLDS:
        refuse(load_plan, text, text)
    for line in LAUNCHES:
        image = "" if "images =" in line else "images = ['openmpi']\n"
        refuse(load_launch_plan, line, f"collectives = ['bcast']\n{image}{line}")
    for text in WITHOUT_IMAGES:
        refuse(load_launch_plan, text, text)
    path = written(tmp_path, "collectives = ['bcast']\n")
    for command, name in (("run", "quick"), ("launch", path), ("plan", path)):
        refused = here(command, name)
        assert refused.code == 2
        said.append(f"{command} -> " + re.sub(r"/\S+[.]toml", "PLAN", refused.err))
    golden("plan-refusals.txt", "".join(said))


def test_a_plan_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.toml")
    for content in (b"\xff\xfe", b"collectives = ["):
        (tmp_path / "plan.toml").write_bytes(content)
        with pytest.raises(PlanError, match="not TOML"):
            load_plan(tmp_path / "plan.toml")
    (tmp_path / "plan.toml").write_bytes(b"\xef\xbb\xbfcollectives = ['bcast']\n")
    assert load_plan(tmp_path / "plan.toml").collectives == ("bcast",), "a byte order mark is no part of it"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (Sizes(min="8", max="64"), (8, 16, 32, 64)), (Sizes(min="8", max="100", factor=3), (8, 24, 72)),
        (Sizes(min="1K", max="2K", step="512"), (1024, 1536, 2048)), (Sizes(min=0, max=4), (0, 1, 2, 4)),
        (Sizes(min=0, max=10, step=5), (0, 5, 10)), (Sizes(min=7, max=7, factor=0), (7,)),
        (("1K", 8, "1M"), (1024, 8, 1 << 20)), (Sizes(min=1, max=MOST_SIZES, step=1), tuple(range(1, MOST_SIZES + 1))),
    ],
)  # fmt: skip
def test_sweeps_and_lists_of_sizes(sizes: Sizes | tuple[str | int, ...], expected: tuple[int, ...]) -> None:
    assert sizes_in_bytes(sizes) == expected


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


# Launch plans ---------------------------------------------------------------------------------------------------------

#: Those that are not for `collbench run`.
READY = [path for path in sorted(Path(__file__).parents[2].joinpath("launch").glob("*.toml"))
         if "smoke" not in path.stem]  # fmt: skip


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_ready_plans_can_be_read(path: Path) -> None:
    assert load_launch_plan(path).images


def launch_plan(tmp_path: Path, lines: str) -> Plan:
    return load_launch_plan(written(tmp_path, f'collectives = ["bcast"]\n{lines}\n'))


def test_the_inner_plan_is_what_one_world_measures(tmp_path: Path) -> None:
    """Images are named as Docker does."""
    names = ["openmpi", "site/mpi:5.0", "localhost:5000/a/b", "ghcr.io/x/y@sha256:" + "0" * 64]
    whole = launch_plan(tmp_path, f'images = {names}\nbudget = "2s"\nlaunches = 3')
    assert (whole.images, whole.of_world().images, whole.of_world().budget_seconds) == (tuple(names), (), 2)
    assert "launches" not in whole.of_world().document


@pytest.mark.parametrize(
    ("sizes", "launches", "numbers"), [(12, 5, ["5", "6"]), (12, 6, None), (13, 6, None), (13, 1, ["26", "6"])]
)
def test_a_plan_says_when_its_launches_give_no_verdicts(
    tmp_path: Path, sizes: int, launches: int, numbers: list[str] | None
) -> None:
    """A host against two policies at so many sizes: six launches are enough for any number of cells."""
    listed = [str(8 * size + 8) for size in range(sizes)]
    plan = launch_plan(tmp_path, f'images = ["openmpi"]\nsizes = {listed}\nlaunches = {launches}')
    sentence = undecidable(expand(plan, lambda engine: Topology(tuple(map(Core, range(4))))))
    assert (None if sentence is None else re.findall(r"\d+", sentence)) == numbers


def test_a_title_steers_no_terminal(tmp_path: Path, collbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    text = 'collectives = ["bcast"]\nimages = ["openmpi"]\npolicies = ["host"]\ntitle = "a\\u001b[2J\\nb\\u202ec"\n'
    shown = collbench("plan", written(tmp_path, text))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("a\\x1b[2J\\x0ab\\u202ec: 1 cell, ")


# The plan that a launch gives to its world ----------------------------------------------------------------------------


def world_plan(whole: Plan, measured: list[int], brief: list[int]) -> Plan:
    """The plan of a launch that executes these of its cases, by number."""
    identities = plan_experiment(whole, OPTIONS, ()).identities
    return whole.of_world([identities[number] for number in measured], [identities[number] for number in brief])


def test_a_launch_of_some_cases_has_their_records_and_the_plan_s_order(made: Callable[..., None]) -> None:
    """The brief ones are executed in their places, with one sample that nobody gets; the rest is not prepared."""
    prepared: list[int] = []

    def listening(session: Any) -> None:
        prepare = session.prepare

        def heard(case: Any, *rest: Any) -> Any:
            if session.world.rank == 0 and case.size:  # not the barrier of the gate
                prepared.append(case.size)
            return prepare(case, *rest)

        session.prepare = heard

    made(MadeBackend(change=listening))
    kept = Begun()
    carried_out(world_plan(plan(sizes=("8", "16", "32", "64", "128")), [4, 1], [2]), kept=kept)
    assert outcomes(kept) == [("one", 16, "ok", None), ("one", 128, "ok", None)]
    assert (prepared, kept.began) == ([16, 32, 128], [2])
    assert [samples.shape for samples in kept.samples if samples is not None] == [(2, 2)] * 2


def test_a_brief_execution_has_one_sample(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    rules: list[StopRule] = []

    def heard(case: Any, row: Any, session: Any, method: Method, *rest: Any) -> Any:
        if session.world.rank == 0:
            rules.append(method.stop)
        return measure(case, row, session, method, *rest)

    monkeypatch.setattr("collbench.run.experiment.measure", heard)
    made(MadeBackend())
    carried_out(world_plan(plan(), [1], [0]))
    assert rules == [StopRule.fixed(1), StopRule.fixed(2)]


def test_a_backend_of_which_nothing_is_executed_is_not_started(made: Callable[..., None]) -> None:
    first, second = MadeBackend(), MadeBackend("two", late="no GPU")
    made(first, second)
    assert outcomes(carried_out(world_plan(plan("one", "two"), [0], []))) == [("one", 8, "ok", None)]
    assert second.given == []
    skipping = plan("one", "two", unusable="skip")
    assert outcomes(carried_out(world_plan(skipping, [1, 2], [3]))) == [
        ("one", 16, "ok", None), ("two", 8, "skipped", "no GPU")
    ]  # fmt: skip
    made(first, MadeBackend("two", why="no GPU"))
    assert outcomes(carried_out(world_plan(skipping, [1], []))) == [("one", 16, "ok", None)]


def test_what_is_not_executed_is_still_part_of_the_world(made: Callable[..., None]) -> None:
    """The roles of the ranks, on which GPUs depend, are those of all cases."""
    backend = MadeBackend()
    made(backend)
    carried_out(world_plan(plan(collectives=("ps_bcast", "bcast"), sizes=("8",), roots=(1,)), [0], []))
    assert [options.roles for options in backend.given] == [Roles(True, frozenset({1}))]


def test_its_file_is_read_as_it_was_written(tmp_path: Path, made: Callable[..., None]) -> None:
    made(MadeBackend())
    of_world = world_plan(plan(), [1], [0])
    assert (len(of_world.only), len(of_world.brief)) == (1, 1)
    for document in (of_world, plan()):
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(document.document))
        assert load_plan(tmp_path / "plan.json") == document
