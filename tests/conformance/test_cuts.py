"""Every way in which a call is said to be cut: the parts' results are parts of the whole results, or their addends."""

import pytest
import torch
from matrix import OPERATORS, cases, flat

from aclgrad.core.cuts import cuts_of
from aclgrad.core.spec import F64
from aclgrad.testing.cases import EDGE, SMOKE
from aclgrad.testing.layouts import apply

MOST = 20_000
"""Elements of a case; larger ones are cut no other way."""

CUT = [operator for operator in OPERATORS if cuts_of(operator.spec) is not None]


def results(operator, arguments):
    """By name, in float64: of every output, and of what is updated."""
    arguments = [apply(torch.clone, value) for value in arguments]
    outs = operator.run(arguments, backend="reference")
    outs = outs if isinstance(outs, tuple) else (outs,)
    return dict(zip(operator.spec.written_names, operator.spec.written(arguments, outs), strict=True))


def pieces(value, dim, sizes):
    """Of a tensor, or of each member of a list."""
    return [apply(lambda t, k=k: t.split(sizes, dim)[k], value) for k in range(len(sizes))]


@pytest.mark.parametrize("operator", CUT, ids=lambda operator: operator.spec.name)
def test_parts_of_a_call(operator):
    spec, seen = operator.spec, 0
    for case in cases(operator, SMOKE, EDGE):
        arguments = case.build(F64) if F64 in case.dtypes else []
        if not arguments or sum(t.numel() for t in flat(arguments) if isinstance(t, torch.Tensor)) > MOST:
            continue
        arguments = list(spec.completed(arguments))
        whole = results(operator, arguments)
        for cut in cuts_of(spec)(operator.judge(arguments)[0]):
            named = dict(zip((arg.name for arg in spec.args), arguments, strict=True))
            there = {name: dim for name, dim in cut.dims.items() if named.get(name) is not None and named[name] != []}
            size = next(flat([named[name]])[0].shape[dim] for name, dim in there.items())
            if size == 0 and not cut.may_be_empty:
                continue
            few = min(size, 3)
            sizes = [size // few + (k < size % few) for k in range(few)] if few else [0]
            sizes += [0] if cut.may_be_empty else []
            split = {name: pieces(named[name], dim, sizes) for name, dim in there.items()}
            found = [
                results(operator, [split.get(arg.name, [named[arg.name]] * len(sizes))[k] for arg in spec.args])
                for k in range(len(sizes))
            ]
            seen += 1
            for name, expected in whole.items():
                for k, want in enumerate(flat([expected])):
                    parts = [flat([part[name]])[k] for part in found]
                    where = f"{case} {cut}: {name}[{k}]"
                    if want is None:
                        assert parts == [None] * len(parts), where
                        continue
                    joined = (
                        [torch.cat(parts, cut.dims[name])] if name in cut.dims
                        else [torch.stack(parts).sum(0)] if name in cut.sums
                        else parts
                    )  # fmt: skip
                    for part in joined:
                        torch.testing.assert_close(
                            part, want, equal_nan=True, msg=lambda why, where=where: f"{where}: {why}"
                        )
    assert seen
