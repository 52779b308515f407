"""Four models that people know, small, each written once with torch's modules; `train.py --zoo` trains them.

What is special about each is what LSTMs of torch make hard, or a large vocabulary: a weight that is computed anew for
every call, packed sequences of many lengths, states that are reset inside a sequence, all logits in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from curves import Task
from data import Maze, Speech
from models import Head, Transformer, converted
from text import Text
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, dropout, smooth_l1_loss
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import aclgrad.nn


class DropConnect(nn.Module):
    """A weight some of whose elements are left out, others at every call."""

    def forward(self, weight: Tensor) -> Tensor:
        """The weight of this call."""
        return dropout(weight, 0.3, training=self.training)


def with_weights_of_now(lstm: nn.RNNBase) -> Callable[..., Any]:
    """Torch's LSTM multiplies with the weights that it was made with, unless told others; ours looks at every call."""
    if not isinstance(lstm, nn.LSTM):
        return lstm

    def call(x: Tensor) -> Any:
        made_with = lstm._flat_weights
        lstm._flat_weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
        found = lstm(x)
        lstm._flat_weights = made_with
        return found

    return call


class AwdLSTM(nn.Module):
    """Three layers of LSTM with weight drop, the same dropout at all steps, and a head tied to the embedding."""

    def __init__(self, classes: int, features: int = 48, hidden: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, features)
        self.layers = nn.ModuleList(
            nn.LSTM(inputs, outputs, batch_first=True)
            for inputs, outputs in ((features, hidden), (hidden, hidden), (hidden, features))
        )
        for lstm in self.layers:
            parametrize.register_parametrization(lstm, "weight_hh_l0", DropConnect())
        self.head = Head(features, classes)
        self.head.linear.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=features**-0.5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of predicting every next character."""
        y = self.embed(x)
        with parametrize.cached():  # one weight for a call
            for lstm in self.layers:
                y, _ = with_weights_of_now(lstm)(y)
                y = y * dropout(y.new_ones(len(y), 1, y.shape[2]), 0.1, training=self.training)
        loss: Tensor = self.head(y, target)
        return loss


class DeepSpeech(nn.Module):
    """A convolution over time, batch norm, two layers of LSTM in both directions on packed data, CTC."""

    def __init__(self, bands: int, symbols: int, hidden: int = 64) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv1d(bands, hidden, 5, padding=2), nn.BatchNorm1d(hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, bidirectional=True)
        self.symbols = nn.Linear(2 * hidden, symbols + 1)

    def forward(self, sound: Tensor, lengths: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        """The loss of hearing the symbols `target` [N, S] in sound [N, bands, T]."""
        x = self.norm(self.convolution(sound)).clamp(0, 20).permute(2, 0, 1)
        packed, _ = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        heard = self.symbols(pad_packed_sequence(packed)[0]).log_softmax(-1)
        return ctc_loss(heard, target, lengths, counts)


class Agent(nn.Module):
    """Values of actions by an LSTM that begins anew with every episode, learnt from recorded play as R2D2 does.

    The recordings are as long as the learner likes: episodes end and begin inside them.
    """

    def __init__(self, sights: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.see, self.rnn = nn.Linear(sights, hidden), nn.LSTM(hidden, hidden)
        self.state_value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, actions)

    def remember(self, x: Tensor, begins: Tensor) -> Tensor:
        """Torch's LSTM: a step at a time, with states of zeros where an episode begins."""
        state, outputs = (x.new_zeros(1, x.shape[1], x.shape[2]),) * 2, []
        for t in range(len(x)):
            keeps = (~begins[t])[None, :, None]
            output, state = self.rnn(x[t : t + 1], (state[0] * keeps, state[1] * keeps))
            outputs.append(output)
        return torch.cat(outputs)

    def forward(self, sight: Tensor, begins: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        """The error of the values [T, N] of what was done, by what was found one step later."""
        y = self.remember(self.see(sight).relu(), begins)
        advantage = self.advantage(y)
        values = self.state_value(y) + advantage - advantage.mean(-1, keepdim=True)
        later = values[1:].max(-1).values.detach() * ~begins[1:]
        done = values[:-1].gather(-1, action[:-1, :, None]).squeeze(-1)
        return smooth_l1_loss(done, reward[:-1] + 0.97 * later)


class WholeAgent(Agent):
    """The same with this package's LSTM: all steps in one call."""

    def remember(self, x: Tensor, begins: Tensor) -> Tensor:
        """Resets are an argument."""
        output: Tensor = self.rnn(x, reset=begins)[0]
        return output


def whole(agent: nn.Module) -> nn.Module:
    """The agent with this package's LSTM."""
    agent.__class__ = WholeAgent
    return aclgrad.nn.convert(agent)


def zoo(seed: int) -> list[Task]:
    """All four, each with what it learns from."""
    text, speech, maze = Text(seed), Speech(seed), Maze()
    letters = len(text.alphabet)
    return [
        Task("AWD-LSTM", partial(AwdLSTM, letters), converted, partial(text.batch, size=16, steps=64), rate=1e-2),
        Task("DeepSpeech", partial(DeepSpeech, speech.bands, speech.symbols), aclgrad.nn.convert, speech.batch, 5e-3),
        Task("R2D2", partial(Agent, maze.sights, maze.actions), whole, maze.batch),
        Task("transformer", partial(Transformer, letters), converted, partial(text.batch, size=8, steps=48)),
    ]
