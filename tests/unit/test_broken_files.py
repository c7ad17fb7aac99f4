"""A file in the packages of backends and workloads that cannot be loaded is listed so, and stops nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench import backends, workloads
from collbench.cli import cli
from collbench.errors import BackendUnavailable, RequestError
from collbench.workloads import host

Put = Callable[..., None]

REASON = "cannot be loaded: ModuleNotFoundError: No module named 'nosuchmodule'."


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts a file `faulty.py` into both packages, for this process."""

    def add(text: str) -> None:
        (tmp_path / "faulty.py").write_text(text, encoding="utf-8")
        for package, cached in ((backends, backends._own), (host, workloads._modules)):
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
            cached.cache_clear()
            monkeypatch.delitem(sys.modules, f"{package.__name__}.faulty", raising=False)

    yield add
    monkeypatch.undo()
    backends._own.cache_clear()
    workloads._modules.cache_clear()


def test_it_is_listed_with_the_reason(put: Put) -> None:
    put("import nosuchmodule")
    listed = CliRunner().invoke(cli, ["list"], catch_exceptions=False).stdout
    assert re.search(rf"^  no  faulty\n +backend 'faulty': collbench.backends.faulty {REASON}$", listed, re.MULTILINE)
    assert re.search(
        rf"^  no  faulty\n +benchmark 'faulty': collbench.workloads.host.faulty {REASON}$", listed, re.MULTILINE
    )
    assert "in-process ranks with simulated times" in listed


def test_who_asks_for_it_gets_the_reason(put: Put) -> None:
    put("import nosuchmodule")
    with pytest.raises(BackendUnavailable) as caught:
        backends.get("faulty")
    assert str(caught.value) == f"backend 'faulty': collbench.backends.faulty {REASON}"
    with pytest.raises(RequestError) as refused:
        workloads.get("faulty")
    assert str(refused.value) == f"benchmark 'faulty': collbench.workloads.host.faulty {REASON}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be loaded: AttributeError: "),
        ("raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence."),
        ("BACKEND = 1", ":BACKEND is not a Backend of that name: it lacks name, summary, "),
    ],
)
def test_a_file_without_a_backend(put: Put, text: str, reason: str) -> None:
    put(text)
    assert reason in str(backends.missing("faulty"))


def test_it_stops_nothing_else(put: Put, tmp_path: Path) -> None:
    put("import nosuchmodule")
    flags = ["--backend", "fake", "-e", "8", "-n", "2", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli, ["bcast", *flags], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "faulty" not in [name for members in workloads.suites().values() for name in members]
    assert "sysbench_cpu" in CliRunner().invoke(cli, ["suite"], catch_exceptions=False).stdout
