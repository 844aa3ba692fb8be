"""Schedules: saved, removed and fired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from forebay.domain.changes import schedule_changes
from forebay.domain.firing import HELD_FOR_MS, Move
from forebay.domain.job import JobId
from forebay.domain.query import check_limit
from forebay.domain.schedule import FIRINGS_KEPT, Firing, FiringStatus, Schedule
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.inserting import Intake, done, error_of, with_other_ids
from forebay.stores.redis.operating import TRIES, too_busy
from forebay.stores.rows import changes_text
from forebay.stores.scheduling import DueSchedules, Fired, schedule_text, schedules_from_rows

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisSchedules:
    """The part of a handle to write that keeps schedules."""

    _connection: Connection
    _new_id: Callable[[], JobId]

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        seen = self._seen_schedule(schedule.name)
        if (seen[1] if seen else 0) != schedule.revision:
            return False
        state = (getattr(schedule, name) for name in Schedule.__struct_fields__[1:])
        ask = {
            "name": schedule.name,
            "schedule": [
                schedule_text(schedule.definition),
                *(False if one is None else one for one in state),
            ],
            "revision": schedule.revision,
            "actor": actor,
            "changes": changes_text(schedule_changes(_readable(seen), schedule)) or False,
        }
        return bool(self._connection.run("save_schedule", ask))

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        for _ in range(TRIES):
            seen = self._seen_schedule(name)
            if seen is None:
                return False
            changes = changes_text(schedule_changes(_readable(seen), None)) or False
            ask = {"name": name, "revision": seen[1], "actor": actor, "changes": changes}
            if self._connection.run("drop_schedule", ask):
                return True
        raise too_busy(self._connection, f"schedule {name}")

    def _seen_schedule(self, name: str) -> list[Any] | None:
        packed = self._connection.ask("HGET", f"{self._connection.address.tag}:schedules", name)
        return None if packed is None else _row(packed)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        now, found, later = self._connection.run("due_schedules", {"limit": limit})
        schedules = schedules_from_rows(_row(packed) for packed in found if packed is not None)
        return DueSchedules(now=now, schedules=tuple(schedules), next_due_ms=later)

    def fire(self, moves: Sequence[Move]) -> list[Fired]:
        return with_other_ids(lambda: self._fired(moves))

    def _fired(self, moves: Sequence[Move]) -> list[Fired]:
        intake = Intake(self._new_id)
        asked, number = [], 0
        for move in moves:
            for run in move.runs:
                intake.add(run.job, 0)
            asked.append(_asked(move, number))
            number += len(move.runs)
        ask = {
            **intake.request(2),
            "create_queues": True,
            "held_for_ms": HELD_FOR_MS,
            "kept": FIRINGS_KEPT,
            "moves": asked,
        }
        [answers] = done(self._connection.run("fire", ask, *intake.arguments))
        return [_fired(move, answer) for move, answer in zip(moves, answers, strict=True)]


class LooksAtRedisSchedules:
    """The part of a handle to look that shows schedules."""

    _connection: Connection

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        tag, ask = self._connection.address.tag, self._connection.ask
        if names is None:
            start = "-" if after is None else f"({after}"
            wanted = ask("ZRANGE", f"{tag}:schedule_names", start, "+", "BYLEX", "LIMIT", 0, limit)
        else:
            wanted = sorted({name for name in names if after is None or name > after})
        found = ask("HMGET", f"{tag}:schedules", *wanted) if wanted else []
        return schedules_from_rows(_row(packed) for packed in found if packed is not None)[:limit]

    def firings(self, name: str, *, limit: int = 100) -> list[Firing]:
        check_limit(limit)
        key = f"{self._connection.address.tag}:firings:{name}"
        return [_firing(packed) for packed in self._connection.ask("LRANGE", key, -limit, -1)][::-1]


def _readable(seen: list[Any] | None) -> Schedule | None:
    """One that cannot be read is as good as none: somebody may be about to replace it."""
    return next(iter(schedules_from_rows([] if seen is None else [seen])), None)


def _asked(move: Move, number: int) -> dict[str, Any]:
    """A move as the script takes it; its jobs have the numbers that follow this one."""
    return {
        "name": move.name,
        "revision": move.revision,
        "runs": [(number + i, run.at, run.taken) for i, run in enumerate(move.runs, 1)],
        "skips": [_line(skip) for skip in move.skips],
        "next_at": move.next_at,
        "due_at": move.due_at,
        "holds": move.holds,
        "removes": move.removes,
        "by_hand": move.by_hand,
        "max_firings": move.max_firings,
    }


def _line(firing: Firing) -> list[Any]:
    fields = (getattr(firing, name) for name in Firing.__struct_fields__)
    return [False if one is None else one for one in fields]


def _fired(move: Move, answer: list[bytes] | None) -> Fired:
    firings = tuple(_firing(packed) for packed in answer or ())
    return Fired(name=move.name, done=answer is not None, firings=firings)


def _row(packed: bytes) -> list[Any]:
    definition, revision, is_paused, *rest = _decode(packed)
    return [definition, revision, is_paused, *(None if one is False else one for one in rest)]


def _firing(packed: bytes) -> Firing:
    at, status, recorded_at, job_id, reason, until_at, count = _decode(packed)
    return Firing(
        at=at,
        status=FiringStatus(status),
        recorded_at=recorded_at,
        job_id=job_id or None,
        # What was refused is stored as the script says it.
        reason=reason if isinstance(reason, str) else str(error_of(reason)),
        until_at=until_at or None,
        count=count,
    )
