"""What a gate writes down is UTF-8: words of its command line with other bytes are refused before it measures."""

from __future__ import annotations

from collbench.errors import RequestError


def refuse_other_bytes(words: str) -> None:
    """Words of a command line, or a path, that a document of JSON is to hold.

    Raises:
        RequestError: Python holds bytes of them as surrogates, because they are not UTF-8.
    """
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{words}: has bytes that are not UTF-8, and the files of a gate hold nothing else. Write it in UTF-8, or "
            "rename the file."
        ) from error
