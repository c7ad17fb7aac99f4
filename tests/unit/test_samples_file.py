"""A samples file is held against its record before it is read, and its record against it afterwards."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, write_run

from collbench.analysis.runs import EVERY, SampleCheck, observe
from collbench.errors import RunReadError
from collbench.report.caveats import flaw_text, misleading
from collbench.report.page.contents import chapter
from collbench.schema.record import Record, Samples, summarise
from collbench.schema.samples import ALL_RANKS_LIMIT, MOST_VALUES, decode_samples, disagreement
from collbench.schema.store import RunWriter

MATRIX = np.array([[20_000, -21_000, 22_000], [19_000, -20_000, 21_000]])
RECORD = sampled(made_record(made_case(), 0, 2e-5), MATRIX)


def file_of(array: NDArray[np.generic]) -> io.BytesIO:
    content = io.BytesIO()
    np.save(content, array)
    content.seek(0)
    return content


def header(shape: tuple[int, ...], descr: str = "<i8") -> io.BytesIO:
    """A file that ends after its header."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    content.seek(0)
    return content


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_samples_are_read_as_they_were_written(kind: type[np.signedinteger[np.typing.NBitBase]], order: str) -> None:
    written = np.array(MATRIX, kind, order=order)  # type: ignore[call-overload]
    found = decode_samples(file_of(written), "x", RECORD)
    assert found.dtype == np.int64
    assert (found == MATRIX).all()


@pytest.mark.parametrize("array", [MATRIX[:, :2], MATRIX[:1], MATRIX.T, MATRIX[0]])
def test_an_array_of_another_shape_is_refused(array: NDArray[np.int64]) -> None:
    with pytest.raises(RunReadError, match=r"x: expected integers \[2, 3\], as its record says, found"):
        decode_samples(file_of(array), "x", RECORD)


@pytest.mark.parametrize("kind", ["<f8", "<i2", "<u8", ">i8"])
def test_an_array_of_another_type_is_refused(kind: str) -> None:
    with pytest.raises(RunReadError, match="x: expected integers"):
        decode_samples(file_of(MATRIX.astype(kind)), "x", RECORD)


def test_above_64_ranks_one_row_is_enough() -> None:
    case = made_case(ranks=ALL_RANKS_LIMIT + 1)
    record = msgspec.structs.replace(RECORD, case=case)
    assert decode_samples(file_of(MATRIX[:1]), "x", record).shape == (1, 3)
    assert decode_samples(file_of(np.tile(MATRIX[:1], (65, 1))), "x", record).shape == (65, 3)
    for rows in (2, 3, 64):
        with pytest.raises(RunReadError, match=r"expected integers \[65, 3\]"):
            decode_samples(file_of(np.tile(MATRIX[:1], (rows, 1))), "x", record)
    exactly = msgspec.structs.replace(RECORD, case=made_case(ranks=ALL_RANKS_LIMIT))
    with pytest.raises(RunReadError, match=r"expected integers \[64, 3\]"):
        decode_samples(file_of(MATRIX[:1]), "x", exactly)


@pytest.mark.parametrize("shape", [(2, MOST_VALUES), (2, 10**9), (2, 2**61)])
def test_what_would_take_more_memory_than_any_run_needs_is_refused_by_its_header(shape: tuple[int, ...]) -> None:
    record = msgspec.structs.replace(RECORD, samples=Samples(n=shape[1], invalid=0, warmup=0))
    with pytest.raises(RunReadError, match=f"at most {MOST_VALUES} are read"):
        decode_samples(header(shape), "x", record)


@pytest.mark.parametrize("descr", ["|i1", "<i8"])
def test_a_header_alone_takes_no_memory(descr: str) -> None:
    """A sparse file of gigabytes takes a few bytes on disk."""
    tracemalloc.start()
    with pytest.raises(RunReadError, match="as its record says"):
        decode_samples(header((2, 10**9), descr), "x", RECORD)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_file_that_ends_early_is_refused() -> None:
    whole = file_of(MATRIX).getvalue()
    with pytest.raises(RunReadError, match="x: ends before its last sample"):
        decode_samples(io.BytesIO(whole[:-1]), "x", RECORD)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -(2**62) - 1])
def test_times_that_cannot_be_are_refused(value: int) -> None:
    """The smallest number of all has no absolute value: what narrows or adds samples would make 0 of it."""
    array = MATRIX.copy()
    array[1, 1] = value
    with pytest.raises(RunReadError, match="x: holds an impossible time"):
        decode_samples(file_of(array), "x", RECORD)


def test_a_record_agrees_with_its_samples() -> None:
    assert disagreement(RECORD, MATRIX) == ""
    assert RECORD.seconds is not None
    rounded = msgspec.structs.replace(RECORD.seconds, p50=RECORD.seconds.p50 + 0.9e-9)
    assert disagreement(msgspec.structs.replace(RECORD, seconds=rounded), MATRIX) == ""


def test_a_median_that_its_samples_do_not_have_is_found() -> None:
    assert RECORD.seconds is not None
    tenth = msgspec.structs.replace(RECORD.seconds, p50=RECORD.seconds.p50 / 10)
    said = disagreement(msgspec.structs.replace(RECORD, seconds=tenth), MATRIX)
    assert said == "median 21 us in the file, 2.1 us in the record"
    none_late = msgspec.structs.replace(RECORD, samples=Samples(n=3, invalid=0, warmup=5))
    assert disagreement(none_late, MATRIX) == "1 samples late in the file, 0 in the record"


def measured(path: Path, changed: float = 1.0) -> Path:
    """A run of two cells with samples; all times of one are said to be so many times what they are."""
    draw = np.random.default_rng(1)
    with RunWriter(path, made_manifest(experiment=experiment(("a",)))) as writer:
        for launch in range(7):
            for policy, factor in (("host", 1.0), ("single", changed)):
                samples = draw.integers(18_000, 22_000, (2, 50))
                record = sampled(made_record(made_case(policy, image="a"), launch, 2e-5), samples)
                assert record.seconds is not None
                seconds = summarise((samples.max(axis=0) * factor).astype(np.int64))
                writer.append(msgspec.structs.replace(record, seconds=seconds), samples)
    return path


def test_a_run_whose_summaries_were_changed_is_told(tmp_path: Path) -> None:
    assert observe(measured(tmp_path / "good")).flaws == ()
    observed = observe(measured(tmp_path / "run", 0.1))
    (flaw,) = observed.flaws
    assert (flaw.kind, flaw.values[:3]) == ("disagreeing", (7, 14, 14))
    assert flaw_text(flaw) in misleading(observed)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no array")])
def test_samples_that_are_missing_or_damaged_are_told(tmp_path: Path, damage: object) -> None:
    run = measured(tmp_path / "run")
    damage(sorted((run / "samples").iterdir())[0])  # type: ignore[operator]
    observed = observe(run)
    (flaw,) = observed.flaws
    assert (flaw.kind, flaw.values[:3]) == ("unreadable", (1, 14, 14))
    captions = [figure.caption for one in chapter(observed, {}, 0.02).sections for figure in one.folded]
    assert any("1 samples files cannot be read and are left out." in caption for caption in captions)


def test_records_without_a_samples_file_are_no_doubt(tmp_path: Path) -> None:
    assert observe(write_run(tmp_path / "run", {made_case(): [1e-6] * 3})).flaws == ()


def test_of_many_files_some_are_opened(tmp_path: Path) -> None:
    """All of the first, every second up to twice as many, every fourth up to four times: the rest takes no time."""
    check = SampleCheck(tmp_path)

    def missing(launch: int) -> Record:
        return msgspec.structs.replace(
            RECORD, launch=launch, samples=Samples(n=3, invalid=1, warmup=5, file="samples/x.npy")
        )

    assert sum(1 for _ in check.passing(missing(launch) for launch in range(4 * EVERY))) == 4 * EVERY
    opened = EVERY + EVERY // 2 + 2 * EVERY // 4
    (flaw,) = check.flaws()
    assert (flaw.kind, flaw.where, flaw.values[:3]) == ("unreadable", tmp_path, (opened, opened, 4 * EVERY))
