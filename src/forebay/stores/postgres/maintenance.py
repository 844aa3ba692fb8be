"""What is done by the clock: promote, expire, rescore, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.domain.backpressure import FULL_AFTER_MS
from forebay.domain.dependencies import DependencyEvent
from forebay.domain.fairness import fairness_lane
from forebay.domain.history import AUDIT_RETENTION_MS, Event, EventKind
from forebay.domain.job import DAY_MS, JobId, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue, QueueSettings
from forebay.domain.worker import COMMAND_RETENTION_MS
from forebay.stores.postgres import limits
from forebay.stores.postgres.claim_cursor import HEAD
from forebay.stores.postgres.fairness import mark_pending
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
from forebay.stores.shared.rows import STATES, Row, fairness_key_in, queue_from_row

WORKER_RETENTION_MS: Final = DAY_MS
EXCERPT: Final = 200
AGE_CAP_SCAN: Final = "age cap scan"
SCAN_STEP: Final = 200
LAST_SCAN: Final = 2**61  # added to the seqs of the last walk of a reordering
FOLD_LIMIT: Final = 10_000


class PromoteResult(NamedTuple):
    """How many jobs were expired and promoted, and whether the list of what the ends of jobs mean for others
    holds anything."""

    jobs: int
    has_outbox_entries: bool


def promote(tx: Transaction, limit: int) -> PromoteResult:
    """Expire and promote in all queues. Looks are sent together, here and below: mostly there is nothing to
    do, and what an idle worker spends is the time of its duties."""
    floors = LowWaterMarks(tx, (EXPIRED, DUE, COUNTS, OUTBOX))
    late = tx.run("expired", {"limit": limit})
    due = tx.run("delayed_take_due_all", {"since": floors.since(DUE, tx.now), "now": tx.now, "limit": limit})
    staggered = tx.run("staggered_queues")
    lines = tx.run("outbox_scan_state", {"since": floors.since(OUTBOX, TOP)})
    may_fold = tx.run("counts_fold_lock")
    expired = end_expired(tx, late.fetchall())
    if expired < limit:
        floors.advance(EXPIRED, tx.now, tx.now)
    rows = due.fetchall()
    floors.advance(DUE, tx.now, tx.now if rows[0][7] is None else rows[0][7])
    promoted = promote_rows(tx, [row for row in rows if row[0] is not None])
    for (name,) in staggered.fetchall():
        promoted += promote_rows(
            tx, tx.all("delayed_take_due", {"queue": name, "since": HEAD.rank, "limit": limit})
        )
    if may_fold.fetchone() == (True,):
        _fold_counts(tx, floors)
    lowest = _advance_outbox_mark(tx, floors, *(lines.fetchone() or (None, 0, None, False)))
    floors.save()
    return PromoteResult(expired + promoted, lowest is not None)


def _advance_outbox_mark(
    tx: Transaction,
    water_marks: LowWaterMarks,
    lowest: int | None,
    last: int,
    marked: int | None,
    is_under_way: bool,
) -> int | None:
    """Keep the floor of the list of what the ends of jobs mean for others; answers its lowest line.

    Jobs wait for these lines, so this floor must be right, and is found as that of the counts: a caller's
    own transaction may be open for long. Nor does it pass a line that is in other hands: they may give up.
    """
    reached = marked if marked is None or lowest is None else min(marked, lowest)
    water_marks.advance(OUTBOX, TOP, reached, late=LATE_NUMBERS)
    if not is_under_way and last >= (marked or 0) + STEP:
        tx.run("scan_mark_save", {"name": "scan mark of outbox", "scan_position": last})
    return lowest


def _find_scan_end(found: Iterable[int], limit: int, top: int) -> int:
    """Up to where a look has left nothing, from what it has found.

    Less than the limit means that there was no more: the statements count after they have passed over what
    others hold, not before.
    """
    values = list(found)
    return max(values) if len(values) >= limit else top


def promote_rows(tx: Transaction, rows: list[Row]) -> int:
    """Put jobs that were taken out because they are due into the order of their queues, or behind the gates
    of their shares."""
    if not rows:
        return 0
    shares = [fairness_key_in(row[-1]) for row in rows]
    for is_shared in (False, True):
        some = [
            (row, share) for row, share in zip(rows, shares, strict=True) if (share is not None) is is_shared
        ]
        if some:
            _promote_group(tx, [row for row, _ in some], [share for _, share in some if share is not None])
    for (queue, state), jobs in Counter((row[1], row[2]) for row in rows).items():
        tx.count_moved(queue, STATES[state], JobState.PENDING, jobs)
    tx.needs_wakeup = True
    return len(rows)


def _promote_group(tx: Transaction, rows: Sequence[Row], fairness_keys: Sequence[str]) -> None:
    """All of these have a share, or none has."""
    places = [
        tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        for _, queue, _, ready_at, priority, failures, deadline_at, *_ in rows
    ]
    values = {
        "ids": [row[0] for row in rows],
        "ranks": [where.rank for where in places],
        "age_capped": [where.age_capped for where in places],
        "rescores": [where.rescore_at for where in places],
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
    """Cancel jobs that were taken out because they were not started in time."""
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


def end_waiting(
    tx: Transaction, rows: Sequence[Row], state: JobState, reason: str
) -> Mapping[JobId, QueueName]:
    """Move jobs, given as (id, state), whose narrow rows are out, to the finished or the dead; answers their
    queues, in the same order."""
    if not rows:
        return {}
    old = {job_id: STATES[was] for job_id, was in rows}
    values = {"ids": sorted(old), "reason": reason, "now": tx.now}
    ended = tx.all("mark_dead_waiting" if state is JobState.DEAD else "finish_waiting", values)
    tx.release_keys((row[0], row[1], row[2]) for row in ended)
    tx.outbox_ids += (ended[0][3] or ()) if ended else ()
    queues = {row[0]: row[1] for row in ended}
    for job_id, before in old.items():
        tx.count_moved(queues[job_id], before, state)
    return {job_id: queues[job_id] for job_id in old}


def rescore(tx: Transaction, limit: int) -> int:
    """New places for jobs whose time for it has come, and for those of queues with new scoring."""
    floors = LowWaterMarks(tx, (RESCORE, SCAN))
    due = tx.run("rescore_due", {"since": floors.since(RESCORE, tx.now), "now": tx.now, "limit": limit})
    reordering = tx.run("rescoring_queues")
    queues = tx.run("queues")
    walked = tx.run("scan_position", {"name": AGE_CAP_SCAN})
    rows = due.fetchall()
    if len(rows) < limit:
        floors.advance(RESCORE, tx.now, tx.now)
    _rescore_rows(tx, rows)
    if rows:
        tx.run("rescore_drop", {"ids": [row[0] for row in rows], "now": tx.now})
    looked = len(rows)
    for row in reordering.fetchall():
        if looked < limit:
            looked += _rescore_queue(tx, queue_from_row(row), row[4], limit - looked)
    (walked_to,) = walked.fetchone() or (0,)
    looked += _scan_aging_jobs(tx, floors, map(queue_from_row, queues.fetchall()), walked_to, limit - looked)
    floors.save()
    return looked


def _scan_aging_jobs(
    tx: Transaction, water_marks: LowWaterMarks, queues: Iterable[Queue], scanned_to: int, limit: int
) -> int:
    """Give jobs that have waited for half of the shortest cap their entry among those to be rescored.

    Nearly every job has run by then, so nearly none pays for an entry. Jobs are walked through by seq, which
    is nearly the order in which they came; the walk ends at the first that is too young. From a floor it does
    not count as walked: a job that was long in being committed may still come in below.
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
    """The shortest wait after which age earns nothing more in one of these queues; 0 if it always does."""
    return min((some.scoring.cap_ms for some in settings if some.max_aging_bonus), default=0)


def _rescore_rows(tx: Transaction, rows: Sequence[Row], *, only_others: bool = False) -> None:
    """New places for those among these jobs that still wait where they were looked at; with `only_others` for
    those that stand elsewhere than they should."""
    places = [
        tx.compute_rank(queue, ready_at, priority, failures, deadline_at)
        for _, _, queue, ready_at, priority, failures, deadline_at, *_ in rows
    ]
    if only_others:
        moved = [nth for nth, row in enumerate(rows) if (row[8], row[7]) != places[nth][:2]]
        rows, places = [rows[nth] for nth in moved], [places[nth] for nth in moved]
    if not rows:
        return
    values = {
        "ids": [row[0] for row in rows],
        "seqs": [row[1] for row in rows],
        "queues": [row[2] for row in rows],
        "old_ranks": [row[7] for row in rows],
        "old_age_capped": [row[8] for row in rows],
        "ranks": [where.rank for where in places],
        "age_capped": [where.age_capped for where in places],
        "rescores": [where.rescore_at for where in places],
    }
    tx.run("rescore", values)
    tx.run("rescore_lane", values)


def has_concurrent_inserts(tx: Transaction) -> bool:
    """Whether others may be giving jobs their places just now."""
    return (tx.one("active_writers") or (False,))[0] is True


def _rescore_queue(tx: Transaction, queue: Queue, at: int, limit: int) -> int:
    """Walk on by seq. Whatever enters the order behind the walk has its place by the new scoring, unless it
    comes from a transaction that has looked at the old one, and is committed when the walk has passed. So if
    others are writing when the first walk ends, all that are under way then are waited for (`at` is the next
    transaction, below zero), and there is a last walk, for what they have left.
    """
    is_busy, oldest, coming = tx.one("active_writers") or (False, 0, 0)
    if at < 0 and is_busy and oldest < -at:
        return 0
    base = LAST_SCAN if at < 0 or at >= LAST_SCAN else 0
    rows = tx.all("scan_next", {"after": max(at - base, 0), "limit": limit})
    _rescore_rows(tx, [row for row in rows if row[2] == queue.name], only_others=base > 0)
    reached: int | None = None
    if len(rows) == limit:
        reached = base + rows[-1][1]
    elif is_busy and not base:
        reached = -coming
    tx.save_queue(replace(queue, is_rescoring=reached is not None), reached)
    return len(rows)


def prune(tx: Transaction, limit: int) -> int:
    """Forget what is past its retention, in all queues."""
    queues = load_all_queues(tx)
    tables = [f"{table}:{queue.name}" for queue in queues for table in ("finished", "dead", "archive")]
    floors = LowWaterMarks(tx, (KEYS, EVENTS, COUNTS, *tables))
    pruned = 0
    for queue in queues:
        settings = queue.settings
        for table, keep_ms in (("finished", settings.keep_finished_ms), ("dead", settings.keep_dead_ms)):
            if keep_ms and pruned < limit:
                pruned += _prune_table(tx, floors, queue, table, tx.now - keep_ms, limit - pruned)
        if settings.keep_archive_ms:
            before = tx.now - settings.keep_archive_ms
            _prune_records(tx, floors, f"archive:{queue.name}", before, limit, {"queue": queue.name})
    _prune_records(tx, floors, KEYS, tx.now, limit)
    _prune_records(tx, floors, EVENTS, tx.now - AUDIT_RETENTION_MS, limit)
    tx.run("audit_prune", {"before": tx.now - AUDIT_RETENTION_MS, "limit": limit})
    tx.run("workers_prune", {"before": tx.now - WORKER_RETENTION_MS})
    tx.run("commands_prune", {"before": tx.now - COMMAND_RETENTION_MS})
    if tx.has_limits:
        limits.prune(tx)
    tx.run("rates_prune", {"before": tx.now - 2 * FULL_AFTER_MS})
    if tx.one("counts_fold_lock") == (True,):
        _fold_counts(tx, floors)
    floors.save()
    # Last: claims of these queues wait until this transaction ends.
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
    """Forget rows of a table beside the jobs, about which nothing else is known."""
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


def remove_history(tx: Transaction, ids: Sequence[JobId]) -> None:
    """The attempts, events and notes of jobs go with them, and the edges to their parents."""
    if ids:
        tx.run("history_remove", {"ids": list(ids)})


def _fold_counts(tx: Transaction, water_marks: LowWaterMarks) -> None:
    """Bring what transactions have changed into the counters, under the lock for it: one at a time is enough.

    This floor must be right, since readers begin there, too. So it is not what was reached, but a number that
    was marked before, once all who were under way then have ended: nobody else has a lower one.
    """
    marks = tx.run("counts_scan_mark")
    values = {"since": water_marks.since(COUNTS, TOP), "limit": FOLD_LIMIT}
    folded, last = tx.one("counts_fold", values) or (0, None)
    marked, is_under_way = marks.fetchone() or (None, False)
    reached = marked if folded < FOLD_LIMIT else None
    water_marks.advance(COUNTS, TOP, reached, late=LATE_NUMBERS, full_scan_ms=DAY_MS // 24)
    if not is_under_way and (last or 0) >= (marked or 0) + STEP:
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
        # A result is bytes and may be cut in the middle of a sign; a text cannot hold a NUL.
        "excerpt": "" if excerpt is None else _text_of(excerpt),
        "reason": reason,
    }


def _text_of(excerpt: bytes) -> str:
    return excerpt.decode(errors="replace").replace("\x00", "\N{SYMBOL FOR NULL}")[:EXCERPT]


def load_all_queues(tx: Transaction) -> list[Queue]:
    """Every queue, dropped ones too."""
    return [queue_from_row(row) for row in tx.all("queues")]
