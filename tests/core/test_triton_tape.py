"""What a launch does, written down and done again elsewhere, with a driver and a library that are Python functions."""

import ctypes
import itertools
import threading
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from test_triton_steps import FakeKernel, multiply, multiply_batch, pretend

from aclgrad.gpu import products, steps, tape
from aclgrad.gpu.launch import recording
from aclgrad.gpu.tape import Taped

STREAM = 99


@pytest.fixture
def seen(monkeypatch):
    """What the driver's functions were called for, in their order; copies, zeros and products are really made."""
    calls = []

    def launch(function, *words):
        calls.append("launch")
        (out,) = (ctypes.c_uint64 * 1).from_address(words[8])
        number = ctypes.c_float.from_address(ctypes.c_uint64.from_address(out).value)
        number.value += 1.0
        return 0

    def copy(target, source, nbytes, stream, *_):
        calls.append("copy")
        assert stream == STREAM
        ctypes.memmove(target, source, nbytes)
        return 0

    def zero(target, value, nbytes, stream, *_):
        calls.append("zero")
        assert (value, stream) == (0, STREAM)
        ctypes.memset(target, 0, nbytes)
        return 0

    pretend(monkeypatch, launch=launch, multiply=multiply, multiply_batch=multiply_batch, copy=copy, zero=zero)
    monkeypatch.setattr(products, "INTERPRETING", False)
    monkeypatch.setattr(tape, "current_stream", lambda _: STREAM)
    monkeypatch.setattr(tape, "current_handle", lambda: 1)
    return calls


class Launch:
    """A launch of two matrices, a list of two more and a result, with a workspace; `also` is done at its end."""

    workspace = 1024

    def __init__(self, also=None):
        self.also, self.python = also, 0

    def __call__(self, args, outs, workspace):
        self.python += 1
        a, b, (more, again) = args
        product = workspace[64 : 64 + 4 * 6].view(torch.float32).view(2, 3)
        products.multiply(product, a, b.t())
        products.multiply(product, more, again, add=True)
        outs[0].zero_()
        outs[0][1:].copy_(product)
        steps.run_steps(FakeKernel(None), [outs[0][0], None], 5)
        if self.also:
            self.also(args, outs)

    def describe(self):
        return "a test"


def problem(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b, more, again = (torch.randn(*shape, generator=generator) for shape in ((2, 5), (3, 5), (2, 4), (4, 3)))
    expected = torch.cat([torch.tensor([[5.0, 0.0, 0.0]]), a @ b.t() + more @ again])
    return (a, b, [more, again]), expected


def run(launch, args):
    out = torch.full((3, 3), 7.0)
    launch(args, (out,), torch.full((1024,), 0xFF, dtype=torch.uint8))
    return out


def test_it_is_written_down_once_and_played_wherever_tensors_lie(seen):
    launch = Launch()
    taped = Taped(launch, 0)
    for seed in range(4):
        args, expected = problem(seed)
        seen.clear()
        torch.testing.assert_close(run(taped, args), expected)
        assert seen == ["zero", "copy", *["launch"] * 5]
    assert launch.python == 1
    assert recording.recorder is None


def test_another_tape_for_other_alignments_switches_and_sharing(seen, monkeypatch):
    launch = Launch()
    taped = Taped(launch, 0)
    args, expected = problem(0)
    late = torch.empty(11)[1:].view(2, 5).copy_(args[0])
    torch.testing.assert_close(run(taped, args), expected)
    torch.testing.assert_close(run(taped, (late, *args[1:])), expected)
    assert launch.python == 2
    a, b, more = torch.randn(2, 5), torch.randn(3, 5), torch.randn(2, 4)
    args = (a, b, [more, torch.randn(4, 3)])
    run(taped, args)
    assert launch.python == 2
    with monkeypatch.context() as patch:
        patch.setattr(tape, "settings", lambda: "others")
        run(taped, args)
        assert launch.python == 3


def test_tensors_that_are_the_same_have_a_tape_of_their_own(seen):
    class Sum:
        workspace, describe = 0, None

        def __call__(self, args, outs, workspace):
            outs[0].zero_()
            products.multiply(outs[0], args[0], args[1], add=True)

    taped = Taped(Sum(), 0)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    for a, b in ((x, x), (x, y), (y, y), (y, x)):
        out = torch.empty(3, 3)
        taped((a, b), (out,), None)
        torch.testing.assert_close(out, a @ b)
    both = torch.randn(4, 3)
    for a, b in ((both[:3], both[1:]), (x, both[:3])):  # they overlap, and are made in the ordinary way
        out = torch.empty(3, 3)
        taped((a, b), (out,), None)
        torch.testing.assert_close(out, a @ b)


@pytest.mark.parametrize(
    "also",
    [
        lambda args, outs: outs[0].add_(1.0),
        lambda args, outs: products.multiply(outs[0][1:], args[0], torch.randn(5, 3)),
        lambda args, outs: outs[0].t()[:2].zero_(),
        lambda args, outs: float(args[0].sum()),
    ],
    ids=["an operation", "memory of its own", "gaps", "a decision"],
)
def test_what_cannot_be_written_down_is_done_in_the_ordinary_way(seen, also, caplog):
    launch = Launch(also)
    taped = Taped(launch, 0)
    with caplog.at_level("DEBUG", "aclgrad.gpu.tape"):
        for seed in range(2):
            args, expected = problem(seed)
            found, plain = run(taped, args), run(launch, args)
            if "randn" not in str(also.__code__.co_names):
                assert torch.equal(found, plain)
    assert launch.python == 5  # once to be written down, and two times two
    assert len(caplog.records) == 1
    assert recording.recorder is None


def test_an_error_while_it_is_written_down_is_raised_and_forgotten(seen):
    def fail(args, outs):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run(Taped(Launch(fail), 0), problem(0)[0])
    assert recording.recorder is None


def test_threads_play_one_tape(seen):
    taped, wrong = Taped(Launch(), 0), []

    def work(seed):
        for turn in range(20):
            args, expected = problem(100 * seed + turn)
            if not torch.allclose(run(taped, args), expected, atol=1e-5):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_status_is_raised(seen, monkeypatch):
    taped = Taped(Launch(), 0)
    args, _ = problem(0)
    run(taped, args)
    (one,) = taped._tapes.values()
    monkeypatch.setattr(one, "_table", SimpleNamespace(run=lambda bases: 719))
    with pytest.raises(RuntimeError, match="status 719"):
        run(taped, args)


def test_a_single_call_is_made_in_the_ordinary_way(seen, monkeypatch):
    """And nobody looks again at where its tensors lie."""
    looks = []
    monkeypatch.setattr(Taped, "_key", lambda self, lie: looks.append(lie))

    class Zero:
        workspace, describe, python = 0, None, 0

        def __call__(self, args, outs, workspace):
            self.python += 1
            outs[0].zero_()

    launch = Zero()
    taped = Taped(launch, 0)
    for turn in range(3):
        out = torch.ones(4)
        taped((torch.ones(4),), (out,), None)
        assert not out.any()
        assert launch.python == 2 + turn
    assert not seen
    assert len(set(map(id, looks))) == 1


def test_switches_are_asked_for_where_they_matter(seen, monkeypatch):
    class Two:
        workspace, describe, python = 0, None, 0

        def __call__(self, args, outs, workspace):
            self.python += 1
            outs[0].zero_()
            outs[0].copy_(args[0])

    launch, asked = Two(), []
    monkeypatch.setattr(tape, "settings", lambda: asked.append(1))
    taped = Taped(launch, 0)
    for _ in range(3):
        taped((torch.ones(4),), (torch.empty(4),), None)
    assert launch.python == 1
    assert len(asked) == 1  # before anything was known


def test_a_launch_that_asks_for_a_switch_has_a_tape_for_each_state(seen, monkeypatch):
    class Asks:
        workspace, describe, python = 0, None, 0

        def __call__(self, args, outs, workspace):
            self.python += 1
            outs[0].zero_()
            if products.allows_tf32():
                outs[0][1:].copy_(args[0][1:])
            else:
                outs[0].copy_(args[0])

    launch = Asks()
    taped = Taped(launch, 0)
    for allowed in (False, True, False, True):
        monkeypatch.setattr(torch._C, "_get_fp32_precision_getter", lambda *_: "tf32" if allowed else "ieee")  # noqa: B023
        out = torch.empty(4)
        taped((torch.ones(4),), (out,), None)
        assert out.tolist() == [float(not allowed), 1.0, 1.0, 1.0]
    assert launch.python == 2


def of_layout(kind, rows, columns):
    """A matrix whose elements lie in memory in some way."""
    if kind == "rows":
        return torch.randn(rows, columns + 3)[:, :columns]
    if kind == "columns":
        return torch.randn(columns, rows + 2).t()[:rows]
    if kind == "the same row":
        return torch.randn(columns).expand(rows, columns)
    if kind == "the same number":
        return torch.randn(1).expand(rows, columns)
    return torch.randn(rows, 2 * columns + 1)[:, ::2][:, :columns]


KINDS = ("rows", "columns", "the same row", "the same number", "gaps")


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (3, 1), (3, 5)])
def test_products_of_any_layout(seen, rows, columns, depth):
    """The library's where it takes them, torch's otherwise."""
    for a, b in itertools.product(KINDS, KINDS):
        a, b = of_layout(a, rows, depth), of_layout(b, depth, columns)
        out = torch.full((rows + 1, columns + 2), torch.nan)[:rows, :columns]
        products.multiply(out, a, b)
        torch.testing.assert_close(out, a @ b)
        products.multiply(out, a, b, add=True)
        torch.testing.assert_close(out, 2 * (a @ b))


def test_there_are_not_more_and_more_tapes(seen, monkeypatch):
    """Calls whose tensors lie in ever other ways are right all the same."""
    monkeypatch.setattr(tape, "MOST_TAPES", 2)
    taped = Taped(Launch(), 0)
    for begin in (0, 1, 2, 3, 0, 3):
        (a, b, more), expected = problem(begin)
        late = torch.empty(10 + begin)[begin:].view(2, 5).copy_(a)
        torch.testing.assert_close(run(taped, (late, b, more)), expected)
        assert len(taped._tapes) <= 2


def test_what_asks_for_switches_at_some_addresses_only_is_written_down_once_for_each(seen, monkeypatch):
    class Asks:
        workspace, describe, python = 0, None, 0

        def __call__(self, args, outs, workspace):
            self.python += 1
            outs[0].zero_()
            if args[0].data_ptr() % 16:
                products.allows_tf32()
            outs[0].copy_(args[0])

    launch = Asks()
    taped = Taped(launch, 0)
    for turn in range(6):
        taped((torch.ones(5)[turn % 2 : 4 + turn % 2],), (torch.empty(4),), None)
    assert launch.python == 2
