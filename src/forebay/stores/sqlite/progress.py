"""Progress of running attempts, stored with their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import WorkerId
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
from forebay.stores.shared.rows import json_text, log_line_text, progress_text
from forebay.stores.sqlite.settle import LeaseParams, find_refusal, lease_params, relocate
from forebay.stores.sqlite.transaction import Transaction


def save_progress(
    tx: Transaction, worker: WorkerId, updates: Sequence[ProgressUpdate]
) -> tuple[LeaseRefusal, ...]:
    """Store the progress of lease holders; return the leases that are not held."""
    refused: list[LeaseRefusal] = []
    for update in updates:
        token = lease_params(worker, update.lease.job_id, update.lease.attempt)
        # The transaction has the write lock: a lease that is held here is held when its progress is written.
        if _is_held(tx, token) or (relocate(tx, token) and _is_held(tx, token)):
            _write_progress(tx, token, normalize_update(update, tx.now))
        else:
            refused.append(LeaseRefusal(lease=update.lease, reason=find_refusal(tx, token)))
    return tuple(refused)


def remove_progress(tx: Transaction, seqs: Sequence[int]) -> None:
    """Remove the progress of jobs that are removed."""
    if seqs and tx.one("progress_any", {}) is not None:
        tx.run("progress_remove", {"seqs": json_text(seqs)})


def _is_held(tx: Transaction, token: LeaseParams) -> bool:
    return tx.one("lease_details", token) is not None


def _write_progress(tx: Transaction, token: LeaseParams, update: JobProgress) -> None:
    common = {"seq": token["seq"], "attempt": token["attempt"], "recorded_at": tx.now}
    if update.progress is not None:
        tx.run("progress_set", {**common, "body": progress_text(update.progress)})
    for line in update.lines:
        tx.run(
            "progress_log_add",
            {**common, "recorded_at": line.at, "position": line.position, "body": log_line_text(line)},
        )
    if update.lines:
        tx.run("progress_log_trim", {"seq": token["seq"], "max_lines": MAX_LINES})
    for step in update.steps:
        tx.run(
            "progress_step_add", {**common, "name": step.name, "body": step.result, "max_steps": MAX_STEPS}
        )
        row = tx.one("progress_step_bytes", {"seq": token["seq"]})
        check_step_bytes(step.name, 0 if row is None else row[0], MAX_STORED_STEP_BYTES)
