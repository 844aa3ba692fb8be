"""Thousands of lives of a small system on a simulated clock: `make simulate`.

Each run is a world of its own, made from one number: some workers with their coordinators, renewals and
duties, producers, operators and schedules on one memory store, and faults at every call to it; workers are
killed, frozen and stopped, clocks jump, the store goes away. When everything has ended the history is held
against the promises. A run that breaks one is played again exactly by its number.

    python -m evidence.simulate                  1,000 runs from a number by chance
    python -m evidence.simulate --runs 100000    as many as you like; 0 goes on until you stop it
    python -m evidence.simulate --seed 4711 --runs 1
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from evidence.faults import FAULTS
from evidence.world import World
from forebay.domain.lifecycle import TRANSITIONS

BATCH: Final = 20
# The order of sets of words would be another one in each process, and a number not say all.
HASHED: Final = {"PYTHONHASHSEED": "0"}
STORE_CALLS: Final = (
    "insert", "exchange", "renew", "sweep", "promote", "rescore", "prune", "fire", "due_schedules",
    "take_duty", "beat", "cancel", "revive", "delete", "save_queue", "drop_queue",
)  # fmt: skip


class Played(NamedTuple):
    """One run."""

    seed: int
    problems: list[str]
    calls: int
    faults: int


@dataclass
class Found:
    """What all runs have seen."""

    runs: int = 0
    calls: int = 0
    faults: int = 0
    broken: list[tuple[int, list[str]]] = field(default_factory=list)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    points: Counter[tuple[str, str]] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)

    def add(self, world: World, problems: list[str]) -> None:
        self.runs += 1
        self.calls += world.faults.calls
        self.faults += world.faults_seen()
        if problems:
            self.broken.append((world.seed, problems))
        self.moves.update({(str(old), str(new)): times for (old, new), times in world.moves.items()})
        self.points.update(
            {(name, str(fault)): times for (name, fault), times in world.faults.counts.items()}
        )
        self.strikes.update(world.strikes)

    def merge(self, other: Found) -> None:
        self.runs += other.runs
        self.calls += other.calls
        self.faults += other.faults
        self.broken += other.broken
        self.moves += other.moves
        self.points += other.points
        self.strikes += other.strikes

    def missing_moves(self) -> list[str]:
        """Moves that the table of states allows and nobody has made."""
        legal = {(str(old), str(new)) for old, news in TRANSITIONS.items() for new in news}
        return [f"{old} to {new}" for old, new in sorted(legal - set(self.moves))]

    def missing_points(self) -> list[str]:
        """Calls that have not gone wrong in every way that they can."""
        by_hand = {
            "insert",
            "cancel",
            "revive",
            "delete",
            "save_queue",
            "drop_queue",
        }  # by programs that nobody kills here
        wanted = {
            (name, str(fault))
            for name in STORE_CALLS
            for fault in FAULTS
            if name not in by_hand or "killed" not in fault
        }
        return [f"{name}: {fault}" for name, fault in sorted(wanted - set(self.points))]


def play(seeds: range) -> Found:
    """Play some runs, in whatever process."""
    found = Found()
    for seed in seeds:
        world = World(seed)
        found.add(world, world.play())
    return found


def play_all(first: int, runs: int, processes: int) -> Found:
    """Play them in several processes, and show how far they are."""
    found, began = Found(), time.monotonic()
    starts = count(first, BATCH) if not runs else range(first, first + runs, BATCH)
    ranges = (range(at, at + BATCH if not runs else min(at + BATCH, first + runs)) for at in starts)
    # What outages and lost leases leave in the log is what this is about.
    quiet = partial(logging.disable, logging.CRITICAL)
    with ProcessPoolExecutor(processes, initializer=quiet) as pool:
        try:
            waiting = [pool.submit(play, one) for _, one in zip(range(2 * processes), ranges, strict=False)]
            while waiting:
                found.merge(waiting.pop(0).result())
                waiting += [pool.submit(play, one) for _, one in zip(range(1), ranges, strict=False)]
                _progress(found, runs, began)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    return found


def _progress(found: Found, runs: int, began: float) -> None:
    if sys.stderr.isatty():
        pace = found.runs / (time.monotonic() - began) * 60
        of = f" of {runs:,}" if runs else ""
        print(
            f"\r{found.runs:,}{of} runs, {pace:,.0f} a minute, {len(found.broken)} broken ",
            end="",
            file=sys.stderr,
        )


def show(found: Found) -> None:
    print(
        f"\n{found.runs:,} runs, {found.calls / max(found.runs, 1):,.0f} store calls and"
        f" {found.faults / max(found.runs, 1):.1f} faults in each; {len(found.broken)} broke a promise"
    )
    for seed, problems in found.broken[:20]:
        print(f"  seed {seed}: {problems[0]}" + (f" and {len(problems) - 1} more" if problems[1:] else ""))
    print("\nmoves between states     " + _all_or(found.missing_moves()))
    print("faults at store calls    " + _all_or(found.missing_points()))
    print("what struck workers      " + ", ".join(f"{name} {n:,}" for name, n in found.strikes.most_common()))


def _all_or(missing: list[str]) -> str:
    return "all seen" if not missing else f"not seen: {', '.join(missing)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m evidence.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=1_000, help="how many; 0 for no end (1,000)")
    parser.add_argument("--seed", type=int, help="the number of the first run (by chance)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at once (one for each core)"
    )
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
    chosen = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASHED["PYTHONHASHSEED"]:
        words = [sys.executable, "-m", "evidence.simulate", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, **HASHED})  # noqa: S606 - the same program again
    first = SystemRandom().randrange(10**9) if chosen.seed is None else chosen.seed
    print(f"from seed {first}")
    found = play_all(first, chosen.runs, chosen.processes)
    show(found)
    if chosen.json:
        figures = {
            "runs": found.runs,
            "calls": found.calls,
            "faults": found.faults,
            "broken": dict(found.broken),
            "missing moves": found.missing_moves(),
            "missing faults": found.missing_points(),
        }
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
