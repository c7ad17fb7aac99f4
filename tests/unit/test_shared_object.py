"""A file that no rank could load as a library is refused before anything is measured, with what it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from collbench.cli.sides import side_of
from collbench.errors import RequestError
from collbench.schema.plan import Plan
from collbench.timing import _loop

LIBRARY = Path(_loop.__file__).read_bytes()
PLAN = Plan(collectives=("bcast",), images=("openmpi",), policies=("host",))


def altered(place: int, value: int) -> bytes:
    """The library with another byte in its header."""
    return LIBRARY[:place] + bytes([value]) + LIBRARY[place + 1 :]


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"hello", "not an ELF file"), (b"", "not an ELF file"), (LIBRARY[:10], "not an ELF file"),
     (altered(16, 1), "an ELF file, but no shared library"), (altered(18, LIBRARY[18] ^ 1), "for another processor"),
     (altered(4, 3 - LIBRARY[4]), "for another processor")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["lib", "preload"])
def test_what_is_no_library_is_refused_by_what_it_is(tmp_path: Path, kind: str, content: bytes, what: str) -> None:
    path = tmp_path / "libx.so.1"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=f"--other: {path}: is .*{what}"):
        side_of("--other", [f"{kind}={path}"], PLAN)


def needing(path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The library, of which ldd says that it misses these."""
    path.write_bytes(LIBRARY)
    lines = "".join(f"\t{name} => not found\n" for name in names) + "\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n"

    def ldd(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess((), 0, lines, "")

    monkeypatch.setattr("subprocess.run", ldd)


def test_a_library_that_needs_what_is_not_found_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libx.so.1"
    needing(path, monkeypatch, "libdep.so.3", "libgone.so")
    with pytest.raises(
        RequestError, match=r"libx.so.1: needs libdep.so.3, libgone.so, which is not found on this host"
    ):
        side_of("--other", [f"preload={path}"], PLAN)
    inside = msgspec.structs.replace(PLAN, policies=("single",))
    assert str(path) in side_of("--other", [f"preload={path}"], inside).preload  # its container may have them


def test_a_library_may_need_another_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, beside = tmp_path / "libx.so.1", tmp_path / "libdep.so.3.1"
    needing(path, monkeypatch, "libdep.so.3")
    beside.write_bytes(LIBRARY)
    assert len(side_of("--other", [f"lib={path}", f"lib={beside}"], PLAN).libraries) == 2


def test_without_ldd_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libx.so.1"
    path.write_bytes(LIBRARY)
    monkeypatch.setenv("PATH", "")
    assert str(path) in side_of("--other", [f"lib={path}"], PLAN).libraries
