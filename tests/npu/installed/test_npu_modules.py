"""What `import torch_npu` and `import acl` find, and what `torch.npu` answers."""

import dataclasses
import importlib
import sys
import threading
from pathlib import Path

import pytest
import torch

import aclgrad
from aclgrad import npu


def modules():
    return [importlib.import_module(name) for name in ("torch_npu", "torch_npu.npu", "torch.npu.amp", "acl", "acl.rt")]


def test_unknown_names_raise_and_list_what_is_there():
    for module in modules():
        known = dir(module)[-1]
        with pytest.raises(AttributeError, match=rf"^{module.__name__} of aclgrad.npu has no npu_foo, .*\b{known}\b"):
            _ = module.npu_foo
        assert not hasattr(module, "__foo__")
        assert module.__name__ in repr(module)
    with pytest.raises(ImportError, match=r"cannot import name 'npu_foo' from 'torch_npu' .*aclgrad"):
        from torch_npu import npu_foo  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"torch_npu\.contrib"):
        importlib.import_module("torch_npu.contrib")


def test_the_functions_are_this_packages():
    import torch_npu

    import acl

    for name in aclgrad.torch_npu.__all__:
        assert getattr(torch_npu, name) is getattr(aclgrad.torch_npu, name)
    for name in dir(aclgrad.acl):
        if name not in ("rt", "util"):
            assert getattr(acl, name) is getattr(aclgrad.acl, name)
    assert torch_npu.npu is torch.npu
    assert torch_npu.__version__.startswith(torch.__version__.partition("+")[0])
    assert acl.rt.get_run_mode is aclgrad.acl.rt.get_run_mode
    with pytest.raises(TypeError, match="aclrtMalloc: missing"):
        acl.rt.malloc(64)


def test_pyacl():
    """The calls by which programs begin and end: a mode, a thread for callbacks, data buffers."""
    import acl

    started = acl.init() in (0, 100002)
    assert started
    assert acl.rt.set_device(0) == 0
    mode, ret = acl.rt.get_run_mode()
    assert (mode, ret) == (1, 0)
    done = threading.Event()
    thread, ret = acl.util.start_thread(lambda args: args[0].set(), [done])
    assert ret == 0
    assert done.wait(5)
    assert acl.util.stop_thread(thread) == 0
    address, ret = acl.rt.malloc(64, acl.ACL_MEM_MALLOC_HUGE_FIRST)
    buffer = acl.create_data_buffer(address, 64)
    assert (acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size(buffer)) == (address, 64)
    assert acl.destroy_data_buffer(buffer) == 0
    assert acl.rt.free(address) == 0


def test_torch_npu_device():
    answers = torch.npu.is_available(), torch.npu.device_count(), torch.npu.current_device()
    assert answers == (True, 1, 0)
    assert torch.accelerator.current_accelerator().type == "npu"
    assert torch.accelerator.is_available()
    assert torch.get_device_module("npu") is torch.npu
    assert torch.npu.get_device_name() == "Ascend910B"
    torch.npu.set_device("npu:0")
    with torch.npu.device(0):
        torch.npu.synchronize()
    torch.accelerator.synchronize()
    with pytest.raises(aclgrad.InvalidArgument, match="device is npu:1, expected npu:0"):
        torch.npu.set_device("npu:1")
    assert torch.npu.is_initialized()


def test_streams_events_and_addresses():
    """Work that aclnn has given to a stream is waited for; addresses of tensors are those of device memory."""
    import acl
    from aclgrad import aclnn

    first, last = (torch.npu.Event(enable_timing=True) for _ in range(2))
    stream = torch.npu.Stream()
    assert torch.npu.current_stream() == torch.npu.default_stream() != stream
    x, y = torch.full((1000,), 3.0, device="npu"), torch.zeros(1200, device="npu")[200:]
    operands = [
        aclnn.aclCreateTensor([1000], 1, acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_ND, [1000], 1, each.data_ptr())
        for each in (x, y)
    ]
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() is stream
        first.record()
        workspace, executor, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(*operands)
        assert status == 0
        assert aclnn.aclnnHardsigmoid(None, workspace, executor, stream.npu_stream) == 0
        last.record()
    torch.npu.current_stream().wait_stream(stream)
    stream.wait_event(stream.record_event())
    last.synchronize()
    assert (first.query(), last.query(), stream.query()) == (True, True, True)
    assert first.elapsed_time(last) >= 0
    stream.synchronize()
    here = torch.zeros(1000)
    assert acl.rt.memcpy(here.data_ptr(), 4000, y.data_ptr(), 4000, acl.ACL_MEMCPY_DEVICE_TO_HOST) == 0
    assert here.tolist() == y.tolist() == [1] * 1000
    more = torch.zeros(1001)
    assert acl.rt.memcpy(y.data_ptr(), 4004, more.data_ptr(), 4004, acl.ACL_MEMCPY_HOST_TO_DEVICE) == 107000
    assert acl.rt.free(y.data_ptr()) == 207002
    for tensor in operands:
        assert aclnn.aclDestroyTensor(tensor) == 0
    _, _, status = aclnn.aclnnHardsigmoidGetWorkspaceSize(x, y)
    assert status == 161002
    assert "self is a tensor on the npu device, expected" in acl.get_recent_err_msg()
    with pytest.raises(aclgrad.InvalidArgument, match="interprocess"):
        torch.npu.Event(interprocess=True)


def test_formats():
    import torch_npu

    x = torch.arange(24.0, device="npu").view(1, 2, 3, 4)
    assert torch_npu.get_npu_format(x) == torch_npu.Format.NCHW == 0
    assert torch_npu.get_npu_format(x[0]) == torch_npu.Format.ND == 2
    cast = torch_npu.npu_format_cast(x, torch_npu.Format.NC1HWC0)
    assert (torch_npu.get_npu_format(cast), torch_npu.get_npu_format(x)) == (3, 0)
    assert torch.equal(cast, x)
    assert torch_npu.npu_format_cast(cast, 3) is cast
    assert torch_npu.npu_format_cast_(x, cast) is x
    assert torch_npu.get_npu_format(x) == 3
    for wrong, error in ((99, aclgrad.InvalidArgument), ("NZ", aclgrad.WrongType)):
        with pytest.raises(error, match=r"acl_format is .*, expected a number of aclFormat"):
            torch_npu.npu_format_cast(x, wrong)
    with pytest.raises(RuntimeError, match="self is on cpu, expected a tensor of the device npu"):
        torch_npu.get_npu_format(x.cpu())


def test_install_refuses_what_cannot_be(monkeypatch, tmp_path):
    npu.install()  # again does nothing
    with pytest.raises(aclgrad.InvalidArgument, match="device is 'tpu', expected 'cpu' or 'cuda'"):
        npu.install("tpu")
    if not torch.cuda.is_available():
        monkeypatch.setenv("ACLGRAD_DEVICE", "cuda")
        with pytest.raises(aclgrad.Unsupported, match="torch finds no CUDA device"):
            npu.install()
        monkeypatch.delenv("ACLGRAD_DEVICE")
    npu.uninstall()
    npu.uninstall()
    assert not npu.is_installed()
    (tmp_path / "torch_npu.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(aclgrad.Unsupported, match="torch_npu is installed, expected a machine without it"):
        npu.install()
    assert not npu.is_installed()
    monkeypatch.undo()
    importlib.invalidate_caches()
    npu.install()


def test_the_example_of_the_documentation():
    root = Path(__file__).parents[3]
    sys.path.insert(0, str(root / "tests"))
    from page_blocks import blocks, run_python

    found = blocks("ascend.md", (root / "docs/ascend.md").read_text(encoding="utf-8"))
    ours = [dataclasses.replace(block, not_run="") for block in found if block.language == "python"]
    assert len(ours) == 1
    run_python(ours)
