"""Limits: definitions, slots, token buckets and limit lanes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, LimitUsage, queue_scope, scopes_of
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.lane import limit_lane
from forebay.domain.lease import Lease
from forebay.domain.operator_changes import limit_changes
from forebay.domain.settlement import TokenCharge
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.fairness import PostgresFairUnpark, lock_fairness_keys
from forebay.stores.postgres.transaction import QueryRunner, Transaction
from forebay.stores.shared.limit_counters import (
    MAX_RECHECKS,
    MAX_UNPARKED,
    LimitBudget,
    LimitCounter,
    StoredLimit,
    bucket_conversion_params,
)
from forebay.stores.shared.rows import row_from_stored_limit, stored_limit_from_row, usage_from_row

T = TypeVar("T")


class LimitQueryRunner(QueryRunner, Protocol):
    """Snapshot that runs read statements by name, and reads the clock."""

    def now(self) -> int: ...


class PostgresLimitStore(ABC):
    """Limit part of a write handle."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor))

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor))


class PostgresLimitReader(ABC):
    """Limit part of a read handle."""

    @abstractmethod
    def _open_snapshot(self) -> AbstractContextManager[LimitQueryRunner]: ...

    def limits(self) -> list[Limit]:
        with self._open_snapshot() as snapshot:
            return [stored_limit_from_row(row).limit for row in snapshot.all("limits")]

    def limit_usages(self) -> list[LimitUsage]:
        with self._open_snapshot() as snapshot:
            now = snapshot.now()
            return [usage_from_row(row, now) for row in snapshot.all("limit_usages", {"now": now})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    locked = tx.all("limits_lock", {"scopes": [limit.scope]})
    known = {stored.limit.scope: stored for stored in map(stored_limit_from_row, locked)}
    now = tx.reread_clock()
    old, bucket = known.get(limit.scope, (None, Bucket(0, now)))
    tx.run("limit_save", row_from_stored_limit(StoredLimit(limit, limit.convert_bucket(old, bucket, now))))
    if old is not None and limit.is_narrow:
        if old.rate is None or limit.rate is None:
            tx.run("rate_buckets_remove", {"scope": limit.scope})  # all start full, as in `convert_bucket`
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
    """Lock the limits of these queues and return their budget, after the token charges of ended attempts.

    The clock is read again behind the lock: the previous holder may have claimed later than this transaction
    began, and for a rate time must not run backwards.
    """
    limited = [queue for queue in queues if queue in tx.limited]
    if not limited and not charges:
        return LimitBudget((), tx.now)
    charged = {scope for charge in charges for scope in charge.scopes}
    scopes = sorted(charged.union(scope for queue in limited for scope in scopes_of(queue)))
    locked = tx.run("limits_lock", {"scopes": scopes})
    running_counts = tx.run("limits_running", {"scopes": scopes})
    tx.released_queues.append(tx.run("limit_releases_take"))
    clock = tx.run("now")
    if limited:
        # Sent with the others, since each result that is waited for is a round trip.
        tx.due_lanes = tx.run("limit_lanes_due", {"queues": limited, "limit": MAX_RECHECKS})
        tx.next_lane = tx.run("limit_lanes_next", {"queues": limited})
    stored = {item.limit.scope: item for item in map(stored_limit_from_row, locked)}
    running = {scope: jobs for scope, _, jobs in running_counts}
    now = tx.reread_clock(clock)
    broad = [item for item in stored.values() if not item.limit.is_narrow]
    if any(item.limit.scope not in running for item in broad):
        raise RetryTransaction  # another transaction has just removed it
    narrow = [item.limit for item in stored.values() if item.limit.is_narrow]
    tx.stored_limits = stored
    budget = LimitBudget([LimitCounter(item, running[item.limit.scope]) for item in broad], now, narrow)
    load_counters(tx, budget, charged)
    for charge in charges:
        budget.charge(charge.scopes, charge.tokens)
    return budget


def load_counters(tx: Transaction, budget: LimitBudget, scopes: Iterable[str]) -> None:
    """Load the counters of these scopes of tasks and keys by one query."""
    missing = budget.missing_limits(scopes)
    if not missing:
        return
    rows = tx.all("limit_slots_count", {"scopes": sorted(missing), "now": tx.now})
    for scope, running, ends_at, token_parts, refilled_at in rows:
        limit = missing[scope]
        if scope == limit.scope:
            bucket = tx.stored_limits[scope].bucket
        else:
            bucket = limit.full_bucket(tx.now) if token_parts is None else Bucket(token_parts, refilled_at)
        budget.add(LimitCounter(StoredLimit(limit, bucket), running, scope=scope, ends_at=ends_at))


def load_counters_for(tx: Transaction, budget: LimitBudget, jobs: Iterable[Job]) -> None:
    """Load the counters for the scopes of these jobs."""
    if budget.has_narrow:
        load_counters(
            tx, budget, {scope for job in jobs for scope in budget.scopes_for(job.task, job.limit_keys)}
        )


def unpark_due(tx: Transaction, queues: Collection[str], budget: LimitBudget) -> set[str]:
    """Unpark jobs of lanes that are due for a recheck, as far as there is room; return their queues."""
    due: dict[str, list[str]] = {}
    fair_scopes: dict[str, list[str]] = {}
    for queue, scope, has_lanes in tx.due_lanes or ():
        due.setdefault(queue, []).append(scope)
        if has_lanes:
            fair_scopes.setdefault(queue, []).append(scope)
    load_counters(tx, budget, {scope for scopes in due.values() for scope in scopes})
    if fair_scopes:
        # All at once, in the order of their names: the claim that follows takes the same locks.
        tx.fair_queues.update(fair_scopes)
        lock_fairness_keys(tx, tx.fair_queues.intersection(queues))
        _unpark_fairly(tx, fair_scopes, budget)
    for queue, scopes in due.items():
        _unpark(tx, queue, scopes, budget)
    return set(due)


def _unpark_fairly(tx: Transaction, lanes: Mapping[str, Sequence[str]], budget: LimitBudget) -> None:
    """Unpark jobs by the virtual times of their fairness keys: as many as jobs without one.

    The claim that follows compares both. It runs before limit lanes are saved: these stay while fairness keys
    have jobs there. It holds the fairness locks, which come after those of limits, as in a claim. Only claims
    that hold both park jobs there, so a lane seen as empty gets no job before this transaction ends.
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
    counters = [budget.find_counter(scope) for scope in scopes]
    rooms = [_unpark_limit(tx, counter) for counter in counters]
    lanes = [limit_lane(scope) for scope in scopes]
    tx.unparked.append(tx.run("lanes_unpark", {"queue": queue, "lanes": lanes, "rooms": rooms}))
    recheck_times = [
        tx.now if counter is None else counter.recheck_at(tx.now, unparked)
        for counter, unparked in zip(counters, rooms, strict=True)
    ]
    _save_limited_lanes(tx, queue, scopes, recheck_times)


def mark_lanes_limited(tx: Transaction, queue: str, scopes: Collection[str], budget: LimitBudget) -> None:
    """Record that jobs were parked in the lanes of these scopes."""
    counters = {scope: budget.find_counter(scope) for scope in scopes}
    recheck_times = [
        tx.now if counter is None else counter.recheck_at(tx.now, 0) for counter in counters.values()
    ]
    _save_limited_lanes(tx, queue, list(counters), recheck_times)


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
    """Release the slots of ended attempts; the next claim rechecks the lanes of their scopes."""
    if ids and tx.has_limits:
        tx.run("limit_slots_release", {"ids": sorted(ids)})


def record_ended_leases(tx: Transaction, leases: Sequence[Lease]) -> None:
    """Release the slots of attempts that a committed caller transaction has ended."""
    if leases and tx.has_limits:
        ids, attempts = zip(*leases, strict=True)
        tx.run("limit_slots_release_ended", {"ids": list(ids), "attempts": list(attempts)})
        tx.needs_wakeup = True


def save_budget(
    tx: Transaction, budget: LimitBudget, claims: Sequence[QueueClaim], jobs: Sequence[Job], *, settled: int
) -> None:
    """Store what claims have taken, and the time of the next recheck; notify if released slots are left."""
    if not tx.has_limits and not budget.changed_counters:
        return
    key_counters = [counter for counter in budget.changed_counters if counter.scope != counter.limit.scope]
    for counter in budget.changed_counters:
        if counter.scope == counter.limit.scope:
            values = {
                "scope": counter.scope,
                "token_parts": counter.bucket.token_parts,
                "refilled_at": counter.bucket.refilled_at,
            }
            tx.run("limit_spend", values)
    if key_counters:
        values = {
            "token_parts": [counter.bucket.token_parts for counter in key_counters],
            "refilled_at": [counter.bucket.refilled_at for counter in key_counters],
        }
        tx.run("rate_buckets_save", {"scopes": [counter.scope for counter in key_counters], **values})
    limited = [claim.queue for claim in claims if claim.queue in tx.limited]
    if limited and tx.next_lane is None:
        tx.next_lane = tx.run("limit_lanes_next", {"queues": limited})
    row = None if tx.next_lane is None else tx.next_lane.fetchone()
    budget.add_wait(None if row is None or row[0] is None else row[0] - tx.now)
    claimed_queues, claimed_jobs = {claim.queue for claim in claims}, {job.id for job in jobs}
    if settled > len(jobs) or budget.has_refund or _has_spare_slots(tx, claimed_queues, claimed_jobs):
        tx.needs_wakeup = True


def _has_spare_slots(
    tx: Transaction, claimed_queues: Collection[str], claimed_jobs: Collection[JobId]
) -> bool:
    """Return whether other workers may use a released slot, though as many jobs have started as have ended.

    That is so if an unparked job was not claimed, or if jobs wait for the slot in another queue. It is also
    so if the queue of an ended job has a limit of its own.
    """
    if any(job_id not in claimed_jobs for unparked in tx.unparked for (job_id,) in unparked):
        return True
    if any(queue not in claimed_queues for released in tx.released_queues for (queue,) in released):
        return True
    return any(
        queue_scope(queue) in tx.stored_limits if queue in claimed_queues else queue in tx.limited
        for queue in tx.shrunk_queues
    )


def prune(tx: Transaction) -> None:
    """Delete unused slots and token buckets."""
    tx.run("limit_slots_prune")
    tx.run("rate_buckets_prune")


def _record_change(tx: Transaction, scope: str, actor: str, action: str, changes: Changes) -> None:
    tx.run("limit_lanes_release", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes))
    tx.needs_wakeup = True
