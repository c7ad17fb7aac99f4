"""collbench as on a system that is no Unix and has no MPI: `python without_unix.py COMMAND ...`.

Several commands, with THEN between them, are answered by lines of JSON: words, exit code, output, errors. With
SYSTEM=macos in its environment it is a Unix that is not Linux.

What collbench itself asks for is not there. Other libraries are loaded before that: they know their way on any system.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

OTHERS = (
    "click", "jinja2", "matplotlib.backends.backend_svg", "matplotlib.figure", "msgspec", "numpy", "scipy.optimize",
    "scipy.stats", "shutil", "subprocess", "tabulate", "tempfile",
)  # fmt: skip
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
LIBRARIES = {"cuda", "cupy", "docker", "mpi4py", "pynvml", "torch"}
FUNCTIONS = {
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fchown", "fork", "getegid", "geteuid",
    "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority", "getuid", "killpg", "lchown", "mkfifo",
    "nice", "O_PATH", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "readv",
    "sched_getaffinity", "sched_setaffinity", "setsid", "statvfs", "sysconf", "uname", "wait3", "wait4", "writev",
}  # fmt: skip
SIGNALS = {
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
    "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
}  # fmt: skip
FOLDERS = ("/dev/shm", "/proc/", "/sys/")  # noqa: S108 - not there


class Hiding(importlib.abc.MetaPathFinder):
    """Another finder, which does not find what is not there."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None for what is hidden."""
        hidden = fullname.partition(".")[0] in MODULES | LIBRARIES
        return None if hidden else self.finder.find_spec(fullname, path, target)

    def find_distributions(self, *context: Any) -> Any:
        """What is installed."""
        return self.finder.find_distributions(*context) if hasattr(self.finder, "find_distributions") else ()


def refuse_folders(event: str, arguments: tuple[object, ...]) -> None:
    """No file of the kernel can be opened."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(FOLDERS):
        raise FileNotFoundError(2, "there is no such folder on this system", str(arguments[0]))


for name in OTHERS:
    importlib.import_module(name)
if os.environ.get("SYSTEM") == "macos":
    MODULES, SIGNALS, FUNCTIONS = set(), set(), {name for name in FUNCTIONS if name.startswith(("sched", "posix_f"))}
else:
    os.supports_dir_fd.clear()
sys.meta_path[:] = map(Hiding, sys.meta_path)
for name in MODULES:
    sys.modules.pop(name, None)
for module, names in ((os, FUNCTIONS), (signal, SIGNALS)):
    for name in names:
        delattr(module, name)
sys.addaudithook(refuse_folders)
stat = os.stat


def refuse_stat(path: Any, **how: Any) -> os.stat_result:
    """Whether a file is there is told by no audit event."""
    refuse_folders("open", (path,))
    return stat(path, **how)


os.stat = refuse_stat

from collbench.cli import main, run_command  # noqa: E402

if "THEN" not in sys.argv:
    main()
for words in " ".join(sys.argv[1:]).split(" THEN "):
    sys.argv[1:] = words.split()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run_command(speaks=True)
    print(json.dumps([words, code, out.getvalue(), err.getvalue()]))  # noqa: T201
