"""collbench as on a system that is no Unix and has no MPI: `python without_unix.py COMMAND ...`.

What collbench itself asks for is not there. Other libraries are loaded before that: they know their way on any system.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

OTHERS = (
    "click", "jinja2", "matplotlib.backends.backend_svg", "matplotlib.figure", "msgspec", "numpy", "scipy.optimize",
    "scipy.stats", "shutil", "subprocess", "tabulate", "tempfile",
)  # fmt: skip
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
LIBRARIES = {"cuda", "cupy", "docker", "mpi4py", "pynvml", "torch"}
FUNCTIONS = {
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fchown", "fork", "getegid", "geteuid",
    "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority", "getuid", "killpg", "lchown", "mkfifo",
    "nice", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "readv", "sched_getaffinity",
    "sched_setaffinity", "setsid", "statvfs", "sysconf", "uname", "wait3", "wait4", "writev",
}  # fmt: skip
SIGNALS = {
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
    "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
}  # fmt: skip
FOLDERS = ("/dev/", "/proc/", "/sys/")


class Refusing(importlib.abc.MetaPathFinder):
    """Answers for modules that are not there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Refuse, or leave it to the others."""
        if fullname.partition(".")[0] in MODULES | LIBRARIES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def refuse_folders(event: str, arguments: tuple[object, ...]) -> None:
    """No file of the kernel can be opened."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(FOLDERS):
        raise FileNotFoundError(2, "there is no such folder on this system", str(arguments[0]))


for name in OTHERS:
    importlib.import_module(name)
sys.meta_path.insert(0, Refusing())
for name in MODULES:
    sys.modules.pop(name, None)
for module, names in ((os, FUNCTIONS), (signal, SIGNALS)):
    for name in names:
        delattr(module, name)
os.supports_dir_fd.clear()
sys.addaudithook(refuse_folders)

from collbench.cli import main  # noqa: E402

main()
