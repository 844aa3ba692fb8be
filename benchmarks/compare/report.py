"""The table and the JSON of one comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.compare.goals import GOALS, Found, Goal, ratio
from benchmarks.compare.rows import Measure
from benchmarks.compare.systems import OURS, PEER, RAW, System


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def spread(rounds: Sequence[float]) -> str:
    """The median, and between what the rounds lay."""
    if not rounds:
        return "-"
    if len(rounds) == 1:
        return number(rounds[0])
    return f"{number(median(rounds))} ({number(min(rounds))} .. {number(max(rounds))})"


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def times(measure: Measure, ours: Sequence[float], other: Sequence[float]) -> str:
    """How many times better ours is: faster, or smaller."""
    found = ratio(ours, other) if measure.is_speed else ratio(other, ours)
    return "-" if found is None else f"{found:.2f}"


class Report:
    def __init__(self, engine: str, systems: Sequence[System], measures: Sequence[Measure], found: Found):
        self._goals = GOALS[engine]
        self._systems = systems
        self._measures = [measure for measure in measures if found.get(measure.name)]
        self._found = found

    def lines(self) -> Iterator[str]:
        if bases := [system for system in self._systems if system.commit]:
            yield from table(("measure", "forebay", bases[0].commit, "times"), self._against_base(bases))
            return
        header = ("measure", "forebay", "best peer", "times", "raw", "times", "goals")
        yield from table(header, self._against())
        yield ""
        yield from table(("measure", *(system.name for system in self._systems)), self._all_systems())

    def _of(self, measure: Measure, name: str) -> Sequence[float]:
        return self._found.get(measure.name, {}).get(name, ())

    def _names(self, kind: str) -> list[str]:
        return [system.name for system in self._systems if system.kind == kind]

    def _against(self) -> Iterator[Sequence[str]]:
        for measure in self._measures:
            for name in self._names(OURS):
                ours = self._of(measure, name)
                if ours:
                    yield self._line(measure, name, ours)

    def _against_base(self, bases: Sequence[System]) -> Iterator[Sequence[str]]:
        for measure in self._measures:
            for base in bases:
                name = base.name.removesuffix(f" {base.commit}")
                ours, before = self._of(measure, name), self._of(measure, base.name)
                if ours and before:
                    kind = name.removeprefix("forebay").strip()
                    title = ", ".join(filter(None, (measure.name, kind, measure.unit)))
                    yield title, spread(ours), spread(before), times(measure, ours, before)

    def _line(self, measure: Measure, name: str, ours: Sequence[float]) -> Sequence[str]:
        best, raw = self._best(measure, name), self._raw(measure, name)
        peer = self._of(measure, best)
        kind = name.removeprefix("forebay").strip(" ,")
        return (
            ", ".join(filter(None, (measure.name, kind, measure.unit))),
            spread(ours),
            f"{best} {number(median(peer))}" if peer else "-",
            times(measure, ours, peer),
            number(median(self._of(measure, raw))) if raw else "-",
            times(measure, ours, self._of(measure, raw)),
            "; ".join(self._judged(goal) for goal in self._of_goals(measure, name)),
        )

    def _best(self, measure: Measure, ours: str) -> str:
        synced = {system.name: system.is_synced for system in self._systems}
        alike = [name for name in self._names(PEER) if not measure.is_synced or synced[name] == synced[ours]]
        found = [(median(self._of(measure, name)), name) for name in alike if self._of(measure, name)]
        return ((max if measure.is_speed else min)(found)[1]) if found else ""

    def _raw(self, measure: Measure, name: str) -> str:
        """The one that the goal names, else one whose syncs are like ours."""
        named = [goal.against for goal in self._of_goals(measure, name) if goal.against in self._names(RAW)]
        synced = {system.name: system.is_synced for system in self._systems}
        others = sorted(self._names(RAW), key=lambda raw: synced[raw] != synced[name])
        return next((raw for raw in (*named, *others) if self._of(measure, raw)), "")

    def _of_goals(self, measure: Measure, name: str) -> list[Goal]:
        return [goal for goal in self._goals if (goal.measure, goal.ours) == (measure.name, name)]

    def _judged(self, goal: Goal) -> str:
        value = goal.reached(self._found)
        if value is None:
            return f"{goal.text} not measured"
        result = "met" if goal.is_met(value) else "**MISSED**"
        return f"{goal.text} {result}" + ("" if goal.most else f" ({value:.2f})")

    def _all_systems(self) -> Iterator[Sequence[str]]:
        for measure in self._measures:
            cells = [spread(self._of(measure, system.name)) for system in self._systems]
            yield (f"{measure.name}, {measure.unit}", *cells)

    def judged(self) -> list[dict[str, Any]]:
        return [self._as_json(goal, goal.reached(self._found)) for goal in self._goals]

    @staticmethod
    def _as_json(goal: Goal, value: float | None) -> dict[str, Any]:
        met = None if value is None else goal.is_met(value)
        return {"measure": goal.measure, "ours": goal.ours, "goal": goal.text, "value": value, "is_met": met}


def failures(failed: Mapping[str, str]) -> Iterator[str]:
    """Who could not do what, and why: what has one reason in one line."""
    for why in dict.fromkeys(failed.values()):
        yield f"- {'; '.join(who for who, reason in failed.items() if reason == why)}: {why[-300:]}"
