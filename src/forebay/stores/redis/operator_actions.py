"""Operator actions that take more than one script: revive, update a job, save a queue."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_update import JobUpdate
from forebay.domain.job_validation import check_queue_name
from forebay.domain.operator_changes import queue_changes
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
    params = {"ids": list(ids), **options._asdict(), "default_queue": FRESH_QUEUE}
    return action_results(ids, connection.run("revive", params))


def update_job(connection: Connection, job_id: JobId, update: JobUpdate, actor: str) -> ActionResult:
    """Read the job, compute the change, and write it unless the job has changed meanwhile; else retry.

    Metadata is merged here and not in the script: Lua does not always write JSON as it was read.
    """
    for _ in range(TRIES):
        rows = connection.run("jobs", {"ids": [job_id]})
        if not rows:
            return ActionResult(job_id=job_id, applied=False, state=None)
        job = job_from_row(rows[0])
        objection = update.objection_to(job.state)
        if objection:
            return ActionResult(job_id=job_id, applied=False, state=job.state, reason=objection)
        params = {
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
        stored_body = rows[0][2] or b""
        body = (
            b""
            if update.metadata is None
            else body_with(job_id, stored_body, update.merge_metadata(job.metadata))
        )
        digest = hashlib.sha1(stored_body, usedforsecurity=False).hexdigest()
        reply = connection.run("update_job", params, digest, body)
        if reply[0] == b"unchanged":
            return ActionResult(job_id=job_id, applied=False, state=job.state, reason=reply[1].decode())
        if reply[0] != b"retry":
            return ActionResult(job_id=job_id, applied=True, state=state_of(check_reply(reply)[0]))
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
        stored = connection.execute("HGET", f"{connection.address.tag}:queues", name)
        old = Queue(name=name) if stored is None else queue_from_packed(name, stored)
        revived_state = QueueState.ACTIVE if old.state is QueueState.DROPPED else None
        queue = old.with_settings(old.settings.with_changes(changes), into or revived_state, 0)
        rescored_to_seq = None if stored is None else rescored_to_seq_in(stored)
        if queue.scoring_version != old.scoring_version:
            rescored_to_seq = 0
        params = {
            "name": name,
            "queue": queue_row(queue, rescored_to_seq),
            "actor": actor,
            "detail": "settings" if into is None else queue.state.value,
            "changes": changes_text(queue_changes(old, queue)) or False,
        }
        reply = connection.run("save_queue", params, stored or b"")
        if reply[0] != b"retry":
            return queue_from_packed(name, check_reply(reply)[0])
    raise busy_error(connection, f"queue {name}")


def busy_error(connection: Connection, subject: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{connection.address.location} is busy: {subject} keeps changing; retry in a moment"
    )
