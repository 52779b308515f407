"""Random calls and modules as citizens of CUDA: graphs, streams, the compiler, autocast, memory."""

import copy
import gc
from functools import partial

import pytest
import torch
from draws import DEVICE, every_draw
from matrix import OPERATORS, flat, same
from nn_helpers import outputs_and_gradients
from test_drawn_calls import drawn
from torch import nn

import aclgrad.nn
from aclgrad.core.memory import KEPT_WORKSPACE, tensors_in
from aclgrad.testing.cases import Data
from aclgrad.testing.layouts import apply
from aclgrad.testing.poison import fill
from aclgrad.testing.verdicts import own

pytestmark = [
    pytest.mark.needs_gpu,
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores", "ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype", "ignore:.*inductor.*"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),  # of a call without elements
]
MANY, FEW = 40, 4


def written_by(operator, args):
    """What a call writes on fresh memory; the arguments stay as they are."""
    mine = own(operator.spec, args)
    return flat(operator.spec.written(mine, flat_list(operator(*mine))))


def flat_list(results):
    return list(results) if isinstance(results, list | tuple) else [results]


def captured_and_on_streams(operator, dice, say):
    """A call captured in a graph and replayed with other values; late inputs on a side stream; two streams by turns."""
    call = drawn(operator, dice)
    args = call.args
    names = [param.name for param in operator.spec.args]
    if operator.plan(args).backend != "triton" or (
        "batch_sizes" in names and args[names.index("batch_sizes")] is not None
    ):
        return  # float64, or numbers that the host has to read
    say([(str(t.dtype)[6:], tuple(t.shape), t.stride()) for t in tensors_in(args)])
    say([arg for arg in args if isinstance(arg, bool | int | float)])
    others = own(operator.spec, [apply(torch.Tensor.clone, arg) for arg in args])
    for tensor in tensors_in(others):
        if tensor.is_floating_point():
            tensor.mul_(0.5)
    expected = written_by(operator, args)
    mine = [apply(torch.Tensor.clone, arg) for arg in args]
    expected_here = written_by(operator, mine)  # clones may lie otherwise
    expected_others = written_by(operator, [_like(m, o) for m, o in zip(mine, others, strict=True)])

    torch.cuda.set_sync_debug_mode("error")
    try:
        found = written_by(operator, args)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    same(found, expected, "without waiting")

    held = [apply(torch.Tensor.clone, arg) for arg in mine]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = flat_list(operator(*held))
    for target, source in ((held, mine), (held, others)):
        for to, value in zip(tensors_in(target), tensors_in(source), strict=True):
            to.copy_(value)
        for tensor in tensors_in(results):
            fill(tensor)
        graph.replay()
        torch.cuda.synchronize()
        wanted = expected_here if source is mine else expected_others
        same(flat(operator.spec.written(held, results)), wanted, "replayed")
    del graph

    side, late = torch.cuda.Stream(), [apply(torch.Tensor.clone, arg) for arg in mine]
    for tensor in tensors_in(late):
        fill(tensor, 0)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        for to, value in zip(tensors_in(late), tensors_in(mine), strict=True):
            to.copy_(value)
        found = flat(operator.spec.written(late, flat_list(operator(*late))))
    side.synchronize()
    same(found, expected_here, "with inputs that come late")

    streams, turns = [torch.cuda.Stream() for _ in range(2)], []
    torch.cuda.synchronize()
    for turn in range(6):
        with torch.cuda.stream(streams[turn % 2]):
            turns.append(written_by(operator, args if turn % 3 else mine))
    torch.cuda.synchronize()
    for turn, results in enumerate(turns):
        same(results, expected if turn % 3 else expected_here, f"turn {turn} of two streams")


def _like(laid_out, values):
    """Values in the layout of another argument."""
    if not isinstance(laid_out, torch.Tensor):
        pairs = zip(laid_out, values, strict=True) if isinstance(laid_out, list) else ()
        return [_like(*pair) for pair in pairs] if isinstance(laid_out, list) else values
    return torch.empty_like(laid_out).copy_(values)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.spec.name)
def test_operators(operator):
    every_draw(f"{operator.spec.name} as a citizen", partial(captured_and_on_streams, operator), MANY)


def a_module(dice, say):
    """A small module in training, and what makes its arguments."""
    rows, size, hidden, classes = (dice.randint(1, high) for high in (70, 90, 200, 1000))
    name, steps = dice.choice(["LSTM", "LSTMCell", "norm", "head", "Hardsigmoid"]), dice.randint(1, 9)
    options = {}
    if name == "LSTM":
        options = {"num_layers": dice.randint(1, 2), "bidirectional": dice.random() < 0.5}
        options["proj_size"] = dice.choice([0, 0, max(0, hidden // 3)])
        module = nn.LSTM(size, hidden, **options)
        shape = (steps, rows, size)
    elif name == "LSTMCell":
        module, shape = nn.LSTMCell(size, hidden), (rows, size)
    elif name == "norm":
        rows += 1
        shape = dice.choice([(rows, size), (rows, size, 7), (rows, size, 5, 3)])
        module = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](size)
    elif name == "head":
        options = {"reduction": dice.choice(["mean", "sum", "none"]), "bias": dice.random() < 0.5}
        options |= {"label_smoothing": dice.choice([0.0, 0.1]), "z_loss": dice.choice([0.0, 1e-3])}
        module, shape = aclgrad.nn.LinearCrossEntropyLoss(size, classes, **options), (rows, size)
    else:
        module, shape = nn.Hardsigmoid(), (rows, size)
    say(f"{name}, {shape}, hidden {hidden}, classes {classes}, {options}")
    module = aclgrad.nn.convert(module)

    def arguments(seed):
        data = Data(seed=seed)
        x = data.normal(*shape).requires_grad_()
        return (x, data.integers(0, classes, rows)) if name == "head" else (x,)

    return module, arguments


def in_a_graph(dice, say):
    """Forward and backward captured, replayed on other inputs: the bits of an eager step."""
    torch.manual_seed(dice.randrange(1 << 30))
    module, arguments = a_module(dice, say)
    eager, given, others = copy.deepcopy(module), arguments(1), arguments(2)

    def step(module, given):
        outputs = module(*given)
        outs = [out for out in tensors_in([outputs]) if out.is_floating_point()]
        loss = sum((out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() for out in outs)
        return [*(out.detach() for out in outs), *torch.autograd.grad(loss, [given[0], *module.parameters()])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(module, given)
            step(eager, given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(module, given)
    with torch.no_grad():
        for to, value in zip(given, others, strict=True):
            to.copy_(value)
    for result in results:
        fill(result)
    graph.replay()
    torch.cuda.synchronize()
    same(results, step(eager, others), "replayed")


def compiled(dice, say):
    """In one graph: the bits of the eager call."""
    torch._dynamo.reset()
    torch.manual_seed(dice.randrange(1 << 30))
    module, arguments = a_module(dice, say)
    eager = copy.deepcopy(module)
    autocast = dice.choice([None, None, torch.bfloat16, torch.float16])
    say(f"autocast {autocast}")
    whole = torch.compile(module, fullgraph=True, backend="aot_eager")
    for seed in (1, 2):
        given = arguments(seed)
        with torch.autocast(DEVICE.type, autocast or torch.bfloat16, enabled=autocast is not None):
            expected, found = (outputs_and_gradients(each, *given) for each in (eager, whole))
        assert [t.dtype for t in found] == [t.dtype for t in expected]
        same(found, expected, "compiled")


def kept_in_a_loop(dice, say):
    """Reserved memory grows by results that are kept and by nothing else; sizes change."""
    module, arguments = a_module(dice, say)
    mode = dice.choice(["inferred", "differentiated"])
    say(mode)
    inputs = [arguments(seed) for seed in range(3)]

    def call(k):
        given = inputs[k % 3]
        with torch.set_grad_enabled(mode == "differentiated"):
            outputs = module(*given)
        if mode == "inferred":
            return tensors_in([outputs])
        loss = sum(out.sum() for out in tensors_in([outputs]) if out.is_floating_point())
        return torch.autograd.grad(loss, [given[0], *module.parameters()])

    for k in range(6):
        kept = sum(-(-t.untyped_storage().nbytes() // 512) * 512 for t in call(k))
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, count = torch.cuda.memory_reserved(), min(200, (256 << 20) // max(kept, 1))
    results = [call(k) for k in range(count)]
    held = torch.cuda.memory_reserved() - before
    del results
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert held <= kept * count + 2 * KEPT_WORKSPACE, f"{held} bytes held, {kept * count} kept in {count} calls"
    assert torch.cuda.memory_reserved() - before <= 2 * KEPT_WORKSPACE, "what was freed has not come back"


@pytest.mark.parametrize(
    ("check", "most"),
    [(in_a_graph, MANY), (compiled, 10 * FEW), (kept_in_a_loop, 2 * FEW)],
    ids=["captured", "compiled", "kept"],
)
def test_modules(check, most):
    every_draw(check.__name__, check, most)
