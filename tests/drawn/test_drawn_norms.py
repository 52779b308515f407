"""Random batch norms beside torch's own: shapes, layouts, dtypes, options, values; several steps of each."""

import pytest
import torch
from draws import GPU, between, every_draw
from nn_helpers import assert_same_as_torch, outputs_and_gradients, twin
from torch import nn

from aclgrad.ops._shared import small
from aclgrad.testing import poisoned_memory
from aclgrad.testing.cases import Data
from aclgrad.testing.layouts import begun_late, channels_last, strided, transposed

DRAWS = 200 if GPU else 12
MOST = (1 << 12, 1 << 16, 1 << 20, 50_000_000) if GPU else (1 << 9,)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
KINDS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def shape_of(dice, rank):
    """At least two elements of a channel, unless there are none."""
    while True:
        left, sizes = dice.choice(MOST), []
        for _ in range(rank):
            sizes.append(between(dice, 1, left))
            left //= sizes[-1]
        dice.shuffle(sizes)
        if dice.random() < 0.03:
            sizes[dice.choice([0, *range(2, rank)])] = 0
        if torch.Size(sizes).numel() != sizes[1]:
            return sizes


def a_norm(dice, rank, channels, device):
    """A module with parameters and statistics that are not those of the start; its options."""
    options = {
        "affine": dice.random() < 0.7,
        "track_running_stats": dice.random() < 0.8,
        "momentum": dice.choice([0.1, 0.7, None, 1.0]),
        "eps": dice.choice([1e-5, 1e-5, 1e-3, 0.1]),
    }
    kind = nn.SyncBatchNorm if device == "cuda" and dice.random() < 0.3 else KINDS[rank]
    return kind(channels, **options), {"kind": kind.__name__, **options}


def steps(module, *batches):
    """Outputs and gradients of every step, then the buffers. torch's get plain tensors: of a batch of one, transposed,
    its gradient of the weight on a CPU is wrong.
    """
    if type(module).__module__.startswith("torch."):
        batches = [x.detach().contiguous().requires_grad_(x.requires_grad) for x in batches]
    results = [result for x in batches for result in outputs_and_gradients(module, x)]
    return results + [buffer if buffer.is_floating_point() else buffer.double() for buffer in module.buffers()]


def values(dice, data, shape):
    """[N, C, …]: centred or not, channels of different sizes, an outlier."""
    c = shape[1]
    view = (1, c, *[1] * (len(shape) - 2))
    shift, scale = dice.choice([0.0, 1.0, 30.0, -8.0]), dice.choice([1.0, 1e-2, 20.0])
    x = data.normal(*shape, dtype=torch.float32) * scale + shift * data.normal(c, dtype=torch.float32).view(view)
    if x.numel() and dice.random() < 0.1:
        x[tuple(dice.randrange(size) for size in shape)] = 200  # whose square a float16 holds
    return x.to(data.dtype), f"* {scale} + {shift}"


def check(dice, say):
    rank, dtype, seed = dice.choice(list(KINDS)), dice.choice(DTYPES), dice.values()
    shape = shape_of(dice, rank)
    module, options = a_norm(dice, rank, shape[1], torch.get_default_device().type)
    data = Data(dtype, seed)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point():
                drawn = data.uniform(0.5, 2.0, shape[1]) if "var" in name else data.normal(shape[1])
                tensor.copy_(drawn)
    narrow = dice.random() < 0.3
    module = (module.to(dtype) if narrow else module).train(dice.random() < 0.7)
    frozen = dice.choice([(), (), ("weight",), ("bias",), ("weight", "bias"), ("input",)])
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in frozen)
    layout = dice.choice([torch.clone, channels_last, channels_last, begun_late, strided, transposed])
    count = dice.choice([1, 2]) if torch.Size(shape).numel() < 1 << 20 else 1
    made = [values(dice, data, shape) for _ in range(count)]
    say(f"{dtype}, {shape} {layout.__name__}, {options}, parameters too {narrow}, training {module.training}")
    say(f"frozen {frozen}, {count} steps, values {[words for _, words in made]}, seed {seed}")
    batches = [layout(x).detach().requires_grad_("input" not in frozen) for x, _ in made]
    if not any(leaf.requires_grad for leaf in (*batches, *module.parameters())):
        return
    results = assert_same_as_torch(module, *batches, run=steps)
    with poisoned_memory():
        again = steps(twin(module), *batches)
    for k, (result, want) in enumerate(zip(again, results, strict=True)):
        assert want is None or torch.equal(result, want) or bool(want.isnan().any()), f"{k}: other bits on poison"


@pytest.mark.parametrize("kernels", [True, False] if not GPU else [True], ids=lambda on: "kernels" if on else "small")
def test_norms(kernels, monkeypatch):
    monkeypatch.setattr(small, "enabled", not kernels)
    every_draw(f"norm {kernels}", check, DRAWS)
