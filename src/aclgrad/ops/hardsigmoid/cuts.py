"""How calls may be cut; of the operators that write to an output of their own the contract says it."""

from __future__ import annotations

from ...core.cuts import anywhere

CUTS = {"hardsigmoid_": anywhere}
