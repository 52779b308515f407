"""numba switched off, as by those who debug numba code of their own: kernels refuse, everything else works."""

import os
import re

import numba
import pytest
import torch

import aclgrad  # noqa: F401  registers the operators
from aclgrad.core.errors import Prevented
from aclgrad.core.registry import aclnn_operators
from aclgrad.cpu import compiler

PROGRAM = """
import numba, torch
import aclgrad, aclgrad.nn, aclgrad.aclnn
from aclgrad.core.registry import operators
from aclgrad.testing.cases import suite
from aclgrad.testing.verdicts import run

@numba.njit
def mine(x):
    return type(x).__name__  # what runs as Python alone

assert mine(1) == "int"
for operator in operators():
    args = suite(operator.spec).cases[0].build()
    run(operator, args, "reference")
    for backend in (None, "cpu"):
        try:
            run(operator, args, backend)
        except aclgrad.Unsupported as refusal:
            print(type(refusal).__name__, operator.spec.name, "NUMBA_DISABLE_JIT is set" in str(refusal))
try:
    aclgrad.nn.LSTM(3, 4)(torch.ones(2, 5, 3))
except aclgrad.NoBackend as refusal:
    print(refusal)
"""


def test_every_operator_names_the_variable_and_the_reference_runs(python):
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = python("-c", PROGRAM, env=env)
    assert done.returncode == 0, done.stderr
    *refusals, module = done.stdout.splitlines()
    assert all(re.fullmatch(r"NoBackend \w+ True", line) for line in refusals)
    refused = {line.split()[1] for line in refusals}
    assert refused >= {operator.spec.name for operator in aclnn_operators()}  # others may be torch's alone
    assert len(refusals) == 2 * len(refused)
    assert "cpu: NUMBA_DISABLE_JIT is set" in module and "reference:" not in module


def _nothing(thread, threads, out):
    pass


def test_it_is_refused_also_when_set_or_unset_later(monkeypatch):
    monkeypatch.setattr(compiler, "_left_as_python", [])
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(Prevented, match="NUMBA_DISABLE_JIT"):
        compiler.entry(_nothing, (torch.int64,))
    compiler.jit(lambda x: x)
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)
    with pytest.raises(Prevented, match="NUMBA_DISABLE_JIT"):
        compiler.entry(_nothing, (torch.int64,))
    compiler._left_as_python.clear()
    compiler.entry(_nothing, (torch.int64,))
