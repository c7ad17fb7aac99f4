"""Everything that may vary from case to case, declared once.

A case holds its values by these names. The keys of a plan, the flags of commands, the loops over a plan, factors of
`compare` and `advise`, headings, CSV columns and the values that stand for nothing are read from this table. A workload
may have axes that are not in it: its file declares them, and a reader of its records shows them by name and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from collbench.errors import PlanError
from collbench.schema.choices import (
    DTYPE_ALIASES,
    DTYPES,
    YES_NO_BOTH,
    Choice,
    Flag,
    Library,
    Situation,
    Sizes,
    one_of,
    sizes_in_bytes,
)
from collbench.schema.place import is_spelling, policy_order
from collbench.spelling import suggestion

#: As Docker spells a reference: no blank, no quote, nothing that a shell would read.
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+:[0-9]{1,5}/)?[a-z0-9]+(?:[._/-][a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)

_SIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)


def named(
    known: Iterable[str], everything: Callable[[Library], Iterable[str]], aliases: Mapping[str, str]
) -> Callable[[Any, Situation], tuple[str, ...]]:
    """Values that are names, in any case of letters; `all` is whatever the backend has. `name_of` checked them."""
    proper = {name: name for name in known} | dict(aliases)

    def values(asked: Any, situation: Situation) -> tuple[str, ...]:
        names: list[str] = []
        for name in map(str.lower, asked):
            names.extend(everything(situation.backend) if name == "all" else (proper[name],))
        return tuple(dict.fromkeys(names))

    return values


def name_of(axis: str, known: Iterable[str], every: bool = True) -> Callable[[str, Any], None]:
    """A check that a value is one of these names: with `every` in any case of letters, or `all`."""
    names = (*known, "all") if every else tuple(known)

    def check(key: str, value: Any) -> None:
        if (value.lower() if every else value) not in names:
            raise PlanError(f"{axis} {value!r}: unknown. {suggestion(value.lower(), names)}")

    return check


def roots(asked: Any, situation: Situation) -> tuple[int, ...]:
    """Ranks of the world."""
    for rank in asked:
        if not 0 <= rank < situation.ranks:
            raise PlanError(f"root {rank}: there are {situation.ranks} ranks, 0 to {situation.ranks - 1}.")
    return tuple(asked)


def empty_is_none(asked: Any, situation: Situation) -> tuple[Any, ...]:
    """A plan says "" where it leaves the choice to the library."""
    return tuple(value or None for value in asked)


def operations_of_graph(asked: Any, situation: Situation) -> tuple[int, ...]:
    """A graph holds one operation, or in streaming cadence a whole burst."""
    return (situation.operations if asked else 0,)


def places(asked: Any, situation: Situation) -> tuple[bool, ...]:
    """Without an in-place form there is one case: out of place, unless only in place was asked for (a skip then)."""
    if situation.row.has_in_place:
        return tuple(asked)
    return (False not in asked,)


def nccl_words(*known: str) -> Callable[[str, Any], None]:
    """A check of NCCL_ALGO or NCCL_PROTO: words between commas, `^` before those to exclude, `func:` before each."""
    lower = {name.lower() for name in known}

    def check(key: str, value: Any) -> None:
        for word in re.split(r"[,;]", value):
            name = word.rpartition(":")[2].strip().removeprefix("^")
            if name and name.lower() not in lower:
                raise PlanError(f"{key} {value!r}: NCCL has no {name}. {suggestion(name, known)}")

    return check


def within(low: int, high: int) -> Callable[[str, Any], None]:
    """A check of a number."""

    def check(key: str, value: Any) -> None:
        if value < low:
            raise PlanError(f"{key} {value}: must be at least {low}.")
        if value > high:
            raise PlanError(f"{key} {value}: at most {high:,}.")

    return check


def image_name(key: str, value: Any) -> None:
    """A check."""
    if _IMAGE.fullmatch(value) is None:
        raise PlanError(f"image {value!r}: not a name of an image. Write openmpi, or site/name:tag.")


def policy_name(key: str, value: Any) -> None:
    """A check."""
    if not is_spelling(value):
        raise PlanError(f"policy {value!r}: not a name of a policy. Write single, or with a number packed:2.")


def side_name(key: str, value: Any) -> None:
    """A check."""
    if _SIDE.fullmatch(value) is None:
        raise PlanError(f"{key}: {value!r}: a side is named by letters, digits, - and _, at most 32 of them.")


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
STEPS = (None, "files", "visible", "net", "ipc", "limits", "strict")


#: What may lie under the files of a program: the writable layer of a container, a volume of the engine, a folder of the
#: host that is mounted, memory.
STORAGES = ("overlay", "volume", "bind", "tmpfs")

SECCOMP = ("default", "unconfined")

#: Booleans as labels, and what else they may be called.
YES, NO = "yes", "no"
SYNONYMS = {"true": YES, "false": NO}


def _label(value: Value) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return "default" if value is None else str(value)


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
    and is not stored. Other values are `of` one type. `label` names a side of a comparison, `order` sorts them, and
    `words` says a value in the heading of a table (empty: nothing). `implies` are facts of the environment that may
    differ with it. `advised`: a reader may still choose it, so `advise` does. `column`: its name in CSV files.
    `choice` is how values are asked for in a plan and by a flag.
    """

    name: str
    kind: Kind
    means: str
    neutral: Value = None
    of: type = str
    label: Callable[[Value], str] = _label
    order: Callable[[Any], Any] = _order
    words: Callable[[Value], str] = _no_words
    implies: frozenset[str] = frozenset()
    advised: bool = False
    column: str = ""
    choice: Choice | None = None

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
    return lambda value: f"{word}{_label(value)}" if value not in (None, "") else ""


def _if_true(words: str) -> Callable[[Value], str]:
    return lambda value: words if value else ""


#: What NCCL knows (nccl.h and its manual, 2.30); case does not matter to it.
NCCL_ALGO = nccl_words("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
NCCL_PROTO = nccl_words("LL", "LL128", "Simple")

#: Every axis that is not a workload's own, in the order of tables.
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("measure", "what", "what a program was timed at", words=_after("")),
        Axis(
            "op", "what", "the reduction", words=_after(""),
            choice=Choice(
                "ops", ("sum",), row=lambda row: row.reduces, nested=-1,
                values=named(OPS, lambda backend: backend.ops, {}), check=name_of("op", OPS),
                flag=Flag(("-o", "--op"), f"Reduction: {', '.join(OPS)}, or all.", "OP", commas=True),
            ),
        ),
        Axis(
            "dtype", "what", "the type of an element", "", words=_after(""),
            choice=Choice(
                "dtypes", ("float32",), row=lambda row: row.moves_data, nested=-2,
                values=named(DTYPES, lambda backend: backend.dtypes(), DTYPE_ALIASES),
                check=name_of("dtype", (*DTYPES, *DTYPE_ALIASES)),
                flag=Flag(("-d", "--datatype"), "int8 to uint64, float16, bfloat16, float32, float64 (or half, float, "
                          "double), or all.", "TYPE", commas=True),
            ),
        ),
        Axis(
            "root", "what", "the rank that sends, receives or serves", of=int, words=_after("root "),
            choice=Choice(
                "roots", (0,), row=lambda row: row.rooted, values=roots,
                flag=Flag(("-r", "--root"), "Root, or parameter server, where the collective has one.", "RANK"),
            ),
        ),
        Axis(
            "size", "what", "the size asked for, in bytes", 0, of=int, column="size_asked",
            choice=Choice(
                "sizes", None, of=Sizes | tuple[str | int, ...] | None, row=lambda row: row.moves_data, nested=1,
                values=lambda asked, situation: sizes_in_bytes(asked),
            ),
        ),
        Axis(
            "backend", "how", "what moves the data", "", words=_after("backend "), implies=SOFTWARE,
            choice=Choice(
                "backends", (), values=lambda asked, situation: (situation.backend.name,),
                flag=Flag(("--backend",), "See `collbench list`.", "NAME",
                          default="mpi, on GPUs nccl; under torchrun torch-gloo, torch-nccl"),
            ),
        ),
        Axis(
            "driver", "how", "who makes the calls", "", words=_after("driver "), advised=True, column="driver_asked",
            choice=Choice(
                "drivers", ("native",), of=Driver, nested=-3,
                flag=Flag(("--driver",), "Who makes the call: our C loop, or Python.", words=one_of(DRIVERS)),
            ),
        ),
        Axis(
            "thread_level", "how", "what MPI is initialised with", "", words=_after("thread level "),
            implies=frozenset({"granted-thread-level"}), advised=True,
            choice=Choice(
                "thread_level", "single", of=ThreadLevel,
                flag=Flag(("--thread-level",), "What MPI is initialised with.",
                          words={name: name for name in THREAD_LEVELS}),
            ),
        ),
        Axis(
            "staging", "how", "the host memory that device data passes through",
            words=lambda value: f"{value} host memory" if value else "", advised=True,
            choice=Choice(
                "staging", ("pinned",), of=Staging, row=lambda row: row.moves_data, optional=True,
                flag=Flag(("--staging",), "Host memory that device data passes through (mpi-staged, and the server's "
                          "leg of nccl).", words=one_of(STAGINGS) | {"both": STAGINGS}),
            ),
        ),
        Axis(
            "algorithm", "how", "what NCCL_ALGO is set to", words=_after("NCCL_ALGO="), advised=True,
            column="algorithm_asked",
            choice=Choice(
                "algorithms", ("",), optional=True, values=empty_is_none, check=NCCL_ALGO,
                flag=Flag(("--algorithm",), "nccl: what NCCL_ALGO is set to.", "NAME", default="left to NCCL"),
            ),
        ),
        Axis(
            "protocol", "how", "what NCCL_PROTO is set to", words=_after("NCCL_PROTO="), advised=True,
            column="protocol_asked",
            choice=Choice(
                "protocols", ("",), optional=True, values=empty_is_none, check=NCCL_PROTO,
                flag=Flag(("--protocol",), "nccl: what NCCL_PROTO is set to.", "NAME", default="left to NCCL"),
            ),
        ),
        Axis(
            "registered", "how", "buffers known to the communicator beforehand", False, of=bool,
            words=_if_true("registered buffers"), advised=True,
            choice=Choice(
                "registered", (False,), optional=True,
                flag=Flag(("-R", "--local_register"), "nccl: buffers that NCCL allocates and registers.", "0|1",
                          words={"0": (False,), "1": (True,)}),
            ),
        ),
        Axis(
            "graph", "how", "operations in a CUDA graph that is launched in place of calls", 0, of=int,
            words=lambda value: f"CUDA graph of {value}" if value else "", advised=True,
            choice=Choice(
                "cudagraph", 0, row=lambda row: not row.has_server, optional=True,
                values=operations_of_graph, check=within(0, 10_000_000),
                flag=Flag(("-G", "--cudagraph"), "nccl: launch a captured CUDA graph N times a sample; 0: no graph.",
                          "N"),
            ),
        ),
        Axis(
            "in_place", "how", "the result takes the place of the input", False, of=bool, words=_if_true("in place"),
            advised=True,
            choice=Choice(
                "in_place", (False,), values=places, nested=1,
                flag=Flag(("--in-place",), "Measure the in-place form.", words=YES_NO_BOTH, alone="yes",
                          default="no; both with --style nccl-tests"),
            ),
        ),
        Axis("engine", "where", "what the ranks were started in", "host"),
        Axis(
            "image", "where", "the image, on the host the environment beside it", implies=SOFTWARE,
            label=lambda value: str(value or "none"),
            choice=Choice("images", check=image_name),
        ),
        Axis(
            "side", "where", "what differs from the rest of the plan: image, variables, library files",
            implies=SOFTWARE | {"python", "packages", "image-id", "env:*"}, label=lambda value: str(value or "none"),
            choice=Choice("sides", check=side_name),
        ),
        Axis(
            "policy", "where", "how ranks are spread over containers", "host", order=policy_order, advised=True,
            implies=frozenset({"python", "packages", "image-id"}),
            choice=Choice("policies", check=policy_name),
        ),
        Axis(
            "isolation", "where", "the step of the engine's ladder", label=lambda value: str(value or "none"),
            order=step_order, advised=True,
            choice=Choice("isolation"),
        ),
        Axis(
            "affinity", "where", "memory near the cores, or on another node", "near", advised=True,
            choice=Choice("affinity"),
        ),
        Axis(
            "storage", "where", "what lies under the files that a program works in",
            label=lambda value: str(value or "none"), words=_after("on "), advised=True,
            choice=Choice("storage", check=name_of("storage", STORAGES, every=False)),
        ),
        Axis(
            "seccomp", "where", "the filter of system calls in containers", "default", advised=True,
            choice=Choice("seccomp", check=name_of("seccomp", SECCOMP, every=False)),
        ),
        Axis(
            "hosts", "where", "machines over which the ranks are spread evenly", 1, of=int, advised=True,
            implies=frozenset({"hosts", "host", "boot", "allocation"}),
            words=lambda value: f"on {value} hosts" if value not in (None, 1) else "",
            choice=Choice("hosts"),
        ),
        Axis(
            "ranks", "where", "processes that take part", 1, of=int,
            choice=Choice("ranks"),
        ),
    )
}  # fmt: skip


def axis_of(name: str, kind: Kind = "what") -> Axis:
    """The axis of that name; one that is not in the table is a workload's own."""
    return AXES.get(name) or Axis(name, kind, "", words=_after(f"{name.replace('_', ' ')} "))


def choices_of(*kinds: Kind) -> dict[str, Choice]:
    """How values are asked for on every axis of these kinds that a plan can vary, by the name of the axis."""
    return {axis.name: axis.choice for axis in AXES.values() if axis.choice is not None and axis.kind in kinds}
