"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from forebay.domain.changes import limit_changes
from forebay.domain.gate import limit_gate
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.lease import Lease
from forebay.domain.limits import Bucket, Limit, Usage, queue_scope, scopes_of
from forebay.domain.settlement import Charge
from forebay.stores.limiting import MOST_BACK, MOST_LOOKS, Gauge, Kept, Tally, buckets_values
from forebay.stores.postgres.connection import TryAgain, Values
from forebay.stores.postgres.sharing import PostgresLanes, lock_shares
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Want
from forebay.stores.rows import Row, kept_from_row, row_from_kept, usage_from_row

T = TypeVar("T")


class Looks(Protocol):
    """What a look at the store can ask."""

    def all(self, name: str, values: Values | None = None) -> list[Row]: ...

    def now(self) -> int: ...


class PostgresLimits(ABC):
    """The part of a handle to write that keeps limits."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor))

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor))


class LooksAtPostgresLimits(ABC):
    """The part of a handle to look that shows limits."""

    @abstractmethod
    def _looking(self) -> AbstractContextManager[Looks]: ...

    def limits(self) -> list[Limit]:
        with self._looking() as look:
            return [kept_from_row(row).limit for row in look.all("limits")]

    def usages(self) -> list[Usage]:
        with self._looking() as look:
            now = look.now()
            return [usage_from_row(row, now) for row in look.all("usages", {"now": now})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    locked = tx.all("limits_lock", {"scopes": [limit.scope]})
    known = {kept.limit.scope: kept for kept in map(kept_from_row, locked)}
    now = tx.later()
    old, bucket = known.get(limit.scope, (None, Bucket(0, now)))
    tx.run("limit_save", row_from_kept(Kept(limit, limit.changed_from(old, bucket, now))))
    if old is not None and limit.is_narrow:
        if old.rate is None or limit.rate is None:
            tx.run("buckets_remove", {"scope": limit.scope})  # all are full, as `changed_from` has it
        else:
            tx.run("buckets_change", buckets_values(old, limit, now))
    _tell(tx, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    row = tx.one("limit_remove", {"scope": scope})
    if row is None:
        return False
    tx.run("buckets_remove", {"scope": scope})
    _tell(tx, scope, actor, "removed", limit_changes(kept_from_row(row).limit, None))
    return True


def tally(tx: Transaction, queues: Collection[str], charges: Sequence[Charge] = ()) -> Tally:
    """What the limits of these queues leave, under their lock, after attempts were charged for that have cost
    something else than they took when they started.

    The time is read again behind the lock: whoever had it before us may have claimed later than this
    transaction began, and for a rate time must not run backwards.
    """
    limited = [queue for queue in queues if queue in tx.limited]
    if not limited and not charges:
        return Tally((), tx.now)
    charged = {scope for charge in charges for scope in charge.scopes}
    scopes = sorted(charged.union(scope for queue in limited for scope in scopes_of(queue)))
    kept = tx.run("limits_lock", {"scopes": scopes})
    asked = tx.run("limits_running", {"scopes": scopes})
    tx.opened.append(tx.run("freed_take"))
    clock = tx.run("now")
    if limited:
        # Asked with the others, because each answer that is waited for is a round trip.
        tx.due_gates = tx.run("closed_due", {"queues": limited, "limit": MOST_LOOKS})
        tx.next_gate = tx.run("closed_next", {"queues": limited})
    found = {one.limit.scope: one for one in map(kept_from_row, kept)}
    running = {scope: jobs for scope, _, jobs in asked}
    now = tx.later(clock)
    broad = [one for one in found.values() if not one.limit.is_narrow]
    if any(one.limit.scope not in running for one in broad):
        raise TryAgain  # it was removed just now
    narrow = [one.limit for one in found.values() if one.limit.is_narrow]
    tx.kept_limits = found
    limits = Tally([Gauge(one, running[one.limit.scope]) for one in broad], now, narrow)
    load(tx, limits, charged)
    for charge in charges:
        limits.charge(charge.scopes, charge.tokens)
    return limits


def load(tx: Transaction, limits: Tally, scopes: Iterable[str]) -> None:
    """Count what runs in these scopes of tasks and keys, all at once."""
    missing = limits.missing(scopes)
    if not missing:
        return
    rows = tx.all("places_count", {"scopes": sorted(missing), "now": tx.now})
    for scope, running, ends_at, parts, at in rows:
        limit = missing[scope]
        if scope == limit.scope:
            bucket = tx.kept_limits[scope].bucket
        else:
            bucket = limit.full(tx.now) if parts is None else Bucket(parts, at)
        limits.add(Gauge(Kept(limit, bucket), running, scope=scope, ends_at=ends_at))


def load_for(tx: Transaction, limits: Tally, jobs: Iterable[Job]) -> None:
    """Count what these jobs have to be compared with."""
    if limits.has_narrow:
        load(tx, limits, {scope for job in jobs for scope in limits.scopes_for(job.task, job.limit_keys)})


def bring_back(tx: Transaction, queues: Collection[str], limits: Tally) -> set[str]:
    """Open gates of these queues that it is time to look behind, as far as there is room; the queues of these
    gates."""
    due: dict[str, list[str]] = {}
    lanes: dict[str, list[str]] = {}
    for queue, scope, has_lanes in tx.due_gates or ():
        due.setdefault(queue, []).append(scope)
        if has_lanes:
            lanes.setdefault(queue, []).append(scope)
    load(tx, limits, {scope for scopes in due.values() for scope in scopes})
    if lanes:
        # All at once, in the order of their names: the claim that follows locks the same queues.
        tx.shared.update(lanes)
        lock_shares(tx, tx.shared.intersection(queues))
        _bring_back_in_turn(tx, lanes, limits)
    for queue, scopes in due.items():
        _bring_back(tx, queue, scopes, limits)
    return set(due)


def _bring_back_in_turn(tx: Transaction, lanes: Mapping[str, Sequence[str]], limits: Tally) -> None:
    """Let jobs leave their lanes by the turns of shares: as many as come back without a share, since the
    claim that follows compares both.

    Before closed gates are saved: these stay closed while they have lanes. Under the lock of shares, which
    comes after those of limits here as in a claim. Only claims that hold both put jobs into lanes, so no lane
    that was seen as empty gets a job before this transaction ends.
    """
    for queue, scopes in lanes.items():
        for scope in scopes:
            PostgresLanes(tx, QueueName(queue), scope).bring_back(_most_back(tx, limits.gauge(scope)))


def _most_back(tx: Transaction, gauge: Gauge | None) -> int:
    room = None if gauge is None else gauge.room(tx.now)
    return MOST_BACK if room is None else min(MOST_BACK, room)


def _bring_back(tx: Transaction, queue: str, scopes: Sequence[str], limits: Tally) -> None:
    gauges = [limits.gauge(scope) for scope in scopes]
    most = [_most_back(tx, gauge) for gauge in gauges]
    gates = [limit_gate(scope) for scope in scopes]
    tx.brought.append(tx.run("bring_back", {"queue": queue, "gates": gates, "rooms": most}))
    looks = [
        tx.now if gauge is None else gauge.look_at(tx.now, back)
        for gauge, back in zip(gauges, most, strict=True)
    ]
    _save_closed(tx, queue, scopes, looks)


def close_gates(tx: Transaction, queue: str, scopes: Collection[str], limits: Tally) -> None:
    """Jobs were put behind the gates of these scopes."""
    gauges = {scope: limits.gauge(scope) for scope in scopes}
    looks = [tx.now if gauge is None else gauge.look_at(tx.now, 0) for gauge in gauges.values()]
    _save_closed(tx, queue, list(gauges), looks)


def _save_closed(tx: Transaction, queue: str, scopes: Sequence[str], looks: Sequence[int]) -> None:
    tx.run("closed_save", {"queue": queue, "scopes": list(scopes), "looks": list(looks)})
    tx.next_gate = None


def take_places(tx: Transaction, places: Mapping[Lease, Sequence[str]]) -> None:
    rows = [(scope, *lease) for lease, scopes in places.items() for scope in scopes]
    if rows:
        scopes, ids, attempts = zip(*sorted(rows), strict=True)
        tx.run("places_take", {"scopes": list(scopes), "ids": list(ids), "attempts": list(attempts)})


def free_places(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes."""
    if ids and tx.has_limits:
        tx.run("places_free", {"ids": sorted(ids)})


def note_over(tx: Transaction, leases: Sequence[Lease]) -> None:
    """These have ended in a caller's own transaction, which has committed; nobody has settled them here."""
    if leases and tx.has_limits:
        ids, attempts = zip(*leases, strict=True)
        tx.run("places_over", {"ids": list(ids), "attempts": list(attempts)})
        tx.has_news = True


def keep(tx: Transaction, limits: Tally, wants: Sequence[Want], jobs: Sequence[Job], *, settled: int) -> None:
    """Write what claims have taken, and note when it is worth to look behind gates again. Where places were
    freed that nobody took, others may want them."""
    if not tx.has_limits and not limits.changed:
        return
    keys = [gauge for gauge in limits.changed if gauge.scope != gauge.limit.scope]
    for gauge in limits.changed:
        if gauge.scope == gauge.limit.scope:
            values = {"scope": gauge.scope, "parts": gauge.bucket.parts, "at": gauge.bucket.at}
            tx.run("limit_spend", values)
    if keys:
        values = {"parts": [gauge.bucket.parts for gauge in keys], "ats": [gauge.bucket.at for gauge in keys]}
        tx.run("buckets_save", {"scopes": [gauge.scope for gauge in keys], **values})
    limited = [want.queue for want in wants if want.queue in tx.limited]
    if limited and tx.next_gate is None:
        tx.next_gate = tx.run("closed_next", {"queues": limited})
    row = None if tx.next_gate is None else tx.next_gate.fetchone()
    limits.wait(None if row is None or row[0] is None else row[0] - tx.now)
    wanted, taken = {want.queue for want in wants}, {job.id for job in jobs}
    if settled > len(jobs) or limits.has_refund or _leaves_places(tx, wanted, taken):
        tx.has_news = True


def _leaves_places(tx: Transaction, wanted: Collection[str], taken: Collection[JobId]) -> bool:
    """Whether others may want a place that was freed, though as many jobs have begun as have ended: a job was
    brought back and not taken, jobs wait for it in a queue that was not asked, or that queue has a limit."""
    if any(job_id not in taken for brought in tx.brought for (job_id,) in brought):
        return True
    if any(queue not in wanted for opened in tx.opened for (queue,) in opened):
        return True
    return any(
        queue_scope(queue) in tx.kept_limits if queue in wanted else queue in tx.limited for queue in tx.freed
    )


def prune(tx: Transaction) -> None:
    """Forget places and buckets that count for nothing."""
    tx.run("places_prune")
    tx.run("buckets_prune")


def _tell(tx: Transaction, scope: str, actor: str, what: str, changes: Changes) -> None:
    tx.run("closed_look", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT, actor=actor, detail=f"{what} {scope}", changes=changes))
    tx.has_news = True
