"""Mixes of dtypes for three operands: pairwise, so that each meets each other's every dtype; all others are slow."""

import itertools

import pytest


def mixes(dtypes):
    """pytest parameters, all mixes of three."""
    count = len(dtypes)
    return [
        pytest.param(dtypes[a], dtypes[b], dtypes[c], marks=[] if c == (a + b) % count else [pytest.mark.slow])
        for a, b, c in itertools.product(range(count), repeat=3)
    ]
