"""Gates: the judgement of each cell, plans and sides, what is verified, and folders that are damaged."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.fake_engine import contents
from tests.unit.made_gates import LARGE, SMALL, Medians, fine, made_gate, noisy, told
from tests.unit.made_runs import Entry, library, made_case, made_failure, made_record, spread

from collbench.analysis.compare import Reason
from collbench.analysis.gate import ACCEPTABLE, Cause, Doubt, Judgement, Unfinished, judge
from collbench.analysis.runs import observe
from collbench.cli import gate
from collbench.cli.gate import plan_for_gate, side_of
from collbench.errors import RequestError, RunReadError
from collbench.report.gate import doubt_text
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan, Side, check_launch_plan
from collbench.schema.record import LOST, UNREAD, Loaded, ResultCheck, Samples, loaded_note
from collbench.schema.store import Margin, read_gate_plan
from collbench.timing import _loop

GOOD = fine()


def judged(folder: Path, margin: float = 0.02, accepted: tuple[str, ...] = ()) -> Judgement:
    """As the command judges the folder."""
    return judge(read_gate_plan(folder), observe(folder), (Margin(margin),), accepted)


def states(judgement: Judgement) -> list[str]:
    """By cell: the answer, with the name of the reason where there is none."""
    return [f"{answer.state} ({answer.doubt.name})" if answer.doubt else answer.state for answer in judgement.answers]


FASTER_AND_SLOWER = (0.9, 1.03, 0.92, 1.02, 0.94, 1.03, 0.95, 1.02, 0.96, 1.0)
UNCLEAR = [time * factor for time, factor in zip(spread(1e-6), FASTER_AND_SLOWER, strict=True)]


@pytest.mark.parametrize(
    ("other", "answers", "code", "verdict"),
    [
        (fine(1.001), ["no loss", "no loss"], 0, "same"),
        (fine(0.7), ["no loss", "no loss"], 0, "faster"),
        # A loss is a loss whatever else was not answered.
        ({SMALL: spread(1.3e-6), LARGE: noisy(1e-4)}, ["loss", "no answer (too few launches)"], 1, "slower"),
        # The upper end of its interval is within the margin: it cannot be slower.
        ({SMALL: UNCLEAR, LARGE: spread(1e-4)}, ["no loss", "no loss"], 0, "unclear"),
    ],
    ids=["no slower", "gain", "loss", "may be faster"],
)
def test_each_cell_is_judged_alone(tmp_path: Path, other: Medians, answers: list[str], code: int, verdict: str) -> None:
    judgement = judged(made_gate(tmp_path, GOOD, other))
    assert (states(judgement), judgement.code) == (answers, code)
    assert judgement.answers[0].comparison is not None
    assert judgement.answers[0].comparison.verdict == verdict
    assert [answer.base for answer in judgement.of("loss")] == [SMALL.having(side="base")] * answers.count("loss")


def test_within_a_wider_margin_a_loss_is_none_and_margins_depend_on_the_size(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, fine(1.1))
    for margins, answers, code in (
        ((Margin(0.02),), ["loss", "loss"], 1),
        ((Margin(0.25),), ["no loss", "no loss"], 0),
        ((Margin(0.25, SMALL["size"]), Margin(0.02)), ["no loss", "loss"], 1),
        ((Margin(0.02, 8), Margin(0.25)), ["no loss", "no loss"], 0),
    ):
        judgement = judge(read_gate_plan(folder), observe(folder), margins)
        assert (states(judgement), judgement.code) == (answers, code)


def doubt(judgement: Judgement) -> Doubt:
    """Why the first cell has no answer."""
    assert judgement.answers[0].doubt is not None
    return judgement.answers[0].doubt


def replaced(entries: Sequence[Entry], launch: int, entry: Entry) -> list[Entry]:
    """The launches, with another one."""
    return [*entries[:launch], entry, *entries[launch + 1 :]]


def failing(case: Any, launch: int = 3, status: str = "failed") -> list[Entry]:
    """One launch of ten that failed, or was skipped."""
    return replaced(spread(1e-6), launch, made_failure(case, launch, "no memory", status))


WRONG = replaced(spread(1e-6), 3, made_record(SMALL, 3, 1e-6, check=ResultCheck(wrong=7)))
LATE = Samples(n=100, invalid=60, warmup=5)

#: What the base and the other side have of the small cell, how it is judged, and the first values of its reason.
OF_ONE_CELL: dict[str, tuple[Sequence[Entry], Sequence[Entry], str, tuple[Any, ...]]] = {
    "failed on the base": (failing(SMALL), spread(1e-6), "no answer (failed)", ("base", 1, 10)),
    "failed on both": (failing(SMALL), failing(SMALL, 5), "no answer (failed)", ("base", 1, 10)),
    "never measured": (["it hangs"] * 10, ["it hangs"] * 10, "no answer (failed)", ("base", 10, 10, "it hangs")),
    "failed on the other side": (spread(1e-6), failing(SMALL), "broken (broken)", ("other", 1, 10, "no memory")),
    "wrong on the other side": (spread(1e-6), WRONG, "broken (broken)", ("other", 1, 10)),
    "slower, and failed": (spread(1e-6), replaced(spread(2e-6), 3, "no memory"), "broken (broken)", ("other", 1, 10)),
    "lost with a node": (
        spread(1e-6), replaced(spread(1e-6), 3, made_failure(SMALL, 3, f"{LOST}node")), "no answer (failed)",
        ("other", 1, 10),
    ),
    "skipped": (failing(SMALL, 3, "skipped"), spread(1e-6), "no answer (skipped)", ("base", "no memory")),
    "missing": (spread(1e-6), (), "no answer (missing)", ("other",)),
    "fewer launches": (spread(1e-6), spread(1e-6)[:9], "no answer (incomplete)", ("other", 9, 10)),
    "noise": (spread(1e-6), noisy(1e-6), "no answer (too few launches)", ()),
    "another gate": (spread(1e-6), told(SMALL, spread(1e-6), align="barrier"), "no answer (not comparable)", ()),
    "contended": (
        spread(1e-6), told(SMALL, spread(1e-6), contended=True), "no answer (contended)", ("other", 10, 10),
    ),
    "contended in half of them": (
        spread(1e-6), [*told(SMALL, spread(1e-6)[:5], contended=True), *spread(1e-6)[5:]], "no answer (contended)",
        ("other", 5, 10),
    ),
    "oversubscribed": (
        told(SMALL, spread(1e-6), oversubscribed=True), spread(1e-6), "no answer (oversubscribed)", ("base",),
    ),
    "late": (spread(1e-6), told(SMALL, spread(1e-6), samples=LATE), "no answer (late)", ("other", 600, 1000)),
    "unchecked": (spread(1e-6), told(SMALL, spread(1e-6), check=ResultCheck(wrong=None)), "no answer (unchecked)", ()),
    "without a check": (spread(1e-6), told(SMALL, spread(1e-6), check=None), "no answer (unchecked)", ()),
    "a shared GPU": (spread(1e-6), told(SMALL, spread(1e-6), shared_gpu=True), "no answer (shared GPU)", ("other",)),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_ONE_CELL)
def test_what_was_not_measured_well_is_not_answered_unless_it_is_accepted(tmp_path: Path, what: str) -> None:
    """What failed, is missing or cannot be compared cannot be accepted; nor can what was not verified."""
    base, other, state, values = OF_ONE_CELL[what]
    folder = made_gate(tmp_path, {SMALL: base, LARGE: spread(1e-4)}, {SMALL: other, LARGE: spread(1e-4)})
    judgement = judged(folder)
    assert (states(judgement), judgement.code) == ([state, "no loss"], 1 if state == "broken (broken)" else 4)
    assert doubt(judgement).values[: len(values)] == values
    assert not {"not verified", "failed", "broken", "missing"} & set(ACCEPTABLE)
    if (name := doubt(judgement).name) in ACCEPTABLE:
        assert judged(folder, accepted=(name,)).code == 0


def test_launches_that_are_missing_are_counted(tmp_path: Path) -> None:
    """Of noise those that would decide; with fewer than six blocks how many there are, and how many more it takes."""
    (why,) = doubt(judged(made_gate(tmp_path / "noise", GOOD, {SMALL: noisy(1e-6), LARGE: spread(1e-4)}))).values
    assert isinstance(why, Reason) and why.kind == "launches"
    few = {SMALL: spread(1e-6, 4)}
    judgement = judged(made_gate(tmp_path / "few", few, few, launches=20, until="decided"))
    assert (doubt(judgement).values, judgement.code) == ((4, 2, 0, 0), 4)


def test_a_launch_that_fails_before_its_end_has_failed_in_cells_without_a_record_too(tmp_path: Path) -> None:
    """It has one record, of the first of its cases; those in other places have nothing to do with it."""
    elsewhere = made_case(image="mpich", size=8)
    base: Medians = {SMALL: spread(1e-6), LARGE: spread(1e-4), elsewhere: spread(1e-6)}
    judgement = judged(made_gate(tmp_path, base, {SMALL: failing(SMALL)[3:4], LARGE: (), elsewhere: ()}))
    broken = Doubt("broken", ("other", 1, 1, "no memory"))
    assert [answer.doubt for answer in judgement.answers] == [broken, broken, Doubt("missing", ("other",))]


def test_slow_launches_of_the_other_side_alone_are_no_pass(tmp_path: Path) -> None:
    times = spread(1e-6, 30)
    often = [time * (2 if number % 4 == 0 else 1) for number, time in enumerate(times)]
    folder = made_gate(tmp_path, {SMALL: times}, {SMALL: often}, launches=30)
    judgement = judged(folder)
    assert (states(judgement), judgement.code) == (["no answer (slow at times)"], 4)
    accepted = judged(folder, accepted=("slow at times",))
    assert states(accepted) == ["no answer (undecided)"], "so many move the bound as well"
    assert judged(made_gate(tmp_path / "turned", {SMALL: often}, {SMALL: times}, launches=30)).code == 0


def test_dependent_launches_are_no_pass_and_until_decided_cells_have_those_that_they_took(tmp_path: Path) -> None:
    waves = [1e-6 * (1 + 0.01 * ((number // 5) % 2)) for number in range(20)]
    judgement = judged(made_gate(tmp_path / "waves", {SMALL: [1e-6] * 20}, {SMALL: waves}, launches=20))
    assert (states(judgement), judgement.code) == (["no answer (drift)"], 4)
    side = {SMALL: spread(1e-6, 6), LARGE: spread(1e-4, 12)}
    judgement = judged(made_gate(tmp_path / "decided", side, side, launches=20, until="decided"))
    assert (states(judgement), judgement.code) == (["no loss", "no loss"], 0)


def test_the_plan_says_which_cells_are_judged(tmp_path: Path) -> None:
    """Others change nothing, and a plan without any passes nothing."""
    slow = {SMALL: spread(1e-6), LARGE: spread(2e-4)}
    folder = made_gate(tmp_path, GOOD, slow, planned=[SMALL])
    judgement = judged(folder)
    assert (states(judgement), judgement.code) == (["no loss"], 0)
    nothing = msgspec.structs.replace(read_gate_plan(folder), cells=())
    assert judge(nothing, observe(folder), (Margin(0.02),)).code == 4


def test_broken_cells_are_none_of_those_without_an_answer(tmp_path: Path) -> None:
    third = made_case(image="openmpi", size=8)
    base: Medians = {SMALL: spread(1e-6), LARGE: failing(LARGE), third: spread(1e-6)}
    other: Medians = {SMALL: told(SMALL, spread(1e-6), contended=True), LARGE: spread(1e-6), third: failing(third)}
    judgement = judged(made_gate(tmp_path, base, other))
    assert [answer.base.having(side=None) for answer in judgement.of("broken")] == [third]
    assert [answer.base.having(side=None) for answer in judgement.of("no answer")] == [LARGE, SMALL]
    assert judgement.code == 1


def test_what_was_read_in_part_answers_nothing(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, GOOD)
    with (folder / "records.jsonl").open("ab") as records:
        records.write(b'{"case"')
    judgement = judged(folder)
    assert (states(judgement), judgement.code) == (["no answer (not verified)"] * 2, 4)
    (flaw,) = judgement.refused[0].values
    assert flaw.kind == "cut off"


@pytest.mark.parametrize(
    ("base", "other", "until", "blocks"),
    [((8, 8), (8, 8), "launches", 8), ((9, 8), (8, 8), "launches", 8), ((9, 9), (9, 8), "decided", 8),
     ((6, 12), (6, 11), "decided", 11), ((6, 0), (6, 0), "launches", 6), ((0, 0), (0, 0), "decided", 0)],
)  # fmt: skip
def test_an_interrupted_gate_came_as_far_as_the_cells_that_were_still_launched(
    tmp_path: Path, base: tuple[int, int], other: tuple[int, int], until: str, blocks: int
) -> None:
    """A cell that was decided after six blocks is not what the others wait for."""
    sides = [{SMALL: spread(1e-6)[:1] * of[0], LARGE: spread(1e-4)[:1] * of[1]} for of in (base, other)]
    folder = made_gate(tmp_path, sides[0], sides[1], launches=30, until=until)
    judgement = judge(read_gate_plan(folder), observe(folder), (Margin(0.02),), (), True)
    assert (judgement.unfinished, judgement.code) == (Unfinished(blocks, 30, until == "decided"), 4)


# Plans of a gate ------------------------------------------------------------------------------------------------------

#: A library: any will do, which nobody loads.
LIBRARY = Path(_loop.__file__).read_bytes()


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For one world, in an environment with MPICH."""
    monkeypatch.setattr(gate, "probe", lambda folder, vendor: contents(vendor or "mpich"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["bcast"]\nsizes = ["8"]\niters = 7\n')
    return path


def test_a_plan_for_one_world_is_measured_on_the_host(plan: Path) -> None:
    """Where torch starts the ranks of its backends, the image is torch."""
    path, of_gate = plan_for_gate(str(plan), None, False)
    assert path == plan
    assert (of_gate.images, of_gate.policies, of_gate.ranks, of_gate.launches) == (("mpich",), ("host",), (3,), 8)
    assert (of_gate.environments, of_gate.iters, of_gate.oversubscribe) == ({"mpich": sys.prefix}, 7, False)
    plan.write_text('collectives = ["bcast"]\nbackends = ["torch-gloo"]\n')
    assert plan_for_gate(str(plan), 2, False)[1].images == ("torch",)


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 3), (1, 1), (2, 2), (8, 3)])
def test_by_default_no_more_ranks_than_gpus(plan: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, ranks: int) -> None:
    """Without a GPU the placement refuses them."""
    monkeypatch.setattr("collbench.machine.nvml.gpus", lambda: ((None,) * gpus, ""))
    plan.write_text('collectives = ["bcast"]\nbackends = ["nccl"]\n')
    of_gate = plan_for_gate(str(plan), None, False)[1]
    assert (of_gate.ranks, of_gate.device) == ((ranks,), "gpu")


def test_both_sides_have_one_timing_gate_from_the_first_launch_on(plan: Path) -> None:
    """With `auto` some launches would fall back to another, and those cannot be compared."""
    assert plan_for_gate(str(plan), 2, False)[1].align == "barrier"
    plan.write_text(plan.read_text(encoding="utf-8") + 'align = "roundtime"\n', encoding="utf-8")
    assert plan_for_gate(str(plan), 2, False)[1].align == "roundtime"


def test_more_ranks_than_cores_are_refused(plan: Path, here: Collbench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match=r"\b4 ranks .*\b3\b"):
        plan_for_gate(str(plan), 4, False)
    _, of_gate = plan_for_gate(str(plan), 4, True)
    assert (of_gate.ranks, of_gate.oversubscribe) == ((4,), True)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    with pytest.raises(RequestError, match="--accept oversubscribed"):
        plan_for_gate(str(plan), None, False)
    plan.write_text('benchmarks = ["stream"]\n')  # no ranks of a library are started
    assert plan_for_gate(str(plan), None, False)[1].ranks == ()
    command = ("gate", plan, "-n", "4", "--other", "env=A")  # of which env=A is refused after the ranks
    assert "--accept oversubscribed" in here(*command).err
    accepted = here(*command, "--accept", "oversubscribed").err
    assert "env=A=VALUE" in accepted and "oversubscribed" not in accepted


def test_an_environment_without_a_library_is_refused(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "probe", lambda folder, vendor: msgspec.structs.replace(contents(), vendor=""))
    with pytest.raises(RequestError, match=f"{re.escape(sys.prefix)}: .*MPI .*torch"):
        plan_for_gate(str(plan), None, False)
    plan.write_text('benchmarks = ["stream"]\n')
    assert plan_for_gate(str(plan), None, False)[1].images == ("host",)


TWO = Plan(
    collectives=("bcast",), images=("a", "b"), policies=("single",), variables={"OLD": "1", "BOTH": "1"},
    image_backends={"a": ("mpi",)}, environments={"b": "/env"}, libraries=("/l/libx.so",),
)  # fmt: skip


def on_side(texts: tuple[str, ...], plan: Plan = TWO) -> Plan:
    """The plan of a side that was asked for so."""
    both = {"base": side_of("--base", texts, plan), "other": side_of("--other", (), plan)}
    return check_launch_plan(msgspec.structs.replace(plan, sides=both)).of_sides(("base",))


def test_a_side_has_its_images_in_place_of_the_plans() -> None:
    side = on_side(("image=b=new:1",))
    assert (side.images, side.environments) == (("a", "new:1"), {"new:1": "/env"})
    assert (side.image_backends, side.variables, side.libraries, side.sides) == (
        {"a": ("mpi",)}, TWO.variables, TWO.libraries, {}
    )  # fmt: skip
    with pytest.raises(RequestError, match=r"a, b: .*image=a=REF"):
        side_of("--base", ("image=new:1",), TWO)


def test_variables_and_files_are_added_to_the_plans(tmp_path: Path) -> None:
    files = [tmp_path / "liby.so.1", tmp_path / "libz.so"]
    for file in files:
        file.write_bytes(LIBRARY + file.name.encode())
    side = on_side((f"lib={files[0]}", f"preload={files[1]}", "env=BOTH=2", "env=A=b=c"))
    assert side.variables == {"OLD": "1", "BOTH": "2", "A": "b=c"}
    assert (side.libraries, side.preload) == ((str(files[0]), "/l/libx.so"), (str(files[1]),))


# Two sides of a gate differ in what was asked and in nothing else, or nothing is answered -----------------------------

PATH, OTHER_PATH = "/build/libmpi.so.40", "/opt/Open MPI/lib/libmpi.so"
OURS, THEIRS = "1" * 64, "a" * 64
WITH_FILE = Side(libraries=(PATH,))


FOUR_THREADS = {"OMP_NUM_THREADS": "4"}
ASKED_FOR = Side(variables=FOUR_THREADS)


def with_setting(library: Library) -> Library:
    return msgspec.structs.replace(library, settings=("OMP_NUM_THREADS=4",))


#: What is asked of the other side, how its software differs, and what of that is refused.
DIFFERENCES: dict[str, tuple[Side, dict[str, Any], set[str]]] = {
    "python": (Side(), {"python": "3.12.1"}, {"python"}),
    "a variable": (Side(), {"environment": FOUR_THREADS}, {"env:OMP_NUM_THREADS"}),
    "a library": (Side(), {"libraries": (library(sha256="b" * 64),)}, {"library-file"}),
    "the variable that was asked for": (ASKED_FOR, {"environment": FOUR_THREADS}, set()),
    "and another": (ASKED_FOR, {"environment": FOUR_THREADS | {"NCCL_ALGO": "Ring"}}, {"env:NCCL_ALGO"}),
    "a setting": (Side(), {"libraries": (with_setting(library()),)}, {"setting:OMP_NUM_THREADS"}),
    "the setting of the variable that was asked for": (ASKED_FOR, {"libraries": (with_setting(library()),)}, set()),
    "settings of the library that was asked for": (
        Side(variables={"LD_LIBRARY_PATH": "/new"}),
        {"libraries": (with_setting(library(sha256="b" * 64)),)}, set(),
    ),
    "anything in an image that was asked for": (
        Side(images={"openmpi": "new"}),
        {"python": "3.12.1", "id": "sha256:9", "libraries": (with_setting(library("MPICH", "4.3", "b" * 64)),)}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENCES)
def test_what_was_not_asked_for_is_refused_by_name(tmp_path: Path, what: str) -> None:
    side, fields, refused = DIFFERENCES[what]
    software: tuple[dict[str, Any], dict[str, Any]] = ({"environment": {}}, {"environment": {}} | fields)
    judgement = judged(made_gate(tmp_path, GOOD, fine(2), sides=(Side(), side), software=software))
    expected = (["no answer (not verified)"] * 2, 4) if refused else (["loss"] * 2, 1)
    assert (states(judgement), judgement.code) == expected
    assert {cause.values[0] for cause in judgement.refused if cause.kind == "differs"} == refused


def test_a_run_without_the_sides_of_a_gate_is_refused(tmp_path: Path) -> None:
    folder = made_gate(tmp_path, GOOD, GOOD)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"plan": {}}))
    with pytest.raises(RunReadError, match=r"base .*other"):
        judged(folder)


def loaded_on(path: str, sha256: str) -> Medians:
    """Two cells whose ranks loaded this file."""
    notes = (loaded_note(Loaded("libmpi.so", path, sha256)),)
    return {SMALL: told(SMALL, spread(1e-6), notes=notes), LARGE: told(LARGE, spread(1e-4), notes=notes)}


OURS_LOADED, THEIRS_LOADED = loaded_on(PATH, OURS), loaded_on(OTHER_PATH, THEIRS)


def with_library(
    folder: Path, other: Medians, held: Sequence[Library] = (library(),), base_held: Sequence[Library] = (library(),),
    side: Side = WITH_FILE,
) -> Judgement:  # fmt: skip
    """Of a gate whose base loads the usual library, and whose other side is to load ours; and what both sides hold."""
    software = ({"libraries": tuple(base_held)}, {"files": {PATH: OURS}, "libraries": tuple(held)})
    return judged(made_gate(folder, THEIRS_LOADED, other, sides=(Side(), side), software=software))


def test_a_library_that_the_ranks_loaded_is_compared(tmp_path: Path) -> None:
    judgement = with_library(tmp_path, OURS_LOADED, [library(sha256=OURS)])
    assert (judgement.code, judgement.alike) == (0, ())


@pytest.mark.parametrize(("side", "preloaded"), [(WITH_FILE, False), (Side(preload=(PATH,)), True)])
def test_a_library_that_the_ranks_did_not_load_is_no_answer(tmp_path: Path, side: Side, preloaded: bool) -> None:
    """To preload it is advised, unless it was."""
    judgement = with_library(tmp_path, THEIRS_LOADED, side=side)
    assert (states(judgement), judgement.code) == (["no answer (not verified)"] * 2, 4)
    cause = Cause("other loaded", ("other", OTHER_PATH, THEIRS, PATH, OURS, preloaded))
    assert doubt(judgement).values == (cause,)
    assert (f"preload={PATH}" in doubt_text(doubt(judgement))) is not preloaded


@pytest.mark.parametrize(
    ("notes", "kind"),
    [
        ((), "not told"), ((loaded_note(Loaded("libmpi.so")),), "none loaded"),
        ((loaded_note(Loaded("libmpi.so", PATH, OURS), "0"), loaded_note(Loaded("libmpi.so", OTHER_PATH, THEIRS), "1")),
         "other loaded"),
    ],
)  # fmt: skip
def test_every_rank_has_to_tell_that_it_loaded_the_file(tmp_path: Path, notes: tuple[str, ...], kind: str) -> None:
    judgement = with_library(tmp_path, {**OURS_LOADED, SMALL: told(SMALL, spread(1e-6), notes=notes)})
    assert states(judgement) == ["no answer (not verified)", "no loss"]
    assert doubt(judgement).values[0].kind == kind


def test_another_library_may_not_differ_beside_the_one_that_was_asked_for(tmp_path: Path) -> None:
    old, new = (msgspec.structs.replace(library("NCCL", "2.21", sha256), path=f"/{folder}/libnccl.so.2")
                for folder, sha256 in (("opt", "c" * 64), ("new", "d" * 64)))  # fmt: skip
    judgement = with_library(tmp_path, OURS_LOADED, [library(sha256=OURS), new], [library(), old])
    assert judgement.code == 4
    assert any("/new/libnccl.so.2" in cause.values for cause in judgement.refused)


def test_sides_that_are_the_same_by_hash_are_said_to_be(tmp_path: Path) -> None:
    """But neither of no file, nor of one that could not be read."""
    has_file: dict[str, Any] = {"files": {PATH: OURS}}
    folder = made_gate(tmp_path / "file", OURS_LOADED, OURS_LOADED, sides=(WITH_FILE,) * 2, software=(has_file,) * 2)
    assert judged(folder).alike == (Cause("same file", ("libmpi.so", OURS[:12])),)
    images = Side(images={"openmpi": "a"}), Side(images={"openmpi": "b"})
    (cause,) = judged(made_gate(tmp_path / "image", GOOD, GOOD, sides=images)).alike
    assert (cause.kind, cause.values[0].startswith("sha256:openmpi")) == ("same image", True)
    assert judged(made_gate(tmp_path / "plan", GOOD, GOOD)).alike == (Cause("plan"),)
    for path, sha256, kind in (("", "", "no file"), (PATH, UNREAD, "unread file")):
        cells = {SMALL: told(SMALL, spread(1e-6), notes=(loaded_note(Loaded("libmpi.so", path, sha256)),))}
        folder = made_gate(tmp_path / kind, cells, cells, sides=(Side(), WITH_FILE), software=({}, has_file))
        judgement = judged(folder)
        assert [cause.kind for cause in judgement.alike] == [kind]
        assert UNREAD[:12] not in doubt_text(doubt(judgement))


# A gate-plan.json that is damaged is refused with one message that names it, whatever is wrong with it

Damage = Callable[[dict[str, Any]], Any]

#: What is no plan at all, and plans in which something is wrong.
DAMAGES: dict[str, str | Damage] = {
    **{repr(text): text for text in ("", "{", "[]", "null", "\x00")},
    "no cells": lambda plan: plan.update(cells=[]),
    "cells are missing": lambda plan: plan.pop("cells"),
    "cells of another version": lambda plan: plan.update(cells=[[plan["cells"][0]] * 2]),
    "cells are text": lambda plan: plan.update(cells="x"),
    "no plan": lambda plan: plan.pop("plan"),
    "an odd case": lambda plan: plan["cells"][0]["what"].update(size="many"),
    "another key": lambda plan: plan.update(more=1),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_damaged_is_said_in_one_message(here: Collbench, tmp_path: Path, what: str) -> None:
    path = made_gate(tmp_path / "gate", fine(), fine()) / "gate-plan.json"
    damage, plan = DAMAGES[what], json.loads(path.read_text())
    if not isinstance(damage, str):
        damage(plan)
    path.write_text(damage if isinstance(damage, str) else json.dumps(plan))
    refused = here("gate", path.parent)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert refused.err.startswith(f"collbench: {path}: ") and "Error:" not in refused.err
    assert ("'many'" if what == "an odd case" else "collbench gate") in refused.err
