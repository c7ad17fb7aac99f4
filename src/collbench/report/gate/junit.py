"""The answer of a gate as JUnit XML: a test case for each planned cell, none of which passes that has no answer."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from collbench.analysis.gate.answers import Answer, Judgement
from collbench.characters import in_one_line
from collbench.report.gate.names import Names
from collbench.report.gate.sentence import sentence, shown_difference

#: What XML 1.0 cannot hold, after control characters are escaped.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def junit(judgement: Judgement, names: Names) -> bytes:
    """The document: losses are failures, cells without an answer are errors."""
    counts = {state: len(judgement.of(state)) for state in ("loss", "no answer")}
    totals = {"tests": len(judgement.answers), "failures": counts["loss"], "errors": counts["no answer"]}
    attributes = {"name": "collbench gate", **{name: str(number) for name, number in totals.items()}}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for answer in judgement.answers:
        where = {"classname": _text(names.shared or "collbench"), "name": _text(names.of(answer))}
        _outcome(ElementTree.SubElement(suite, "testcase", where), answer, judgement)
    ElementTree.SubElement(suite, "system-out").text = _text(sentence(judgement, names))
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _outcome(case: ElementTree.Element, answer: Answer, judgement: Judgement) -> None:
    if answer.state == "loss":
        message = f"{shown_difference(answer)} slower, beyond the margin of {judgement.margin * 100:g} %"
        ElementTree.SubElement(case, "failure", {"type": "loss", "message": _text(message)})
    elif answer.doubt is not None:
        attributes = {"type": _text(answer.doubt.name), "message": _text(answer.doubt.why)}
        ElementTree.SubElement(case, "error", attributes)
    else:
        ElementTree.SubElement(case, "system-out").text = _text(shown_difference(answer))


def _text(text: str) -> str:
    """Text that XML can hold, in one line."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", in_one_line(text))
