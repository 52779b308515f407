"""Somebody's kernel judged by a contract: right ones pass, and every check finds what it is there for."""

import csv
import ctypes
import io
import itertools
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from aclgrad.core.errors import InvalidArgument
from aclgrad.core.registry import operators
from aclgrad.testing import check_gradient
from aclgrad.testing.cases import SMOKE, suite
from aclgrad.testing.checking.gradient import NAMES

EXAMPLE = Path(__file__).parents[2] / "examples" / "judge" / "wrong_kernel.py"
CHEAP = {"op": "hardsigmoid_backward", "dtypes": [torch.float32], "cases": ["matrix"]}


def right(grad, x, *, out=None):
    result = torch.where((x > -3) & (x < 3), grad / 6, 0)
    if out is None:
        return result
    if any(t.untyped_storage().data_ptr() == out.untyped_storage().data_ptr() for t in (grad, x)):
        raise ValueError("out must have memory of its own")
    return out.copy_(result)


def wrong(report):
    return {check for check, _, count in report.tally if count}


def some_of_each_family():
    """A family's first operator and its first gradient; further ones are slow."""
    seen = set()
    for operator in operators():
        kind = operator.spec.package, operator.spec.name.endswith("backward")
        yield pytest.param(operator, id=operator.spec.name, marks=pytest.mark.slow if kind in seen else ())
        seen.add(kind)


@pytest.mark.parametrize("operator", list(some_of_each_family()))
def test_the_formulas_themselves_pass_every_check(operator):
    def formula(*args, out=None):
        return operator(*args, out=out, backend="reference")

    case = next(case for case in suite(operator.spec).cases if SMOKE in case.tags)
    report = check_gradient(formula, operator, cases=[case.name], dtypes=case.dtypes[:1])
    assert report.ok, [(call.check, call.name, call.faults, call.troubles) for call in report.wrong]
    assert {check for check, _, _ in report.tally} | set(report.left_out) == {*NAMES}


def test_an_op_of_torchs():
    report = check_gradient(torch.ops.aten.hardsigmoid_backward.default, **{**CHEAP, "dtypes": None})
    assert report.ok
    assert report.left_out["outputs"] == "the function has no keyword out"


def test_a_right_kernel_passes_everything():
    report = check_gradient(right, "aclnnHardsigmoidBackward", samples=2)
    assert report.ok, [(call.check, call.name, call.faults) for call in report.wrong]
    assert not report.left_out
    assert {check for check, _, _ in report.tally} == set(NAMES)
    kinds = {call.name.split()[-1] for call in report.calls if call.check == "random calls"}
    assert kinds == {"float16", "bfloat16", "float32"}


def flattened(grad, x):
    """What a kernel sees that knows no strides."""
    plain = torch.empty(x.shape).stride()
    return right(*(t.as_strided(t.shape, plain, t.storage_offset()) for t in (grad, x)))


class Varying:
    far = torch.tensor(9.0)

    def __call__(self, grad, x):
        self.far = -self.far
        return torch.nextafter(right(grad, x), self.far)


def keeping_one(grad, x, *, out=None):
    result = right(grad, x)
    if out is None:
        return result
    kept = out.reshape(-1)[-1].clone()
    out.copy_(result)[(-1,) * out.dim()] = kept
    return out


def far(tensor, by):
    return tensor.as_strided((), (), tensor.storage_offset() + by)


def writing_beyond(grad, x, *, out=None):
    result = right(grad, x) if out is None else out.copy_(right(grad, x))
    if out is not None:
        far(out, out.numel() if out.is_contiguous() else 1).fill_(0)
    return result


def reading_beyond(grad, x):
    return right(grad, x) + 0 * far(x, x.numel()) if x.untyped_storage().nbytes() > 4 * x.numel() else right(grad, x)


def scribbling(grad, x):
    result = right(grad, x)
    if x.storage_offset():
        far(x, -1).fill_(0)
    return result


def early(grad, x, *, out=None):
    """Writes before it has read."""
    out = torch.empty_like(x) if out is None else out
    out.copy_(grad)
    return out.copy_(right(out.clone(), x))


WRONG = {
    "numbers": (lambda grad, x: right(grad, x) * 1.00001, {"numbers", "layouts", "bounds"}),
    "inputs changed": (lambda grad, x: (right(grad, x), x.add_(1))[0], {"inputs"}),
    "inputs returned": (lambda grad, x: grad.copy_(right(grad, x)), {"inputs"}),
    "determinism": (Varying(), {"determinism"}),
    "layouts": (flattened, {"layouts"}),
    "outputs unwritten": (keeping_one, {"outputs", "aliasing"}),
    "outputs beyond": (writing_beyond, {"outputs", "aliasing"}),
    "bounds read": (reading_beyond, {"bounds"}),
    "bounds written": (scribbling, {"bounds"}),
    "aliasing": (early, {"aliasing"}),
}


def test_a_kernel_of_numpy():
    def kernel(grad, x):
        return np.where(np.abs(x.numpy()) < 3, grad.numpy() / np.float32(6), np.float32(0))

    assert check_gradient(kernel, **CHEAP).ok
    assert wrong(check_gradient(lambda grad, x: kernel(grad, x) * np.float32(1.01), **CHEAP)) >= {"numbers"}


def test_bits_that_seldom_differ_are_found():
    calls = itertools.count()

    def seldom(grad, x):
        return torch.nextafter(right(grad, x), torch.tensor(9.0)) if next(calls) % 20 == 19 else right(grad, x)

    assert wrong(check_gradient(seldom, **CHEAP)) == {"determinism"}


@pytest.mark.parametrize("name", WRONG)
def test_every_check_finds_its_fault(name):
    kernel, expected = WRONG[name]
    report = check_gradient(kernel, **CHEAP)
    assert not report.ok
    assert {name.split()[0]} <= wrong(report) <= expected, wrong(report)
    assert check_gradient(kernel, **CHEAP, without=expected).ok  # the others do not mind


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (lambda grad, x: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda grad: grad, "raised TypeError"),
        (lambda grad, x: (grad, x), "returned 2 results, expected 1: out"),
        (lambda grad, x: None, "returned NoneType, expected"),
        (lambda grad, x: right(grad, x).double(), "is float64"),
        (lambda grad, x: right(grad, x).T, "expected float32"),
        (lambda grad, x: "grad", "returned str, expected a tuple of 1: out"),
        (lambda grad, x: ["grad"], "is str, expected a tensor"),
        (lambda grad, x: right(grad, x).to_sparse(), "a result has layout torch.sparse_coo, expected strided"),
        (lambda grad, x: right(grad, x).to("meta"), "a result has a shape and no elements"),
    ],
)
def test_what_does_not_answer_as_documented_is_told(kernel, told, capsys):
    report = check_gradient(kernel, **CHEAP)
    assert not report.ok
    report.show()
    assert told in " ".join(capsys.readouterr().out.split())


def test_borders_and_random_calls_are_tried():
    def no_inf(grad, x):
        return right(grad, x.clamp(-4, 4)) if x.numel() % 2 or not x.isnan().any() else right(grad, x.nan_to_num())

    report = check_gradient(no_inf, "hardsigmoid_backward", dtypes=[torch.float32])
    assert wrong(report) == {"borders"}
    assert report.shown[0].outputs[0].worst.misplaced

    def small(grad, x):
        return right(grad, x) * (1 if x.dim() < 4 else 1.01)

    report = check_gradient(small, "hardsigmoid_backward", dtypes=[torch.float32], samples=12)
    assert "random calls" in wrong(report)
    assert any(call.name.startswith("shape=") for call in report.wrong)


def test_a_function_for_each_dtype():
    report = check_gradient({torch.float16: right, torch.float32: lambda g, x: right(g, x) * 2}, "hardsigmoid_backward")
    assert {call.name.rsplit(",")[0].split()[-1] for call in report.wrong} == {"float32"}
    assert any(call.name.endswith("float16") for call in report.calls)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"without": ["layout"]}, "without has 'layout', expected some of numbers, borders"),
        ({"dtypes": [torch.int8]}, "dtypes has int8, expected some of"),
        ({"cases": ["nosuch"]}, "has no case 'nosuch', expected some of matrix"),
        ({"fn": 5}, "fn is int, expected something to call"),
        ({"fn": {torch.int8: right}}, "fn has a function for int8, expected"),
        ({"fn": ctypes.CDLL(None).abs}, "expected sizes"),
        ({"standard": "nosuch"}, "nosuch"),
        ({"op": "hardsigmoid_backwards"}, "did you mean hardsigmoid_backward"),
    ],
)
def test_wrong_words_are_told(words, told):
    with pytest.raises(InvalidArgument) as raised:
        check_gradient(**{"fn": right, "op": "hardsigmoid_backward", **words})
    assert told in str(raised.value)


SOURCE = """
#include <stdint.h>
void gradient(const float *grad, const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] > -3 && x[i] < 3) ? grad[i] / 6 : 0;
}
void beyond(const float *grad, const float *x, float *out, int64_t n) {
    gradient(grad, x, out, n + (n > 0));
}
void scale(const float *x, const void *absent, double by, float *out, _Bool twice, int64_t rows, int64_t columns) {
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("library")
    (folder / "gradient.c").write_text(SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "gradient.so", folder / "gradient.c"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "gradient.so"))


def test_functions_in_c(library):
    words = {"op": "hardsigmoid_backward", "dtypes": [torch.float32], "sizes": lambda grad, x: [x.numel()]}
    report = check_gradient(library.gradient, **words)
    assert report.ok, [(call.check, call.name, call.faults) for call in report.wrong]
    assert set(report.left_out) == {"layouts", "aliasing"}
    library.gradient.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64]
    assert check_gradient(library.gradient, **words, cases=["matrix"]).ok
    report = check_gradient(library.beyond, **words, cases=["matrix"])
    assert wrong(report) == {"outputs"}
    assert report.wrong[0].faults == ["bytes beside the elements of an output were written"]


def test_the_example_finds_the_fault_and_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--report", str(tmp_path / "report.html")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = " ".join(capsys.readouterr().out.split())
    assert "errors beyond what our rule allows lie only in dimension 1 (of 33): 25–31" in said
    assert "sumDyXmu[9]" in said and "not precise enough" in said
    page = (tmp_path / "report.html").read_text()
    assert "borders: several_threads float32" in page and "left out: the function has no keyword out" in page
    kernel = runpy.run_path(str(EXAMPLE))["batch_norm_elemt_backward"]

    def mended(*args):
        return kernel(*args, right=True)

    report = check_gradient(mended, "batch_norm_elemt_backward", dtypes=[torch.float32, torch.bfloat16], samples=2)
    assert report.ok, [(call.check, call.name) for call in report.wrong]


def test_reports_for_machines_have_every_check(tmp_path):
    report = check_gradient(writing_beyond, **CHEAP)
    told = json.loads(report.write(tmp_path / "report.json").read_text())
    assert {call["check"] for call in told["calls"]} == {check for check, _, _ in report.tally}
    faults = [fault for call in told["calls"] for fault in call["faults"]]
    assert faults and not told["ok"] and told["verdict"] == "wrong"
    suites = ElementTree.parse(report.write(tmp_path / "report.xml")).getroot()
    assert sum(int(suite.get("failures")) for suite in suites) == len(faults)
    assert sum(int(suite.get("tests")) for suite in suites) >= len(report.calls)
    rows = list(csv.DictReader(io.StringIO(report.write(tmp_path / "report.csv").read_text())))
    assert any("bytes beside the elements" in row["Message"] for row in rows)
