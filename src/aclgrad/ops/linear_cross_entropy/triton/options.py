"""Options of the loss as the kernels take them; what is off is None there, and compiles to nothing."""

from __future__ import annotations

from typing import NamedTuple

import torch

from aclgrad.core.spec import F32, Call

TWO_LOG2E = 2.8853900817779268
"""tanh y = 1 − 2 / (1 + 2^(2·log2(e)·y)), which is close enough for half types."""


class LogitOptions(NamedTuple):
    """Options of `spec_training.py`; the document's operators have none."""

    bias: bool = False
    classes: bool = False
    smoothing: float = 0.0
    cap: float = 0.0
    scale: float = 1.0
    z_loss: float = 0.0
    statistics: bool = False  # what a user may ask for beside the loss

    @staticmethod
    def of(call: Call) -> LogitOptions:
        """Those of a call."""
        return LogitOptions(
            call["bias"] is not None, call["class_weight"] is not None, call["label_smoothing"], call["softcap"],
            call["logit_scale"], call["z_loss"], bool(call["wants_statistics"]),
        )  # fmt: skip

    @property
    def changes_logits(self) -> bool:
        """Whether a logit is more than a product."""
        return bool(self.bias or self.cap or self.scale != 1.0)

    @property
    def weighs_classes(self) -> bool:
        """Whether every column's class weight counts, not the own target's alone."""
        return bool(self.classes and self.smoothing)

    @property
    def tile_sums(self) -> tuple[str, ...]:
        """Sums that tiles find beside those of exponentials (`statistics/tiles.py`)."""
        return (*(["classed"] if self.smoothing else []), *(["mixed"] if self.statistics else []))

    def factor(self, dtype: torch.dtype) -> float | None:
        """What products and biases are multiplied by: the scale, or with a softcap what its tanh is computed of."""
        if not self.cap:
            return None if self.scale == 1.0 else self.scale
        return self.scale / self.cap * (1.0 if dtype == F32 else TWO_LOG2E)

    def logit_numbers(self, dtype: torch.dtype) -> dict[str, float | None]:
        """The numbers by which a kernel makes logits of products (`maths.logits_of`)."""
        return {"factor": self.factor(dtype), "cap": self.cap or None}

    def loss_numbers(self, vocabulary: int) -> dict[str, float | None]:
        """The numbers by which a kernel finds losses of tokens and their gradients (`tokens.slopes`)."""
        return {
            "smoothing": self.smoothing or None, "spread": self.smoothing / vocabulary or None,
            "z_loss": self.z_loss or None, "cap": self.cap or None,
            "logit_scale": None if self.scale == 1.0 else self.scale,
        }  # fmt: skip

    @property
    def changes_weights(self) -> bool:
        """Whether p has another factor than a token's own gradient."""
        return bool(self.classes or self.smoothing or self.z_loss or self.scale != 1.0)
