"""The programs of the documents, unmodified: what they print, and what they do when Python cannot start."""

import re

import pytest
from capi_helpers import environment, run

from aclgrad.core.registry import aclnn_operators
from test_documents import document

ROUNDED = 1e-6
PRINTED = {
    "aclnnHardsigmoidBackward": [0, 1 / 6, 2 / 6, 0, 0, 0, 0, 0],
    "aclnnBatchNormElemtBackward": [0, 0.9, 1.8, 2.7, 3.6, 4.5, 5.4, 6.3],
    "aclnnFusedLinearCrossEntropyLossGrad": [0] * 16,
    "aclnnThnnFusedLstmCellBackward": [0] * 64 + [1.419974] * 8,
    "aclnnLstmBackward": [0] * 592 + [1.839949] * 8,
}
QUICK = ("aclnnHardsigmoidBackward", "aclnnFusedLinearCrossEntropyLossGrad")
"""A program without and one with a workspace; those of the others are slow."""

PROGRAMS = [
    pytest.param(operator, id=operator.spec.name, marks=[] if operator.spec.aclnn in QUICK else [pytest.mark.slow])
    for operator in aclnn_operators()
]


@pytest.fixture(params=PROGRAMS)
def program(request, compiler):
    text = document(request.param)
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (source,) = [block for block in blocks if "int main(" in block]
    path = compiler.folder / f"{request.param.spec.aclnn}.cpp"
    path.write_text(source)
    return compiler(path)


def test_it_prints_what_it_must_and_fails_without_python(program):
    done = run([program], env=environment())
    values = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    expected = PRINTED[program.name]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(values) == len(expected)
    assert all(abs(a - b) <= ROUNDED for a, b in zip(sorted(values), sorted(expected), strict=True))
    if program.name == "aclnnHardsigmoidBackward":
        assert all(abs(a - b) <= ROUNDED for a, b in zip(values, expected, strict=True))

    broken = run([program], env=environment(ACLGRAD_PYTHON="/nowhere/python"))
    assert broken.returncode == 500000 % 256
    assert "500000" in broken.stdout
    assert "there is no Python at /nowhere/python" in broken.stderr
