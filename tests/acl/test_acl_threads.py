"""Many threads at once, the end of the process, and forks."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from acl_helpers import D2D, D2H, H2D

from aclgrad import acl
from aclgrad.frontends.acl import devices


def test_eight_threads_at_once(device):
    shared, _ = acl.rt.create_stream()
    order: list[tuple[int, int]] = []

    def work(thread: int) -> list[int]:
        rng, codes = np.random.default_rng(thread), [acl.rt.set_device(0)]
        own, _ = acl.rt.create_stream()
        for k in range(60):
            size = int(rng.integers(1, 3000))
            data, out = rng.integers(0, 256, size, np.uint8), np.empty(size, np.uint8)
            a, b = acl.rt.malloc(size, 0)[0], acl.rt.malloc(size, 0)[0]
            codes.append(acl.rt.memcpy_async(a, size, acl.util.numpy_to_ptr(data), size, H2D, own))
            codes.append(acl.rt.memcpy_async(b, size, a, size, D2D, own))
            devices.stream_of(shared).submit(lambda k=k: order.append((thread, k)), small=k % 3 == 0)
            codes.append(acl.rt.synchronize_stream(own))
            codes.append(acl.rt.memcpy(acl.util.numpy_to_ptr(out), size, b, size, D2H))
            codes.append(0 if (out == data).all() else 1)
            codes += [acl.rt.free(a), acl.rt.free(b)]
            assert acl.rt.free(a + 1) == 207002
            assert f"{a + 1:#x}" in acl.get_recent_err_msg()
        codes += [acl.rt.destroy_stream(own), acl.rt.synchronize_stream(shared), acl.rt.reset_device(0)]
        return codes

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert all(code == 0 for codes in results for code in codes)
    for thread in range(8):
        assert [k for t, k in order if t == thread] == list(range(60))


PRELUDE = """
import time, threading
from aclgrad import acl
from aclgrad.frontends.acl import devices, engine_cpu
acl.init(); acl.rt.set_device(0)
stream = devices.stream_of(acl.rt.create_stream()[0])
"""


def test_exit_finishes_pending_work(python):
    done = python("-c", PRELUDE + "stream.submit(lambda: (time.sleep(0.2), print('done')))")
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_exit_does_not_hang_on_work_that_never_ends(python):
    start = time.monotonic()
    code = "engine_cpu.EXIT_GRACE_SECONDS = 0.2\nfor _ in range(3): stream.submit(threading.Event().wait)"
    done = python("-c", PRELUDE + code)
    assert done.returncode == 0
    assert time.monotonic() - start < 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_use_its_parents_streams(python):
    code = """
import os
gate = threading.Event()
stream.submit(gate.wait)
child = os.fork()
if child == 0:
    seen = []
    stream.submit(lambda: seen.append(1))
    stream.synchronize()
    os._exit(42 if seen == [1] else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.set()
stream.synchronize()
print(code)
"""
    done = python("-c", PRELUDE + code)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr[-500:]
