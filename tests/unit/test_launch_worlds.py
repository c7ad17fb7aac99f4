"""A world that leaves odd things, or ends oddly, is one failed record: the experiment goes on, nothing is left."""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path

import pytest
from tests.unit.made_worlds import Heard, carried_out, good, made

from collbench.errors import Interrupted
from collbench.launch import live_world as world
from collbench.launch.campaign import run_campaign
from collbench.launch.job import Job
from collbench.schema import record as records

GOOD = [(1, 8, "ok"), (1, 16, "ok")]


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def one_failed(tmp_path: Path, oddity: str) -> Heard:
    heard = carried_out(made(tmp_path, f"if first; then {oddity}\nelse good; fi"))
    failed = [record for record in heard.records if record.status == "failed"]
    assert [record.launch for record in failed] == [0]
    assert heard.found[-2:] == GOOD
    assert list((tmp_path / "tmp").iterdir()) == []
    assert heard.said[1:] == [None]
    return heard


PY = f"{sys.executable} -c"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oddity", "reason"),
    [
        ("mkdir $out/records.jsonl", "records.jsonl: not a plain file"),
        ("good; rm $out/samples/a.npy; mkdir $out/samples/a.npy", "samples/a.npy|a.npy: not a plain file"),
        (r"""good; sed -i 's/a\.npy/a\\u0000b/' $out/records.jsonl""", "is missing"),
        ("truncate -s 900M $out/records.jsonl", "line 1: longer than 1048576 bytes"),
        ("yes '' | head -c 300M > $out/records.jsonl", "records.jsonl line 1: "),
        ("ln -s /etc/passwd $out/records.jsonl", "may only leave plain files"),
        ("rmdir $out; ln -s /etc $out", "out/: Not a directory|out/: Too many levels"),
        ("rmdir $out", "out/: No such file"),
        ("rm -rf ${out%/*}", "No such file"),
        ("printf '[%060000d' 0 | tr 0 '[' > $out/records.jsonl; echo >> $out/records.jsonl", "records.jsonl line 1"),
        ("exit 7", "ended with exit code 7"),
        ("kill -9 $$", r"mpirun was ended by signal 9 \(Killed\)"),
        ("good; sed -i 1d $out/records.jsonl", "ended early, with 1 of 2 cases"),
    ],
)
def test_what_a_world_leaves(tmp_path: Path, oddity: str, reason: str) -> None:
    heard = one_failed(tmp_path, oddity)
    (failed,) = [record for record in heard.records if record.status == "failed"]
    assert any(part in (failed.reason or "") for part in reason.replace("\\", "").split("|")), failed.reason
    assert heard.said[0] == f"failed: {failed.reason}"


DEEP = """
import os
for _ in range(1200):
    os.mkdir("d"); os.chdir("d")
"""


@pytest.mark.slow
def test_folders_in_one_another_are_removed(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    heard = carried_out(made(tmp_path, f"good; cd $out; {sys.executable} {tmp_path}/deep.py"))
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    assert list((tmp_path / "tmp").iterdir()) == []


def test_samples_that_would_not_fit_into_memory_are_not_read(tmp_path: Path) -> None:
    """A GiB of one-byte samples takes eight when it is widened."""
    make = f"""{PY} "import numpy as np; f = open('$out/samples/a.npy', 'wb');
np.lib.format.write_array_header_1_0(f, dict(descr='|i1', fortran_order=False, shape=(2, 536870000)))
f.truncate(1 << 30)" """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    heard = one_failed(tmp_path, f"good; {make}")
    assert "expected integers [2, 2], as its record says, found int8 [2, 536870000]" in (heard.records[0].reason or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ("np.full((7, 3), 5, 'i4')", "expected integers [2, 2], as its record says, found int32 [7, 3]"),
        ("np.full((2, 2), 5.0)", "found float64 [2, 2]"),
        ("np.full((2, 2), 5, 'u8')", "found uint64 [2, 2]"),
        ("np.full((2, 2), -5, 'i4')", "its late samples are not the 0 of its record"),
        ("np.array([[1, 2], [1, -2]])", "its late samples are not the"),
        ("np.array([[1, 2], [0, 2]])", "a time of 0 ns"),
    ],
)
def test_samples_are_held_against_their_record(tmp_path: Path, array: str, reason: str) -> None:
    heard = one_failed(tmp_path, f"""good; {PY} "import numpy as np; np.save('$out/samples/a.npy', {array})" """)
    assert reason in (heard.records[0].reason or "")


def test_the_smallest_integer_is_no_time(tmp_path: Path) -> None:
    """Its absolute value is no integer of 64 bits."""
    array = "np.array([[5, -2**63], [5, -2**63]])"
    oddity = f"""good; sed -i 's/"invalid":0/"invalid":1/' $out/records.jsonl
    {PY} "import numpy as np; np.save('$out/samples/a.npy', {array})" """
    assert "an impossible time" in (one_failed(tmp_path, oddity).records[0].reason or "")


def test_words_of_a_world_are_cut(tmp_path: Path) -> None:
    prepared = made(tmp_path, "good")
    (asked,) = prepared.expanded.expected.values()
    path = tmp_path / "good" / "records.jsonl"
    many = [good(case, notes=("x" * 20_000,) * 40, transport="y" * 5000) for case in asked]
    path.write_bytes(b"".join(records.encode(record) + b"\n" for record in many))
    for record in carried_out(prepared).records:
        assert record.status == "ok"
        assert len(record.notes) == 13
        assert max(map(len, record.notes)) < 2100
        assert record.notes[-1] == "28 more notes were left out"
        assert len(record.transport or "") < 2100


@pytest.mark.slow
def test_a_line_that_the_reader_would_refuse_is_one_failed_record(tmp_path: Path) -> None:
    oddity = f"""{PY} "
import json; line = open('{tmp_path}/good/records.jsonl').readline()
record = json.loads(line); record['notes'] = ['x' * (70 << 20)]
open('$out/records.jsonl', 'w').write(json.dumps(record) + chr(10))" """
    assert "longer than 1048576 bytes" in (one_failed(tmp_path, oddity).records[0].reason or "")


def test_an_exception_of_ours_is_one_failed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = made(tmp_path, "good")

    def fail_once(*arguments: object) -> None:
        monkeypatch.setattr(world, "Job", Job)
        raise RuntimeError("never seen \udcff")

    monkeypatch.setattr(world, "Job", fail_once)
    heard = carried_out(prepared)
    assert heard.found == [(0, 8, "failed"), *GOOD]
    assert heard.records[0].reason == "RuntimeError: never seen \\udcff"


def test_no_room_for_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = made(tmp_path, "good")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    heard = carried_out(prepared)
    assert heard.found == [(0, 8, "failed"), (1, 8, "failed")]
    assert "temporary folder: " in (heard.records[0].reason or "")


@pytest.mark.parametrize("end", ["exit 9", "kill -9 $$", "echo more >> $out/records.jsonl"])
def test_a_launch_that_measured_everything_and_ends_oddly_is_a_note(tmp_path: Path, end: str) -> None:
    heard = carried_out(made(tmp_path, f"good; {end}"))
    assert heard.found == [(0, 8, "ok"), (0, 16, "ok"), *GOOD]
    assert len({(record.case, record.launch) for record in heard.records}) == 4
    for record, said in zip(heard.records[1::2], heard.said, strict=True):
        (note,) = record.notes
        assert note.startswith("every case was measured, and then: ")
        assert (said or "").startswith("measured every case, and then: ")
    assert heard.records[0].notes == ()


@pytest.mark.slow
def test_ctrl_c_keeps_what_the_launch_has_measured(tmp_path: Path) -> None:
    prepared = made(tmp_path, "head -n 1 $here/good/records.jsonl > $out/records.jsonl\n"
                              "cp -r $here/good/samples $out; touch $here/half; sleep 60")  # fmt: skip
    heard = Heard()

    def check() -> None:
        if (tmp_path / "half").exists():
            raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        run_campaign(prepared, heard, frozenset(), {}, check)
    assert heard.found == [(0, 8, "ok")]
    assert list((tmp_path / "tmp").iterdir()) == []
    known = dict.fromkeys((record.case, record.launch) for record in heard.records)
    (tmp_path / "again").mkdir()
    again = carried_out(made(tmp_path / "again", "good"), known=known)
    assert again.found == [(0, 16, "ok"), *GOOD]
    (tmp_path / "fails").mkdir()
    again = carried_out(made(tmp_path / "fails", "exit 5"), known=known)
    assert again.found == [(0, 16, "failed"), (1, 8, "failed")]


def test_what_a_library_keeps_while_it_runs_goes_with_the_launch(tmp_path: Path) -> None:
    """Open MPI's session folder stays where its daemon is killed."""
    seen = tmp_path / "seen"
    heard = carried_out(made(tmp_path, f"mkdir $TMPDIR/session; good; echo $TMPDIR ${{out%/*}} >> {seen}; kill -9 $$"))
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    for line in seen.read_text().splitlines():
        temporary, folder = line.split()
        assert temporary == folder
    assert list((tmp_path / "tmp").iterdir()) == []
