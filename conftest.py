"""Triton kernels run everywhere: on a GPU where there is one, else in Triton's interpreter.

What wants the device "npu" runs in a process that has it from the start (tests/npu).

What the interpreter cannot run, all of `tests/gpu` and what is marked `needs_gpu`, is selected by `-m gpu` as well and
left out without a GPU, which the summary says in one line.

Kernels run on one thread unless a test says otherwise: most tensors here are so small that threads would spend the time
waiting for each other, and pytest's workers share the cores.

The garbage collector seldom looks, and not at what was there when a file of tests began: to compile and to interpret
makes hundreds of thousands of small objects, and a look at all that torch and the tests have loaded takes a second.
"""

import gc
import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of numpy, read when it is first imported

import pytest
import torch

GPU = torch.cuda.is_available()
ROOT = Path(__file__).parent
TESTS = ROOT / "tests"
NEED_GPU = TESTS / "gpu"
NEED_NPU = TESTS / "npu" / "installed", ROOT / "src" / "aclgrad" / "frontends" / "npu"
LEFT_OUT = "There is no GPU here: the tests that need one are left out."
collect_ignore = ["tools/website/docstrings.py"]  # needs griffe, of the group docs


def _spare_the_interpreter():
    """Triton's interpreter does again and again what does not change: this does it once.

    It replaces the language's functions for a kernel, and again for each function that this calls: two fifths of the
    time that a kernel takes. With every result it makes anew what its type and shape are: two fifths of the rest. And
    it computes whether sums of integers overflow, for an assertion that is not made unless somebody debugs.
    """
    try:
        from triton.language import core
        from triton.runtime import interpreter
    except ImportError:
        return
    patch, done = interpreter._patch_lang, interpreter._LangPatchScope
    modules = interpreter.tl, interpreter.tl.core

    @cache
    def languages(function):
        seen = {id(value) for value in function.__globals__.values()}
        return [module for module in modules if id(module) in seen]

    def replace_once(function):
        return patch(function) if any(core.is_builtin(module.load) for module in languages(function)) else done()

    interpreter._patch_lang = replace_once

    dtype_of, dtypes = interpreter._get_np_dtype, {}
    make_type, types = core.block_type.__init__, {}
    make_tensor, shapes = core.tensor.__init__, {}

    def known_dtype(kind):
        name = kind.scalar.name
        if name not in dtypes:
            dtypes[name] = dtype_of(kind)
        return dtypes[name]

    def known_type(self, element, shape):
        key = element.name, *[getattr(size, "value", size) for size in shape]
        if key not in types:
            make_type(self, element, shape)
            types[key] = dict(vars(self))
        vars(self).update(types[key])

    def known_tensor(self, handle, kind):
        if kind.name not in shapes:
            make_tensor(self, handle, kind)
            shapes[kind.name] = {name: value for name, value in vars(self).items() if name not in ("handle", "type")}
        self.handle, self.type = handle, kind
        vars(self).update(shapes[kind.name])

    interpreter._get_np_dtype = known_dtype
    core.block_type.__init__, core.tensor.__init__ = known_type, known_tensor
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)


THREADS = torch.get_num_threads()
torch.set_num_threads(1)
gc.set_threshold(70_000, *gc.get_threshold()[1:])

if not GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported
    _spare_the_interpreter()


@pytest.fixture(scope="module")
def all_threads():
    """As many threads as torch would take."""
    torch.set_num_threads(max(THREADS, 2))
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def python():
    """Runs Python programs in processes of their own, where torch is there already."""
    sys.path.append(str(TESTS))
    from forked_python import ForkedPython

    forked = ForkedPython()
    yield forked.run
    forked.close()


@pytest.fixture(scope="session")
def each_case():
    """Checks cases too small for a test each: `each_case(check, {name: arguments})`. All that are wrong are named."""

    def run(check, cases):
        assert cases
        wrong = {}
        for name, arguments in cases.items():
            try:
                check(*arguments)
            except (Exception, pytest.fail.Exception) as why:  # noqa: BLE001  whatever it is, the next case is another
                wrong[name] = why
        if wrong:
            told = "\n".join(f"{name}: {type(why).__name__}: {why}" for name, why in wrong.items())
            raise AssertionError(f"{len(wrong)} of {len(cases)} cases:\n{told}") from next(iter(wrong.values()))

    return run


@pytest.fixture(scope="session", autouse=True)
def _own_kernels():
    """Modules use them in small calls, too, which torch would serve otherwise."""
    from aclgrad.ops._shared import small

    small.enabled = False


@pytest.fixture(scope="module", autouse=True)
def _settled_memory():
    """What is there stays out of the garbage collector's sight."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # marks before `-m` selects, order after it
def pytest_collection_modifyitems(config, items):
    """Mark what needs a GPU and what takes the interpreter long; leave the former out where there is none.

    What is interpreted comes in the middle: where two workers begin at either half, the second one does it while the
    first one compiles the CPU's kernels for both.
    """
    there = {path for path in {item.path for item in items} if NEED_GPU in path.parents}
    needy = {item for item in items if item.path in there or item.get_closest_marker("needs_gpu")}
    for item in needy:
        item.add_marker(pytest.mark.gpu)
    for item in items:
        if not GPU and _is_long_to_interpret(item):
            item.add_marker(pytest.mark.slow)
    if needy and not GPU:
        config.hook.pytest_deselected(items=list(needy))
        items[:] = [item for item in items if item not in needy]
    result = yield
    if not GPU:
        interpreted = [item for item in items if item.get_closest_marker("gpu")]
        others = [item for item in items if not item.get_closest_marker("gpu")]
        middle = min(len(items) // 2, len(others))
        items[:] = [*others[:middle], *interpreted, *others[middle:]]
    return result


def _is_long_to_interpret(item):
    """Whether a test of a Triton kernel has other parameters than those that `interpreted` marks name."""
    marks = list(item.iter_markers("interpreted"))
    if not marks or item.get_closest_marker("gpu") is None:
        return False
    params = item.callspec.params
    return not any(all(params[name] in values for name, values in mark.kwargs.items()) for mark in marks)


def pytest_ignore_collect(collection_path, config):
    """Leave out what wants the device "npu", unless the plugin has brought it, and what lies beside the tests.

    Looking for examples imports a file: programs for processes of their own would run, and change this one.
    """
    if collection_path in NEED_NPU and not config.pluginmanager.has_plugin("aclgrad.npu.pytest"):
        return True
    beside = TESTS in collection_path.parents and collection_path.suffix == ".py"
    return True if beside and not collection_path.name.startswith("test_") else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    """Pytest then looks for garbage several times, among all that there is; it goes with the process."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Say what was left out, which pytest's workers do not."""
    if not GPU:
        terminalreporter.write_line(LEFT_OUT)
