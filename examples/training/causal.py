"""A causal language model whose loss is exchanged in three lines; prompts count for nothing.

    python examples/training/causal.py --steps 60

The model is written the way HuggingFace's are: `model(input_ids, labels=labels)` shifts the labels by one, and tokens
labelled -100 are ignored. Trained twice from one seed, with its own loss and with this package's.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import torch
from models import Block
from rich.console import Console
from text import Text
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import aclgrad.nn

IGNORED = -100


class CausalModel(nn.Module):
    """A small transformer; its last layer is tied to the embedding."""

    def __init__(self, classes: int, features: int = 32, steps: int = 256) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(classes, features), nn.Parameter(torch.zeros(steps, features))
        self.blocks = nn.Sequential(Block(features, 4), Block(features, 4), nn.LayerNorm(features))
        self.lm_head = nn.Linear(features, classes, bias=False)
        nn.init.normal_(self.embed.weight, std=features**-0.5)
        self.lm_head.weight = self.embed.weight

    def hidden(self, input_ids: Tensor) -> Tensor:
        """What the last layer sees, [N, T, features]."""
        return self.blocks(self.embed(input_ids) + self.places[: input_ids.shape[1]])  # type: ignore[no-any-return]

    def forward(self, input_ids: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> SimpleNamespace:
        """The usual way: all logits, then the loss of predicting every next token."""
        logits = self.lm_head(self.hidden(input_ids))
        shifted = logits[:, :-1].flatten(0, 1).float()
        loss = cross_entropy(shifted, labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
        return SimpleNamespace(loss=loss / num_items_in_batch, logits=logits)


class WithoutLogits(CausalModel):
    """The same model and loss; no logits."""

    def forward(self, input_ids: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> SimpleNamespace:
        """The three lines."""
        hidden, weight = self.hidden(input_ids)[:, :-1], self.lm_head.weight
        loss = aclgrad.nn.linear_cross_entropy(hidden, weight, labels[:, 1:], normalizer=num_items_in_batch)
        return SimpleNamespace(loss=loss, logits=None)


def train(kind: type[CausalModel], steps: int, parts: int = 2) -> list[float]:
    """Losses of all steps. A batch is taken in parts; each divides by the number of tokens of the whole."""
    torch.manual_seed(0)
    text, dice = Text(seed=1), torch.Generator().manual_seed(2)
    model = kind(len(text.alphabet))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        input_ids, _ = text.batch(dice, size=16, steps=48)
        labels = input_ids.clone()
        prompts = torch.randint(4, 20, (16, 1), generator=dice)
        labels[torch.arange(48) < prompts] = IGNORED
        count = (labels[:, 1:] != IGNORED).sum()
        optimiser.zero_grad()
        found = [model(*part, count).loss for part in zip(input_ids.chunk(parts), labels.chunk(parts), strict=True)]
        for loss in found:
            loss.backward()
        optimiser.step()
        losses.append(sum(loss.item() for loss in found))
    return losses


def main() -> None:
    """Train both ways and show how the losses fall."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    theirs, ours = train(CausalModel, steps), train(WithoutLogits, steps)
    show = Console(highlight=False).print
    show(f"{'step':>4}  {'all logits':>10}  {'aclgrad':>10}")
    for step in sorted({0, steps // 4, steps // 2, 3 * steps // 4, steps - 1}):
        show(f"{step:>4}  {theirs[step]:>10.6f}  {ours[step]:>10.6f}")


if __name__ == "__main__":
    main()
