"""Operands that are staged: any dtypes and strides, by kernels that were compiled for one dtype and side by side."""

import datetime
import random

import pytest
import torch
from test_strided import random_layout

from aclgrad.cpu import compiler
from aclgrad.cpu.compiler import jit
from aclgrad.cpu.strided import Loops, Reach, elementwise
from aclgrad.cpu.threads import Kernel

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.bool, torch.int16, torch.int32, torch.int64)


@jit
def _chosen(which, x, y):
    return x if which != 0 else y


@jit
def _both(x, y):
    return x * y, x - y


_choose, _compute = elementwise(_chosen), elementwise(_both, 2)


def _choosing(thread, threads, table, staging, which, x, y, out):
    _choose(thread, threads, table, staging, (which, x, y, out))


def _computing(thread, threads, table, staging, x, y, product, difference):
    _compute(thread, threads, table, staging, (x, y, product, difference))


def run(kernel, targets, *operands, threads=1):
    loops = Loops.over(operands[0].shape, *(operand.stride() for operand in operands))
    reach = Reach(loops, [operand.dtype for operand in operands], targets)
    Kernel(kernel, reach.signature)(threads, *reach.head, *(operand.data_ptr() for operand in operands))


def output(draw, shape, dtype):
    """Memory of any layout in which every element has a place of its own."""
    order = draw.sample(range(len(shape)), len(shape))
    room = torch.zeros([shape[d] + draw.choice([0, 2]) for d in order], dtype=dtype)
    room = room.permute([order.index(d) for d in range(len(shape))])
    return room[tuple(slice(0, size) for size in shape)]


DAY, TURNS = datetime.date.today().toordinal(), 8
SEEDS = [seed if seed % TURNS == DAY % TURNS else pytest.param(seed, marks=pytest.mark.slow) for seed in range(60)]
"""Most of what is drawn wants a kernel of its own: some seeds of the day, the others are slow."""


@pytest.mark.parametrize("seed", SEEDS)
def test_any_dtypes_and_layouts(seed):
    """Numbers that every dtype has, so that the result is exact."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    shape = [draw.choice([1, 2, 3, 17, 70]) for _ in range(draw.randint(0, 4))]
    which, x, y = (random_layout(draw, shape).sign() * draw.choice([1, 2]) for _ in range(3))
    which, x, y = which.abs().to(draw.choice(INTEGERS)), x.to(draw.choice(FLOATS)), y.to(draw.choice(FLOATS))
    out = output(draw, shape, draw.choice(FLOATS))
    run(_choosing, 1, which, x, y, out, threads=draw.choice([1, 2, 3]))
    assert torch.equal(out.double(), torch.where(which != 0, x.double(), y.double()))


@pytest.mark.parametrize("seed", range(20))
def test_integers_of_any_size(seed):
    draw = random.Random(seed)
    shape = [draw.choice([1, 5, 33]) for _ in range(draw.randint(1, 3))]
    big = draw.randint(2**40, 2**50)
    x = (random_layout(draw, shape) * 9).long().to(draw.choice(INTEGERS[:2] + INTEGERS[3:]))
    y = (random_layout(draw, shape) * 9).long() + big
    product, difference = output(draw, shape, torch.int64), output(draw, shape, draw.choice(INTEGERS[3:]))
    run(_computing, 2, x, y, product, difference)
    assert torch.equal(product, x.long() * y)
    assert torch.equal(difference, (x.long() - y).to(difference.dtype))


@pytest.mark.parametrize("narrow", FLOATS[:2])
def test_results_are_rounded_once(narrow):
    """1 + eps/2, which is half way, and a little more: by way of float32 it would be rounded to even."""
    half_way = 1 + torch.finfo(narrow).eps / 2 + 2.0**-40
    x, y = torch.full((40,), half_way, dtype=torch.float64), torch.ones(40, dtype=narrow)
    product, difference = torch.zeros(40, dtype=narrow), torch.zeros(40)
    run(_computing, 2, x, y, product, difference)
    assert product.double().unique().tolist() == [1 + torch.finfo(narrow).eps]
    assert difference.unique().tolist() == [torch.tensor(half_way - 1).item()]


def test_what_was_compiled_for_one_layout_serves_all(monkeypatch):
    made = []
    real = compiler.cfunc
    monkeypatch.setattr(compiler, "cfunc", lambda *args: made.append(args[0].__name__) or real(*args))
    compiler.entry.cache_clear()
    x = torch.randn(6, 8)
    for operand in (x, x.t().contiguous().t(), x[:, ::2], x[:1].expand(6, 8), x.half(), x.bfloat16()[::3]):
        out = torch.zeros(operand.shape)
        run(_computing, 2, operand, operand, out, torch.zeros_like(out).half())
    assert [name[:10] for name in made if not name.startswith("stage")] == ["_computing"]
    assert len(made) <= 2, "and what stages all dtypes"
