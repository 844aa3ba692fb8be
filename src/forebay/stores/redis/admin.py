"""What operators and programs ask for, where it takes more than one script."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.domain.changes import queue_changes
from forebay.domain.job import JobId, JobUpdate, QueueName, check_queue_name
from forebay.domain.queue import Queue, QueueState
from forebay.errors import StoreUnavailable
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.values import ActionResult
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.insert import check_reply, state_of
from forebay.stores.redis.rows import (
    FRESH_QUEUE,
    body_with,
    job_from_row,
    queue_from_packed,
    queue_row,
    rescored_to_seq_in,
)
from forebay.stores.shared.rows import changes_text

TRIES: Final = 100


def action_results(ids: Sequence[JobId], answers: Sequence[Sequence[Any]]) -> list[ActionResult]:
    return [
        ActionResult(job_id=job_id, applied=done == 1, state=state_of(state), reason=reason.decode())
        for job_id, (done, state, reason) in zip(ids, answers, strict=True)
    ]


def revive(connection: Connection, ids: Sequence[JobId], options: ReviveOptions) -> list[ActionResult]:
    options.check()
    ask = {"ids": list(ids), **options._asdict(), "default_queue": FRESH_QUEUE}
    return action_results(ids, connection.run("revive", ask))


def update_job(connection: Connection, job_id: JobId, update: JobUpdate, actor: str) -> ActionResult:
    """Look at the job, work out the change, and write it if nobody was faster; else look again.

    Metadata is merged here and not in the script: what Lua makes of JSON is not always what it was.
    """
    for _ in range(TRIES):
        rows = connection.run("jobs", {"ids": [job_id]})
        if not rows:
            return ActionResult(job_id=job_id, applied=False, state=None)
        job = job_from_row(rows[0])
        objection = update.objection_to(job.state)
        if objection:
            return ActionResult(job_id=job_id, applied=False, state=job.state, reason=objection)
        ask = {
            "id": job_id,
            "seen_state": job.state.value,
            "priority": update.priority,
            "delay_ms": update.delay_ms,
            "metadata": update.metadata is not None,
            "queue": update.queue,
            "actor": actor,
            "detail": ",".join(update.changed_fields),
            "default_queue": FRESH_QUEUE,
        }
        seen = rows[0][2] or b""
        body = (
            b"" if update.metadata is None else body_with(job_id, seen, update.merge_metadata(job.metadata))
        )
        digest = hashlib.sha1(seen, usedforsecurity=False).hexdigest()
        answer = connection.run("update_job", ask, digest, body)
        if answer[0] == b"unchanged":
            return ActionResult(job_id=job_id, applied=False, state=job.state, reason=answer[1].decode())
        if answer[0] != b"retry":
            return ActionResult(job_id=job_id, applied=True, state=state_of(check_reply(answer)[0]))
    raise busy_error(connection, f"job {job_id}")


def save_queue(
    connection: Connection,
    name: QueueName,
    changes: Mapping[str, object],
    into: QueueState | None,
    actor: str,
) -> Queue:
    check_queue_name(name)
    for _ in range(TRIES):
        seen = connection.execute("HGET", f"{connection.address.tag}:queues", name)
        old = Queue(name=name) if seen is None else queue_from_packed(name, seen)
        back = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
        queue = old.with_settings(old.settings.with_changes(changes), into or back, 0)
        walked = None if seen is None else rescored_to_seq_in(seen)
        if queue.scoring_version != old.scoring_version:
            walked = 0
        ask = {
            "name": name,
            "queue": queue_row(queue, walked),
            "actor": actor,
            "detail": "settings" if into is None else queue.state.value,
            "changes": changes_text(queue_changes(old, queue)) or False,
        }
        answer = connection.run("save_queue", ask, seen or b"")
        if answer[0] != b"retry":
            return queue_from_packed(name, check_reply(answer)[0])
    raise busy_error(connection, f"queue {name}")


def busy_error(connection: Connection, subject: str) -> StoreUnavailable:
    return StoreUnavailable(f"{connection.address.location} is busy: {subject} changes all the time")
