"""Steps of a long session, one after the other: each under its limit, with a log, and with nothing left running.

A step that fails is written down, and the next still runs. What is known so far is packed after every step, so that a
session which is cut off leaves what it had.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from marks import Mark

#: A step that gets less time (s) is not begun.
SHORTEST = 5.0
#: Time (s) in which a step that is over its limit may end by itself.
GRACE = 8.0
#: Lines of the log that are shown of a step that failed, and characters of a line.
TAIL, WIDTH = 5, 300


@dataclass(frozen=True)
class Step:
    """A command that may take `limit` seconds.

    `stretches`: it may also take what earlier steps left of theirs. `needed`: without it no other step can work.
    `codes`: exit codes that are no failure. `on_request`: only by a word of its name. `lacking`: what this machine does
    not have of what it needs, for which it is skipped.
    """

    name: str
    limit: float
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stretches: bool = False
    needed: bool = False
    codes: tuple[int, ...] = (0,)
    on_request: bool = False
    lacking: str = ""


class Session:
    """Runs steps until `seconds` are over. Logs go to `work`/log; `pack` puts what is to be kept into `out`."""

    def __init__(self, work: Path, out: Path, seconds: float, pack: Callable[[], None]) -> None:
        self._logs, self._out, self._pack = work / "log", out, pack
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._logs.mkdir(parents=True, exist_ok=True)
        self.failed = 0
        (out / "steps.txt").write_text("", encoding="utf-8")

    def say(self, text: str) -> None:
        """A line for people, printed and kept."""
        print(text, flush=True)
        with (self._out / "steps.txt").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def run(self, steps: Sequence[Step]) -> None:
        """All of them, in this order."""
        for number, step in enumerate(steps):
            if step.lacking:
                self.say(f"skip  {step.name}: {step.lacking}")
                continue
            allowed = allowance(step, steps[number + 1 :], self._until - time.monotonic())
            if allowed < SHORTEST:
                self._failure(f"SKIP  {step.name}: no time left")
                continue
            good = self._once(step, allowed)
            with contextlib.suppress(OSError, tarfile.TarError):
                self._pack()
            if step.needed and not good:
                self.say("nothing else can be done without it")
                break
        self.say(f"{self.failed} step(s) failed, {time.monotonic() - self._began:.0f} s in all")

    def _failure(self, text: str) -> None:
        self.failed += 1
        self.say(text)

    def _once(self, step: Step, allowed: float) -> bool:
        """Whether it ended as it should."""
        log, began = self._logs / f"{step.name}.txt", time.monotonic()
        code, left = _execute(step, allowed, log)
        took = f"{time.monotonic() - began:.0f} s"
        if code in step.codes:
            self.say(f"ok    {step.name}: {took}")
        else:
            said = f"code {code} after {took}" if isinstance(code, int) else f"{code}, {took}"
            self._failure(f"FAIL  {step.name}: {said}")
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL:]
            for line in lines:
                self.say(f"      {line[:WIDTH]}")
        if left:
            self.say(f"      these of its processes cannot be ended: {', '.join(map(str, left))}")
        return code in step.codes


def allowance(step: Step, later: Sequence[Step], left: float) -> float:
    """Seconds for a step, of those that are left for it and for later ones, to whom stays what they were promised."""
    spare = left - sum(one.limit for one in later if not one.lacking)
    return min(left, max(step.limit, spare) if step.stretches else step.limit)


def _execute(step: Step, allowed: float, log: Path) -> tuple[int | str, list[int]]:
    """Its exit code, or what became of it; and the processes that could not be ended."""
    mark = Mark("BENCH_STEP", f"{os.getpid()}-{time.monotonic_ns()}")
    left: list[int] = []
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                step.argv,
                env=os.environ | step.environment | mark.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started: {error}", left
        try:
            return _wait(process, allowed), left
        finally:  # also where this session is told to end
            left += mark.end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)


def _wait(process: subprocess.Popen[bytes], allowed: float) -> int | str:
    """Ask a step that is over its limit to end, so that it writes what it has."""
    try:
        return process.wait(timeout=allowed)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE)
    return f"over its limit of {allowed:.0f} s"


def archive(file: Path, folders: Mapping[str, Path]) -> None:
    """Pack folders under these names; the file is there whole, or as it was before."""
    fresh = file.with_name(f"{file.name}.new")
    with tarfile.open(fresh, "w:gz") as packed:
        for name, folder in folders.items():
            if folder.is_dir():
                packed.add(folder, arcname=name)
    fresh.replace(file)


def copy_new(files: Sequence[Path], since: float, target: Path) -> None:
    """Those written since a time (as time.time)."""
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file.exists() and file.stat().st_mtime >= since:
            shutil.copy2(file, target)
