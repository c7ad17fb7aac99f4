"""Every error that collbench raises on purpose, and the exit code it ends with.

    CollbenchError                      exit code
    ├── RequestError                    2    the request was wrong: nothing was measured because of it
    │   ├── UnitError                        a size or a time that cannot be read
    │   ├── PlanError                        a plan file that cannot be carried out
    │   ├── BackendUnavailable               unknown here, or not usable here
    │   ├── EngineError                      no container engine answers, or it refuses
    │   │   └── ImageMissing                 the engine does not have an image, or not the one needed
    │   ├── WorldMismatch                    mpiexec and MPI library differ, or ranks disagree
    │   └── DoesNotFit                       more memory asked for than there is
    ├── RunError                        1
    │   ├── RunWriteError                    a run cannot be written (disk full, no permission)
    │   └── RunReadError                2    a run cannot be read (not a run, newer schema, damaged)
    ├── MeasurementError                1    a case failed
    │   ├── LibraryError                     the measured library returned an error
    │   └── LaunchFailed                     a world did not start, or ended early
    ├── LostRankError                   3    a rank died, or the job was torn down around us
    ├── TimeOutError                    3    no progress within the time-out
    └── Interrupted                   130    Ctrl-C, SIGTERM, or the reader of standard output left

`Unsupported` is not an error: a backend raises it to say that a case does not exist there, and the case becomes a
skipped record with the reason.
"""

from __future__ import annotations

from collbench.characters import in_one_line


class CollbenchError(Exception):
    """Base of every error raised on purpose. The text is what the user reads: what, where, what would work."""

    exit_code = 1

    #: Every rank of the job raises it, so that rank 0 speaks for all.
    everywhere = False


class RequestError(CollbenchError):
    """What was asked for cannot be done, and another request could."""

    exit_code = 2


class UnitError(RequestError):
    """A size or a duration that cannot be read."""


class PlanError(RequestError):
    """A plan file that is not one, or asks for what does not exist."""


class BackendUnavailable(RequestError):
    """A backend that is unknown, or cannot be used on this machine."""


class EngineError(RequestError):
    """No container engine answers, or it refuses what it is asked for."""


class ImageMissing(EngineError):
    """The engine does not have an image, or the image is not what the plan needs."""


class WorldMismatch(RequestError):
    """The processes that were started do not form the world that was asked for."""


class DoesNotFit(RequestError):
    """A case needs more memory than is free."""


class RunError(CollbenchError):
    """A run on disk cannot be written or read."""


class RunWriteError(RunError):
    """The run directory cannot be written; what was written before stays readable."""


class RunReadError(RunError):
    """The directory is not a run, is of a newer schema, or is damaged. What a run says of itself is cut short."""

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
    """A world did not start, or ended early. The text is the reason; `log` the last lines that it printed."""

    def __init__(self, reason: str, log: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.log = log


class LostRankError(CollbenchError):
    """A rank died or left."""

    exit_code = 3


class TimeOutError(CollbenchError):
    """Nothing moved for longer than the time-out."""

    exit_code = 3


class Interrupted(CollbenchError):
    """Stopped from outside: Ctrl-C, SIGTERM, or a closed standard output."""

    exit_code = 130


class Unsupported(Exception):
    """A backend does not have this case. Not a failure: the case is recorded as skipped, with this text as reason."""
