"""Everything that may vary from case to case, declared once.

A case holds its values by these names. Factors of `compare` and `advise`, headings, columns, the fields that stand for
nothing, plan keys and the options of commands follow from this table. A workload may have axes that are not in it: its
file declares them, and a reader of its records shows them by name and value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from collbench.schema.policy import policy_order

Value = str | int | float | bool | None
Kind = Literal["what", "how", "where"]

Driver = Literal["native", "python"]
ThreadLevel = Literal["single", "funneled", "serialized", "multiple"]
Staging = Literal["pageable", "pinned"]
Op = Literal["sum", "prod", "min", "max", "avg"]

DRIVERS: tuple[Driver, ...] = get_args(Driver)
THREAD_LEVELS: tuple[ThreadLevel, ...] = get_args(ThreadLevel)
OPS: tuple[Op, ...] = get_args(Op)
STAGINGS: tuple[Staging, ...] = get_args(Staging)

#: Facts of the environment that come with a choice of software.
SOFTWARE = frozenset({"library", "library-file", "packages", "python", "image-id"})

#: Steps of isolation by name, from none to the most isolated. An engine's ladder has some of them (`launch.engines`).
STEPS = (None, "visible", "net", "ipc", "limits", "strict")


def _label(value: Value) -> str:
    return "default" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _order(value: Value) -> Any:
    """Numbers by value, before texts by the alphabet; nothing first."""
    number = isinstance(value, int | float)
    return (value is not None, not number, value if number else 0, "" if number or value is None else value)


def _no_words(value: Value) -> str:
    return ""


@dataclass(frozen=True)
class Axis:
    """One thing that may vary.

    `kind`: `what` is measured, `how`, or `where`. `neutral` stands where it does not apply or is left to the library,
    and is not stored. `label` names a side of a comparison, `order` sorts them, and `words` says a value in the heading
    of a table (empty: nothing). `implies` are facts of the environment that may differ with it. `advised`: a reader may
    still choose it, so `advise` does. `plan` is the plan's key, a list of values. `column`: its name in CSV files.
    """

    name: str
    kind: Kind
    means: str
    neutral: Value = None
    label: Callable[[Value], str] = _label
    order: Callable[[Any], Any] = _order
    words: Callable[[Value], str] = _no_words
    implies: frozenset[str] = frozenset()
    advised: bool = False
    plan: str = ""
    column: str = ""

    @property
    def spelled(self) -> str:
        """As it is typed: `thread-level`."""
        return self.name.replace("_", "-")

    @property
    def heading(self) -> str:
        """The CSV column."""
        return self.column or self.name


def step_order(step: str | None) -> int:
    """Place of a step on the ladder; an unknown one stands last."""
    return STEPS.index(step) if step in STEPS else len(STEPS)


def _after(word: str) -> Callable[[Value], str]:
    return lambda value: f"{word}{value}" if value not in (None, "") else ""


def _if_true(words: str) -> Callable[[Value], str]:
    return lambda value: words if value else ""


#: Every axis that is not a workload's own, in the order of tables.
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("measure", "what", "what a program was timed at", words=_after("")),
        Axis("op", "what", "the reduction", words=_after(""), plan="ops"),
        Axis("dtype", "what", "the type of an element", "", words=_after(""), plan="dtypes"),
        Axis("root", "what", "the rank that sends, receives or serves", words=_after("root "), plan="roots"),
        Axis("size", "what", "the size asked for, in bytes", 0, plan="sizes", column="size_asked"),
        Axis("backend", "how", "what moves the data", "", words=_after("backend "), implies=SOFTWARE, plan="backends"),
        Axis("driver", "how", "who makes the calls", "", words=_after("driver "), advised=True, plan="drivers",
             column="driver_asked"),
        Axis("thread_level", "how", "what MPI is initialised with", "", words=_after("thread level "),
             implies=frozenset({"granted-thread-level"}), advised=True, plan="thread_level"),
        Axis("staging", "how", "the host memory that device data passes through",
             words=lambda value: f"{value} host memory" if value else "", advised=True, plan="staging"),
        Axis("algorithm", "how", "what NCCL_ALGO is set to", words=_after("NCCL_ALGO="), advised=True,
             plan="algorithms", column="algorithm_asked"),
        Axis("protocol", "how", "what NCCL_PROTO is set to", words=_after("NCCL_PROTO="), advised=True,
             plan="protocols", column="protocol_asked"),
        Axis("registered", "how", "buffers known to the communicator beforehand", False,
             words=_if_true("registered buffers"), advised=True, plan="registered"),
        Axis("graph", "how", "operations in a CUDA graph that is launched in place of calls", 0,
             words=lambda value: f"CUDA graph of {value}" if value else "", advised=True),
        Axis("in_place", "how", "the result takes the place of the input", False, words=_if_true("in place"),
             advised=True, plan="in_place"),
        Axis("engine", "where", "what the ranks were started in", "host"),
        Axis("image", "where", "the image, on the host the environment beside it", implies=SOFTWARE, plan="images"),
        Axis("policy", "where", "how ranks are spread over containers", "host", order=policy_order, advised=True,
             implies=frozenset({"python", "packages", "image-id"}), plan="policies"),
        Axis("isolation", "where", "the step of the engine's ladder", label=lambda value: str(value or "none"),
             order=step_order, advised=True, plan="isolation"),
        Axis("affinity", "where", "memory near the cores, or on another node", "near", advised=True, plan="affinity"),
        Axis("ranks", "where", "processes that take part", 1, plan="ranks"),
    )
}  # fmt: skip


def axis_of(name: str, kind: Kind = "what") -> Axis:
    """The axis of that name; one that is not in the table is a workload's own."""
    return AXES.get(name) or Axis(name, kind, "", words=_after(f"{name.replace('_', ' ')} "))
