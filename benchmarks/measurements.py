"""Measurements with their goals: one row for each measure, as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

# One argument of 109 bytes as JSON.
ARGUMENT: Final = {
    "id": 100_000,
    "kind": "send_mail",
    "to": "someone@example.com",
    "ref": "0123456789abcdef0123456789abcde",
    "pages": 1,
}


@dataclass(frozen=True)
class Goal:
    """What should be reached, and whether it was."""

    text: str
    is_met: bool


@dataclass(frozen=True)
class Measurement:
    """One measure. `rounds` are the single results that `ours` is the median of, `beside_rounds` those of
    what it is compared with: where they differ much among themselves, the ratio says little."""

    measure: str
    ours: float
    unit: str
    against: str = ""
    ratio: float | None = None
    goals: tuple[Goal, ...] = ()
    rounds: tuple[float, ...] = ()
    against_rounds: tuple[float, ...] = ()


def at_least(value: float, goal: float, unit: str) -> Goal:
    return Goal(f"{goal:,.10g}{unit}", value >= goal)


def at_most(value: float, goal: float, unit: str) -> Goal:
    return Goal(f"{goal:,.10g}{unit}", value <= goal)


def compared(
    measure: str, pairs: Sequence[tuple[float, float]], *, of_raw: float | None = None, each_second: float = 0
) -> Measurement:
    """A speed compared with that of SQLite alone, in pairs of one round each; the median of the ratios."""
    ours = median(pair[0] for pair in pairs)
    raw = median(pair[1] for pair in pairs)
    ratio = median(pair[0] / pair[1] for pair in pairs)
    goals = [at_least(ratio, of_raw, " of raw")] if of_raw else []
    goals += [at_least(ours, each_second, "/s")] if each_second else []
    return Measurement(
        measure=measure,
        ours=ours,
        unit="/s",
        against=f"{raw:,.0f}/s raw",
        ratio=ratio,
        goals=tuple(goals),
        rounds=tuple(pair[0] for pair in pairs),
        against_rounds=tuple(pair[1] for pair in pairs),
    )


def machine() -> str:
    load = ", ".join(f"{one:.2f}" for one in os.getloadavg())
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    return f"{os.cpu_count()} cores, load {load}, Python {python}, SQLite {sqlite}"


def show(title: str, measurements: Sequence[Measurement]) -> None:
    print(f"\n{title} ({machine()})")
    print(f"{'measure':<44} {'ours':>12}  {'beside':<22} {'ratio':>5}  goals")
    for one in measurements:
        ours = f"{one.ours:,.0f}{one.unit}" if one.ours >= 1_000 else f"{one.ours:.3g}{one.unit}"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        goals = ", ".join(f"{goal.text} {'met' if goal.is_met else 'MISSED'}" for goal in one.goals)
        print(f"{one.measure:<44} {ours:>12}  {one.against:<22} {ratio:>5}  {goals}".rstrip())


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--rounds", type=int, default=5, help="how often each pair is measured (5)")
    made.add_argument("--quick", action="store_true", help="small sizes and 2 rounds, for a look in a minute")
    made.add_argument("--json", type=Path, help="also write the measurements to this file")
    return made


def write(file: Path | None, before: str, measurements: Sequence[Measurement]) -> None:
    if file is not None:
        found = {"before": before, "after": machine(), "measurements": [asdict(one) for one in measurements]}
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
