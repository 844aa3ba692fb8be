"""Schedules of the Redis engine: save, drop, fire and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from forebay.domain.job import JobId
from forebay.domain.job_query import check_limit
from forebay.domain.operator_changes import schedule_changes
from forebay.domain.schedule import MAX_STORED_RUNS, Schedule, ScheduleRun, ScheduleRunStatus
from forebay.domain.schedule_runs import POSTPONE_MS, ScheduleAdvance
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.errors import TRIES, busy_error
from forebay.stores.redis.insert import InsertRequest, check_reply, error_of, retry_with_other_ids
from forebay.stores.shared.rows import changes_text
from forebay.stores.shared.schedules import schedule_text, schedules_from_rows

_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisScheduleStore:
    """Write side of schedules."""

    _connection: Connection
    _new_id: Callable[[], JobId]

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        stored = self._load_schedule_row(schedule.name)
        if (stored[1] if stored else 0) != schedule.revision:
            return False
        state = (getattr(schedule, name) for name in Schedule.__struct_fields__[1:])
        params = {
            "name": schedule.name,
            "schedule": [
                schedule_text(schedule.definition),
                *(False if value is None else value for value in state),
            ],
            "revision": schedule.revision,
            "actor": actor,
            "changes": changes_text(schedule_changes(_decode_schedule(stored), schedule)) or False,
        }
        return bool(self._connection.run("save_schedule", params))

    def drop_schedule(self, name: str, *, actor: str = "") -> bool:
        for _ in range(TRIES):
            stored = self._load_schedule_row(name)
            if stored is None:
                return False
            changes = changes_text(schedule_changes(_decode_schedule(stored), None)) or False
            params = {"name": name, "revision": stored[1], "actor": actor, "changes": changes}
            if self._connection.run("drop_schedule", params):
                return True
        raise busy_error(self._connection.address.location, f"schedule {name}")

    def _load_schedule_row(self, name: str) -> list[Any] | None:
        packed = self._connection.execute("HGET", f"{self._connection.address.tag}:schedules", name)
        return None if packed is None else _schedule_row(packed)

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        now, rows, next_due_ms = self._connection.run("due_schedules", {"limit": limit})
        schedules = schedules_from_rows(_schedule_row(packed) for packed in rows if packed is not None)
        return DueSchedules(now=now, schedules=tuple(schedules), next_due_ms=next_due_ms)

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        return retry_with_other_ids(lambda: self._fire_once(advances))

    def _fire_once(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        inserts = InsertRequest(self._new_id)
        rows, number = [], 0
        for advance in advances:
            for run in advance.runs:
                inserts.add(run.job, 0)
            rows.append(_advance_row(advance, number))
            number += len(advance.runs)
        params = {
            **inserts.build_request(2),
            "create_queues": True,
            "postpone_ms": POSTPONE_MS,
            "max_stored_runs": MAX_STORED_RUNS,
            "advances": rows,
        }
        [replies] = check_reply(self._connection.run("fire_schedules", params, *inserts.arguments))
        return [_fire_result(advance, reply) for advance, reply in zip(advances, replies, strict=True)]


class RedisScheduleReader:
    """Read side of schedules."""

    _connection: Connection

    def schedules(
        self, names: Sequence[str] | None = None, *, limit: int = 1_000, after: str | None = None
    ) -> list[Schedule]:
        check_limit(limit)
        tag, execute = self._connection.address.tag, self._connection.execute
        if names is None:
            start = "-" if after is None else f"({after}"
            wanted = execute("ZRANGE", f"{tag}:schedule_names", start, "+", "BYLEX", "LIMIT", 0, limit)
        else:
            wanted = sorted({name for name in names if after is None or name > after})
        rows = execute("HMGET", f"{tag}:schedules", *wanted) if wanted else []
        return schedules_from_rows(_schedule_row(packed) for packed in rows if packed is not None)[:limit]

    def schedule_runs(self, name: str, *, limit: int = 100) -> list[ScheduleRun]:
        check_limit(limit)
        key = f"{self._connection.address.tag}:schedule_runs:{name}"
        return [
            _schedule_run_from_packed(packed)
            for packed in self._connection.execute("LRANGE", key, -limit, -1)
        ][::-1]


def _decode_schedule(stored: list[Any] | None) -> Schedule | None:
    """Return the schedule; None for one that cannot be read, which the caller may be about to replace."""
    return next(iter(schedules_from_rows([] if stored is None else [stored])), None)


def _advance_row(advance: ScheduleAdvance, number: int) -> dict[str, Any]:
    """Build an advance as the script takes it; its jobs have the numbers after this one."""
    return {
        "name": advance.name,
        "revision": advance.revision,
        "runs": [(number + i, run.planned_at, run.skip_reason) for i, run in enumerate(advance.runs, 1)],
        "skips": [_schedule_run_row(skip) for skip in advance.skips],
        "next_run_at": advance.next_run_at,
        "check_at": advance.check_at,
        "waits_for_previous": advance.waits_for_previous,
        "removes_schedule": advance.removes_schedule,
        "is_manual": advance.is_manual,
        "max_runs": advance.max_runs,
    }


def _schedule_run_row(run: ScheduleRun) -> list[Any]:
    fields = (getattr(run, name) for name in ScheduleRun.__struct_fields__)
    return [False if value is None else value for value in fields]


def _fire_result(advance: ScheduleAdvance, reply: list[bytes] | None) -> FireResult:
    runs = tuple(_schedule_run_from_packed(packed) for packed in reply or ())
    return FireResult(name=advance.name, applied=reply is not None, runs=runs)


def _schedule_row(packed: bytes) -> list[Any]:
    definition, revision, is_paused, *rest = _decode(packed)
    return [definition, revision, is_paused, *(None if value is False else value for value in rest)]


def _schedule_run_from_packed(packed: bytes) -> ScheduleRun:
    planned_at, status, recorded_at, job_id, reason, last_planned_at, runs = _decode(packed)
    return ScheduleRun(
        planned_at=planned_at,
        status=ScheduleRunStatus(status),
        recorded_at=recorded_at,
        job_id=job_id or None,
        # The script stores a refusal as it is.
        reason=reason if isinstance(reason, str) else str(error_of(reason)),
        last_planned_at=last_planned_at or None,
        runs=runs,
    )
