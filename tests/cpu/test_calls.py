"""Calls of C functions from a table, without Python in between."""

import ctypes

import pytest

from aclgrad.cpu.calls import ARGUMENTS, CCall, walk
from aclgrad.cpu.openmp import address


@pytest.fixture
def recorder():
    """A C function that notes what it is called with, and answers what it is told to."""
    seen, answers = [], []

    def note(*arguments):
        seen.append(arguments)
        return answers.pop(0) if answers else 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * ARGUMENTS)(note)
    function.seen, function.answers = seen, answers
    return function


def test_every_step_makes_the_calls_of_its_phase_with_words_that_grow(recorder):
    where, clock = address(recorder), ctypes.c_int64(-1)
    even = [CCall(where, [1, 10], {1: 5}), CCall(where, [2, 2**40])]
    odd = [CCall(where, [3, 30], {0: -1}), CCall(where, [4])]
    assert walk([even, odd], ctypes.addressof(clock), 1, 5) == 0
    assert clock.value == 4
    assert [call[:2] for call in recorder.seen] == [
        (3, 30), (4, 0), (1, 15), (2, 2**40), (2, 30), (4, 0), (1, 20), (2, 2**40),
    ]  # fmt: skip
    assert not any(any(call[2:]) for call in recorder.seen)


def test_all_words_arrive(recorder):
    given = [k + 1 for k in range(ARGUMENTS)]
    walk([[CCall(address(recorder), given)]], ctypes.addressof(ctypes.c_int64()), 0, 1)
    assert recorder.seen == [tuple(given)]


def test_the_first_failure_ends_it(recorder):
    recorder.answers += [0, 0, -7]
    call = CCall(address(recorder), [1])
    assert walk([[call, call]], ctypes.addressof(ctypes.c_int64()), 0, 9) == -7
    assert len(recorder.seen) == 3


def test_addresses_beyond_the_sign_are_taken(recorder):
    walk([[CCall(address(recorder), [2**64 - 8])]], ctypes.addressof(ctypes.c_int64()), 0, 1)
    assert recorder.seen[0][0] == -8
