"""A page: figures by Matplotlib as SVG, and chapters of them and of tables as one HTML file.

No script, no network, every text from a run escaped. Figures have their colours from the style sheet, text as text, and
unique names.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from collbench import __version__
from collbench.analysis.estimate import needed
from collbench.report.tables import Table, joined
from collbench.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Draws a plot on axes.
Painter = Callable[["Axes"], None]

#: Width and height of a small plot in inches; on a phone it fills the width at full letter size.
SIZE = (4.8, 3.3)

#: Inches from which a plot has a row of the page to itself, and scrolls on a phone.
WIDE = 6.2

#: Colours that stand for variables of the page's style sheet, so that one drawing serves light and dark.
INK, FAINT, PAPER = "#010101", "#010102", "#010103"
SERIES = tuple(f"#0101{0xA0 + index:02x}" for index in range(10))
WORSE, BETTER, OPEN = "#0101b0", "#0101b1", "#0101b2"
_VARIABLES = {INK: "ink", FAINT: "faint", PAPER: "paper", WORSE: "worse", BETTER: "better", OPEN: "open"} | {
    colour: f"series-{index}" for index, colour in enumerate(SERIES)
}

#: Besides its colour every series has its own marker, for print without colours and for readers who do not see them.
MARKERS = "osD^vPX*<>"
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oo", "**", "|||")

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "collbench",
    "font.family": "sans-serif", "font.size": 9,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.titlesize": 9.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": FAINT, "grid.linewidth": 0.4, "xtick.color": INK, "ytick.color": INK, "text.color": INK,
    "legend.frameon": False, "legend.fontsize": 8, "hatch.linewidth": 0.6,
    "lines.markersize": 4, "lines.linewidth": 1.3,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A plot: its SVG, in words what it shows, and as `values` what those read who cannot see it.

    `paint` draws it on axes once more, `size` inches wide and high.
    """

    title: str
    caption: str
    svg: str
    paint: Painter = field(repr=False, compare=False)
    size: tuple[float, float] = SIZE
    values: str = ""

    @property
    def wide(self) -> bool:
        return self.size[0] > WIDE


def draw(
    name: str, title: str, caption: str, paint: Painter, size: tuple[float, float] = SIZE, values: str = ""
) -> Figure:
    """A figure that `paint` draws on axes; `name` is unique in the page.

    Raises:
        RequestError: Matplotlib is not installed.
    """
    svg = _saved(paint, size, "svg", {}).decode("utf-8")
    return Figure(title, caption, _embedded(svg, name, title, size[0]), paint, size, values)


def as_file(figure: Figure, kind: str) -> bytes:
    """The figure by itself as `svg` or `pdf`, in the colours that the page has on paper."""
    variables = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", _part("page.css"))[::-1])  # the first of each name
    return _saved(figure.paint, figure.size, kind, {code: variables[name] for code, name in _VARIABLES.items()})


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _saved(paint: Painter, size: tuple[float, float], kind: str, colours: Mapping[str, str]) -> bytes:
    """A plot as a file, with other `colours` in place of these."""
    matplotlib = needed("matplotlib", "Matplotlib")
    canvas_of = needed("matplotlib.figure", "Matplotlib").Figure
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # About letters that its own font lacks (the reader's browser has others), and names that leave no room.
        warnings.simplefilter("ignore", UserWarning)
        canvas = canvas_of(figsize=size, layout="constrained")
        canvas.patch.set_alpha(0)
        axes = canvas.add_subplot()
        axes.patch.set_alpha(0)
        paint(axes)
        out = io.BytesIO()
        dates = ("CreationDate", "ModDate") if kind == "pdf" else ("Date",)
        if colours:
            canvas.draw_without_rendering()  # ticks are made now
            for artist in canvas.findobj():
                _recolour(artist, colours)
        canvas.savefig(out, format=kind, metadata=dict.fromkeys((*dates, "Creator")))
    return out.getvalue()


def _recolour(artist: Any, colours: Mapping[str, str]) -> None:
    """Colours of an artist that stand for others; one that is transparent remains so."""
    from matplotlib.colors import to_hex, to_rgba_array

    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        get, put = (getattr(artist, f"{verb}_{name}", None) for verb in ("get", "set"))
        if get is None or put is None:
            continue
        old = to_rgba_array(get())
        new = [(colours.get(to_hex(colour), to_hex(colour)), float(colour[3])) for colour in old]
        if any(to_hex(colour) in colours for colour in old):
            put(new[0] if len(new) == 1 else new)


def _embedded(svg: str, name: str, title: str, width: float) -> str:
    """An SVG file, `width` inches wide, as an element of a page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(?<=\sid=")', f"{name}-", body)
    body = re.sub(r"(?<=url\(#)|(?<=href=\"#)", f"{name}-", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var(--{variable})")
    opening = re.match(r'<svg[^>]* viewBox="([^"]*)"[^>]*>', body)
    assert opening is not None
    least = f' style="min-width: {round(width * 72)}px"' if width > WIDE else ""  # letters remain readable
    start = (
        f'<svg class="plot"{least} role="img" aria-label="{escape(title)}" viewBox="{opening[1]}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return start + body[opening.end() :]


# Parts of several plots.


def mark(artist: Any, number: int) -> None:
    """Mark as data rather than decoration: tests of the page look for it."""
    artist.set_gid(f"mark-{number}")


def legend(axes: Axes) -> None:
    """Below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 1 + (longest < 34) + (longest < 16)
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def whiskers(axes: Axes, intervals: Iterable[tuple[float, tuple[float, float] | None]], colour: str = INK) -> None:
    """At each place the ends of its interval; None: there is none."""
    if measured := [(place, *ends) for place, ends in intervals if ends is not None]:
        places, low, high = zip(*measured, strict=True)
        axes.vlines(places, low, high, color=colour, linewidth=1.0)


def size_axis(axes: Axes, sizes: list[int]) -> None:
    """Sizes on a logarithmic axis, labelled in binary units."""
    axes.set_xscale("log", base=2)
    chosen = sizes[:: -(-len(sizes) // 7)]
    axes.set_xticks(chosen, [format_size(size) for size in chosen])
    axes.minorticks_off()
    axes.set_xlabel("size asked for (B)")


def time_axis(axes: Axes) -> None:
    """Seconds on a logarithmic axis, labelled in ns to s."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    few = high / low < 30  # less than a decade and a half has too few labels
    axes.yaxis.set_major_formatter(lambda value, _: format_duration(value))
    axes.yaxis.set_minor_formatter(lambda value, _: format_duration(value) if few else "")
    axes.tick_params(axis="y", which="minor", labelsize=7)
    axes.set_ylabel("time")


def one_unit(axes: Axes) -> None:
    """Seconds on a linear axis, all in the unit that suits the largest, with as many digits as tell ticks apart."""
    high = axes.get_ylim()[1]
    units = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
    unit, scale = next((unit for unit in units if high < 1000 * unit[1]), units[-1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / scale:.4g}")
    axes.set_ylabel(f"time ({unit})")


# The page.


@dataclass(frozen=True)
class Section:
    """One operation on all its numbers of ranks, or one kind of table. `fold`: the line above what is folded."""

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: tuple[Figure, ...] = ()
    folded_tables: tuple[Table, ...] = ()
    fold: str = ""


@dataclass(frozen=True)
class Chapter:
    """One run: the question, the answer in a few lines, a picture of it, what could mislead, and the evidence."""

    title: str
    question: str
    answer: tuple[str, ...]
    misleading: tuple[str, ...]
    sections: tuple[Section, ...]
    environment: tuple[Table, ...] = ()
    picture: tuple[Figure, ...] = ()


#: What every number of a report is.
FOOTER = (
    "Times are medians of launch medians; a difference has a verdict only with six launches a side or more. How it is "
    "measured and judged: docs/method.md and docs/statistics.md of collbench."
)

#: Words of an answer that are seen at once; more are folded, and so are caveats beyond so many.
MOST_WORDS, MOST_CAVEATS = 60, 3


def html(chapters: Sequence[Chapter], footer: str = FOOTER) -> str:
    """The page.

    Raises:
        RequestError: Jinja is not installed.
    """
    jinja = needed("jinja2", "Jinja2")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True,
                                    lstrip_blocks=True)  # fmt: skip
    template = environment.from_string(_part("page.html.j2"))
    return str(template.render(chapters=chapters, style=_part("page.css"), version=__version__, joined=joined,
                               footer=footer, seen_at_once=seen_at_once, most_caveats=MOST_CAVEATS))  # fmt: skip


def seen_at_once(lines: Sequence[str]) -> int:
    """How many lines of an answer have at most `MOST_WORDS` together, signs not counted; at least one."""
    words = accumulate(sum(any(map(str.isalnum, word)) for word in line.split()) for line in lines)
    return max(1, sum(number <= MOST_WORDS for number in words))
