"""What places execute in the next block: what is open there, and what is open at those that they are compared with."""

from __future__ import annotations

import itertools

from collbench.analysis.deciding import OpenAtPlace, next_block

Side = tuple[str, int]


def compared(*pairs: tuple[str, str], sizes: tuple[int, ...] = (8, 64)) -> list[tuple[Side, Side]]:
    return [((base, size), (other, size)) for base, other in pairs for size in sizes]


def both(base: str, other: str, size: int) -> set[Side]:
    return {(base, size), (other, size)}


def executed(here: set[int], elsewhere: set[int] | None = None) -> OpenAtPlace[int]:
    return OpenAtPlace(frozenset(here), frozenset(elsewhere or ()))


def test_a_place_without_anything_open_is_left_out() -> None:
    star = compared(("host", "strict"), ("host", "files"))
    assert next_block(star, set()) == {}
    assert next_block(star, both("host", "files", 64)) == {"host": executed({64}), "files": executed({64})}


def test_what_is_open_elsewhere_is_executed_too_at_all_that_are_compared() -> None:
    star = compared(("host", "strict"), ("host", "files"), ("host", "limits"))
    found = next_block(star, both("host", "strict", 8) | both("host", "files", 64))
    assert found == {"host": executed({8, 64}), "strict": executed({8}, {64}), "files": executed({64}, {8})}
    assert len({frozenset(one.here | one.elsewhere) for one in found.values()}) == 1


def test_places_that_are_compared_execute_the_same_though_nothing_between_them_is_open() -> None:
    images = compared(("a host", "a strict"), ("b host", "b strict"), ("a host", "b host"))
    found = next_block(images, both("a host", "a strict", 8) | both("b host", "b strict", 64))
    assert found["a strict"] == executed({8}, {64})
    assert found["b host"] == executed({64}, {8})


def test_those_that_are_not_compared_or_over_one_that_is_not_launched_are_apart() -> None:
    found = next_block(
        compared(("2", "2 strict"), ("4", "4 strict")), both("2", "2 strict", 8) | both("4", "4 strict", 64)
    )
    assert found["2"] == found["2 strict"] == executed({8})
    assert found["4"] == found["4 strict"] == executed({64})
    alone = next_block(compared(("host", "strict"), ("host", "files")), {("strict", 8), ("files", 64)})
    assert alone == {"strict": executed({8}), "files": executed({64})}


def test_a_chain_is_one_group_whatever_the_order() -> None:
    names = [str(number) for number in range(9)]
    chain = compared(*itertools.pairwise(names), sizes=(1,))
    still_open = {(name, number) for number, name in enumerate(names)}
    for pairs in (chain, chain[::-1], chain[::2] + chain[1::2]):
        found = next_block(pairs, still_open)
        assert {frozenset(one.here | one.elsewhere) for one in found.values()} == {frozenset(range(9))}
        assert all(one.here == {number} for number, one in enumerate(found[name] for name in names))
