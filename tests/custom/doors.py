"""Looks for the example's operators in every door, in a process that found them as an installed package."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from typer.testing import CliRunner

import aclgrad
from aclgrad import acl, aclnn
from aclgrad.frontends.capi import build
from aclgrad.frontends.capi.headers import headers
from aclgrad.frontends.cli import app

example, work, in_c = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == ["c"]
package = example / "squared_relu"


def compiled(compiler, source, target, *flags):
    """What a compiler makes of a source, without a warning."""
    command = [*compiler, "-O1", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(target)]
    subprocess.run([*command, *flags], check=True)
    return target


def cli(*words):
    """What the command line says."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output


assert {"squared_relu", "squared_relu_backward"} <= set(dir(aclgrad))
x, grad = torch.tensor([[-2.0, 0.0], [0.5, 3.0]]), torch.full((2, 2), 2.0)
expected = torch.tensor([[0.0, 0.0], [2.0, 12.0]])

# Without its library the family says so; nothing else quietly takes its place.
try:
    aclgrad.squared_relu_backward(grad, x)
except aclgrad.NoBackend as missing:
    assert "there is no library at" in missing.reasons
else:
    raise AssertionError("a library that is not there was no mistake")
for name, text in headers(()).items():
    path = work / "include" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
flags = f"-I{work / 'include'}", "-fPIC", "-shared"
compiled(build.c_compiler(), package / "kernel.c", package / "libsquared_relu.so", *flags)

# Python, strides, the textbook for what the library has not, torch.ops and a gradient of the textbook.
assert torch.equal(aclgrad.squared_relu_backward(grad, x), expected)
assert torch.equal(aclgrad.squared_relu_backward(grad, x.t()), expected.t())
out = torch.zeros(2, 2).t()
assert aclgrad.squared_relu_backward(grad, x, out=out) is out
assert torch.equal(out, expected)
assert torch.equal(aclgrad.squared_relu_backward(grad.half(), x.half()), expected.half())
leaf = x.clone().requires_grad_()
torch.ops.aclgrad.squared_relu(leaf).backward(grad)
assert torch.equal(leaf.grad, expected)
try:
    aclgrad.squared_relu_backward(grad, x[0])
except aclgrad.InvalidArgument as refused:
    assert "grad_output" in str(refused)

# Both phases, codes, and the checker.
size, executor, status = aclnn.aclnnSquaredReluBackwardGetWorkspaceSize(grad, x, torch.empty(2, 2))
assert (size, status, aclnn.aclnnSquaredReluBackward(None, size, executor, None)) == (0, 0, 0)
assert aclnn.aclnnSquaredReluGetWorkspaceSize(x.double(), x)[2] == 161002
message = acl.get_recent_err_msg()
assert message.startswith("aclnnSquaredReluGetWorkspaceSize: self is float64, expected one of float32, float16"), (
    message
)

# The command line: lists, explanations, golden data and verdicts.
assert "aclnnSquaredRelu " in cli("list")
assert "backend cpu: runs here" in cli("explain", "squared_relu_backward")
golden = work / "golden"
cli("golden", "aclnnSquaredReluBackward", "--out", golden)
truth = golden / "rounded"
assert sorted(path.name for path in truth.iterdir()) == ["gradInput.npy"]
cli("verify", "squared_relu_backward", "--inputs", golden, "--dump", truth)
assert "WRONG" not in cli("selftest", "squared_relu_backward")

# The library as the textbook, in float64.
formula = aclgrad.custom.SharedLibrary(package / "libsquared_relu.so").formula("squared_relu_backward")
assert torch.equal(formula(grad.double(), x.double()), expected.double())

# A C program, under the checker, whose environment says nothing of the package.
if in_c:
    made = build.write_installation(work / "installation")
    flags = *made.compile_flags, *made.link_flags
    program = compiled(build.cxx_compiler(), example / "main.cpp", work / "main", *flags)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ACLGRAD", "PYTHON"))}
    done = subprocess.run(
        [program], env=environment | {"ACLGRAD_STRICT": "1"}, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [" 0 0 0 0.25 1 9", " 0 0 0 1 2 6", "null: 161001"]
    found = [line for line in done.stderr.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    assert [line.split(":")[0].strip() for line in found] == ["failed-call"], done.stderr
print("found in every door")
