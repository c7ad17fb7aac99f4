"""The page of duet.py, from what was kept of its parts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from results import table, verdict

Found = dict[str, Any]

#: Intervals of equal sides, and of what a sleeper costs, lie within these; 0 is excluded in so many of 20 experiments;
#: host against container takes so long (s); a duet's spread over that of blocks; a page's share of a processor.
EQUAL, SLEEPER, EXCLUDED, QUESTION, SPREAD = 0.02, 0.03, 3 / 20, 60.0, 1 / 3


def page(data: Mapping[str, Found]) -> str:
    """A section for each part that was measured to its end."""
    text = "# What duets are worth\n\nTwo ranks, all-reduce of 8 B, 64 KiB and 1 MiB. Each part has its own time.\n"
    for name, (title, section) in SECTIONS.items():
        entry = data.get(name)
        if entry is not None and entry["whole"]:
            before, after = entry["pressure"]
            text += f"\n## {title}\n\n{section(entry['found'])}\n{entry['machine']}; {entry['when']}, commit "
            text += f"{entry['commit']}, seed {entry['seed']}{_libraries(entry['found'])}.\n"
            text += f"CPU pressure before `{before}`, after `{after}`.\n"
    return text


def _equal(found: Found) -> str:
    by_kind: dict[str, list[Found]] = defaultdict(list)
    for one in found["experiments"]:
        by_kind[f"{one['library']}, {one['place']}"].append(one)
    rows, head = [], ("library, place", "experiments", "0 excluded", "largest bound", "spread of a side, 8 B, 64K, 1M",
                      "of the ratio", "seconds each")  # fmt: skip
    for kind, several in by_kind.items():
        spreads = [[mean(one["spread"][size][k] for one in several) for size in several[0]["spread"]] for k in (0, 1)]
        rows.append([kind, str(len(several)), str(sum(map(_excluded, several))),
                     f"{max(map(_bound, several)):.1%}", *(", ".join(f"{x:.2%}" for x in one) for one in spreads),
                     f"{mean(one['seconds'] for one in several):.0f}"])  # fmt: skip
    all_of_them = found["experiments"]
    if not all_of_them:
        return f"No experiment succeeded.\n{_failed(found)}"
    bound, excluded = max(map(_bound, all_of_them)), sum(map(_excluded, all_of_them)) / len(all_of_them)
    starts = "; ".join(f"{size} {_percent(found['start'][size])}" for size in found["start"])
    verdicts: dict[str, int] = defaultdict(int)
    for one in all_of_them:
        for size in one["sizes"].values():
            verdicts[size["verdict"]] += 1
    counts = [one["alone"] for one in all_of_them if "alone" in one]
    alone = sum(map(Counter, counts), Counter[str]())
    listed = ", ".join(f"{number} ({reason})" for reason, number in sorted(alone.items()))
    in_blocks = listed or ("none" if counts else "not counted")
    told = ", ".join(f"{number} {name}" for name, number in sorted(verdicts.items()))
    return f"""Eight launches of two sides that do not differ. `0 excluded`: the interval of any size excludes equality.
The largest end of an interval is {bound:.1%} (at most {EQUAL:.0%}: {verdict(bound, EQUAL)}); 0 is excluded in
{excluded:.0%} (at most 3 of 20: {verdict(excluded, EXCLUDED)}). Verdicts: {told}. Measured in blocks: {in_blocks}.
{_failed(found)}
{table(head, rows)}
The world that was started second over the first, all launches: {starts}.
"""


def _excluded(one: Found) -> bool:
    return any(size["differs"] for size in one["sizes"].values())


def _bound(one: Found) -> float:
    """The largest end of an interval, as a share, either way; infinity: an interval is missing."""
    return max(_furthest(size["interval"]) for size in one["sizes"].values())


def _furthest(ends: Sequence[float] | None) -> float:
    return math.inf if ends is None or min(ends) <= 0 else math.expm1(max(abs(math.log(end)) for end in ends))


def _question(found: Found) -> str:
    rows, times = [], []
    for library, one in found.items():
        took = verdict(one["seconds"], QUESTION)
        times.append(f"{library} {one['seconds']:.0f} s (at most {QUESTION:.0f} s: {took})")
        rows += [[f"{library}, {size}", *_ratio(of), _percent(one["start"][size])] for size, of in one["sizes"].items()]
    head = ("library, size", "container over host", "verdict", "host first over container first")
    return f"Host against container in eight launches: {', '.join(times)}.\n\n{table(head, rows)}"


def _sleeper(found: Found) -> str:
    host, container = (found["mean"][policy] for policy in ("host", "multi"))
    columns = (host, container, found["difference"])
    rows = [[size, *(_percent(column[size]) for column in columns)] for size in host]
    ends = [max(map(abs, one[size][1:])) for one in (host, container) for size in one]
    worst = math.expm1(max(ends)) if ends else math.inf
    lives = {policy: max(map(len, by_size.values()), default=0) for policy, by_size in found["costs"].items()}
    asleep = max(found["share of a processor asleep"], default=0.0)
    head = ("size", "host, a container sleeps", "container, the host sleeps", "difference")
    return f"""Five slices while the other world sleeps over five while there is none, eight times in a life; mean of
{lives["host"]} and {lives["multi"]} lives with 95 % interval. The furthest end is {worst:.1%} (at most {SLEEPER:.0%}:
{verdict(worst, SLEEPER)}). Sleepers used at most {asleep:.2%} of a processor a rank. {_failed(found)}

{table(head, rows)}"""


def _slices(found: Found) -> str:
    head = ("slices", "8 B", "64 KiB", "1 MiB", "seconds each")
    rows = []
    for rule, spread in found["spread"].items():
        seconds, rounds, _ = found["rules"][int(rule)]
        rows.append([f"{rounds} of {seconds * 1e3:g} ms", *(f"{one:.2%}" for one in spread),
                     f"{mean(found['seconds'][rule]):.1f}"])  # fmt: skip
    launches = min(len(of) for rule in found["logs"].values() for of in rule.values())
    return f"""Standard deviation between {launches} launches of the logarithm of the ratio of two equal sides, by how
long slices are; one after the other, in random order, with starts. {_failed(found)}

{table(head, rows)}"""


def _restless(found: Found) -> str:
    launches = [len(of) for how in found["logs"].values() for of in how.values()]
    rows = [[size, f"{duet:.2%}", f"{blocks:.2%}", f"{duet / blocks:.2f}", verdict(duet / blocks, SPREAD)]
            for size, (duet, blocks) in found["spread"].items()]  # fmt: skip
    head = ("size", "duet", "blocks", "duet over blocks", "at most a third")
    return f"""Two processes compute and copy memory at random times. Standard deviation between {min(launches)}
launches of the logarithm of the ratio of two equal sides; duets and blocks in turns. {_failed(found)}

{table(head, rows)}"""


def _planted(found: Found) -> str:
    rows = [[f"{place}, {size}", *_ratio(of), "found" if of["differs"] else "not found"]
            for place, one in found["places"].items() for size, of in one["sizes"].items()]  # fmt: skip
    text = f"One side has `{found['variables']}`, in eight launches.\n\n"
    return text + table(("place, size", "with it over without", "verdict", ""), rows)


def _training(found: Found) -> str:
    rows = [[what, *_ratio(of)] for what, of in found["sizes"].items()]
    text = (
        f"A step of `ddp` on two ranks, {found['launches']} launches in turns, which took {found['seconds']:.0f} s.\n\n"
    )
    return text + table(("what", "container over host", "verdict"), rows)


SECTIONS: dict[str, tuple[str, Callable[[Found], str]]] = {
    "equal": ("Sides that do not differ", _equal),
    "question": ("Host against container", _question),
    "sleeper": ("What a sleeping world costs", _sleeper),
    "slices": ("Short slices and long ones", _slices),
    "restless": ("A machine that is disturbed on purpose", _restless),
    "planted": ("A planted difference", _planted),
    "training": ("A training step", _training),
}


def _ratio(of: Found) -> tuple[str, str]:
    if of["ratio"] is None:
        return "-", of["verdict"]
    ends = "" if of["interval"] is None else " ({:.3f} .. {:.3f})".format(*of["interval"])
    return f"{of['ratio']:.3f}{ends}", of["verdict"]


def _percent(logs: Sequence[float] | None) -> str:
    """A mean with its interval, of logarithms."""
    if logs is None:
        return "too few launches"
    value, low, high = map(math.expm1, logs)
    return f"{value:+.2%} ({low:+.2%} .. {high:+.2%})"


def _failed(found: Found) -> str:
    return f"{len(found['failed'])} failed and are left out." if found.get("failed") else ""


def _libraries(found: Found) -> str:
    """Of all parts of what was found."""
    names = list(found.get("libraries", ()))
    parts = [*found.get("experiments", ()), *found.get("places", {}).values(), *found.values()]
    for part in parts:
        names += part.get("libraries", ()) if isinstance(part, dict) else ()
    return f"; {', '.join(dict.fromkeys(names))}" if names else ""
