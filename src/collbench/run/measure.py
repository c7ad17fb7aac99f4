"""One case on one rank: prepare, check, warm up, take samples, check again, send them to rank 0.

Input element (rank, block, column) is a small integer from a hash, chosen so that every reduction is exact in every
dtype. It repeats along the columns with a prime period. A collective treats all columns of a block alike, so its result
repeats with the same period, and one period of it checks a buffer of any size in one pass without extra memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench.bindings.spec import Buffer, Observation, Operation, Session, World, allgather, first_rank, numpy_dtype
from collbench.collectives.row import Array, Collective, CollectiveCase, fold
from collbench.errors import CollbenchError, LibraryError, LostRankError, Unsupported
from collbench.machine.facts import ContentionMeter, Waited, waited_now
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import MOST_NAMED, ranks_of
from collbench.run.failures import Failure, Watch, cause, raise_on_all
from collbench.run.sampling import Method, Sampling, TimedCall, Times, agree_on_driver, doubts, left_early, sample
from collbench.run.turns import Turns, sampled_in_turns
from collbench.schema.axes import DTYPES, Op
from collbench.schema.record import Record, ResultCheck, Samples, Seconds, Work, summarise
from collbench.schema.samples import ALL_RANKS_LIMIT

#: Primes, so that a part of a message in the wrong place does not match by chance.
PERIODS = (4093, 1021, 251, 61, 13)
_LARGEST_TILES = 1 << 20  # elements of all ranks' inputs for one period
_TILES_AT_ONCE = 1 << 16  # elements of the inputs that are made together
_CHUNK = 1 << 20  # elements written or compared at a time, to need no large buffer

#: No sum over all ranks exceeds this; all integers up to it are exact in the dtype (or fit it).
_EXACT = {"int8": 126, "uint8": 126, "float16": 2048, "bfloat16": 256, "fp8_e4m3": 16, "fp8_e5m2": 8}
_EXACT_ELSEWHERE = (1 << 15) - 1

#: Spacing of the numbers just above 1, where it is not that of float32.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52, "fp8_e4m3": 2.0**-3, "fp8_e5m2": 2.0**-2}
_VALUES = 126  # the largest input: below the poison in every dtype


def period_of(row: Collective, ranks: int) -> int:
    """The longest period for which all ranks' inputs stay small."""
    blocks = sum(row.blocks(rank, ranks, 0).send for rank in range(ranks))
    return next((p for p in PERIODS if p * max(blocks, 1) <= _LARGEST_TILES), PERIODS[-1])


def _hash(*parts: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of integers (murmur3's finaliser over a sum of odd multiples), as uint64 below 2**32."""
    mask = np.uint64(0xFFFFFFFF)
    mixed: NDArray[np.uint64] = np.zeros(1, np.uint64)
    for part, odd in zip(parts, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), strict=False):
        mixed = (mixed + (np.asarray(part, np.uint64) + np.uint64(1)) * np.uint64(odd)) & mask
        mixed ^= mixed >> np.uint64(15)
        mixed = (mixed * np.uint64(0x2C1B3C6D)) & mask
        mixed ^= mixed >> np.uint64(12)
    return mixed


def tiles(of: range, ranks: int, blocks: range, period: int, dtype: str, op: Op | None) -> Array:
    """One period of some blocks `of` some ranks' inputs, [ranks, blocks, period].

    `sum` and `avg`: integers so small that the sum over all ranks is exact; with very many ranks some hold 0.
    `prod`: in every column one rank holds a factor 2 or 3 and one rank a factor 1 to 5, the others 1. In fp8_e5m2,
    which has three bits for them, 2 and 1 to 3. Everything else: 0 to 126, as the dtype rounds it.
    """
    rank, block, column = np.ix_(*(np.array(each, np.uint64) for each in (of, blocks, range(period))))
    if op == "prod":
        holds_first = _hash(block, column, 1) % np.uint64(ranks) == rank
        holds_second = _hash(block, column, 2) % np.uint64(ranks) == rank
        factors = (np.uint64(1), np.uint64(3)) if dtype == "fp8_e5m2" else (np.uint64(2), np.uint64(5))
        first = np.where(holds_first, _hash(block, column, 3) % factors[0] + np.uint64(2), np.uint64(1))
        second = np.where(holds_second, _hash(block, column, 4) % factors[1] + np.uint64(1), np.uint64(1))
        values = first * second
    else:
        largest, one_in = _share(dtype, ranks) if op in ("sum", "avg") else (_VALUES, 1)
        values = _hash(block, column, rank) % np.uint64(largest + 1)
        values *= (column + block + rank) % np.uint64(one_in) == 0
    return values.astype(numpy_dtype(dtype))


def _share(dtype: str, ranks: int) -> tuple[int, int]:
    """The largest value of a rank for which sums are exact, and of how many ranks only one may hold it."""
    limit = _EXACT.get(dtype, _EXACT_ELSEWHERE)
    one_in = math.ceil(ranks / limit)
    return min(_VALUES, limit // math.ceil(ranks / one_in)), one_in


class _Tiles:
    """The inputs of all ranks, one period of each, made when they are asked for: the same blocks of many at once."""

    def __init__(self, row: Collective, ranks: int, root: int, period: int, dtype: str, op: Op | None) -> None:
        self._row, self._ranks, self._root = row, ranks, root
        self._period, self._dtype, self._op = period, dtype, op
        self._made, self._of, self._blocks = np.empty(0), range(0), range(0)

    def get(self, rank: int, blocks: slice) -> Array:
        """[blocks, period] of a rank."""
        wanted = range(self._row.blocks(rank, self._ranks, self._root).send)[blocks]
        if rank not in self._of or wanted != self._blocks:
            number = _TILES_AT_ONCE // (self._period * max(len(wanted), 1))
            self._of, self._blocks = range(rank, min(rank + max(number, 1), self._ranks)), wanted
            self._made = tiles(self._of, self._ranks, wanted, self._period, self._dtype, self._op)
        array: Array = self._made[rank - self._of.start]
        return array


@dataclass(frozen=True, slots=True)
class _InputOf:
    """What a rank contributes, as a meaning sees it."""

    tiles: _Tiles
    rank: int

    def __getitem__(self, blocks: slice, /) -> Array:
        return self.tiles.get(self.rank, blocks)


@lru_cache(maxsize=4)
def expectation(
    row: Collective, rank: int, ranks: int, root: int, dtype: str, op: Op | None
) -> tuple[Array, Array | None]:
    """One period of a rank's input [blocks.send, period] and of its result [blocks.recv, period]."""
    all_ranks = _Tiles(row, ranks, root, period_of(row, ranks), dtype, op)
    inputs = [_InputOf(all_ranks, r) for r in range(ranks)]
    return inputs[rank][:], row.meaning(rank, inputs, root, fold(op))


def expectation_of(row: Collective, case: CollectiveCase, rank: int) -> tuple[Array, Array | None]:
    """`expectation` of a case."""
    return expectation(row, rank, case.ranks, case.root or 0, case.dtype, case.op)


def _spans(count: int, period: Array) -> Iterator[tuple[int, int, Array]]:
    """(block, start, values) of chunks of [blocks, count] that hold one period [blocks, period], repeated."""
    length = period.shape[1]
    step = max(_CHUNK // length, 1) * length
    for block, pattern in enumerate(period):
        repeated = np.resize(pattern, min(count, step))
        for start in range(0, count, step):
            yield block, start, repeated[: count - start]


def write(target: Buffer, period: Array) -> None:
    """Fill [blocks, count] with one period [blocks, period], repeated."""
    for block, start, values in _spans(target.shape[1], period):
        target.store(block, start, values)


def poison(target: Buffer) -> None:
    """Fill with bytes 0xFF: -1, the largest value or NaN, which no result contains."""
    blocks, count = target.shape
    poisoned = np.full(min(count, _CHUNK) * target.dtype.itemsize, 0xFF, np.uint8).view(target.dtype)
    for block, start in product(range(blocks), range(0, count, _CHUNK)):
        target.store(block, start, poisoned[: count - start])


def count_wrong(result: Buffer, period: Array, tolerance: float = 0.0) -> int:
    """How many elements [blocks, count] differ relatively by more than `tolerance` from [blocks, period] repeated."""
    count, right = result.shape[1], 0
    for block, start, expected in _spans(count, period):
        values = result.load(block, start, start + len(expected))
        if tolerance == 0.0:
            right += int(np.count_nonzero(values == expected))
        else:  # a NaN is not close
            close = np.isclose(values.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=0.0)
            right += int(np.count_nonzero(close))
    wrong: int = len(period) * count - right
    return wrong


def tolerance_of(dtype: str, op: Op | None, ranks: int) -> float:
    """The relative error that a correct result may have: 0 except for averages of floats.

    NCCL multiplies every rank's value by 1/ranks and then adds (enqueue.cc, ncclAvg is ncclDevPreMulSum). Unless ranks
    is a power of two, it may round 1/ranks, each product and each of ranks - 1 sums by half a spacing, and the expected
    value is rounded too. At most a quarter, so that a sum which was not divided is wrong.
    """
    power_of_two = ranks & (ranks - 1) == 0
    if op != "avg" or power_of_two or np.issubdtype(numpy_dtype(dtype), np.integer):
        return 0.0
    return min((ranks + 2) / 2 * _EPSILON.get(dtype, 2.0**-23), 0.25)


def prepare_buffers(sent: Buffer | None, received: tuple[Buffer, ...], period: Array) -> None:
    """Poison the result, then write the input, which in place may be a part of the result."""
    for part in received:
        poison(part)
    if sent is not None:
        write(sent, period)


def count_wrong_parts(received: tuple[Buffer, ...], period: Array, tolerance: float = 0.0) -> int:
    """`count_wrong` over parts that are consecutive blocks of the result."""
    wrong = first = 0
    for part in received:
        wrong += count_wrong(part, period[first : first + part.shape[0]], tolerance)
        first += part.shape[0]
    return wrong


#: How late the last rank enters when a barrier is checked (ns).
BARRIER_DELAY = 100_000


class Refused(Exception):
    """The library does not have the operation at all; raised on all ranks."""


def _perform(timed_call: TimedCall, watch: Watch) -> None:
    """Make the call once.

    A call that only issues work fails at once: NCCL then knows that it has no algorithm, and all ranks hear of it. One
    that performs the operation blocks the other ranks, so that its error aborts the job.
    """
    if timed_call.operation.call.completion is None:
        timed_call.once()
        return
    session, failure = timed_call.session, None
    try:
        timed_call.once()
    except (LibraryError, RuntimeError) as error:
        failure = Failure.of(session, error)
    if (agreed := cause(session, failure, watch)) is not None:
        raise Refused(agreed.reason)


def check_result(
    timed_call: TimedCall, case: CollectiveCase, row: Collective, method: Method, watch: Watch
) -> tuple[int | None, str]:
    """Run the operation once on known input; wrong elements over all ranks (None: checks are off), and where.

    It uses the driver that is timed: a check of another one would prove nothing about the numbers.
    """
    operation, world = timed_call.operation, timed_call.session.world
    sent, expected = expectation_of(row, case, world.rank)
    prepare_buffers(operation.input, operation.output, sent)
    if method.check != 0 and not row.moves_data:
        return _checked_barrier(timed_call, method)
    _perform(timed_call, watch)
    if method.check == 0:
        return None, ""
    tolerance = tolerance_of(case.dtype, case.op, case.ranks)
    wrong = 0 if expected is None else count_wrong_parts(operation.output, expected, tolerance)
    if (everywhere := int(world.total([wrong])[0])) == 0:
        return 0, ""
    count, root = block_count(case, row), case.root or 0
    places = [
        f"rank {rank}: {n} of {row.blocks(rank, case.ranks, root).recv * count} elements"
        for rank, n in enumerate(allgather(world, wrong)) if n
    ]  # fmt: skip
    more = [f"and on {len(places) - MOST_NAMED} more ranks"] if len(places) > MOST_NAMED else []
    return everywhere, ", ".join([*places[:MOST_NAMED], *more])


def _checked_barrier(timed_call: TimedCall, method: Method) -> tuple[int | None, str]:
    """How many ranks left a barrier before the last one entered; None where no clock shows it.

    On synchronised clocks by more than they may differ, and the last one enters that much later.
    """
    session, early, clocks, bound = timed_call.session, 0, method.clocks, 0
    for last in (session.world.size - 1, 0):
        if clocks is not None:
            clocks.begin()
            session.signals.barrier()
            bound = clocks.bound
        if session.world.rank == last:
            until = session.clock() + BARRIER_DELAY + 4 * bound
            while session.clock() < until:
                pass
        stamps = timed_call.once()
        if clocks is not None:
            clocks.synchronise()
            stamps = clocks.common(stamps)
            bound = clocks.bound
        early += left_early(stamps, session.world, 2 * bound)
    if method.clock == "local":
        return None, ""
    return early, f"{early} ranks left before the last one entered"


def block_count(case: CollectiveCase, row: Collective) -> int:
    """Elements of a block."""
    return row.count(case.size, DTYPES[case.dtype], case.ranks)


#: A record, and on rank 0 its samples in ns: [ranks, n], above 64 ranks [1, n].
Measured = tuple[Record, NDArray[np.int64] | None]


def measure(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch, turns: Turns | None = None
) -> Measured:
    """Measure one case. Collective: all ranks call it with the same arguments; rank 0 alone gets numbers.

    Raises:
        Interrupted: a rank was told to stop; raised on all ranks.
        Exception: an error that this rank alone knows of, so the job must be aborted.
    """
    doing = f"{case.collective} {case.size} B on {case.backend}"
    watch.beat(f"{doing}: preparing")
    prepared = _prepare(case, row, session, method, watch)
    if isinstance(prepared, Failure):
        return Record(case=case.identity, launch=0, status=prepared.status, reason=prepared.reason), None
    calls, operations, count = calls_of(case, method), max(case.graph, 1), block_count(case, row)
    timed_call = agree_on_driver(prepared, case.driver, method.align, session, calls, operations)
    amount = row.size(count, DTYPES[case.dtype], case.ranks)
    work = Work(amount=amount, count=count, bus_factor=row.bus_factor(case.ranks))
    blank = Record(case=case.identity, launch=0, status="ok", work=work)

    def checked(when: str, operations: int) -> tuple[int | None, Record | None]:
        """Wrong elements, and the record of a case that has some, or that the library refuses."""
        wrong: int | None = None
        for number in range(1, operations + 1):
            watch.beat(f"{doing}: checking {when} timing")
            try:
                wrong, where = check_result(timed_call, case, row, method, watch)
            except Refused as refusal:
                return None, Record(case=case.identity, launch=0, status="failed", reason=str(refusal))
            if wrong:
                which = f" in operation {number} of {operations}" if operations > 1 else ""
                reason = f"wrong result {when} timing{which}: {where}"
                return wrong, msgspec.structs.replace(
                    blank, status="failed", reason=reason, check=ResultCheck(wrong=wrong))  # fmt: skip
        return wrong, None

    _, wrong_before = checked("before", 1)
    if wrong_before is not None:
        return wrong_before, None
    observation = Observation() if prepared.observe is None else prepared.observe(timed_call.once)
    sampling, record = _time(blank, timed_call, method, watch, doing, turns)
    wrong, wrong_after = checked("after", max(1, method.check - 1))
    if wrong_after is not None:
        return wrong_after, None
    samples = gathered(sampling.times(sampling.stamps), session.world)
    if first_rank(session.world, observation != Observation()) is not None:  # most libraries say nothing
        observation = Observation.merged(session.world.gather(observation) or ())
    if samples is None:
        return Record(case=case.identity, launch=0, status="ok"), None
    record = msgspec.structs.replace(
        record, check=ResultCheck(wrong=wrong), shared_gpu=facts_of_ranks.is_shared(method.ranks),
        transport=observation.transport or session.transport, algorithm=observation.algorithm,
        protocol=observation.protocol,
        notes=(*record.notes, *observation.notes, *facts_of_ranks.cramped(method.ranks), *method.siblings),
    )  # fmt: skip
    return fill_results(record, samples, tuple(stage.name for stage in prepared.call.stages), method)


def _prepare(
    case: CollectiveCase, row: Collective, session: Session, method: Method, watch: Watch
) -> Operation | Failure:
    """The operation, or why a rank has none. Collective."""
    failure: Failure | None = None
    try:
        if case.ranks < row.min_ranks:
            raise Unsupported(f"{row.name} needs {row.min_ranks} ranks or more")
        if case.in_place and not row.has_in_place:
            raise Unsupported(f"{row.name} has no in-place form")
        operation = session.prepare(case, row, block_count(case, row))
        if method.cadence == "streaming" and not operation.call.streams:
            raise Unsupported(f"cadence streaming: {row.name} on {case.backend} completes every call before it returns")
    except Unsupported as unsupported:
        failure = Failure("skipped", str(unsupported))
    except MemoryError as error:
        failure = Failure("failed", f"out of memory ({error})", session.world.rank)
    except LibraryError as error:
        failure = Failure.of(session, error)
    except CollbenchError as error:
        failure = Failure("failed", str(error), session.world.rank)
    return cause(session, failure, watch) or operation


def _time(
    blank: Record, timed_call: TimedCall, method: Method, watch: Watch, doing: str, turns: Turns | None
) -> tuple[Sampling, Record]:
    """The samples of a case, and its record with what was observed meanwhile. Collective."""
    session = timed_call.session
    simulated = session.clock is not time.monotonic_ns
    meter = ContentionMeter(session.clock, Waited if simulated else waited_now)
    in_turns = None
    if turns is not None:
        quota = any(confined.cpu_quota is not None for confined in method.confinement)
        in_turns = partial(sampled_in_turns, turns=turns, watch=watch, doing=doing, quota=quota, meter=meter)
    gpu_before = facts_of_ranks.gpu_readings(session)
    meter.start()
    sampling = sample(timed_call, method, watch, doing, in_turns)
    meter.stop()
    contended, notes = facts_of_ranks.contended(meter.passed, session.world)
    gpus = facts_of_ranks.gpu_states(gpu_before, facts_of_ranks.gpu_readings(session), session.world)
    watch.beat(f"{doing}: timing on the device")
    device = device_seconds(timed_call, sampling)
    # Outside the library's calls; a short case is over before the watchdog asks for it.
    error = session.async_error()
    lost = None if error is None else LostRankError(f"rank {session.world.rank}: {doing}: {error}.")
    raise_on_all(session, lost)
    return sampling, msgspec.structs.replace(
        blank, driver=timed_call.driver, align=sampling.align.kind, cadence=method.cadence, clock=sampling.clock,
        clock_error=None if sampling.clocks is None else sampling.clocks.error,
        in_place=timed_call.operation.in_place, burst=timed_call.burst * timed_call.operations,
        confinement=method.confinement, oversubscribed=method.oversubscribed, contended=contended,
        notes=(*sampling.notes, *notes), device=device, gpus=gpus,
    )  # fmt: skip


#: Most operations that are timed on the device, and how long that may take (s).
DEVICE_SAMPLES, DEVICE_BUDGET = 50, 0.5
FEWEST_DEVICE_SAMPLES = 3


def calls_of(case: CollectiveCase, method: Method) -> int:
    """Calls in a sample: one, or a burst in streaming cadence; a graph contains a burst itself."""
    if method.cadence == "isolated":
        return 1
    return method.launches if case.graph else method.burst


def device_seconds(timed_call: TimedCall, sampling: Sampling) -> Seconds | None:
    """The operation's time on the slowest device, by the devices' own clocks; None without devices. Collective."""
    world, stamps = timed_call.session.world, sampling.stamps
    median = round(float(np.median(stamps.left - stamps.entered)))
    _, (device, slowest) = world.minmax([timed_call.operation.call.stopwatch is not None, median])
    if not device:
        return None
    n = operations_on_device(int(slowest) * 1e-9)
    seconds = timed_call.device_times(n)
    _, times = world.minmax(np.zeros(n, np.int64) if seconds is None else np.rint(seconds * 1e9).astype(np.int64))
    return summarise(np.maximum(times, 1))


def operations_on_device(seconds: float) -> int:
    """Operations to time on the device, from the median time of the slowest rank."""
    return max(FEWEST_DEVICE_SAMPLES, min(DEVICE_SAMPLES, int(DEVICE_BUDGET / max(seconds, 1e-9))))


@dataclass(frozen=True)
class Gathered:
    """What rank 0 has of the samples of a case.

    `matrix` in ns is [ranks, n], above 64 ranks the samples alone, [1, n]; late samples are negative. `legs` are
    [stages, n] in ns. `p50` is each rank's median over the samples in time, in ns; empty where all were late.
    """

    matrix: NDArray[np.int64]
    legs: NDArray[np.int64]
    p50: list[float]


def gathered(times: Times, world: World) -> Gathered | None:
    """On rank 0, from the times of every rank; None elsewhere. Collective."""
    rows = world.gather(times.of_rank) if world.size <= ALL_RANKS_LIMIT else None
    p50: list[float] | None = []
    if times.in_time.any():
        p50 = world.gather(float(np.quantile(times.of_rank[times.in_time], 0.5)))
    if world.rank != 0 or p50 is None:
        return None
    return Gathered(times.samples[np.newaxis] if rows is None else np.stack(rows), times.legs, p50)


def fill_results(
    blank: Record, results: Gathered, stages: Sequence[str], method: Method
) -> tuple[Record, NDArray[np.int64]]:
    """The record with all that is computed from the samples, and the samples as they are stored."""
    largest = results.matrix.max(axis=0)
    in_time = largest > 0
    n, valid = len(largest), largest[in_time]
    samples = Samples(n=n, invalid=n - len(valid), warmup=method.warmup)
    if len(valid) == 0:
        reason = f"all {n} samples were late: too few cores, or a busy machine. Use align barrier"
        return msgspec.structs.replace(blank, status="failed", reason=reason, samples=samples), results.matrix
    several = stages if len(stages) > 1 else ()
    times = results.legs[: len(several), in_time]
    legs = {name: summarise(np.maximum(leg, 1)) for name, leg in zip(several, times, strict=True)}
    ranks = ranks_of([median * 1e-9 for median in results.p50], method.ranks)
    seconds = summarise(valid)
    notes = (*blank.notes, *doubts(blank.clock_error, seconds.p50 * blank.burst))
    filled = msgspec.structs.replace(blank, samples=samples, seconds=seconds, ranks=ranks, legs=legs, notes=notes)
    return filled, results.matrix
