"""Everything one run found, as plain data that goes to JSON and comes back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .bars import Judged
from .gate import Gate
from .timing import Timing

OURS = "aclgrad"


@dataclass(frozen=True)
class Regime:
    """Ours and the peers on one choice of inputs; the first peer is the one bars are about."""

    inputs: str  # in words
    ours: Timing
    peers: dict[str, Timing]
    bound: float | None  # seconds
    bound_by: str
    others: float  # share of the machine's time that other programs took meanwhile

    @property
    def peer(self) -> str | None:
        return next(iter(self.peers), None)

    @property
    def speedup(self) -> float | None:
        """The first peer's time over ours."""
        return None if self.peer is None else self.peers[self.peer].median / self.ours.median

    @property
    def share_of_bound(self) -> float | None:
        """The bound's time over ours."""
        return None if self.bound is None else self.bound / self.ours.median


@dataclass(frozen=True)
class Row:
    """One case in one dtype. A red gate leaves all but the gate empty.

    `cold` is there where `main` finds its inputs in the caches: the same with inputs that come from memory.
    `extra_bytes` is the most each contender held beside its outputs.
    """

    operator: str
    case: str
    dtype: str
    backend: str
    gate: Gate
    main: Regime | None = None
    cold: Regime | None = None
    extra_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.operator}/{self.case}/{self.dtype}"

    @property
    def others(self) -> float:
        return max((regime.others for regime in (self.main, self.cold) if regime), default=0.0)

    def quantities(self) -> dict[str, float]:
        """What a bar may be about."""
        if self.main is None or self.main.speedup is None:
            return {}
        found = {
            "speedup": self.main.speedup,
            "ratio": 1 / self.main.speedup,
            "lead": min(peer.median for peer in self.main.peers.values()) / self.main.ours.median,
            "extra_bytes": float(self.extra_bytes[OURS]),
        }
        found |= {f"times {name}": self.main.ours.median / peer.median for name, peer in self.main.peers.items()}
        share = self.main.share_of_bound
        return found if share is None else {**found, "share_of_bound": share}


@dataclass(frozen=True)
class Overhead:
    """One way of calling on a tiny tensor."""

    name: str
    timing: Timing
    others: float

    @property
    def key(self) -> str:
        return f"overhead/{self.name}"

    def quantities(self) -> dict[str, float]:
        """What a bar may be about."""
        return {"seconds": self.timing.median}


@dataclass(frozen=True)
class Alternation:
    """A kernel taking turns with torch.mm, beside a torch operator that does the same."""

    name: str
    ours: Timing
    peer_name: str
    peer: Timing
    others: float

    @property
    def key(self) -> str:
        return f"alternation/{self.name}"

    def quantities(self) -> dict[str, float]:
        """What a bar may be about."""
        return {"p99": self.ours.p99}


@dataclass(frozen=True)
class Point:
    """One size of a sweep; seconds."""

    elements: int
    ours: float
    peer: float
    bound: float


@dataclass(frozen=True)
class Sweep:
    """Time against size."""

    operator: str
    dtype: str
    peer_name: str
    points: list[Point]


@dataclass
class Report:
    """A run: the machine, and what was measured on it."""

    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    overhead: list[Overhead] = field(default_factory=list)
    alternation: list[Alternation] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    bars: list[Judged] = field(default_factory=list)

    @property
    def red(self) -> list[Row]:
        """Rows whose gate did not pass."""
        return [row for row in self.rows if not row.gate.passed]

    def quantities(self) -> dict[str, dict[str, float]]:
        """Everything bars may be about, by key."""
        return {item.key: item.quantities() for item in self._measured()}

    @property
    def disturbance(self) -> float:
        """The largest share of the machine's time that other programs took during a measurement."""
        return max((item.others for item in self._measured()), default=0.0)

    def _measured(self) -> list[Row | Overhead | Alternation]:
        return [*self.rows, *self.overhead, *self.alternation]

    def bars_of(self, key: str) -> list[Judged]:
        """The judged bars of one row."""
        return [judged for judged in self.bars if judged.key == key]

    def summary(self) -> str:
        """One line: gates and bars."""
        met = sum(judged.met is True for judged in self.bars)
        missed = sum(judged.met is False for judged in self.bars)
        unmeasured = sum(judged.met is None for judged in self.bars)
        gates = f"gates: {len(self.rows) - len(self.red)} green, {len(self.red)} red"
        return f"{gates} · bars: {met} met, {missed} missed, {unmeasured} not measured"

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_rounded(asdict(self)), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote."""
        raw = json.loads(path.read_text())
        return cls(
            machine=raw["machine"],
            rows=[_row(item) for item in raw["rows"]],
            overhead=[Overhead(**{**item, "timing": Timing(**item["timing"])}) for item in raw["overhead"]],
            alternation=[
                Alternation(**{**item, "ours": Timing(**item["ours"]), "peer": Timing(**item["peer"])})
                for item in raw["alternation"]
            ],
            sweeps=[Sweep(**{**item, "points": [Point(**p) for p in item["points"]]}) for item in raw["sweeps"]],
            bars=[Judged(**item) for item in raw["bars"]],
        )


def _row(raw: dict[str, Any]) -> Row:
    regimes = {name: _regime(raw[name]) for name in ("main", "cold")}
    return Row(**{**raw, **regimes, "gate": Gate(**raw["gate"])})


def _regime(raw: dict[str, Any] | None) -> Regime | None:
    if raw is None:
        return None
    peers = {name: Timing(**timing) for name, timing in raw["peers"].items()}
    return Regime(**{**raw, "ours": Timing(**raw["ours"]), "peers": peers})


def _rounded(value: Any) -> Any:
    """Four digits are more than the noise allows, and files stay readable."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
