"""A file is hashed once by a process, and again when it has changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from collbench.machine.facts import sha256_of


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, read = hashlib.file_digest, list[str]()

    def counting(file: object, name: str) -> object:
        read.append(name)
        return digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counting)
    file = tmp_path / "libx.so"
    file.write_bytes(b"one")
    assert [sha256_of(str(file)) for _ in range(3)] == [hashlib.sha256(b"one").hexdigest()] * 3
    assert len(read) == 1
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert (sha256_of(str(file)), len(read)) == (hashlib.sha256(b"two").hexdigest(), 2)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        sha256_of(str(file))
