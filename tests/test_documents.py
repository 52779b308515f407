"""The contracts against the documents themselves, where they are at hand (ACLGRAD_DOCUMENTS)."""

import os
import re
from pathlib import Path

import pytest

import aclgrad  # noqa: F401  registers the operators
from aclgrad.core.registry import aclnn_operators
from aclgrad.core.spec import BoolArray, Flag, Float, Int, Out, OutList, Tensor, TensorList
from aclgrad.testing.cases import suite

FOLDER = Path(os.environ.get("ACLGRAD_DOCUMENTS", Path(__file__).parents[2] / "shared" / "seeds"))
OPERATORS = list(aclnn_operators())


def document(operator):
    if not FOLDER.is_dir():
        pytest.skip(f"the documents are not at {FOLDER}; set ACLGRAD_DOCUMENTS to test against them")
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text(encoding="utf-8")
        if text.startswith(f"# {operator.spec.aclnn}\n"):
            return text
    pytest.skip(f"no document of {operator.spec.aclnn} in {FOLDER}")


def prototype(text, function):
    """[(C type, name)] of a function's parameters, from the first prototype in the text."""
    inside = re.search(rf"aclnnStatus\s+{function}\s*\(([^)]*)\)", text).group(1)
    parameters = []
    for part in inside.split(","):
        words = part.replace("*", " * ").split()
        parameters.append((" ".join(words[:-1]).replace(" *", "*"), words[-1]))
    return parameters


C_TYPES = {
    TensorList: "const aclTensorList*",
    Tensor: "const aclTensor*",
    Flag: "bool",
    Int: "int64_t",
    BoolArray: "const aclBoolArray*",
    Out: "aclTensor*",
    OutList: "aclTensorList*",
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.name)
def test_parameters_stand_in_the_documents_order_with_its_names_and_types(operator):
    found = prototype(document(operator), f"{operator.spec.aclnn}GetWorkspaceSize")
    spec = operator.spec
    expected = [
        (param.c_type if isinstance(param, Float) else C_TYPES[type(param)], param.aclnn)
        for param in (*spec.args, *spec.outs)
    ]
    expected += [("uint64_t*", "workspaceSize"), ("aclOpExecutor**", "executor")]
    if spec.name == "batch_norm_elemt_backward":  # the document forgets the const of an input
        expected[7] = ("aclTensor*", "counter")
    assert [(kind.replace("* *", "**"), name) for kind, name in found] == expected


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.name)
def test_phase_two_has_the_documents_parameters(operator):
    names = [name for _, name in prototype(document(operator), operator.spec.aclnn)]
    assert names == ["workspace", "workspaceSize", "executor", "stream"]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.spec.name)
def test_every_documented_status_is_a_status_of_some_refusal(operator):
    text = document(operator)
    documented = {int(code) for code in re.findall(r"\b([135]61\d{3})\b", text)}
    assert documented <= {invalid.raises.status for invalid in suite(operator.spec).invalid}
