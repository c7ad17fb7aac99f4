"""Whatever the types allow survives the disk; plans, sizes and stop rules."""

from __future__ import annotations

import contextlib
import io
import math
import re
import tempfile
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tests.runs import Run, read_run

from collbench.errors import RunReadError, UnitError, in_one_line
from collbench.run.sampling import LARGEST_BATCH, LONGEST_BATCH, StopRule
from collbench.schema import manifest as manifests
from collbench.schema import record as records
from collbench.schema.axes import DRIVERS, MOST_SIZES, THREAD_LEVELS, Sizes
from collbench.schema.case import ALIGNMENTS, CADENCES, Case, Where
from collbench.schema.manifest import Host, Library, Manifest, Protocol
from collbench.schema.record import Ranks, Record, ResultCheck, Samples, Seconds, Status, Work
from collbench.schema.samples import ALL_RANKS_LIMIT
from collbench.schema.store import RunWriter
from collbench.units import LARGEST_SIZE, format_duration, format_size, parse_duration, parse_size

whole = st.integers(-(2**62), 2**62)
real = st.floats(allow_nan=False, allow_infinity=False)
amount = st.integers(0, 2**62)
few = st.integers(1, 2**20)
duration = st.floats(0, 1e18)
time = st.floats(0, 1e10)
#: Texts that are read as they were written: others have their control characters written out.
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20).filter(lambda one: in_one_line(one) == one)

what = st.fixed_dictionaries({}, optional={"size": amount, "dtype": text, "op": text, "root": st.just(0), "n": whole,
                                           "of_its_own": text | real | st.booleans()})  # fmt: skip
how = st.fixed_dictionaries({"backend": text}, optional={
    "driver": st.sampled_from(DRIVERS), "thread_level": st.sampled_from(THREAD_LEVELS), "in_place": st.booleans(),
    "algorithm": st.none() | text, "graph": st.integers(0, 9),
})  # fmt: skip
places = st.builds(
    Where, ranks=few, engine=text, image=st.none() | text, policy=text, isolation=st.none() | text, affinity=text
)
cases = st.builds(Case, workload=text, what=what, how=how, where=places)


def ordered(times: list[float], mean: float, lag1: float | None) -> Seconds:
    """A summary as samples may have it: five quantiles, and the ends of the median's interval among them."""
    least, low, p50, high, p95, p99, most = sorted(times)
    return Seconds(
        min=least, p50=p50, p95=p95, p99=p99, max=most, mean=min(max(mean, least), most), ci95=(low, high), lag1=lag1
    )


seconds = st.builds(ordered, st.lists(time, min_size=7, max_size=7), time, st.none() | real)
ranks = st.builds(
    Ranks,
    p50=st.lists(time, max_size=4).map(tuple),
    binding=st.lists(text, max_size=4).map(tuple),
    container=st.lists(st.none() | text, max_size=4).map(tuple),
)
complete = st.builds(
    Record,
    case=cases,
    launch=st.integers(0, 2**40 - 1),
    status=st.sampled_from(get_args(Status)),
    reason=st.none() | text,
    work=st.none() | st.builds(Work, amount=amount, count=st.none() | amount, bus_factor=st.none() | st.floats(0, 1e6)),
    check=st.none() | st.builds(ResultCheck, wrong=st.none() | amount),
    samples=st.none() | st.builds(Samples, n=amount, invalid=st.just(0), warmup=amount, file=st.none() | text),
    seconds=st.none() | seconds,
    ranks=st.none() | ranks,
    driver=st.none() | st.sampled_from(DRIVERS),
    align=st.none() | st.sampled_from(ALIGNMENTS),
    cadence=st.none() | st.sampled_from(CADENCES),
    clock=st.sampled_from([None, "common", "local"]),
    in_place=st.none() | st.booleans(),
    transport=st.none() | text,
    contended=st.none() | st.booleans(),
    oversubscribed=st.none() | st.booleans(),
    notes=st.lists(text, max_size=3).map(tuple),
)
documents = st.builds(
    Manifest,
    created=text,
    collbench=text,
    python=text,
    command=st.lists(text, max_size=3).map(tuple),
    title=text,
    ranks=st.integers(1, 2**20),
    protocol=st.builds(
        Protocol, align=text, cadence=text, warmup=amount, check=amount, iters=st.none() | amount, budget=duration,
        floor=amount, cap=amount, timeout=duration,
    ),
    thread_level=st.dictionaries(text, text, max_size=2),
    launcher=text,
    libraries=st.lists(st.builds(Library, name=text, version=text, path=st.none() | text), max_size=2).map(tuple),
    packages=st.dictionaries(text, text, max_size=2),
    hosts=st.lists(
        st.builds(
            Host, name=text, ranks=st.just((0, 1)), kernel=text, cpu=text, cores=amount, memory=st.none() | amount
        ),
        max_size=2,
    ).map(tuple),
    environment=st.dictionaries(text, text, max_size=2),
    plan=st.none() | st.dictionaries(text, st.recursive(text | whole, st.lists, max_leaves=5), max_size=2),
    simulated=st.booleans(),
)  # fmt: skip


@given(complete)
def test_a_record_survives_its_line(record: Record) -> None:
    """One that is whole, with a right result and a valid sample where it is ok, and without times where it is not."""
    if record.status == "ok":
        assume(None not in (record.work, record.samples, record.seconds))
        assume(record.samples is None or record.samples.n > 0)
        assume(record.check is None or not record.check.wrong)
    else:
        record = msgspec.structs.replace(record, seconds=None, ranks=None)
    line = records.encode(record)
    assert b"\n" not in line
    assert records.decode(line) == record


@given(documents)
def test_a_manifest_survives_its_file(manifest: Manifest) -> None:
    assert manifests.decode(manifests.encode(manifest)) == manifest


@pytest.mark.slow
@pytest.mark.parametrize("decode", [records.decode, manifests.decode])
@given(data=st.data())
def test_garbage_is_refused_and_nothing_else(decode: Callable[[bytes], object], data: st.DataObject) -> None:
    """Bytes, any JSON, and good documents with a hole or a flipped bit."""
    json = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
        lambda inner: st.lists(inner) | st.dictionaries(text | st.just("schema"), inner),
    ).map(msgspec.json.encode)
    good = data.draw(complete.map(records.encode) | documents.map(manifests.encode))
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :]
    hole = good[:at] + good[data.draw(st.integers(at + 1, len(good))) :]
    for line in (data.draw(st.binary()), data.draw(json), flipped, hole):
        with contextlib.suppress(RunReadError):
            decode(line)


@st.composite
def sampled(draw: st.DrawFn) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[ranks, n] as `out_times` gives it: positive, but late samples negative on every rank."""
    shape = draw(st.tuples(st.sampled_from([1, 2, 5, 64, 65, 200]), st.integers(1, 8)))
    largest = draw(st.sampled_from([1000, 2**31 - 1, 2**31, 2**62]))
    values = draw(arrays(np.int64, shape, elements=st.integers(1, largest)))
    late = draw(arrays(np.bool_, shape[1]))
    return np.where(late, -values, values)


@pytest.mark.slow
@given(several=st.lists(sampled(), min_size=1, max_size=4))
def test_samples_survive_the_disk(stored_run: Path, several: list[Any]) -> None:
    stored = read_run(stored_run)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "run"
        with RunWriter(directory, stored.manifest) as writer:
            for launch, matrix in enumerate(several):
                case = stored.records[0].case.having(ranks=len(matrix))
                taken = Samples(n=matrix.shape[1], invalid=int((matrix[0] < 0).sum()), warmup=5)
                failed = Record(case=case, launch=launch, status="failed", reason="late", samples=taken)
                writer.append(failed, matrix)
        run = read_run(directory)
        for record, matrix in zip(run.records, several, strict=True):
            found = run.samples(record)
            assert found is not None
            assert found.dtype == np.int64
            if len(matrix) <= ALL_RANKS_LIMIT:
                assert (found == matrix).all()
            else:
                assert found.tolist() == [(np.sign(matrix[0]) * np.abs(matrix).max(axis=0)).tolist()]


@given(data=st.data())
def test_a_damaged_samples_file_is_refused_and_nothing_else(stored_run: Path, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    matrix = data.draw(arrays(np.int32, array_shapes(min_dims=2, max_dims=2)))
    np.save(buffer, matrix, allow_pickle=False)
    good = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, min(len(good), 128) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "samples").mkdir()
        (Path(temporary) / "samples" / "x.npy").write_bytes(good[: data.draw(st.integers(0, len(good)))])
        stored = read_run(stored_run)
        record = stored.records[0]
        case = record.case.having(ranks=len(matrix))
        taken = Samples(n=matrix.shape[1], invalid=0, warmup=5, file="samples/x.npy")
        record = msgspec.structs.replace(record, case=case, samples=taken)
        run = Run(Path(temporary), stored.manifest, (record,))
        with contextlib.suppress(RunReadError):
            samples = run.samples(record)
            assert samples is not None
            assert samples.shape == matrix.shape


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(2, 100))
def test_a_sweep_by_factor(low: int, more: int, factor: int) -> None:
    sizes = Sizes(min=low, max=low + more, factor=factor).expand()
    assert sizes[0] == low
    assert all(later == max(earlier * factor, 1) for earlier, later in pairwise(sizes))
    assert all(earlier < later for earlier, later in pairwise(sizes))
    assert sizes[-1] <= low + more < max(sizes[-1] * factor, 1)


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**30))
def test_a_sweep_by_step(low: int, more: int, step: int) -> None:
    assume(more // step < MOST_SIZES)
    sizes = Sizes(min=low, max=str(low + more), step=step).expand()
    assert sizes == tuple(range(low, low + more + 1, step))


PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@given(st.integers(0, LARGEST_SIZE))
def test_a_printed_size_is_read_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == parse_size(size) == size


@given(st.integers(0, 2**20), st.sampled_from("KMGT"))
def test_whole_units_are_printed_short(number: int, prefix: str) -> None:
    size = number * 1024 ** PREFIXES[prefix]
    assert parse_size(format_size(size)) == size
    assert len(format_size(size)) <= len(f"{number}{prefix}")


@given(
    st.integers(0, 10**6),
    st.text("0123456789", min_size=1, max_size=12),
    st.sampled_from(list(PREFIXES)),
    st.sampled_from(["", "B", "b", "iB"]),
    st.booleans(),
)
def test_fractions_are_exact_or_refused(whole: int, digits: str, prefix: str, unit: str, small: bool) -> None:
    text = f"{whole}.{digits}{prefix.lower() if small else prefix}{unit}"
    expected = Fraction(f"{whole}.{digits}") * 1024 ** PREFIXES[prefix]
    if expected.denominator == 1:
        assert parse_size(text) == expected
    else:
        with pytest.raises(UnitError, match=re.escape(text)):
            parse_size(text)


@pytest.mark.slow
@given(st.text(max_size=30))
def test_any_text_is_a_size_or_a_unit_error(text: str) -> None:
    with contextlib.suppress(UnitError):
        assert 0 <= parse_size(text) <= LARGEST_SIZE


@given(st.text(max_size=30) | st.floats())
def test_anything_is_a_duration_or_a_unit_error(text: str | float) -> None:
    with contextlib.suppress(UnitError):
        assert 0.0 <= parse_duration(text) < math.inf


@given(st.floats(1e-9, 1e12))
def test_a_printed_duration_is_read_to_three_digits(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@given(st.floats(0.0, 1e15))
def test_a_duration_given_as_a_number_is_itself(seconds: float) -> None:
    assert parse_duration(seconds) == seconds


# Stop rules end, whatever the pace, and keep their bounds -------------------------------------------------------------

paces = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5)


def played(rule: StopRule, paces: list[float], most: int) -> tuple[int, float]:
    """Samples and seconds until the rule ends, when each batch in turn runs at another pace (s per sample)."""
    done, seconds, batches = 0, 0.0, 0
    while (n := rule.next_batch(done, seconds)) > 0:
        assert n <= LARGEST_BATCH
        if done and seconds:
            assert n == 1 or n * seconds / done <= LONGEST_BATCH * (1 + 1e-9)
        done += n
        seconds += n * paces[batches % len(paces)]
        batches += 1
        assert batches <= most
    return done, seconds


@given(st.integers(1, 20_000), paces)
def test_fixed_sums_to_n(n: int, paces: list[float]) -> None:
    done, _ = played(StopRule.fixed(n), paces, most=n)
    assert done == n


@given(st.floats(1e-9, 1e300), st.integers(1, 500), st.integers(0, 10_000), paces)
def test_a_budget_ends_between_floor_and_cap(budget: float, floor: int, more: int, paces: list[float]) -> None:
    rule = StopRule(budget, floor, floor + more)
    done, seconds = played(rule, paces, most=floor + more)
    assert floor <= done <= floor + more
    assert done == floor + more or done == floor or seconds > 0.0
