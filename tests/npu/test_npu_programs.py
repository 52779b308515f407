"""Whole programs for Ascend, as they are. Torch takes a device from Python at the beginning of a process only, so every
test here is one; the tests in `installed` share one, with the plugin.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEED_NPU = "tests/npu/installed", "src/aclgrad/frontends/npu"

SCRIPT = """
import sys

import torch
import torch_npu
from torch import nn

device = torch.device("npu:0")
torch.npu.set_device(device)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(11, 8), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 11)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
tokens = (torch.arange(4 * 13).view(4, 13) * 3 % 11).npu()
losses = []
for step in range(int(sys.argv[1])):
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
torch.npu.synchronize()
print(loss.device.type, logits.device, next(model.parameters()).is_npu, losses[-1] < losses[0] / 2)
print(torch_npu.npu_format_cast(logits, 29).shape, torch.npu.memory_allocated() > 0, sys.argv, __name__)
"""

NO_TRACE = """
import os
import sys
import torch

import aclgrad.npu

OWNERS = (torch, torch.accelerator, torch.Tensor, torch.nn.Module, torch.nn.utils.rnn.PackedSequence, torch.Generator,
          torch.storage._StorageBase, torch.TypedStorage, torch.UntypedStorage)
KEYS = ("PrivateUse1", "AutogradPrivateUse1", "AutocastPrivateUse1", "Conjugate", "Negative")


def state():
    torch.random.manual_seed(0)
    kernels = {key: sorted(torch._C._dispatch_get_registrations_for_dispatch_key(key)) for key in KEYS}
    modules = sorted(name for name in sys.modules if name.startswith(("acl.", "torch_npu", "torch.npu")))
    return [dict(vars(owner)) for owner in OWNERS], kernels, modules, torch.accelerator.is_available()


def train():
    torch.manual_seed(0)
    model = torch.nn.LSTM(3, 4)
    model(torch.randn(5, 2, 3).requires_grad_())[0].sum().backward()
    storage = torch.UntypedStorage(4)
    storage.resize_(8)
    return model.weight_ih_l0.grad.tolist(), storage.nbytes(), torch.ones(2).is_pinned()


def come_late():
    torch.ones(1, requires_grad=True).sum().backward()
    try:
        aclgrad.npu.install()
    except aclgrad.Unsupported as refusal:
        assert str(refusal).startswith("backward() has been called in this process, expected install() before")
    assert not (aclgrad.npu.is_installed() or torch.npu.is_available() or hasattr(torch.Tensor, "npu"))


child = os.fork()
if not child:  # a process of its own, which has imported torch already
    come_late()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
before, trained = state(), None
for _ in range(2):
    aclgrad.npu.install()
    import acl, torch_npu
    inside = state()
    assert inside[2] == ["acl.rt", "acl.util", "torch.npu", "torch.npu.amp", "torch_npu", "torch_npu.npu",
                         "torch_npu.npu.amp"]
    assert inside[3] and inside != before
    trained = trained or train()
    lstm = torch.nn.LSTM(3, 4).npu()
    lstm(torch.randn(5, 2, 3, device="npu"))[0].sum().backward()
    aclgrad.npu.uninstall()
    after = state()
    for old, new in zip(before[0], after[0]):
        new = {name: value for name, value in new.items() if name in old or not hasattr(value, "__path__")}
        assert {name for name in new.keys() | old.keys() if new.get(name) is not old.get(name)} <= {"npu"}, "left over"
    assert after[1:] == before[1:]
    assert train() == trained
    assert not (torch.npu.is_available() or "acl" in sys.modules)
"""


@pytest.fixture
def run(python):
    """What a program says that ends well."""

    def run(*args, **options):
        done = python(*args, **options)
        assert done.returncode == 0, done.stderr + done.stdout
        assert done.stderr == ""
        return done.stdout

    return run


def test_a_script_runs_as_it_is(run, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert run("-m", "aclgrad.npu", path, "15").splitlines() == [
        "npu npu:0 True True", f"torch.Size([4, 12, 11]) True {[str(path), '15']} __main__",
    ]  # fmt: skip


def test_tests_run_with_the_plugin(run):
    """All of `installed`, and the examples of the code."""
    shown = run("-m", "pytest", "-p", "aclgrad.npu.pytest", "-p", "no:cacheprovider", "-v", *NEED_NPU, cwd=ROOT)
    assert "aclgrad.npu: torch_npu, acl and the device npu, over memory of cpu" in shown


def test_uninstalling_leaves_no_trace(run):
    """In a process whose child was too late to install anything."""
    run("-c", NO_TRACE)


@pytest.mark.parametrize(("args", "message"), [
    ([], "the following arguments are required: program"),
    (["nowhere.py"], "program is 'nowhere.py', expected a file that exists"),
])  # fmt: skip
def test_the_command_says_what_is_wrong(args, message, monkeypatch, capsys):
    from aclgrad.frontends.npu import script

    monkeypatch.setattr(sys, "argv", ["aclgrad.npu", *args])
    with pytest.raises(SystemExit):
        script.main()
    assert message in capsys.readouterr().err


TWO = """
import sys
import torch, torch_npu
import torch.distributed as dist
from torch import nn

rank = int(sys.argv[1])
dist.init_process_group("hccl", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
x, layers = torch.randn(10, 3), nn.Sequential(nn.Linear(3, 4), nn.SyncBatchNorm(4), nn.Hardsigmoid())
whole = nn.Sequential(layers[0], nn.BatchNorm1d(4), layers[2])
whole(x).square().mean().backward()
expected = [p.grad.clone() for p in layers[0].parameters()]
layers.zero_grad()
model = nn.parallel.DistributedDataParallel(layers.npu())
model(x.npu()[5 * rank : 5 * rank + 5]).square().mean().backward()
for parameter, gradient in zip(layers[0].parameters(), expected):
    torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-4, atol=1e-6)
parts = torch.empty(2, 1, 2, device="npu")
dist.all_gather_into_tensor(parts, torch.full((1, 2), float(rank), device="npu"))
assert parts.tolist() == [[[0, 0]], [[1, 1]]]
share = torch.empty(1, 1, device="npu")
dist.reduce_scatter_tensor(share, torch.tensor([[1.0], [2.0]], device="npu"))
assert share.item() == 2 * (rank + 1)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Data parallel, with batch norm over both: the gradients of the whole batch."""
    (tmp_path / "two.py").write_text(TWO)
    command = [sys.executable, "-W", "ignore", "-m", "aclgrad.npu", tmp_path / "two.py"]
    both = [subprocess.Popen([*command, str(rank), tmp_path / "store"]) for rank in range(2)]
    assert [process.wait(timeout=100) for process in both] == [0, 0]
