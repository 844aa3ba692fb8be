"""What should be reached: ratios to a peer and to the engine alone, measured in one run, and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

# measure -> system -> what each round gave
Found = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """At least `least` times what `beside` reaches in the same measure (or in `beside_measure`), or at most
    `most`."""

    measure: str
    ours: str = "forebay"
    against: str = ""
    against_measure: str = ""
    least: float = 0.0
    most: float = 0.0
    unit: str = ""

    @property
    def text(self) -> str:
        if self.most:
            return f"{self.most:g} {self.unit}"
        return f"{self.least:g} x {self.against_measure or self.against}"

    def reached(self, found: Found) -> float | None:
        """None where one of the two was not measured."""
        ours = found.get(self.measure, {}).get(self.ours, ())
        if self.most:
            return median(ours) if ours else None
        other = found.get(self.against_measure or self.measure, {}).get(self.against, ())
        return ratio(ours, other)

    def is_met(self, value: float) -> bool:
        return value <= self.most if self.most else value >= self.least


def ratio(ours: Sequence[float], other: Sequence[float]) -> float | None:
    """The median of the ratios of single rounds; of medians where they were not measured in turns."""
    if not ours or not other:
        return None
    if len(ours) == len(other):
        return median(mine / theirs for mine, theirs in zip(ours, other, strict=True))
    return median(ours) / median(other)


def _process() -> list[Goal]:
    return [
        Goal(measure="memory of an idle process", most=35, unit="MB"),
        Goal(measure="cold start", most=0.25, unit="s"),
    ]


def _pick_up(p50: float, p99: float) -> list[Goal]:
    return [
        Goal(measure="pick-up p50", most=p50, unit="ms"),
        Goal(measure="pick-up p99", most=p99, unit="ms"),
    ]


def _against(measure: str, peer: str, times: float, raw: float) -> list[Goal]:
    return [Goal(measure=measure, against=peer, least=times), Goal(measure=measure, against="raw", least=raw)]


GOALS: Final[Mapping[str, Sequence[Goal]]] = {
    "sqlite": [
        Goal(measure="drain", against="huey", least=12),
        Goal(measure="drain", against="raw normal", least=0.15),
        Goal(measure="drain", ours="forebay full", against="huey", least=8),
        Goal(measure="enqueue one by one", against="raw", least=0.85),
        Goal(measure="enqueue one by one", ours="forebay relaxed", against="litequeue", least=1.2),
        Goal(measure="enqueue one by one", ours="forebay relaxed", against="raw normal", least=0.5),
        Goal(measure="enqueue 1,000 a call", against="raw", least=0.4),
        *_pick_up(1.2, 5),
        *_process(),
    ],
    "postgres": [
        *_against("drain", "pgqueuer", 2, 0.5),
        *_against("enqueue one by one", "pgqueuer", 1.2, 0.85),
        *_against("enqueue 1,000 a call", "pgqueuer", 2.2, 0.5),
        *_pick_up(2.2, 6.5),
        Goal(measure="drain, 1,000,000 waiting", against="forebay", against_measure="drain", least=0.9),
        *_process(),
    ],
    "redis": [
        *_against("drain", "dramatiq", 8, 0.35),
        *_against("enqueue one by one", "huey", 1.05, 0.85),
        *_against("enqueue 1,000 a call", "streaq", 7, 0.4),
        *_pick_up(1.2, 2.4),
        *_process(),
    ],
}
