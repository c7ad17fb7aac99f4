"""The end of a message about an unknown word: the nearest known one, or all of them."""

from __future__ import annotations

from collections.abc import Sequence


def suggestion(word: str, known: Sequence[str]) -> str:
    """`Did you mean mpi?`, or `There are: fake, mpi, torch-gloo.` where nothing is near."""
    import difflib  # costs a start more than it is worth when nothing is misspelt

    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
