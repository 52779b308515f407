"""What a contract says is not read has no influence: nobody has to write it, and a checked run does not ask for it."""

import math

import pytest
import torch
from matrix import OPERATORS

from aclgrad.core.memory import tensors_in
from aclgrad.testing import poison
from aclgrad.testing.cases import SMOKE, suite
from aclgrad.testing.verdicts import run

NOT_READ = [
    (operator, case)
    for operator in OPERATORS
    for case in suite(operator.spec).cases
    if SMOKE in case.tags and operator.spec.unread(operator.judge(case.build())[0])
]


@pytest.mark.parametrize(("operator", "case"), NOT_READ, ids=str)
def test_what_is_not_read_may_hold_anything(operator, case):
    args = case.build()
    labels = operator.spec.unread(operator.judge(args)[0])
    before = tensors_in(run(operator, args))
    for k, (param, value) in enumerate(zip(operator.spec.args, args, strict=True)):
        if isinstance(value, list):
            for member in (member for m, member in enumerate(value) if f"{param.name}[{m}]" in labels):
                poison.fill(member)
        elif param.name in labels:  # of those that may be left out, all are vectors of one length
            args[k] = torch.full_like(args[0], math.nan, dtype=torch.float32) if value is None else value
            poison.fill(args[k])
    assert all(map(torch.equal, before, tensors_in(run(operator, args))))


def test_some_operators_do_not_read_everything():
    assert {operator.spec.name for operator, _ in NOT_READ} >= {"lstm_backward", "linear_cross_entropy_backward"}
