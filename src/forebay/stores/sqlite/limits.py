"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from forebay.domain.changes import limit_changes
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import JobId, QueueName
from forebay.domain.lane import limit_fairness_lane, limit_lane
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit, LimitUsage
from forebay.domain.settlement import TokenCharge
from forebay.stores.contract.values import QueueClaim
from forebay.stores.shared.limits import (
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
    """The part of a handle to write that keeps limits."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor), durable=True, moves=False)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor), durable=True, moves=False)


class SqliteLimitReader(ABC):
    """The part of a handle to look that shows limits."""

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
    known = {kept.limit.scope: kept for kept in _load_limits(tx)}
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
    """What all limits leave now."""
    if not tx.has_limits:
        return LimitBudget((), tx.now)
    found = _load_limits(tx)
    broad = [LimitCounter(kept, _count_running(tx, kept.limit)) for kept in found if not kept.limit.is_narrow]
    narrow = [kept.limit for kept in found if kept.limit.is_narrow]
    tx.stored_limits = {kept.limit.scope: kept for kept in found}
    return LimitBudget(broad, tx.now, narrow)


def charge(tx: Transaction, budget: LimitBudget, charges: Iterable[TokenCharge]) -> None:
    """What attempts have cost beyond what they took when they started."""
    for one in charges if tx.has_limits else ():
        load_counters(tx, budget, one.scopes)
        budget.charge(one.scopes, one.tokens)


def save_budget(tx: Transaction, budget: LimitBudget, claims: Sequence[QueueClaim], *, released: int) -> None:
    """Write what claims have taken, and note when it is worth to look behind gates again. Where places were
    freed that nobody took, others may want them."""
    if not tx.has_limits:
        return
    for gauge in budget.changed_counters:
        values = {
            "scope": gauge.scope,
            "token_parts": gauge.bucket.token_parts,
            "refilled_at": gauge.bucket.refilled_at,
        }
        tx.run("limit_spend" if gauge.scope == gauge.limit.scope else "rate_bucket_save", values)
    for want in claims:
        (look_at,) = tx.one("limit_lanes_next", {"queue": want.queue}) or (None,)
        budget.add_wait(None if look_at is None else look_at - tx.now)
    if released > 0 or budget.has_refund:
        tx.needs_wakeup = True


def park(
    tx: Transaction, queue: QueueName, seq: int, scope: str, budget: LimitBudget, fairness_key: str | None
) -> None:
    """A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share
    waits in the lane of that share."""
    gauge = budget.find_counter(scope)
    gate = limit_lane(scope) if fairness_key is None else limit_fairness_lane(scope, fairness_key)
    tx.run("park", {"seq": seq, "lane": gate, "now": tx.now})
    if fairness_key is not None:
        join_limit_lane(tx, queue, scope, fairness_key)
    look_at = tx.now if gauge is None else gauge.recheck_at(tx.now, 0)
    tx.run("limit_lanes_save", {"queue": queue, "scope": scope, "recheck_at": look_at})


def unpark_due(tx: Transaction, queue: QueueName, budget: LimitBudget) -> None:
    """Open gates that it is time to look behind, as far as there is room."""
    left = MAX_UNPARKED
    due = tx.all("limit_lanes_due", {"queue": queue, "now": tx.now, "limit": MAX_RECHECKS})
    load_counters(tx, budget, [scope for scope, _ in due])
    for scope, has_lanes in due:
        gauge = budget.find_counter(scope)
        room = None if gauge is None else gauge.room(tx.now)
        gate = {"queue": queue, "lane": limit_lane(scope)}
        most = left if room is None else min(room, left)
        back = tx.run("lanes_unpark", {**gate, "room": most, "now": tx.now}).rowcount
        if has_lanes:
            # As many with a share as without: the claim that follows compares them.
            back += SqliteFairUnpark(tx, queue, scope).unpark(most)
        left -= min(left, back)
        if tx.one("lane_first", {**gate, "scope": scope}) is None:
            tx.run("limit_lanes_remove", {"queue": queue, "scope": scope})
        else:
            look_at = tx.now if gauge is None else gauge.recheck_at(tx.now, min(back, most))
            tx.run("limit_lanes_save", {"queue": queue, "scope": scope, "recheck_at": look_at})


def acquire_slots(tx: Transaction, slots: list[object]) -> None:
    """Jobs have started; given as scope, seq and id of each place, one after the other."""
    if slots:
        tx.run_rows("limit_slots_take", (), slots, 3)


def release_slots(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes."""
    if ids and tx.has_limits:
        tx.run("limit_lanes_recheck", {"ids": json_text(ids)})
        tx.run("limit_slots_release", {"ids": json_text(ids)})


def prune(tx: Transaction) -> None:
    """Forget places and buckets that count for nothing."""
    tx.run("limit_slots_prune", {})
    tx.run("rate_buckets_prune", {"now": tx.now})


def _load_limits(tx: Transaction) -> list[StoredLimit]:
    return [stored_limit_from_row(row) for row in tx.all("limits", {})]


def load_counters(tx: Transaction, budget: LimitBudget, scopes: Iterable[str]) -> None:
    """Count what runs in these scopes of tasks and keys, all at once."""
    missing = budget.missing_limits(scopes)
    if not missing:
        return
    rows = tx.all("limit_slots_count", {"scopes": json_text(list(missing)), "now": tx.now})
    counted: dict[str, tuple[int, int | None]] = {scope: (jobs, ends_at) for scope, jobs, ends_at in rows}
    buckets = _load_buckets(tx, missing)
    for scope, limit in missing.items():
        # Without a rate it does not matter which bucket it is.
        kept = tx.stored_limits[limit.scope]
        if scope in buckets:
            kept = StoredLimit(limit, buckets[scope])
        running, ends_at = counted.get(scope, (0, None))
        budget.add(LimitCounter(kept, running, scope=scope, ends_at=ends_at))


def _load_buckets(tx: Transaction, limits: Mapping[str, Limit]) -> dict[str, Bucket]:
    """What is left of the rates of keys, by scope of one value."""
    full = {
        scope: limit.full_bucket(tx.now)
        for scope, limit in limits.items()
        if limit.rate is not None and scope != limit.scope
    }
    rows = tx.all("rate_buckets", {"scopes": json_text(list(full))}) if full else []
    return full | {scope: Bucket(parts, at) for scope, parts, at in rows}


def _count_running(tx: Transaction, limit: Limit) -> int:
    """Every job that runs is counted; those whose lease has ended are few, and do not count."""
    if limit.concurrency is None:
        return 0
    (lapsed,) = tx.one("expired_lease_count", {"queue": limit.queue, "now": tx.now}) or (0,)
    running = tx.count_running() if limit.queue is None else tx.count_jobs(limit.queue, JobState.RUNNING)
    return running - int(lapsed)


def _record_change(tx: Transaction, scope: str, actor: str, action: str, changes: Changes) -> None:
    tx.run("limit_lanes_release", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes))
    tx.cache.has_limits = None
    tx.needs_wakeup = True
