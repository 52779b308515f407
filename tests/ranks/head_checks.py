"""What ranks check of the head; every rank compares its own results with the whole vocabulary in float64."""

import copy
import hashlib
import io
import random

import torch
import torch.distributed as dist
from head_problem import ROWS, Problem, assert_close, formula, ours, rounded, shown
from simulated import cuts
from torch.utils.checkpoint import checkpoint

import aclgrad.nn
from aclgrad.ops.linear_cross_entropy.shards.ranges import even_ranges
from aclgrad.testing.tolerance import naive_dtype

SIZES = ((23, 12), (11, 24))


def bits(tensors):
    """What tells the bits of these tensors from others."""
    joined = hashlib.sha256()
    for tensor in tensors:
        joined.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return joined.hexdigest()


def own_part(problem, ranges, rank, split):
    """A problem with this rank's leaves: its rows of the weight and bias, its tokens of the input."""
    start, stop = ranges[rank]
    mine = dict(problem.leaves)
    for name in ("w", "bias"):
        if name in mine:
            mine[name] = mine[name][start:stop]
    if split:
        first, last = even_ranges(len(mine["x"]), len(ranges))[rank]
        mine["x"] = mine["x"][first:last]
    return mine


def results(problem, ranges, group, split, **how):
    """What the ranks compute, by name, with this rank's part of every gradient."""
    rank, whole = group.rank(), problem.leaves

    def call(x, w, target, **options):
        return aclgrad.nn.linear_cross_entropy(x, w, target, group=group, sequence_parallel=split, **options, **how)

    problem.leaves = own_part(problem, ranges, rank, split)
    try:
        return problem.results(lambda *given: ours(*given, call))
    finally:
        problem.leaves = whole


def require_right(problem, found, ranges, rank, split, label):
    """By the tolerance rule, of whole tensors: a part is judged in the light of all."""
    truth, naive = problem.results(rounded, torch.float64), problem.results(formula, naive_dtype(problem.dtype))
    for name, result in found.items():
        exact, rough = truth[name], naive[name]
        if name in ("w", "bias"):
            start, stop = ranges[rank]
            whole = exact.to(result.dtype).clone()
            whole[start:stop] = result
            result = whole
        if name == "x" and split:
            first, last = even_ranges(len(exact), len(ranges))[rank]
            whole = exact.to(result.dtype).clone()
            whole[first:last] = result
            result = whole
        assert_close(problem, result, exact, rough, f"{label} {name}")


def sampled(rank, groups, seeds, dtypes, vocabularies):
    """Worlds, vocabularies, options, ranges and dtypes drawn by seeds; the bits that all ranks shall have."""
    found = []
    for seed in seeds:
        draw = random.Random(seed)
        world, classes, dtype = draw.randint(2, 4), draw.choice(vocabularies), draw.choice(dtypes)
        split, row, told = draw.random() < 0.3, ROWS[seed % len(ROWS)], draw.random() < 0.5
        sizes, ranges = (*draw.choice(SIZES), classes), cuts(classes, world, seed)
        if rank >= world:
            found.append(None)
            continue
        problem = Problem(row, dtype, seed=seed, sizes=sizes)
        how = {"vocab": ranges[rank]} if told else {}
        mine = results(problem, ranges, groups[world], split, **how)
        require_right(problem, mine, ranges, rank, split, f"{seed}: {shown(row)} {ranges} {sizes} {dtype} {split}")
        same = [value for name, value in mine.items() if name in ("loss", "logprob", "entropy", "lse")]
        found.append(bits([*same, *([] if split else [mine["x"]])]))
    return found


def the_same_bits_twenty_times(rank, groups):
    row = dict(zip(ROWS[0], (True, True, "mean", True, 0.1, 5.0, 0.8, 1e-3, True, None, True), strict=True))
    problem = Problem(row, torch.bfloat16, sizes=(11, 24, 503))
    ranges = cuts(503, 4, 3)
    return {bits(results(problem, ranges, groups[4], split=False).values()) for _ in range(20)}


class Counted:
    """Counts the collectives of a block by name."""

    NAMES = (
        *("all_reduce", "all_gather", "reduce_scatter", "all_gather_into_tensor", "reduce_scatter_tensor"),
        *("all_gather_single", "reduce_scatter_single", "broadcast", "all_to_all_single", "barrier"),
    )

    def __enter__(self):
        self.calls, self._kept = [], {name: getattr(dist, name) for name in self.NAMES if hasattr(dist, name)}
        for name, function in self._kept.items():
            setattr(dist, name, self._counting(name, function))
        return self

    def _counting(self, name, function):
        def call(*args, **options):
            self.calls.append((name, sum(t.numel() * t.element_size() for t in args if isinstance(t, torch.Tensor))))
            return function(*args, **options)

        return call

    def __exit__(self, *_):
        for name, function in self._kept.items():
            setattr(dist, name, function)


def counted(rank, groups, split):
    """The collectives of a forward and of a backward pass, also of the first of all; of a pass without gradients."""
    x, w, target = torch.randn(8, 16), torch.randn(5, 16), torch.arange(8)
    torch.manual_seed(0)
    x = x[:2] if split else torch.randn(8, 16)
    x.requires_grad_()
    w.requires_grad_()
    options = {"group": groups[4], "sequence_parallel": split, "return_stats": True}
    with Counted() as forward:
        loss, stats = aclgrad.nn.linear_cross_entropy(x, w, target, **options)
    with Counted() as backward:
        (loss + stats.entropy.sum()).backward()
    with Counted() as alone:
        aclgrad.nn.linear_cross_entropy(x.detach(), w, target, **options)[0].backward()
    return [[name for name, _ in each.calls] for each in (forward, backward, alone)]


def parts_of_the_input_gradient(rank, groups):
    """Without a sum every rank has its part; all parts add up."""
    torch.manual_seed(1)
    whole_w, x, target = torch.randn(7, 6), torch.randn(9, 6, requires_grad=True), torch.randint(7, (9,))
    start, stop = even_ranges(7, 4)[rank]
    w = whole_w[start:stop].clone().requires_grad_()
    (want,) = torch.autograd.grad(aclgrad.nn.linear_cross_entropy(x, whole_w, target), x)
    (part,) = torch.autograd.grad(
        aclgrad.nn.linear_cross_entropy(x, w, target, group=groups[4], reduce_input_grad=False), x
    )
    dist.all_reduce(part)
    torch.testing.assert_close(part, want)


def checkpointed(rank, groups):
    """What is computed again in the backward pass gives the same gradients: the head, batch norm."""
    torch.manual_seed(rank)
    norm = aclgrad.nn.SyncBatchNorm(6, track_running_stats=False)
    head = aclgrad.nn.VocabParallelLinearCrossEntropyLoss(6, 7)
    torch.manual_seed(2)
    leaf, target = torch.randn(9, 6, requires_grad=True), torch.randint(7, (9,))
    for part in (norm, lambda x: head(x, target)):
        expected = torch.autograd.grad(part(leaf).square().sum(), leaf)
        for reentrant in (False, True):
            found = checkpoint(part, leaf, use_reentrant=reentrant).square().sum()
            leaf.grad = None
            found.backward()
            torch.testing.assert_close(leaf.grad, expected[0])


def copied(rank, groups):
    """A copy has a weight of its own and the same group; so does what was saved as a whole, of the default group."""
    torch.manual_seed(2)
    x, target = torch.randn(9, 6), torch.randint(7, (9,))
    for group in (None, groups[4]):
        head = aclgrad.nn.VocabParallelLinearCrossEntropyLoss(6, 7, group=group)
        other = copy.deepcopy(head)
        assert other.group is group and other.linear.weight is not head.linear.weight
        assert torch.equal(other(x, target), head(x, target))
    file = io.BytesIO()
    head.group = None
    torch.save(head, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert torch.equal(loaded(x, target), head(x, target))


def modules(rank, groups):
    """A whole head split over ranks computes the same; so do uneven rows, a mesh, and one rank alone."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    torch.manual_seed(2)
    options = {
        "bias": True,
        "label_smoothing": 0.1,
        "softcap": 9.0,
        "return_stats": True,
        "weight": torch.rand(11) + 0.5,
    }
    head = aclgrad.nn.LinearCrossEntropyLoss(6, 11, **options)
    x, target = torch.randn(3, 5, 6, requires_grad=True), torch.randint(11, (3, 5))
    want, known = head(x, target)
    expected = torch.autograd.grad(want, (x, *head.parameters()))
    vocab = ((0, 1), (1, 1), (1, 9), (9, 11))[rank]
    for how in ({}, {"group": groups[4], "vocab": vocab}, {"group": mesh}, {"group": mesh["tp"]}):
        split = aclgrad.nn.VocabParallelLinearCrossEntropyLoss.from_whole(head, **how)
        start, stop = split.vocab
        found, stats = split(x, target)
        torch.testing.assert_close((found, *stats[:3]), (want, *known[:3]))
        dx, *own = torch.autograd.grad(found, (x, *split.parameters()))
        own = [part.to_local() if hasattr(part, "to_local") else part for part in own]
        torch.testing.assert_close((dx, *own), (expected[0], *(whole[start:stop] for whole in expected[1:])))
    shapes = {name: list(value.shape) for name, value in split.state_dict().items()}
    assert shapes == {"weight": [11], "linear.weight": [11, 6], "linear.bias": [11]}, shapes
    torch.manual_seed(3)
    fresh = aclgrad.nn.VocabParallelLinearCrossEntropyLoss(6, 8, bias=True)
    assert fresh.linear.weight.abs().max() <= 6**-0.5
    return fresh.linear.weight.tolist(), repr(split)
