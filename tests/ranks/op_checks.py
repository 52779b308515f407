"""What ranks check of the ops, and of the modules around them, on DTensors; each compares with one process."""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

import aclgrad.nn
from aclgrad.core.cuts import cuts_of
from aclgrad.core.dispatch import chosen_backend
from aclgrad.core.errors import InvalidArgument
from aclgrad.core.memory import tensors_in
from aclgrad.core.registry import operators
from aclgrad.core.spec import F64
from aclgrad.testing.cases import suite
from aclgrad.testing.layouts import apply


def called(operator, arguments):
    """By name: what the op returns, and what it updates."""
    op = getattr(torch.ops.aclgrad, operator.spec.name)
    given = [[] if value is None and "List" in type(arg).__name__ else value
             for arg, value in zip(operator.spec.args, arguments, strict=True)]  # fmt: skip
    results = op(*given)
    results = results if isinstance(results, tuple) else (results,) if operator.spec.outs else ()
    return dict(zip(operator.spec.written_names, operator.spec.written(arguments, results), strict=True))


def every_op(rank, groups):
    """Cut in every way, on one and two dimensions of a mesh: what is returned says rightly where it is.

    By the textbook, since kernels would have to be loaded first.
    """
    chosen_backend.set("reference")
    try:
        each_op()
    finally:
        chosen_backend.set(None)


def each_op():
    flat, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    for operator in operators():
        cuts = cuts_of(operator.spec)
        if cuts is None:
            continue
        arguments = list(operator.spec.completed(suite(operator.spec).cases[0].build(F64)))
        names = [arg.name for arg in operator.spec.args]
        expected = called(operator, [apply(torch.clone, value) for value in arguments])
        for k, cut in enumerate((None, *cuts(operator.judge(arguments)[0]))):
            for mesh in (flat, square) if k == 1 else (flat,):
                place = placements(None if cut is None or not divides(cut, names, arguments) else cut, mesh)
                given = [
                    apply(lambda t, name=name, place=place, mesh=mesh: mine(t, mesh, place(name)), value)
                    for name, value in zip(names, arguments, strict=True)
                ]
                for name, found in called(operator, given).items():
                    for part, want in zip(tensors_in([found]), tensors_in([expected[name]]), strict=True):
                        where = f"{operator} {cut} {mesh}: {name}"
                        assert part.placements == place(name) or not want.numel(), f"{where} has {part.placements}"
                        assert part.stride() == want.stride() or not want.numel(), where
                        if any(isinstance(at, Partial) for at in part.placements):
                            ours, theirs = part.full_tensor(), want
                        else:  # nobody need be asked
                            ours, theirs = part.to_local(), mine(want, mesh, part.placements).to_local()
                        torch.testing.assert_close(ours, theirs, msg=lambda why, where=where: f"{where}: {why}")


def mine(whole, mesh, at):
    """What all ranks have, as a DTensor; nobody sends anything."""
    return distribute_tensor(whole.clone(), mesh, at, src_data_rank=None)


def divides(cut, names, arguments):
    """Whether no rank is left without its part, where it needs one."""
    pairs = zip(names, arguments, strict=True)
    sizes = [t.shape[cut.dims[name]] for name, value in pairs if name in cut.dims for t in tensors_in([value])]
    return cut.may_be_empty or all(size % 4 == 0 for size in sizes)


def placements(cut, mesh):
    """Where a tensor is: cut along the last dimension of a mesh, whole on the others."""

    def place(name):
        last = (
            Replicate() if cut is None
            else Shard(cut.dims[name]) if name in cut.dims
            else Partial() if name in cut.sums
            else Replicate()
        )  # fmt: skip
        return (*[Replicate()] * (mesh.ndim - 1), last)

    return place


def other_placements(rank, groups):
    """What no cut fits is gathered, sums are summed, and what is whole follows what is cut."""
    mesh, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    torch.manual_seed(0)
    x, grad = torch.randn(6, 8), torch.randn(6, 8)
    whole, rows, columns = ([p] for p in (Replicate(), Shard(0), Shard(1)))
    expected = aclgrad.hardsigmoid_backward(grad, x)
    for gs, xs, want in ((whole, rows, rows), (rows, whole, rows), (rows, columns, rows), (whole, whole, whole)):
        found = aclgrad.hardsigmoid_backward(distribute_tensor(grad, mesh, gs), distribute_tensor(x, mesh, xs))
        assert found.placements == tuple(want)
        same(found.full_tensor(), expected)
    partial = DTensor.from_local(x / 4, mesh, [Partial()])
    found = aclgrad.hardsigmoid(partial)
    assert found.placements == (Replicate(),)
    torch.testing.assert_close(found.to_local(), aclgrad.hardsigmoid(x))
    both = distribute_tensor(x, square, [Shard(0), Shard(1)])
    assert aclgrad.hardsigmoid(both).placements == (Shard(0), Shard(1))
    same(aclgrad.hardsigmoid(both).full_tensor(), aclgrad.hardsigmoid(x))
    cell = [torch.randn(5, 32), torch.randn(5, 32), torch.randn(5, 8)]
    hy = torch.ops.aclgrad.lstm_cell(*(distribute_tensor(t, mesh, columns) for t in cell))[0]
    assert hy.placements == (Replicate(),)  # the four gates of a unit are not neighbours
    torch.testing.assert_close(hy.to_local(), torch.ops.aclgrad.lstm_cell(*cell)[0])
    with torch.inference_mode():
        same(torch.ops.aclgrad.hardsigmoid(distribute_tensor(x, mesh, rows)).full_tensor(), aclgrad.hardsigmoid(x))
    written = distribute_tensor(x, mesh, rows)
    aclgrad.hardsigmoid_(written)
    same(written.full_tensor(), aclgrad.hardsigmoid(x))
    bias = torch.randn(32)
    with_bias = (*(distribute_tensor(t, mesh, rows) for t in (cell[2], cell[2], cell[2], cell[2], cell[0])),)
    for has_bias in (False, True, False):  # the same tensors, other results
        *_, grad_bias = torch.ops.aclgrad.lstm_cell_backward(*with_bias, has_bias)
        assert grad_bias.shape == (bias.shape if has_bias else (0,))


def refused(rank, groups):
    """By name."""
    mesh, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    x = torch.randn(4, 4)
    rows, partial = distribute_tensor(x, mesh, [Shard(0)]), DTensor.from_local(x.clone(), mesh, [Partial()])

    def refuses(words, call, *args):
        try:
            call(*args)
        except InvalidArgument as error:
            assert words in str(error), f"{error} has no {words}"
        else:
            raise AssertionError(f"took {words}")

    refuses("x is a Tensor, expected a DTensor as grad_output is", aclgrad.hardsigmoid_backward, rows, x)
    other = distribute_tensor(x, square, [Shard(0), Shard(1)])
    refuses("x is on DeviceMesh", aclgrad.hardsigmoid_backward, rows, other)
    words = "x has placements (Partial(sum)), expected (Replicate()): it is updated where it lies"
    refuses(words, torch.ops.aclgrad.hardsigmoid_, partial)
    refuses("x has shape [4, 3]", torch.ops.aclgrad.hardsigmoid_backward, rows, rows[:, :3])


LINEAR_TAKES_SHARDS = tuple(map(int, torch.__version__.split(".")[:2])) > (2, 10)
"""Whether torch's own linear multiplies [T, N, H] whose second dimension is over ranks."""


def modules(rank, groups):
    """Batches over four ranks, weights on all of them: forward, and every gradient."""
    mesh = init_device_mesh("cpu", (4,))
    nns = aclgrad.nn
    for module, shape, batch, placed in (
        (nns.Hardsigmoid(), (6, 3), 0, True),
        (nns.Hardsigmoid(inplace=True), (6, 3), 0, True),
        (nns.LSTMCell(3, 4), (6, 3), 0, True),
        (nns.LSTM(3, 4, 2, bidirectional=True), (5, 6, 3), 1, True),
        (nns.LSTM(3, 4, 2, batch_first=True), (5, 3, 3), 0, True),
        *([(nns.LSTM(3, 4, proj_size=2), (2, 6, 3), 1, True)] if LINEAR_TAKES_SHARDS else []),
        (nns.BatchNorm1d(4), (6, 4, 3), 0, False),
        (nns.BatchNorm2d(4).eval(), (6, 4, 3, 2), 0, True),
    ):
        torch.manual_seed(1)
        x = torch.randn(shape, dtype=torch.float64)
        module = module.double()
        theirs = distribute_module(copy.deepcopy(module), mesh)
        xs = [x.clone().requires_grad_(), distribute_tensor(x, mesh, [Shard(batch)]).requires_grad_()]
        outputs = []
        for run, given in zip((module, theirs), xs, strict=True):
            first = run(given * 1)  # a leaf may not be written over
            outputs.append(first if isinstance(first, torch.Tensor) else first[0])
            outputs[-1].square().sum().backward()
        assert not placed or outputs[1].placements == (Shard(batch),), module
        found = [outputs[1], xs[1].grad, *(p.grad for p in theirs.parameters()), *theirs.buffers()]
        expected = [outputs[0], xs[0].grad, *(p.grad for p in module.parameters()), *module.buffers()]
        for one, want in zip(found, expected, strict=True):
            torch.testing.assert_close(one.full_tensor(), want, msg=lambda why, module=module: f"{module}: {why}")


def compiled(rank, groups):
    """In one graph."""
    mesh = init_device_mesh("cpu", (4,))
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    module = nn.Sequential(nn.Linear(4, 4), aclgrad.nn.Hardsigmoid())
    theirs = distribute_module(copy.deepcopy(module), mesh)
    run = torch.compile(theirs, fullgraph=True, backend="aot_eager")
    out = run(distribute_tensor(x, mesh, [Shard(0)]))
    assert out.placements == (Shard(0),)
    out.square().sum().backward()
    module(x).square().sum().backward()
    for one, want in zip(theirs.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad.full_tensor(), want.grad)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
