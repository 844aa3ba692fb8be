"""Which runs of a schedule are due, which of them are enqueued, and what comes next.

All of it is worked out from a schedule as it was read and the store's clock; the store then makes the move
only if nobody has made one meanwhile. So any number of schedulers may work it out at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.cron import parse_cron
from forebay.domain.job import LATEST_AT, NewJob
from forebay.domain.schedule import CatchUp, Definition, Firing, FiringStatus, Overlap, Schedule, job_at
from forebay.domain.zone import zone_of

# A run that is found this late was not missed: whoever looked was only busy.
ON_TIME_MS: Final = 10_000
HELD_FOR_MS: Final = 1_000
COUNTED: Final = 1_000
_FIRST_LOOK_MS: Final = 60_000

MISSED: Final = "missed: nobody was there to fire it"
REPLACED: Final = "a later run took its place while the one before had not ended"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be enqueued; `taken` is what the history says if a key of the job is taken."""

    at: int
    job: NewJob
    taken: str


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What firing a schedule means, valid only while its `revision` is the one that was read."""

    name: str
    revision: int
    runs: tuple[Run, ...] = ()
    skips: tuple[Firing, ...] = ()
    next_at: int | None = None
    due_at: int | None = None
    holds: bool = False  # a run whose key is taken waits, and nothing has moved
    removes: bool = False  # it has no more runs, and goes with its last one
    by_hand: bool = False  # neither has to be due, nor does it change what comes next
    max_firings: int | None = None


def next_run(definition: Definition, after: int) -> int | None:
    """The first run later than an instant; None if there is no more."""
    if definition.start_at is not None:
        after = max(after, definition.start_at - 1)
    at = _next_at(definition, after)
    if at is None or at > LATEST_AT or (definition.end_at is not None and at > definition.end_at):
        return None
    return at


def next_runs(definition: Definition, after: int) -> Iterator[int]:
    """The runs later than an instant, as far as somebody asks."""
    at = next_run(definition, after)
    while at is not None:
        yield at
        at = next_run(definition, at)


def planned(schedule: Schedule, after: int, roll: float) -> Schedule:
    """The schedule with its next run later than an instant; a paused one has it and is not due."""
    definition = schedule.definition
    is_over = definition.max_firings is not None and schedule.fired >= definition.max_firings
    at = None if is_over else next_run(definition, after)
    due_at = None if schedule.is_paused else _due_at(definition, at, roll)
    return replace(schedule, next_at=at, due_at=due_at)


def advance(schedule: Schedule, now: int, roll: float) -> Move:
    """Fire what is due at this time by the store's clock."""
    definition, first = schedule.definition, schedule.next_at
    if first is None:
        return Move(name=schedule.name, revision=schedule.revision)
    found = _newest(definition, first, now)
    chosen = found[-1:] if _is_held(schedule, first) else _chosen(definition, found, now)
    chosen = _within(chosen, definition, schedule.fired)
    at = next_run(definition, now)
    return Move(
        name=schedule.name,
        revision=schedule.revision,
        runs=tuple(_run(definition, at) for at in chosen),
        skips=tuple(_skips(definition, first, found, chosen)),
        next_at=at,
        due_at=_due_at(definition, at, roll),
        holds=definition.overlap is Overlap.QUEUE,
        removes=definition.is_one_off and bool(chosen),
        max_firings=definition.max_firings,
    )


def postpone(schedule: Schedule, now: int) -> Move:
    """Leave a due run for a later look, because another transaction holds a key of its job."""
    return Move(
        name=schedule.name,
        revision=schedule.revision,
        next_at=schedule.next_at,
        due_at=now + HELD_FOR_MS,
    )


def _is_held(schedule: Schedule, first: int) -> bool:
    """Whether a run waits for the one before: then it was not missed, however late it is. Chance alone delays
    no look for so long."""
    waits = schedule.definition.overlap is Overlap.QUEUE and schedule.due_at is not None
    return waits and (schedule.due_at or 0) > first + schedule.definition.jitter_ms


def by_hand(schedule: Schedule, now: int) -> Move:
    """Enqueue its job now, whatever its times are."""
    definition = schedule.definition
    run = Run(at=now, job=job_at(definition, now, by_hand=True), taken=_taken(definition))
    return Move(name=schedule.name, revision=schedule.revision, runs=(run,), by_hand=True)


def _next_at(definition: Definition, after: int) -> int | None:
    if definition.cron is not None:
        at = parse_cron(definition.cron).next_after(after // 1_000, zone_of(definition.timezone))
        return None if at is None else at * 1_000
    if definition.every_ms is not None:
        start = definition.start_at or 0
        return start + ((after - start) // definition.every_ms + 1) * definition.every_ms
    return definition.at if definition.at is not None and definition.at > after else None


def _due_at(definition: Definition, at: int | None, roll: float) -> int | None:
    return None if at is None else at + int(roll * definition.jitter_ms)


def _run(definition: Definition, at: int) -> Run:
    return Run(at=at, job=job_at(definition, at), taken=_taken(definition))


def _taken(definition: Definition) -> str:
    reasons = []
    if definition.overlap is not Overlap.ALLOW:
        reasons.append("the run before has not ended")
    if definition.unique_key is not None:
        reasons.append("its unique key was used within its window")
    elif definition.job.unique_key is not None:
        reasons.append("its unique key is taken")
    return " or ".join(reasons) or "this run was enqueued before"


def _most_at_once(definition: Definition) -> int:
    return definition.catch_up_most + ON_TIME_MS // 1_000 + 1


def _newest(definition: Definition, first: int, now: int) -> list[int]:
    """The newest runs from the first that is due until now, at least as many as could be enqueued.

    Looked for from now backwards in growing steps, so that after a long time away nobody goes through a year
    of seconds.
    """
    span = _FIRST_LOOK_MS
    while now - span > first:
        found = list(_until(now, next_runs(definition, now - span)))
        if len(found) >= _most_at_once(definition):
            return found
        span *= 8
    return [first, *_until(now, next_runs(definition, first))]


def _until(end: int, runs: Iterator[int]) -> Iterator[int]:
    return takewhile(lambda at: at <= end, runs)


def _chosen(definition: Definition, found: Sequence[int], now: int) -> list[int]:
    is_late = now - ON_TIME_MS - definition.jitter_ms
    on_time = [at for at in found if at >= is_late]
    missed = [at for at in found if now - definition.catch_up_ms <= at < is_late]
    if definition.is_one_off and definition.catch_up is not CatchUp.NONE:
        return list(found)  # it has no later run that could make up for it
    if definition.overlap is Overlap.QUEUE or definition.catch_up is CatchUp.LATEST:
        caught_up = [] if on_time else missed[-1:]
    else:
        caught_up = missed[-definition.catch_up_most :]
    chosen = on_time if definition.catch_up is CatchUp.NONE else caught_up + on_time
    most = 1 if definition.overlap is Overlap.QUEUE else _most_at_once(definition)
    return chosen[-most:]


def _within(chosen: list[int], definition: Definition, fired: int) -> list[int]:
    most = definition.max_firings
    return chosen if most is None else chosen[: max(0, most - fired)]


def _skips(
    definition: Definition, first: int, found: Sequence[int], chosen: Sequence[int]
) -> Iterator[Firing]:
    """What is not enqueued, as one line of the history."""
    left_out = [at for at in found if at not in chosen]
    earlier = _counted(definition, first, found[0]) if found and first < found[0] else 0
    if not left_out and not earlier:
        return
    is_held = definition.overlap is Overlap.QUEUE and bool(chosen)
    yield Firing(
        at=first if earlier else left_out[0],
        until_at=max(left_out, default=first),
        count=earlier + len(left_out),
        status=FiringStatus.SKIPPED,
        reason=REPLACED if is_held else MISSED,
    )


def _counted(definition: Definition, first: int, end: int) -> int:
    runs = _until(end - 1, next_runs(definition, first))
    return 1 + sum(1 for _ in islice(runs, COUNTED - 1))
