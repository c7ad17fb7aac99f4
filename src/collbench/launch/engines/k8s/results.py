"""What ranks wrote is copied out of their pod: an archive, read as untrusted input."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import IO

from collbench.errors import LaunchFailed
from collbench.launch.engines.k8s.client import Client
from collbench.launch.engines.k8s.pods import RESULTS
from collbench.launch.harvest import LARGEST
from collbench.schema.progress import PROGRESS

#: What a run has besides samples; by these progress is seen.
TOP = ("manifest.json", "records.jsonl", PROGRESS)

#: Longest time of a copy (s), and most files of it.
COPY, MOST_FILES = 600.0, 20_000


def copy(client: Client, pod: str, out: Path, everything: bool) -> None:
    """Copy the run of a pod to `out`: everything, or what shows progress. A run that is not there yet is none.

    Raises:
        EngineError: there is no kubectl.
        LaunchFailed: it is no archive, or takes too long.
    """
    names = "." if everything else " ".join(TOP)
    script = f"cd {RESULTS}/out 2>/dev/null && exec tar --ignore-failed-read -cf - {names} 2>/dev/null"
    command = client.command("exec", pod, "--container=ranks", "--", "sh", "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        clock = threading.Timer(COPY, process.kill)
        clock.start()
        try:
            assert process.stdout is not None
            unpack(process.stdout, out)
        except (tarfile.TarError, EOFError, OSError) as error:
            if everything:
                raise LaunchFailed(f"what pod {pod} wrote cannot be copied: {error}") from error
        finally:
            clock.cancel()
            process.kill()


def unpack(archive: IO[bytes], out: Path) -> None:
    """The files of a run in an archive; anything else in it, links among them, is left out.

    Raises:
        tarfile.TarError, OSError: it is no archive, ends early, or cannot be written.
    """
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for number, member in enumerate(members):
            name = member.name.removeprefix("./")
            folder, _, file = name.rpartition("/")
            belongs = name in TOP or (folder == "samples" and file not in ("", ".", ".."))
            if not member.isreg() or not belongs:
                continue
            if number > MOST_FILES or member.size > LARGEST:
                raise tarfile.TarError(f"{name} is too large, or one file too many")
            content = members.extractfile(member)
            assert content is not None
            (out / folder).mkdir(mode=0o700, exist_ok=True)
            with (out / name).open("wb") as target:
                shutil.copyfileobj(content, target)
