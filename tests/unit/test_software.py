"""Ranks of one job run one program and one library."""

from __future__ import annotations

import pytest

from collbench.run.facts_of_ranks import software_difference

OURS = ("collbench", "1.0")


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([(OURS, ("Open MPI", "5.0.11"))] * 3, None),
        ([(OURS,), (("collbench", "0.9"),)], "rank 0 has collbench 1.0, rank 1 has 0.9"),
        (
            [(OURS, ("NCCL", "2.27.3")), (OURS,), (OURS, ("NCCL", "2.30.1"))],
            "rank 0 has NCCL 2.27.3, rank 2 has 2.30.1",
        ),
        ([(OURS,), (OURS, ("NCCL", "2.30.1"))], None),  # a server without a GPU cannot use it
    ],
)
def test_the_first_rank_with_another_version_is_named(
    ranks: list[tuple[tuple[str, str], ...]], said: str | None
) -> None:
    assert software_difference(ranks) == said
