"""Maintenance: promote, expire, rescore and prune jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from forebay.domain.enqueue_rates import FULL_AFTER_MS
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_history import AUDIT_RETENTION_MS, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue, stagger_task_name
from forebay.domain.worker_command import COMMAND_RETENTION_MS
from forebay.stores.shared.rows import (
    STATES,
    Row,
    fairness_key_in,
    queue_from_row,
)
from forebay.stores.sqlite import concurrency_and_rate_limits, fairness
from forebay.stores.sqlite.job_ends_and_removal import end_waiting, remove_edges, remove_history
from forebay.stores.sqlite.progress import remove_progress
from forebay.stores.sqlite.transaction import Transaction

WORKER_RETENTION_MS: Final = DAY_MS
EXCERPT: Final = 200
AGE_CAP_SCAN: Final = "age cap scan"
SCAN_STEP: Final = 200


def promote_queue(tx: Transaction, queue: QueueName, limit: int) -> int:
    """Make due jobs of one queue pending, earliest first; only one batch of them in a staggered queue."""
    stored = tx.queue(queue)
    stagger = None if stored is None else stored.settings.stagger
    if stagger is not None:
        limit = min(limit, stagger.jobs)
    rows = tx.all("delayed_take_due", {"queue": queue, "now": tx.now, "limit": limit})
    if stagger is not None and rows:
        values = {"name": stagger_task_name(queue), "every_ms": stagger.every_ms, "now": tx.now}
        if tx.run("acquire_maintenance", values).rowcount == 0:
            return 0
    return _promote_rows(tx, queue, rows)


def _promote_rows(tx: Transaction, queue: QueueName, rows: list[Row]) -> int:
    for seq, state, ready_at, priority, failures, deadline_at, _, options in rows:
        queue_rank = tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        tx.run("promote", {**queue_rank._asdict(), "seq": seq, "now": tx.now})
        fairness.mark_pending(tx, queue, fairness_key_in(options), [seq])
        tx.count_moved(queue, STATES[state], JobState.PENDING)
        tx.needs_wakeup = True
    return len(rows)


def promote(tx: Transaction, limit: int) -> int:
    """Expire and promote jobs in all queues."""
    moved = expire(tx, limit)
    queues = load_all_queues(tx)
    moved += sum(
        promote_queue(tx, queue.name, limit) for queue in queues if queue.settings.stagger is not None
    )
    due = [
        (row[6], row[0], queue.name, row)
        for queue in queues
        if queue.settings.stagger is None
        for row in tx.all("delayed_take_due", {"queue": queue.name, "now": tx.now, "limit": limit})
    ]
    for _, _, name, row in sorted(due)[:limit]:
        moved += _promote_rows(tx, name, [row])
    return moved


def expire(tx: Transaction, limit: int) -> int:
    """Cancel waiting jobs past their `expires_at`."""
    rows = tx.all("expired", {"now": tx.now, "limit": limit})
    for seq, job_id in rows:
        queue = end_waiting(tx, seq, job_id, JobState.CANCELLED, "expired")
        tx.record(Event(kind=EventKind.EXPIRED, job_id=job_id, queue=queue))
    return len(rows)


def move_queue_to_dead(tx: Transaction, queue: QueueName, limit: int) -> int:
    """Move waiting jobs of a dropped queue to the dead letters."""
    rows = tx.all("dropped_queue_delayed", {"queue": queue, "limit": limit})
    if len(rows) < limit:
        rows += tx.all("dropped_queue_jobs", {"queue": queue, "limit": limit - len(rows)})
    for seq, job_id in rows:
        end_waiting(tx, seq, job_id, JobState.DEAD, "queue dropped")
        tx.record(Event(kind=EventKind.DROPPED, job_id=job_id, queue=queue))
    return len(rows)


def rescore(tx: Transaction, limit: int) -> int:
    """Compute new ranks for jobs that are due for it, and for jobs of queues with changed scoring."""
    rows = tx.all("rescore_due", {"now": tx.now, "limit": limit})
    for row in rows:
        _rescore_one(tx, row)
    examined = len(rows)
    for row in tx.all("queues", {}):
        if row[4] is not None and examined < limit:
            examined += _rescore_queue(tx, queue_from_row(row), row[4], limit - examined)
    return examined + _scan_aging_jobs(tx, limit - examined)


def _scan_aging_jobs(tx: Transaction, limit: int) -> int:
    """Set `rescore_at` of jobs that have waited for half of the shortest age cap.

    Nearly every job has run by then, so nearly none pays for the index entry. The scan goes by seq, which is
    the order of insertion, and ends at the first job that is too young.
    """
    caps = [queue.settings.scoring.cap_ms for queue in load_all_queues(tx) if queue.settings.max_aging_bonus]
    if not caps or limit <= 0:
        return 0
    (scanned_to,) = tx.one("scan_position", {"name": AGE_CAP_SCAN}) or (0,)
    oldest_young_at = tx.now - min(caps) // 2
    rows = tx.all("scan_next", {"after": scanned_to, "limit": min(limit, SCAN_STEP)})
    old = list(takewhile(lambda row: row[7] <= oldest_young_at, rows))
    for row in old:
        if row[2] == JobState.PENDING:
            _rescore_one(tx, row[:7])
    if old:
        tx.run("scan_save", {"name": AGE_CAP_SCAN, "scan_position": old[-1][0]})
    return len(old)


def _rescore_one(tx: Transaction, row: Row) -> None:
    seq, queue, state, ready_at, priority, failures, deadline_at = row
    if state == JobState.PENDING:
        queue_rank = tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        tx.run("rescore", {**queue_rank._asdict(), "seq": seq})
    else:
        tx.run("rescore_drop", {"seq": seq})


def _rescore_queue(tx: Transaction, queue: Queue, rescored_to_seq: int, limit: int) -> int:
    """Continue the scan of a queue by seq. A job that becomes pending behind the scan position already has
    a rank by the new scoring."""
    rows = tx.all("scan_next", {"after": rescored_to_seq, "limit": limit})
    for row in rows:
        if row[1] == queue.name and row[2] == JobState.PENDING:
            _rescore_one(tx, row[:7])
    is_done = len(rows) < limit
    tx.save_queue(replace(queue, is_rescoring=not is_done), None if is_done else rows[-1][0])
    return len(rows)


def prune(tx: Transaction, limit: int) -> int:
    """Remove everything past its retention, in all queues."""
    pruned = 0
    for queue in load_all_queues(tx):
        settings = queue.settings
        for table, keep_ms in (("finished", settings.keep_finished_ms), ("dead", settings.keep_dead_ms)):
            if keep_ms and pruned < limit:
                pruned += _prune_table(tx, queue, table, tx.now - keep_ms, limit - pruned)
        if settings.keep_archive_ms:
            before = tx.now - settings.keep_archive_ms
            tx.run("archive_prune", {"queue": queue.name, "before": before, "limit": limit})
    tx.run("keys_prune", {"now": tx.now, "limit": limit})
    if tx.has_limits:
        concurrency_and_rate_limits.prune(tx)
    if tx.has_fairness_keys:
        fairness.prune(tx)
    tx.run("rates_prune", {"before": tx.now - 2 * FULL_AFTER_MS})
    tx.run("events_prune", {"before": tx.now - AUDIT_RETENTION_MS, "limit": limit})
    tx.run("audit_prune", {"before": tx.now - AUDIT_RETENTION_MS, "limit": limit})
    tx.run("workers_prune", {"before": tx.now - WORKER_RETENTION_MS})
    tx.run("commands_prune", {"before": tx.now - COMMAND_RETENTION_MS})
    return pruned


def _prune_table(tx: Transaction, queue: Queue, table: str, before: int, limit: int) -> int:
    rows = tx.all(f"prunable_{table}", {"queue": queue.name, "before": before, "limit": limit})
    if queue.settings.archive:
        for row in rows:
            tx.run("archive_add", _archive_params(row))
    for seq, job_id, _, _, state, *_ in rows:
        tx.all(f"remove_{table}", {"seq": seq, "job_id": job_id})
        remove_history(tx, job_id)
        remove_edges(tx, job_id, STATES[state])
        tx.count_removed(queue.name, STATES[state])
    remove_progress(tx, [row[0] for row in rows])
    return len(rows)


def _archive_params(row: Row) -> dict[str, object]:
    _, job_id, queue, task, state, created_at, finished_at, started_at, *rest = row
    attempt, failures, reason, excerpt = rest
    return {
        "job_id": job_id,
        "queue": queue,
        "task": task,
        "state": state,
        "created_at": created_at,
        "finished_at": finished_at,
        "day": datetime.fromtimestamp(finished_at / 1_000, UTC).strftime("%Y-%m-%d"),
        "duration_ms": None if started_at is None else finished_at - started_at,
        "attempt": attempt,
        "failures": failures,
        "excerpt": "" if excerpt is None else excerpt.decode(errors="replace")[:EXCERPT],
        "reason": reason,
    }


def load_all_queues(tx: Transaction) -> list[Queue]:
    """Load every queue, dropped ones too."""
    return [queue_from_row(row) for row in tx.all("queues", {})]


def acquire_maintenance(tx: Transaction, name: str, every_ms: int) -> bool:
    return tx.run("acquire_maintenance", {"name": name, "every_ms": every_ms, "now": tx.now}).rowcount == 1
