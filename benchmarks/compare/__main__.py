"""Forebay, its peers and the engine alone, in turns, in one run: `make bench WHAT=compare ENGINE=redis`.

Every system gets the same jobs from a program of its own and runs them in worker processes that are started
as its users start them. The table says the median of the rounds and between what they lay, how many times
better Forebay is than the best peer and than the engine alone (below 1: worse), and which goals are met.
QUICK=1 takes small sizes, fewer rounds and the peers that lead in some row.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.compare.report import Report, failures
from benchmarks.compare.rows import FULL, QUICK, Row, Scale, rows, visit
from benchmarks.compare.servers import Server, server
from benchmarks.compare.systems import (
    PEER,
    PEERS,
    SYSTEMS,
    TOP,
    System,
    install,
    install_own,
    packages,
    with_base,
)
from benchmarks.compare.workers import Failed
from benchmarks.measurements import machine


class Comparison:
    """What was found, and what failed."""

    def __init__(self, made: Server, scale: Scale) -> None:
        self._server = made
        self._scale = scale
        self.found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failed: dict[str, str] = {}

    def ready(self, systems: Sequence[System]) -> list[System]:
        """Those that can be installed; the others are named with their error."""
        able = []
        for system in systems:
            try:
                if system.kind == PEER:
                    install(system.driver)
                able.append(system)
            except RuntimeError as error:
                self.failed[system.name] = str(error)
        return able

    def take(self, row: Row, systems: Sequence[System]) -> None:
        """A B C A B C ..."""
        for number in range(row.rounds(self._scale)):
            for system in systems:
                if row.has(system) and f"{system.name}, {row.name}" not in self.failed:
                    print(
                        f"\r{row.name}, round {number + 1}: {system.name:<20}",
                        end="",
                        file=sys.stderr,
                        flush=True,
                    )
                    self._take(row, system)
        print("\r" + " " * 60, end="\r", file=sys.stderr, flush=True)

    def _take(self, row: Row, system: System) -> None:
        try:
            with visit(system, self._server, self._scale) as one:
                values = row.take(one)
        except Failed as error:
            self.failed[f"{system.name}, {row.name}"] = str(error)
            return
        for measure, value in zip(row.measures, values, strict=True):
            self.found[measure.name][system.name].append(value)


def chosen_by_user() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=list(SYSTEMS), required=True)
    parser.add_argument("--quick", action="store_true", help="small sizes: a look in three minutes")
    parser.add_argument("--rounds", type=int, help="how often each is measured (5; quick 3)")
    parser.add_argument("--rows", default="", help="only these, separated by commas")
    parser.add_argument("--systems", default="", help="only these, separated by commas")
    parser.add_argument("--here", action="store_true", help="Forebay as it is here, not installed anew")
    parser.add_argument(
        "--base", default="", metavar="COMMIT", help="beside Forebay of this commit, no peers"
    )
    parser.add_argument("--out", type=Path, default=TOP / "build" / "compare", help="folder of the results")
    return parser.parse_args()


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    few = min(options.rounds or scale.few_rounds, scale.few_rounds)
    return replace(scale, rounds=options.rounds or scale.rounds, few_rounds=few)


def some(names: str, known: Sequence[Any]) -> list[Any]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = set(wanted) - {one.name for one in known}
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}")
    return [one for one in known if not wanted or one.name in wanted]


def main() -> None:
    # Workers are in sessions of their own and would outlive a benchmark that is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = chosen_by_user()
    scale, engine = scale_of(options), options.engine
    is_brief = options.quick and not options.systems
    systems = [one for one in some(options.systems, SYSTEMS[engine]) if one.is_quick or not is_brief]
    if options.here:
        systems = [replace(one, is_here=one.kind != PEER) for one in systems]
    else:
        install_own()
    if options.base:
        systems = with_base(systems, options.base)
    before, began = machine(), time.monotonic()
    with server(engine) as made:
        comparison = Comparison(made, scale)
        able = comparison.ready(systems)
        began = time.monotonic()  # installing is done once
        for row in some(options.rows, rows(scale)):
            comparison.take(row, able)
    seconds = time.monotonic() - began
    write(options, scale, systems, comparison, f"{before}; {made.version}; {seconds:.0f} s")


def write(
    options: argparse.Namespace, scale: Scale, systems: Sequence[System], comparison: Comparison, about: str
) -> None:
    report = Report(
        options.engine, systems, [m for row in rows(scale) for m in row.measures], comparison.found
    )
    lines = [
        f"{options.engine}, {scale.rounds} rounds{', quick' if options.quick else ''}: {about}",
        f"Afterwards: {machine()}",
        "",
        *report.lines(),
        *(["", "Failed:", "", *failures(comparison.failed)] if comparison.failed else []),
    ]
    print("\n".join(lines))
    result = {
        "engine": options.engine,
        "is_quick": options.quick,
        "rounds": scale.rounds,
        "about": about,
        "after": machine(),
        "packages": {one.name: packages(one.driver) for one in systems if one.kind == PEER},
        "commands": {one.name: f"{one.workers} x {' '.join(_relative(one))}" for one in systems},
        "measures": comparison.found,
        "goals": report.judged(),
        "failed": comparison.failed,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.engine + ("-quick" if options.quick else "")
    (options.out / f"{stem}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.out / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\n{options.out / stem}.json", file=sys.stderr)


def _relative(system: System) -> list[str]:
    return [word.replace(f"{PEERS}/", "").replace(f"{system.bin}/", "") for word in system.words(0)]


if __name__ == "__main__":
    main()
