"""Calls of C functions from a table, without Python in between."""

import ctypes
import threading
import time

import pytest

from aclgrad.cpu.calls import ARGUMENTS, CallTable, CCall, Placed, Steps
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
    assert CallTable([Steps([even, odd], ctypes.addressof(clock), 1, 5)]).run() == 0
    assert clock.value == 4
    assert [call[:2] for call in recorder.seen] == [
        (3, 30), (4, 0), (1, 15), (2, 2**40), (2, 30), (4, 0), (1, 20), (2, 2**40),
    ]  # fmt: skip
    assert not any(any(call[2:]) for call in recorder.seen)


def test_all_words_arrive(recorder):
    given = [k + 1 for k in range(ARGUMENTS)]
    CallTable([Steps([[CCall(address(recorder), given)]])]).run()
    assert recorder.seen == [tuple(given)]


def test_the_first_failure_ends_it(recorder):
    recorder.answers += [0, 0, -7]
    call = CCall(address(recorder), [1])
    table = CallTable([Steps([[call, call]], 0, 0, 9), Steps([[call]])])
    assert table.run() == -7
    assert len(recorder.seen) == 3
    assert table.run() == 0  # the next time it is forgotten
    assert len(recorder.seen) == 3 + 19


def test_addresses_beyond_the_sign_are_taken(recorder):
    CallTable([Steps([[CCall(address(recorder), [2**64 - 8, Placed(0, -8)])]])], 1).run([2**64 - 16])
    assert recorder.seen[0][:2] == (-8, -24)


def test_words_that_lie_open_are_those_of_the_time(recorder):
    where, outside = address(recorder), (ctypes.c_int64 * 3)(5, 6, 7)
    there = ctypes.addressof(outside)
    first = Steps([[CCall(where, [Placed(1, 10), 3, Placed(0)], {0: 100})]], 0, 0, 2)
    table = CallTable(
        [first, Steps([[CCall(where, [Placed(1)])]])], 2, [(there, Placed(0, -1)), (there + 16, Placed(1))]
    )
    for bases in ([1000, 2000], [7, 8]):
        recorder.seen.clear()
        assert table.run(bases) == 0
        a, b = bases
        assert [call[:3] for call in recorder.seen] == [(b + 10, 3, a), (b + 110, 3, a), (b, 0, 0)]
        assert list(outside) == [a - 1, 6, b]


def test_threads_take_turns():
    """Compiled code lets other threads run, and they must not change the words that are still to be read."""
    seen = []

    def note(word, *_):
        seen.append(word)
        time.sleep(0.02)
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * ARGUMENTS)(note)
    table = CallTable([Steps([[CCall(address(function), [Placed(0)])]], 0, 0, 3)], 1)
    table.run([0])  # compiled
    seen.clear()
    threads = [threading.Thread(target=table.run, args=([word],)) for word in (7, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [7, 7, 7, 8, 8, 8]
    assert seen in ([7, 7, 7, 8, 8, 8], [8, 8, 8, 7, 7, 7])
