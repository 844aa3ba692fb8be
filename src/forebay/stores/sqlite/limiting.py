"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from forebay.domain.changes import limit_changes
from forebay.domain.gate import lane_gate, limit_gate
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit, Usage
from forebay.domain.settlement import Charge
from forebay.stores.limiting import MOST_BACK, MOST_LOOKS, Gauge, Kept, Tally, buckets_values
from forebay.stores.protocol import Want
from forebay.stores.rows import Row, json_text, kept_from_row, row_from_kept, usage_from_row
from forebay.stores.sqlite.sharing import SqliteLanes, join_lane
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteLimits(ABC):
    """The part of a handle to write that keeps limits."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor), durable=True, moves=False)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor), durable=True, moves=False)


class LooksAtSqliteLimits(ABC):
    """The part of a handle to look that shows limits."""

    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def limits(self) -> list[Limit]:
        return [kept_from_row(row).limit for row in self._looked("limits", {})]

    @abstractmethod
    def now(self) -> int: ...

    def usages(self) -> list[Usage]:
        now = self.now()
        return [usage_from_row(row, now) for row in self._looked("usages", {"now": now})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    known = {kept.limit.scope: kept for kept in _kept(tx)}
    old, bucket = known.get(limit.scope, (None, Bucket(0, tx.now)))
    tx.run("limit_save", row_from_kept(Kept(limit, limit.changed_from(old, bucket, tx.now))))
    if old is not None and limit.is_narrow:
        if old.rate is None or limit.rate is None:
            tx.run("buckets_remove", {"scope": limit.scope})  # all are full, as `changed_from` has it
        else:
            tx.run("buckets_change", buckets_values(old, limit, tx.now))
    _tell(tx, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    row = tx.one("limit_remove", {"scope": scope})
    if row is None:
        return False
    tx.run("buckets_remove", {"scope": scope})
    _tell(tx, scope, actor, "removed", limit_changes(kept_from_row(row).limit, None))
    return True


def tally(tx: Transaction) -> Tally:
    """What all limits leave now."""
    if not tx.has_limits:
        return Tally((), tx.now)
    found = _kept(tx)
    broad = [Gauge(kept, _running(tx, kept.limit)) for kept in found if not kept.limit.is_narrow]
    narrow = [kept.limit for kept in found if kept.limit.is_narrow]
    tx.kept_limits = {kept.limit.scope: kept for kept in found}
    return Tally(broad, tx.now, narrow)


def charge(tx: Transaction, limits: Tally, charges: Iterable[Charge]) -> None:
    """What attempts have cost beyond what they took when they started."""
    for one in charges if tx.has_limits else ():
        load(tx, limits, one.scopes)
        limits.charge(one.scopes, one.tokens)


def keep(tx: Transaction, limits: Tally, wants: Sequence[Want], *, freed: int) -> None:
    """Write what claims have taken, and note when it is worth to look behind gates again. Where places were
    freed that nobody took, others may want them."""
    if not tx.has_limits:
        return
    for gauge in limits.changed:
        values = {"scope": gauge.scope, "parts": gauge.bucket.parts, "at": gauge.bucket.at}
        tx.run("limit_spend" if gauge.scope == gauge.limit.scope else "bucket_save", values)
    for want in wants:
        (look_at,) = tx.one("closed_next", {"queue": want.queue}) or (None,)
        limits.wait(None if look_at is None else look_at - tx.now)
    if freed > 0 or limits.has_refund:
        tx.has_news = True


def put_aside(
    tx: Transaction, queue: QueueName, seq: int, scope: str, limits: Tally, share: str | None
) -> None:
    """A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share
    waits in the lane of that share."""
    gauge = limits.gauge(scope)
    gate = limit_gate(scope) if share is None else lane_gate(scope, share)
    tx.run("hold", {"seq": seq, "gate": gate, "now": tx.now})
    if share is not None:
        join_lane(tx, queue, scope, share)
    look_at = tx.now if gauge is None else gauge.look_at(tx.now, 0)
    tx.run("closed_save", {"queue": queue, "scope": scope, "look_at": look_at})


def bring_back(tx: Transaction, queue: QueueName, limits: Tally) -> None:
    """Open gates that it is time to look behind, as far as there is room."""
    left = MOST_BACK
    due = tx.all("closed_due", {"queue": queue, "now": tx.now, "limit": MOST_LOOKS})
    load(tx, limits, [scope for scope, _ in due])
    for scope, has_lanes in due:
        gauge = limits.gauge(scope)
        room = None if gauge is None else gauge.room(tx.now)
        gate = {"queue": queue, "gate": limit_gate(scope)}
        most = left if room is None else min(room, left)
        back = tx.run("bring_back", {**gate, "room": most, "now": tx.now}).rowcount
        if has_lanes:
            # As many with a share as without: the claim that follows compares them.
            back += SqliteLanes(tx, queue, scope).bring_back(most)
        left -= min(left, back)
        if tx.one("gate_first", {**gate, "scope": scope}) is None:
            tx.run("closed_remove", {"queue": queue, "scope": scope})
        else:
            look_at = tx.now if gauge is None else gauge.look_at(tx.now, min(back, most))
            tx.run("closed_save", {"queue": queue, "scope": scope, "look_at": look_at})


def take_places(tx: Transaction, places: list[object]) -> None:
    """Jobs have started; given as scope, seq and id of each place, one after the other."""
    if places:
        tx.run_rows("places_take", (), places, 3)


def free_places(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes."""
    if ids and tx.has_limits:
        tx.run("places_open", {"ids": json_text(ids)})
        tx.run("places_free", {"ids": json_text(ids)})


def prune(tx: Transaction) -> None:
    """Forget places and buckets that count for nothing."""
    tx.run("places_prune", {})
    tx.run("buckets_prune", {"now": tx.now})


def _kept(tx: Transaction) -> list[Kept]:
    return [kept_from_row(row) for row in tx.all("limits", {})]


def load(tx: Transaction, limits: Tally, scopes: Iterable[str]) -> None:
    """Count what runs in these scopes of tasks and keys, all at once."""
    missing = limits.missing(scopes)
    if not missing:
        return
    rows = tx.all("places_count", {"scopes": json_text(list(missing)), "now": tx.now})
    counted: dict[str, tuple[int, int | None]] = {scope: (jobs, ends_at) for scope, jobs, ends_at in rows}
    buckets = _buckets(tx, missing)
    for scope, limit in missing.items():
        # Without a rate it does not matter which bucket it is.
        kept = tx.kept_limits[limit.scope]
        if scope in buckets:
            kept = Kept(limit, buckets[scope])
        running, ends_at = counted.get(scope, (0, None))
        limits.add(Gauge(kept, running, scope=scope, ends_at=ends_at))


def _buckets(tx: Transaction, limits: Mapping[str, Limit]) -> dict[str, Bucket]:
    """What is left of the rates of keys, by scope of one value."""
    full = {
        scope: limit.full(tx.now)
        for scope, limit in limits.items()
        if limit.rate is not None and scope != limit.scope
    }
    rows = tx.all("buckets", {"scopes": json_text(list(full))}) if full else []
    return full | {scope: Bucket(parts, at) for scope, parts, at in rows}


def _running(tx: Transaction, limit: Limit) -> int:
    """Every job that runs is counted; those whose lease has ended are few, and do not count."""
    if limit.concurrency is None:
        return 0
    (lapsed,) = tx.one("lapsed", {"queue": limit.queue, "now": tx.now}) or (0,)
    running = tx.running() if limit.queue is None else tx.counted(limit.queue, JobState.RUNNING)
    return running - int(lapsed)


def _tell(tx: Transaction, scope: str, actor: str, what: str, changes: Changes) -> None:
    tx.run("closed_look", {"scope": scope})
    tx.record(Event(kind=EventKind.LIMIT, actor=actor, detail=f"{what} {scope}", changes=changes))
    tx.seen.has_limits = None
    tx.has_news = True
