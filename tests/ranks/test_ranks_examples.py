"""The examples over ranks: the documents' operators equal the head, and any number of processes trains alike."""

import subprocess
import sys

import example_checks
import pytest
import torch
import torch.distributed as dist


@pytest.fixture
def alone():
    """A group of this process alone; what the examples put on the path is taken off."""
    path, modules = list(sys.path), set(sys.modules)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    sys.path[:] = path
    for name in (set(sys.modules) - modules) & {"train", "models", "text", "chain"}:
        sys.modules.pop(name, None)


def test_the_documents_operators_are_the_head(ranks):
    """The chain rounds logits, the head does not; gradients of what was rounded to bfloat16 are no better than that."""
    for found in ranks(example_checks.chain):
        assert found["aclnn"] == found["torch_npu"]
        for name, (loss, input_grad, weight_grad) in found.items():
            assert max(input_grad, weight_grad) < 4 * torch.finfo(torch.bfloat16).eps, name
            assert loss < (1e-6 if name == "nn.linear_cross_entropy" else torch.finfo(torch.bfloat16).eps), name


def test_four_processes_train_as_one(ranks, alone):
    expected = example_checks.losses(0, None, 4)
    for found in ranks(example_checks.losses, 4):
        for mine, want in zip(found, expected, strict=True):
            assert mine == pytest.approx(want, rel=1e-5)
    assert expected[0][-1] < expected[0][0]


@pytest.mark.slow
def test_from_the_command_line(tmp_path):
    picture = tmp_path / "curves.png"
    script = str(example_checks.EXAMPLES / "ranks" / "train.py")
    done = subprocess.run(
        [sys.executable, script, "--steps", "2", "--out", str(picture)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    chain = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*chain, str(example_checks.EXAMPLES / "ranks" / "chain.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "nn.linear_cross_entropy" in done.stdout, done.stderr
