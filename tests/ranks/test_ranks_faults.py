"""What becomes of ranks that differ, hang or die: an error within the timeout, never a number, nothing left running."""

import fault_checks
import pytest
from fault_checks import TIMEOUT

SLACK = 20
"""Seconds that a busy machine may take beyond a timeout; the groups of all other tests wait for longer."""


def test_whoever_differs_is_named_on_all_ranks(ranks):
    named = {
        "tokens": "tokens is 7 on rank 2, expected 6 as on rank 0",
        "features": "features is 9 on rank 2, expected 8 as on rank 0",
        "dtype": 'dtype is "torch.bfloat16" on rank 2, expected "torch.float32" as on rank 0',
        "a new weight": 'rank 2 begins with {"rows": 3, "vocab": null}, expected {"tokens": 6, ',
        "label_smoothing": "label_smoothing is 0.1 on rank 2, expected 0.2 as on rank 0",
        "a gradient of input": "a gradient of input is false on rank 2, expected true as on rank 0",
        "vocab": "vocab is (9, 12) on rank 3, expected it to begin at 10, where rank 2 ends",
        "target": "target differs on rank 2 from that of other ranks",
        "target, checked": "on rank 2, expected",
        "input, checked": "input is",
        "num_features": "num_features is 5 on rank 2, expected 4 as on rank 0",
        "eps": "eps is 0.1 on rank 2, expected 0.2 as on rank 0",
    }
    for found in ranks(fault_checks.what_differs):
        for name, words in named.items():
            kind, message, seconds = found[name]
            assert kind == "InvalidArgument" and words in message and "rank" in message, (name, found[name])
            assert seconds < SLACK < ranks.timeout, name
        assert found["nothing"][0] == "", found["nothing"]


def require_raised(found, *words):
    kind, message, seconds = found
    assert kind == "CommunicationError" and all(word in message for word in words), found
    assert seconds < TIMEOUT + SLACK, found


def test_whoever_hangs_or_dies_is_not_waited_for_longer_than_the_timeout(ranks):
    """In an order in which the processes last: what torch aborts is gone."""
    ranks(fault_checks.prepare)
    for rank, found in enumerate(ranks(fault_checks.hangs)[:3]):
        known, unknown, backward = found
        require_raised(known, "all_gather of statistics of 6 tokens failed", f"on rank {rank} of 4")
        require_raised(unknown, f"rank {rank} of 4 waited for rank 3 to begin with", '"tokens": 5')
        require_raised(backward, "all_reduce of the gradient of 6 rows of the input failed", f"on rank {rank} of 4")
    *others, dead = ranks.outcomes(fault_checks.dies)
    assert dead == (False, "gone")
    for fine, found in others:
        assert fine
        require_raised(found, "all_reduce of the gradient")
    for fine, found in ranks.outcomes(fault_checks.lies)[:3]:
        if fine:
            require_raised(found, "all_gather of statistics")
        else:
            assert found == "gone"  # torch aborts whoever gets more than it asked for
    workers = [worker for worker, _ in ranks.workers]
    ranks.stop()
    assert not any(worker.is_alive() for worker in workers)
    ranks.start()
    assert ranks(fault_checks.who) == [0, 1, 2, 3]  # whoever is stopped before all have met is waited for


def test_without_a_group(monkeypatch):
    import torch

    import aclgrad.nn

    x, w, target = torch.ones(2, 3), torch.ones(4, 3), torch.zeros(2, dtype=torch.int64)
    for options in ({"vocab": (0, 4)}, {"sequence_parallel": True}):
        with pytest.raises(aclgrad.InvalidArgument, match="without a group, expected a process group beside it"):
            aclgrad.nn.linear_cross_entropy(x, w, target, **options)
    with pytest.raises(aclgrad.WrongType, match="group is str, expected a ProcessGroup or a DeviceMesh"):
        aclgrad.nn.linear_cross_entropy(x, w, target, group="world")
