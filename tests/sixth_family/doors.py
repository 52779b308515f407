"""Looks for the family in every door of the package that is on the path; `bare` says that it has no optional part."""

import importlib.util
import sys
from pathlib import Path

import torch
from typer.testing import CliRunner

import aclgrad
import aclgrad.nn
from aclgrad import acl, aclnn
from aclgrad.core.registry import lookup
from aclgrad.frontends.capi.headers import headers
from aclgrad.frontends.capi.prototypes import prototypes
from aclgrad.frontends.cli import app

bare = "bare" in sys.argv
x, ones = torch.randn(4, 5, dtype=torch.float64), torch.ones(4, 5, dtype=torch.float64)
expected = 1 / (1 + x.abs()) ** 2


def same(found):
    torch.testing.assert_close(found, expected)


same(torch.ops.aclgrad.softsign_backward(ones, x))
same(lookup("softsign_backward")(ones, x, backend="reference"))

single, out = x.float(), torch.empty(4, 5)
size, executor, status = aclnn.aclnnSoftsignBackwardGetWorkspaceSize(torch.ones(4, 5), single, out)
assert status == 0, acl.get_recent_err_msg()
assert aclnn.aclnnSoftsignBackward(None, size, executor, None) == 0
torch.testing.assert_close(out, expected.float())
assert aclnn.aclnnSoftsignGetWorkspaceSize(None, out)[2] == 161001

header = headers(prototypes())["aclnnop/aclnn_softsign_backward.h"]
assert "aclnnSoftsignBackwardGetWorkspaceSize(const aclTensor *gradOutput, const aclTensor *self" in header

listed = CliRunner().invoke(app, ["list"]).output
assert "aclnnSoftsign" in listed and "aclnnSoftsignBackward" in listed
explained = CliRunner().invoke(app, ["explain", "softsign_backward"]).output
assert "gradOutput" in explained and "backend cpu: runs here" in explained

assert hasattr(aclgrad, "softsign") is hasattr(aclgrad.nn, "Softsign") is not bare
leaf = x.clone().requires_grad_()
torch.ops.aclgrad.softsign(leaf).sum().backward()  # without the family's gradient it is the textbook's
same(leaf.grad)
if not bare:
    same(aclgrad.softsign_backward(ones, x))
    model = aclgrad.nn.convert(torch.nn.Sequential(torch.nn.Softsign()))
    assert type(model[0]) is aclgrad.nn.Softsign
    torch.testing.assert_close(model(x), x / (1 + x.abs()))

generated = importlib.util.spec_from_file_location("generate", sys.argv[1])
generate = importlib.util.module_from_spec(generated)
generated.loader.exec_module(generate)
texts = {path.name: text for path, text in generate.generated().items()}
assert "def aclnnSoftsignBackward(" in texts["aclnn.pyi"] and "`softsign_backward`" in texts["operators.md"]
assert ("from .ops.softsign.module import *" in texts["nn.pyi"]) is not bare

sys.path.insert(0, str(Path(sys.argv[1]).parent))
text = importlib.import_module("website.operator_page").page(lookup("softsign_backward"))
assert "```math" in text and "| `grad_output` | `gradOutput` |" in text and "aclnnSoftsignBackward(" in text
print("found in every door", file=sys.stderr)
