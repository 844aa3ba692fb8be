"""The list of what the ends of jobs mean for others, worked through in transactions of its own.

The transaction that ends a job puts it on the list. What that means is done right after, by the same handle;
if that does not come to it, by whoever promotes. Not in the same transaction: two batches that end at once
may release the same jobs, and would hold what they have ended while they wait for each other.
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
from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.rank import QueueRank
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.postgres import sequences
from forebay.stores.postgres.admin import revive
from forebay.stores.postgres.edges import CHECK, lock_parent_states
from forebay.stores.postgres.fairness import mark_pending
from forebay.stores.postgres.low_water_marks import LOWEST, OUTBOX, TOP, LowWaterMarks
from forebay.stores.postgres.maintenance import AGE_CAP_SCAN, end_waiting, shortest_cap_ms
from forebay.stores.postgres.row_locks import lock_jobs
from forebay.stores.postgres.transaction import Transaction, affected_edge_states
from forebay.stores.shared.rows import Row, edge_from_row, fairness_key_in

logger: logging.Logger = logging.getLogger(__name__)

ENTRIES: Final = 200  # of the list, at a time
PAGES: Final = 20  # of so many lines in one transaction, where some of them wait for others
# Children that stand alike, where nobody is told which they are. Not fewer than PROPAGATION_BATCH: whoever
# has
# looked at fewer edges is through with the list.
IDENTICAL_AT_ONCE: Final = 2_000
SAMPLED: Final = 20  # of them are looked at to see how they stand


class PropagationResult(NamedTuple):
    """How many edges were settled, which lines of the list are left of those that were asked for, and whether
    jobs wait now that did not before."""

    edges: int
    left: list[int]
    has_released: bool


class LockedOutboxEntry(NamedTuple):
    """A line of the list that this transaction holds, and the edge up to which it is done."""

    id: int
    job_id: JobId
    cursor_child_id: str
    cursor_position: int


class BlockedGroup(NamedTuple):
    """Blocked jobs that this transaction holds and that stand alike."""

    ids: list[JobId]
    unmet: int
    queue: QueueName
    priority: int
    failures: int
    deadline_at: int | None
    run_at: int
    created_at: int
    is_scanned: bool  # by the duty that looks at old jobs
    options: str | None

    def rescore_at(self, queue_rank: QueueRank, ready_at: int, cap_ms: int) -> int | None:
        """When its place has to be worked out again. Nearly every job runs before its age is capped; one that
        does not is found by its number, as those are that were never blocked. The duty comes past no job
        before half of the shortest cap of all queues, so it does not come past a young one at this very
        moment."""
        if queue_rank.rescore_at is None or self.deadline_at is not None or self.is_scanned:
            return queue_rank.rescore_at
        is_young = 4 * (ready_at - self.created_at) < cap_ms
        return None if is_young else queue_rank.rescore_at


class ReleaseGroup(NamedTuple):
    """How jobs that stand alike begin to wait."""

    queue: QueueName
    priority: int
    ready_at: int
    queue_rank: QueueRank
    fairness_key: str | None


def propagate_all(tx: Transaction) -> PropagationResult:
    """Work on the list from its beginning, or from the floor below which nothing was left of it.

    Lines that wait for a caller's open transaction stay at the beginning. So we go on behind them, and pass
    by what waits for the same parents, however many those are.
    """
    since, edges = LowWaterMarks(tx, (OUTBOX,)).since(OUTBOX, TOP), 0
    for _ in range(PAGES):
        values = {"limit": ENTRIES, "since": since, "busy": sorted(tx.busy_parents)}
        rows = tx.all("outbox_lock_next", values)
        edges += _propagate_entries(tx, rows, PROPAGATION_BATCH - edges)
        if not tx.busy_parents or len(rows) < ENTRIES or edges >= PROPAGATION_BATCH:
            break
        since = rows[-1][0] + 1
    listed, tx.outbox_ids = tx.outbox_ids, []
    more = (
        propagate(tx, listed) if listed and edges < PROPAGATION_BATCH else PropagationResult(0, listed, False)
    )
    return PropagationResult(edges + more.edges, more.left, _has_released(tx))


def _has_released(tx: Transaction) -> bool:
    return tx.has_new_jobs or tx.needs_wakeup


def propagate(tx: Transaction, numbers: Sequence[int]) -> PropagationResult:
    """Work on some lines of the list, up to `PROPAGATION_BATCH` edges.

    A failure that goes from job to job is followed in the same transaction. Only then are locks taken that
    may not be in the order of others; where two such failures meet, one of them gives way and is tried again.
    """
    looked_at = 0
    wanted = sorted(numbers)
    while wanted and looked_at < PROPAGATION_BATCH:
        rows = tx.all("outbox_lock_ids", {"ids": wanted, "limit": ENTRIES})
        looked_at += _propagate_entries(tx, rows, PROPAGATION_BATCH - looked_at)
        taken = {row[0] for row in rows}
        # What was not given to us may have waited for what was; or it is in other hands, and theirs.
        left = [number for number in wanted if taken and number not in taken]
        wanted, tx.outbox_ids = [*left, *tx.outbox_ids], []
    is_over = looked_at < PROPAGATION_BATCH
    return PropagationResult(looked_at, [] if is_over else [*numbers, *wanted], _has_released(tx))


def _propagate_entries(tx: Transaction, rows: Sequence[Row], room: int) -> int:
    """Do what lines of the list ask for; lines that say the same and follow each other at once."""
    # For all lines before the first edge, so that the locks that ends need come first, and in one order.
    _move_up(tx, sequences.leave(tx, [row[1] for row in rows if row[2] in END_EVENTS and row[5]]))
    looked_at = 0
    for aftermath, alike in groupby(rows, key=lambda row: row[2]):
        if looked_at >= room:
            break
        lines = [LockedOutboxEntry(number, parent, *after) for number, parent, _, *after, _ in alike]
        if aftermath == CHECK:
            looked_at += _check(tx, lines)
        elif aftermath == DependencyEvent.COMPLETED:
            looked_at += _resolve_completed(tx, lines, room - looked_at)
        else:
            looked_at += _resolve_edges(tx, DependencyEvent(aftermath), lines, room - looked_at)
    return looked_at


def _check(tx: Transaction, entries: Sequence[LockedOutboxEntry]) -> int:
    """Look at the parents of jobs that came in a transaction of their caller's.

    One that lives is held, and so ends after us and finds the edge open. What has completed or is gone says
    so to these edges alone: others that lead from it were told, and are not written, so a line of the list
    would lower the numbers of their children once more. Lines of jobs with a parent that a caller's open
    transaction completes stay on the list, with these edges as they are.

    A parent that is gone had completed, unless it was deleted before that: it was there when its child was
    inserted, and no edge kept it from being forgotten.
    """
    children = [line.job_id for line in entries]
    _move_up(tx, sequences.assign_positions(tx, children))
    parents = [parent for (parent,) in tx.all("unchecked_parents", {"child_ids": children})]
    states, busy = lock_parent_states(tx, parents)
    tx.busy_parents |= busy
    deleted = _find_deleted(tx, [parent for parent in parents if parent not in states and parent not in busy])
    rows = tx.all("edges_unchecked", {"child_ids": sorted(children)}) if parents else []
    settled: dict[DependencyEvent, list[Row]] = {DependencyEvent.COMPLETED: [], DependencyEvent.DELETED: []}
    still: list[str] = []
    waiting = {row[0] for row in rows if row[2] in busy}
    for row in rows:
        if row[2] in busy:
            continue
        word = DependencyEvent.DELETED if row[2] in deleted else _event_for_state(states.get(row[2]))
        if word in settled:
            settled[word].append(row)
        else:
            still.append(row[5])
    if still:
        tx.run("edges_set", {"state": EdgeState.OPEN.value, "ctids": still})
    for aftermath, some in settled.items():
        edges = _write_edges(tx, aftermath, some)
        if edges:
            _move_children(tx, aftermath, edges)
    looked_at = [parent for parent in parents if parent not in busy]
    failed = [(parent, word) for parent in looked_at if (word := _event_for_state(states.get(parent)))]
    tx.add_to_outbox([(parent, word.value) for parent, word in failed if word not in settled])
    done = [line for line in entries if line.job_id not in waiting]
    _remove(tx, done)
    return len(done)


def _find_deleted(tx: Transaction, gone: Sequence[JobId]) -> set[JobId]:
    return {parent for (parent,) in tx.all("deleted_among", {"job_ids": gone})} if gone else set()


def _remove(tx: Transaction, entries: Sequence[LockedOutboxEntry], states: Sequence[str] = ()) -> None:
    """Strike out lines of whose edges none is in one of these states any more."""
    tx.run("outbox_remove_all", {"ids": [line.id for line in entries], "states": list(states)})


def _move_up(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Jobs that are the first of their sequences now; those that somebody has ended meanwhile leave in their
    turn."""
    blocked = _lock_blocked(tx, sorted(ids)) if ids else []
    _decrement_and_release(tx, blocked, dict.fromkeys(ids, 1))


def _event_for_state(state: JobState | None) -> DependencyEvent | None:
    """What the state of a parent means for its children; None if it lives. One that is gone had completed."""
    if state is None:
        return DependencyEvent.COMPLETED
    return DependencyEvent(state.value) if is_final(state) else None


def _resolve_completed(tx: Transaction, entries: Sequence[LockedOutboxEntry], room: int) -> int:
    """What most lines say: jobs have completed, and that means the same for all edges that lead from them.

    The edges stay as they are, and only the numbers of those that block a child are lowered. That is done
    once for each edge, because the line that asks for it goes, or moves behind the edge, in this transaction.
    """
    looked_at = 0
    while entries and looked_at < room:
        done, edges = _resolve_batch(tx, entries, room - looked_at)
        looked_at += max(edges, 1)
        entries = entries[done:]
    return looked_at


def _resolve_batch(tx: Transaction, entries: Sequence[LockedOutboxEntry], room: int) -> tuple[int, int]:
    """How many lines that was about, and how many edges."""
    # Only a line that is begun already has so many children that this is worth its look.
    if entries[0].cursor_child_id and (alike := _release_identical(tx, entries[0], room)):
        _advance_entry(tx, entries[0], alike, IDENTICAL_AT_ONCE)
        return 1, alike.edges
    met = _load_met_children(tx, entries, room + (len(entries) > 1))
    # Half of them, and half of these, until they are not too many. What is held in vain is let go of soon.
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
    """Strike a line out if all of its edges were looked at, or say up to which of them it is done."""
    if met.edges == room:
        after = {"cursor_child_id": met.last_child, "cursor_position": met.last_position}
        tx.run("outbox_set_cursor", {"id": entry.id, **after})
    else:
        _remove(tx, [entry])


def _release_identical(tx: Transaction, entry: LockedOutboxEntry, room: int) -> MetDependencies | None:
    """Release the next children of a job that has more of them than one transaction takes, by one statement
    if they stand alike; a few that do not are told like all others. None if most do not, or too many: those
    that do may be released then, and all others are as they were."""
    values = {
        "parent_id": entry.job_id,
        "cursor_child_id": entry.cursor_child_id,
        "cursor_position": entry.cursor_position,
    }
    kinds = tx.all("children_identical", {**values, "sample": SAMPLED, "now": tx.now})
    if len(kinds) != 1:
        return None
    [(queue, priority, failures, deadline_at, options)] = kinds
    if deadline_at is not None or fairness_key_in(options) is not None:
        return None
    cap_ms = shortest_cap_ms(tx.load_scorings([queue]))
    where = tx.compute_rank(queue, tx.now, priority, failures, None)
    how = {"queue": queue, "priority": priority, "failures": failures, "options": options, "now": tx.now}
    young = {
        "created_after": LOWEST if where.rescore_at is None else tx.now - cap_ms // 4,
        "scan": AGE_CAP_SCAN,
    }
    place = {"rank": where.rank, "age_capped": where.age_capped, "limit": IDENTICAL_AT_ONCE}
    [(edges, child, number, released, left)] = tx.all(
        "release_identical", {**values, **how, **young, **place}
    )
    if released:
        tx.count_moved(queue, JobState.BLOCKED, JobState.PENDING, released)
        tx.has_new_jobs = True
    if left > room:
        return None
    met = (
        _load_met_children(tx, [entry], IDENTICAL_AT_ONCE)
        if left
        else MetDependencies(edges, child, number, [])
    )
    _apply_met(tx, met)
    return met


def _apply_met(tx: Transaction, met: MetDependencies) -> None:
    """Lower the numbers of edges that block jobs by those that are met."""
    blocked = [jobs for _, jobs in met.blocked]
    _decrement_and_release(tx, blocked, {child: edges for edges, jobs in met.blocked for child in jobs.ids})


class MetDependencies(NamedTuple):
    """Edges that lead from jobs that have completed: how many, the last of them, and the jobs that they
    block, with how many edges of each those are."""

    edges: int
    last_child: JobId | None
    last_position: int | None
    blocked: list[tuple[int, BlockedGroup]]


def _load_met_children(tx: Transaction, entries: Sequence[LockedOutboxEntry], limit: int) -> MetDependencies:
    values = {
        "parent_ids": [line.job_id for line in entries],
        "cursor_child_ids": [line.cursor_child_id for line in entries],
        "cursor_positions": [line.cursor_position for line in entries],
    }
    rows = tx.all("children_of_completed", {**values, "limit": limit, "scan": AGE_CAP_SCAN})
    edges, child, number, *_ = rows[0] if rows else (0, None, None)
    return MetDependencies(
        edges, child, number, [(row[3], BlockedGroup(*row[4:])) for row in rows if row[3] is not None]
    )


def _resolve_edges(
    tx: Transaction, event: DependencyEvent, entries: Sequence[LockedOutboxEntry], room: int
) -> int:
    """Settle edges that lead from some jobs to which the same has happened."""
    states = affected_edge_states(event)
    values = {"parent_ids": [line.job_id for line in entries], "states": states, "limit": room}
    order = {line.job_id: place for place, line in enumerate(entries)}
    rows = tx.all("edges_from_parents", values)
    rows.sort(key=lambda row: (order[row[2]], row[0], row[1]))
    edges = _write_edges(tx, event, rows)
    if event is DependencyEvent.CANCEL:
        # Before the lines of their ends, which would go by what the edges say; and whether or not any job
        # depends on them: those of an insert that a child's end waits for are not seen yet.
        tx.add_to_outbox([(child, event.value) for child in sorted({edge.child for edge in edges})])
    if event is DependencyEvent.REVIVE:
        _revive(tx, edges)
    elif edges:
        _move_children(tx, event, edges)
    _remove(tx, entries, states)
    return max(len(edges), 1)


def _write_edges(tx: Transaction, event: DependencyEvent, rows: Sequence[Row]) -> list[Edge]:
    """Write how edges stand from now on that this transaction holds; as they were."""
    edges = [edge_from_row(row) for row in rows]
    spots: dict[EdgeState, list[str]] = defaultdict(list)
    for row, edge in zip(rows, edges, strict=True):
        spots[edge_transition(event, edge.on_failure).edge].append(row[5])
    for state, places in spots.items():
        tx.run("edges_set", {"state": state.value, "ctids": places})
    return edges


def _revive(tx: Transaction, edges: Sequence[Edge]) -> None:
    failed = dict.fromkeys(edge.child for edge in edges if edge.state is EdgeState.FAILED)
    ended, _ = lock_jobs(tx, failed)
    jobs = [ended[child] for child in failed if child in ended]
    revive(tx, jobs, ReviveOptions(dependants=True), with_parent=True)


def _move_children(tx: Transaction, event: DependencyEvent, edges: Sequence[Edge]) -> None:
    """End or release the children of edges that are settled; those that somebody has ended meanwhile find
    their edges as they are now if they are revived."""
    blocked = _lock_blocked(tx, sorted({edge.child for edge in edges}))
    ids = {child for jobs in blocked for child in jobs.ids}
    met: Counter[JobId] = Counter()
    ends: dict[JobId, tuple[JobState, str]] = {}
    for edge in edges:
        into, end = edge_transition(event, edge.on_failure)
        if edge.child not in ids:
            continue
        if end is not None:
            ends.setdefault(edge.child, (end, parent_reason(event, edge.parent)))
        met[edge.child] += (edge.state in UNMET_STATES) - (into in UNMET_STATES)
    _end(tx, ends)
    for child in ends:
        del met[child]
    _decrement_and_release(tx, blocked, met)


def _decrement_and_release(
    tx: Transaction, blocked: Sequence[BlockedGroup], met: Mapping[JobId, int]
) -> None:
    """So many edges fewer block each of these; release those that nothing blocks any more.

    A number that is too low already is a fault of ours, or of who wrote to the tables by hand. The job is
    released all the same: a number below zero is refused, and nothing else on the list would be done.
    """
    fewer: dict[JobId, int] = {}
    free: list[BlockedGroup] = []
    for jobs in blocked:
        left = [(child, jobs.unmet - met[child]) for child in jobs.ids if child in met]
        fewer |= {child: unmet for child, unmet in left if unmet > 0 and met[child]}
        if released := [child for child, unmet in left if unmet <= 0]:
            free.append(jobs._replace(ids=released))
        for child, unmet in left:
            if unmet < 0:
                logger.error("job %s was blocked by %d edges too few; it is released", child, -unmet)
    _decrement_unmet(tx, fewer)
    _release(tx, free)


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
    """Let blocked jobs wait like any others, by one statement for those that stand alike."""
    if not jobs:
        return
    cap_ms = shortest_cap_ms(tx.load_scorings({job.queue for job in jobs}))
    alike: defaultdict[ReleaseGroup, list[JobId]] = defaultdict(list)
    place = cache(tx.compute_rank)
    for job in jobs:
        ready_at, share = max(job.run_at, tx.now), None
        where = place(job.queue, ready_at, job.priority, job.failures, job.deadline_at)
        if ready_at > tx.now:
            where = QueueRank(False, where.rank, None)
        else:
            where = where._replace(rescore_at=job.rescore_at(where, ready_at, cap_ms))
            share = fairness_key_in(job.options)
        alike[ReleaseGroup(job.queue, job.priority, ready_at, where, share)] += job.ids
    if len(alike) > 1:
        tx.run("release_lock", {"ids": sorted(child for job in jobs for child in job.ids)})
    # All, before one is waited for.
    answers = {how: _send_release(tx, how, ids) for how, ids in alike.items()}
    mark_pending(tx, ((how.queue, how.fairness_key) for how in alike if how.ready_at <= tx.now))
    tx.has_new_jobs = True
    amended: list[JobId] = []
    for how, answer in answers.items():
        [(released,)] = answer.fetchall()
        state = JobState.PENDING if how.ready_at <= tx.now else JobState.SCHEDULED
        tx.count_moved(how.queue, JobState.BLOCKED, state, released)
        if released < len(alike[how]):
            amended += alike[how]
    if amended:
        # Once more and not for ever: their blocked rows are held, so nobody amends them after this look.
        _release(tx, _lock_blocked(tx, sorted(amended)))


def _send_release(tx: Transaction, group: ReleaseGroup, ids: list[JobId]) -> psycopg.Cursor[Row]:
    gate = None if group.fairness_key is None else fairness_lane(group.fairness_key)
    values = {"ids": sorted(ids), "ready_at": group.ready_at, "lane": gate, "now": tx.now}
    return tx.run("release", {**group.queue_rank._asdict(), **values, "priority": group.priority})
