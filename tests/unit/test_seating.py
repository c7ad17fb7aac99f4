"""Which rank uses which GPU: a pure function, so every machine here is made up."""

from __future__ import annotations

import pytest

from collbench.bindings.gpu.assignment import Assignment, VisibleGpus, assign
from collbench.bindings.spec import Roles
from collbench.errors import RequestError

FOUR = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
EVERYBODY = Roles()
#: All cases have rank 0 as parameter server.
SERVED = Roles(all_work=False, servers=frozenset({0}))
#: Some have, in others every rank works.
MIXED = Roles(all_work=True, servers=frozenset({0}))


def sees(*visible: str, host: str = "one", planned: str | None = None, why: str | None = None) -> VisibleGpus:
    return VisibleGpus(host, f"kernel of {host}", visible, planned, why)


def test_one_each_in_cudas_order() -> None:
    assert assign((sees(*FOUR),) * 4, EVERYBODY, share=False) == Assignment(FOUR)
    assert assign((sees(*FOUR),) * 2, EVERYBODY, share=False) == Assignment(FOUR[:2])


def test_machines_are_seated_by_themselves() -> None:
    """Two machines may name their GPUs alike."""
    hosts = (sees(*FOUR[:2]), sees(*FOUR[:2], host="two")) * 2
    assert assign(hosts, EVERYBODY, share=False).gpus == ("GPU-a", "GPU-a", "GPU-b", "GPU-b")


def test_each_rank_was_shown_its_own() -> None:
    """CUDA_VISIBLE_DEVICES of each rank, in any order; or a container with one GPU for each."""
    assert assign(tuple(map(sees, reversed(FOUR))), EVERYBODY, share=False).gpus == tuple(reversed(FOUR))
    boxes = tuple(VisibleGpus(f"box-{gpu}", "one kernel", (gpu,)) for gpu in FOUR)
    assert assign(boxes, EVERYBODY, share=False).gpus == FOUR


def test_two_containers_with_two_gpus_each() -> None:
    boxes = (sees(*FOUR[:2]), sees(*FOUR[:2]), sees(*FOUR[2:]), sees(*FOUR[2:]))
    assert assign(boxes, EVERYBODY, share=False).gpus == FOUR


def test_what_a_launcher_planned_is_kept() -> None:
    planned = ("GPU-c", "GPU-a", "GPU-d")
    assert assign(tuple(sees(*FOUR, planned=gpu) for gpu in planned), EVERYBODY, share=False).gpus == planned


@pytest.mark.parametrize(("visible", "named"), [(FOUR[:2], "GPU-a, GPU-b"), ((), "none")])
def test_a_planned_gpu_that_the_rank_does_not_see(visible: tuple[str, ...], named: str) -> None:
    seats = (sees(*FOUR, planned="GPU-a"), sees(*visible, planned="GPU-c"))
    with pytest.raises(RequestError, match=rf"rank 1 was planned on GPU GPU-c, and sees {named}\.$"):
        assign(seats, EVERYBODY, share=False)


def test_two_ranks_on_one_gpu_are_refused_unless_told() -> None:
    seats = (sees("GPU-a"),) * 2
    with pytest.raises(RequestError) as refused:
        assign(seats, EVERYBODY, share=False)
    said = str(refused.value)
    assert said.startswith("ranks 0 and 1 on one would use one GPU (GPU-a): 2 ranks and 1 GPU. ")
    assert "--share-gpu" in said
    assert "share_gpu = true" in said
    assert assign(seats, EVERYBODY, share=True) == Assignment(("GPU-a", "GPU-a"))


def test_shared_gpus_are_shared_out_evenly() -> None:
    assert assign((sees(*FOUR[:2]),) * 5, EVERYBODY, share=True).gpus == ("GPU-a", "GPU-b", "GPU-a", "GPU-b", "GPU-a")
    with pytest.raises(RequestError, match=r"ranks 0 and 2 on one would use one GPU .*: 3 ranks and 2 GPUs"):
        assign((sees(*FOUR[:2]),) * 3, EVERYBODY, share=False)


def test_one_name_on_two_machines_is_two_gpus() -> None:
    assert assign((sees("GPU-a"), sees("GPU-a", host="two")), EVERYBODY, share=False).gpus == ("GPU-a",) * 2
    with pytest.raises(RequestError, match="ranks 1 and 2 on two would use one GPU"):
        assign((sees("GPU-a"), sees("GPU-a", host="two"), sees("GPU-a", host="two")), EVERYBODY, share=False)


@pytest.mark.parametrize("share", [False, True])
def test_no_gpu_is_refused_with_the_reason(share: bool) -> None:
    reason = "the driver is too old"
    with pytest.raises(RequestError, match=f"rank 1 on two has no GPU to use: {reason}. See: collbench doctor"):
        assign((sees("GPU-a"), sees(host="two", why=reason)), EVERYBODY, share)
    with pytest.raises(RequestError, match="rank 0 on one has no GPU to use: no CUDA device is visible"):
        assign((sees(),), EVERYBODY, share)


def test_a_server_takes_no_gpu() -> None:
    """The first GPU goes to the first worker, whether the server sees GPUs or not."""
    assert assign((sees(*FOUR),) * 3, SERVED, share=False).gpus == (None, "GPU-a", "GPU-b")
    assert assign((sees(why="none"), sees(*FOUR), sees(*FOUR)), SERVED, share=False).gpus == (None, "GPU-a", "GPU-b")
    last = Roles(all_work=False, servers=frozenset({2}))
    assert assign((sees(*FOUR),) * 3, last, share=False).gpus == ("GPU-a", "GPU-b", None)


def test_workers_of_a_server_need_theirs() -> None:
    with pytest.raises(RequestError, match="ranks 1 and 2 on one would use one GPU"):
        assign((sees("GPU-a"),) * 3, SERVED, share=False)
    with pytest.raises(RequestError, match="rank 2 on one has no GPU"):
        assign((sees(), sees("GPU-a"), sees()), SERVED, share=False)


def test_two_servers_in_turn_are_workers_too() -> None:
    roles = Roles(all_work=False, servers=frozenset({0, 1}))
    assert assign((sees(*FOUR),) * 3, roles, share=False).gpus == FOUR[:3]
    with pytest.raises(RequestError, match="rank 0 on one has no GPU"):
        assign((sees(), sees(*FOUR), sees(*FOUR)), roles, share=False)
    with pytest.raises(RequestError, match=r"2 GPUs\..* Ranks 0, 1 are the server in turn, .* one root \(-r\) needs"):
        assign((sees(*FOUR[:2]),) * 3, roles, share=False)


def test_a_mixed_plan_has_a_gpu_for_everybody_where_there_is_one() -> None:
    assert assign((sees(*FOUR),) * 4, MIXED, share=False) == Assignment(FOUR)


def test_a_mixed_plan_falls_back_to_the_workers_and_says_what_it_refuses() -> None:
    """Cases with a server can be measured, and the others say why not."""
    found = assign((sees(why="no device"), sees(*FOUR), sees(*FOUR)), MIXED, share=False)
    assert found.gpus == (None, "GPU-a", "GPU-b")
    assert found.refused == "rank 0 on one has no GPU to use: no device. See: collbench doctor"
    found = assign((sees(*FOUR[:2]),) * 3, MIXED, share=False)
    assert found.gpus == (None, "GPU-a", "GPU-b")
    assert found.refused is not None
    assert found.refused.startswith("ranks 0 and 2 on one would use one GPU (GPU-a)")


def test_a_mixed_plan_without_gpus_is_refused() -> None:
    with pytest.raises(RequestError, match="rank 1 on one has no GPU"):
        assign((sees(),) * 2, MIXED, share=False)
    with pytest.raises(RequestError, match="rank 0 on one has no GPU"):
        assign((sees(),), MIXED, share=False)
