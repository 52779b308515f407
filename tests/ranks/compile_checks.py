"""What ranks check of compiled modules: one graph, with torch's functional collectives in it."""

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition as partition

import aclgrad.nn


class Watched:
    """A backend that runs the graphs as they are and knows the collectives of each: forward, then backward."""

    def __init__(self):
        self.graphs = []
        self.backend = aot_autograd(fw_compiler=self._look, bw_compiler=self._look, partition_fn=partition)

    def _look(self, graph, inputs):
        targets = [str(node.target).split(".") for node in graph.graph.nodes]
        names = [name for space, name, *_ in (t for t in targets if len(t) > 1) if space == "_c10d_functional"]
        if names:  # hooks of modules have graphs of their own
            self.graphs.append([name for name in names if name != "wait_tensor"])
        return make_boxed_func(graph.forward)


def compiled(module, backend):
    """(The module compiled as one graph, the collectives of its graphs, filled as it runs)."""
    torch._dynamo.reset()
    watched = Watched()
    chosen = watched.backend if backend is None else backend
    return torch.compile(module, fullgraph=True, backend=chosen, dynamic=False), watched.graphs


def split_head(rank, groups, backend):
    """Every option; tokens whole and split."""
    torch.manual_seed(0)
    options = {"bias": True, "label_smoothing": 0.1, "softcap": 4.0, "return_stats": True}
    whole = aclgrad.nn.LinearCrossEntropyLoss(8, 7, weight=torch.rand(7) + 0.5, **options)
    x, target = torch.randn(10, 8), torch.randint(7, (10,))
    seen = []
    for split in (False, True):
        head = aclgrad.nn.VocabParallelLinearCrossEntropyLoss.from_whole(
            whole, group=groups[2], sequence_parallel=split
        )
        fast, graphs = compiled(head, backend)
        found = []
        for run in (head, fast):
            leaf = (x[5 * rank : 5 * rank + 5] if split else x).clone().requires_grad_()
            loss, stats = run(leaf, target)
            found.append((loss, *torch.autograd.grad(loss + stats.entropy.square().sum(), (leaf, *head.parameters()))))
        torch.testing.assert_close(found[1], found[0])
        seen.append(graphs)
    return seen


def differentiated(module, x):
    """Its output, and the gradients of its input and parameters."""
    leaf = x.clone().requires_grad_()
    y = module(leaf)
    return y, *torch.autograd.grad(y.square().sum(), (leaf, *module.parameters()))


def norm(rank, groups, backend):
    """Training, evaluation, and a batch that is empty on one rank."""
    torch.manual_seed(1)
    seen = []
    for sizes in ((3, 4), (0, 5)):
        eager, other = aclgrad.nn.SyncBatchNorm(4), aclgrad.nn.SyncBatchNorm(4)
        fast, graphs = compiled(other, backend)
        x = torch.randn(sizes[rank], 4, 3)
        expected = differentiated(eager, x)
        torch.testing.assert_close(differentiated(fast, x), expected)
        torch.testing.assert_close(other.state_dict(), eager.state_dict())
        seen.append(list(graphs))
    torch.testing.assert_close(fast.eval()(x), eager.eval()(x))
    return seen


def norm_of_any_batch(rank, groups):
    """One graph for batches of different sizes."""
    torch._dynamo.reset()
    eager, other = (aclgrad.nn.SyncBatchNorm(4, momentum=None) for _ in range(2))
    fast = torch.compile(other, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (3, 5, 8):
        x = torch.randn(size + rank, 4, 3)
        expected = differentiated(eager, x)
        torch.testing.assert_close(differentiated(fast, x), expected)
    torch.testing.assert_close(other.state_dict(), eager.state_dict())


def tensors(rank, groups, backend):
    """A DTensor for the weight, by a parallel plan."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    torch.manual_seed(2)
    head = aclgrad.nn.LinearCrossEntropyLoss(8, 5)
    parallelize_module(head, init_device_mesh("cpu", (2,)), aclgrad.nn.VocabParallel())
    x, target = torch.randn(6, 8), torch.randint(5, (6,))
    fast, graphs = compiled(head, backend)
    found = []
    for module in (head, fast):
        leaf = x.clone().requires_grad_()
        loss = module(leaf, target)
        loss.backward()
        found.append((loss, leaf.grad, head.linear.weight.grad.to_local().clone()))
        head.zero_grad()
    torch.testing.assert_close(found[1], found[0])
    return [graphs]


def plain_weight(rank, groups):
    """What the compiler says of a weight that is no DTensor; without `fullgraph` the graph of a known one breaks."""
    torch._dynamo.reset()
    torch.manual_seed(3)
    x, target, w = torch.randn(6, 8), torch.randint(6, (6,)), torch.randn(3, 8)

    def loss(x, w, target):
        return aclgrad.nn.linear_cross_entropy(x, w, target, group=groups[2])

    expected = loss(x, w, target)
    torch.testing.assert_close(torch.compile(loss, backend="eager")(x, w, target), expected)
    torch._dynamo.reset()
    try:
        torch.compile(loss, backend="eager", fullgraph=True)(x, w, target)
    except torch._dynamo.exc.Unsupported as refusal:
        return str(refusal)
