"""The answer of a gate as JUnit XML: a test case for each planned cell, none of which passes that has no answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.analysis.observations import Cell
from collbench.characters import in_one_line
from collbench.report.gate.names import Names
from collbench.report.gate.quoted import shortened
from collbench.report.gate.sentence import LONGEST, sentence, shown_difference

#: What XML 1.0 cannot hold, after control characters are escaped.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def junit(judgement: Judgement, names: Names) -> bytes:
    """The document: losses are failures, cells without an answer are errors; times (s) are those of all samples."""
    seconds = {id(answer): measured(answer) for answer in judgement.answers}
    attributes = {"name": "collbench gate", **_totals(judgement), "time": f"{sum(seconds.values()):.6f}"}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {**attributes, **_timestamp(judgement.began)})
    for answer in judgement.answers:
        where = {"classname": _text(names.shared or "collbench"), "name": _text(names.of(answer))}
        taken = {"time": f"{seconds[id(answer)]:.6f}"}
        _outcome(ElementTree.SubElement(suite, "testcase", where | taken), answer, judgement)
    ElementTree.SubElement(suite, "system-out").text = _text(sentence(judgement, names))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _totals(judgement: Judgement) -> dict[str, str]:
    """No test case is skipped: a cell that is has no answer."""
    numbers = {"tests": len(judgement.answers), "failures": len(judgement.of("loss")),
               "errors": len(judgement.of("no answer")), "skipped": 0}  # fmt: skip
    return {name: str(number) for name, number in numbers.items()}


def measured(answer: Answer) -> float:
    """For how long (s) a cell was measured on both sides: its samples, times their mean."""
    pair = answer.comparison.pair if answer.comparison else None
    return 0.0 if pair is None else _sampled(pair.base) + _sampled(pair.other)


def _sampled(cell: Cell) -> float:
    return cell.samples * sum(cell.means) / len(cell.means) if cell.means else 0.0


def _timestamp(began: str) -> dict[str, str]:
    """In UTC without an offset, which the schema of JUnit's reports does not have; none where it is not a time."""
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        return {}
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return {"timestamp": moment.replace(tzinfo=None).isoformat(timespec="seconds")}


def _outcome(case: ElementTree.Element, answer: Answer, judgement: Judgement) -> None:
    if answer.state == "loss":
        message = f"{shown_difference(answer)} slower, beyond the margin of {judgement.margin * 100:g} %"
        ElementTree.SubElement(case, "failure", {"type": "loss", "message": _text(message)})
    elif answer.doubt is not None:
        why = answer.doubt.why
        attributes = {"type": _text(answer.doubt.name), "message": _text(shortened(why, LONGEST))}
        error = ElementTree.SubElement(case, "error", attributes)
        error.text = _text(why) if len(why) > LONGEST else None
    else:
        ElementTree.SubElement(case, "system-out").text = _text(shown_difference(answer))


def _text(text: str) -> str:
    """Text that XML can hold, in one line."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", in_one_line(text))
