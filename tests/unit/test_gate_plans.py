"""Plans of a gate: a plan for one world becomes one of ranks on the host, and each side differs in what was asked."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.conftest import Collbench

from collbench.cli import sides
from collbench.cli.gate import plan_for_gate
from collbench.cli.sides import side_of
from collbench.errors import RequestError
from collbench.launch.engines.fake import contents
from collbench.schema.plan import Plan, check_launch_plan
from collbench.timing import _loop

#: A library: any will do, which nobody loads.
LIBRARY = Path(_loop.__file__).read_bytes()


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For one world, in an environment with MPICH."""
    monkeypatch.setattr(sides, "probe", lambda folder, vendor: contents(vendor or "mpich"))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    path = tmp_path / "plan.toml"
    path.write_text('collectives = ["bcast"]\nsizes = ["8"]\niters = 7\n')
    return path


def test_a_plan_for_one_world_is_measured_on_the_host(plan: Path) -> None:
    path, found = plan_for_gate(str(plan), None, False)
    assert path == plan
    assert (found.images, found.policies, found.ranks, found.launches) == (("mpich",), ("host",), (3,), 8)
    assert (found.environments, found.iters, found.oversubscribe) == ({"mpich": sys.prefix}, 7, False)


def test_both_sides_have_one_timing_gate_from_the_first_launch_on(plan: Path) -> None:
    """With `auto` some launches would fall back to another, and those cannot be compared."""
    assert plan_for_gate(str(plan), 2, False)[1].gate == "barrier"
    plan.write_text(plan.read_text(encoding="utf-8") + 'gate = "roundtime"\n', encoding="utf-8")
    assert plan_for_gate(str(plan), 2, False)[1].gate == "roundtime"


def test_more_ranks_than_cores_are_refused_unless_they_are_accepted(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="4 ranks with 1 core each need 4 cores, and this machine offers 3: "):
        plan_for_gate(str(plan), 4, False)
    _, found = plan_for_gate(str(plan), 4, True)
    assert (found.ranks, found.oversubscribe) == ((4,), True)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    with pytest.raises(RequestError, match="--accept oversubscribed"):
        plan_for_gate(str(plan), None, False)
    plan.write_text('benchmarks = ["stream"]\n')  # no ranks of a library are started
    assert plan_for_gate(str(plan), None, False)[1].ranks == ()


def test_accepting_them_lets_a_gate_begin(plan: Path, here: Collbench) -> None:
    plan.write_text('benchmarks = ["stream"]\n')
    asked = ("gate", plan, "-n", "4", "--other", "env=A")  # which is refused after the ranks
    assert "4 ranks with 1 core each need 4 cores" in here(*asked).err
    assert "write env=A=VALUE" in here(*asked, "--accept", "oversubscribed").err


def test_torch_starts_the_ranks_of_its_own_backends(plan: Path) -> None:
    plan.write_text('collectives = ["bcast"]\nbackends = ["torch-gloo"]\n')
    assert plan_for_gate(str(plan), 2, False)[1].images == ("torch",)


def test_an_environment_without_a_library_is_refused(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "probe", lambda folder, vendor: msgspec.structs.replace(contents(), vendor=""))
    with pytest.raises(RequestError, match="has no MPI and no torch"):
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
    found = on_side(("image=b=new:1",))
    assert (found.images, found.environments, found.image_backends) == (
        ("a", "new:1"),
        {"new:1": "/env"},
        {"a": ("mpi",)},
    )
    assert (found.variables, found.libraries, found.sides) == (TWO.variables, TWO.libraries, {})
    with pytest.raises(RequestError, match="the plan's images are a, b: write image=a=REF"):
        side_of("--base", ("image=new:1",), TWO)


def test_variables_and_files_are_added_to_the_plans(tmp_path: Path) -> None:
    files = [tmp_path / "liby.so.1", tmp_path / "libz.so"]
    for file in files:
        file.write_bytes(LIBRARY + file.name.encode())
    found = on_side((f"lib={files[0]}", f"preload={files[1]}", "env=BOTH=2", "env=A=b=c"))
    assert found.variables == {"OLD": "1", "BOTH": "2", "A": "b=c"}
    assert (found.libraries, found.preload) == ((str(files[0]), "/l/libx.so"), (str(files[1]),))
