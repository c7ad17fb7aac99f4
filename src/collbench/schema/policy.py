"""How a policy is spelled in plans and records, and the order in which policies stand in tables."""

from __future__ import annotations

import re

#: What every policy lies between: no container, one container for all ranks; and a container for every rank.
_FIRST, _LAST = ("host", "multi"), ("single",)

#: A name alone, or with a number: `single`, `packed:4`.
_SPELLING = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}(?::[1-9][0-9]{0,3})?")


def is_spelling(policy: str) -> bool:
    """Whether a policy could be written so; whether there is one of that name, the launcher knows."""
    return _SPELLING.fullmatch(policy) is not None


def name_and_number(policy: str) -> tuple[str, int]:
    """(`packed`, 4) of `packed:4`; the number of a name alone is 0, and so is what is no number."""
    name, _, text = policy.partition(":")
    return name, int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


#: As `policy_order` gives it: class of isolation, name, number.
PolicyOrder = tuple[int, str, int]


def policy_order(policy: str) -> PolicyOrder:
    """From the least isolated to the most: `host`, `multi`, all others, `single`.

    No policy that uses containers has fewer than `multi` or more than `single`. The others, among them those that were
    added by other packages, stand by name, and the larger number first (the more ranks share a container).
    """
    name, number = name_and_number(policy)
    if name in _FIRST:
        return (_FIRST.index(name), "", 0)
    return (len(_FIRST) + (name in _LAST), name, -number)
