"""Random LSTMs and cells: every option with every other, every kind of input and of states, beside torch's own."""

import random

import pytest
import torch
from draws import GPU, SEED, every_draw, fitting
from nn_helpers import assert_same_as_torch, outputs_and_gradients, tensors, twin
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from aclgrad.ops._shared import small
from aclgrad.testing import poisoned_memory
from aclgrad.testing.cases import Data
from aclgrad.testing.layouts import begun_late, strided, transposed

DRAWS = 200 if GPU else 10
DTYPES = (torch.float32, torch.float16, torch.bfloat16) if GPU else (torch.float32,)
LARGEST = {"T": 90, "N": 700, "I": 700} if GPU else {"T": 7, "N": 6, "I": 8}
MOST, PARTS = 3_000_000, 12 if GPU else 1
WIDTHS = (64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 2048) if GPU else (5, 8, 17)
"""Kernels on a GPU are made for a width: a part of the draws has one of these and an odd one."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:dropout option adds", "ignore:LSTM with projections"),
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
]


def laid_out(dice, tensor):
    """The same values anywhere."""
    made = dice.choice([torch.clone, torch.clone, begun_late, strided, transposed])(tensor.detach())
    return made.detach()


def states_like(dice, data, chains, batch, widths):
    """(h, c), trained or not."""
    sizes = (*chains, *batch)
    return tuple(laid_out(dice, data.normal(*sizes, w)).requires_grad_(dice.random() < 0.7) for w in widths)


def frozen(dice, module):
    """Some parameters are not trained."""
    prefix = dice.choice(["", "", "weight_ih", "_l0", "bias"])
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not prefix or prefix not in name)
    return prefix


def poisoned(module, *arguments, **options):
    """The calls of the twin on poisoned memory; torch's do not see it."""
    with poisoned_memory():
        return outputs_and_gradients(module, *arguments, **options)


def an_lstm(dtype, widths, dice, say):
    hidden = dice.choice(widths)
    sizes = fitting(dice, {"TN": MOST // hidden, "TNI": MOST}, **LARGEST)
    steps, batch, size = sizes.values()
    large = steps * batch * hidden > 100_000
    layers = dice.choice([1, 1, 2, 2 if large else 3])
    options = {
        "num_layers": layers,
        "bias": dice.random() < 0.7,
        "batch_first": dice.random() < 0.4,
        "bidirectional": dice.random() < 0.5,
        "proj_size": dice.choice([0, 0, 1, hidden // 2, hidden - 1]) if hidden > 1 else 0,
        "dropout": dice.choice([0.0, 0.0, 1.0] if GPU else [0.0, 0.0, 0.3, 1.0]),  # whose noise is another on a GPU
    }
    seed, scale = dice.values(), dice.choice([1.0, 1.0, 0.1, 3.0])
    data = Data(dtype, seed)
    torch.manual_seed(seed)
    module = nn.LSTM(size, hidden, **options).to(dtype).train(dice.random() < 0.7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    kind = dice.choice(["batch", "batch", "packed", "packed", "one"])
    say(f"{dtype}, {sizes}, H {hidden}, {options}, {kind}, training {module.training}, weights * {scale}, seed {seed}")
    say(f"frozen {frozen(dice, module)!r}")
    trained = dice.random() < 0.8
    if kind == "one":
        x, batches = laid_out(dice, data.normal(steps, size)).requires_grad_(trained), ()
    elif kind == "batch":
        x, batches = data.normal(*((batch, steps) if options["batch_first"] else (steps, batch)), size), (batch,)
        if dice.random() < 0.05:
            say("a NaN")
            x[dice.randrange(len(x)), dice.randrange(x.shape[1]), 0] = torch.nan
        x = laid_out(dice, x).requires_grad_(trained)
    else:
        lengths = torch.tensor([dice.randint(1, steps) for _ in range(batch)], device="cpu")
        x = pack_padded_sequence(data.normal(steps, batch, size), lengths, enforce_sorted=False)
        x, batches = x._replace(data=laid_out(dice, x.data).requires_grad_(trained)), (batch,)
    chains = layers * (1 + options["bidirectional"])
    given = []
    if dice.random() < 0.5:
        given = [states_like(dice, data, (chains,), batches, (options["proj_size"] or hidden, hidden))]
    say(f"{tensors(x)[0].stride()}, states {[t.stride() for t in tensors(given)]}")
    if not any(leaf.requires_grad for leaf in (*tensors((x, given)), *module.parameters())):
        return
    compare(module, x, *given, seed=seed)


def compare(module, *arguments, seed):
    results = assert_same_as_torch(module, *arguments, seed=seed)
    again = poisoned(twin(module), *arguments, seed=seed)
    for k, (result, want) in enumerate(zip(again, results, strict=True)):
        if want is not None:
            torch.testing.assert_close(
                result, want, rtol=0, atol=0, equal_nan=True, msg=lambda why, k=k: f"again, on poison: {k}: {why}"
            )


def a_cell(dice, say):
    dtype = dice.choice(DTYPES)
    largest = {"N": 3000, "I": 1500, "H": 3000} if GPU else {"N": 9, "I": 9, "H": 40}
    sizes = fitting(dice, {"NH": 4_000_000, "IH": 2_000_000}, **largest)
    batch, size, hidden = sizes.values()
    seed = dice.values()
    torch.manual_seed(seed)
    data, module = Data(dtype, seed), nn.LSTMCell(size, hidden, bias=dice.random() < 0.7).to(dtype)
    batches = dice.choice([(batch,), (batch,), ()])
    say(f"{dtype}, {sizes}, {batches}, bias {module.bias}, frozen {frozen(dice, module)!r}, seed {seed}")
    x = laid_out(dice, data.normal(*batches, size)).requires_grad_()
    given = [states_like(dice, data, (), batches, (hidden, hidden))] if dice.random() < 0.6 else []
    say(f"{x.stride()}, states {[t.stride() for t in tensors(given)]}")
    compare(module, x, *given, seed=seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_lstms(part, monkeypatch):
    of_part = random.Random(f"part {part} {SEED}")
    dtype, widths = DTYPES[part % len(DTYPES)], (of_part.choice(WIDTHS), of_part.randint(1, max(WIDTHS) // 2))

    def check(dice, say):
        monkeypatch.setattr(small, "enabled", dice.random() < 0.3)
        an_lstm(dtype, widths, dice, say)

    every_draw(f"LSTM {part}", check, DRAWS)


def test_cells(monkeypatch):
    def check(dice, say):
        monkeypatch.setattr(small, "enabled", dice.random() < 0.3)
        a_cell(dice, say)

    every_draw("LSTMCell", check, DRAWS)
