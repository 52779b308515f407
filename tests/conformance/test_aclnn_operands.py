"""Operands of plans that ran before: what is known of them is not found out again, and what changed is noticed."""

import pytest
import torch
from aclnn_device import INVALID, RUNTIME

from aclgrad import acl, aclnn
from aclgrad.core.meta import Meta
from aclgrad.core.registry import lookup
from aclgrad.frontends.aclnn.operands import Operands

TIMES = 5


def first(x, out):
    size, executor, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, out)
    assert (size, status) == (0, 0)
    return executor


def second(executor):
    return aclnn.aclnnHardsigmoid(None, 0, executor, None)


@pytest.fixture(params=[(4, 3), (7,), (2, 1, 5)], ids=str)
def pair(request):
    """(argument, output) of a call that was made some times."""
    for _ in range(TIMES):
        x, out = torch.randn(request.param), torch.empty(request.param)
        assert second(first(x, out)) == 0
    return x, out


def test_they_are_not_described_again(pair, monkeypatch):
    def again(*_):
        raise AssertionError("described again")

    monkeypatch.setattr(Meta, "describes", again)
    x, out = (torch.full_like(tensor, 2.0) for tensor in pair)
    assert second(first(x, out)) == 0
    torch.testing.assert_close(out, torch.nn.functional.hardsigmoid(x))


CHANGES = {
    "shape": lambda x: torch.randn(x.numel() + 1),
    "strides": lambda x: torch.randn(*x.shape, 2)[..., 0],
    "dtype": torch.Tensor.double,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("which", [0, 1], ids=["argument", "output"])
def test_one_described_anew_between_the_phases_is_refused(name, which, pair):
    executor = first(*pair)
    before = pair[1].clone()
    pair[which].data = CHANGES[name](pair[which])
    assert second(executor) == INVALID
    assert f"{('self', 'out')[which]} was described anew after phase one" in acl.get_recent_err_msg()
    assert which or torch.equal(pair[1], before)


@pytest.mark.parametrize("which", [0, 1], ids=["argument", "output"])
def test_a_storage_that_was_cut_off_is_reported(which, pair):
    executor = first(*pair)
    pair[which].untyped_storage().resize_(4 * pair[which].numel() - 1)
    assert second(executor) == RUNTIME
    assert "has a storage of" in acl.get_recent_err_msg()


def test_views_may_begin_anywhere_in_their_storage():
    """What is needed of a storage depends on the tensor, not on the plan alone."""
    for offset in (0, 1, 5):
        room, out = torch.randn(9), torch.empty(3)
        x = room[offset : offset + 3]
        executor = first(x, out)
        room.untyped_storage().resize_(4 * (offset + 3))
        assert second(executor) == 0
        executor = first(x, out)
        room.untyped_storage().resize_(4 * (offset + 2))
        assert second(executor) == RUNTIME


def test_one_that_moved_is_looked_up_again(pair):
    x, out = pair
    executor, before = first(x, out), out
    out.data = torch.empty_like(out)
    assert second(executor) == 0
    torch.testing.assert_close(out, torch.nn.functional.hardsigmoid(x))
    executor, room = first(x, out), torch.randn(x.numel() + 1)
    x.data, out.data = room[:-1].view(x.shape), room[1:].view(x.shape)
    assert second(executor) == INVALID
    assert "out shares memory with self" in acl.get_recent_err_msg()
    assert before is out


def test_tensors_that_share_are_refused_in_phase_one(pair):
    x, _ = pair
    room = torch.randn(x.numel() + 1)
    overlapping = room[:-1].view(x.shape), room[1:].view(x.shape)
    _, executor, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(*overlapping)
    assert (executor, status) == (None, INVALID)
    assert second(first(x, x)) == 0  # the very same view may be written over


def test_a_gradient_that_would_not_see_the_write_is_refused(pair):
    x, out = pair
    _, executor, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, out.requires_grad_())
    assert (executor, status) == (None, INVALID)
    assert "out requires a gradient" in acl.get_recent_err_msg()
    with torch.no_grad():
        assert second(first(x, out)) == 0


def test_members_of_lists_are_operands_like_others():
    x, outs = torch.randn(2, 3, 4), [torch.empty(2, 3, 4), torch.empty(1, 3, 4), torch.empty(1, 3, 4), *[None] * 7]
    weights = [torch.randn(16, 4), torch.randn(16, 4)]

    def planned():
        arguments = (x, weights, None, None, False, 1, 0.0, False, False, False, *outs)
        size, executor, status = aclnn.aclnnLSTMGetWorkspaceSize(*arguments)
        assert status == 0, acl.get_recent_err_msg()
        return torch.empty(size, dtype=torch.uint8), size, executor

    for _ in range(TIMES):
        assert aclnn.aclnnLSTM(*planned(), None) == 0
    call = planned()
    weights[1].data = torch.randn(16, 5)
    assert aclnn.aclnnLSTM(*call, None) == INVALID
    assert "params was described anew" in acl.get_recent_err_msg()
    weights[1].data = torch.randn(16, 4)
    call = planned()
    weights[0].untyped_storage().resize_(16)
    assert aclnn.aclnnLSTM(*call, None) == RUNTIME


def test_an_output_that_is_given_and_not_produced_is_no_operand():
    operator, row = lookup("lstm_cell_backward"), torch.randn(2, 3)
    args = [row, None, row.clone(), row.clone(), torch.randn(2, 12), False]
    outs = [torch.empty(2, 12), torch.empty(2, 3), torch.full((12,), 7.0)]
    found = Operands(operator.plan(args, outs, strict=True), args, outs)
    assert [out is None for out in found.outs] == [False, False, True]
    assert [argument is value for argument, value in zip(found.args, args, strict=True)] == [True] * 6
