"""The crash matrix: a process is killed at every point of every store operation of every engine.

    python -m evidence.matrix                                all of it: some minutes
    python -m evidence.matrix --engine redis --operation fire  what has this in its name
    python -m evidence.matrix --quick                        each operation once on each engine
    python -m evidence.matrix --json FILE                    the findings, for programs

A process of its own does one thing and is killed by SIGKILL: before each word that it says to the driver (on
Redis also when a command is sent and not answered), and at last when all is done and only its answer was not
heard. On the memory store, which dies with its process, the call is not made, or its answer is not heard.

After each kill another process opens the store at once. What it shows has to be what it showed before, or
what it shows after the whole operation, and nothing between. Then the operation is done again, as by a caller
who has had no answer: the store shows what it does after one operation, or after two, and a repeated insert
with a key has made no second job. Then leases end, maintenance tasks are done, a worker runs what is there,
and the history checker and the store's own look at itself have to find nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from evidence import matrix_jobs, matrix_operators
from evidence.matrix_checks import Stage, broken, differences, goes_on, shown
from evidence.matrix_places import Act, Place, Process, placed
from evidence.matrix_rows import ALL, Row, Scene, check_rows, job

ROWS: Final = (*matrix_jobs.ROWS, *matrix_operators.ROWS)
MIGRATE: Final = "migrate"
NOTHING: Final = "nothing"
HALFWAY: Final = "halfway"
WHOLE: Final = "whole"
NEITHER: Final = "neither"
Shown = dict[str, Any]
# Where a quick run kills: early, in the middle, late, and after all is done.
QUICK: Final = (3, 6, 9, 10_000)


@dataclass(kw_only=True)
class Played:
    """What came of the kills of one operation on one engine: after how many of them nothing had happened,
    after how many all of it, and what was wrong."""

    operation: str
    engine: str
    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(self.ends.values())


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a store shows before the operation, after it, and after it was done twice; of the few that have
    two halves, also after the first."""

    before: Shown
    once: Shown
    twice: Shown
    halfway: Shown | None = None

    def end(self, seen: Shown) -> tuple[str, Shown, list[str]]:
        """How far it has come, what the store shows when it is done again, and where what it shows now is
        nothing of all this. An operation that leaves no trace counts as one of which nothing has happened."""
        ends = {NOTHING: (self.before, self.once), WHOLE: (self.once, self.twice)}
        if self.halfway is not None:
            ends[HALFWAY] = self.halfway, self.once
        for name, (now, then) in ends.items():
            if seen == now:
                return name, then, []
        nearest = min((list(differences(seen, now)) for now, _ in ends.values()), key=len)
        return NEITHER, self.twice, nearest


def play(row: Row, engine: str, deadly: Iterable[int]) -> Played:
    """Kill a process at these points of one operation, or until it has no more of them."""
    played = Played(operation=row.name, engine=engine)
    reference = _reference(row, engine)
    if row.repeatable and len(reference.twice["lives"]) > len(reference.once["lives"]):
        played.problems.append("done twice it makes another job")
    for number in deadly:
        where = _strike(row, engine, number, reference, played)
        if where is None:
            break
    return played


def _reference(row: Row, engine: str) -> Reference:
    before, once, twice = _played_in_peace(row, row.scene, engine)
    halfway = None if row.halfway is None else _played_in_peace(row, row.halfway, engine)[1]
    return Reference(before=before, once=once, twice=twice, halfway=halfway)


def _played_in_peace(row: Row, scene: Scene, engine: str) -> list[Shown]:
    """What the store shows before, and after the operation was done once and twice by a process that
    lives."""
    with placed(engine) as place:
        stage = Stage(place)
        with stage.open():
            act = scene(stage)
            seen = [_shown(stage, row)]
            for _ in range(2):
                _done(act, place)
                seen.append(_shown(stage, row))
    return seen


def _done(act: Act, place: Place) -> None:
    with closing(Process(place, place.ours())) as process:
        act(process)


def _shown(stage: Stage, row: Row) -> Shown:
    if row.continues:
        stage.store.promote()
    return shown(stage)


def _strike(row: Row, engine: str, deadly: int, reference: Reference, played: Played) -> int | None:
    """Kill one process at one point, look, and let the others go on."""
    with placed(engine) as place:
        stage = Stage(place)
        with stage.open():
            act = row.scene(stage)
        where = place.struck(act, deadly)
        with stage.open():
            found = list(stage.reader.health().problems)
            end, then, wrong = reference.end(_shown(stage, row))
            _done(act, place)
            again = [f"done again: {each}" for each in differences(_shown(stage, row), then)]
            goes_on(stage)
            found += [*wrong, *(again if not wrong else ()), *broken(stage)]
    played.ends[end] += 1
    played.problems += [f"killed at point {where or 'after'}: {each}" for each in found]
    return where


def play_migration(engine: str, deadly: Iterable[int]) -> Played:
    """The same while the tables are made: the next process goes on and can use the store."""
    played = Played(operation=MIGRATE, engine=engine)
    for number in deadly:
        with placed(engine, is_new=True) as place:
            where = place.struck(lambda process: process.store.migrate(), number, is_new=True)
            stage = Stage(place)
            with stage.open():
                stage.store.migrate()
                stage.put(job(), job())
                stage.completed(*stage.run(2))
                found = stage.reader.health().problems
        played.ends[WHOLE if where is None else NOTHING] += 1
        played.problems += [f"killed at point {where or 'after'}: {each}" for each in found]
        if where is None:
            break
    return played


def play_all(engines: Sequence[str], only: str, *, is_quick: bool) -> list[Played]:
    check_rows(ROWS)
    results = []
    for engine in engines:
        for place, row in enumerate(ROWS):
            if only in row.name and engine in row.engines:
                results.append(_report(play(row, engine, _points(place, is_quick=is_quick))))
        if only in MIGRATE:
            results.append(_report(play_migration(engine, _points(0, is_quick=is_quick))))
    return results


def _points(place: int, *, is_quick: bool) -> Iterable[int]:
    return [QUICK[place % len(QUICK)]] if is_quick else count(1)


def _report(played: Played) -> Played:
    if sys.stderr.isatty():
        print(f"\r\033[K{played.engine}, {played.operation}", end="", file=sys.stderr, flush=True)
    for problem in played.problems:
        print(f"{played.engine}, {played.operation}: {problem}", file=sys.stderr, flush=True)
    return played


def as_table(results: Sequence[Played]) -> str:
    """A row for each operation, a column for each engine: kills, and what had happened by then."""
    engines = [engine for engine in ALL if any(each.engine == engine for each in results)]
    cells = {(each.operation, each.engine): _cell(each) for each in results}
    lines = [f"| operation | {' | '.join(engines)} |", f"|---|{'---|' * len(engines)}"]
    for operation in dict.fromkeys(each.operation for each in results):
        row_cells = (cells.get((operation, engine), "") for engine in engines)
        lines.append(f"| {operation} | {' | '.join(row_cells)} |")
    kills, wrong = sum(each.kills for each in results), sum(bool(each.problems) for each in results)
    return "\n".join([*lines, "", f"{len(results)} rows, {kills:,} kills, {wrong} rows with a problem"])


def _cell(played: Played) -> str:
    if played.problems:
        return f"{played.kills}: PROBLEM"
    ends = [played.ends[end] for end in (NOTHING, HALFWAY, WHOLE) if end != HALFWAY or played.ends[end]]
    return f"{played.kills}: {' / '.join(map(str, ends))}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.matrix", description=__doc__)
    parser.add_argument("--engine", action="append", choices=ALL, help="on this one; several may be named")
    parser.add_argument("--operation", default="", help="only those with this in their name")
    parser.add_argument("--quick", action="store_true", help="kill once in each operation")
    parser.add_argument("--json", type=Path, help="write the findings there")
    options = parser.parse_args(arguments)
    results = play_all(options.engine or ALL, options.operation, is_quick=options.quick)
    print(as_table(results))
    if options.json:
        options.json.write_text(json.dumps([vars(each) for each in results]))
    return any(each.problems for each in results)


if __name__ == "__main__":
    sys.exit(main())
