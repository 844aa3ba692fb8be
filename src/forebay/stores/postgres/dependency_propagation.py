"""Dependency outbox: propagate job ends to dependants, in transactions of its own.

The transaction that ends a job adds an outbox entry. The same handle propagates it right after; if it does
not come to that, a promotion does. It is another transaction on purpose. Two batches that end at once may
release the same jobs, and would wait for each other with locks on their ended jobs.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

import psycopg

from forebay.domain.dependencies import (
    END_EVENTS,
    PROPAGATION_BATCH,
    UNMET_STATES,
    DependencyEvent,
    Edge,
    EdgeState,
    edge_transition,
    parent_reason,
)
from forebay.domain.fairness import fairness_lane
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import JobState, is_final
from forebay.domain.rank import QueueRank
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.postgres import sequential_jobs
from forebay.stores.postgres.dependency_edges import CHECK, lock_parent_states
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.job_actions import revive
from forebay.stores.postgres.job_ends_and_removal import end_waiting
from forebay.stores.postgres.low_water_marks import LOWEST, OUTBOX, TOP, LowWaterMarks
from forebay.stores.postgres.maintenance import AGE_CAP_SCAN, shortest_cap_ms
from forebay.stores.postgres.row_locks import lock_jobs
from forebay.stores.postgres.transaction import Transaction, affected_edge_states
from forebay.stores.shared.rows import Row, edge_from_row, fairness_key_in

logger: logging.Logger = logging.getLogger(__name__)

ENTRIES: Final = 200  # outbox entries per query
PAGES: Final = 20  # queries of one transaction, if some entries wait for busy parents
# Identical children released by one statement, without their ids. Not fewer than PROPAGATION_BATCH: fewer
# edges than that mean that the outbox is empty.
IDENTICAL_AT_ONCE: Final = 2_000
SAMPLED: Final = 20  # children that are compared to see whether they are identical


class PropagationResult(NamedTuple):
    """Number of resolved edges, outbox entries left, and whether jobs were released."""

    edges: int
    left: list[int]
    has_released: bool


class LockedOutboxEntry(NamedTuple):
    """Outbox entry that this transaction has locked, with its last resolved edge."""

    id: int
    job_id: JobId
    cursor_child_id: str
    cursor_position: int


class BlockedGroup(NamedTuple):
    """Identical blocked jobs whose rows this transaction has locked."""

    ids: list[JobId]
    unmet: int
    queue: QueueName
    priority: int
    failures: int
    deadline_at: int | None
    run_at: int
    created_at: int
    is_scanned: bool  # by the age cap scan
    options: str | None

    def rescore_at(self, queue_rank: QueueRank, ready_at: int, cap_ms: int) -> int | None:
        """Return when the rank must be computed again.

        Nearly every job runs before its age is capped. The age cap scan finds the others by seq, as it does
        for jobs that were never blocked. It reaches no job before half of the shortest cap of all queues, so
        it does not pass a young one at this very moment.
        """
        if queue_rank.rescore_at is None or self.deadline_at is not None or self.is_scanned:
            return queue_rank.rescore_at
        is_young = 4 * (ready_at - self.created_at) < cap_ms
        return None if is_young else queue_rank.rescore_at


class ReleaseGroup(NamedTuple):
    """Key of identical jobs that one statement releases."""

    queue: QueueName
    priority: int
    ready_at: int
    queue_rank: QueueRank
    fairness_key: str | None


def propagate_all(tx: Transaction) -> PropagationResult:
    """Propagate outbox entries from the low-water mark on.

    Entries that wait for an open caller transaction stay at the beginning. So this continues behind them, and
    passes over all entries that wait for the same parents.
    """
    since, edges = LowWaterMarks(tx, (OUTBOX,)).since(OUTBOX, TOP), 0
    for _ in range(PAGES):
        values = {"limit": ENTRIES, "since": since, "busy": sorted(tx.busy_parents)}
        rows = tx.all("outbox_lock_next", values)
        edges += _propagate_entries(tx, rows, PROPAGATION_BATCH - edges)
        if not tx.busy_parents or len(rows) < ENTRIES or edges >= PROPAGATION_BATCH:
            break
        since = rows[-1][0] + 1
    pending, tx.outbox_ids = tx.outbox_ids, []
    rest = (
        propagate(tx, pending)
        if pending and edges < PROPAGATION_BATCH
        else PropagationResult(0, pending, False)
    )
    return PropagationResult(edges + rest.edges, rest.left, _has_released(tx))


def _has_released(tx: Transaction) -> bool:
    return tx.has_new_jobs or tx.needs_wakeup


def propagate(tx: Transaction, entry_ids: Sequence[int]) -> PropagationResult:
    """Propagate these outbox entries, up to `PROPAGATION_BATCH` edges.

    A failure that spreads from job to job is propagated in the same transaction. Only then are locks taken
    out of order; if two such failures deadlock, one of them is rolled back and retried.
    """
    edges = 0
    wanted = sorted(entry_ids)
    while wanted and edges < PROPAGATION_BATCH:
        rows = tx.all("outbox_lock_ids", {"ids": wanted, "limit": ENTRIES})
        edges += _propagate_entries(tx, rows, PROPAGATION_BATCH - edges)
        locked = {row[0] for row in rows}
        # An entry that was not locked may have waited for one that was; or another transaction has it.
        left = [entry_id for entry_id in wanted if locked and entry_id not in locked]
        wanted, tx.outbox_ids = [*left, *tx.outbox_ids], []
    is_done = edges < PROPAGATION_BATCH
    return PropagationResult(edges, [] if is_done else [*entry_ids, *wanted], _has_released(tx))


def _propagate_entries(tx: Transaction, rows: Sequence[Row], room: int) -> int:
    """Propagate outbox entries; consecutive entries of one event together."""
    # For all entries before the first edge, so that the locks of sequences come first, and in one order.
    _move_up(tx, sequential_jobs.leave(tx, [row[1] for row in rows if row[2] in END_EVENTS and row[5]]))
    edges = 0
    for event, group in groupby(rows, key=lambda row: row[2]):
        if edges >= room:
            break
        entries = [LockedOutboxEntry(entry_id, job_id, *cursor) for entry_id, job_id, _, *cursor, _ in group]
        if event == CHECK:
            edges += _check(tx, entries)
        elif event == DependencyEvent.COMPLETED:
            edges += _resolve_completed(tx, entries, room - edges)
        else:
            edges += _resolve_edges(tx, DependencyEvent(event), entries, room - edges)
    return edges


def _check(tx: Transaction, entries: Sequence[LockedOutboxEntry]) -> int:
    """Check the parents of jobs that were inserted in a caller transaction.

    A live parent is locked, so it ends after us and finds the edge open. A completed or missing parent
    resolves these edges only: its other edges are resolved already and not stored as met, so another outbox
    entry would lower `unmet` of their children once more. Entries of jobs with a parent that an open caller
    transaction completes stay, with these edges as they are.

    A missing parent had completed, unless it was deleted before: it existed when its child was inserted, and
    no edge protected it from pruning.
    """
    child_ids = [entry.job_id for entry in entries]
    _move_up(tx, sequential_jobs.assign_positions(tx, child_ids))
    parents = [parent for (parent,) in tx.all("unchecked_parents", {"child_ids": child_ids})]
    states, busy = lock_parent_states(tx, parents)
    tx.busy_parents |= busy
    deleted = _find_deleted(tx, [parent for parent in parents if parent not in states and parent not in busy])
    rows = tx.all("edges_unchecked", {"child_ids": sorted(child_ids)}) if parents else []
    settled: dict[DependencyEvent, list[Row]] = {DependencyEvent.COMPLETED: [], DependencyEvent.DELETED: []}
    live_ctids: list[str] = []
    waiting = {row[0] for row in rows if row[2] in busy}
    for row in rows:
        if row[2] in busy:
            continue
        event = DependencyEvent.DELETED if row[2] in deleted else _event_for_state(states.get(row[2]))
        if event in settled:
            settled[event].append(row)
        else:
            live_ctids.append(row[5])
    if live_ctids:
        tx.run("edges_set", {"state": EdgeState.OPEN.value, "ctids": live_ctids})
    for event, edge_rows in settled.items():
        edges = _write_edges(tx, event, edge_rows)
        if edges:
            _move_children(tx, event, edges)
    checked = [parent for parent in parents if parent not in busy]
    failed = [(parent, event) for parent in checked if (event := _event_for_state(states.get(parent)))]
    tx.add_to_outbox([(parent, event.value) for parent, event in failed if event not in settled])
    done = [entry for entry in entries if entry.job_id not in waiting]
    _remove(tx, done)
    return len(done)


def _find_deleted(tx: Transaction, gone: Sequence[JobId]) -> set[JobId]:
    return {parent for (parent,) in tx.all("deleted_among", {"job_ids": gone})} if gone else set()


def _remove(tx: Transaction, entries: Sequence[LockedOutboxEntry], states: Sequence[str] = ()) -> None:
    """Remove entries none of whose edges is in one of these states any more."""
    tx.run("outbox_remove_all", {"ids": [entry.id for entry in entries], "states": list(states)})


def _move_up(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Release jobs that are the first of their sequences now.

    A job that has ended meanwhile leaves its sequence with its own outbox entry.
    """
    blocked = _lock_blocked(tx, sorted(ids)) if ids else []
    _decrement_and_release(tx, blocked, dict.fromkeys(ids, 1))


def _event_for_state(state: JobState | None) -> DependencyEvent | None:
    """Return the event for a parent in this state; None if it is live. A missing parent had completed."""
    if state is None:
        return DependencyEvent.COMPLETED
    return DependencyEvent(state.value) if is_final(state) else None


def _resolve_completed(tx: Transaction, entries: Sequence[LockedOutboxEntry], room: int) -> int:
    """Resolve completed jobs, the most frequent event: it means the same for all of their edges.

    The edges stay as they are, and only `unmet` of their children is lowered. That happens once for each
    edge, since its entry is removed, or moves its cursor behind the edge, in this transaction.
    """
    resolved = 0
    while entries and resolved < room:
        done, edges = _resolve_batch(tx, entries, room - resolved)
        resolved += max(edges, 1)
        entries = entries[done:]
    return resolved


def _resolve_batch(tx: Transaction, entries: Sequence[LockedOutboxEntry], room: int) -> tuple[int, int]:
    """Resolve some entries; return how many, and the number of their edges."""
    # Only an entry with a cursor has enough children for this query to pay off.
    if entries[0].cursor_child_id and (released := _release_identical(tx, entries[0], room)):
        _advance_entry(tx, entries[0], released, IDENTICAL_AT_ONCE)
        return 1, released.edges
    met = _load_met_children(tx, entries, room + (len(entries) > 1))
    # Halve the batch until it is not too large. Locks taken in vain are held for a short time.
    while met.edges > room:
        entries = entries[: len(entries) // 2]
        met = _load_met_children(tx, entries, room + (len(entries) > 1))
    _apply_met(tx, met)
    if len(entries) == 1:
        _advance_entry(tx, entries[0], met, room)
    else:
        _remove(tx, entries)
    return len(entries), met.edges


def _advance_entry(tx: Transaction, entry: LockedOutboxEntry, met: MetDependencies, room: int) -> None:
    """Remove an entry if all of its edges are resolved, or store its cursor."""
    if met.edges == room:
        cursor = {"cursor_child_id": met.last_child, "cursor_position": met.last_position}
        tx.run("outbox_set_cursor", {"id": entry.id, **cursor})
    else:
        _remove(tx, [entry])


def _release_identical(tx: Transaction, entry: LockedOutboxEntry, room: int) -> MetDependencies | None:
    """Release the next children of a job with more of them than one transaction takes, by one statement.

    It is for identical children; a few others are resolved one by one. None if most differ, or too many:
    identical ones may be released then, and all others are unchanged.
    """
    cursor = {
        "parent_id": entry.job_id,
        "cursor_child_id": entry.cursor_child_id,
        "cursor_position": entry.cursor_position,
    }
    samples = tx.all("children_identical", {**cursor, "sample": SAMPLED, "now": tx.now})
    if len(samples) != 1:
        return None
    [(queue, priority, failures, deadline_at, options)] = samples
    if deadline_at is not None or fairness_key_in(options) is not None:
        return None
    cap_ms = shortest_cap_ms(tx.load_scorings([queue]))
    queue_rank = tx.compute_rank(queue, tx.now, priority, failures, None)
    common = {"queue": queue, "priority": priority, "failures": failures, "options": options, "now": tx.now}
    age_limits = {
        "created_after": LOWEST if queue_rank.rescore_at is None else tx.now - cap_ms // 4,
        "scan": AGE_CAP_SCAN,
    }
    new_rank = {"rank": queue_rank.rank, "age_capped": queue_rank.age_capped, "limit": IDENTICAL_AT_ONCE}
    [(edges, child, number, released, still_blocked)] = tx.all(
        "release_identical", {**cursor, **common, **age_limits, **new_rank}
    )
    if released:
        tx.count_moved(queue, JobState.BLOCKED, JobState.PENDING, released)
        tx.has_new_jobs = True
    if still_blocked > room:
        return None
    met = (
        _load_met_children(tx, [entry], IDENTICAL_AT_ONCE)
        if still_blocked
        else MetDependencies(edges, child, number, [])
    )
    _apply_met(tx, met)
    return met


def _apply_met(tx: Transaction, met: MetDependencies) -> None:
    """Lower `unmet` of children by the number of their met edges."""
    blocked = [group for _, group in met.blocked]
    _decrement_and_release(tx, blocked, {child: edges for edges, group in met.blocked for child in group.ids})


class MetDependencies(NamedTuple):
    """Open edges of completed jobs: number, last edge, and blocked children by number of edges."""

    edges: int
    last_child: JobId | None
    last_position: int | None
    blocked: list[tuple[int, BlockedGroup]]


def _load_met_children(tx: Transaction, entries: Sequence[LockedOutboxEntry], limit: int) -> MetDependencies:
    values = {
        "parent_ids": [entry.job_id for entry in entries],
        "cursor_child_ids": [entry.cursor_child_id for entry in entries],
        "cursor_positions": [entry.cursor_position for entry in entries],
    }
    rows = tx.all("children_of_completed", {**values, "limit": limit, "scan": AGE_CAP_SCAN})
    edges, child, number, *_ = rows[0] if rows else (0, None, None)
    return MetDependencies(
        edges, child, number, [(row[3], BlockedGroup(*row[4:])) for row in rows if row[3] is not None]
    )


def _resolve_edges(
    tx: Transaction, event: DependencyEvent, entries: Sequence[LockedOutboxEntry], room: int
) -> int:
    """Resolve the edges of jobs with one event other than a completion."""
    states = affected_edge_states(event)
    values = {"parent_ids": [entry.job_id for entry in entries], "states": states, "limit": room}
    order = {entry.job_id: index for index, entry in enumerate(entries)}
    rows = tx.all("edges_from_parents", values)
    rows.sort(key=lambda row: (order[row[2]], row[0], row[1]))
    edges = _write_edges(tx, event, rows)
    if event is DependencyEvent.CANCEL:
        # Before the entries of their ends, which would follow the failure rules of the edges; and for all
        # children: dependants of an uncommitted insert, for which a child's end waits, are not visible yet.
        tx.add_to_outbox([(child, event.value) for child in sorted({edge.child for edge in edges})])
    if event is DependencyEvent.REVIVE:
        _revive(tx, edges)
    elif edges:
        _move_children(tx, event, edges)
    _remove(tx, entries, states)
    return max(len(edges), 1)


def _write_edges(tx: Transaction, event: DependencyEvent, rows: Sequence[Row]) -> list[Edge]:
    """Store the new states of locked edges; return the edges as they were."""
    edges = [edge_from_row(row) for row in rows]
    ctids: dict[EdgeState, list[str]] = defaultdict(list)
    for row, edge in zip(rows, edges, strict=True):
        ctids[edge_transition(event, edge.on_failure).edge].append(row[5])
    for state, of_state in ctids.items():
        tx.run("edges_set", {"state": state.value, "ctids": of_state})
    return edges


def _revive(tx: Transaction, edges: Sequence[Edge]) -> None:
    failed = dict.fromkeys(edge.child for edge in edges if edge.state is EdgeState.FAILED)
    ended, _ = lock_jobs(tx, failed)
    jobs = [ended[child] for child in failed if child in ended]
    revive(tx, jobs, ReviveOptions(dependants=True), with_parent=True)


def _move_children(tx: Transaction, event: DependencyEvent, edges: Sequence[Edge]) -> None:
    """End or release the children of resolved edges.

    A child that has ended meanwhile finds its edges in their new state if it is revived.
    """
    blocked = _lock_blocked(tx, sorted({edge.child for edge in edges}))
    ids = {child for group in blocked for child in group.ids}
    met: Counter[JobId] = Counter()
    ends: dict[JobId, tuple[JobState, str]] = {}
    for edge in edges:
        new_state, end = edge_transition(event, edge.on_failure)
        if edge.child not in ids:
            continue
        if end is not None:
            ends.setdefault(edge.child, (end, parent_reason(event, edge.parent)))
        met[edge.child] += (edge.state in UNMET_STATES) - (new_state in UNMET_STATES)
    _end(tx, ends)
    for child in ends:
        del met[child]
    _decrement_and_release(tx, blocked, met)


def _decrement_and_release(
    tx: Transaction, blocked: Sequence[BlockedGroup], met: Mapping[JobId, int]
) -> None:
    """Lower `unmet` of these jobs; release those that reach zero.

    A number below zero is a bug, or comes from a manual change of the tables. The job is released all the
    same: a negative number would be refused, and the outbox would be stuck.
    """
    decremented: dict[JobId, int] = {}
    released_groups: list[BlockedGroup] = []
    for group in blocked:
        new_unmet = [(child, group.unmet - met[child]) for child in group.ids if child in met]
        decremented |= {child: unmet for child, unmet in new_unmet if unmet > 0 and met[child]}
        if released := [child for child, unmet in new_unmet if unmet <= 0]:
            released_groups.append(group._replace(ids=released))
        for child, unmet in new_unmet:
            if unmet < 0:
                logger.error("job %s was blocked by %d edges too few; it is released", child, -unmet)
    _decrement_unmet(tx, decremented)
    _release(tx, released_groups)


def _lock_blocked(tx: Transaction, ids: list[JobId]) -> list[BlockedGroup]:
    return [BlockedGroup(*row) for row in tx.all("blocked_among", {"ids": ids, "scan": AGE_CAP_SCAN})]


def _end(tx: Transaction, ends: dict[JobId, tuple[JobState, str]]) -> None:
    if not ends:
        return
    tx.run("blocked_remove", {"ids": sorted(ends)})
    for (state, reason), children in _group_ends(ends):
        rows = [(child, JobState.BLOCKED.value) for child in children]
        for child, queue in end_waiting(tx, rows, state, reason).items():
            tx.record(Event(kind=EventKind.PARENT_FAILED, job_id=child, queue=queue, detail=reason))


def _group_ends(
    ends: dict[JobId, tuple[JobState, str]],
) -> Iterator[tuple[tuple[JobState, str], list[JobId]]]:
    groups: dict[tuple[JobState, str], list[JobId]] = defaultdict(list)
    for child, end in ends.items():
        groups[end].append(child)
    yield from groups.items()


def _decrement_unmet(tx: Transaction, unmet: dict[JobId, int]) -> None:
    if unmet:
        ids = sorted(unmet)
        tx.run("blocked_decrement", {"ids": ids, "unmet": [unmet[child] for child in ids]})


def _release(tx: Transaction, jobs: list[BlockedGroup]) -> None:
    """Make blocked jobs pending or scheduled, by one statement for each group of identical ones."""
    if not jobs:
        return
    cap_ms = shortest_cap_ms(tx.load_scorings({job.queue for job in jobs}))
    groups: defaultdict[ReleaseGroup, list[JobId]] = defaultdict(list)
    compute = cache(tx.compute_rank)
    for job in jobs:
        ready_at, fairness_key = max(job.run_at, tx.now), None
        queue_rank = compute(job.queue, ready_at, job.priority, job.failures, job.deadline_at)
        if ready_at > tx.now:
            queue_rank = QueueRank(False, queue_rank.rank, None)
        else:
            queue_rank = queue_rank._replace(rescore_at=job.rescore_at(queue_rank, ready_at, cap_ms))
            fairness_key = fairness_key_in(job.options)
        groups[ReleaseGroup(job.queue, job.priority, ready_at, queue_rank, fairness_key)] += job.ids
    if len(groups) > 1:
        tx.run("release_lock", {"ids": sorted(child for job in jobs for child in job.ids)})
    # All are sent before the first result is read.
    results = {group: _send_release(tx, group, ids) for group, ids in groups.items()}
    mark_pending(tx, ((group.queue, group.fairness_key) for group in groups if group.ready_at <= tx.now))
    tx.has_new_jobs = True
    updated: list[JobId] = []
    for group, result in results.items():
        [(released,)] = result.fetchall()
        state = JobState.PENDING if group.ready_at <= tx.now else JobState.SCHEDULED
        tx.count_moved(group.queue, JobState.BLOCKED, state, released)
        if released < len(groups[group]):
            updated += groups[group]
    if updated:
        # Once more, and not for ever: their blocked rows are locked, so no update changes them any more.
        _release(tx, _lock_blocked(tx, sorted(updated)))


def _send_release(tx: Transaction, group: ReleaseGroup, ids: list[JobId]) -> psycopg.Cursor[Row]:
    lane = None if group.fairness_key is None else fairness_lane(group.fairness_key)
    values = {"ids": sorted(ids), "ready_at": group.ready_at, "lane": lane, "now": tx.now}
    return tx.run("release", {**group.queue_rank._asdict(), **values, "priority": group.priority})
