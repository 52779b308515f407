"""Programs in files: exported ones for every batch and length, and what AOTInductor makes of them."""

import pytest
import torch
from torch import nn

import aclgrad.nn
from aclgrad.testing.cases import Data

BATCHES, STEPS = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("time", min=2, max=64)


class Model(nn.Module):
    """Every module once, with states given and not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = aclgrad.nn.LSTM(4, 6, 2, bidirectional=True)
        self.projected = aclgrad.nn.LSTM(12, 6, proj_size=3)
        self.cell, self.gate = aclgrad.nn.LSTMCell(3, 6), aclgrad.nn.Hardsigmoid()
        self.norms = nn.ModuleList([
            aclgrad.nn.BatchNorm1d(6), aclgrad.nn.BatchNorm2d(6), aclgrad.nn.BatchNorm3d(6), aclgrad.nn.SyncBatchNorm(6)
        ])  # fmt: skip
        self.head = aclgrad.nn.LinearCrossEntropyLoss(6, 7, label_smoothing=0.1)

    def forward(self, x, target):
        x, (h, c) = self.lstm(x)
        x, _ = self.projected(x)
        again, _ = self.lstm(x.repeat(1, 1, 2)[..., :4], (h, c))
        h, c = self.cell(x[-1], (h[0], c[1]))
        h = self.gate(h)
        for norm, positions in zip(self.norms, ((), (1, 1), (1, 1, 1), (1,)), strict=True):
            h = norm(h.view(*h.shape, *positions)).flatten(1)
        return again, h, c, self.head(h, target)


def arguments(batch, steps):
    data = Data(seed=batch)
    return data.normal(steps, batch, 4), data.integers(0, 7, batch)


def exported(steps=None):
    shapes = ({1: BATCHES} if steps is None else {0: steps, 1: BATCHES}, {0: BATCHES})
    with torch.no_grad():
        return torch.export.export(Model().eval(), arguments(3, 5), dynamic_shapes=shapes)


def results(sizes):
    with torch.no_grad():
        return [Model().eval()(*arguments(*size)) for size in sizes]


IN_A_NEW_PROCESS = """
import sys, torch, aclgrad
from aclgrad.ops._shared import small
small.enabled = False
calls, expected = torch.load("data.pt")
if sys.argv[1] == "exported":
    run = torch.export.load("program.pt2").module()
else:
    run = torch._inductor.aoti_load_package("package.pt2")
for arguments, results in zip(calls, expected):
    for found, want in zip(run(*arguments), results, strict=True):
        assert torch.equal(found, want), (found - want).abs().max()
"""


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch's own loading, up to 2.11
def test_every_module_for_any_batch_and_length_in_a_new_process(python, tmp_path):
    """Saved, loaded where nothing but aclgrad was imported, run with other sizes: the bits of the eager module."""
    torch.export.save(exported(STEPS), tmp_path / "program.pt2")
    sizes = [(2, 5), (7, 9), (3, 30)]
    torch.save(([arguments(*size) for size in sizes], results(sizes)), tmp_path / "data.pt")
    ran = python("-c", IN_A_NEW_PROCESS, "exported", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_package_that_calls_the_ops(python, tmp_path):
    """In this process and in a new one, which has to import aclgrad; any batch and length, the eager module's bits."""
    sizes = [(2, 5), (7, 9), (3, 30)]
    package = torch._inductor.aoti_compile_and_package(exported(STEPS), package_path=str(tmp_path / "package.pt2"))
    run = torch._inductor.aoti_load_package(package)
    for size, expected in zip(sizes, results(sizes), strict=True):
        torch.testing.assert_close(tuple(run(*arguments(*size))), expected, rtol=0, atol=0)
    torch.save(([arguments(*size) for size in sizes], results(sizes)), tmp_path / "data.pt")
    ran = python("-c", IN_A_NEW_PROCESS, "packaged", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    alone = python("-c", "import torch; torch._inductor.aoti_load_package('package.pt2')", cwd=tmp_path)
    assert alone.returncode != 0 and "Could not find schema for aclgrad::" in alone.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_package_of_torchs_operations(python, tmp_path):
    """It runs where there is no aclgrad, for any batch and the example's number of steps."""
    tables = {**torch.export.default_decompositions(), **aclgrad.nn.decompositions()}
    plain = exported().run_decompositions(tables)
    torch._inductor.aoti_compile_and_package(plain, package_path=str(tmp_path / "package.pt2"))
    sizes = [(2, 5), (7, 5)]
    torch.save(([arguments(*size) for size in sizes], results(sizes)), tmp_path / "data.pt")
    program = (
        "import sys, torch; sys.modules['aclgrad'] = None\n"
        "calls, expected = torch.load('data.pt')\n"
        "run = torch._inductor.aoti_load_package('package.pt2')\n"
        "for given, want in zip(calls, expected): torch.testing.assert_close(tuple(run(*given)), want)\n"
    )
    ran = python("-c", program, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
