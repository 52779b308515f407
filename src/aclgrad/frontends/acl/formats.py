"""What was found in a program, as a file: JSON for tools, JUnit's XML for CI servers, text for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ... import __version__
from .findings import Finding, report
from .journal import as_data

SUITE = "aclgrad check"


@dataclass(frozen=True)
class Outcome:
    """A program that was checked: how it ended, what counts, and what is known and accepted."""

    command: Sequence[str]
    status: int
    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...] = ()


def as_text(outcome: Outcome) -> str:
    """As the checker writes it to stderr."""
    if not outcome.findings:
        return f"aclgrad: no findings{_apart(outcome)}\n"
    return report(outcome.findings, f"in {outcome.command[0]}{_apart(outcome)}")


def _apart(outcome: Outcome) -> str:
    count = sum(finding.count for finding in outcome.suppressed)
    return f" ({count} suppressed)" if count else ""


def as_json(outcome: Outcome) -> str:
    """Everything, for tools."""
    data = {
        "aclgrad": __version__,
        "command": list(outcome.command),
        "status": outcome.status,
        "findings": [as_data(finding) for finding in outcome.findings],
        "suppressed": [as_data(finding) for finding in outcome.suppressed],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_junit(outcome: Outcome) -> str:
    """A suite with a failed case for each finding, and one that passes if there is none."""
    suite = ElementTree.Element(
        "testsuite",
        name=SUITE,
        tests=str(len(outcome.findings) + len(outcome.suppressed) or 1),
        failures=str(len(outcome.findings)),
        errors="0",
        skipped=str(len(outcome.suppressed)),
    )
    for finding in outcome.findings:
        failure = ElementTree.SubElement(_case(suite, finding), "failure", message=finding.message)
        failure.set("type", finding.kind.title)
        failure.text = "\n".join([finding.kind.meaning, *finding.stack])
    for finding in outcome.suppressed:
        ElementTree.SubElement(_case(suite, finding), "skipped", message="suppressed")
    if not outcome.findings and not outcome.suppressed:
        ElementTree.SubElement(suite, "testcase", classname=SUITE, name="no findings")
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, finding: Finding) -> ElementTree.Element:
    name = f"{finding.kind.title} at {finding.place or 'an unknown place'}"
    return ElementTree.SubElement(suite, "testcase", classname=SUITE, name=name)


FORMATS: dict[str, Callable[[Outcome], str]] = {".json": as_json, ".xml": as_junit, ".txt": as_text}
"""By the suffix of the file."""
