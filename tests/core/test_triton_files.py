"""Triton compiles into files. Where it cannot write them, the message says what to do."""

import contextlib
import errno
import os
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from aclgrad.core.errors import Prevented
from aclgrad.gpu import compilation
from aclgrad.gpu.files import located


def compile_failing_with(error, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    compilation.compiled(SimpleNamespace(warmup=fail), (), (1, 1, 1), torch.device("cuda", 0))


@pytest.mark.parametrize("number", sorted(compilation.UNWRITABLE), ids=errno.errorcode.get)
def test_a_folder_that_cannot_be_written_is_named_with_its_remedy(number, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with pytest.raises(Prevented) as caught:
        compile_failing_with(OSError(number, os.strerror(number)), monkeypatch)
    assert f"Triton cannot write compiled kernels to {tmp_path}: [Errno {number}]" in str(caught.value)
    assert "set ACLGRAD_CACHE or TRITON_CACHE_DIR" in str(caught.value)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "no compiler"), RuntimeError("no such instruction")], ids=repr
)
def test_other_errors_stay_what_they_are(error, monkeypatch):
    with pytest.raises(type(error)) as caught:
        compile_failing_with(error, monkeypatch)
    assert caught.value is error


def test_the_folder_for_everything_holds_kernels_too(monkeypatch, tmp_path):
    monkeypatch.setenv("ACLGRAD_CACHE", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    triton = compilation.triton
    before = triton.knobs.cache.dir
    with located():
        assert triton.knobs.cache.dir == str(tmp_path / "triton")
    assert triton.knobs.cache.dir == before != str(tmp_path / "triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "named"))
    with located():
        assert triton.knobs.cache.dir == str(tmp_path / "named")
