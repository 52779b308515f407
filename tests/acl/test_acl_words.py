"""What the runtime tells a program is told in the words of C, which both doors share with the documents."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import aclgrad.frontends.acl as package
from aclgrad.frontends.acl.boundary import FUNCTIONS

FOLDER = Path(inspect.getfile(package)).parent
PYTHON_NAMES = re.compile(
    r"\b(?:(?:set|reset|get)_device|dev_ptr|host_ptr|dest_max|max_count|thread_id|"
    r"(?:synchronize|create|destroy)_(?:stream|event|context|device)|memcpy_async|malloc_host|free_host|acl\.rt\.\w+)\b"
)


def told(path):
    """(line, text) of every string of a file that is no docstring: constants and the parts of f-strings."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_messages_speak_of_c_functions(path):
    if path.name == "__init__.py":  # lists of names, no messages
        return
    assert [(line, text) for line, text in told(path) if PYTHON_NAMES.search(text)] == []


def test_every_runtime_function_calls_its_arguments_as_c_does():
    """A message names the argument by `address("devPtr", …)` and the like: never by the Python parameter."""
    names = {name for name in FUNCTIONS if name.startswith("aclrt")}
    assert len(names) > 80
    for name in names:
        source = inspect.getsource(inspect.unwrap(FUNCTIONS[name]))
        quoted = set(re.findall(r'\b(?:address|nullable_address|size_t|integer|member)\("(\w+)"', source))
        assert not {word for word in quoted if "_" in word}, name
