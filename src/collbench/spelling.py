"""The end of a message about an unknown word: the nearest known one, or all of them."""

from __future__ import annotations

from collections.abc import Sequence


def suggestion(word: str, known: Sequence[str]) -> str:
    """`Did you mean mpi?`, or `There are: fake, mpi, torch-gloo.` where no word is similar."""
    return nearest(word, known) or _all(known)


def nearest_and_all(word: str, known: Sequence[str]) -> str:
    """`Did you mean quick? There are: ladder, quick.` for a short list that the reader may not have seen."""
    return f"{nearest(word, known)} {_all(known)}".lstrip()


def nearest(word: str, known: Sequence[str]) -> str:
    """`Did you mean mpi?`, or nothing where no word is similar."""
    import difflib  # takes too long to import where nothing is misspelt

    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]}?" if near else ""


def _all(known: Sequence[str]) -> str:
    return f"There are: {', '.join(known) or 'none'}."
