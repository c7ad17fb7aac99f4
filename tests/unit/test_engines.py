"""What engines say of themselves, before any is asked for something."""

from __future__ import annotations

import pytest

from collbench.errors import PlanError
from collbench.launch import engines
from collbench.schema.axes import STEPS
from collbench.schema.plan import Plan


@pytest.mark.parametrize("name", engines.names())
def test_what_every_engine_says_of_itself(name: str) -> None:
    """A ladder begins with its most isolated step; one that only matters between boxes has one before that does not."""
    engine = engines.get(name)
    assert engine.name == name
    names = [step.name for step in engine.ladder]
    assert len(set(names)) == len(names)
    assert names[:1] in ([], ["strict"], ["files"])
    assert names == [name for name in reversed(STEPS) if name in names]
    assert not any(step.between for step in engine.ladder[:1])
    assert all(step.adds for step in engine.ladder)
    assert all(seconds >= 0 for seconds in engine.start_seconds)
    assert (engine.start_seconds[0] > 0, engine.starts_ranks) == (name != "fake", name in ("slurm", "k8s"))
    assert engine.makes_containers is (name in ("docker", "podman", "fake"))
    assert (engine.script is None, engine.commands is None) == (not engine.starts_ranks, engine.starts_ranks)
    plan = Plan(images=("openmpi",))
    if engine.starts_ranks:
        with pytest.raises(PlanError, match="needs a site file"):
            engine.site(plan)
    else:
        site = engine.site(plan)
        assert site.machine.cores and (site.seconds, site.cautions) == (None, ())


def test_the_machine_of_the_fake_engine_has_two_nodes() -> None:
    cores = engines.get("fake").site(Plan(images=("openmpi",))).machine.cores
    assert [(core.number, core.node) for core in cores] == [(n, 0) for n in range(8)] + [(n, 1) for n in range(8, 16)]
