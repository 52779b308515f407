"""Right outputs of an operator, and wrong ones made of them."""

import torch

from aclgrad.core.meta import Meta
from aclgrad.testing.cases import suite
from aclgrad.testing.verification.truth import Truth, rounded


def right(operator, dtype=None, case=None):
    """(arguments, right outputs by name) of an operator's first case, or of one that is named."""
    known = {each.name: each for each in suite(operator.spec).cases}
    args = (known[case] if case else next(iter(known.values()))).build(dtype)
    truth = Truth(operator, args)
    outs = {}
    for name in truth.metas:
        if members := truth.members(name):
            values = [rounded(t, meta.dtype) for t, (_, meta) in zip(truth.whole(name), members, strict=True)]
            outs[name] = values[0] if isinstance(truth.metas[name], Meta) else values
    return args, outs


def each(change, outs):
    """The outputs with every tensor changed by a function of its name and itself."""
    return {
        name: [change(name, item) for item in value] if isinstance(value, list) else change(name, value)
        for name, value in outs.items()
    }


def moved(tensor, count, dtype=None):
    """A tensor whose every element is so many ulp of a dtype farther from zero."""
    if not tensor.is_floating_point():
        return tensor
    moved = tensor.to(dtype or tensor.dtype)
    for _ in range(count):
        moved = torch.nextafter(moved, torch.where(moved < 0, -torch.inf, torch.inf).to(moved.dtype))
    return moved.to(tensor.dtype)


def verdicts(report, standard="rule"):
    """{output: True, False, None where there are no figures, or why it cannot be compared}."""
    return {
        output.name: output.problem or output.judgements[standard].ok
        for call in report.calls
        for output in call.outputs
    }
