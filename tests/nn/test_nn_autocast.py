"""Parameters under autocast: cast once in a context, as torch does it, with the results of casting every time."""

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import aclgrad.nn
from aclgrad.ops._shared import autocast
from aclgrad.testing.cases import Data

STEPS, ROWS, FEATURES, CLASSES = 5, 3, 16, 40
BF16 = torch.bfloat16


def bf16(**options):
    return torch.autocast("cpu", BF16, **options)


class Steps(nn.Module):
    """A recurrent module, called once for every step."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        states, outputs = None, []
        for row in x:
            if isinstance(self.module, nn.LSTMCell):
                states = self.module(row, states)
                outputs.append(states[0])
            else:
                output, states = self.module(row[None], states)
                outputs.append(output)
        return torch.stack(outputs).float()


class Heads(nn.Module):
    """The head, for every step's rows."""

    def __init__(self, **options):
        super().__init__()
        self.module = aclgrad.nn.LinearCrossEntropyLoss(FEATURES, CLASSES, **options)

    def forward(self, x):
        target = torch.arange(ROWS) * 7
        return torch.stack([self.module(row, target) for row in x])


MODULES = {
    "LSTM": lambda: Steps(aclgrad.nn.LSTM(FEATURES, FEATURES)),
    "both ways": lambda: Steps(aclgrad.nn.LSTM(FEATURES, FEATURES, bidirectional=True, bias=False)),
    "layer by layer": lambda: Steps(aclgrad.nn.LSTM(FEATURES, FEATURES, num_layers=2, dropout=0.5)),
    "LSTMCell": lambda: Steps(aclgrad.nn.LSTMCell(FEATURES, FEATURES)),
    "head": Heads,
    "head of tokens": lambda: Heads(reduction="none"),
}
every_module = pytest.mark.parametrize("name", MODULES)


def made(name):
    torch.manual_seed(0)
    return MODULES[name]()


def steps(seed=0):
    return Data(seed=seed).normal(STEPS, ROWS, FEATURES)


def results(module, x, **options):
    """Outputs and the gradients of all parameters."""
    torch.manual_seed(1)
    with bf16(**options):
        outputs = module(x)
    weights = Data(seed=2).normal(*outputs.shape)
    return [outputs.detach(), *torch.autograd.grad((outputs * weights).sum(), list(module.parameters()))]


def same(ours, expected):
    for mine, other in zip(ours, expected, strict=True):
        assert mine.dtype == other.dtype and torch.equal(mine, other)


def casts(call, module):
    """How many times a call casts a parameter of the module, by torch's or by our doing."""
    shapes = {tuple(parameter.shape) for parameter in module.parameters()}
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as seen:
        kept = call()  # so that no memory is used twice
    events = [event for event in seen.events() if event.name == "aten::_to_copy"]
    del kept
    return sum(tuple(event.input_shapes[0]) in shapes for event in events)


def parameters_of(name, module):
    """How many are cast: the cell's biases are not, on a CPU."""
    return len([p for p in module.parameters() if name != "LSTMCell" or p.dim() == 2])


@every_module
def test_a_parameter_is_cast_once_in_a_context(name):
    module = made(name)
    for _ in range(2):  # a new context casts again
        with bf16():
            assert casts(lambda: module(steps()), module) == parameters_of(name, module)
            assert casts(lambda: module(steps()), module) == 0
            with bf16():
                assert casts(lambda: module(steps()), module) == 0
            assert casts(lambda: module(steps()), module) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("name", [name for name in MODULES if name != "LSTMCell"])  # whose products are torch's
def test_without_gradients_too(name, mode):
    module = made(name)
    with bf16():
        with mode():
            first = casts(lambda: module(steps()), module)
            assert casts(lambda: module(steps()), module) == 0
        assert first == parameters_of(name, module)


@every_module
def test_the_cache_can_be_turned_off(name):
    module = made(name)
    with bf16():
        module(steps())
        with bf16(cache_enabled=False):
            for _ in range(2):
                assert casts(lambda: module(steps()), module) == STEPS * parameters_of(name, module)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "LSTMCell"])
def test_results_are_those_of_casting_every_time(name):
    """The gradients of the steps are added in float32, which torch does not do for its own modules."""
    module = made(name)
    same(results(module, steps()), results(module, steps(), cache_enabled=False))


def test_gradients_of_many_steps_are_added_in_float32():
    x = Data().normal(200, ROWS, FEATURES)
    ours = made("LSTM")
    theirs = Steps(nn.LSTM(FEATURES, FEATURES))
    theirs.load_state_dict(ours.state_dict())
    exact = copy.deepcopy(theirs).double()
    loss = exact(x.double()).mean(0).sum()
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(exact.parameters()))])

    def error(module):
        with bf16():
            outputs = module(x)
        found = torch.autograd.grad(outputs.mean(0).sum(), list(module.parameters()))
        return (torch.cat([g.flatten() for g in found]) - truth).norm() / truth.norm()

    assert error(ours) < 0.01 < error(theirs)


@every_module
def test_nothing_is_left_of_a_context(name):
    module = made(name)
    with bf16():
        module(steps())
        kept = autocast._latest
        if name != "LSTMCell":
            assert kept() is not None
            torch.clear_autocast_cache()
            assert kept() is None
            module(steps())
    assert autocast._latest is None or autocast._latest() is None


def train(module, optimiser, contexts, **options):
    """Three updates, in contexts of their own or in one."""
    outputs = []

    def update():
        outputs.append(module(steps()))
        outputs[-1].sum().backward()
        optimiser.step()
        optimiser.zero_grad()

    with bf16(**options) if contexts == 1 else nullcontext():
        for _ in range(3):
            torch.manual_seed(3)
            with bf16(**options):
                update()
    return [*(out.detach() for out in outputs), *(p.detach() for p in module.parameters())]


OPTIMISERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    "AdamW foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
    "Adam fused": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
}


UPDATES = [(optimiser, contexts) for optimiser in OPTIMISERS for contexts in (1, 3)]
UPDATES.remove(("Adam fused", 1))  # torch does not count what a fused optimiser changes: its own casts are old then too


@pytest.mark.parametrize(("optimiser", "contexts"), UPDATES)
@pytest.mark.parametrize("name", ["LSTM", "layer by layer", "head", "head of tokens"])
def test_an_updated_parameter_is_cast_anew(name, contexts, optimiser):
    module, other = made(name), made(name)
    ours = train(module, OPTIMISERS[optimiser](module.parameters()), contexts)
    expected = train(other, OPTIMISERS[optimiser](other.parameters()), contexts, cache_enabled=False)
    same(ours, expected)
    assert not torch.equal(ours[0], ours[2])  # the updates changed something


@pytest.mark.parametrize("name", ["LSTM", "head"])
def test_a_parameter_with_other_memory_is_cast_anew(name):
    module = made(name)
    with bf16():
        before = module(steps())
        for parameter in module.parameters():
            parameter.data = parameter.detach() * 2
        after = module(steps())
    with bf16(cache_enabled=False):
        expected = module(steps())
    assert torch.equal(after, expected) and not torch.equal(after, before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("name", ["LSTM", "layer by layer", "head", "head of tokens"])
def test_gradients_arrive_after_a_call_without_them(name, mode):
    module = made(name)
    expected = results(module, steps())
    with bf16():
        with mode():
            module(steps(1))
        same(results(module, steps()), expected)
        with mode():
            assert not module(steps()).requires_grad


def test_another_dtype_inside_a_context():
    module = made("LSTM")
    expected = [results(module, steps()), results_in(torch.float16, module)]
    with bf16():
        for _ in range(2):
            same(results(module, steps()), expected[0])
            same(results_in(torch.float16, module), expected[1])
            with torch.autocast("cpu", enabled=False):
                assert module.module(steps())[0].dtype == torch.float32


def results_in(dtype, module):
    with torch.autocast("cpu", dtype):
        outputs = module(steps())
    return [outputs.detach(), *torch.autograd.grad(outputs.sum(), list(module.parameters()))]


def test_only_what_torch_keeps_is_kept():
    leaf = torch.randn(4, 4, requires_grad=True)
    others = {
        "a result": leaf * 2,
        "a view": torch.randn(4, 4).requires_grad_().view(2, 8),
        "frozen": torch.randn(4, 4),
        "wide": torch.randn(4, 4, dtype=torch.float64, requires_grad=True),
        "narrow": torch.randn(4, 4, dtype=torch.float16, requires_grad=True),
        "lowered": torch.randn(4, 4, dtype=BF16, requires_grad=True),
    }
    with bf16():
        for _ in range(2):
            found = autocast.lowered(BF16, leaf, *others.values())
        assert list(autocast._latest()) == [leaf]
    for name, other, cast in zip(others, others.values(), found[1:], strict=True):
        assert torch.equal(cast, other if name == "wide" else other.to(BF16)), name
        assert cast.requires_grad == other.requires_grad
    with torch.no_grad(), bf16():
        view = leaf[:2]  # a leaf as well, as nothing is recorded
        autocast.lowered(BF16, view.requires_grad_(), leaf)
        assert list(autocast._latest()) == [leaf]


def test_a_cast_ends_with_its_parameter():
    """In a context that lasts as long as a program modules come and go."""
    with bf16():
        stays = made("LSTM")
        stays(steps())
        for _ in range(5):
            made("LSTM")(steps())
            gc.collect()
        assert len(autocast._latest()) == len(list(stays.parameters()))


def test_tied_parameters_get_both_gradients():
    weight = torch.randn(4, 4, requires_grad=True)
    with bf16():
        first, second = autocast.lowered(BF16, weight, weight)
    (first.sum() + 2 * second.sum()).backward()
    assert torch.equal(weight.grad, torch.full((4, 4), 3.0))


def test_threads_in_contexts_of_their_own():
    """One that leaves its context clears torch's cache for all: the others cast again."""
    modules = [made("LSTM") for _ in range(4)]
    for k, module in enumerate(modules):
        module.load_state_dict({name: value * (k + 1) for name, value in module.state_dict().items()})
    expected = [results(module, steps()) for module in modules]

    def work(k):
        for _ in range(20):
            with bf16():
                for _ in range(k + 1):
                    same(results(modules[k], steps()), expected[k])
                    same(results(modules[0], steps()), expected[0])

    with ThreadPoolExecutor(len(modules)) as pool:
        list(pool.map(work, range(len(modules))))


@every_module
def test_modules_are_copied_and_pickled_inside_a_context(name):
    module = made(name)
    with bf16():
        torch.manual_seed(1)
        expected = module(steps())
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            torch.manual_seed(1)
            assert torch.equal(other(steps()), expected)
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.mul_(2)
            torch.manual_seed(1)
            assert name == "LSTMCell" or not torch.equal(other(steps()), expected)  # torch casts the cell's weights
        torch.manual_seed(1)
        assert torch.equal(module(steps()), expected)


@pytest.mark.parametrize("name", ["LSTM", "head"])
def test_compiled_and_eager_calls_in_one_context(name):
    module = made(name)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with bf16():
        expected = compiled(steps())
        for call in (module, compiled, module):
            torch.testing.assert_close(call(steps()), expected)
        known = autocast._latest()
        assert len(known) == len(list(module.parameters()))
        assert all(type(cast) is torch.Tensor for _, cast in known.values())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "head"])
def test_recomputed_activations(name, reentrant):
    module, x = made(name), steps().requires_grad_()
    expected = results(module, steps())
    for inside in (False, True):  # whether a parameter has been cast before
        with bf16():
            if inside:
                module(steps())
            outputs = checkpoint(module, x, use_reentrant=reentrant)
        weights = Data(seed=2).normal(*outputs.shape)
        module.zero_grad()
        (outputs * weights).sum().backward()
        found = [outputs.detach(), *(p.grad for p in module.parameters())]
        torch.testing.assert_close(found, expected)  # a loss without gradients is computed in another way


def test_hooks_of_saved_tensors_see_no_more_than_before():
    module = made("LSTM")
    counts = []
    with bf16():
        for _ in range(2):
            seen = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t, seen=seen: seen.append(t) or t, lambda t: t):
                module(steps())
            counts.append(len(seen))
        torch.clear_autocast_cache()
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            module(steps())
    assert counts[0] == counts[1]
