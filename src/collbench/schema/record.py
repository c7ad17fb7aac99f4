"""A record: what one case gave in one launch. One line of `records.jsonl`. docs/record.md describes every field."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from collbench.errors import RunReadError
from collbench.schema import files
from collbench.schema.axes import Driver
from collbench.schema.case import Alignment, Cadence, Case, SampleClock, Where, refuse_odd
from collbench.schema.files import Amount, Burst, ByteCount, Count, LaunchNumber, Rank, RankCount, ShortText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Time = Annotated[float, msgspec.Meta(ge=0, le=1e10)]  # seconds, never negative, and less than three centuries

_ROUNDING = 1e-9  # two quantiles that are one value may differ in their last digits


class Seconds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The distribution of the valid samples of one case in one launch (s). No outliers are removed.

    `ci95` is of the median over the samples of this launch, which are not independent: comparisons compute one from
    several launches. Where `lag1`, the autocorrelation of neighbouring samples, is far from 0, it is too narrow.
    """

    min: Time
    p50: Time
    p95: Time
    p99: Time
    max: Time
    mean: Time
    ci95: tuple[Time, Time]
    lag1: float | None


def in_order(seconds: Seconds) -> bool:
    """Whether, up to rounding, quantiles rise, and the mean and the interval of the median are possible."""
    least, median, most, mean, (low, high) = seconds.min, seconds.p50, seconds.max, seconds.mean, seconds.ci95
    p95, p99 = seconds.p95, seconds.p99
    if least <= low <= median <= high <= most and median <= p95 <= p99 <= most and least <= mean <= most:
        return True
    pairs = ((least, median), (median, p95), (p95, p99), (p99, most), (least, mean), (mean, most), (least, low),
             (low, median), (median, high), (high, most))  # fmt: skip
    return all(lower <= upper * (1 + _ROUNDING) for lower, upper in pairs)


def median_interval_ranks(n: int, confidence: float = 0.95) -> tuple[int, int]:
    """Zero-based order statistics (low, high) that enclose the median of `n` samples with at least `confidence`.

    The number of samples below the median is Binomial(n, 1/2), whatever the distribution (David and Nagaraja, Order
    Statistics, 3rd ed., section 7.1). Below 6 samples no pair reaches 95 %, and the whole range is returned.
    """
    tail = (1.0 - confidence) / 2.0
    cumulative, low = 0.0, -1
    for k in range((n + 1) // 2):
        log_choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        cumulative += math.exp(log_choose - n * math.log(2.0))
        if cumulative > tail:
            break
        low = k
    low = max(low, 0)
    return low, n - 1 - low


def lag1_autocorrelation(values: NDArray[np.float64]) -> float | None:
    """Sample autocorrelation at lag 1 of `values` [n]; None below 3 values or when they are all the same."""
    if len(values) < 3:
        return None
    centred = values - values.mean()
    power = float((centred * centred).sum())
    return float((centred[:-1] * centred[1:]).sum()) / power if power > 0.0 else None


def summarise(nanoseconds: NDArray[np.int64]) -> Seconds:
    """Summary of the valid samples [n] in nanoseconds; n must be at least 1. Quantiles interpolate linearly."""
    import numpy as np

    seconds = nanoseconds.astype(np.float64) * 1e-9
    ordered = np.sort(seconds)
    p50, p95, p99 = map(float, np.quantile(ordered, [0.5, 0.95, 0.99]))
    ranks = median_interval_ranks(len(ordered))
    least, most, mean, low, high = map(float, (*ordered[[0, -1]], ordered.mean(), *ordered[list(ranks)]))
    lag1 = lag1_autocorrelation(seconds)
    return Seconds(min=least, p50=p50, p95=p95, p99=p99, max=most, mean=mean, ci95=(low, high), lag1=lag1)


class MachineRanks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ranks of one machine: of their medians (s) the smallest, the quartiles and the largest."""

    name: str
    ranks: RankCount
    p50: tuple[Time, Time, Time, Time, Time]
    gpus: Count = 0


class SlowRank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the ranks with the largest medians (s), and its hostname."""

    rank: Rank
    p50: Time
    host: str


class Ranks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each rank took and where it was. Above 64 ranks `machines` and the `slowest` ranks stand for them."""

    p50: tuple[Time, ...]
    binding: tuple[str, ...]
    container: tuple[str | None, ...]
    gpu: tuple[str | None, ...] = ()
    host: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    machines: tuple[MachineRanks, ...] = ()
    slowest: tuple[SlowRank, ...] = ()

    @property
    def on_gpus(self) -> bool:
        return any(self.gpu) or any(machine.gpus for machine in self.machines)


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks in MHz, power in watts, temperature in degrees Celsius; None where the GPU does not report it.

    Idling and clocks set by a user do not make it `throttled`. A MIG device has the values of its GPU.
    """

    uuid: str
    sm_clock: Count | None = None
    memory_clock: Count | None = None
    power: Amount | None = None
    temperature: int | None = None
    throttled: tuple[str, ...] | None = None


SCHEMA = 1

Status = Literal["ok", "failed", "skipped"]

#: How the reason of a failed record begins whose launch was lost to its cluster (`errors.LaunchLost`).
LOST = "lost: "


Unit = ShortText  #: What work is counted in; of a score that a program printed, the unit of the score itself.


#: As what work over time is told. What a program printed is a `score` where higher is better, and else a `number`: the
#: seconds of its record are then the amount over the score, or the number over the amount, and no time.
Shown = Literal["time", "rate", "score", "number"]


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What one operation did: the time of a record is the time for `amount` of `unit`.

    Of a collective these are the bytes that move, and `count` the elements of a block, after rounding to whole blocks.
    """

    amount: Annotated[float, msgspec.Meta(ge=0, le=1e30)] | Count
    unit: Unit = "bytes"
    shown: Shown = "time"
    count: Count | None = None
    bus_factor: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None


class ResultCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """Elements that differed from the meaning, over all ranks, before and after timing. None: not checked.

    `figures` are what a program's check measured; `repeatable` those that the same software must reproduce anywhere.
    """

    wrong: Count | None
    figures: dict[ShortText, files.FigureValue] = {}
    repeatable: dict[ShortText, files.FigureValue] = {}


class CpuTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """All executions of a program together: processor time, user and system, and the time that passed (s)."""

    user: Time
    system: Time
    wall: Time


class Samples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """`n` timed operations, `invalid` of them late; `file` relative to the run, None if not kept."""

    n: Count
    invalid: Count
    warmup: Count
    file: str | None = None


class ClockError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the clocks of `hosts` hosts differed from the first one's at most (s): guaranteed, and `seen`."""

    bound: Time
    seen: Time
    hosts: RankCount


class GpuState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU just before and just after the samples were taken, as NVML sees it."""

    before: Reading
    after: Reading


class Confinement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What confined these ranks, seen from inside. `ranks` are all of them, or of `count` ranks the first few.

    Sizes in bytes, `cpu_quota` in cores; None: unlimited, not recorded, or the kernel does not tell. `capabilities` is
    the bounding set without CAP_, `all` where nothing is missing.
    """

    ranks: tuple[Rank, ...]
    namespaces: dict[str, Count]
    shm: ByteCount | None
    memlock: ByteCount | None
    capabilities: tuple[str, ...]
    seccomp: bool
    no_new_privileges: bool
    cpu_quota: Amount | None
    memory_limit: ByteCount | None
    speculation: dict[ShortText, ShortText] = {}
    cpu_weight: Count | None = None
    priority: ShortText | None = None
    own: tuple[ShortText, ...] | None = None
    count: RankCount | None = None


class Slice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn of a world in a duet: the `place`-th of its round, both from 0, begun `start` s after the case's first.

    `seconds` is the mean of the middle 80 % of its `n` samples. `valid`: every world slept while others measured.
    """

    start: Amount
    place: Count
    n: Count
    seconds: Time
    halves: tuple[Time, Time] | None
    asleep: Amount
    slept: Amount
    valid: bool


class Duet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A launch in turns with others on its cores, `worlds` in all; this one was started as the `started`-th, from 0.

    `seconds` is the time of an operation that is compared: the median over rounds of the time relative to the round's
    (the geometric mean of its worlds, or their `reference`), on the level of all rounds.
    """

    worlds: RankCount
    started: Count
    seconds: Time
    slices: tuple[Slice, ...]
    checked: tuple[ShortText, ...] = ()
    reference: bool = False


#: How a launch was performed, and why it had no other beside it (the words of docs/record.md, `alone`).
How = Literal["duet", "blocks"]
Alone = Literal["plan", "engine", "gpus", "programs", "oversubscribed", "memory", "single", "shared",
                "elsewhere", "unreachable", "awake", "partner"]  # fmt: skip


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case, one launch. Optional parts are None where the case was skipped or failed before they existed.

    `driver`, `align`, `cadence` and `in_place` say what was really in force; `case` says what was asked for. A sample
    is the time of `burst` operations, divided by their number; `legs` are its parts, which add up to it. `device` is
    the time by the GPU's own clock, from operations after the samples.
    """

    case: Case
    launch: LaunchNumber
    status: Status
    reason: str | None = None
    work: Work | None = None
    check: ResultCheck | None = None
    samples: Samples | None = None
    seconds: Seconds | None = None
    ranks: Ranks | None = None
    driver: Driver | None = None
    align: Alignment | None = None
    cadence: Cadence | None = None
    clock: SampleClock | None = None
    clock_error: ClockError | None = None
    in_place: bool | None = None
    transport: str | None = None
    confinement: tuple[Confinement, ...] = ()
    contended: bool | None = None
    oversubscribed: bool | None = None
    notes: tuple[str, ...] = ()
    burst: Burst = 1
    legs: dict[str, Seconds] = {}
    device: Seconds | None = None
    algorithm: str | None = None
    protocol: str | None = None
    gpus: tuple[GpuState, ...] = ()
    shared_gpu: bool = False
    cpu: CpuTime | None = None
    messages: tuple[Count, ...] = ()
    how: How | None = None
    alone: Alone | None = None
    duet: Duet | None = None
    schema: int = SCHEMA

    @property
    def lost(self) -> bool:
        """Whether its launch was lost to its cluster: a run that is resumed measures it again."""
        return self.status == "failed" and (self.reason or "").startswith(LOST)

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth of a collective in GB/s (1e9): the bytes that move over the median time."""
        if self.work is None or self.work.bus_factor is None or self.seconds is None or self.seconds.p50 <= 0.0:
            return None
        return self.work.amount / self.seconds.p50 / 1e9

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in GB/s (1e9): algorithm bandwidth times the collective's bus factor."""
        algbw = self.algbw
        return None if algbw is None or self.work is None else algbw * (self.work.bus_factor or 0.0)


def decode_versioned(content: bytes, kind: type[files.T], what: str) -> files.T:
    """A record or a manifest.

    Raises RunReadError: it has no version, or another one than `SCHEMA`; msgspec.DecodeError, UnicodeDecodeError: not
    JSON, an unknown or a missing field.
    """
    document = files.decode_plain(content)
    if not isinstance(document, dict):
        raise RunReadError(f"{what}: not a {kind.__name__.lower()}.")
    version = document.get("schema")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise RunReadError(f"{what}: no schema version; this is not a collbench run.")
    if version != SCHEMA:
        raise RunReadError(f"{what}: written with schema {version}; this collbench reads {SCHEMA}. "
                           "Use the collbench that wrote it.")  # fmt: skip
    return msgspec.convert(document, kind)


def encode(record: Record) -> bytes:
    """One line of JSON without the newline."""
    return msgspec.json.encode(record)


class _Varying(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What differs between the records of a world; `p50` are the medians of its ranks."""

    launch: LaunchNumber
    status: Status
    p50: tuple[Time, ...]
    reason: str | None = None
    work: Work | None = None
    check: ResultCheck | None = None
    samples: Samples | None = None
    seconds: Seconds | None = None


_RECORD, _VARYING = msgspec.json.Decoder(Record), msgspec.json.Decoder(_Varying)

#: Where the text of a record is cut: its case, what varies, the medians of its ranks, and what a world's records share.
_CASE, _NEXT, _MEDIANS, _SHARED = b'{"case":', b',"launch":', b',"ranks":{"p50":', b',"binding":'
_CURRENT = b'"schema":%d}' % SCHEMA

#: Stands for the case while the rest of a record is decoded, and for all that varies while the shared part is.
_BLANK = Record(case=Case(workload="-"), launch=0, status="skipped", ranks=Ranks(p50=(), binding=(), container=()))
_BLANK_CASE = _CASE + msgspec.json.encode(_BLANK.case) + _NEXT
_BLANK_START = b"".join(encode(_BLANK).partition(_SHARED)[:2])

#: Parts that were read, by their text, and cases also by themselves: caches, which change no answer. So many are
#: remembered, none with a longer text (bytes), which could fill the memory. A shared part that was seen once is None.
_CASES: dict[bytes, Case] = {}
_EQUAL: dict[Case, Case] = {}
_PARTS: dict[bytes, Record | None] = {}
MOST_CASES, MOST_PARTS, LONGEST_PART = 1 << 18, 1 << 10, 1 << 14


def decode(line: bytes, what: str = "record", number: int = 0) -> Record:
    """The record of one line, as a reader takes it: see `_taken`.

    Raises RunReadError: not JSON, another schema, an unknown or a missing field, a number that cannot be, a record
    that contradicts itself; `what`, and the `number` of a line, name the place.
    """
    record = _decode_usual(line)
    try:
        return _taken(record or _decode_any(line, f"{what} line {number}" if number else what))
    except (msgspec.DecodeError, ValueError) as error:
        raise RunReadError(f"{what} line {number}: {error}" if number else f"{what}: {error}") from error


def _decode_any(line: bytes, what: str) -> Record:
    """A record that another program wrote, or with texts that must be escaped, or a damaged one."""
    record = decode_versioned(line, Record, what)
    case = _EQUAL.get(record.case)
    if case is None:
        case = record.case
        refuse_odd(case, what)
        _remember(_EQUAL, case, case, MOST_CASES)
    msgspec.structs.force_setattr(record, "case", case)
    return record


def _decode_usual(line: bytes) -> Record | None:
    """A line as this program writes it, of which what was read before is not decoded again.

    None where another program wrote it, or where it is damaged. No text in a plain line holds a quotation mark, so what
    stands before the first `,"launch":` is the whole case if it is a JSON object at all, and so it is with the other
    cuts: each part must be complete, and none has a key of another.
    """
    text, _, rest = line.partition(_NEXT)
    varying, _, shared = rest.partition(_SHARED)
    try:
        case = _CASES.get(text) or _usual_case(text)
        usual = _PARTS.get(shared)
        if usual is not None and files.is_plain(varying):
            varying, _, medians = varying.rpartition(_MEDIANS)
            part = _VARYING.decode(b'{"launch":%b,"p50":%b}' % (varying, medians))
            assert usual.ranks is not None
            return msgspec.structs.replace(
                usual, case=case, launch=part.launch, status=part.status, reason=part.reason, work=part.work,
                check=part.check, samples=part.samples, seconds=part.seconds,
                ranks=msgspec.structs.replace(usual.ranks, p50=part.p50),
            )  # fmt: skip
        if not files.is_plain(rest) or not rest.rstrip().endswith(_CURRENT):
            return None
        record = _RECORD.decode(_BLANK_CASE + rest)
    except (msgspec.DecodeError, RunReadError, UnicodeDecodeError, RecursionError):
        return None
    if record.case != _BLANK.case:  # a second case in the line
        return None
    if shared and len(shared) <= LONGEST_PART:
        _remember(_PARTS, shared, _shared_part(shared) if shared in _PARTS else None, MOST_PARTS)
    msgspec.structs.force_setattr(record, "case", case)
    return record


def _shared_part(text: bytes) -> Record | None:
    """The part after the medians of ranks, where it has no key of what stands before."""
    try:
        part = _RECORD.decode(_BLANK_START + text)
    except msgspec.DecodeError:  # it was cut elsewhere
        return None
    names = (*_Varying.__struct_fields__, "case")
    same = all(getattr(part, name) == getattr(_BLANK, name) for name in names if name != "p50")
    return part if same and part.ranks is not None and not part.ranks.p50 else None


def _usual_case(text: bytes) -> Case:
    if not text.startswith(_CASE) or not files.is_plain(text):
        raise RunReadError("no case stands first")
    case = msgspec.json.decode(text.removeprefix(_CASE), type=Case)
    refuse_odd(case, "case")
    msgspec.structs.force_setattr(case, "where", _place(case.where))
    if len(text) <= LONGEST_PART:
        _remember(_CASES, text, case, MOST_CASES)
    return case


@lru_cache(maxsize=1 << 10)
def _place(where: Where) -> Where:
    """The same object for all cases in this place: few places, a hundred thousand cases."""
    return where


def _remember(cache: dict[Any, Any], key: object, value: object, most: int) -> None:
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def _taken(record: Record) -> Record:
    """A measured case whose result was wrong has failed, whatever its status says; what failed has no times.

    Raises ValueError: a part contradicts another.
    """
    samples = record.samples
    if samples is not None and samples.invalid > samples.n:
        raise ValueError(f"{samples.invalid} of {samples.n} samples were late.")
    if record.status != "ok":
        times = record.seconds is not None or record.device is not None or record.legs or record.duet is not None
        return _without_times(record) if times else record
    if record.work is None or samples is None or record.seconds is None:
        lacking = [name for name in ("work", "samples", "seconds") if getattr(record, name) is None]
        raise ValueError(f"status ok without {', '.join(lacking)}.")
    if record.device is not None or record.legs or not in_order(record.seconds):
        _refuse_disorder(record)
    if samples.invalid == samples.n:
        raise ValueError("status ok without a valid sample.")
    if record.check is not None and record.check.wrong:
        reason = f"wrong result: {record.check.wrong} elements are not what {record.case.workload} means"
        return _without_times(msgspec.structs.replace(record, status="failed", reason=reason))
    return record


def _refuse_disorder(record: Record) -> None:
    """Quantiles that fall: somebody changed a summary, or another program computed it wrongly."""
    for name, seconds in (("seconds", record.seconds), ("device", record.device), *record.legs.items()):
        if seconds is not None and not in_order(seconds):
            values = ", ".join(f"{field} {getattr(seconds, field):g}" for field in ("min", "p50", "p95", "p99", "max"))
            ends = "{:g} to {:g}".format(*seconds.ci95)
            raise ValueError(f"{name} are not in order: {values}, mean {seconds.mean:g}, ci95 {ends} s.")


def _without_times(record: Record) -> Record:
    return msgspec.structs.replace(record, seconds=None, ranks=None, legs={}, device=None, duet=None)


#: The variable by which a launcher asks: how names of files begin, `libmpi.so,libnccl.so`.
WATCHED = "COLLBENCH_LOADED"

UNREAD = "0" * 64  # in place of the SHA-256 of a file that a rank could not read, or that was removed since

_NOTE = re.compile(r"loaded (?P<name>\S+): (?:no file|(?P<path>.+) \(sha256 (?P<sha256>[0-9a-f]{64})\))(?: on rank.*)?")


def stem_of(path: str) -> str:
    """How the names of all versions of a library begin: `libmpi.so`."""
    return f"{PurePosixPath(path).name.partition('.so')[0]}.so"


class Loaded(NamedTuple):
    """A file whose name begins with `name`; path and hash are empty where a rank loaded none."""

    name: str
    path: str = ""
    sha256: str = ""


def loaded_note(loaded: Loaded, ranks: str = "") -> str:
    """`loaded libmpi.so: /opt/lib/libmpi.so.40 (sha256 0123...)`; of some `ranks` alone, with their numbers."""
    what = f"{loaded.path} (sha256 {loaded.sha256})" if loaded.path else "no file"
    return f"loaded {loaded.name}: {what}{f' on ranks {ranks}' if ranks else ''}"


def read(note: str) -> Loaded | None:
    match = _NOTE.fullmatch(note)
    return None if match is None else Loaded(match["name"], match["path"] or "", match["sha256"] or "")
