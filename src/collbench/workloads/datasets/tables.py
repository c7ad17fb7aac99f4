"""Images that come with a package, as a compressed table: a line is the pixels of an image and then its class."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path

import numpy as np

from collbench.schema.manifest import Library
from collbench.workloads.datasets.source import BadData, Examples, Rows, images
from collbench.workloads.networks import Network

SIDE = 28


@dataclass(frozen=True)
class Table:
    """The table `file` of a `package`, in its `module`: `images` of `side` x `side` pixels with levels to `highest`."""

    package: str
    module: str
    file: str
    images: int
    side: int
    highest: int
    label: str

    def takes(self, network: Network) -> bool:
        return prod(network.example) == SIDE * SIDE and not network.tokens

    def missing(self) -> str | None:
        if self._path() is None:
            return f"{self.package}, which contains the images, is not installed; pip install {self.package}"
        return None

    def library(self) -> Library | None:
        path = self._path()
        try:
            return None if path is None else Library(name=self.package, version=version(self.package), path=str(path))
        except PackageNotFoundError:  # its folder without what pip knows of it
            return Library(name=self.package, version="", path=str(path))

    def read(self, network: Network, examples: int) -> Examples:
        """Scaled to 28 x 28, and to 255 levels."""
        path = self._path()
        if path is None:
            raise BadData(self.missing() or self.package)
        data = path.read_bytes()
        try:
            table = np.loadtxt(io.StringIO(gzip.decompress(data).decode()), delimiter=",")
        except (OSError, EOFError, ValueError) as error:
            raise BadData(f"{path}: not a compressed table of numbers ({error})") from error
        pixels, classes = table[:, :-1], table[:, -1]
        if table.shape != (self.images, self.side**2 + 1) or pixels.min() < 0 or pixels.max() > self.highest:
            raise BadData(f"{path}: not {self.images} images of {self.side} x {self.side} in levels to {self.highest}")
        rows = images(self._scaled(pixels), classes, str(path))
        return Examples(rows, self.label, {path.name: hashlib.sha256(data).hexdigest()})

    def _scaled(self, pixels: Rows) -> Rows:
        """To 28 x 28, each pixel the nearest one, and to levels up to 255."""
        nearest = np.arange(SIDE) * self.side // SIDE
        square = pixels.reshape(-1, self.side, self.side)[:, nearest][:, :, nearest]
        return (square * (255 / self.highest)).reshape(len(pixels), SIDE * SIDE)

    def _path(self) -> Path | None:
        spec = importlib.util.find_spec(self.module)
        path = Path(spec.origin).parent / self.file if spec is not None and spec.origin else None
        return path if path is not None and path.is_file() else None
