"""Two language models in a few lines, each written once with torch's modules and converted for the other run."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import aclgrad.nn


class Head(nn.Module):
    """The last layer and its loss, as they are usually written: all logits in memory."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, classes, bias=False)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The mean loss of all tokens."""
        return cross_entropy(self.linear(x).flatten(0, -2), target.flatten())


class CharacterLSTM(nn.Module):
    """Embedding, two layers of LSTM, head."""

    def __init__(self, classes: int, features: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, features)
        self.rnn = nn.LSTM(features, features, num_layers=2, batch_first=True)
        self.head = Head(features, classes)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of predicting every next character."""
        output, _ = self.rnn(self.embed(x))
        return self.head(output, target)


class Block(nn.Module):
    """Attention over what came before, then two linear layers with a hard gate between."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.attend, self.join = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.wide, self.gate, self.narrow = nn.Linear(features, 64), nn.Hardsigmoid(), nn.Linear(64, features)

    def forward(self, x: Tensor) -> Tensor:
        """[N, T, features] to the same."""
        each = self.attend(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*each, is_causal=True)
        x = x + self.join(mixed.transpose(1, 2).flatten(2))
        y = self.wide(self.norms[1](x))
        return x + self.narrow(y * self.gate(y))


class Transformer(nn.Module):
    """Predicts the next three characters at once: a vocabulary of thousands, as language models have it."""

    def __init__(self, classes: int, features: int = 32, steps: int = 256) -> None:
        super().__init__()
        self.classes = classes
        self.embed, self.places = nn.Embedding(classes, features), nn.Parameter(torch.zeros(steps, features))
        self.blocks = nn.Sequential(Block(features, 4), Block(features, 4))
        self.head = Head(features, classes**3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of predicting every next three characters."""
        y = self.blocks(self.embed(x) + self.places[: x.shape[1]])
        first, second, third = target[:, :-2], target[:, 1:-1], target[:, 2:]
        return self.head(y[:, :-2], (first * self.classes + second) * self.classes + third)


def converted(model: nn.Module) -> nn.Module:
    """The model with this package's modules, parameters as they are."""
    theirs = model.head
    model.head = aclgrad.nn.LinearCrossEntropyLoss(theirs.linear.in_features, theirs.linear.out_features)
    model.head.linear = theirs.linear
    return aclgrad.nn.convert(model)
