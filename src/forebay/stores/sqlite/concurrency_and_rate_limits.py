"""Limits: save and remove them, count slots and tokens for claims, park and unpark jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, LimitUsage
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lane import limit_fairness_lane, limit_lane
from forebay.domain.operator_changes import limit_changes
from forebay.domain.settlement import TokenCharge
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.shared.limit_counters import (
    MAX_RECHECKS,
    MAX_UNPARKED,
    LimitBudget,
    LimitCounter,
    StoredLimit,
    bucket_conversion_params,
)
from forebay.stores.shared.rows import (
    Row,
    json_text,
    row_from_stored_limit,
    stored_limit_from_row,
    usage_from_row,
)
from forebay.stores.sqlite.fairness import SqliteFairUnpark, join_limit_lane
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteLimitStore(ABC):
    """Mixin of the store: write side of limits."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor), durable=True, moves=False)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor), durable=True, moves=False)


class SqliteLimitReader(ABC):
    """Mixin of the reader: read side of limits."""

    @abstractmethod
    def _query(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def limits(self) -> list[Limit]:
        return [stored_limit_from_row(row).limit for row in self._query("limits", {})]

    @abstractmethod
    def now(self) -> int: ...

    def limit_usages(self) -> list[LimitUsage]:
        now = self.now()
        return [usage_from_row(row, now) for row in self._query("limit_usages", {"now": now})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    known = {stored.limit.scope: stored for stored in _load_limits(tx)}
    old, bucket = known.get(limit.scope, (None, Bucket(0, tx.now)))
    tx.run("limit_save", row_from_stored_limit(StoredLimit(limit, limit.convert_bucket(old, bucket, tx.now))))
    if old is not None and limit.is_narrow:
        if old.rate is None or limit.rate is None:
            tx.run("rate_buckets_remove", {"scope": limit.scope})  # all are full, as `convert_bucket` has it
        else:
            tx.run("rate_buckets_convert", bucket_conversion_params(old, limit, tx.now))
    _record_change(tx, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    row = tx.one("limit_remove", {"scope": scope})
    if row is None:
        return False
    tx.run("rate_buckets_remove", {"scope": scope})
    _record_change(tx, scope, actor, "removed", limit_changes(stored_limit_from_row(row).limit, None))
    return True


def load_budget(tx: Transaction) -> LimitBudget:
    """Return the budget that all limits leave now."""
    if not tx.has_limits:
        return LimitBudget((), tx.now)
    stored_limits = _load_limits(tx)
    broad = [
        LimitCounter(stored, _count_running(tx, stored.limit))
        for stored in stored_limits
        if not stored.limit.is_narrow
    ]
    narrow = [stored.limit for stored in stored_limits if stored.limit.is_narrow]
    tx.stored_limits = {stored.limit.scope: stored for stored in stored_limits}
    return LimitBudget(broad, tx.now, narrow)


def charge(tx: Transaction, budget: LimitBudget, charges: Iterable[TokenCharge]) -> None:
    """Charge limits for tokens that attempts have cost beyond those taken at their start."""
    for token_charge in charges if tx.has_limits else ():
        load_counters(tx, budget, token_charge.scopes)
        budget.charge(token_charge.scopes, token_charge.tokens)


def save_budget(tx: Transaction, budget: LimitBudget, claims: Sequence[QueueClaim], *, released: int) -> None:
    """Write the changed token buckets, and note when limit lanes are to be rechecked. Send a wake-up where
    slots were released that no claim took: other workers may take them."""
    if not tx.has_limits:
        return
    for counter in budget.changed_counters:
        values = {
            "scope": counter.scope,
            "token_parts": counter.bucket.token_parts,
            "refilled_at": counter.bucket.refilled_at,
        }
        tx.run("limit_spend" if counter.scope == counter.limit.scope else "rate_bucket_save", values)
    for claim in claims:
        (recheck_at,) = tx.one("limit_lanes_next", {"queue": claim.queue}) or (None,)
        budget.add_wait(None if recheck_at is None else recheck_at - tx.now)
    if released > 0 or budget.has_refund:
        tx.needs_wakeup = True


def park(
    tx: Transaction, queue: QueueName, seq: int, scope: str, budget: LimitBudget, fairness_key: str | None
) -> None:
    """Park a job that this scope has no room for, in the lane of the limit. A job that was claimed by its
    fairness key goes to the lane of that key there."""
    counter = budget.find_counter(scope)
    lane = limit_lane(scope) if fairness_key is None else limit_fairness_lane(scope, fairness_key)
    tx.run("park", {"seq": seq, "lane": lane, "now": tx.now})
    if fairness_key is not None:
        join_limit_lane(tx, queue, scope, fairness_key)
    recheck_at = tx.now if counter is None else counter.recheck_at(tx.now, 0)
    tx.run("limit_lanes_save", {"queue": queue, "scope": scope, "recheck_at": recheck_at})


def unpark_due(tx: Transaction, queue: QueueName, budget: LimitBudget) -> None:
    """Unpark jobs from limit lanes that are due to be rechecked, as far as there is room."""
    left = MAX_UNPARKED
    due_lanes = tx.all("limit_lanes_due", {"queue": queue, "now": tx.now, "limit": MAX_RECHECKS})
    load_counters(tx, budget, [scope for scope, _ in due_lanes])
    for scope, has_lanes in due_lanes:
        counter = budget.find_counter(scope)
        room = None if counter is None else counter.room(tx.now)
        lane = {"queue": queue, "lane": limit_lane(scope)}
        limit = left if room is None else min(room, left)
        unparked = tx.run("lanes_unpark", {**lane, "room": limit, "now": tx.now}).rowcount
        if has_lanes:
            # As many with a fairness key as without: the claim that follows compares them.
            unparked += SqliteFairUnpark(tx, queue, scope).unpark(limit)
        left -= min(left, unparked)
        if tx.one("lane_first", {**lane, "scope": scope}) is None:
            tx.run("limit_lanes_remove", {"queue": queue, "scope": scope})
        else:
            recheck_at = tx.now if counter is None else counter.recheck_at(tx.now, min(unparked, limit))
            tx.run("limit_lanes_save", {"queue": queue, "scope": scope, "recheck_at": recheck_at})


def acquire_slots(tx: Transaction, slots: list[object]) -> None:
    """Add slots of jobs that have started, given as scope, seq and id, one after the other."""
    if slots:
        tx.run_rows("limit_slots_take", (), slots, 3)


def release_slots(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Release the slots of jobs whose attempts have ended. The next claim rechecks the lanes of their
    scopes."""
    if ids and tx.has_limits:
        tx.run("limit_lanes_recheck", {"ids": json_text(ids)})
        tx.run("limit_slots_release", {"ids": json_text(ids)})


def prune(tx: Transaction) -> None:
    """Remove slots and token buckets that count for nothing."""
    tx.run("limit_slots_prune", {})
    tx.run("rate_buckets_prune", {"now": tx.now})


def _load_limits(tx: Transaction) -> list[StoredLimit]:
    return [stored_limit_from_row(row) for row in tx.all("limits", {})]


def load_counters(tx: Transaction, budget: LimitBudget, scopes: Iterable[str]) -> None:
    """Count the running jobs in these scopes of tasks and keys, all at once."""
    missing = budget.missing_limits(scopes)
    if not missing:
        return
    rows = tx.all("limit_slots_count", {"scopes": json_text(list(missing)), "now": tx.now})
    counted: dict[str, tuple[int, int | None]] = {scope: (jobs, ends_at) for scope, jobs, ends_at in rows}
    buckets = _load_buckets(tx, missing)
    for scope, limit in missing.items():
        # Without a rate any bucket will do.
        stored = tx.stored_limits[limit.scope]
        if scope in buckets:
            stored = StoredLimit(limit, buckets[scope])
        running, ends_at = counted.get(scope, (0, None))
        budget.add(LimitCounter(stored, running, scope=scope, ends_at=ends_at))


def _load_buckets(tx: Transaction, limits: Mapping[str, Limit]) -> dict[str, Bucket]:
    """Load the token buckets of keys, by scope of one value."""
    full = {
        scope: limit.full_bucket(tx.now)
        for scope, limit in limits.items()
        if limit.rate is not None and scope != limit.scope
    }
    rows = tx.all("rate_buckets", {"scopes": json_text(list(full))}) if full else []
    return full | {scope: Bucket(token_parts, refilled_at) for scope, token_parts, refilled_at in rows}


def _count_running(tx: Transaction, limit: Limit) -> int:
    """Return how many jobs run with a lease that has not ended: all running ones, less the few with an
    ended lease."""
    if limit.concurrency is None:
        return 0
    (expired,) = tx.one("expired_lease_count", {"queue": limit.queue, "now": tx.now}) or (0,)
    running = tx.count_running() if limit.queue is None else tx.count_jobs(limit.queue, JobState.RUNNING)
    return running - int(expired)


def _record_change(tx: Transaction, scope: str, actor: str, action: str, changes: Changes) -> None:
    tx.run("limit_lanes_release", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes))
    tx.cache.has_limits = None
    tx.needs_wakeup = True
