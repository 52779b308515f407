"""A forked child for a part of a test."""

import multiprocessing

LIMIT = 60
"""Seconds after which a child counts as hanging."""


def in_child(action, *arguments):
    """Run an action in a forked child, for a time; what it raises is in the captured stderr."""
    child = start_child(action, *arguments)
    child.join(LIMIT)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs, f"the child still ran after {LIMIT} seconds"
    assert child.exitcode == 0


def start_child(action, *arguments):
    child = multiprocessing.get_context("fork").Process(target=action, args=arguments)
    child.start()
    return child
