"""Progress, log lines and step results of running attempts."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import (
    MAX_LINES,
    MAX_STEPS,
    MAX_STORED_STEP_BYTES,
    JobProgress,
    ProgressUpdate,
    check_step_bytes,
    normalize_update,
)
from forebay.stores.contract.claims_and_results import LeaseRefusal
from forebay.stores.postgres.settle import find_refusal, lock_leases
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import log_line_text, progress_text


def save_progress(
    tx: Transaction, worker: WorkerId, updates: Sequence[ProgressUpdate]
) -> tuple[LeaseRefusal, ...]:
    """Store progress updates; return the leases that are not held.

    The leases are locked, so a lease that is held here is held when its progress is written.
    """
    leases = lock_leases(tx, (update.lease.job_id for update in updates))
    refused: list[LeaseRefusal] = []
    for update in updates:
        lease = leases.get(update.lease.job_id)
        if lease is not None and (lease.attempt, lease.worker) == (update.lease.attempt, worker):
            _write_progress(tx, update.lease, normalize_update(update, tx.now))
        else:
            refused.append(LeaseRefusal(lease=update.lease, reason=find_refusal(tx, worker, update.lease)))
    return tuple(refused)


def _write_progress(tx: Transaction, lease: Lease, update: JobProgress) -> None:
    common = {"job_id": lease.job_id, "attempt": lease.attempt, "recorded_at": tx.now}
    if update.progress is not None:
        tx.run("progress_set", {**common, "body": progress_text(update.progress).encode()})
    for line in update.lines:
        body = log_line_text(line).encode()
        tx.run(
            "progress_log_add", {**common, "recorded_at": line.at, "position": line.position, "body": body}
        )
    if update.lines:
        tx.run("progress_log_trim", {"job_id": lease.job_id, "max_lines": MAX_LINES})
    for step in update.steps:
        row = tx.one(
            "progress_step_add", {**common, "name": step.name, "body": step.result, "max_steps": MAX_STEPS}
        )
        if row is not None:
            check_step_bytes(step.name, row[0] + len(step.result), MAX_STORED_STEP_BYTES)
