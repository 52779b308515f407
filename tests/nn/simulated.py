"""The head over shards of all ranks in one process, called like `nn.linear_cross_entropy` with the whole weight."""

import itertools
import random

import torch

from aclgrad.core.collectives import Simulated
from aclgrad.ops.linear_cross_entropy.arguments import checked
from aclgrad.ops.linear_cross_entropy.shards.head import of_shards
from aclgrad.ops.linear_cross_entropy.shards.tokens import TokenSplit


def cuts(classes, ranks, seed):
    """Ranges of so many ranks: at random places, at most of which begin where another ends; any may be empty."""
    draw = random.Random(seed)
    inner = sorted(
        draw.choice([0, classes, draw.randint(0, classes), draw.randint(0, classes)]) for _ in range(ranks - 1)
    )
    bounds = [0, *inner, classes]
    return tuple(itertools.pairwise(bounds))


def over(ranges, split_dim=None):
    """The function for these ranges of the vocabulary; tokens may be split along a dimension as well."""

    def function(input, linear_weight, target, *, linear_bias=None, ignore_index=None, **options):
        ranks = len(ranges)
        arguments = {"linear_bias": linear_bias, "ignore_index": ignore_index, "reduction": "mean", "weight": None}
        arguments |= {"label_smoothing": 0.0, "softcap": None, "logit_scale": 1.0, "z_loss": 0.0, "token_weight": None}
        arguments |= {"normalizer": None, "return_stats": False, **options}
        given = checked(input, linear_weight, target, **arguments)
        split = None if split_dim is None else TokenSplit(tuple(target.shape), split_dim, ranks)
        inputs = [given.input]
        if split is not None:
            counts = [split.count(rank) for rank in range(ranks)]
            inputs = list(input.split(counts, split_dim))
            for rank, part in enumerate(inputs):
                split.require(rank, part)
        weights = [given.weight[start:stop] for start, stop in ranges]
        biases = [] if given.bias is None else [given.bias[start:stop] for start, stop in ranges]
        return of_shards(given, inputs, weights, biases, Simulated(ranks), ranges, split)

    return function


def leaves(*shapes, dtype=torch.float32, seed=0):
    """Normally distributed tensors that want gradients."""
    from aclgrad.testing.cases import Data

    data = Data(dtype, seed)
    return [data.normal(*shape).requires_grad_() for shape in shapes]
