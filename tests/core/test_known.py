"""Calls recognised by their metadata: nothing that a plan may depend on is overlooked, and nothing is kept alive."""

import gc
import weakref

import numpy as np
import pytest
import torch

from aclgrad.core import known
from aclgrad.core.known import KEPT, NEAR, Known, Recognised
from aclgrad.core.meta import meta_of

BASE = torch.arange(24.0)


def handle(tensor):
    class Handle:
        shape = tensor.shape
        meta = meta_of(tensor)

    return Handle()


def call(**changes):
    """Values of a call: two tensors, a list of two, one that is absent, and numbers."""
    values = {
        "a": BASE.reshape(4, 6), "b": BASE[:4], "list": [BASE.clone(), BASE[:2].clone()], "absent": None,
        "flag": True, "count": 1, "number": 0.5, "word": "mean",
    }  # fmt: skip
    return tuple({**values, **changes}.values())


OTHERS = {
    "shape": {"b": BASE[:5]},
    "stride": {"a": BASE.reshape(6, 4).t()},
    "dtype": {"b": BASE[:4].double()},
    "device": {"b": torch.empty(4, device="meta")},
    "gradient": {"b": BASE[:4].clone().requires_grad_()},
    "negated": {"b": torch.complex(BASE, BASE).conj().imag[:4]},
    "subclass": {"b": BASE[:4].as_subclass(type("Named", (torch.Tensor,), {}))},
    "no tensor": {"b": None},
    "twin": {"list": [BASE.clone()] * 2},
    "shorter list": {"list": [BASE]},
    "tuple": {"list": (BASE, BASE[:2])},
    "member": {"list": [BASE, None]},
    "member's shape": {"list": [BASE, BASE[:3]]},
    "member's dtype": {"list": [BASE, BASE[:2].half()]},
    "given": {"absent": BASE},
    "integer for a flag": {"flag": 1},
    "flag for an integer": {"count": True},
    "real for an integer": {"count": 1.0},
    "number": {"number": 0.25},
    "word": {"word": "sum"},
    "handle": {"b": handle(BASE[:4])},
}

ALIKE = ("gradient", "subclass", "tuple")
"""No plan depends on these."""


@pytest.fixture
def unread(monkeypatch):
    """Fails whoever reads the metadata of tensors one by one."""

    def read(_):
        raise AssertionError("the metadata are read")

    return lambda: monkeypatch.setattr(known, "fingerprint", read)


def recognised(values, *beside):
    """A store that has seen a call twice."""
    store = Known()
    store.keep("found", values, *beside)
    assert store.find(values, *beside) == "found"
    return store


def test_a_call_of_equal_metadata_is_recognised_without_reading_them(unread):
    store = recognised(call(), "cpu")
    unread()
    fresh = call(a=torch.randn(4, 6), b=torch.randn(4), number=float("0.5"), word="".join(["me", "an"]))
    assert store.find(fresh, "cpu") == "found"


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_that_differs_in_one_thing_is_another(name):
    store = recognised(call())
    other = call(**OTHERS[name])
    if name in ALIKE:
        assert store.find(other) == "found"
        return
    assert store.find(other) is None
    store.keep("other", other)
    for _ in range(2):
        assert store.find(other) == "other"
        assert store.find(call()) == "found"


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_recognised_is_alike_in_everything(name):
    calls = Recognised()
    calls.keep("found", call())
    assert calls.find(call()) == "found"
    assert calls.find(call(**OTHERS[name])) is None


CONTEXTS = {
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "below autograd": torch._C._AutoDispatchBelowAutograd,
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_what_is_recognised_depends_on_the_dispatcher(name):
    calls, values = Recognised(), call()
    calls.keep("found", values)
    with CONTEXTS[name]():
        assert calls.find(values) is None
    assert calls.find(values) == "found"


def test_what_stands_beside_counts():
    store = recognised(call(), "cpu", True)
    assert store.find(call(), "cpu", False) is None
    assert store.find((*call(), BASE), "cpu", True) is None
    assert store.find(call(), ["cannot be hashed"]) is None


def test_handles_are_recognised_by_what_they_describe(unread):
    values = (handle(BASE), handle(BASE[:4]), 1.0)
    store = recognised(values)
    unread()
    assert store.find((handle(BASE.clone()), handle(BASE[:4].clone()), 1.0)) == "found"
    values[1].meta = meta_of(BASE[:5])
    with pytest.raises(AssertionError, match="are read"):
        store.find(values)


def test_shapes_by_turns_are_all_recognised(unread):
    stores = Known()
    shapes = [(n, 3) for n in range(3 * NEAR)]
    for shape in shapes * 2:
        if stores.find((torch.empty(shape),)) is None:
            stores.keep(shape, (torch.empty(shape),))
    unread()
    assert [stores.find((torch.empty(shape),)) for shape in shapes] == shapes


def test_an_array_for_a_number_is_another_call():
    calls = Recognised()
    calls.keep("found", call())
    for name in ("absent", "flag", "count", "number", "word"):
        assert calls.find(call(**{name: np.array([1, 2])})) is None  # an array does not say in a word if it is equal


@pytest.mark.parametrize("first", [None, [BASE[:4]]], ids=["none", "list"])
def test_a_call_whose_first_value_is_no_tensor_is_recognised(first, unread):
    store = recognised((first, BASE, 1.0))
    unread()
    assert store.find((first, BASE.clone(), 1.0)) == "found"


def checks_made(monkeypatch):
    """The calls for which a check is made from now on."""
    made, make = [], known._Call.of
    monkeypatch.setattr(known._Call, "of", lambda values, found: made.append(found) or make(values, found))
    return made


CANNOT = {"twins": (BASE, BASE), "bools": (BASE, [True, False]), "subclass": call(**OTHERS["subclass"])}


@pytest.mark.parametrize("name", CANNOT)
def test_checks_are_seldom_made_where_they_are_of_no_use(name, monkeypatch):
    store = Known()
    store.keep("found", CANNOT[name])
    made = checks_made(monkeypatch)
    assert all(store.find(CANNOT[name]) == "found" for _ in range(1000))
    assert len(made) <= 10


def test_checks_are_seldom_made_where_there_are_too_many_calls(monkeypatch):
    store, calls = Known(), [(BASE, number) for number in range(NEAR + 4)]
    for values in calls:
        store.keep(values[1], values)
    made = checks_made(monkeypatch)
    assert all(store.find(values) == values[1] for values in calls * 500)
    assert len(made) <= 10 * len(calls)


class Other:
    """A check that takes something else than the one that is known, or does nothing."""

    def __init__(self, *_, **named):
        if "dynamic_dims_sizes" in named:
            raise TypeError("unexpected")


@pytest.mark.parametrize("guards", [None, Other, lambda *_, **__: Other()])
def test_without_the_compilers_check_calls_are_found_by_their_metadata(guards, monkeypatch):
    monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", guards)
    assert known._compiled_check() is None
    monkeypatch.setattr(known, "_Guards", None)
    store = Known()
    store.keep("found", call())
    assert [store.find(call()) for _ in range(3)] == ["found"] * 3
    assert store.find(call(number=0.25)) is None
    assert store.recognise(call()) is None


def test_a_store_is_bounded():
    store = Known()
    for number in range(KEPT + NEAR):
        store.keep(number, (BASE, number))
        assert store.find((BASE, number)) == number
    assert len(store) <= KEPT
    assert sum(map(len, store._newest._calls.values())) <= NEAR
    store.clear()
    assert store.find((BASE, KEPT)) is None


def test_no_tensor_is_kept_alive():
    values = call(a=torch.randn(4, 6))
    gone = weakref.ref(values[0])
    store = recognised(values)
    del values
    gc.collect()
    assert gone() is None
    assert store.find(call()) == "found"


def test_a_mode_around_a_call_is_seen():
    store = recognised((BASE, 1))
    found = []
    torch.func.vmap(lambda x: (found.append(store.find((x, 1))), x)[1])(BASE.reshape(1, 24))
    assert found == [None]
