"""Every plan says what runs and why, and plans are made for GPUs that are not there."""

import os

import pytest
import torch
from matrix import KERNELS, OPERATORS, device_of

from aclgrad.core.devices import GPUS
from aclgrad.frontends.cli.sizes import Sizes, without_memory
from aclgrad.testing.cases import sized, suite


@pytest.mark.parametrize("backend", [*KERNELS, "reference"])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
def test_a_plan_describes_itself(operator, backend):
    with torch.device(device_of(backend)):
        args = suite(operator.spec).cases[0].build()
    plan = operator.plan(args, backend=backend)
    head, _, chosen = plan.describe().partition(": ")
    size = plan.workspace_size
    assert head == f"{backend}, {f'workspace of {size:,} bytes' if size else 'no workspace'}"
    assert chosen == plan.launch.describe()
    assert all(line.strip() == line and line for line in chosen.split("\n"))
    assert "object at" not in chosen


SIZED = [operator for operator in OPERATORS if sized(operator.spec) is not None]


def test_some_families_make_arguments_of_sizes():
    assert len(SIZED) > 10


@pytest.mark.parametrize("operator", SIZED, ids=lambda operator: operator.spec.name)
def test_a_call_is_made_of_sizes(operator):
    sizes = Sizes.of(operator)
    given = ["5x6x7"] if sizes.shape else [f"{name}={5 + k}" for k, name in enumerate(sizes.sizes)]
    args = sizes.arguments(given, [], suite(operator.spec).cases[0].dtypes[0])
    plan = operator.plan([without_memory(arg, torch.device("cpu")) for arg in args], backend="reference")
    found = {size for _, meta in plan.call.metas(*operator.spec.params) for size in meta.shape}
    assert found >= ({5, 6, 7} if sizes.shape else {5, 6})


PROGRAM = """
import sys
from unittest import mock
import aclgrad, torch
from aclgrad.core.devices import GPUS, described
from aclgrad.core.errors import Unsupported
from aclgrad.core.registry import operators
from aclgrad.frontends.cli.sizes import without_memory
from aclgrad.testing.cases import suite

for name in GPUS:
    for operator in operators():
        args = suite(operator.spec).cases[0].build(torch.float32)
        plan = operator.plan([without_memory(arg, described(name)) for arg in args])
        print(name, operator.spec.name, plan.describe().replace("\\n", "; "), sep="\\t")
x = torch.zeros(4)
plan = aclgrad.ops.hardsigmoid.spec.hardsigmoid.plan([without_memory(x, described("h200"))])
try:
    with mock.patch.object(torch.cuda, "current_device", return_value=described("h200").index):
        plan.launch((x,), (x,), None)
except Unsupported as refusal:
    print("refused", "launch", refusal, sep="\\t")
"""


def test_plans_are_made_for_gpus_that_are_not_there(python):
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = python("-c", PROGRAM, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, last = [line.split("\t") for line in done.stdout.splitlines()]
    assert [(gpu, name) for gpu, name, _ in lines] == [(gpu, op.spec.name) for gpu in GPUS for op in OPERATORS]
    assert all(text.startswith("triton, ") for _, _, text in lines)
    assert last == ["refused", "launch", "cannot launch on a GPU that is only described"]
