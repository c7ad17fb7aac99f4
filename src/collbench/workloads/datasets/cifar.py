"""CIFAR-10 in its own formats (https://www.cs.toronto.edu/~kriz/cifar.html): five batches, binary or for Python."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from collbench.schema.manifest import Library
from collbench.workloads.datasets import files
from collbench.workloads.datasets.source import BadData, Examples, Rows, images
from collbench.workloads.networks import Network

PICKLES = tuple(f"data_batch_{number}" for number in range(1, 6))
BINARIES = tuple(f"{name}.bin" for name in PICKLES)
PIXELS = 3 * 32 * 32

#: SHA-256 of CIFAR-10's own batches for Python: other images come in its formats too.
CIFAR10 = dict(
    zip(
        PICKLES,
        (
            "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
            "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
            "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
            "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
            "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
        ),
        strict=True,
    )
)

#: What a pickled batch is made of; nothing else in a file is called.
_PARTS = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")} | {
    (f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")
}


@dataclass(frozen=True)
class Cifar:
    """The user's five files."""

    def takes(self, network: Network) -> bool:
        return prod(network.example) == PIXELS

    def missing(self) -> str | None:
        return files.lacking(_names())

    def library(self) -> Library | None:
        return files.library("data in CIFAR-10's format", _names()[0])

    def read(self, network: Network, examples: int) -> Examples:
        names = _names()
        batches, hashes = [], {}
        for name in names:
            data, hashes[name] = files.content(name)
            batches.append((_pickled if names == PICKLES else _binary)(files.shown(name), data))
        label = "CIFAR-10" if hashes == CIFAR10 else "images in CIFAR-10's format"
        return Examples(np.concatenate(batches), label, hashes)


def _names() -> tuple[str, ...]:
    return PICKLES if files.found(PICKLES[0]) is not None else BINARIES


def _binary(name: str, data: bytes) -> Rows:
    """A byte of the class before the pixels of each image."""
    if not data or len(data) % (PIXELS + 1):
        raise BadData(f"{name}: {len(data)} bytes are no whole images in CIFAR-10's binary format")
    rows = np.frombuffer(data, np.uint8).reshape(-1, PIXELS + 1)
    return images(rows[:, 1:], rows[:, 0], name)


class _Unpickler(pickle.Unpickler):
    """Makes arrays, and calls nothing else that a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def _pickled(name: str, data: bytes) -> Rows:
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        pixels, classes = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.uint8)
        if pixels.shape != (len(classes), PIXELS):
            raise ValueError(f"its data has the shape {pixels.shape}")
    except Exception as error:  # whatever a damaged pickle raises
        raise BadData(f"{name}: not a batch of CIFAR-10 for Python ({type(error).__name__}: {error})") from error
    return images(pixels, classes, name)
