"""copyup: an image's file opened for writing, once in a container; and programs that are executed once."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_files import case_of, measured, mounted
from tests.unit.made_programs import PLAN, run_row

from collbench import workloads
from collbench.workloads.host import copyup
from collbench.workloads.program import Measure, Program

SIZE = 3 * copyup.BLOCK // 2


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    copyup.make(tmp_path / "layer", (SIZE,))
    return tmp_path / "layer"


def test_the_files_of_a_layer_are_known_and_for_everybody(layer: Path) -> None:
    data = (layer / str(SIZE)).read_bytes()
    assert data == b"".join(copyup.content(SIZE))
    assert (len(data), data[:4].hex(), len(set(data))) == (SIZE, "da58737d", 256)
    assert (layer.stat().st_mode & 0o777, (layer / str(SIZE)).stat().st_mode & 0o777) == (0o777, 0o666)
    assert copyup.wrong(layer / str(SIZE)) == 0


@pytest.mark.parametrize("place", [0, copyup.BLOCK - 1, copyup.BLOCK, SIZE - 1])
def test_every_byte_is_compared(layer: Path, place: int) -> None:
    path = layer / str(SIZE)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert copyup.wrong(path) == 1
    with pytest.raises(ValueError, match="not as the image's build wrote it"):
        copyup.opened(path)


@pytest.mark.parametrize(("change", "wrong"), [(1, 1), (-1, 1), (-SIZE, 2)])
def test_a_file_of_another_size_is_wrong(layer: Path, change: int, wrong: int) -> None:
    path = layer / str(SIZE)
    path.write_bytes((path.read_bytes() + b"x")[: SIZE + change])
    assert copyup.wrong(path) == wrong


def test_a_file_that_goes_on_after_its_last_block_is_wrong(tmp_path: Path) -> None:
    copyup.make(tmp_path, (copyup.BLOCK,))
    with (tmp_path / str(copyup.BLOCK)).open("ab") as file:
        file.write(b"x")
    assert copyup.wrong(tmp_path / str(copyup.BLOCK)) == 1


def test_a_copy_that_differs_is_wrong(layer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opens = layer / str(SIZE), os.open

    def spoils(name: Any, flags: int, *more: int) -> int:
        if flags == os.O_WRONLY:
            os.truncate(path, copyup.BLOCK)
        return opens(name, flags, *more)

    monkeypatch.setattr(os, "open", spoils)
    found = copyup.opened(path)
    assert (found["bytes"], found["wrong"]) == (copyup.BLOCK, 1)
    assert workloads.get("copyup").verify(case_of("copyup", size=SIZE), json.dumps(found)) == 2


def test_a_file_is_opened_once_and_removed(
    layer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layer / str(SIZE)
    monkeypatch.setattr("sys.argv", ["copyup", "open", str(path)])
    copyup.main()
    row, output = workloads.get("copyup"), capsys.readouterr().out
    assert row.verify(case_of("copyup", size=SIZE), output) == 0
    assert row.parse(output) == {"open": [json.loads(output)["ns"] * 1e-9]}
    with pytest.raises(SystemExit, match="1"):
        copyup.main()
    assert capsys.readouterr() == ("", f"open {path}: No such file or directory\n")


def test_the_image_gets_a_file_of_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def nothing(size: int) -> tuple[bytes, ...]:
        made.append(size)
        return ()

    monkeypatch.setattr("sys.argv", ["copyup", "make", str(tmp_path / "layer")])
    monkeypatch.setattr(copyup, "content", nothing)
    copyup.main()
    assert sorted(path.name for path in (tmp_path / "layer").iterdir()) == sorted(map(str, made))
    assert tuple(made) == tuple(case_of("copyup", size=size)["size"] for size in workloads.get("copyup").sizes)


def test_where_there_is_no_layer_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copyup, "LAYER", tmp_path / "layer")
    ((status, reason),) = [(record.status, record.reason) for record in measured(TABLE, tmp_path)]
    assert (status, reason) == (
        "skipped", f"there is no {tmp_path}/layer/{SIZE}: it is in containers of the image tools, each of which can "
                   "copy it once"
    )  # fmt: skip


TABLE = {"name": "copyup", "size": SIZE}


@pytest.mark.parametrize(
    ("layer_kind", "storage_kind", "others"),
    [("ext4", "overlay", "the image's layer is ext4"), ("overlay", "tmpfs", "the storage is tmpfs"),
     ("btrfs", "ext4", "the image's layer is btrfs and the storage is ext4"), ("overlay", "overlay", None)],
)  # fmt: skip
def test_other_file_systems_are_skipped(
    layer_kind: str, storage_kind: str, others: str | None, layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copyup, "LAYER", layer)
    monkeypatch.setattr(copyup, "kind_of", lambda path: layer_kind if path.is_relative_to(layer) else storage_kind)
    said = workloads.get("copyup").lacks(case_of("copyup", size=SIZE), layer.parent)
    assert said == (others and f"only overlayfs copies a file when it is opened; {others}")


def test_on_an_overlay_the_file_is_copied_once(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever number of samples the plan asks for, and without a warm-up."""
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    lower = layer.rename(tmp_path / "lower")
    options = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    with mounted(tmp_path / "merged", "overlay", options) as merged:
        monkeypatch.setattr(copyup, "LAYER", merged)
        (record,) = measured(TABLE, merged, warmup=2, iters=5)
        assert record.status == "ok", record.reason
        assert record.samples is not None and (record.samples.n, record.samples.warmup) == (1, 0)
        assert record.work is not None and (record.work.amount, record.work.unit) == (SIZE, "bytes")
        (record,) = measured(TABLE, merged)
        assert record.status == "skipped"
        assert list(merged.iterdir()) == []
    assert (lower / str(SIZE)).exists()


def test_what_happens_once_is_executed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Program(
        name="stream", title="", summary="", measures=(),
        argv=lambda case, times: (sys.executable, "-c", f"open({str(tmp_path / 'runs')!r}, 'a').write('{times} ')"),
        parse=lambda output: {"total": [2e-6]}, verify=lambda case, output: 0, sizes=("8",),
        axes=workloads.get("stream").axes,
    )  # fmt: skip
    for once, runs in ((True, "1 "), (False, f"{PLAN.warmup + (PLAN.iters or 0)} ")):
        measure = Measure("total", lambda case: 1, "events", once=once)
        ((record, samples), *_) = run_row(monkeypatch, replace(row, measures=(measure,)))
        assert (tmp_path / "runs").read_text(encoding="utf-8") == runs
        (tmp_path / "runs").unlink()
        assert record.status == ("ok" if once else "failed")
        assert once is (samples is not None and samples.tolist() == [[2000]])
