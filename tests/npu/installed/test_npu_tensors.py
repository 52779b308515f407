"""Tensors of the device "npu" are tensors as torch has them on any device."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import aclgrad
from aclgrad import npu
from aclgrad.testing.cases import Data


def normal(*shape, **options):
    return Data(**options).normal(*shape).npu()


def test_device():
    x = torch.ones(2, 3).npu()
    assert (x.device.type, x.device.index, x.is_npu, x.cpu().is_npu) == ("npu", 0, True, False)
    assert type(x) is torch.Tensor
    assert x.to("npu") is x
    for other in (x.to("cpu"), x.cpu(), x.to("cpu", non_blocking=True), x.to(torch.zeros(1))):
        assert other.device.type == "cpu"
        assert other.tolist() == [[1, 1, 1]] * 2
    for made in (
        torch.zeros(3, device="npu"), torch.zeros(3, device="npu:0"), torch.arange(3, device=torch.device("npu")),
        torch.tensor([1.0], device="npu"), x.new_zeros(3), torch.empty_like(torch.zeros(2), device="npu"),
    ):  # fmt: skip
        assert made.device == x.device
    with torch.device("npu"):
        assert torch.ones(1).is_npu
    assert repr(torch.arange(2, device="npu")) == "tensor([0, 1], device='npu:0')"
    assert repr(torch.tensor([1 + 2j], device="npu").conj()) == "tensor([1.-2.j], device='npu:0')"
    assert f"{x[0, 0]:.1f} {bool(x[0, 0])} {x[0, 0].item()}" == "1.0 True 1.0"
    with pytest.raises(TypeError, match="can't convert npu"):
        x.numpy()


def test_views_share_memory():
    x = torch.zeros(3, 4, device="npu")
    view = x.t()[1:]
    view.fill_(2)
    view[0, 0] = 5
    assert view._base is x
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert x.tolist() == [[0, 5, 2, 2], [0, 2, 2, 2], [0, 2, 2, 2]]
    detached = x.detach()
    assert (detached.data_ptr(), x._version) == (x.data_ptr(), 2)
    assert torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2))).data_ptr() == x.data_ptr()
    x.transpose_(0, 1).unsqueeze_(0)
    assert x.shape == (1, 4, 3)
    assert x.stride() == (4, 1, 4)


def test_in_place_and_out():
    x, version = torch.ones(3, device="npu"), 0
    assert x.add_(1) is x
    assert x._version == version + 1
    out = torch.empty(0, device="npu")
    kept = out[:]
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [3, 3, 3]
    assert kept.shape == (0,)
    values, indices = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.int64, device="npu")
    torch.sort(torch.tensor([2.0, 1.0], device="npu"), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 2], [1, 0])
    x.resize_(5)[3:] = 7
    assert x.tolist() == [2, 2, 2, 7, 7]
    x[torch.tensor([0, 1])] = torch.tensor(1.0)
    x[x > 5] = 0
    assert x.tolist() == [1, 1, 2, 0, 0]
    assert torch.fmod(x[:3], 2).tolist() == [1, 1, 0]
    assert torch.fmod(x[0].half(), 2.5).dtype == torch.float16


def test_autograd():
    x = normal(3, 4).requires_grad_()
    seen = []
    x.register_hook(seen.append)
    (x.exp() * x.detach()).sum().backward()
    assert x.grad.is_npu
    torch.testing.assert_close(x.grad, x.detach().exp() * x.detach())
    assert seen[0] is x.grad or torch.equal(seen[0], x.grad)
    y = x.exp()
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    (second,) = torch.autograd.grad(torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())
    assert torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(x.detach()).is_npu
    with torch.inference_mode():
        assert (x.detach().t().is_inference(), (x + 1).is_inference()) == (False, True)
    checked = torch.utils.checkpoint.checkpoint(lambda v: nn.functional.dropout(v).exp(), x, use_reentrant=False)
    checked.sum().backward()


def test_conjugates_and_negatives():
    z = torch.view_as_complex(normal(3, 2))
    there = z.cpu()
    for ours, theirs in ((z.conj() @ z, there.conj() @ there), (z.conj().imag + 1, there.conj().imag + 1)):
        torch.testing.assert_close(ours.cpu(), theirs)
    assert z.conj()[1:].is_conj()
    z.conj().imag.fill_(3)
    assert z.imag.tolist() == [-3, -3, -3]


def test_tensors_stay_where_they_are():
    x = torch.ones(3, device="npu")
    assert (x * torch.tensor(2.0)).tolist() == [2, 2, 2]
    for wrong in (
        lambda: x + torch.ones(3), lambda: nn.Linear(3, 2).npu()(torch.ones(3)),
        lambda: nn.LSTM(3, 2).npu()(torch.ones(4, 1, 3)), lambda: torch.cat([x, torch.ones(3)]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"on the same device|is on cpu, expected npu"):
            wrong()
    with pytest.raises(aclgrad.Unsupported, match="dense tensors only"):
        torch.eye(3, device="npu").to_sparse()


def round_trip(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def test_saving_and_copying():
    x = normal(3, 4)
    module = nn.LSTM(4, 2).npu()
    found = round_trip({"x": x, "view": x.t(), "module": module.state_dict()})
    assert found["x"].is_npu
    assert torch.equal(found["x"], x)
    assert found["view"].data_ptr() == found["x"].data_ptr()
    nn.LSTM(4, 2).load_state_dict(found["module"])
    assert round_trip(x, map_location="cpu").device.type == "cpu"
    assert round_trip(x.cpu(), map_location="npu").is_npu
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone()):
        assert other.is_npu
        assert torch.equal(other, x)
        assert other.data_ptr() != x.data_ptr()
    storage = x.untyped_storage()
    assert (storage.is_npu, storage.cpu().is_npu, storage.clone().is_npu, storage.cpu().npu().is_npu) == (
        True, False, True, True,
    )  # fmt: skip
    with pytest.raises(NotImplementedError):
        storage.resize_(100)


def test_data_loaders_and_pinned_memory():
    pinned = torch.ones(3).pin_memory()
    assert (pinned.is_pinned(), pinned[1:].is_pinned(), torch.ones(3).is_pinned()) == (True, True, False)
    assert pinned.pin_memory() is pinned
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    total = 0
    for values, _ in DataLoader(data, batch_size=4, pin_memory=True):
        assert values.is_pinned()
        total += values.to("npu", non_blocking=True).sum().item()
    assert total == 45


def test_random_numbers():
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        torch.randn(2)  # the processor has a sequence of its own
        draws.append(torch.randn(5, device="npu").tolist() + torch.randperm(9, device="npu").tolist())
    assert draws[0] == draws[1] != draws[2]
    state = torch.npu.get_rng_state()
    with torch.random.fork_rng(device_type="npu"):
        torch.rand(3, device="npu")
    assert torch.equal(state, torch.npu.get_rng_state())
    own = torch.Generator("npu").manual_seed(1)
    first = torch.randn(3, device="npu", generator=own)
    assert torch.equal(first, torch.randn(3, device="npu", generator=torch.Generator("npu").manual_seed(1)))
    assert own.device.type == "npu"
    assert isinstance(torch.Generator(), torch.Generator)
    assert torch.Generator().device.type == "cpu"
    torch.npu.manual_seed_all(5)
    assert torch.npu.initial_seed() == 5


def test_modules_and_optimizers():
    torch.manual_seed(0)
    here = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Hardsigmoid(), nn.Flatten(), nn.LazyLinear(4))
    images, target = Data().normal(5, 2, 6, 6), torch.arange(5) % 4
    here(images)
    there = copy.deepcopy(here).npu()
    losses = []
    for module, place in ((here, "cpu"), (there, "npu")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=True)
        for _ in range(3):
            loss = nn.functional.cross_entropy(module(images.to(place)), target.to(place))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for parameter, other in zip(here.parameters(), there.to("cpu").parameters(), strict=True):
        torch.testing.assert_close(other, parameter, rtol=1e-3, atol=1e-4)


def test_autocast():
    x, layer = normal(3, 4), nn.Linear(4, 4).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        y = layer(x)
        assert (y.dtype, y.softmax(-1).dtype, y.sum().dtype) == (torch.bfloat16, torch.float32, torch.float32)
        assert torch.dot(x[0], y[0]).dtype == torch.float32
        assert (x + 1).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            nn.functional.binary_cross_entropy(y.sigmoid(), torch.ones_like(y))
    with torch.npu.amp.autocast():
        output, _ = nn.LSTM(4, 2).npu()(x[None])
        assert output.dtype == layer(x).dtype == torch.float16
    scaler = torch.npu.amp.GradScaler(init_scale=8.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    scaler.scale(output.float().sum() + layer(x).sum()).backward()
    assert torch.equal(layer.bias.grad, torch.full((4,), 24.0, device="npu"))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8
    with pytest.raises(aclgrad.Unsupported, match="dynamic"):
        torch.npu.amp.GradScaler(dynamic=False)
    listed = {name.partition("::")[2] for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")}
    from aclgrad.frontends.npu import autocast

    assert not (autocast._LOWER | autocast._WIDEST) - listed, "no op of torch's list has these names"


def test_memory_is_counted():
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    x = torch.empty(1000, device="npu")
    view = x[10:]
    del x
    assert torch.npu.memory_allocated() - before == 4000
    view.resize_(2000)
    assert torch.npu.memory_allocated() - before == 4 * 2010
    del view
    assert (torch.npu.memory_allocated(), torch.npu.max_memory_allocated()) == (before, before + 4 * 2010)
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total == torch.npu.get_device_properties(0).total_memory
    assert torch.accelerator.memory_allocated() == before


def test_what_was_left_over_is_dead_and_wakes_up():
    x = torch.ones(2, device="npu")
    npu.uninstall()
    with pytest.raises(NotImplementedError):
        x + 1
    npu.install()
    assert (x + 1).tolist() == [2, 2]


@pytest.mark.parametrize("backend", ["gloo", "hccl", "cpu:gloo,npu:hccl"])
def test_collectives(backend, tmp_path):
    """Of one process; torch's own tests show that gloo adds up those of many."""
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x, parts = torch.ones(3, device="npu"), [torch.zeros(3, device="npu")]
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        dist.all_reduce(x, async_op=True).wait()
        dist.all_gather(parts, x)
        dist.broadcast(x, 0)
        dist.barrier()
        here = torch.ones(3)
        dist.all_reduce(here)
        assert torch.equal(parts[0], x)
        assert x.cpu().tolist() == here.tolist() == [1, 1, 1]
    finally:
        dist.destroy_process_group()
