"""What `make generate` writes is what the contracts say now, and the stubs say what the modules have."""

import ast
import importlib.util
from pathlib import Path

import pytest

from aclgrad import aclnn, nn, torch_npu

ROOT = Path(__file__).parents[1]


def generated():
    found = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "generate.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.generated()


def test_the_files_are_those_that_would_be_written():
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: make generate"


def names(stub):
    """The public names of a stub, those of the modules it takes everything from included."""
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom) and node.level and node.names[0].name == "*":
            yield from importlib.import_module(f"aclgrad.{node.module}").__all__
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield from (alias.asname for alias in node.names)


@pytest.mark.parametrize("door", [aclnn, nn, torch_npu], ids=lambda door: door.__name__)
def test_editors_see_what_is_there(door):
    stub = {name for name in names(Path(door.__file__).with_suffix(".pyi")) if not name.startswith("_L")}
    enumerations = {"AclDataType", "AclFormat", "AclnnStatus"}  # which the stub names the constants' types by
    assert stub - enumerations - {"_Tensor", "_Bools"} == set(door.__all__)
    for name in door.__all__:
        assert name in dir(door)
        getattr(door, name)
