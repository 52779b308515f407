"""What bad input gets in the Python door, and that the contract matches the function's signature."""

import inspect
import os
from typing import get_type_hints

import pytest
import torch
from matrix import OPERATORS, family, flat, matrix

import aclgrad
from aclgrad.core.errors import AclgradError, InvalidArgument
from aclgrad.core.spec import REQUIRED, Out, OutList
from aclgrad.testing.cases import SMOKE, suite
from aclgrad.testing.poison import fill

NAMES = [operator.spec.name for operator in OPERATORS]


def refusals(operator, door):
    """The invalid calls of an operator that a door knows, by name."""
    return {invalid.name: (operator, invalid) for invalid in suite(operator.spec).invalid if door in invalid.doors}


def legal(operator):
    """Arguments and outputs of the operator's first case, by name."""
    case = suite(operator.spec).cases[0]
    args = case.build()
    outs = operator.plan(args, backend="reference").allocate()
    named = {param.name: arg for param, arg in zip(operator.spec.args, args, strict=True)}
    return named, {param.name: out for param, out in zip(operator.spec.outs, outs, strict=True)}


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_refuses(operator, each_case):
    each_case(check_refusal, refusals(operator, "python"))


def check_refusal(operator, invalid):
    args, outs = legal(operator)
    changed = invalid.apply({**args, **outs})
    for out in flat([changed[name] for name in outs]):
        if isinstance(out, torch.Tensor) and not any(stride == 0 for stride in out.stride()):
            fill(out, 0x5A)
    before = [t.clone() for t in flat([changed[name] for name in outs]) if isinstance(t, torch.Tensor)]
    wants_out = any(name in outs for name in invalid.changes)
    given = tuple(changed[name] for name in outs)
    with pytest.raises(invalid.raises) as caught:
        operator(*[changed[name] for name in args], out=(given[0] if len(given) == 1 else given) if wants_out else None)
    assert caught.value.status == invalid.raises.status
    assert invalid.argument in str(caught.value)
    for out, copy in zip([t for t in flat(list(given)) if isinstance(t, torch.Tensor)], before, strict=True):
        torch.testing.assert_close(out, copy, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_outputs_that_would_not_hold_the_results_are_refused(operator):
    """A kernel writes where it is told to: too little memory there would be a write beside it."""
    args, outs = legal(operator)
    for name in outs:
        if not isinstance(outs[name], torch.Tensor):
            continue
        for wrong in (outs[name].new_empty((*outs[name].shape, 2)), torch.empty_like(outs[name], dtype=torch.int8)):
            given = tuple({**outs, name: wrong}.values())
            with pytest.raises(AclgradError, match=operator.spec.params[name].name):
                operator(*args.values(), out=given[0] if len(given) == 1 else given)


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_python_door_accepts_what_only_the_document_refuses(operator):
    """Generosity is a promise too: whatever only the aclnn door refuses runs here, unless an output is the matter."""
    args, outs = legal(operator)
    for invalid in suite(operator.spec).invalid:
        if invalid.doors == ("aclnn",) and not any(name in outs for name in invalid.changes):
            changed = invalid.apply({**args, **outs})
            operator(*[changed[name] for name in args], backend="reference")


def follows(signature, spec):
    """Whether the positional parameters are the contract's arguments, with their defaults."""
    positional = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = [(p.name, REQUIRED if p.default is p.empty else p.default) for p in positional]
    return given == [(arg.name, arg.default) for arg in spec.args]


PUBLIC = [operator for operator in OPERATORS if hasattr(aclgrad, operator.spec.name)]
"""Those with a function in Python: what their family's `__init__` exports."""


@pytest.mark.parametrize("operator", PUBLIC, ids=lambda operator: operator.spec.name)
def test_signature_follows_the_contract(operator):
    """What editors show is what the contract says: names, order, defaults, what may be None."""
    function = getattr(aclgrad, operator.spec.name)
    signature = inspect.signature(function)
    assert follows(signature, operator.spec)
    hints = get_type_hints(function)
    for arg in operator.spec.args:
        assert arg.may_be_none == (type(None) in getattr(hints[arg.name], "__args__", ())), arg.name
    keywords = {name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert keywords >= ({"out", "backend", *operator.spec.asked_by} if operator.spec.outs else {"backend"})
    assert function.__doc__ and ">>>" in function.__doc__


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_the_reference_takes_the_contracts_arguments(operator):
    """In its order and by its names; a default, where a formula has one, is the contract's."""
    formula = getattr(family(operator, "reference"), operator.spec.name)
    for arg, given in zip(operator.spec.args, inspect.signature(formula).parameters.values(), strict=False):
        assert given.name == arg.name
        assert given.default in (given.empty, arg.default), arg.name


@pytest.mark.parametrize(("operator", "case", "dtype"), matrix(SMOKE))
def test_output_over_an_input_is_right_or_refused(operator, case, dtype):
    """For every input that could hold an output: writing over it is either refused or gives the right result."""
    args = case.build(dtype)
    expected = operator(*args, backend="cpu")
    plan = operator.plan(args, backend="cpu")
    tried = 0
    for k, meta in enumerate(plan.outs):
        if not hasattr(meta, "shape"):
            continue
        for a, arg in enumerate(args):
            if isinstance(arg, torch.Tensor) and arg.shape == meta.shape and arg.dtype == meta.dtype:
                fresh = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
                outs = [None] * len(plan.outs)
                outs[k] = fresh[a]
                tried += 1
                try:
                    results = operator(*fresh, out=outs[0] if len(outs) == 1 else tuple(outs), backend="cpu")
                except InvalidArgument as refusal:
                    assert "shares memory" in str(refusal)
                    torch.testing.assert_close(fresh[a], arg, rtol=0, atol=0, equal_nan=True)
                else:
                    for result, want in zip(flat(results), flat(expected), strict=True):
                        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)
    if not tried:
        pytest.skip("no input could hold an output")


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_partial_overlap_is_refused(operator):
    args, outs = legal(operator)
    inputs, outputs = (
        {name: value for name, value in values.items() if isinstance(value, torch.Tensor) and value.numel() > 1}
        for values in (args, outs)
    )
    pairs = [(o, i) for o in outputs for i in inputs if inputs[i].dtype == outputs[o].dtype]
    if not pairs:
        pytest.skip("no output has the dtype of an input")
    name, source = pairs[0]
    out = outs[name]
    needed = args[source].numel() + out.numel()
    buffer = torch.zeros(needed, dtype=out.dtype)
    args[source] = buffer[: args[source].numel()].view(args[source].shape).copy_(args[source])
    start = args[source].numel() - 1
    outs[name] = buffer[start : start + out.numel()].view(out.shape)
    given = tuple(outs.values())
    with pytest.raises(InvalidArgument, match="shares memory"):
        operator(*args.values(), out=given[0] if len(given) == 1 else given)


def test_interleaved_views_are_not_an_overlap():
    buffer = torch.randn(6, 8)
    grad, out = buffer[:, ::2], buffer[:, 1::2]
    x = torch.randn(6, 4)
    expected = aclgrad.hardsigmoid_backward(grad.clone(), x)
    assert torch.equal(aclgrad.hardsigmoid_backward(grad, x, out=out), expected)


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_outs_may_not_overlap_each_other(operator):
    args, outs = legal(operator)
    same = [n for n, o in outs.items() if isinstance(o, torch.Tensor)]
    if len(same) < 2:
        pytest.skip("one output only")
    first, second = outs[same[0]], outs[same[1]]
    buffer = torch.zeros(8 * (first.numel() + second.numel()), dtype=torch.uint8)
    for name in same[:2]:
        outs[name] = buffer.view(outs[name].dtype)[: outs[name].numel()].view(outs[name].shape)
    with pytest.raises(InvalidArgument, match="shares memory"):
        operator(*args.values(), out=tuple(outs.values()))


@pytest.mark.parametrize("operator", OPERATORS, ids=NAMES)
def test_wrong_python_types_are_named(operator):
    args, _ = legal(operator)
    for junk in (3, "x", b"y", 1.5, [1], {}):
        for name in args:
            changed = {**args, name: junk}
            try:
                operator(*changed.values(), backend="reference")
            except AclgradError as refusal:
                assert name in str(refusal) or isinstance(args[name], bool | int | float)
            else:
                assert isinstance(junk, int | float) and not isinstance(args[name], torch.Tensor)


def test_every_output_declares_its_dtypes():
    for operator in OPERATORS:
        for out in operator.spec.outs:
            assert isinstance(out, Out | OutList) and out.dtypes


def test_environment_is_clean():
    assert "ACLGRAD_SOC" not in os.environ
