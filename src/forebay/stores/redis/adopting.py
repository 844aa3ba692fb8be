"""Jobs of another store, taken in with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from forebay.domain.history import Attempt
from forebay.domain.job import Job, UniqueUntil
from forebay.domain.moving import Whole
from forebay.domain.share import SHARE
from forebay.stores.moving import GathersWholes
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.inserting import done
from forebay.stores.redis.rows import FRESH_QUEUE, adopted_body, event_row, line_stored, step_stored
from forebay.stores.rows import json_text, line_text, progress_text

T = TypeVar("T")

_FIRST: Final = 2  # the number of the first argument after the request
_decode: Final = msgspec.msgpack.Decoder(list[Any]).decode


class RedisAdopting(ABC):
    """The part of a handle to write that takes in jobs of another store."""

    _connection: Connection

    @abstractmethod
    def _after_list(self, call: Callable[[], T]) -> T: ...

    @abstractmethod
    def _with_room(self, insert: Callable[[], T]) -> T: ...

    @abstractmethod
    def _followed(self, answer: T) -> T: ...

    def adopt(self, jobs: Sequence[Whole]) -> list[bool]:
        for whole in jobs:
            whole.check()
        arguments: list[bytes | str] = []
        ask = {"jobs": [_brought(whole, arguments) for whole in jobs], "fresh": FRESH_QUEUE}
        [answers] = self._after_list(
            lambda: done(self._with_room(lambda: self._connection.run("adopt", ask, *arguments)))
        )
        return self._followed([answer == 1 for answer in answers])


class ShowsRedisWholes(GathersWholes):
    """The part of a handle to look that shows jobs whole."""

    _connection: Connection

    def _once_until(self, job: Job) -> int | None:
        key = f"{self._connection.address.tag}:once:{job.queue}"
        packed = self._connection.ask("HGET", key, job.once_key or "")
        holder, until = (None, None) if packed is None else _decode(packed)
        return until if holder == job.id else None


def _brought(whole: Whole, arguments: list[bytes | str]) -> dict[str, Any]:
    """A job as the script takes it; what Lua must not look into goes to the arguments."""

    def put(argument: bytes) -> int:
        arguments.append(argument)
        return _FIRST + len(arguments) - 1

    job, notes = whole.job, whole.notes
    progress = notes.progress
    steps: list[Any] = []
    for order, step in enumerate(notes.steps):
        steps += (step.name, put(b"%04d%d " % (order, step.at) + step_stored(step)))
    edges: list[str] = []
    for edge in whole.edges:
        edges += (edge.parent, edge.on_failure.value, edge.state.value)
    return {
        "id": job.id,
        "head": _head(whole),
        "takes_key": whole.takes_key,
        "attempts": [_attempt_row(attempt) for attempt in whole.attempts],
        "unstarted": job.unstarted or False,
        "events": [event_row(event) for event in whole.events],
        "progress": False
        if progress is None
        else f"{progress.at} {progress.attempt} {progress_text(progress)}",
        "lines": [f"{line.place or ''} {line_stored(line, line_text(line))}" for line in notes.lines],
        "steps": steps,
        "edges": edges,
        "once": False if whole.once_until is None else (job.once_key, whole.once_until),
        "sequence": job.sequence or False,
        "share": job.limit_keys.get(SHARE, False),
        "is_dear": job.cost != 1,
        "body": put(adopted_body(job)),
        "result": False if job.result is None else put(job.result),
    }


def _head(whole: Whole) -> list[Any]:
    """The fields of `shared/2_base.lua`; what this store works out for itself is nothing yet."""
    job = whole.job
    return [
        job.queue, job.task, job.priority, job.lease_ms or False, job.extension_ms,
        job.unique_until is UniqueUntil.STARTED,
        0, job.created_at, job.ready_at, job.run_at, 0,
        job.state.value, job.attempt, job.worker or False, _or_false(job.started_at), job.updated_at,
        _or_false(job.finished_at), False, False, False, _or_false(job.deadline_at),
        _or_false(job.expires_at), job.unique_key or False, _or_false(job.cancel_reason), False,
        _or_false(job.reason), job.failures, job.crashes, len(whole.attempts), False,
    ]  # fmt: skip


def _attempt_row(attempt: Attempt) -> list[Any]:
    """As `exchange.lua` keeps it. Who wrote down how it ended is not told by readers."""
    return [
        attempt.attempt, attempt.ending.value, _or_false(attempt.worker), _or_false(attempt.started_at),
        attempt.ended_at, json_text(attempt.error), attempt.worker or "",
    ]  # fmt: skip


def _or_false(value: Any) -> Any:
    return False if value is None else value
