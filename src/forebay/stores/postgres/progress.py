"""What running attempts say, kept with their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import (
    MAX_LINES,
    MAX_STEPS,
    JobProgress,
    ProgressUpdate,
    normalize_update,
)
from forebay.stores.contract.values import LeaseRefusal
from forebay.stores.postgres.settle import find_refusal, lock_leases
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import log_line_text, progress_text


def save_progress(
    tx: Transaction, worker: WorkerId, updates: Sequence[ProgressUpdate]
) -> tuple[LeaseRefusal, ...]:
    """Keep what the holders of leases say; answers whose lease is not held.

    The leases are locked, so one that is held here is held when the notes are written.
    """
    held = lock_leases(tx, (note.lease.job_id for note in updates))
    refused: list[LeaseRefusal] = []
    for note in updates:
        lease = held.get(note.lease.job_id)
        if lease is not None and (lease.attempt, lease.worker) == (note.lease.attempt, worker):
            _write_progress(tx, note.lease, normalize_update(note, tx.now))
        else:
            refused.append(LeaseRefusal(lease=note.lease, reason=find_refusal(tx, worker, note.lease)))
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
        tx.run(
            "progress_step_add", {**common, "name": step.name, "body": step.result, "max_steps": MAX_STEPS}
        )
