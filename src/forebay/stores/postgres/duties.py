"""What is done by the clock: promote, expire, rescore, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from forebay.domain.history import Event, EventKind
from forebay.domain.job import DAY_MS, JobId, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue
from forebay.domain.worker import COMMANDS_KEPT_MS
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.rows import STATES, Row, queue_from_row

AUDIT_MS: Final = 90 * DAY_MS
WORKERS_MS: Final = DAY_MS
EXCERPT: Final = 200
CAP_WALK: Final = "look at old jobs"
WALK_STEP: Final = 200
FOLDED: Final = 10_000


def promote(tx: Transaction, limit: int) -> int:
    """Expire and promote in all queues."""
    moved = expire(tx, limit)
    fold_counts(tx)
    return moved + promote_rows(tx, tx.all("due_all", {"now": tx.now, "limit": limit}))


def promote_rows(tx: Transaction, rows: list[Row]) -> int:
    """Put jobs that were taken out because they are due into the order of their queues."""
    if not rows:
        return 0
    places = [
        tx.place(queue, ready_at, priority, failures, deadline_at)
        for _, queue, _, ready_at, priority, failures, deadline_at in rows
    ]
    values = {
        "ids": [row[0] for row in rows],
        "ranks": [where.rank for where in places],
        "capped": [where.capped for where in places],
        "rescores": [where.rescore_at for where in places],
        "now": tx.now,
    }
    tx.run("promote", values)
    for (queue, state), jobs in Counter((row[1], row[2]) for row in rows).items():
        tx.move(queue, STATES[state], JobState.PENDING, jobs)
    tx.has_news = True
    return len(rows)


def expire(tx: Transaction, limit: int) -> int:
    """Cancel waiting jobs that were not started in time."""
    return end_expired(tx, tx.all("expired", {"limit": limit}))


def end_expired(tx: Transaction, rows: list[Row]) -> int:
    """Cancel jobs that were taken out because they were not started in time."""
    return end_waiting(tx, rows, JobState.CANCELLED, "expired", EventKind.EXPIRED)


def bury_queue(tx: Transaction, queue: QueueName, limit: int) -> int:
    """Move waiting jobs of a dropped queue to the dead letters."""
    rows = tx.all("stragglers", {"queue": queue, "limit": limit})
    return end_waiting(tx, rows, JobState.DEAD, "queue dropped", EventKind.DROPPED)


def end_waiting(
    tx: Transaction,
    rows: Sequence[Row],
    state: JobState,
    reason: str,
    event: EventKind,
    actor: str | None = None,
) -> int:
    """Move jobs, given as (id, state), whose narrow rows are out, to the finished or the dead."""
    if not rows:
        return 0
    old = {job_id: STATES[was] for job_id, was in rows}
    values = {"ids": sorted(old), "reason": reason, "now": tx.now}
    ended = tx.all("bury_waiting" if state is JobState.DEAD else "finish_waiting", values)
    tx.free_keys((row[0], row[1], row[2]) for row in ended)
    queues = {job_id: queue for job_id, queue, _ in ended}
    detail = reason if event is EventKind.CANCEL else ""
    for job_id, before in old.items():
        tx.move(queues[job_id], before, state)
        tx.record(Event(kind=event, job_id=job_id, queue=queues[job_id], actor=actor, detail=detail))
    return len(ended)


def rescore(tx: Transaction, limit: int) -> int:
    """New places for jobs whose time for it has come, and for those of queues with new scoring."""
    rows = tx.all("rescore_due", {"now": tx.now, "limit": limit})
    _rescore_rows(tx, rows)
    if rows:
        tx.run("rescore_drop", {"ids": [row[0] for row in rows], "now": tx.now})
    looked = len(rows)
    for row in tx.all("reordering"):
        if looked < limit:
            looked += _reorder(tx, queue_from_row(row), row[4], limit - looked)
    return looked + _look_at_old(tx, limit - looked)


def _look_at_old(tx: Transaction, limit: int) -> int:
    """Give jobs that have waited for half of the shortest cap their entry among those to be rescored.

    Nearly every job has run by then, so nearly none pays for an entry. Jobs are walked through by seq, which
    is nearly the order in which they came; the walk ends at the first that is too young.
    """
    caps = [queue.settings.scoring.cap_ms for queue in all_queues(tx) if queue.settings.max_aging_bonus]
    if not caps or limit <= 0:
        return 0
    (walked_to,) = tx.one("walked_to", {"name": CAP_WALK}) or (0,)
    young = tx.now - min(caps) // 2
    rows = tx.all("walk_next", {"after": walked_to, "limit": min(limit, WALK_STEP)})
    old = list(takewhile(lambda row: row[9] <= young, rows))
    if old:
        _rescore_rows(tx, old)
        tx.run("walk_save", {"name": CAP_WALK, "walked_to": old[-1][1]})
    return len(old)


def _rescore_rows(tx: Transaction, rows: Sequence[Row]) -> None:
    """New places for those among these jobs that still wait where they were looked at."""
    if not rows:
        return
    places = [
        tx.place(queue, ready_at, priority, failures, deadline_at)
        for _, _, queue, ready_at, priority, failures, deadline_at, *_ in rows
    ]
    values = {
        "ids": [row[0] for row in rows],
        "seqs": [row[1] for row in rows],
        "queues": [row[2] for row in rows],
        "old_ranks": [row[7] for row in rows],
        "old_capped": [row[8] for row in rows],
        "ranks": [where.rank for where in places],
        "capped": [where.capped for where in places],
        "rescores": [where.rescore_at for where in places],
    }
    tx.run("rescore", values)
    tx.run("rescore_gated", values)


def _reorder(tx: Transaction, queue: Queue, reordered_to: int, limit: int) -> int:
    """Walk on by seq. Whatever enters the order behind the walk already has its place by the new scoring."""
    rows = tx.all("walk_next", {"after": reordered_to, "limit": limit})
    _rescore_rows(tx, [row for row in rows if row[2] == queue.name])
    is_done = len(rows) < limit
    tx.save_queue(replace(queue, reordering=not is_done), None if is_done else rows[-1][1])
    return len(rows)


def prune(tx: Transaction, limit: int) -> int:
    """Forget what is past its retention, in all queues."""
    pruned = 0
    for queue in all_queues(tx):
        settings = queue.settings
        for table, keep_ms in (("finished", settings.keep_finished_ms), ("dead", settings.keep_dead_ms)):
            if keep_ms and pruned < limit:
                pruned += _prune_table(tx, queue, table, tx.now - keep_ms, limit - pruned)
        if settings.keep_archive_ms:
            before = tx.now - settings.keep_archive_ms
            tx.run("archive_prune", {"queue": queue.name, "before": before, "limit": limit})
    tx.run("keys_prune", {"now": tx.now, "limit": limit})
    tx.run("events_prune", {"before": tx.now - AUDIT_MS, "limit": limit})
    tx.run("workers_prune", {"before": tx.now - WORKERS_MS})
    tx.run("commands_prune", {"before": tx.now - COMMANDS_KEPT_MS})
    fold_counts(tx)
    return pruned


def _prune_table(tx: Transaction, queue: Queue, table: str, before: int, limit: int) -> int:
    rows = tx.all(f"prune_{table}", {"queue": queue.name, "before": before, "limit": limit})
    rows.sort(key=lambda row: (row[6], row[0]))
    if queue.settings.archive:
        for row in rows:
            tx.run("archive_add", _archive_line(row))
    forget_history(tx, [row[1] for row in rows])
    for state, jobs in Counter(row[4] for row in rows).items():
        tx.count(queue.name, STATES[state], -jobs)
    return len(rows)


def forget_history(tx: Transaction, ids: Sequence[JobId]) -> None:
    """The attempts, events and notes of jobs go with them."""
    if ids:
        tx.run("history_remove", {"ids": list(ids)})


def fold_counts(tx: Transaction) -> None:
    """Bring what transactions have changed into the counters; one at a time is enough."""
    if tx.one("counts_fold_lock") == (True,):
        tx.run("counts_fold", {"limit": FOLDED})


def _archive_line(row: Row) -> dict[str, object]:
    _, job_id, queue, task, state, created_at, finished_at, started_at, *rest = row
    attempt, failures, reason, excerpt = rest
    return {
        "id": job_id,
        "queue": queue,
        "task": task,
        "state": state,
        "created_at": created_at,
        "finished_at": finished_at,
        "day": datetime.fromtimestamp(finished_at / 1_000, UTC).strftime("%Y-%m-%d"),
        "duration_ms": None if started_at is None else finished_at - started_at,
        "attempt": attempt,
        "failures": failures,
        # A result is bytes and may be cut in the middle of a sign; a text cannot hold a NUL.
        "excerpt": "" if excerpt is None else _text_of(excerpt),
        "reason": reason,
    }


def _text_of(excerpt: bytes) -> str:
    return excerpt.decode(errors="replace").replace("\x00", "\N{SYMBOL FOR NULL}")[:EXCERPT]


def all_queues(tx: Transaction) -> list[Queue]:
    """Every queue, dropped ones too."""
    return [queue_from_row(row) for row in tx.all("queues")]
