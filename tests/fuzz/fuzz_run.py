"""Fuzzes everything that reads a run: `python tests/fuzz/fuzz_run.py [-max_total_time=60] [-seed=1] [CORPUS] [FILE]`.

Every input changes one file of a good run (manifest, records, samples, their archive or baseline): values of its JSON
are replaced by nasty ones, keys and lines removed or doubled, bytes overwritten. Then all that reads runs is called on
it. What is allowed is a result or a CollbenchError. Flags are libFuzzer's; a FILE that it left is tried again alone.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import atheris

with atheris.instrument_imports(include=["collbench"]):
    from collbench.analysis.compare import compare
    from collbench.analysis.factors import FACTORS
    from collbench.analysis.pairs import Pair, across, within
    from collbench.analysis.runs import Observed, load_baseline, observe, save_baseline
    from collbench.errors import CollbenchError, in_lines
    from collbench.report import STYLES, new_style
    from collbench.report.cells import document, launch_tables, tables
    from collbench.report.tables import FORMATS, terminal
    from collbench.report.verdict import tables as of_verdict
    from collbench.schema.manifest import read_manifest
    from collbench.schema.record import Record
    from collbench.schema.samples import LARGEST_FILE, SampleFiles, disagreement, pack
    from collbench.schema.store import RecordStream

import msgspec
import scipy.stats  # noqa: F401 - before time counts

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "tests" / "data" / "run", ROOT / "results" / "demo-openmpi")
LONGEST = 4096
T = TypeVar("T")

#: What a field is replaced by: often by one of its own kind, which passes the first look.
NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 7, -3, -7, 17, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30,
                            10**400, 0.0, -0.0, 5e-324, 1e-300, 1e-9, 1e300, 1.7e308, -1.5)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", "a", "\x1b[31m\r\n|", "\u00b2", "packed:\u00b2", "packed:0", "packed:-1", "packed:999999999999", "host",
    "host/far", "multi", "single", "strict", "net", "samples/x-0.npy", "../x", "sum", "float64", "python", "native",
    "ok", "failed", "skipped", "sha256:" + "0" * 64, "barrier", "streaming", "local", "=1", "$" * 300,
    "openmpi\nopenmpi  host > single  8  same", "a\x7f\x85b", "\u202eb", "\u2028", "\x07", "n" * 600,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": ""}, [1e308] * 3, [2**63], {"a": 10**400})


def nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON document, as a container and a key."""
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key
        yield from nodes(tree[key])


def kinds_of(value: Any) -> tuple[tuple[Any, ...], ...]:
    """Replacements of its own kind first."""
    if isinstance(value, str):
        return TEXTS, NUMBERS, OTHERS
    return (NUMBERS, TEXTS, OTHERS) if isinstance(value, int | float) else (OTHERS, NUMBERS, TEXTS)


def edited(document: Any, chosen: atheris.FuzzedDataProvider) -> Any:
    """The document with a few of its places replaced, removed or doubled."""
    for _ in range(chosen.ConsumeIntInRange(1, 4)):
        places = list(nodes(document))
        if not places:
            return document
        owner, key = places[chosen.ConsumeIntInRange(0, len(places) - 1)]
        action = chosen.ConsumeIntInRange(0, 9)
        if action == 0:
            del owner[key]
        elif action == 1 and isinstance(owner, list):
            owner.append(owner[key])
        elif action == 2 and isinstance(owner, dict):
            owner[chosen.ConsumeUnicodeNoSurrogates(8)] = owner[key]
        elif action == 3:
            other, of = places[chosen.ConsumeIntInRange(0, len(places) - 1)]
            with contextlib.suppress(LookupError):  # taken away before
                owner[key] = copy.deepcopy(other[of])
        else:
            kind = kinds_of(owner[key])[0 if action > 4 else chosen.ConsumeIntInRange(0, 2)]
            owner[key] = copy.deepcopy(kind[chosen.ConsumeIntInRange(0, len(kind) - 1)])
    return document


def overwritten(content: bytes, chosen: atheris.FuzzedDataProvider) -> bytes:
    """Some bytes anew, or the end cut off."""
    changed = bytearray(content)
    for _ in range(chosen.ConsumeIntInRange(0, 4)):
        at = chosen.ConsumeIntInRange(0, max(len(changed) - 1, 0))
        fresh = chosen.ConsumeBytes(chosen.ConsumeIntInRange(0, 8))
        changed[at : at + len(fresh)] = fresh
    return bytes(changed[: len(changed) - chosen.ConsumeIntInRange(0, 64)] if chosen.ConsumeBool() else changed)


def spoilt_json(content: bytes, chosen: atheris.FuzzedDataProvider) -> bytes:
    """A JSON document changed as a document, or as bytes."""
    try:
        document = json.loads(content)
    except ValueError:  # spoilt before
        return overwritten(content, chosen)
    return (
        overwritten(content, chosen)
        if chosen.ConsumeIntInRange(0, 7) == 0
        else json.dumps(edited(document, chosen)).encode()
    )


def spoilt_lines(content: bytes, chosen: atheris.FuzzedDataProvider) -> bytes:
    """Records changed one by one, doubled or left out."""
    lines = content.splitlines()
    for _ in range(chosen.ConsumeIntInRange(1, 3)):
        at = chosen.ConsumeIntInRange(0, len(lines) - 1)
        action = chosen.ConsumeIntInRange(0, 9)
        lines[at : at + 1] = [] if action == 0 and len(lines) > 1 else [lines[at]] * (1 + (action < 3))
        at = min(at, len(lines) - 1)
        lines[at] = spoilt_json(lines[at], chosen) if action > 1 else lines[at]
    return b"\n".join(lines) + (b"" if chosen.ConsumeIntInRange(0, 9) == 0 else b"\n")


SPOIL: dict[str, Callable[[bytes, atheris.FuzzedDataProvider], bytes]] = {
    "manifest.json": spoilt_json, "records.jsonl": spoilt_lines, "baseline.json": spoilt_json, "samples": overwritten,
    "samples.zip": overwritten,
}  # fmt: skip


class Target:
    """Good runs, and what is made of them in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.good = [Path(shutil.copytree(path, folder / path.name)) for path in GOOD]
        self.kept = folder / "kept.json"
        for path in self.good:
            self._shorten(path)
            save_baseline(observe(path), path / "baseline.json")
        self.observed = [observe(path) for path in self.good]

    @staticmethod
    def _shorten(path: Path) -> None:
        """A few records are enough, of the samples one file and an archive of two members."""
        lines = (path / "records.jsonl").read_bytes().splitlines(keepends=True)
        (path / "records.jsonl").write_bytes(b"".join(lines[:6]))
        with SampleFiles(path) as files:
            names = [record.samples.file for record in RecordStream(path) if record.samples and record.samples.file]
            kept = {}
            for name in names[:3]:
                with files.open(name, LARGEST_FILE) as file:
                    kept[name] = file.read()
        shutil.rmtree(path / "samples", ignore_errors=True)
        (path / "samples.zip").unlink(missing_ok=True)
        for number, (name, content) in enumerate(kept.items()):
            if number == 2:
                pack(path)
            (path / "samples").mkdir(exist_ok=True)
            (path / name).write_bytes(content)

    def __call__(self, data: bytes) -> None:
        chosen = atheris.FuzzedDataProvider(data)
        number = chosen.ConsumeIntInRange(0, len(self.good) - 1)
        name = list(SPOIL)[chosen.ConsumeIntInRange(0, len(SPOIL) - 1)]
        run = self.good[number]
        path = next(run.glob("samples/*" if name == "samples" else name), run / "records.jsonl")
        content = path.read_bytes()
        path.write_bytes(SPOIL[name](content, chosen))
        try:
            self._read(run, self.observed[number], chosen)
        finally:
            path.write_bytes(content)

    def _read(self, run: Path, good: Observed, chosen: atheris.FuzzedDataProvider) -> None:
        """Everything that reads a run."""
        allowed(lambda: show(run, chosen))
        found = allowed(lambda: observe(run))
        pairs = compared(found, good) if found else []
        kept = allowed(lambda: load_baseline(run / "baseline.json"))
        if kept is not None:
            pairs += allowed(lambda: across(kept, good, None, frozenset())) or []
        printed(pairs, chosen)
        if found is not None:
            self.kept.unlink(missing_ok=True)
            save_baseline(found, self.kept)
            assert load_baseline(self.kept).cells.keys() <= found.cells.keys()


def allowed(call: Callable[[], T]) -> T | None:
    """What it gives, or None where it is refused as it should be."""
    with contextlib.suppress(CollbenchError):
        return call()
    return None


def show(path: Path, chosen: atheris.FuzzedDataProvider) -> None:
    """The samples, and what `collbench show` prints."""
    run = allowed(lambda: (read_manifest(path), tuple(RecordStream(path))))
    if run is None:
        return
    manifest, records = run
    for record in records:
        possible(record)
        with SampleFiles(path) as files:
            samples = allowed(lambda record=record: files.read(record))  # type: ignore[misc]
        if samples is not None and record.samples is not None:
            assert samples.shape[1] == record.samples.n
            disagreement(record, samples)
    style = list(STYLES)[chosen.ConsumeIntInRange(0, len(STYLES) - 1)]
    printer = new_style(style)
    text = "".join([printer.begin(manifest), *map(printer.add, records), printer.end()])
    quiet(text)
    if style == "json":
        json.loads(in_lines(text))


def possible(record: Record) -> None:
    """What the reader promises of a record: nothing negative, no time of a wrong result, a sample behind each time."""
    assert record.launch >= 0 and record.burst >= 1 and record.case.where.ranks >= 1
    assert record.case["root"] is None or 0 <= record.case["root"] < record.case.where.ranks
    if record.status != "ok":
        assert record.seconds is None
        return
    assert record.samples is not None and 0 <= record.samples.invalid < record.samples.n
    assert record.check is None or not record.check.wrong


def quiet(text: str) -> None:
    """Nothing of what steers a terminal is left in it: names were written out when they were read."""
    assert in_lines(text) == text


def compared(found: Observed, good: Observed) -> list[Pair]:
    """Every question that can be asked of the run alone, and of it and the one that it was."""
    quiet(terminal(launch_tables(found.cells)))
    pairs: list[Pair] = []
    for factor in FACTORS.values():
        pairs += allowed(lambda factor=factor: within(found, factor, frozenset())) or []  # type: ignore[misc]
    for ignored in ((), ("library", "library-file", "cpu", "kernel", "bytes")):
        pairs += allowed(lambda ignored=ignored: across(found, good, None, frozenset(ignored))) or []  # type: ignore[misc]
    return pairs


def printed(pairs: list[Pair], chosen: atheris.FuzzedDataProvider) -> None:
    """A table in one of the formats, and a JSON document without NaN."""
    made = compare(pairs, in_blocks=chosen.ConsumeBool())
    style = list(FORMATS.values())[chosen.ConsumeIntInRange(0, len(FORMATS) - 1)]
    quiet(style([*of_verdict(made, 0.02), *tables(made)]))
    assert b"NaN" not in msgspec.json.encode(document(made, 0.02))
    json.loads(in_lines(msgspec.json.encode(document(made, 0.02)).decode()))


def first_inputs(folder: Path) -> None:
    """Random bytes to begin with, so that the first changes are many and everywhere. The same each time."""
    folder.mkdir()
    draw = random.Random(1)  # noqa: S311 - no secret
    for number in range(200):
        (folder / str(number)).write_bytes(draw.randbytes(draw.choice((16, 64, 256))))


def main() -> None:
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        first_inputs(inputs)
        files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
        more = [] if files else [str(inputs)]
        flags = [f"-max_len={LONGEST}", "-len_control=0", *sys.argv[1:], *more]
        atheris.Setup([sys.argv[0], *flags], Target(Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
