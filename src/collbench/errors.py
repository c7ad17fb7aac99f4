"""Every error that collbench raises on purpose, and the exit code it ends with.

    CollbenchError                      exit code
    ├── RequestError                    2    the request was wrong; nothing was measured
    │   ├── UnitError                        a size or a time that cannot be read
    │   ├── PlanError                        a plan file that cannot be carried out
    │   ├── BackendUnavailable               unknown, or not usable on this machine
    │   ├── EngineError                      no container engine answers, or it refuses
    │   │   └── ImageMissing                 the engine does not have the image that the plan needs
    │   ├── WorldMismatch                    mpiexec and MPI library differ, or ranks disagree
    │   ├── PackageMissing                   a Python package of an extra is not installed
    │   └── DoesNotFit                       more memory requested than there is
    ├── RunError                        1
    │   ├── RunWriteError                    a run cannot be written (disk full, no permission)
    │   └── RunReadError                2    a run cannot be read (not a run, newer schema, damaged)
    ├── MeasurementError                1    a case failed
    │   ├── LibraryError                     the measured library returned an error
    │   └── LaunchFailed                     a world did not start, or ended early
    │       └── LaunchLost                   its job was taken away; --resume repeats it
    ├── NoAnswer                        4    a gate cannot tell, whatever the reason
    ├── LostRankError                   3    a rank died, or the job was ended
    ├── TimeOutError                    3    no progress within the time-out
    └── Interrupted                   130    Ctrl-C, SIGTERM, or standard output was closed

`Unsupported` is not an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Change the direction of text, so that it reads as another, or begin lines.
_ORDER = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))

#: Characters that JSON allows unescaped in a text get the escapes of JSON, so that a document stays valid.
_IN_LINES = {code: f"\\x{code:02x}" for code in range(0x20) if chr(code) != "\n"}
_IN_LINES |= {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_ORDER)}
#: Bytes of names that are none of the terminal's characters, as Python holds them: shown as the bytes that they are.
_IN_LINES |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_IN_A_LINE = _IN_LINES | {ord("\n"): "\\x0a"}


def in_lines(text: str) -> str:
    """The text with these characters escaped; newlines stay."""
    return text.translate(_IN_LINES)


def with_notes(error: BaseException) -> str:
    """Its text, and what was added to it on the way."""
    return "".join((str(error), *getattr(error, "__notes__", ())))


def in_one_line(text: str) -> str:
    return text.translate(_IN_A_LINE)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`Did you mean mpi?`, or `There are: fake, mpi, torch-gloo.` where no word is similar."""
    return nearest(word, known) or _all(known)


def nearest_and_all(word: str, known: Sequence[str]) -> str:
    """`Did you mean quick? There are: ladder, quick.` for a short list that the reader may not have seen."""
    return f"{nearest(word, known)} {_all(known)}".lstrip()


def nearest(word: str, known: Sequence[str]) -> str:
    """`Did you mean mpi?`, or nothing where no word is similar."""
    import difflib  # takes too long to import where nothing is misspelt

    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {near[0]}?" if near else ""


def _all(known: Sequence[str]) -> str:
    return f"There are: {', '.join(known) or 'none'}."


class CollbenchError(Exception):
    """Base of every error raised on purpose. Its text tells the user what went wrong, where, and what would work.

    `everywhere`: whether every rank of the job raises it, so that rank 0 alone prints it.
    """

    exit_code, everywhere = 1, False


class RequestError(CollbenchError):
    """The request cannot be carried out; another one could."""

    exit_code = 2


class UnitError(RequestError):
    """A size or a duration that cannot be read."""


class PlanError(RequestError):
    """A plan file that cannot be read, or requests what does not exist."""


class BackendUnavailable(RequestError):
    """A backend that is unknown, or cannot be used on this machine."""


class EngineError(RequestError):
    """No container engine answers, or it refuses a request."""


class ImageMissing(EngineError):
    """The engine does not have an image, or the image is not what the plan needs."""


class WorldMismatch(RequestError):
    """The processes that were started are not the world that was requested."""


class PackageMissing(RequestError):
    """A Python package that belongs to an extra is not installed."""


def to_install(extra: str) -> str:
    """The command that brings what an extra consists of: its packages by name, because no index has collbench."""
    import importlib.metadata  # takes long, and is needed where something is missing alone

    try:
        requirements = importlib.metadata.requires("collbench") or []
    except importlib.metadata.PackageNotFoundError:  # started from its sources
        requirements = []
    of = re.compile(rf"([-\w.]+)[^;]*;.*\bextra == ['\"]{extra}['\"]")
    names = [match[1] for requirement in requirements if (match := of.match(requirement))]
    return f"pip install {' '.join(names)}" if names else f"in a clone of collbench: pip install '.[{extra}]'"


class DoesNotFit(RequestError):
    """A case needs more memory than is free."""


class RunError(CollbenchError):
    """A run on disk cannot be written or read."""


class RunWriteError(RunError):
    """The run directory cannot be written; what was written before stays readable."""


class RunReadError(RunError):
    """The directory is not a run, has a newer schema, or is damaged. Text from the run is shortened."""

    exit_code = 2
    longest = 1000

    def __init__(self, text: str) -> None:
        text = in_one_line(text)
        super().__init__(text if len(text) <= self.longest else f"{text[: self.longest]} ...")


class MeasurementError(CollbenchError):
    """A case could not be measured."""


class LibraryError(MeasurementError):
    """The measured library returned an error code."""


class LaunchFailed(MeasurementError):
    """A world did not start, or ended early. The text is the reason; `log` has the last lines that it printed."""

    def __init__(self, reason: str, log: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.log = log

    def saying(self, reason: str) -> LaunchFailed:
        return type(self)(reason, self.log)


class LaunchLost(LaunchFailed):
    """A launch that a cluster ended together with its job, or never began: it says nothing about what was measured."""


class NoAnswer(CollbenchError):
    """A gate cannot say whether anything is lost. Never 1, which would be a loss."""

    exit_code = 4


class LostRankError(CollbenchError):
    """A rank died or exited."""

    exit_code = 3


class TimeOutError(CollbenchError):
    """No progress for longer than the time-out."""

    exit_code = 3


class Interrupted(CollbenchError):
    """Stopped from outside: Ctrl-C, SIGTERM, or a closed standard output."""

    exit_code = 130


class Unsupported(Exception):
    """No error: a backend does not have this case, which is recorded as skipped with this text as reason."""
