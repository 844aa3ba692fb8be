"""Maintenance tasks: promote, expire, rescore, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.enqueue_rates import FULL_AFTER_MS
from forebay.domain.fairness import fairness_lane
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_history import AUDIT_RETENTION_MS, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue, QueueSettings
from forebay.domain.worker_command import COMMAND_RETENTION_MS
from forebay.stores.postgres import concurrency_and_rate_limits
from forebay.stores.postgres.claim_cursor import HEAD
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.job_ends_and_removal import end_waiting, remove_history
from forebay.stores.postgres.low_water_marks import (
    COUNTS,
    DUE,
    EVENTS,
    EXPIRED,
    FULL_SCAN_MS,
    KEYS,
    LATE_NUMBERS,
    LOWEST,
    OUTBOX,
    RESCORE,
    SCAN,
    STEP,
    TOP,
    LowWaterMarks,
)
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import (
    STATES,
    Row,
    fairness_key_in,
    queue_from_row,
)

WORKER_RETENTION_MS: Final = DAY_MS
EXCERPT: Final = 200
AGE_CAP_SCAN: Final = "age cap scan"
SCAN_STEP: Final = 200
LAST_SCAN: Final = 2**61  # added to the seqs of the last scan of a rescore
FOLD_LIMIT: Final = 10_000


class PromoteResult(NamedTuple):
    """Number of expired and promoted jobs, and whether the outbox has entries."""

    jobs: int
    has_outbox_entries: bool


def promote(tx: Transaction, limit: int) -> PromoteResult:
    """Expire and promote jobs in all queues.

    Queries are sent together, here and below: mostly there is nothing to do, and an idle worker spends its
    time on maintenance tasks.
    """
    marks = LowWaterMarks(tx, (EXPIRED, DUE, COUNTS, OUTBOX))
    expired_rows = tx.run("expired", {"limit": limit})
    due_rows = tx.run(
        "delayed_take_due_all", {"since": marks.since(DUE, tx.now), "now": tx.now, "limit": limit}
    )
    staggered = tx.run("staggered_queues")
    outbox_state = tx.run("outbox_scan_state", {"since": marks.since(OUTBOX, TOP)})
    may_fold = tx.run("counts_fold_lock")
    expired = end_expired(tx, expired_rows.fetchall())
    if expired < limit:
        marks.advance(EXPIRED, tx.now, tx.now)
    rows = due_rows.fetchall()
    marks.advance(DUE, tx.now, tx.now if rows[0][7] is None else rows[0][7])
    promoted = promote_rows(tx, [row for row in rows if row[0] is not None])
    for (name,) in staggered.fetchall():
        promoted += promote_rows(
            tx, tx.all("delayed_take_due", {"queue": name, "since": HEAD.rank, "limit": limit})
        )
    if may_fold.fetchone() == (True,):
        _fold_counts(tx, marks)
    lowest = _advance_outbox_mark(tx, marks, *(outbox_state.fetchone() or (None, 0, None, False)))
    marks.save()
    return PromoteResult(expired + promoted, lowest is not None)


def _advance_outbox_mark(
    tx: Transaction,
    water_marks: LowWaterMarks,
    lowest: int | None,
    last: int,
    marked: int | None,
    is_writing: bool,
) -> int | None:
    """Advance the low-water mark of the outbox; return its lowest entry.

    Jobs wait for these entries, so this mark must be exact, and is found as that of the counts: a caller
    transaction may stay open for long. Nor does it pass a locked entry: its transaction may roll back.
    """
    reached = marked if marked is None or lowest is None else min(marked, lowest)
    water_marks.advance(OUTBOX, TOP, reached, late=LATE_NUMBERS)
    if not is_writing and last >= (marked or 0) + STEP:
        tx.run("scan_mark_save", {"name": "scan mark of outbox", "scan_position": last})
    return lowest


def _find_scan_end(positions: Iterable[int], limit: int, top: int) -> int:
    """Return the position below which a scan has left nothing.

    Fewer rows than the limit mean that there are no more: the limit counts rows after locked ones were
    passed over (SKIP LOCKED).
    """
    values = list(positions)
    return max(values) if len(values) >= limit else top


def promote_rows(tx: Transaction, rows: list[Row]) -> int:
    """Put due jobs into the main order of their queues, or into the lanes of their fairness keys."""
    if not rows:
        return 0
    fairness_keys = [fairness_key_in(row[-1]) for row in rows]
    for is_fair in (False, True):
        part = [
            (row, key) for row, key in zip(rows, fairness_keys, strict=True) if (key is not None) is is_fair
        ]
        if part:
            _promote_group(tx, [row for row, _ in part], [key for _, key in part if key is not None])
    for (queue, state), jobs in Counter((row[1], row[2]) for row in rows).items():
        tx.count_moved(queue, STATES[state], JobState.PENDING, jobs)
    tx.needs_wakeup = True
    return len(rows)


def _promote_group(tx: Transaction, rows: Sequence[Row], fairness_keys: Sequence[str]) -> None:
    """Promote jobs that all have a fairness key, or all have none."""
    ranks = [
        tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        for _, queue, _, ready_at, priority, failures, deadline_at, *_ in rows
    ]
    values = {
        "ids": [row[0] for row in rows],
        "ranks": [rank.rank for rank in ranks],
        "age_capped": [rank.age_capped for rank in ranks],
        "rescores": [rank.rescore_at for rank in ranks],
        "now": tx.now,
    }
    if fairness_keys:
        tx.run("promote_fair", {**values, "lanes": list(map(fairness_lane, fairness_keys))})
        mark_pending(tx, zip((row[1] for row in rows), fairness_keys, strict=True))
    else:
        tx.run("promote", values)


def expire(tx: Transaction, limit: int) -> int:
    """Cancel waiting jobs that were not started in time."""
    return end_expired(tx, tx.all("expired", {"limit": limit}))


def end_expired(tx: Transaction, rows: list[Row]) -> int:
    """Cancel jobs whose narrow rows `expired` has removed."""
    return _end_all(tx, rows, JobState.CANCELLED, "expired", EventKind.EXPIRED)


def move_queue_to_dead(tx: Transaction, queue: QueueName, limit: int) -> int:
    """Move waiting jobs of a dropped queue to the dead letters."""
    rows = tx.all("dropped_queue_jobs", {"queue": queue, "limit": limit})
    return _end_all(tx, rows, JobState.DEAD, "queue dropped", EventKind.DROPPED)


def _end_all(tx: Transaction, rows: Sequence[Row], state: JobState, reason: str, event: EventKind) -> int:
    queues = end_waiting(tx, rows, state, reason)
    for job_id, queue in queues.items():
        tx.record(Event(kind=event, job_id=job_id, queue=queue))
    return len(queues)


def rescore(tx: Transaction, limit: int) -> int:
    """Compute the ranks of jobs whose rescore time has come, and of queues with changed scoring."""
    marks = LowWaterMarks(tx, (RESCORE, SCAN))
    due = tx.run("rescore_due", {"since": marks.since(RESCORE, tx.now), "now": tx.now, "limit": limit})
    rescoring = tx.run("rescoring_queues")
    queues = tx.run("queues")
    position = tx.run("scan_position", {"name": AGE_CAP_SCAN})
    rows = due.fetchall()
    if len(rows) < limit:
        marks.advance(RESCORE, tx.now, tx.now)
    _rescore_rows(tx, rows)
    if rows:
        tx.run("rescore_drop", {"ids": [row[0] for row in rows], "now": tx.now})
    scanned = len(rows)
    for row in rescoring.fetchall():
        if scanned < limit:
            scanned += _rescore_queue(tx, queue_from_row(row), row[4], limit - scanned)
    (scanned_to,) = position.fetchone() or (0,)
    scanned += _scan_aging_jobs(
        tx, marks, map(queue_from_row, queues.fetchall()), scanned_to, limit - scanned
    )
    marks.save()
    return scanned


def _scan_aging_jobs(
    tx: Transaction, water_marks: LowWaterMarks, queues: Iterable[Queue], scanned_to: int, limit: int
) -> int:
    """Set the rescore time of jobs that have waited for half of the shortest cap (age cap scan).

    Nearly every job has run by then, so nearly none pays for an index entry. Jobs are scanned by seq, nearly
    their insert order, up to the first that is too young. A scan from a low-water mark is not recorded as
    complete: a job that is committed late may still come in below.
    """
    cap_ms = shortest_cap_ms(queue.settings for queue in queues)
    if not cap_ms or limit <= 0:
        return 0
    young = tx.now - cap_ms // 2
    since = water_marks.since(SCAN, TOP)
    rows = tx.all("scan_next", {"after": max(scanned_to, since), "limit": min(limit, SCAN_STEP)})
    old = list(takewhile(lambda row: row[9] <= young, rows))
    reached = old[-1][1] if old else rows[0][1] if rows else None
    water_marks.advance(SCAN, TOP, reached, late=LATE_NUMBERS, full_scan_ms=max(cap_ms // 4, FULL_SCAN_MS))
    if old:
        _rescore_rows(tx, old)
        if since == LOWEST:
            tx.run("scan_save", {"name": AGE_CAP_SCAN, "scan_position": old[-1][1]})
    return len(old)


def shortest_cap_ms(settings: Iterable[QueueSettings]) -> int:
    """Return the shortest wait after which age adds nothing in one of these queues; 0 if there is no cap."""
    return min((some.scoring.cap_ms for some in settings if some.max_aging_bonus), default=0)


def _rescore_rows(tx: Transaction, rows: Sequence[Row], *, only_others: bool = False) -> None:
    """Compute new ranks of jobs that still wait where they were read; with `only_others` only wrong ranks."""
    ranks = [
        tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        for _, _, queue, ready_at, priority, failures, deadline_at, *_ in rows
    ]
    if only_others:
        moved = [nth for nth, row in enumerate(rows) if (row[8], row[7]) != ranks[nth][:2]]
        rows, ranks = [rows[nth] for nth in moved], [ranks[nth] for nth in moved]
    if not rows:
        return
    values = {
        "ids": [row[0] for row in rows],
        "seqs": [row[1] for row in rows],
        "queues": [row[2] for row in rows],
        "old_ranks": [row[7] for row in rows],
        "old_age_capped": [row[8] for row in rows],
        "ranks": [rank.rank for rank in ranks],
        "age_capped": [rank.age_capped for rank in ranks],
        "rescores": [rank.rescore_at for rank in ranks],
    }
    tx.run("rescore", values)
    tx.run("rescore_lane", values)


def has_concurrent_inserts(tx: Transaction) -> bool:
    """Return whether other transactions may be computing ranks of new jobs."""
    return (tx.one("active_writers") or (False,))[0] is True


def _rescore_queue(tx: Transaction, queue: Queue, at: int, limit: int) -> int:
    """Continue the rescore of a queue by seq.

    A job that enters behind the scan has a rank by the new scoring. An exception is a transaction that read
    the old scoring and commits after the scan has passed. If other transactions are writing when the first
    scan ends, all running ones are waited for: `at` is then the next xid, negated. A last scan follows for
    their jobs.
    """
    is_busy, oldest, next_xid = tx.one("active_writers") or (False, 0, 0)
    if at < 0 and is_busy and oldest < -at:
        return 0
    base = LAST_SCAN if at < 0 or at >= LAST_SCAN else 0
    rows = tx.all("scan_next", {"after": max(at - base, 0), "limit": limit})
    _rescore_rows(tx, [row for row in rows if row[2] == queue.name], only_others=base > 0)
    reached: int | None = None
    if len(rows) == limit:
        reached = base + rows[-1][1]
    elif is_busy and not base:
        reached = -next_xid
    tx.save_queue(replace(queue, is_rescoring=reached is not None), reached)
    return len(rows)


def prune(tx: Transaction, limit: int) -> int:
    """Delete data past its retention, in all queues."""
    queues = load_all_queues(tx)
    tables = [f"{table}:{queue.name}" for queue in queues for table in ("finished", "dead", "archive")]
    marks = LowWaterMarks(tx, (KEYS, EVENTS, COUNTS, *tables))
    pruned = 0
    for queue in queues:
        settings = queue.settings
        for table, keep_ms in (("finished", settings.keep_finished_ms), ("dead", settings.keep_dead_ms)):
            if keep_ms and pruned < limit:
                pruned += _prune_table(tx, marks, queue, table, tx.now - keep_ms, limit - pruned)
        if settings.keep_archive_ms:
            before = tx.now - settings.keep_archive_ms
            _prune_records(tx, marks, f"archive:{queue.name}", before, limit, {"queue": queue.name})
    _prune_records(tx, marks, KEYS, tx.now, limit)
    _prune_records(tx, marks, EVENTS, tx.now - AUDIT_RETENTION_MS, limit)
    tx.run("audit_prune", {"before": tx.now - AUDIT_RETENTION_MS, "limit": limit})
    tx.run("workers_prune", {"before": tx.now - WORKER_RETENTION_MS})
    tx.run("commands_prune", {"before": tx.now - COMMAND_RETENTION_MS})
    if tx.has_limits:
        concurrency_and_rate_limits.prune(tx)
    tx.run("rates_prune", {"before": tx.now - 2 * FULL_AFTER_MS})
    if tx.one("counts_fold_lock") == (True,):
        _fold_counts(tx, marks)
    marks.save()
    # Last, since claims of these queues wait until this transaction ends.
    if queues_locked := [queue for (queue,) in tx.all("fairness_try_lock")]:
        tx.run("fairness_keys_prune", {"queues": queues_locked})
    return pruned


def _prune_records(
    tx: Transaction,
    water_marks: LowWaterMarks,
    name: str,
    before: int,
    limit: int,
    params: Mapping[str, object] | None = None,
) -> None:
    """Delete old rows of a table that no other table refers to."""
    values = {**(params or {}), "since": water_marks.since(name, before), "before": before, "limit": limit}
    rows = tx.all(f"{name.partition(':')[0]}_prune", values)
    water_marks.advance(name, before, _find_scan_end((row[0] for row in rows), limit, before))


def _prune_table(
    tx: Transaction, water_marks: LowWaterMarks, queue: Queue, table: str, before: int, limit: int
) -> int:
    name = f"{table}:{queue.name}"
    values = {"queue": queue.name, "since": water_marks.since(name, before), "before": before, "limit": limit}
    rows = tx.all(f"prune_{table}", values)
    rows.sort(key=lambda row: (row[6], row[0]))
    water_marks.advance(name, before, _find_scan_end((row[6] for row in rows), limit, before))
    if queue.settings.archive:
        for row in rows:
            tx.run("archive_add", _archive_params(row))
    remove_history(tx, [row[1] for row in rows])
    tx.add_to_outbox_if_affected(
        [row[1] for row in rows if STATES[row[4]] is not JobState.COMPLETED], DependencyEvent.DELETED
    )
    for state, jobs in Counter(row[4] for row in rows).items():
        tx.count_removed(queue.name, STATES[state], jobs)
    return len(rows)


def _fold_counts(tx: Transaction, water_marks: LowWaterMarks) -> None:
    """Fold changes into the counters, under the lock of the folding: one transaction at a time is enough.

    This low-water mark must be exact, since readers start there too. So it is not the position reached, but
    an id that was marked before, once all transactions that were running then have ended: no other
    transaction has a lower one.
    """
    mark_query = tx.run("counts_scan_mark")
    values = {"since": water_marks.since(COUNTS, TOP), "limit": FOLD_LIMIT}
    folded, last = tx.one("counts_fold", values) or (0, None)
    marked, is_writing = mark_query.fetchone() or (None, False)
    reached = marked if folded < FOLD_LIMIT else None
    water_marks.advance(COUNTS, TOP, reached, late=LATE_NUMBERS, full_scan_ms=DAY_MS // 24)
    if not is_writing and (last or 0) >= (marked or 0) + STEP:
        tx.run("scan_mark_save", {"name": "scan mark of counts", "scan_position": last})


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
        # A result is bytes and may be cut within a character; a text cannot hold a NUL.
        "excerpt": "" if excerpt is None else _text_of(excerpt),
        "reason": reason,
    }


def _text_of(excerpt: bytes) -> str:
    return excerpt.decode(errors="replace").replace("\x00", "\N{SYMBOL FOR NULL}")[:EXCERPT]


def load_all_queues(tx: Transaction) -> list[Queue]:
    """Return every queue, dropped ones too."""
    return [queue_from_row(row) for row in tx.all("queues")]


def acquire_maintenance(tx: Transaction, name: str, every_ms: int) -> bool:
    return tx.one("acquire_maintenance", {"name": name, "every_ms": every_ms}) is not None
