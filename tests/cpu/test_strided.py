"""Coalescing against a brute-force oracle of offsets, and elementwise loops over layouts of every kind."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aclgrad.cpu.compiler import jit
from aclgrad.cpu.strided import CROSSED, TILE, Loops, Reach, element_offset, elementwise
from aclgrad.cpu.threads import Kernel


def offsets(sizes: Any, strides: Any) -> Counter[tuple[int, ...]]:
    """Where every operand's element lies, for every index; the order of visits does not count."""
    indices = itertools.product(*(range(size) for size in sizes))
    return Counter(
        tuple(sum(i * s for i, s in zip(index, steps, strict=True)) for steps in strides) for index in indices
    )


def random_layout(draw: random.Random, shape: list[int]) -> Tensor:
    """A tensor of that shape: permuted, sliced, expanded or plain."""
    order = draw.sample(range(len(shape)), len(shape))
    gaps = [draw.choice([0, 0, 1, 3]) for _ in shape]
    room = torch.randn([shape[d] + gaps[d] for d in order])
    tensor = room.permute([order.index(d) for d in range(len(shape))])
    tensor = tensor[tuple(slice(draw.randint(0, gap), None) for gap in gaps)]
    tensor = tensor[tuple(slice(0, size) for size in shape)]
    for d in range(len(shape)):
        if draw.random() < 0.15:
            tensor = tensor.narrow(d, 0, min(1, shape[d])).expand(shape)
    return tensor


def test_every_index_is_visited_once(each_case: Callable[..., None]) -> None:
    each_case(visited_once, {seed: (seed,) for seed in range(150)})


def visited_once(seed: int) -> None:
    draw = random.Random(seed)
    shape = [draw.choice([1, 1, 2, 3, 5]) for _ in range(draw.randint(0, 8))]
    if draw.random() < 0.1 and shape:
        shape[0] = 0
    strides = [random_layout(draw, shape).stride() for _ in range(draw.randint(1, 4))]
    loops = Loops.over(shape, *strides)
    assert offsets(loops.sizes, loops.strides) == offsets(shape, strides)
    assert loops.count == torch.Size(shape).numel()


def depth(*tensors: Tensor) -> int:
    return len(Loops.over(tensors[0].shape, *(tensor.stride() for tensor in tensors)).sizes)


def test_the_fewest_loops() -> None:
    plain = torch.empty(4, 5, 6, 7)
    last = plain.to(memory_format=torch.channels_last)
    assert depth(plain, plain, plain) == 1
    assert depth(last, last) == 1
    assert depth(plain.permute(3, 1, 0, 2), plain.permute(3, 1, 0, 2)) == 1
    assert depth(torch.empty(1).expand(4, 5, 6, 7), plain) == 1
    assert depth(torch.empty(()), torch.empty(())) == 0
    assert depth(plain[:, :, :, :3]) == 2
    assert depth(plain, last) == 3
    assert depth(plain[:, :2], plain[:, 2:4]) == 2


def test_the_innermost_loop_is_the_contiguous_one() -> None:
    plain, turned = torch.empty(300, 200), torch.empty(200, 300).t()
    assert Loops.over(plain.shape, plain.stride(), turned.stride(), plain.stride()).steps == (1, 300, 1)
    assert Loops.over(plain.shape, turned.stride(), turned.stride(), plain.stride()).steps == (1, 1, 200)
    assert Loops.over(plain.shape, (0, 0), plain.stride()).steps == (0, 1)


@jit
def _weighted(x: Any, y: Any) -> Any:
    return x + y * y


_loops = elementwise(_weighted)


def _kernel(thread: int, threads: int, table: Any, staging: Any, x: Any, y: Any, out: Any) -> None:
    _loops(thread, threads, table, staging, (x, y, out))


def run(x: Tensor, y: Tensor, out: Tensor, threads: int = 1) -> Tensor:
    reach = Reach(Loops.over(x.shape, x.stride(), y.stride(), out.stride()), [x.dtype, y.dtype, out.dtype], 1)
    kernel = Kernel(_kernel, reach.signature)
    kernel(threads, *reach.head, x.data_ptr(), y.data_ptr(), out.data_ptr())
    return out


def expected(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    return (x.double() + y.double() * y.double()).to(out.dtype)


def poisoned(like: Tensor) -> tuple[Tensor, Tensor]:
    """An output of the layout of `like` inside memory full of NaN, and that memory."""
    last = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
    room = torch.full((last + 129,), torch.nan, dtype=like.dtype)
    return room[64:].as_strided(like.shape, like.stride()), room


@pytest.mark.parametrize("seed", range(60))
def test_any_layout(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    shape = [draw.choice([1, 2, 3, 17]) for _ in range(draw.randint(0, 5))]
    x, y = random_layout(draw, shape), random_layout(draw, shape)
    order = draw.sample(range(len(shape)), len(shape))
    like = torch.empty([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    out, room = poisoned(like)
    run(x, y, out)
    torch.testing.assert_close(out, expected(x, y, out), rtol=1e-6, atol=1e-6)
    assert int(room.isnan().sum()) == room.numel() - out.numel(), "nothing beside the output is written"


SIDES = (1, CROSSED[1] - 1, CROSSED[1] + 1, CROSSED[0] + 1, 130)


@pytest.mark.parametrize(("rows", "columns"), list(itertools.product(SIDES, SIDES)))
def test_transposed_operands_at_the_borders_of_tiles(rows: int, columns: int) -> None:
    x, y, out = torch.randn(rows, columns), torch.randn(columns, rows).t(), torch.empty(rows, columns)
    torch.testing.assert_close(run(x, y, out), expected(x, y, out), rtol=1e-6, atol=1e-6)
    across = torch.empty(columns, rows).t()
    torch.testing.assert_close(run(x, x, across), expected(x, x, across), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_contiguous_runs_at_the_borders_of_tiles(count: int, dtype: torch.dtype) -> None:
    x, y, out = torch.randn(count).to(dtype), torch.randn(count).to(dtype), torch.empty(count, dtype=dtype)
    torch.testing.assert_close(run(x, y, out), expected(x, y, out))


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    x, y = torch.randn(5, 100, 211), torch.randn(100, 5, 211).transpose(0, 1)
    first, *others = [run(x, y, torch.empty_like(x), threads) for threads in (1, 2, 3, 7)]
    assert all(torch.equal(first, other) for other in others)


def test_an_output_may_be_an_input() -> None:
    for target in (0, 1):
        operands = [torch.randn(3 * TILE + 5), torch.randn(3 * TILE + 5)]
        result = expected(operands[0], operands[1], operands[0])
        torch.testing.assert_close(run(operands[0], operands[1], operands[target], 2), result, rtol=1e-6, atol=1e-6)


def _where(thread: int, threads: int, table: Any, count: int, found: Any) -> None:
    for k in range(count):
        found[k] = element_offset(table, k)


def test_offsets_of_a_single_operand() -> None:
    tensor = torch.empty(4, 6, 5)[::2, 1:, ::3]
    loops = Loops.over(tensor.shape, tensor.stride())
    table, found = loops.table(), torch.empty(loops.count, dtype=torch.int64)
    Kernel(_where, (torch.int64, int, torch.int64))(1, table.data_ptr(), loops.count, found.data_ptr())
    assert Counter((offset,) for offset in found.tolist()) == offsets(tensor.shape, [tensor.stride()])
