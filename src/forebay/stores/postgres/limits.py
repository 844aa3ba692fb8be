"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from forebay.domain.changes import limit_changes
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.lane import limit_lane
from forebay.domain.lease import Lease
from forebay.domain.limits import Bucket, Limit, LimitUsage, queue_scope, scopes_of
from forebay.domain.settlement import TokenCharge
from forebay.stores.contract.values import QueueClaim
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.fairness import PostgresFairUnpark, lock_fairness_keys
from forebay.stores.postgres.transaction import QueryRunner, Transaction
from forebay.stores.shared.limits import (
    MAX_RECHECKS,
    MAX_UNPARKED,
    LimitBudget,
    LimitCounter,
    StoredLimit,
    bucket_conversion_params,
)
from forebay.stores.shared.rows import (
    row_from_stored_limit,
    stored_limit_from_row,
    usage_from_row,
)

T = TypeVar("T")


class LimitQueryRunner(QueryRunner, Protocol):
    """Run read statements by name, and read the store's clock."""

    def now(self) -> int: ...


class PostgresLimitStore(ABC):
    """The part of a handle to write that keeps limits."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor))

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor))


class PostgresLimitReader(ABC):
    """The part of a handle to look that shows limits."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[LimitQueryRunner]: ...

    def limits(self) -> list[Limit]:
        with self._open_snapshot() as look:
            return [stored_limit_from_row(row).limit for row in look.all("limits")]

    def limit_usages(self) -> list[LimitUsage]:
        with self._open_snapshot() as look:
            now = look.now()
            return [usage_from_row(row, now) for row in look.all("limit_usages", {"now": now})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    locked = tx.all("limits_lock", {"scopes": [limit.scope]})
    known = {kept.limit.scope: kept for kept in map(stored_limit_from_row, locked)}
    now = tx.reread_clock()
    old, bucket = known.get(limit.scope, (None, Bucket(0, now)))
    tx.run("limit_save", row_from_stored_limit(StoredLimit(limit, limit.convert_bucket(old, bucket, now))))
    if old is not None and limit.is_narrow:
        if old.rate is None or limit.rate is None:
            tx.run("rate_buckets_remove", {"scope": limit.scope})  # all are full, as `convert_bucket` has it
        else:
            tx.run("rate_buckets_convert", bucket_conversion_params(old, limit, now))
    _record_change(tx, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    row = tx.one("limit_remove", {"scope": scope})
    if row is None:
        return False
    tx.run("rate_buckets_remove", {"scope": scope})
    _record_change(tx, scope, actor, "removed", limit_changes(stored_limit_from_row(row).limit, None))
    return True


def load_budget(tx: Transaction, queues: Collection[str], charges: Sequence[TokenCharge] = ()) -> LimitBudget:
    """What the limits of these queues leave, under their lock, after attempts were charged for that have cost
    something else than they took when they started.

    The time is read again behind the lock: whoever had it before us may have claimed later than this
    transaction began, and for a rate time must not run backwards.
    """
    limited = [queue for queue in queues if queue in tx.limited]
    if not limited and not charges:
        return LimitBudget((), tx.now)
    charged = {scope for charge in charges for scope in charge.scopes}
    scopes = sorted(charged.union(scope for queue in limited for scope in scopes_of(queue)))
    kept = tx.run("limits_lock", {"scopes": scopes})
    asked = tx.run("limits_running", {"scopes": scopes})
    tx.released_queues.append(tx.run("limit_releases_take"))
    clock = tx.run("now")
    if limited:
        # Asked with the others, because each answer that is waited for is a round trip.
        tx.due_lanes = tx.run("limit_lanes_due", {"queues": limited, "limit": MAX_RECHECKS})
        tx.next_lane = tx.run("limit_lanes_next", {"queues": limited})
    found = {one.limit.scope: one for one in map(stored_limit_from_row, kept)}
    running = {scope: jobs for scope, _, jobs in asked}
    now = tx.reread_clock(clock)
    broad = [one for one in found.values() if not one.limit.is_narrow]
    if any(one.limit.scope not in running for one in broad):
        raise RetryTransaction  # it was removed just now
    narrow = [one.limit for one in found.values() if one.limit.is_narrow]
    tx.stored_limits = found
    limits = LimitBudget([LimitCounter(one, running[one.limit.scope]) for one in broad], now, narrow)
    load_counters(tx, limits, charged)
    for charge in charges:
        limits.charge(charge.scopes, charge.tokens)
    return limits


def load_counters(tx: Transaction, budget: LimitBudget, scopes: Iterable[str]) -> None:
    """Count what runs in these scopes of tasks and keys, all at once."""
    missing = budget.missing_limits(scopes)
    if not missing:
        return
    rows = tx.all("limit_slots_count", {"scopes": sorted(missing), "now": tx.now})
    for scope, running, ends_at, parts, at in rows:
        limit = missing[scope]
        if scope == limit.scope:
            bucket = tx.stored_limits[scope].bucket
        else:
            bucket = limit.full_bucket(tx.now) if parts is None else Bucket(parts, at)
        budget.add(LimitCounter(StoredLimit(limit, bucket), running, scope=scope, ends_at=ends_at))


def load_counters_for(tx: Transaction, budget: LimitBudget, jobs: Iterable[Job]) -> None:
    """Count what these jobs have to be compared with."""
    if budget.has_narrow:
        load_counters(
            tx, budget, {scope for job in jobs for scope in budget.scopes_for(job.task, job.limit_keys)}
        )


def unpark_due(tx: Transaction, queues: Collection[str], budget: LimitBudget) -> set[str]:
    """Open gates of these queues that it is time to look behind, as far as there is room; the queues of these
    gates."""
    due: dict[str, list[str]] = {}
    lanes: dict[str, list[str]] = {}
    for queue, scope, has_lanes in tx.due_lanes or ():
        due.setdefault(queue, []).append(scope)
        if has_lanes:
            lanes.setdefault(queue, []).append(scope)
    load_counters(tx, budget, {scope for scopes in due.values() for scope in scopes})
    if lanes:
        # All at once, in the order of their names: the claim that follows locks the same queues.
        tx.fair_queues.update(lanes)
        lock_fairness_keys(tx, tx.fair_queues.intersection(queues))
        _unpark_fairly(tx, lanes, budget)
    for queue, scopes in due.items():
        _unpark(tx, queue, scopes, budget)
    return set(due)


def _unpark_fairly(tx: Transaction, lanes: Mapping[str, Sequence[str]], budget: LimitBudget) -> None:
    """Let jobs leave their lanes by the turns of shares: as many as come back without a share, since the
    claim that follows compares both.

    Before closed gates are saved: these stay closed while they have lanes. Under the lock of shares, which
    comes after those of limits here as in a claim. Only claims that hold both put jobs into lanes, so no lane
    that was seen as empty gets a job before this transaction ends.
    """
    for queue, scopes in lanes.items():
        for scope in scopes:
            PostgresFairUnpark(tx, QueueName(queue), scope).unpark(
                _unpark_limit(tx, budget.find_counter(scope))
            )


def _unpark_limit(tx: Transaction, counter: LimitCounter | None) -> int:
    room = None if counter is None else counter.room(tx.now)
    return MAX_UNPARKED if room is None else min(MAX_UNPARKED, room)


def _unpark(tx: Transaction, queue: str, scopes: Sequence[str], budget: LimitBudget) -> None:
    gauges = [budget.find_counter(scope) for scope in scopes]
    most = [_unpark_limit(tx, gauge) for gauge in gauges]
    gates = [limit_lane(scope) for scope in scopes]
    tx.unparked.append(tx.run("lanes_unpark", {"queue": queue, "lanes": gates, "rooms": most}))
    looks = [
        tx.now if gauge is None else gauge.recheck_at(tx.now, back)
        for gauge, back in zip(gauges, most, strict=True)
    ]
    _save_limited_lanes(tx, queue, scopes, looks)


def mark_lanes_limited(tx: Transaction, queue: str, scopes: Collection[str], budget: LimitBudget) -> None:
    """Jobs were put behind the gates of these scopes."""
    gauges = {scope: budget.find_counter(scope) for scope in scopes}
    looks = [tx.now if gauge is None else gauge.recheck_at(tx.now, 0) for gauge in gauges.values()]
    _save_limited_lanes(tx, queue, list(gauges), looks)


def _save_limited_lanes(
    tx: Transaction, queue: str, scopes: Sequence[str], recheck_times: Sequence[int]
) -> None:
    tx.run("limit_lanes_save", {"queue": queue, "scopes": list(scopes), "recheck_times": list(recheck_times)})
    tx.next_lane = None


def acquire_slots(tx: Transaction, slots: Mapping[Lease, Sequence[str]]) -> None:
    rows = [(scope, *lease) for lease, scopes in slots.items() for scope in scopes]
    if rows:
        scopes, ids, attempts = zip(*sorted(rows), strict=True)
        tx.run("limit_slots_take", {"scopes": list(scopes), "ids": list(ids), "attempts": list(attempts)})


def release_slots(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes."""
    if ids and tx.has_limits:
        tx.run("limit_slots_release", {"ids": sorted(ids)})


def record_ended_leases(tx: Transaction, leases: Sequence[Lease]) -> None:
    """These have ended in a caller's own transaction, which has committed; nobody has settled them here."""
    if leases and tx.has_limits:
        ids, attempts = zip(*leases, strict=True)
        tx.run("limit_slots_release_ended", {"ids": list(ids), "attempts": list(attempts)})
        tx.needs_wakeup = True


def save_budget(
    tx: Transaction, budget: LimitBudget, claims: Sequence[QueueClaim], jobs: Sequence[Job], *, settled: int
) -> None:
    """Write what claims have taken, and note when it is worth to look behind gates again. Where places were
    freed that nobody took, others may want them."""
    if not tx.has_limits and not budget.changed_counters:
        return
    keys = [gauge for gauge in budget.changed_counters if gauge.scope != gauge.limit.scope]
    for gauge in budget.changed_counters:
        if gauge.scope == gauge.limit.scope:
            values = {
                "scope": gauge.scope,
                "token_parts": gauge.bucket.token_parts,
                "refilled_at": gauge.bucket.refilled_at,
            }
            tx.run("limit_spend", values)
    if keys:
        values = {
            "token_parts": [gauge.bucket.token_parts for gauge in keys],
            "refilled_at": [gauge.bucket.refilled_at for gauge in keys],
        }
        tx.run("rate_buckets_save", {"scopes": [gauge.scope for gauge in keys], **values})
    limited = [want.queue for want in claims if want.queue in tx.limited]
    if limited and tx.next_lane is None:
        tx.next_lane = tx.run("limit_lanes_next", {"queues": limited})
    row = None if tx.next_lane is None else tx.next_lane.fetchone()
    budget.add_wait(None if row is None or row[0] is None else row[0] - tx.now)
    wanted, taken = {want.queue for want in claims}, {job.id for job in jobs}
    if settled > len(jobs) or budget.has_refund or _has_spare_slots(tx, wanted, taken):
        tx.needs_wakeup = True


def _has_spare_slots(
    tx: Transaction, claimed_queues: Collection[str], claimed_jobs: Collection[JobId]
) -> bool:
    """Whether others may want a place that was freed, though as many jobs have begun as have ended: a job was
    brought back and not taken, jobs wait for it in a queue that was not asked, or that queue has a limit."""
    if any(job_id not in claimed_jobs for brought in tx.unparked for (job_id,) in brought):
        return True
    if any(queue not in claimed_queues for opened in tx.released_queues for (queue,) in opened):
        return True
    return any(
        queue_scope(queue) in tx.stored_limits if queue in claimed_queues else queue in tx.limited
        for queue in tx.shrunk_queues
    )


def prune(tx: Transaction) -> None:
    """Forget places and buckets that count for nothing."""
    tx.run("limit_slots_prune")
    tx.run("rate_buckets_prune")


def _record_change(tx: Transaction, scope: str, actor: str, action: str, changes: Changes) -> None:
    tx.run("limit_lanes_release", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes))
    tx.needs_wakeup = True
