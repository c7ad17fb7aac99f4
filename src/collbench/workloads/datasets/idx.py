"""MNIST in its own format, idx (http://yann.lecun.com/exdb/mnist): a magic number, the shape, and a byte a value."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

import numpy as np

from collbench.schema.manifest import Library
from collbench.workloads.datasets import files
from collbench.workloads.datasets.source import BadData, Examples, Rows, images
from collbench.workloads.networks import Network

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"

#: SHA-256 of MNIST's own files, uncompressed: other images come in its format too.
MNIST = {
    IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
}

_UNSIGNED_BYTES = 8


@dataclass(frozen=True)
class Idx:
    """The user's two files."""

    def takes(self, network: Network) -> bool:
        return prod(network.example) == 784 and not network.tokens

    def missing(self) -> str | None:
        return files.lacking((IMAGES, LABELS))

    def library(self) -> Library | None:
        return files.library("data in MNIST's format", IMAGES)

    def read(self, network: Network, examples: int) -> Examples:
        pixels, of_pixels = _values(IMAGES, (28, 28))
        classes, of_classes = _values(LABELS, ())
        if len(pixels) != len(classes):
            raise BadData(f"{IMAGES} has {len(pixels)} images, and {LABELS} {len(classes)} labels")
        hashes = {IMAGES: of_pixels, LABELS: of_classes}
        label = "MNIST" if hashes == MNIST else "images in MNIST's format"
        return Examples(images(pixels.reshape(-1, 784), classes, files.shown(LABELS)), label, hashes)


def _values(name: str, shape: tuple[int, ...]) -> tuple[Rows, str]:
    """All values [n, *shape] of a file, and its SHA-256."""
    data, sha256 = files.content(name)
    magic, sides = struct.pack(">HBB", 0, _UNSIGNED_BYTES, 1 + len(shape)), struct.pack(f">{len(shape)}i", *shape)
    begins = 8 + len(sides)
    if data[:4] != magic or data[8:begins] != sides:
        what = f"images of {' x '.join(map(str, shape))}" if shape else "labels"
        raise BadData(f"{files.shown(name)}: not a file of {what} in MNIST's format (idx)")
    (number,) = struct.unpack(">i", data[4:8])
    if number < 1 or len(data) - begins != number * prod(shape):
        held = f"{len(data) - begins} bytes of data"
        raise BadData(f"{files.shown(name)}: {held}, where its header says {number * prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=begins).reshape(number, *shape), sha256
