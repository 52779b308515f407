"""What counts as an argument: plans are found by it, so it must stay what it was."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

import aclgrad


def test_numbers_are_no_tensors():
    """A plan is found by a tensor's metadata, so its value may not be what was planned for."""
    x, w, target = torch.eye(2, 4), torch.eye(6, 4), torch.tensor([1, 2])
    with pytest.raises(aclgrad.WrongType, match=r"vocab_start_index is tensor\(0\), expected an int"):
        aclgrad.linear_online_max_sum(x, w, target, torch.tensor(0), 6)
    by_array = aclgrad.linear_online_max_sum(x, w, target, np.array(0), np.int64(6))
    same = aclgrad.linear_online_max_sum(x, w, target, 0, 6)
    assert all(torch.equal(a, b) for a, b in zip(by_array[:5], same[:5], strict=True))


def test_lists_are_lists():
    """Nothing whose members may change while it stays equal to itself."""

    class Weights(Sequence):
        def __init__(self, *members):
            self.members = members

        def __len__(self):
            return len(self.members)

        def __getitem__(self, k):
            return self.members[k]

    with pytest.raises(aclgrad.WrongType, match="params is Weights, expected a list of tensors"):
        aclgrad.lstm(torch.ones(2, 1, 3), Weights(torch.ones(16, 3), torch.ones(16, 4)), has_bias=False)


@pytest.mark.filterwarnings("ignore:.*(Sparse|nested tensors)")
@pytest.mark.parametrize(
    ("found", "made"),
    [
        ("has layout torch.sparse_coo", torch.Tensor.to_sparse),
        ("has layout torch.sparse_csr", torch.Tensor.to_sparse_csr),
        ("has layout torch.sparse_bsr", lambda x: x.to_sparse_bsr((1, 1))),
        ("is a nested tensor", lambda x: torch.nested.nested_tensor([x, x[:2]])),
        ("is a nested tensor", lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)),
    ],
)
def test_tensors_that_are_not_strided_are_named(found, made):
    with pytest.raises(aclgrad.InvalidArgument, match=f"x {found}, expected strided"):
        aclgrad.hardsigmoid(made(torch.ones(3, 3)))
    assert aclgrad.aclnn.aclnnHardsigmoidGetWorkspaceSize(made(torch.ones(3, 3)), torch.ones(3, 3))[2] == 161002
    assert f"self {found}, expected strided" in aclgrad.acl.get_recent_err_msg()


def test_errors_come_before_outputs_are_looked_at():
    x, w, target = torch.eye(2, 4), torch.eye(6, 4), torch.tensor([1, 2])
    with pytest.raises(aclgrad.InvalidArgument, match="expected a tuple of 6"):
        aclgrad.linear_online_max_sum(x, w, target, 0, 6, return_logits=True, out=(None,) * 3)
