"""Actions on jobs that take more than one script, and the results of actions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from forebay.domain.job import JobId
from forebay.domain.job_update import JobUpdate
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.errors import TRIES, busy_error
from forebay.stores.redis.insert import check_reply, state_of
from forebay.stores.redis.rows import FRESH_QUEUE, body_with, job_from_row


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
    raise busy_error(connection.address.location, f"job {job_id}")
