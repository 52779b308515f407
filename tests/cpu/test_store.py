"""Whatever becomes of the files of compiled kernels, the kernels run, and say it where somebody should know."""

import ctypes
import errno
import importlib.util
import logging
import os
import resource
import shutil
import signal
import struct
import sys
from pathlib import Path

import numba
import pytest
import torch
from forked import LIMIT, in_child, start_child
from numba.core.registry import cpu_target

from aclgrad.cpu import store
from aclgrad.cpu.compiler import entry
from aclgrad.cpu.threads import ALONE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

SOURCE = """
def first(thread, threads, out):
    out[0] = 41

def second(thread, threads, out):
    out[0] = 42

def faulty(thread, threads, out):
    out[0] = nowhere
"""


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A module with kernels whose files lie in `__pycache__` beside it."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("ACLGRAD_CACHE", raising=False)
    monkeypatch.setattr(store, "_warned", False)
    (tmp_path / "kernels.py").write_text(SOURCE)
    found = importlib.util.spec_from_file_location("kernels", tmp_path / "kernels.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "kernels", module)  # numba asks for it when it loads what was kept
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    return module


def outcome(kernel):
    """(what the kernel writes, whether it came from the disk), as in a new process."""
    code = entry.__wrapped__(kernel, (torch.int64,))
    out = torch.zeros(1, dtype=torch.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_char_p)(code.address)(ALONE + struct.pack("q", out.data_ptr()))
    return out.item(), code.cache_hits


def files(kernels):
    return sorted((Path(kernels.__file__).parent / "__pycache__").glob("*"))


def is_kept(kernels):
    return outcome(kernels.first) == (41, 1) and len(files(kernels)) == 1


def test_a_kernel_is_kept_in_one_file(kernels):
    assert outcome(kernels.first) == (41, 0)
    assert is_kept(kernels)
    assert outcome(kernels.second) == (42, 0)
    assert [outcome(kernels.first), outcome(kernels.second)] == [(41, 1), (42, 1)]


def flipped(contents, at):
    return contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :]


def resealed(contents):
    """What nothing but unpickling will refuse."""

    def damage(path, kernel):
        code = entry.__wrapped__(kernel, (torch.int64,))
        identity, _ = code._cache._identity(code._sig, cpu_target.target_context.codegen())
        path.write_bytes(store._seal(identity, contents) + contents)

    return damage


def changed(change):
    return lambda path, kernel: path.write_bytes(change(path.read_bytes()))


def linked_to_itself(path, kernel):
    path.unlink()
    path.symlink_to(path)


def linked_to_nothing(path, kernel):
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


DAMAGES = {
    "empty": changed(lambda contents: b""),
    "a few bytes": changed(lambda contents: contents[:20]),
    "the seal alone": changed(lambda contents: contents[:32]),
    "half": changed(lambda contents: contents[: len(contents) // 2]),
    "one byte short": changed(lambda contents: contents[:-1]),
    "one byte long": changed(lambda contents: contents + b"\0"),
    "zeros": changed(lambda contents: bytes(len(contents))),
    "zeros at the end": changed(lambda contents: contents[:-4096] + bytes(4096)),
    "garbage": changed(lambda contents: os.urandom(len(contents))),
    "a bit of the seal": changed(lambda contents: flipped(contents, 5)),
    "a bit in the middle": changed(lambda contents: flipped(contents, len(contents) // 2)),
    "the last bit": changed(lambda contents: flipped(contents, len(contents) - 1)),
    "as numba writes it": changed(lambda contents: contents[32:]),
    "sealed nothing": resealed(b""),
    "sealed text": resealed(b"no pickle"),
    "sealed pickle of something else": resealed(b"\x80\x04K\x01."),
    "sealed pickle of a class that is not there": resealed(b"cnowhere\nNothing\n."),
    "a link to itself": linked_to_itself,
    "a link to nothing": linked_to_nothing,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_compiled_anew_and_replaced(kernels, damage, caplog):
    outcome(kernels.first)
    (path,) = files(kernels)
    damage(path, kernels.first)
    with caplog.at_level(logging.WARNING, "aclgrad"):
        assert outcome(kernels.first) == (41, 0)
    assert path.name in caplog.text or damage is linked_to_nothing
    assert is_kept(kernels)


def test_a_file_of_another_kernel_is_not_taken(kernels):
    assert [outcome(kernels.first), outcome(kernels.second)] == [(41, 0), (42, 0)]
    one, two = files(kernels)
    shutil.copy(two, one)
    assert [outcome(kernels.first), outcome(kernels.second)] == [(41, 0), (42, 1)]


def test_a_file_that_cannot_be_read_is_replaced(kernels, monkeypatch):
    outcome(kernels.first)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refusing(Path.read_bytes, store.SUFFIX, errno.EACCES))
        assert outcome(kernels.first) == (41, 0)
    assert is_kept(kernels)


def refusing(method, suffix, number):
    """A method of paths that fails for those with this in their names."""

    def refuse(path, *arguments, **options):
        if suffix in path.name:
            raise OSError(number, os.strerror(number), str(path))
        return method(path, *arguments, **options)

    return refuse


def test_a_folder_in_the_place_of_a_file_is_left_alone(kernels):
    outcome(kernels.first)
    (path,) = files(kernels)
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="compiled CPU kernels are not kept"):
        assert outcome(kernels.first) == (41, 0)
    assert outcome(kernels.first) == (41, 0)
    assert files(kernels) == [path]


def test_a_full_disk_costs_a_warning_and_nothing_else(kernels, recwarn):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the system itself refuses to write more
    try:
        found = [outcome(kernels.first), outcome(kernels.second), outcome(kernels.first)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found == [(41, 0), (42, 0), (41, 0)]
    (warning,) = recwarn.list
    assert warning.category is RuntimeWarning
    folder = Path(kernels.__file__).parent / "__pycache__"
    assert f"{folder} cannot be written" in str(warning.message)
    assert "set ACLGRAD_CACHE to a folder that can be written" in str(warning.message)
    assert files(kernels) == []
    outcome(kernels.first)
    assert is_kept(kernels)


ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("method", ["mkdir", "write_bytes", "replace"])
def test_whatever_fails_in_writing_the_kernel_runs(kernels, method, number, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Path, method, refusing(getattr(Path, method), "", number))
        with pytest.warns(RuntimeWarning, match="are not kept"):
            assert outcome(kernels.first) == (41, 0)
    assert files(kernels) == [], "what was begun is gone"


def without_folders(tmp_path, monkeypatch):
    """Nothing can be written where numba looks."""
    for name in ("__pycache__", "home"):
        (tmp_path / name).write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_where_nothing_else_can_be_written_kernels_are_kept_among_temporary_files(kernels, tmp_path, monkeypatch):
    without_folders(tmp_path, monkeypatch)
    monkeypatch.setattr(store.cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    with pytest.warns(RuntimeWarning, match=r"are kept in .*temporary.* alone: .* set ACLGRAD_CACHE"):
        assert outcome(kernels.first) == (41, 0)
    monkeypatch.setattr(store, "_warned", False)  # as in the next process, which finds them there and says nothing
    assert outcome(kernels.first) == (41, 1)
    assert (tmp_path / "temporary" / f"aclgrad-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_every_process_compiles(kernels, tmp_path, monkeypatch):
    without_folders(tmp_path, monkeypatch)
    monkeypatch.setattr(store.cache.tempfile, "gettempdir", lambda: str(tmp_path / "home"))
    with pytest.warns(RuntimeWarning, match=r"no folder for them can be written .* set ACLGRAD_CACHE"):
        assert outcome(kernels.first) == (41, 0)
    assert outcome(kernels.first) == (41, 0)


def test_the_folder_for_everything_holds_kernels_too(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("ACLGRAD_CACHE", str(tmp_path / "ours"))
    assert [outcome(kernels.first), outcome(kernels.first)] == [(41, 0), (41, 1)]
    assert files(kernels) == []
    assert len(list((tmp_path / "ours" / "kernels").rglob("*.nbc"))) == 1
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))  # who names this folder means it
    assert outcome(kernels.first) == (41, 0)
    assert len(list((tmp_path / "numba").rglob("*.nbc"))) == 1


def unwritable(locator):
    raise OSError(errno.EROFS, "read-only file system", locator.get_cache_path())


def test_what_somebody_else_kept_is_used_where_nothing_can_be_written(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("ACLGRAD_CACHE", str(tmp_path / "image"))
    assert outcome(kernels.first) == (41, 0)
    monkeypatch.setattr(store._PROVIDED, "ensure_cache_path", unwritable)
    monkeypatch.setattr(Path, "write_bytes", refusing(Path.write_bytes, "", errno.EROFS))
    assert outcome(kernels.first) == (41, 1)
    with pytest.warns(RuntimeWarning, match="are not kept"):
        assert outcome(kernels.second) == (42, 0)
    assert outcome(kernels.second) == (42, 0)  # said once


def test_a_folder_that_is_removed_comes_again(kernels, monkeypatch):
    folder = Path(kernels.__file__).parent / "__pycache__"
    outcome(kernels.first)
    shutil.rmtree(folder)
    assert outcome(kernels.first) == (41, 0)
    assert is_kept(kernels)
    shutil.rmtree(folder)
    compiling = store.CFunc._compile_uncached

    def removing(code):
        shutil.rmtree(folder)
        return compiling(code)

    monkeypatch.setattr(store.CFunc, "_compile_uncached", removing)
    assert outcome(kernels.first) == (41, 0)
    assert is_kept(kernels)


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_taken(kernels, monkeypatch):
    def half(path, contents):
        with path.open("wb") as file:
            file.write(contents[: len(contents) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        child = start_child(outcome, kernels.first)
        child.join(LIMIT)
    assert child.exitcode == -signal.SIGKILL
    left = files(kernels)
    assert left and outcome(kernels.first) == (41, 0)
    assert outcome(kernels.first) == (41, 1)
    source = Path(kernels.__file__)
    source.write_text(source.read_text() + "\n")
    outcome(kernels.first)
    assert not set(left) & set(files(kernels)) and len(files(kernels)) == 1, "what older sources left is gone"


@pytest.mark.parametrize("locks", [True, False], ids=["locked", "no locks here"])
def test_processes_that_compile_at_once_do_not_disturb_each_other(locks, kernels, tmp_path, monkeypatch):
    """Where files can be locked one of them compiles, and the others take what it has kept."""
    if not locks:
        monkeypatch.setattr(store, "fcntl", None)

    def child(place):
        number, kept = outcome(kernels.first)  # a warning would be an error
        place.write_text(str(kept))
        assert number == 41

    for _ in range(3):
        shutil.rmtree(Path(kernels.__file__).parent / "__pycache__", ignore_errors=True)
        places = [tmp_path / str(k) for k in range(4)]
        children = [start_child(child, place) for place in places]
        for started in children:
            started.join(LIMIT)
        assert [started.exitcode for started in children] == [0] * 4
        assert not locks or sorted(place.read_text() for place in places) == ["0", "1", "1", "1"]
        assert is_kept(kernels)


def test_nobody_waits_for_ever_for_another_that_compiles(kernels, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    outcome(kernels.first)
    (kept,) = files(kernels)
    kept.unlink()
    with kept.with_name(f"{kept.name}.lock").open("wb") as held:
        store.fcntl.flock(held, store.fcntl.LOCK_EX)
        assert outcome(kernels.first) == (41, 0)
    assert is_kept(kernels)


def test_what_cannot_be_removed_stays(kernels, monkeypatch):
    outcome(kernels.first)
    (old,) = files(kernels)
    source = Path(kernels.__file__)
    source.write_text(source.read_text() + "\n")
    monkeypatch.setattr(Path, "unlink", refusing(Path.unlink, "", errno.EPERM))
    assert [outcome(kernels.first)[0] for _ in range(2)] == [41, 41]
    assert old in files(kernels)


def test_a_kernel_that_cannot_be_compiled_says_why(kernels, monkeypatch):
    monkeypatch.setattr(Path, "write_bytes", refusing(Path.write_bytes, "", errno.ENOSPC))
    with pytest.raises(numba.core.errors.TypingError):
        outcome(kernels.faulty)


def test_a_kernel_kept_by_a_parent_runs_in_its_child(kernels):
    outcome(kernels.first)

    def child():
        assert outcome(kernels.first) == (41, 1)

    in_child(child)
