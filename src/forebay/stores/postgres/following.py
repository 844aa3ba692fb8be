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

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.rank import Place
from forebay.domain.share import fair_gate
from forebay.domain.workflow import (
    ENDS,
    RELEASED_AT_ONCE,
    WAITS,
    Aftermath,
    Edge,
    EdgeState,
    sequel,
    why_ended,
)
from forebay.stores.postgres import sequences
from forebay.stores.postgres.duties import CAP_WALK, end_waiting, shortest_cap_ms
from forebay.stores.postgres.edges import CHECK, held_states
from forebay.stores.postgres.floors import AFTERMATHS, LOWEST, TOP, Floors
from forebay.stores.postgres.holding import held_jobs
from forebay.stores.postgres.operating import revive
from forebay.stores.postgres.sharing import come
from forebay.stores.postgres.transaction import Transaction, concerned
from forebay.stores.reviving import Revival
from forebay.stores.rows import Row, edge_from_row, share_in

logger: logging.Logger = logging.getLogger(__name__)

LINES: Final = 200  # of the list, at a time
PAGES: Final = 20  # of so many lines in one transaction, where some of them wait for others
# Children that stand alike, where nobody is told which they are. Not fewer than RELEASED_AT_ONCE: whoever has
# looked at fewer edges is through with the list.
ALIKE_AT_ONCE: Final = 2_000
SHOWN: Final = 20  # of them are looked at to see how they stand


class Done(NamedTuple):
    """How many edges were settled, which lines of the list are left of those that were asked for, and whether
    jobs wait now that did not before."""

    edges: int
    left: list[int]
    has_released: bool


class Line(NamedTuple):
    """A line of the list that this transaction holds, and the edge up to which it is done."""

    number: int
    parent: JobId
    after_child: str
    after_number: int


class Blocked(NamedTuple):
    """Blocked jobs that this transaction holds and that stand alike."""

    ids: list[JobId]
    unmet: int
    queue: QueueName
    priority: int
    failures: int
    deadline_at: int | None
    run_at: int
    created_at: int
    is_walked_past: bool  # by the duty that looks at old jobs
    options: str | None

    def rescore_at(self, where: Place, ready_at: int, cap_ms: int) -> int | None:
        """When its place has to be worked out again. Nearly every job runs before its age is capped; one that
        does not is found by its number, as those are that were never blocked. The duty comes past no job
        before half of the shortest cap of all queues, so it does not come past a young one at this very
        moment."""
        if where.rescore_at is None or self.deadline_at is not None or self.is_walked_past:
            return where.rescore_at
        is_young = 4 * (ready_at - self.created_at) < cap_ms
        return None if is_young else where.rescore_at


class Release(NamedTuple):
    """How jobs that stand alike begin to wait."""

    queue: QueueName
    priority: int
    ready_at: int
    where: Place
    share: str | None


def follow_all(tx: Transaction) -> Done:
    """Work on the list from its beginning, or from the floor below which nothing was left of it.

    Lines that wait for a caller's open transaction stay at the beginning. So we go on behind them, and pass
    by what waits for the same parents, however many those are.
    """
    since, edges = Floors(tx, (AFTERMATHS,)).since(AFTERMATHS, TOP), 0
    for _ in range(PAGES):
        values = {"limit": LINES, "since": since, "busy": sorted(tx.busy_parents)}
        rows = tx.all("aftermaths_next", values)
        edges += _follow_lines(tx, rows, RELEASED_AT_ONCE - edges)
        if not tx.busy_parents or len(rows) < LINES or edges >= RELEASED_AT_ONCE:
            break
        since = rows[-1][0] + 1
    listed, tx.listed = tx.listed, []
    more = follow(tx, listed) if listed and edges < RELEASED_AT_ONCE else Done(0, listed, False)
    return Done(edges + more.edges, more.left, _has_released(tx))


def _has_released(tx: Transaction) -> bool:
    return tx.has_new_jobs or tx.has_news


def follow(tx: Transaction, numbers: Sequence[int]) -> Done:
    """Work on some lines of the list, up to `RELEASED_AT_ONCE` edges.

    A failure that goes from job to job is followed in the same transaction. Only then are locks taken that
    may not be in the order of others; where two such failures meet, one of them gives way and is tried again.
    """
    looked_at = 0
    wanted = sorted(numbers)
    while wanted and looked_at < RELEASED_AT_ONCE:
        rows = tx.all("aftermaths_of", {"numbers": wanted, "limit": LINES})
        looked_at += _follow_lines(tx, rows, RELEASED_AT_ONCE - looked_at)
        taken = {row[0] for row in rows}
        # What was not given to us may have waited for what was; or it is in other hands, and theirs.
        left = [number for number in wanted if taken and number not in taken]
        wanted, tx.listed = [*left, *tx.listed], []
    is_over = looked_at < RELEASED_AT_ONCE
    return Done(looked_at, [] if is_over else [*numbers, *wanted], _has_released(tx))


def _follow_lines(tx: Transaction, rows: Sequence[Row], room: int) -> int:
    """Do what lines of the list ask for; lines that say the same and follow each other at once."""
    # For all lines before the first edge, so that the locks that ends need come first, and in one order.
    _move_up(tx, sequences.leave(tx, [row[1] for row in rows if row[2] in ENDS and row[5]]))
    looked_at = 0
    for aftermath, alike in groupby(rows, key=lambda row: row[2]):
        if looked_at >= room:
            break
        lines = [Line(number, parent, *after) for number, parent, _, *after, _ in alike]
        if aftermath == CHECK:
            looked_at += _check(tx, lines)
        elif aftermath == Aftermath.COMPLETED:
            looked_at += _meet(tx, lines, room - looked_at)
        else:
            looked_at += _settle(tx, Aftermath(aftermath), lines, room - looked_at)
    return looked_at


def _check(tx: Transaction, lines: Sequence[Line]) -> int:
    """Look at the parents of jobs that came in a transaction of their caller's.

    One that lives is held, and so ends after us and finds the edge open. What has completed or is gone says
    so to these edges alone: others that lead from it were told, and are not written, so a line of the list
    would lower the numbers of their children once more. Lines of jobs with a parent that a caller's open
    transaction completes stay on the list, with these edges as they are.

    A parent that is gone had completed, unless it was deleted before that: it was there when its child was
    inserted, and no edge kept it from being forgotten.
    """
    children = [line.parent for line in lines]
    _move_up(tx, sequences.number(tx, children))
    parents = [parent for (parent,) in tx.all("unsure_parents", {"children": children})]
    states, busy = held_states(tx, parents)
    tx.busy_parents |= busy
    deleted = _deleted(tx, [parent for parent in parents if parent not in states and parent not in busy])
    rows = tx.all("edges_unsure", {"children": sorted(children)}) if parents else []
    settled: dict[Aftermath, list[Row]] = {Aftermath.COMPLETED: [], Aftermath.DELETED: []}
    still: list[str] = []
    waiting = {row[0] for row in rows if row[2] in busy}
    for row in rows:
        if row[2] in busy:
            continue
        word = Aftermath.DELETED if row[2] in deleted else _aftermath(states.get(row[2]))
        if word in settled:
            settled[word].append(row)
        else:
            still.append(row[5])
    if still:
        tx.run("edges_set", {"state": EdgeState.OPEN.value, "spots": still})
    for aftermath, some in settled.items():
        edges = _written(tx, aftermath, some)
        if edges:
            _move_children(tx, aftermath, edges)
    looked_at = [parent for parent in parents if parent not in busy]
    failed = [(parent, word) for parent in looked_at if (word := _aftermath(states.get(parent)))]
    tx.list_aftermaths([(parent, word.value) for parent, word in failed if word not in settled])
    done = [line for line in lines if line.parent not in waiting]
    _remove(tx, done)
    return len(done)


def _deleted(tx: Transaction, gone: Sequence[JobId]) -> set[JobId]:
    return {parent for (parent,) in tx.all("deleted_among", {"parents": gone})} if gone else set()


def _remove(tx: Transaction, lines: Sequence[Line], states: Sequence[str] = ()) -> None:
    """Strike out lines of whose edges none is in one of these states any more."""
    tx.run("aftermaths_remove", {"numbers": [line.number for line in lines], "states": list(states)})


def _move_up(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Jobs that are the first of their sequences now; those that somebody has ended meanwhile leave in their
    turn."""
    blocked = _blocked(tx, sorted(ids)) if ids else []
    _lower_by(tx, blocked, dict.fromkeys(ids, 1))


def _aftermath(state: JobState | None) -> Aftermath | None:
    """What the state of a parent means for its children; None if it lives. One that is gone had completed."""
    if state is None:
        return Aftermath.COMPLETED
    return Aftermath(state.value) if is_final(state) else None


def _meet(tx: Transaction, lines: Sequence[Line], room: int) -> int:
    """What most lines say: jobs have completed, and that means the same for all edges that lead from them.

    The edges stay as they are, and only the numbers of those that block a child are lowered. That is done
    once for each edge, because the line that asks for it goes, or moves behind the edge, in this transaction.
    """
    looked_at = 0
    while lines and looked_at < room:
        done, edges = _meet_some(tx, lines, room - looked_at)
        looked_at += max(edges, 1)
        lines = lines[done:]
    return looked_at


def _meet_some(tx: Transaction, lines: Sequence[Line], room: int) -> tuple[int, int]:
    """How many lines that was about, and how many edges."""
    # Only a line that is begun already has so many children that this is worth its look.
    if lines[0].after_child and (alike := _release_alike(tx, lines[0], room)):
        _go_behind(tx, lines[0], alike, ALIKE_AT_ONCE)
        return 1, alike.edges
    met = _children_met(tx, lines, room + (len(lines) > 1))
    # Half of them, and half of these, until they are not too many. What is held in vain is let go of soon.
    while met.edges > room:
        lines = lines[: len(lines) // 2]
        met = _children_met(tx, lines, room + (len(lines) > 1))
    _tell(tx, met)
    if len(lines) == 1:
        _go_behind(tx, lines[0], met, room)
    else:
        _remove(tx, lines)
    return len(lines), met.edges


def _go_behind(tx: Transaction, line: Line, met: Met, room: int) -> None:
    """Strike a line out if all of its edges were looked at, or say up to which of them it is done."""
    if met.edges == room:
        after = {"after_child": met.last_child, "after_number": met.last_number}
        tx.run("aftermath_move", {"number": line.number, **after})
    else:
        _remove(tx, [line])


def _release_alike(tx: Transaction, line: Line, room: int) -> Met | None:
    """Release the next children of a job that has more of them than one transaction takes, by one statement
    if they stand alike; a few that do not are told like all others. None if most do not, or too many: those
    that do may be released then, and all others are as they were."""
    values = {"parent": line.parent, "after_child": line.after_child, "after_number": line.after_number}
    kinds = tx.all("children_alike", {**values, "few": SHOWN, "now": tx.now})
    if len(kinds) != 1:
        return None
    [(queue, priority, failures, deadline_at, options)] = kinds
    if deadline_at is not None or share_in(options) is not None:
        return None
    cap_ms = shortest_cap_ms(tx.load_scorings([queue]))
    where = tx.place(queue, tx.now, priority, failures, None)
    how = {"queue": queue, "priority": priority, "failures": failures, "options": options, "now": tx.now}
    young = {"created_after": LOWEST if where.rescore_at is None else tx.now - cap_ms // 4, "walk": CAP_WALK}
    place = {"rank": where.rank, "capped": where.capped, "limit": ALIKE_AT_ONCE}
    [(edges, child, number, released, left)] = tx.all("release_alike", {**values, **how, **young, **place})
    if released:
        tx.move(queue, JobState.BLOCKED, JobState.PENDING, released)
        tx.has_new_jobs = True
    if left > room:
        return None
    met = _children_met(tx, [line], ALIKE_AT_ONCE) if left else Met(edges, child, number, [])
    _tell(tx, met)
    return met


def _tell(tx: Transaction, met: Met) -> None:
    """Lower the numbers of edges that block jobs by those that are met."""
    blocked = [jobs for _, jobs in met.blocked]
    _lower_by(tx, blocked, {child: edges for edges, jobs in met.blocked for child in jobs.ids})


class Met(NamedTuple):
    """Edges that lead from jobs that have completed: how many, the last of them, and the jobs that they
    block, with how many edges of each those are."""

    edges: int
    last_child: JobId | None
    last_number: int | None
    blocked: list[tuple[int, Blocked]]


def _children_met(tx: Transaction, lines: Sequence[Line], limit: int) -> Met:
    values = {
        "parents": [line.parent for line in lines],
        "after_children": [line.after_child for line in lines],
        "after_numbers": [line.after_number for line in lines],
    }
    rows = tx.all("children_met", {**values, "limit": limit, "walk": CAP_WALK})
    edges, child, number, *_ = rows[0] if rows else (0, None, None)
    return Met(edges, child, number, [(row[3], Blocked(*row[4:])) for row in rows if row[3] is not None])


def _settle(tx: Transaction, aftermath: Aftermath, lines: Sequence[Line], room: int) -> int:
    """Settle edges that lead from some jobs to which the same has happened."""
    states = concerned(aftermath)
    values = {"parents": [line.parent for line in lines], "states": states, "limit": room}
    order = {line.parent: place for place, line in enumerate(lines)}
    rows = tx.all("edges_behind", values)
    rows.sort(key=lambda row: (order[row[2]], row[0], row[1]))
    edges = _written(tx, aftermath, rows)
    if aftermath is Aftermath.CANCEL:
        # Before the lines of their ends, which would go by what the edges say; and whether or not any job
        # depends on them: those of an insert that a child's end waits for are not seen yet.
        tx.list_aftermaths([(child, aftermath.value) for child in sorted({edge.child for edge in edges})])
    if aftermath is Aftermath.REVIVE:
        _revive(tx, edges)
    elif edges:
        _move_children(tx, aftermath, edges)
    _remove(tx, lines, states)
    return max(len(edges), 1)


def _written(tx: Transaction, aftermath: Aftermath, rows: Sequence[Row]) -> list[Edge]:
    """Write how edges stand from now on that this transaction holds; as they were."""
    edges = [edge_from_row(row) for row in rows]
    spots: dict[EdgeState, list[str]] = defaultdict(list)
    for row, edge in zip(rows, edges, strict=True):
        spots[sequel(aftermath, edge.on_failure).edge].append(row[5])
    for state, places in spots.items():
        tx.run("edges_set", {"state": state.value, "spots": places})
    return edges


def _revive(tx: Transaction, edges: Sequence[Edge]) -> None:
    failed = dict.fromkeys(edge.child for edge in edges if edge.state is EdgeState.FAILED)
    ended, _ = held_jobs(tx, failed)
    jobs = [ended[child] for child in failed if child in ended]
    revive(tx, jobs, Revival(dependants=True), with_parent=True)


def _move_children(tx: Transaction, aftermath: Aftermath, edges: Sequence[Edge]) -> None:
    """End or release the children of edges that are settled; those that somebody has ended meanwhile find
    their edges as they are now if they are revived."""
    blocked = _blocked(tx, sorted({edge.child for edge in edges}))
    ids = {child for jobs in blocked for child in jobs.ids}
    met: Counter[JobId] = Counter()
    ends: dict[JobId, tuple[JobState, str]] = {}
    for edge in edges:
        into, end = sequel(aftermath, edge.on_failure)
        if edge.child not in ids:
            continue
        if end is not None:
            ends.setdefault(edge.child, (end, why_ended(aftermath, edge.parent)))
        met[edge.child] += (edge.state in WAITS) - (into in WAITS)
    _end(tx, ends)
    for child in ends:
        del met[child]
    _lower_by(tx, blocked, met)


def _lower_by(tx: Transaction, blocked: Sequence[Blocked], met: Mapping[JobId, int]) -> None:
    """So many edges fewer block each of these; release those that nothing blocks any more.

    A number that is too low already is a fault of ours, or of who wrote to the tables by hand. The job is
    released all the same: a number below zero is refused, and nothing else on the list would be done.
    """
    fewer: dict[JobId, int] = {}
    free: list[Blocked] = []
    for jobs in blocked:
        left = [(child, jobs.unmet - met[child]) for child in jobs.ids if child in met]
        fewer |= {child: unmet for child, unmet in left if unmet > 0 and met[child]}
        if released := [child for child, unmet in left if unmet <= 0]:
            free.append(jobs._replace(ids=released))
        for child, unmet in left:
            if unmet < 0:
                logger.error("job %s was blocked by %d edges too few; it is released", child, -unmet)
    _lower(tx, fewer)
    _release(tx, free)


def _blocked(tx: Transaction, ids: list[JobId]) -> list[Blocked]:
    return [Blocked(*row) for row in tx.all("blocked_among", {"ids": ids, "walk": CAP_WALK})]


def _end(tx: Transaction, ends: dict[JobId, tuple[JobState, str]]) -> None:
    if not ends:
        return
    tx.run("blocked_remove", {"ids": sorted(ends)})
    for (state, reason), children in _grouped(ends):
        rows = [(child, JobState.BLOCKED.value) for child in children]
        for child, queue in end_waiting(tx, rows, state, reason).items():
            tx.record(Event(kind=EventKind.PARENT, job_id=child, queue=queue, detail=reason))


def _grouped(
    ends: dict[JobId, tuple[JobState, str]],
) -> Iterator[tuple[tuple[JobState, str], list[JobId]]]:
    groups: dict[tuple[JobState, str], list[JobId]] = defaultdict(list)
    for child, end in ends.items():
        groups[end].append(child)
    yield from groups.items()


def _lower(tx: Transaction, unmet: dict[JobId, int]) -> None:
    if unmet:
        ids = sorted(unmet)
        tx.run("blocked_lower", {"ids": ids, "unmet": [unmet[child] for child in ids]})


def _release(tx: Transaction, jobs: list[Blocked]) -> None:
    """Let blocked jobs wait like any others, by one statement for those that stand alike."""
    if not jobs:
        return
    cap_ms = shortest_cap_ms(tx.load_scorings({job.queue for job in jobs}))
    alike: defaultdict[Release, list[JobId]] = defaultdict(list)
    place = cache(tx.place)
    for job in jobs:
        ready_at, share = max(job.run_at, tx.now), None
        where = place(job.queue, ready_at, job.priority, job.failures, job.deadline_at)
        if ready_at > tx.now:
            where = Place(False, where.rank, None)
        else:
            where = where._replace(rescore_at=job.rescore_at(where, ready_at, cap_ms))
            share = share_in(job.options)
        alike[Release(job.queue, job.priority, ready_at, where, share)] += job.ids
    if len(alike) > 1:
        tx.run("release_hold", {"ids": sorted(child for job in jobs for child in job.ids)})
    # All, before one is waited for.
    answers = {how: _send_release(tx, how, ids) for how, ids in alike.items()}
    come(tx, ((how.queue, how.share) for how in alike if how.ready_at <= tx.now))
    tx.has_new_jobs = True
    amended: list[JobId] = []
    for how, answer in answers.items():
        [(released,)] = answer.fetchall()
        state = JobState.PENDING if how.ready_at <= tx.now else JobState.SCHEDULED
        tx.move(how.queue, JobState.BLOCKED, state, released)
        if released < len(alike[how]):
            amended += alike[how]
    if amended:
        # Once more and not for ever: their blocked rows are held, so nobody amends them after this look.
        _release(tx, _blocked(tx, sorted(amended)))


def _send_release(tx: Transaction, how: Release, ids: list[JobId]) -> psycopg.Cursor[Row]:
    gate = None if how.share is None else fair_gate(how.share)
    values = {"ids": sorted(ids), "ready_at": how.ready_at, "gate": gate, "now": tx.now}
    return tx.run("release", {**how.where._asdict(), **values, "priority": how.priority})
