"""How a policy is spelled in plans and records, and the order of policies in tables."""

from __future__ import annotations

import re

#: The least isolated policies (no container; one container for all ranks), and the most isolated (one for each rank).
_FIRST, _LAST = ("host", "multi"), ("single",)

#: A name, or a name with a number: `single`, `packed:4`.
_SPELLING = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}(?::[1-9][0-9]{0,3})?")


def is_spelling(policy: str) -> bool:
    """Whether a policy can be spelled so; whether it exists, the launcher knows."""
    return _SPELLING.fullmatch(policy) is not None


def name_and_number(policy: str) -> tuple[str, int]:
    """(`packed`, 4) of `packed:4`; 0 where there is no number."""
    name, _, text = policy.partition(":")
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return name, int(text) if is_number else 0


#: The result of `policy_order`: class of isolation, name, number.
PolicyOrder = tuple[int, str, int]


def policy_order(policy: str) -> PolicyOrder:
    """Sort key from the least isolated to the most: `host`, `multi`, all others, `single`.

    The others, among them those of other packages, are ordered by name, and the larger number comes first (more ranks
    share a container).
    """
    name, number = name_and_number(policy)
    if name in _FIRST:
        return (_FIRST.index(name), "", 0)
    return (len(_FIRST) + (name in _LAST), name, -number)
