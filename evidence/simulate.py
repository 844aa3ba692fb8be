"""Thousands of lives of a small system on a simulated clock: `make evidence WHAT=simulate`.

Each run is a world of its own, made from one number: some workers with their coordinators, renewals and
maintenance tasks, producers, operators and schedules on one memory store, and faults at every call to it;
workers are killed, frozen and stopped, clocks jump, also the store's, and it goes away. When everything has
ended the history is held against the promises. A run that breaks one is played again exactly by its number.
From 2,000 runs on it is an error too if a move between states or a fault at a call was never seen.

    python -m evidence.simulate                  1,000 runs from a number by chance
    python -m evidence.simulate --runs 100000    as many as you like; 0 goes on until you stop it
    python -m evidence.simulate --seed 4711 --runs 1
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import Final

from evidence.faults import FAULTS
from evidence.world import World
from forebay.domain.job_states import TRANSITIONS

BATCH: Final = 20
WHOLE_FROM: Final = 2_000  # so many runs have to show every move and every fault
REPORT_EVERY_SECONDS: Final = 60.0
LEGAL: Final = frozenset((str(old), str(new)) for old, followers in TRANSITIONS.items() for new in followers)
# The order of sets of words would be another one in each process, and a number not say all.
HASHED: Final = {"PYTHONHASHSEED": "0"}
STORE_CALLS: Final = (
    "insert", "settle_and_claim", "renew", "sweep", "promote", "rescore", "prune", "fire_schedules",
    "due_schedules", "acquire_maintenance", "read_clock", "heartbeat", "remove_worker", "cancel", "revive",
    "delete", "update_job", "save_queue", "drop_queue",
)  # fmt: skip
# Of what writes, what no actor does here: the crash matrix has all of it.
LEFT_OUT: Final = frozenset({
    "lease_status", "record_events", "send_command", "take_commands", "answer_command", "save_limit",
    "drop_limit", "save_schedule", "drop_schedule", "save_document", "drop_document", "import_jobs",
    "migrate", "close",
    # Metrics are written and met by faults here too, but no promise hangs on them.
    "record_metrics", "prune_metrics", "snapshot_queues", "metrics", "last_metrics",
    # Nor on the chain of the audit log, which goes on with the next call.
    "chain_audit",
})  # fmt: skip
# Called by programs that are not killed here.
BY_HAND: Final = frozenset({"insert", "cancel", "revive", "delete", "update_job", "save_queue", "drop_queue"})


@dataclass
class Found:
    """What all runs have seen."""

    runs: int = 0
    calls: int = 0
    faults: int = 0
    fewest_calls: int = sys.maxsize
    fewest_faults: int = sys.maxsize
    broken: list[tuple[int, list[str]]] = field(default_factory=list)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    points: Counter[tuple[str, str]] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)

    def add(self, world: World, problems: list[str]) -> None:
        self.runs += 1
        self.calls += world.faults.calls
        self.faults += world.faults_seen()
        self.fewest_calls = min(self.fewest_calls, world.faults.calls)
        self.fewest_faults = min(self.fewest_faults, world.faults_seen())
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
        self.fewest_calls = min(self.fewest_calls, other.fewest_calls)
        self.fewest_faults = min(self.fewest_faults, other.fewest_faults)
        self.broken += other.broken
        self.moves += other.moves
        self.points += other.points
        self.strikes += other.strikes

    @property
    def is_good(self) -> bool:
        """No run broke a promise, and if there were enough of them everything was seen."""
        is_whole = not (self.missing_moves() or self.missing_points())
        return not self.broken and (is_whole or self.runs < WHOLE_FROM)

    def missing_moves(self) -> list[str]:
        """Moves that the table of states allows and no run has made."""
        return [f"{old} to {new}" for old, new in sorted(LEGAL - set(self.moves))]

    def missing_points(self) -> list[str]:
        """Calls that have not gone wrong in every way that they can."""
        wanted = {
            (name, str(fault))
            for name in STORE_CALLS
            for fault in FAULTS
            if name not in BY_HAND or "killed" not in fault
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
    reported_at = began
    starts = count(first, BATCH) if not runs else range(first, first + runs, BATCH)
    ranges = (range(at, at + BATCH if not runs else min(at + BATCH, first + runs)) for at in starts)
    with ProcessPoolExecutor(processes, initializer=_prepare) as pool:
        try:
            waiting = [pool.submit(play, one) for _, one in zip(range(2 * processes), ranges, strict=False)]
            while waiting:
                found.merge(waiting.pop(0).result())
                waiting += [pool.submit(play, one) for _, one in zip(range(1), ranges, strict=False)]
                reported_at = _progress(found, runs, reported_at, began)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    return found


def _prepare() -> None:
    # What outages and lost leases leave in the log is what this is about.
    logging.disable(logging.CRITICAL)
    # A world is small and soon gone: looking for rubbish rarely saves a tenth of the time.
    gc.set_threshold(200_000)


def _progress(found: Found, runs: int, reported_at: float, began: float) -> float:
    """Say how far it is: all the time to a person, once a minute to a file. Answers when it was last said."""
    now = time.monotonic()
    if not sys.stderr.isatty() and now - reported_at < REPORT_EVERY_SECONDS:
        return reported_at
    of = f" of {runs:,}" if runs else ""
    words = f"{found.runs:,}{of} runs, {found.runs / (now - began) * 60:,.0f} a minute"
    start, end = ("\r", " ") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{words}, {len(found.broken)} broken", end=end, file=sys.stderr, flush=True)
    return now


def show(found: Found) -> None:
    calls, faults = found.calls / max(found.runs, 1), found.faults / max(found.runs, 1)
    print(f"\n{found.runs:,} runs; {len(found.broken)} broke a promise")
    print(f"in each {calls:,.0f} store calls, at least {found.fewest_calls:,}")
    print(f"    and {faults:,.1f} faults, at least {found.fewest_faults}")
    for seed, problems in found.broken[:20]:
        print(f"  seed {seed}: {problems[0]}" + (f" and {len(problems) - 1} more" if problems[1:] else ""))
    print("\nmoves between states: " + _all_or(found.missing_moves()))
    for old, new in sorted(LEGAL):
        print(f"  {old + ' to ' + new:26}{found.moves[old, new]:>12,}")
    print("\nfaults at store calls: " + _all_or(found.missing_points()))
    print(f"  {'':20}" + "".join(f"{fault:>16}" for fault in FAULTS))
    for name in STORE_CALLS:
        print(f"  {name:20}" + "".join(f"{found.points[name, str(fault)]:>16,}" for fault in FAULTS))
    print("\nwhat struck workers: " + ", ".join(f"{name} {n:,}" for name, n in found.strikes.most_common()))


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
        stats = {
            "first seed": first,
            "runs": found.runs,
            "calls": found.calls,
            "faults and strikes": found.faults,
            "fewest calls": found.fewest_calls,
            "fewest faults": found.fewest_faults,
            "broken": dict(found.broken),
            "moves": {f"{old} to {new}": found.moves[old, new] for old, new in sorted(LEGAL)},
            "faults at calls": {
                name: {fault: found.points[name, str(fault)] for fault in FAULTS} for name in STORE_CALLS
            },
            "strikes": dict(sorted(found.strikes.items())),
            "missing moves": found.missing_moves(),
            "missing faults": found.missing_points(),
        }
        chosen.json.write_text(json.dumps(stats, indent=2) + "\n", encoding="utf-8")
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
