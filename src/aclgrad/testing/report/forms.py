"""The report for machines: csv with msprobe's columns, json, and junit xml for whatever runs the tests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

from ...core.meta import dtype_name
from ...core.registry import lookup
from ..precision.standards import columns, standards
from .html import page
from .model import CallReport, OutputReport, Report, as_number, broken, worst_of

COLUMNS = (
    "API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "余弦相似度", "最大绝对误差", "双百指标", "双千指标",
    "双万指标", "二进制一致错误率", "误差均衡性", "均方根误差", "小值域错误占比", "相对误差最大值", "相对误差平均值",
    "inf/nan错误率", "相对误差错误率", "绝对误差错误率", "ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比",
    "Status", "Message",
)  # fmt: skip
"""Of msprobe's accuracy_checking_details_*.csv; behind them stands a column for each standard."""

NOTHING = " "  # in msprobe's files
PASS, ERROR, SKIP = "pass", "error", "SKIP"


def as_csv(report: Report) -> str:
    """A row for each output, by msprobe's columns; then what each standard says of it."""
    written = io.StringIO()
    rows = csv.DictWriter(written, [*COLUMNS, *standards()], restval=NOTHING, lineterminator="\n")
    rows.writeheader()
    for number, call in enumerate(report.calls):
        name = call.name if call.name.endswith((".forward", ".backward")) else f"Aclnn.{report.aclnn}.{number}.forward"
        for output in call.outputs:
            rows.writerow({"API Name": f"{name}.output.{_position(report, output)}", **_row(report, output)})
        for fault in (*call.faults, *call.problems):
            rows.writerow({"API Name": name, "Status": ERROR, "Message": f"{call.check} {fault}".strip()})
    return written.getvalue()


def _position(report: Report, output: OutputReport) -> str:
    """Where an output stands among all, with its place in a list: `3.0`."""
    spec = lookup(report.operator).spec
    label, _, member = output.name.partition("[")
    names = [spec.params[name].aclnn for name in spec.written_names]
    return f"{names.index(label)}" + (f".{member[:-1]}" if member else "")


def _row(report: Report, output: OutputReport) -> dict[str, Any]:
    told: dict[str, Any] = {"Shape": tuple(output.shape)}
    if output.dtype is not None:
        told.update({"Bench Dtype": "torch.float64", "DEVICE Dtype": f"torch.{dtype_name(output.dtype)}"})
    if output.problem is not None:
        return {**told, "Status": ERROR, "Message": output.problem}
    if output.found is None:
        told["二进制一致错误率"] = _number(_share(output.unequal, output))
    else:
        assert output.dtype is not None  # it was measured
        told["inf/nan错误率"] = _number(_share(output.found.misplaced, output))
        told.update({name: _number(output.found[measure]) for name, measure in columns(output.dtype).items()})
    told.update({name: _said(judgement.ok) for name, judgement in output.judgements.items()})
    judgement = output.judgements[report.standard]
    return {**told, "Status": _said(judgement.ok), "Message": "; ".join(map(str, broken(judgement)))}


def _share(part: int, output: OutputReport) -> float:
    count = 1
    for size in output.shape:
        count *= size
    return part / count if count else 0.0


def _number(value: float) -> str:
    return f"{value:.14f}" if as_number(value) is not None and (value == 0 or abs(value) >= 1e-9) else f"{value:.14g}"


def _said(ok: bool | None) -> str:
    return SKIP if ok is None else PASS if ok else ERROR


def as_json(report: Report) -> str:
    """Everything that the report knows, but for the pictures."""
    return json.dumps(_told(report), indent=1, ensure_ascii=False) + "\n"


def _told(report: Report) -> dict[str, Any]:
    return {
        "operator": report.operator, "aclnn": report.aclnn, "standard": report.standard, "level": report.level,
        "ok": report.ok, "verdict": report.verdict, "exit_code": report.exit_code,
        "standards": {
            each.name: {"title": each.title, "source": each.source, "revision": each.revision}
            for each in standards().values()
        },
        "calls": [_call(report, call) for call in report.calls], "left_out": report.left_out,
    }  # fmt: skip


def _call(report: Report, call: CallReport) -> dict[str, Any]:
    return {
        "check": call.check, "name": call.name, "ok": call.ok(report.standard), "arguments": call.arguments,
        "problems": call.problems, "faults": call.faults, "notes": call.notes,
        "outputs": [_output(output) for output in call.outputs],
    }  # fmt: skip


def _output(output: OutputReport) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": output.name, "dtype": None if output.dtype is None else dtype_name(output.dtype),
        "shape": list(output.shape), "problem": output.problem, "unequal": output.unequal,
        "judgements": {
            name: {
                "ok": judgement.ok,
                "criteria": [
                    {"what": what, "value": as_number(value), "sign": sign, "limit": as_number(limit)}
                    for what, value, sign, limit in judgement.criteria
                ],
            }
            for name, judgement in output.judgements.items()
        },
        "worst": [
            {
                "index": list(output.index(bad.place)), "found": str(bad.found), "true": str(bad.true),
                "error": as_number(bad.error), "ulp": as_number(bad.ulp),
                "inputs": {maker.where: str(maker.value) for maker in output.makers.get(bad.place, ())},
            }
            for bad in worst_of(output)
        ],
    }  # fmt: skip
    for name, statistics in (("metrics", output.found), ("naive", output.naive), ("baseline", output.second)):
        if statistics is not None:
            values = {text: as_number(value) for text, value in statistics.values.items()}
            told[name] = {"values": values, "kinds": statistics.kinds}
    return told


def as_junit(report: Report) -> str:
    """A test case for each output: a failure if it is not precise enough, an error if it could not be compared."""
    suites = ElementTree.Element("testsuites", name="aclgrad verify")
    for call in report.calls:
        cases = list(_cases(report, call))
        counts = {kind: str(sum(case.find(kind[:-1]) is not None for case in cases)) for kind in ("failures", "errors")}
        name = " ".join(part for part in (report.operator, call.check, call.name) if part)
        suite = ElementTree.SubElement(suites, "testsuite", {"name": name, "tests": str(len(cases)), **counts})
        suite.extend(cases)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _cases(report: Report, call: CallReport) -> Iterator[ElementTree.Element]:
    def case(name: str) -> ElementTree.Element:
        return ElementTree.Element(
            "testcase", classname=f"aclgrad.{report.operator}", name=f"{name} [{report.standard}]"
        )

    for output in call.outputs:
        made = case(output.name)
        if output.problem is not None:
            ElementTree.SubElement(made, "error", message=output.problem)
        elif (judgement := output.judgements[report.standard]).ok is None:
            ElementTree.SubElement(made, "error", message=f"the standard has no figures for {output}")
        elif not judgement.ok:
            why = "; ".join(map(str, broken(judgement)))
            failure = ElementTree.SubElement(made, "failure", message=why)
            failure.text = "\n".join(
                f"{output.name}{list(output.index(bad.place))}: found {bad.found!r}, expected {bad.true!r}, "
                f"{bad.ulp:.3g} ulp" for bad in worst_of(output)
            )  # fmt: skip
        yield made
    if call.faults or (call.check and not call.outputs):
        made = case(call.check or "the call")
        for fault in call.faults:
            ElementTree.SubElement(made, "failure", message=fault)
        yield made
    for problem in call.problems:
        made = case("inputs and files")
        ElementTree.SubElement(made, "error", message=problem)
        yield made


FORMS: dict[str, Callable[[Report], str]] = {".html": page, ".csv": as_csv, ".json": as_json, ".xml": as_junit}
"""By the suffix of the file."""
