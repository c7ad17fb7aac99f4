"""A data set: examples in rows, with words that say what they are, and whether they can be had here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collbench.schema.manifest import Library
from collbench.workloads.networks import Network

#: [examples, width]: of an image its pixels and then its class, uint8; of words a sequence and the next one, uint16.
Rows = npt.NDArray[Any]

#: Of what is made up, and of the order in which examples are taken.
SEED = 20170810


class BadData(Exception):
    """A file is not what its name says; the text says which, and why."""


@dataclass(frozen=True)
class Examples:
    """`label` says what the rows are, `files` have the SHA-256 of the files that they come from, by name."""

    rows: Rows
    label: str
    files: Mapping[str, str] = field(default_factory=dict)


class Source(Protocol):
    """A data set by its name in plans (`SOURCES`)."""

    def takes(self, network: Network) -> bool:
        """Whether its examples have the shape that a network is trained on."""

    def missing(self) -> str | None:
        """Why it cannot be had, and what would help; None: it can."""

    def library(self) -> Library | None:
        """The package or the file that a manifest names, so that two sides with other data are not compared."""

    def read(self, network: Network, examples: int) -> Examples:
        """All examples that it has; of what is made up so many.

        Raises:
            BadData: a file is not of its format, or has another hash than it should.
            OSError: a file cannot be read.
        """


def images(pixels: Rows, classes: Rows, file: str) -> Rows:
    """Rows of `pixels` [n, pixels] and `classes` [n].

    Raises:
        BadData: there is no class of this number.
    """
    if len(classes) == 0 or int(classes.max()) > 9:
        raise BadData(f"{file}: its classes are not 0 to 9")
    return np.column_stack((pixels.astype(np.uint8), classes.astype(np.uint8)))
