"""What ranks do with the examples."""

import importlib
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def module(name):
    """One of the examples over ranks."""
    folder = str(EXAMPLES / "ranks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def chain(rank, groups):
    return module("chain").compare()


def losses(rank, groups, steps):
    train = module("train")
    return [list(split(steps)) for split in (train.split_vocabulary, train.split_batch)]
