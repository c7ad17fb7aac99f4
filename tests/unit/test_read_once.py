"""Every command decodes each record of a run once, however many plots and tables it makes of them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tests.unit.made_runs import experiment, made_case, made_manifest, made_record, sampled, twin

from collbench.analysis.runs import observe
from collbench.cli import cli
from collbench.report.page.contents import chapter
from collbench.report.page.figures.samples import SamplesByLaunch, StoredSamples
from collbench.schema import record as records
from collbench.schema.samples import pack
from collbench.schema.store import RunWriter

SIZES, LAUNCHES = (8, 1024, 64 << 10, 1 << 20), 6
RECORDS = 2 * len(SIZES) * LAUNCHES


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two images, four sizes, six launches, all with samples."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    with patch("os.fsync"), RunWriter(tmp_path / "run", made_manifest(experiment=experiment(("a", "b")))) as writer:
        for launch in range(LAUNCHES):
            for image, factor in (("a", 1), ("b", 2)):
                for size in SIZES:
                    samples = factor * (1 + size // 4096) * draw.integers(18_000, 22_000, (2, 50))
                    record = made_record(made_case(image=image, size=size), launch, 2e-5)
                    writer.append(sampled(record, samples), samples)
    return tmp_path / "run"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line of `records.jsonl` for each time that it is decoded."""
    found: list[str] = []
    real = records.decode

    def counting(line: bytes, what: str = "record", number: int = 0) -> records.Record:
        found.append(f"{what} {number}")
        return real(line, what, number)

    monkeypatch.setattr(records, "decode", counting)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["report", "run", "-o", "report.html"],
        ["report", "run", "-o", "report.md"],
        ["compare", "run", "--by", "image"],
        ["advise", "run"],
        ["model", "run"],
        ["show", "run"],
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_command_decodes_each_record_once(run: Path, decoded: list[str], command: list[str], packed: bool) -> None:
    if packed:
        pack(run)
    cli.main(command, "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == RECORDS


def test_two_runs_are_decoded_once_each(run: Path, decoded: list[str]) -> None:
    twin(run)
    cli.main(["compare", "run", "run-twin"], "collbench", standalone_mode=False)
    assert len(decoded) == len(set(decoded)) == 2 * RECORDS


def test_a_report_opens_an_archive_for_its_check_and_for_its_plots(run: Path) -> None:
    """Not for each plot: it may have a million members."""
    pack(run)
    with patch.object(zipfile, "ZipFile", wraps=zipfile.ZipFile) as opened:
        drawn = [figure for section in chapter(observe(run), {}, 0.02).sections for figure in section.folded]
    assert len(drawn) == len(SIZES)
    assert opened.call_count == 2


def drawn(run: Path) -> dict[str, SamplesByLaunch]:
    """What a plot of 8 B draws, every sample."""
    cells = {image: made_case(image=image, size=8) for image in ("a", "b")}
    with StoredSamples(observe(run)) as stored:
        found = stored.of(cells)
    assert (found.unread, found.step) == (0, 1)
    return found.samples


def same(one: dict[str, SamplesByLaunch], other: dict[str, SamplesByLaunch]) -> bool:
    return list(one) == list(other) and all(
        list(one[name]) == list(other[name]) and all((one[name][n] == other[name][n]).all() for n in one[name])
        for name in one
    )


def test_plots_of_a_packed_run_are_those_of_its_files(run: Path) -> None:
    before = drawn(run)
    assert [len(values) for values in before["a"].values()] == [50] * LAUNCHES
    pack(run)
    assert same(drawn(run), before)


def test_files_that_are_named_otherwise_are_found(run: Path) -> None:
    """Names are collbench's own where it wrote the run; another program's are as good."""
    before = drawn(run)
    lines = (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text(lines.replace("samples/", "samples/other_"))
    for path in (run / "samples").iterdir():
        path.rename(path.with_name(f"other_{path.name}"))
    assert same(drawn(run), before)


def test_of_very_many_samples_some_are_drawn(run: Path) -> None:
    """Bounded memory: of 12 launches with 50 samples each, 100 in all."""
    cells = {image: made_case(image=image, size=8) for image in ("a", "b")}
    with StoredSamples(observe(run)) as stored:
        thinned = stored.of(cells, most=100)
    assert thinned.step == 6
    every = {name: {n: values[::6] for n, values in launches.items()} for name, launches in drawn(run).items()}
    assert same(thinned.samples, every)


def test_a_plot_says_that_it_draws_some(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredSamples.of, "__defaults__", (100,))
    captions = [figure.caption for section in chapter(observe(run), {}, 0.02).sections for figure in section.folded]
    assert len(captions) == len(SIZES)
    assert all("One in 6 of the samples is drawn." in caption for caption in captions)


def test_launches_of_a_folder_of_runs_are_drawn_in_their_order(run: Path, tmp_path: Path) -> None:
    """Each run is one launch or more, and keeps its samples in an archive of its own."""
    (tmp_path / "runs").mkdir()
    for name in ("first", "second"):
        twin(run).rename(tmp_path / "runs" / name)
    pack(tmp_path / "runs" / "second")
    found = drawn(tmp_path / "runs")["a"]
    assert list(found) == list(range(2 * LAUNCHES))
    assert all((found[launch] == found[launch + LAUNCHES]).all() for launch in range(LAUNCHES))
