"""Names of planned cells: what tells each from the others; what all have in common is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from collbench.analysis.gate.answers import Answer
from collbench.report.headings import heading
from collbench.schema.case import Case, names_in
from collbench.schema.launch_plan import Side
from collbench.units import format_size


class Names(NamedTuple):
    """By answer, in their order: what is measured, without what is `shared`, and the size; equal names get numbers."""

    cells: dict[int, str]
    sizes: dict[int, str]
    shared: str

    def of(self, answer: Answer) -> str:
        """`allreduce 64K`, in one piece."""
        return f"{self.cells[id(answer)]} {self.sizes[id(answer)]}".strip()


def names_of(answers: Sequence[Answer]) -> Names:
    """The names of all planned cells."""
    parts = [_parts(one) for one in answers]
    shared = [part for part in parts[0] if all(part in own for own in parts)] if parts else []
    labels = [", ".join(part for part in own if part not in shared) or own[0].split()[0] for own in parts]
    sizes = [_size(one.base) for one in answers]
    times, seen = Counter(zip(labels, sizes, strict=True)), Counter[tuple[str, str]]()
    for number, key in enumerate(zip(labels, sizes, strict=True)):
        seen[key] += 1
        if times[key] > 1:
            labels[number] += f" ({seen[key]})"
    keys = [id(one) for one in answers]
    return Names(dict(zip(keys, labels, strict=True)), dict(zip(keys, sizes, strict=True)), ", ".join(shared))


def _parts(answer: Answer) -> list[str]:
    case = common(answer)
    place = () if case.where.on_host else (case.where.text,)
    return [part for part in (*heading(case).split(", "), case.where.image or "", *place) if part]


def common(answer: Answer) -> Case:
    """What is measured on both sides, without what they differ in."""
    apart = [name for name in names_in((answer.base, answer.other)) if answer.base[name] != answer.other[name]]
    return answer.base.without(apart) if apart else answer.base


def _size(case: Case) -> str:
    return format_size(case["size"]) if "size" in case.what else ""


def side_title(side: Side) -> str:
    """`image=openmpi=new, env=A=1, lib=/build/libmpi.so`: as it is typed."""
    words = [f"image={name}={image}" for name, image in side.images.items()]
    words += [f"env={name}={value}" for name, value in side.variables.items()]
    words += [f"lib={path}" for path in side.libraries] + [f"preload={path}" for path in side.preload]
    return ", ".join(words) or "the plan as it stands"
