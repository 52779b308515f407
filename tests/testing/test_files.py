"""Tensors as files, written by us and by others, and msprobe's layout."""

import json

import numpy as np
import pytest
import torch

from aclgrad import BadDump
from aclgrad.frontends.dumps import files, msprobe
from aclgrad.frontends.dumps.files import DTYPES, FORMATS, Stored, checksum, write

SHAPES = [(), (0,), (3,), (2, 0, 3), (4, 5), (3, 4, 5)]


def tensor(dtype, shape):
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 5
    return drawn.to(dtype) if dtype.is_floating_point else (drawn > 0).to(dtype)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_what_is_written_is_read_and_gives_the_same_bytes(tmp_path, dtype, suffix):
    for shape in SHAPES:
        value = tensor(dtype, shape)
        places = [tmp_path / folder / f"x.{suffix}" for folder in ("one", "two")]
        strided = value.new_empty((*shape, 2))[..., 0].copy_(value)
        assert write(value, places[0]) == write(strided, places[1]) == checksum(places[0])
        for place in places:
            read = Stored(place, dtype, shape).load()
            assert read.dtype == dtype
            assert torch.equal(read, value)


@pytest.mark.parametrize("suffix", ["npy", "bin"])
def test_large_tensors_are_written_in_pieces(tmp_path, monkeypatch, suffix):
    """Of one row, of several rows, of parts of rows."""
    monkeypatch.setattr(files, "PIECE", 100)
    for shape in ((30, 7), (3, 90), (2, 3, 40), (999,)):
        value = torch.arange(float(np.prod(shape))).view(shape)
        write(value.flip(0), tmp_path / f"x.{suffix}")
        assert torch.equal(Stored(tmp_path / f"x.{suffix}", torch.float32, shape).load(), value.flip(0))


def test_files_of_others_are_read(tmp_path):
    value = tensor(torch.float32, (4, 5))
    array = value.numpy()
    array.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "b.npy", array)
    np.save(tmp_path / "c.npy", np.asfortranarray(array))
    np.save(tmp_path / "d.npy", array.astype(">f4"))
    torch.save(value, tmp_path / "e.pt")
    torch.save(torch.nn.Parameter(value), tmp_path / "f.pt")
    torch.save(value, tmp_path / "g.pt", _use_new_zipfile_serialization=False)
    for path in sorted(tmp_path.iterdir()):
        read = Stored(path).load(torch.float32, (4, 5))
        assert torch.equal(read, value), path
        assert not read.requires_grad


def test_bfloat16_lies_in_npy_files_as_bits(tmp_path):
    """As uint16, as ml_dtypes leaves it, or widened by a tool that says what it was."""
    value = tensor(torch.bfloat16, (4, 5))
    bits = value.view(torch.int16).numpy()
    np.save(tmp_path / "bits.npy", bits.view(np.uint16))
    np.save(tmp_path / "void.npy", bits.view("V2"))
    np.save(tmp_path / "wide.npy", value.float().numpy())
    for name in ("bits", "void"):
        assert torch.equal(Stored(tmp_path / f"{name}.npy").load(torch.bfloat16), value)
    assert torch.equal(Stored(tmp_path / "wide.npy", torch.bfloat16).load(), value)
    assert Stored(tmp_path / "wide.npy").load(torch.bfloat16).dtype == torch.float32  # nobody said that it was
    np.save(tmp_path / "more.npy", value.float().numpy() * 1.0001)
    with pytest.raises(BadDump, match=r"more.npy is float32, bfloat16 was said of it"):
        Stored(tmp_path / "more.npy", torch.bfloat16).load()


def test_nothing_is_read_before_somebody_looks(tmp_path):
    write(torch.zeros(1 << 20), tmp_path / "x.npy")
    mapped = Stored(tmp_path / "x.npy").load()
    mapped[0] = 5.0  # a copy of a page, not the file
    assert float(Stored(tmp_path / "x.npy").load()[0]) == 0.0


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.npy", b"", "x.npy cannot be read: EOF"),
        ("x.npy", b"nonsense", "x.npy cannot be read: the magic string is not correct"),
        ("x.bin", bytes(7), r"x.bin cannot be read: it has 7 bytes, float32\[4\] has 16"),
        ("x.pt", b"", "x.pt cannot be read: it ends early"),
        ("x.pt", b"nonsense", "x.pt cannot be read: it is no file of torch.save, or one of more than tensors"),
        ("x.txt", b"1 2 3", "x.txt is of no known kind, expected one of npy, bin, pt"),
        ("y.npy", None, "y.npy cannot be read: No such file"),
    ],
)
def test_what_is_no_tensor_is_told(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadDump, match=told):
        Stored(tmp_path / name).load(torch.float32, (4,))


def test_files_that_hold_something_else_are_told(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "complex.npy", np.zeros(3, np.complex64))
    torch.save([torch.zeros(3)], tmp_path / "list.pt")
    whole = tmp_path / "cut.npy"
    write(torch.zeros(100), whole)
    whole.write_bytes(whole.read_bytes()[:-8])
    for name, told in (
        ("objects.npy", "its elements are object"),
        ("complex.npy", "its elements are complex64"),
        ("list.pt", "it holds a list, expected a tensor"),
        ("cut.npy", r"it ends before float32 \[100\] is complete"),
    ):
        with pytest.raises(BadDump, match=told):
            Stored(tmp_path / name).load()
    write(torch.zeros(100), tmp_path / "x.npy")
    with pytest.raises(BadDump, match=r"x.npy has shape \[100\], \[10, 10\] was said of it"):
        Stored(tmp_path / "x.npy", torch.float32, (10, 10)).load()
    with pytest.raises(BadDump, match=r"x.npy cannot hold complex64"):
        write(torch.zeros(3, dtype=torch.complex64), tmp_path / "x.npy")


def test_a_dump_of_msprobe_comes_back_as_it_was_written(tmp_path):
    lists = [tensor(torch.float16, (2, 3)), tensor(torch.int64, (4,))]
    arguments = [lists[0], lists, None, 1e-5, True, 3, [True, False]]
    names = [
        msprobe.write_call(tmp_path, "aclnnLSTM", arguments, [[lists[1]], lists[0]], keywords={"eps": lists[0]}, **more)
        for more in ({}, {"data_format": "npy"}, {"kind": "NPU"})
    ]
    assert names == ["Aclnn.aclnnLSTM.0.forward", "Aclnn.aclnnLSTM.1.forward", "NPU.aclnnLSTM.0.forward"]
    calls = msprobe.read_calls(tmp_path)
    assert list(calls) == names
    for name, suffix in zip(names, ("pt", "npy", "pt"), strict=True):
        record = calls[name]
        assert record.arguments[2:] == [None, 1e-5, True, 3, [True, False]]
        assert torch.equal(record.arguments[0].load(), lists[0])
        assert torch.equal(record.arguments[1][1].load(), lists[1])
        assert torch.equal(record.outputs[0][0].load(), lists[1])
        assert torch.equal(record.keywords["eps"].load(), lists[0])
        assert (tmp_path / "dump_tensor_data" / f"{name}.input.1.1.{suffix}").is_file()


RECORD = {
    "input_args": [{"type": "torch.Tensor", "dtype": "torch.float16", "shape": [2], "data_name": "in.npy"}, None],
    "input_kwargs": {"eps": {"type": "float", "value": 0.5}},
    "output": [{"type": "mindspore.Tensor", "dtype": "Float32", "shape": [2], "data_name": "out.npy"}],
}


def test_a_dump_as_msprobe_writes_it_is_read(tmp_path):
    """float16 that MindSpore stored as float32, MindSpore's names of dtypes, a folder that was moved."""
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "in.npy", np.array([1.5, -2.0], np.float32))
    np.save(tmp_path / "dump_tensor_data" / "out.npy", np.array([3.0, 4.0], np.float32))
    content = {"task": "tensor", "dump_data_dir": "/gone", "data": {"Torch.add.0.forward": RECORD}}
    (tmp_path / "dump.json").write_text(json.dumps(content))
    record = msprobe.read_calls(tmp_path)["Torch.add.0.forward"]
    assert record.arguments[0].load().dtype == torch.float16
    assert record.outputs[0].load().tolist() == [3.0, 4.0]
    assert record.keywords == {"eps": 0.5}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "cannot be read"),
        ("[]", "has no calls"),
        ('{"data": {"Torch.add.0.forward": null}}', "tells nothing of Torch.add.0.forward"),
        ('{"data": {"a": {"output": [{"type": "torch.Tensor", "dtype": "torch.float32"}]}}}', "task `tensor`"),
        ('{"data": {"a": {"output": [{"type": "torch.Tensor", "dtype": "int4", "data_name": "x.pt"}]}}}', "is int4"),
    ],
)
def test_a_dump_that_is_none_is_told(tmp_path, content, told):
    (tmp_path / "dump.json").write_text(content)
    with pytest.raises(BadDump, match=told):
        msprobe.read_calls(tmp_path)
