"""What operators and programs ask for, where it takes more than one script."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.domain.changes import queue_changes
from forebay.domain.job import Amendment, JobId, QueueName, check_queue_name
from forebay.domain.queue import Queue, QueueState
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import Verdict
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.inserting import done, state_of
from forebay.stores.redis.rows import (
    FRESH_QUEUE,
    body_with,
    job_from_row,
    queue_from_packed,
    queue_row,
    reordered_to,
)
from forebay.stores.reviving import Revival
from forebay.stores.rows import changes_text

TRIES: Final = 100


def verdicts(ids: Sequence[JobId], answers: Sequence[Sequence[Any]]) -> list[Verdict]:
    return [
        Verdict(job_id=job_id, done=done == 1, state=state_of(state), reason=reason.decode())
        for job_id, (done, state, reason) in zip(ids, answers, strict=True)
    ]


def revive(connection: Connection, ids: Sequence[JobId], how: Revival) -> list[Verdict]:
    how.check()
    ask = {"ids": list(ids), **how._asdict(), "fresh": FRESH_QUEUE}
    return verdicts(ids, connection.run("revive", ask))


def amend(connection: Connection, job_id: JobId, change: Amendment, actor: str) -> Verdict:
    """Look at the job, work out the change, and write it if nobody was faster; else look again.

    Metadata is merged here and not in the script: what Lua makes of JSON is not always what it was.
    """
    for _ in range(TRIES):
        rows = connection.run("jobs", {"ids": [job_id]})
        if not rows:
            return Verdict(job_id=job_id, done=False, state=None)
        job = job_from_row(rows[0])
        objection = change.objection_of(job.state)
        if objection:
            return Verdict(job_id=job_id, done=False, state=job.state, reason=objection)
        ask = {
            "id": job_id,
            "seen": job.state.value,
            "priority": change.priority,
            "delay_ms": change.delay_ms,
            "metadata": change.metadata is not None,
            "queue": change.queue,
            "actor": actor,
            "detail": ",".join(change.changed),
            "fresh": FRESH_QUEUE,
        }
        seen = rows[0][2] or b""
        body = b"" if change.metadata is None else body_with(job_id, seen, change.merged_into(job.metadata))
        digest = hashlib.sha1(seen, usedforsecurity=False).hexdigest()
        answer = connection.run("amend", ask, digest, body)
        if answer[0] == b"stays":
            return Verdict(job_id=job_id, done=False, state=job.state, reason=answer[1].decode())
        if answer[0] != b"again":
            return Verdict(job_id=job_id, done=True, state=state_of(done(answer)[0]))
    raise too_busy(connection, f"job {job_id}")


def save_queue(
    connection: Connection,
    name: QueueName,
    changes: Mapping[str, object],
    into: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    for _ in range(TRIES):
        seen = connection.ask("HGET", f"{connection.address.tag}:queues", name)
        old = Queue(name=name) if seen is None else queue_from_packed(name, seen)
        back = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
        queue = old.configured(old.settings.changed(changes), into or back, 0)
        walked = None if seen is None else reordered_to(seen)
        if queue.rank_version != old.rank_version:
            walked = 0
        ask = {
            "name": name,
            "queue": queue_row(queue, walked),
            "actor": actor,
            "detail": "settings" if into is None else queue.state.value,
            "changes": changes_text(queue_changes(old, queue)) or False,
        }
        answer = connection.run("save_queue", ask, seen or b"")
        if answer[0] != b"again":
            return queue_from_packed(name, done(answer)[0])
    raise too_busy(connection, f"queue {name}")


def too_busy(connection: Connection, what: str) -> StoreUnavailable:
    return StoreUnavailable(f"{connection.address.place} is busy: {what} changes all the time")
