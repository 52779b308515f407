"""Operands by name: a call's tensors in the order of a kernel's parameters, and kernels that refuse other names."""

import pytest
import torch

from aclgrad.core.memory import Scratch
from aclgrad.core.meta import Meta, contiguous_strides
from aclgrad.core.spec import F16, F32, Call
from aclgrad.cpu.operands import Operands as CpuOperands
from aclgrad.ops.lstm_cell.spec import lstm_cell_backward

CPU = torch.device("cpu")
SHAPES = {"grad_hy": (3, 4), "cx": (3, 4), "cy": (3, 4), "storage": (3, 16), "grad_gates": (3, 16), "grad_bias": (16,)}
"""Of a call without grad_c."""


def call_of(**dtypes):
    metas = {name: Meta(s, contiguous_strides(s), dtypes.get(name, F32), CPU) for name, s in SHAPES.items()}
    return Call(lstm_cell_backward.spec, metas, strict=False)


def tensors_of(call):
    """Arguments and outputs in the contract's order, each at an address of its own."""
    given = {name: torch.empty(shape) for name, shape in SHAPES.items()}
    spec = call.spec
    return given, [given.get(arg.name) for arg in spec.args], [given.get(name) for name in spec.out_names]


def kernel(thread, threads, table, storage, grad_c, cx, grad_bias, count):
    """As CPU kernels are: three parameters of all, then operands."""


def test_cpu_operands_stand_in_the_order_of_the_parameters():
    call = call_of(cx=F16)
    operands = CpuOperands(call, kernel, "storage", "grad_c", "cx", "grad_bias")
    given, args, outs = tensors_of(call)
    assert operands.dtypes == (F32, None, F16, F32)
    assert operands.addresses(args, outs) == [given[name].data_ptr() for name in ("storage", "cx", "grad_bias")]


@pytest.mark.parametrize("names", [("cx", "storage"), ("grad_c", "storage"), ("storage", "cx"), ("input", "cx")])
def test_cpu_operands_must_be_neighbouring_parameters(names):
    with pytest.raises(TypeError, match="kernel takes"):
        CpuOperands(call_of(), kernel, *names)


def test_gpu_operands_are_looked_up_in_a_call_and_its_workspace(monkeypatch):
    pytest.importorskip("triton")
    from aclgrad.gpu import operands as gpu

    monkeypatch.setattr(gpu, "INTERPRETING", False)
    scratch = Scratch()
    sums = [scratch.tensor((8,), F32) for _ in range(2)][1]
    call = call_of()
    table = gpu.Operands(
        [gpu.Operand.at("sums", sums, 2), gpu.Operand.of(call, "bias", "grad_bias"), gpu.Operand.of(call, "grad_c"),
         gpu.Operand.of(call, "cx")]
    )  # fmt: skip
    given, args, outs = tensors_of(call)
    workspace = torch.empty(scratch.size, dtype=torch.uint8)
    assert table.parameters == ["sums_ptr", "bias_ptr", "grad_c_ptr", "cx_ptr"]
    pointers = table.of_call(call)(args, outs, workspace)
    assert pointers[0] == workspace.data_ptr() + sums.offset + 2 * F32.itemsize
    assert pointers[1] is given["grad_bias"] and pointers[2] is None and pointers[3] is given["cx"]
    by_name = table.pointers({"grad_bias": given["grad_bias"], "cx": given["cx"]}, workspace)
    assert all(a is b or a == b for a, b in zip(by_name, pointers, strict=True))


def test_vectors_bring_their_strides_and_what_is_left_out_has_none():
    pytest.importorskip("triton")
    from aclgrad.gpu.operands import vectors

    operands, strides = vectors(call_of(), "grad_bias", "grad_c", "cx", left_out=("cx",))
    assert [(operand.name, operand.dtype) for operand in operands] == [
        ("grad_bias", F32),
        ("grad_c", None),
        ("cx", None),
    ]
    assert strides == {"grad_bias_stride": 1, "grad_c_stride": 0, "cx_stride": 0}
