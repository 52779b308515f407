"""What ranks check of DTensors, parallel plans and wrapped models; each compares with one process."""

import copy
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import aclgrad.nn
from aclgrad.core.errors import InvalidArgument

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
SIZES = (6, 5, 8)
"""Tokens [6] or [2, 3]; classes, so that of four ranks the last has none; features."""


def whole(tokens=(6,), bias=True, seed=0):
    """Leaves and targets, and what one process makes of them."""
    torch.manual_seed(seed)
    x, w, b = torch.randn(*tokens, 8), torch.randn(5, 8), torch.randn(5)
    target = torch.randint(5, tokens)
    leaves = [leaf.requires_grad_() for leaf in ((x, w, b) if bias else (x, w))]
    options = {"label_smoothing": 0.1, "softcap": 4.0, "return_stats": True}
    loss, stats = aclgrad.nn.linear_cross_entropy(x, w, target, linear_bias=b if bias else None, **options)
    gradients = torch.autograd.grad(loss + stats.entropy.square().sum(), leaves)
    return leaves, target, options, (loss, *stats[:3]), gradients


def sharded_weights(rank, groups):
    """In the function: input replicated, sharded along each dimension of its tokens, or plain; one and two dimensions
    of the mesh."""
    flat, square = (init_device_mesh("cpu", shape, mesh_dim_names=names) for shape, names in
                    (((4,), ("tp",)), ((2, 2), ("dp", "tp"))))  # fmt: skip
    for mesh, rows in ((flat, [Shard(0)]), (square, [Replicate(), Shard(0)]), (square, [Shard(0), Replicate()])):
        for tokens in ((6,), (2, 3)):
            leaves, target, options, results, gradients = whole(tokens)
            at = rows.index(Shard(0))
            layouts = [Replicate(), *(Shard(dim) for dim in range(len(tokens))), None]
            for layout in layouts:
                x, w, b = (leaf.detach() for leaf in leaves)
                placed = [layout if k == at else Replicate() for k in range(mesh.ndim)]
                x = x.clone() if layout is None else distribute_tensor(x, mesh, placed)
                mine = [x, distribute_tensor(w, mesh, rows), distribute_tensor(b, mesh, rows)]
                mine = [leaf.requires_grad_() for leaf in mine]
                given = target if layout is None else distribute_tensor(target, mesh, [Replicate()] * mesh.ndim)
                loss, stats = aclgrad.nn.linear_cross_entropy(mine[0], mine[1], given, linear_bias=mine[2], **options)
                found = (loss, *stats[:3])
                if layout is not None:
                    assert all(value.placements == (Replicate(),) * mesh.ndim for value in found)
                    found = [value.to_local() for value in found]
                torch.testing.assert_close([*found], [*results])
                (loss + stats.entropy.square().sum()).backward()
                for leaf, expected in zip(mine, gradients, strict=True):
                    grad = leaf.grad.full_tensor() if isinstance(leaf, DTensor) else leaf.grad
                    torch.testing.assert_close(grad, expected, msg=lambda why, layout=layout: f"{layout}: {why}")
                    if isinstance(leaf, DTensor) and TORCH >= (2, 13):  # older ones may leave a gradient replicated
                        assert leaf.grad.placements == leaf.placements


def a_partial_gradient(rank, groups):
    """Where the ranks' parts are not summed the gradient of a replicated input says so."""
    mesh = init_device_mesh("cpu", (4,))
    (x, w), target, _, _, _ = whole(bias=False)
    (expected,) = torch.autograd.grad(aclgrad.nn.linear_cross_entropy(x, w, target), x)
    mine, rows = distribute_tensor(x.detach(), mesh, [Replicate()]), distribute_tensor(w.detach(), mesh, [Shard(0)])
    mine.requires_grad_()
    aclgrad.nn.linear_cross_entropy(mine, rows, target, reduce_input_grad=False).backward()
    assert mine.grad.placements == (Partial(),)
    torch.testing.assert_close(mine.grad.full_tensor(), expected)


def refused(rank, groups):
    """Every other placement, by its name."""
    mesh, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    x, w, b, target = torch.randn(4, 8), torch.randn(8, 8), torch.randn(8), torch.arange(4)
    rows = distribute_tensor(w, mesh, [Shard(0)])

    def refuses(words, *args, **options):
        try:
            aclgrad.nn.linear_cross_entropy(*args, **options)
        except InvalidArgument as error:
            assert words in str(error), f"{error} has no {words}"
        else:
            raise AssertionError(f"took {words}")

    refuses("linear_weight has placements (Shard(dim=1))", x, distribute_tensor(w, mesh, [Shard(1)]), target)
    refuses("linear_weight has placements (Replicate())", x, distribute_tensor(w, mesh, [Replicate()]), target)
    two = distribute_tensor(w, square, [Shard(0), Shard(0)])
    refuses("linear_weight has placements (Shard(dim=0), Shard(dim=0)) on a mesh of shape [2, 2]", x, two, target)
    refuses("input has placements (Shard(dim=1))", distribute_tensor(x, mesh, [Shard(1)]), rows, target)
    partial = DTensor.from_local(x, mesh, [Partial()])
    refuses("input has placements (Partial(sum))", partial, rows, target)
    refuses("input is a DTensor and linear_weight is not", distribute_tensor(x, mesh, [Replicate()]), w, target)
    refuses("linear_bias has placements none, it is a Tensor", x, rows, target, linear_bias=b)
    refuses("target has placements (Shard(dim=0))", x, rows, distribute_tensor(target, mesh, [Shard(0)]))
    refuses("group is given beside a DTensor", x, rows, target, group=groups[4])
    refuses("vocab is given beside a DTensor", x, rows, target, vocab=(0, 2))


class Model(nn.Module):
    """Two linear layers and the head."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.head = aclgrad.nn.LinearCrossEntropyLoss(8, 5, bias=True)

    def forward(self, x, target):
        return self.head(self.down(self.up(x).relu()), target)


def a_parallel_plan(rank, groups):
    """`parallelize_module` with the head among other styles, tokens whole or split; a state_dict of DTensors."""
    mesh = init_device_mesh("cpu", (4,))
    torch.manual_seed(1)
    alone = Model()
    x, target = torch.randn(8, 8), torch.randint(5, (8,))
    want = alone(x, target)
    want.backward()
    for sequence in (False, True):
        model = copy.deepcopy(alone)
        model.zero_grad()
        layout = Shard(0) if sequence else Replicate()
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=layout)}
        plan["head"] = aclgrad.nn.VocabParallel(sequence_parallel=sequence)
        parallelize_module(model, mesh, plan)
        assert model.head.linear.weight.placements == (Shard(0),)
        loss = model(x, target)
        assert type(loss) is torch.Tensor
        torch.testing.assert_close(loss, want)
        loss.backward()
        for (name, one), other in zip(alone.named_parameters(), model.parameters(), strict=True):
            grad = other.grad.full_tensor() if isinstance(other.grad, DTensor) else other.grad
            torch.testing.assert_close(grad, one.grad, msg=lambda why, name=name: f"{name}: {why}")
        for name, value in model.head.state_dict().items():
            if name != "weight":
                torch.testing.assert_close(value.full_tensor(), alone.head.state_dict()[name])
    try:
        parallelize_module(nn.Linear(8, 5), mesh, aclgrad.nn.VocabParallel())
    except TypeError as error:
        assert "the module is a torch.nn.modules.linear.Linear, expected an aclgrad.nn.LinearCrossEnt" in str(error)
    else:
        raise AssertionError("took a linear layer")


class Reader(nn.Module):
    """Embedding, LSTM, head."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(9, 6), aclgrad.nn.LSTM(6, 8, batch_first=True)
        self.head = aclgrad.nn.LinearCrossEntropyLoss(8, 9)

    def forward(self, tokens, target):
        y, _ = self.rnn(self.embed(tokens))
        return self.head(y, target)


def trained(model, batches, steps=3):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = model(*batches(step))
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    return losses


def batch_of(step, part=slice(None)):
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(9, (8, 6), generator=draw)
    return tokens[part, :-1], tokens[part, 1:]


def sharded_models(rank, groups):
    """LSTM and head under FSDP2 and DDP on four ranks: the weights of one process with the whole batch."""
    mesh = init_device_mesh("cpu", (4,))
    torch.manual_seed(2)
    alone = Reader().double()
    mine = slice(2 * rank, 2 * rank + 2)
    wraps = {"FSDP2": lambda model: _fully(model, mesh), "DDP": DistributedDataParallel}
    start = copy.deepcopy(alone.state_dict())
    trained(alone, batch_of)
    for name, wrap in wraps.items():
        model = Reader().double()
        model.load_state_dict(start)
        model = wrap(model)
        trained(model, lambda step: batch_of(step, mine))
        for (key, one), other in zip(alone.state_dict().items(), model.state_dict().values(), strict=True):
            value = other.full_tensor() if isinstance(other, DTensor) else other
            torch.testing.assert_close(value, one, msg=lambda why, key=key, name=name: f"{name} {key}: {why}")


def _fully(model, mesh):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (model.rnn, model.head):
            fully_shard(part, mesh=mesh)
        return fully_shard(model, mesh=mesh)


def both_at_once(rank, groups):
    """Data in parallel by FSDP2 over one dimension, the vocabulary over the other."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(3)
    alone = Reader().double()
    start = copy.deepcopy(alone.state_dict())
    losses = trained(alone, batch_of)
    model = Reader().double()
    model.load_state_dict(start)
    parallelize_module(model, mesh["tp"], {"head": aclgrad.nn.VocabParallel()})
    model = _fully(model, mesh["dp"])
    which = mesh["dp"].get_local_rank()
    own = trained(model, lambda step: batch_of(step, slice(4 * which, 4 * which + 4)))
    for mine, want in zip(own, losses, strict=True):
        dist.all_reduce(mine)
        torch.testing.assert_close(mine / 4, want)
    for (key, one), other in zip(alone.state_dict().items(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(other.full_tensor(), one, msg=lambda why, key=key: f"{key}: {why}")
