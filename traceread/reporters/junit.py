"""Gates as JUnit XML, which continuous integration shows as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from traceread.comparison.gates import GateResult, State
from traceread.names import clean


def junit_xml(gates: Sequence[GateResult], suite: str, strict: bool = False) -> str:
    """One test case per gate: failed ones fail, undecided ones are skipped, or fail where gates are strict."""
    failing = [g for g in gates if g.state is State.FAILED or (strict and g.state is State.UNDECIDED)]
    skipped = [g for g in gates if g.state is State.UNDECIDED and g not in failing]
    counts = {"tests": str(len(gates)), "failures": str(len(failing)), "skipped": str(len(skipped)), "errors": "0"}
    root = Element("testsuites", {"name": "traceread", **counts})
    cases = SubElement(root, "testsuite", {"name": clean(suite), **counts})
    for gate in gates:
        case = SubElement(cases, "testcase", name=clean(gate.name), classname="traceread")
        if gate in failing:
            SubElement(case, "failure", message=clean(gate.message), type=str(gate.state)).text = clean(gate.message)
        elif gate in skipped:
            SubElement(case, "skipped", message=clean(gate.message))
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'
