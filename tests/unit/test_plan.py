"""Plans: keys, values that are wrong, and what a launch gives to its world."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.contract.test_fake import Kept
from tests.unit.test_experiment import OPTIONS, MadeBackend, carried_out, found, made, plan

from collbench.bindings.spec import Roles
from collbench.cli import cli
from collbench.cli.plan import undecidable
from collbench.errors import CollbenchError, PlanError
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.expansion import expand
from collbench.launch.site import read_site
from collbench.machine.topology import Core, Topology
from collbench.run.experiment import plan_experiment
from collbench.run.measure import measure
from collbench.run.sampling import Fixed, Method, StopRule
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


# What a plan says wrongly is named by its key, with what was found and what would work --------------------------------

BASE = 'collectives = ["allreduce"]\nbackends = ["fake"]\n'


def written_values(folder: Path, text: str) -> Path:
    path = folder / "w.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ops = "sum"', 'ops: expected a list such as ["sum"], not the string "sum".'),
        ('iters = "20"', 'iters: expected a whole number, not the string "20".'),
        ("iters = 1.5", "iters: expected a whole number, not the number 1.5."),
        ("iters = [1]", "iters: expected a whole number, not a list."),
        ("iters = true", "iters: expected a whole number, not true."),
        ("iters = 2026-11-22", 'iters: expected a whole number, not "2026-11-22".'),
        ("budget = []", "budget: expected a string or a number, not a list."),
        ("share_gpu = 1", "share_gpu: expected true or false, not the number 1."),
        ("registered = 1", "registered: expected a list such as [false], not the number 1."),
        ("registered = [1]", "registered: expected true or false, not the number 1."),
        ('drivers = "rust"', 'drivers: expected a list such as ["native"], not the string "rust".'),
        ('staging = ["both"]', 'staging "both": choose one of pageable, pinned.'),
        ("staging = [1]", 'staging: expected "pageable" or "pinned", not the number 1.'),
        ('unusable = "maybe"', 'unusable "maybe": choose one of refuse, skip.'),
        ('thread_level = "some"', 'thread_level "some": choose one of single, funneled, serialized, multiple.'),
        ("benchmarks = 1", "benchmarks: expected a list, not the number 1."),
        ("benchmarks = [1]", "benchmarks: expected a string or a table, not the number 1."),
        ("[[benchmarks]]\nn = [[]]", "benchmarks.n: expected a string or a number or true or false, not a list."),
        ("sizes = 8", "sizes: expected a table or a list such as [8], not the number 8."),
        ("sizes = [1.5]", "sizes: expected a string or a whole number, not the number 1.5."),
        ("sizes = { min = 1.5 }", "sizes.min: expected a string or a whole number, not the number 1.5."),
        (f"iters = '{'9' * 80}'", f'iters: expected a whole number, not the string "{"9" * 39} ....'),
    ],
)  # fmt: skip
def test_values_of_another_type(tmp_path: Path, line: str, message: str) -> None:
    path = written_values(tmp_path, BASE + line)
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value) == f"plan {path}: {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('cores_per_rank = "all"', 'cores_per_rank: expected a whole number or "share", not the string "all".'),
        ('affinity = ["middle"]', 'affinity "middle": choose one of near, far.'),
        ("environments = { openmpi = 1 }", "environments.openmpi: expected a string, not the number 1."),
        ('image_backends = { openmpi = "mpi" }',
         'image_backends.openmpi: expected a list such as ["mpi"], not the string "mpi".'),
    ],
)  # fmt: skip
def test_values_of_launch_plans(tmp_path: Path, line: str, message: str) -> None:
    path = written_values(tmp_path, f'images = ["openmpi"]\ncollectives = ["bcast"]\n{line}')
    with pytest.raises(PlanError) as refused:
        load_launch_plan(path)
    assert str(refused.value) == f"plan {path}: {message}"


def refusal(*arguments: str) -> str:
    return str(CliRunner().invoke(cli, list(arguments)).exception)


def test_a_launch_plan_is_not_one_for_run() -> None:
    assert refusal("run", "quick").endswith("quick.toml: is a launch plan (it has images). Use: collbench launch quick")


@pytest.mark.parametrize("command", ["launch", "plan"])
def test_a_plan_for_run_is_not_one_for_launch(tmp_path: Path, command: str) -> None:
    path = written_values(tmp_path, BASE)
    assert refusal(command, str(path)) == (
        f"plan {path}: is a plan for one world (a launch plan has images). Use: collbench run {path}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks images; a launch plan names them"),
        ('policies = ["host"]', "lacks images; a launch plan names them"),
        ('imagse = ["openmpi"]', "unknown key 'imagse'. Did you mean images?"),
    ],
)
def test_a_launch_plan_without_images(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        load_launch_plan(written_values(tmp_path, text))
    assert str(refused.value).startswith(f"plan {tmp_path / 'w.toml'}: {message}")


# Launch plans ---------------------------------------------------------------------------------------------------------

#: Those that are not for `collbench run`.
READY = [
    path for path in sorted(Path(__file__).parents[2].joinpath("launch").glob("*.toml")) if "smoke" not in path.stem
]


def written_plan(folder: Path, more: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(f'collectives = ["bcast"]\n{more}\n', encoding="utf-8")
    return path


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_ready_plans_can_be_read(path: Path) -> None:
    assert load_launch_plan(path).images


MACHINE = Topology(tuple(Core(number) for number in range(4)))

#: Under the three default policies.
MANY = [f"site/i{number}" for number in range(400)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "is a plan for one world (a launch plan has images). Use: collbench run"),
        ('images = ["openmpi"]\npolicy = ["single"]', "unknown key 'policy'. Did you mean policies"),
        ('images = ["openmpi"]\npolicies = ["packed:0"]', "policy 'packed:0': not a name of a policy. Write single"),
        ('images = ["openmpi"]\npolicies = ["single; x"]', "policy 'single; x': not a name of a policy"),
        ('images = ["openmpi"]\npolicies = ["multi/far"]', "policy 'multi/far': not a name of a policy"),
        ('images = ["a; rm -rf /"]', "not a name of an image"),
        ('images = ["$(touch x)"]', "not a name of an image"),
        ('images = ["-v/:/host"]', "not a name of an image"),
        ('images = ["localhost:x/openmpi"]', "not a name of an image"),
        ('images = []', "images: the list is empty"),
        ('images = ["openmpi"]\nranks = [0]', "ranks 0: must be from 1 to 256"),
        ('images = ["openmpi"]\nworkers = [2]\nranks = [2]', "ranks and workers: both say how large"),
        ('images = ["openmpi"]\nservers = [2]', "servers: counts the servers of worlds with workers"),
        ('images = ["openmpi"]\nworkers = [2]\nservers = [256]', "servers 256: must be from 1 to 255"),
        ('images = ["openmpi"]\nspare = "all"', "spare"),
        ('images = ["openmpi"]\nworkers = [2]\nroots = [1]', "with workers the server is rank 0"),
        ('images = ["openmpi"]\nworkers = [256]', "workers 256: must be from 1 to 255"),
        ('images = ["openmpi"]\ncores_per_rank = 0', "cores_per_rank 0: must be from 1 to 256"),
        ('images = ["openmpi"]\nimage_backends = { torch = ["torch-gloo"] }', "'torch' is none of the images openmpi"),
        ('images = ["openmpi"]\nlaunches = 0', "launches 0: must be from 1"),
        (f"images = {MANY}\nranks = {[*range(1, 251)]}", "make up to 300,000 cells, and a plan has at most 5,000"),
        (f"images = {MANY}\nlaunches = 1000", "make up to 1,200,000 starts, and a plan has at most 100,000"),
        ('images = ["openmpi"]\nenvironments = { mpich = "x" }', "'mpich' is none of the images openmpi"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, more: str, message: str) -> None:
    path = written_plan(tmp_path, more)
    with pytest.raises(PlanError, match=f"plan {path}") as caught:
        load_launch_plan(path)
    assert message in str(caught.value)


def test_the_inner_plan_is_what_one_world_measures(tmp_path: Path) -> None:
    plan = load_launch_plan(written_plan(tmp_path, 'images = ["openmpi"]\nbudget = "2s"\nlaunches = 3'))
    assert plan.of_world().budget_seconds == 2
    assert not plan.of_world().images and "launches" not in plan.of_world().document


def test_images_are_named_as_docker_does(tmp_path: Path) -> None:
    names = ["openmpi", "site/mpi:5.0", "localhost:5000/a/b", "ghcr.io/x/y@sha256:" + "0" * 64]
    assert load_launch_plan(written_plan(tmp_path, f"images = {names}")).images == tuple(names)


def test_a_plan_says_when_its_launches_give_no_verdicts(tmp_path: Path) -> None:
    """A host against two policies at so many sizes: six launches are enough for any number of cells."""
    for sizes, launches, said in (
        (12, 5, "5 launches give no verdicts: launches = 6 can"), (12, 6, None), (13, 6, None),
        (13, 1, "one launch gives no verdicts: 26 comparisons take launches = 6"),
    ):  # fmt: skip
        path = tmp_path / "plan.toml"
        listed = ", ".join(f'"{8 * size + 8}"' for size in range(sizes))
        path.write_text(
            f'collectives = ["allreduce"]\nimages = ["openmpi"]\nsizes = [{listed}]\nlaunches = {launches}\n'
        )
        found = undecidable(expand(load_launch_plan(path), lambda engine: MACHINE))
        assert found is None if said is None else said in (found or "")


def test_a_title_steers_no_terminal(tmp_path: Path, collbench: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    path = written_plan(tmp_path, 'images = ["openmpi"]\npolicies = ["host"]\ntitle = "a\\u001b[2J\\nb\\u202ec"')
    shown = collbench("plan", path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("a\\x1b[2J\\x0ab\\u202ec: 1 cell, ")


# The plan that a launch gives to its world ----------------------------------------------------------------------------


def world_plan(asked: Plan, measured: list[int], brief: list[int]) -> Plan:
    """The plan of a launch that executes these of its cases, by number."""
    identities = plan_experiment(asked, OPTIONS, ()).identities
    return asked.of_world([identities[number] for number in measured], [identities[number] for number in brief])


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

    began: list[int] = []

    class Begun(Kept):
        def begin(self, manifest: Any, cases: int) -> None:
            super().begin(manifest, cases)
            began.append(cases)

    made(MadeBackend(change=listening))
    asked = plan(sizes=("8", "16", "32", "64", "128"))
    kept = carried_out(world_plan(asked, [4, 1], [2]), kept=Begun())
    assert found(kept.records) == [("one", 16, "ok", None), ("one", 128, "ok", None)]
    assert prepared == [16, 32, 128]
    assert began == [2]
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
    assert rules == [Fixed(1), Fixed(2)]


def test_a_backend_of_which_nothing_is_executed_is_not_started(made: Callable[..., None]) -> None:
    first, second = MadeBackend(), MadeBackend("two", late="no GPU")
    made(first, second)
    kept = carried_out(world_plan(plan("one", "two"), [0], []))
    assert found(kept.records) == [("one", 8, "ok", None)]
    assert second.given == []
    kept = carried_out(world_plan(plan("one", "two", unusable="skip"), [1, 2], [3]))
    assert found(kept.records) == [("one", 16, "ok", None), ("two", 8, "skipped", "no GPU")]
    missing = MadeBackend("two", why="no GPU")
    made(first, missing)
    kept = carried_out(world_plan(plan("one", "two", unusable="skip"), [1], []))
    assert found(kept.records) == [("one", 16, "ok", None)]


def test_what_is_not_executed_is_still_part_of_the_world(made: Callable[..., None]) -> None:
    """The roles of the ranks, on which GPUs depend, are those of all cases."""
    backend = MadeBackend()
    made(backend)
    both = plan(collectives=("ps_bcast", "bcast"), sizes=("8",), roots=(1,))
    carried_out(world_plan(both, [0], []))
    assert [options.roles for options in backend.given] == [Roles(True, frozenset({1}))]


# Its file ------------------------------------------------------------------------------------------------------------


def test_it_is_read_as_it_was_written(tmp_path: Path, made: Callable[..., None]) -> None:
    made(MadeBackend())
    written = world_plan(plan(), [1], [0])
    assert (len(written.only), len(written.brief)) == (1, 1)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(written.document))
    assert load_plan(tmp_path / "plan.json") == written
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan().document))
    assert load_plan(tmp_path / "plan.json") == plan()


def test_a_plan_of_a_user_has_no_such_keys(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('collectives = ["bcast"]\nonly = ["0123456789ab"]\n')
    with pytest.raises(PlanError, match="unknown key 'only'"):
        load_plan(tmp_path / "plan.toml")
