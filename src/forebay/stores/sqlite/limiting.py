"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forebay.domain.history import Event, EventKind
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit
from forebay.stores.limiting import Gauge, Kept, Tally
from forebay.stores.rows import Row, kept_from_row, row_from_kept
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteLimits:
    """The part of a handle to write that keeps limits."""

    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T:
        raise NotImplementedError

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor), durable=True, moves=False)

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor), durable=True, moves=False)


class LooksAtSqliteLimits:
    """The part of a handle to look that shows limits."""

    def _looked(self, name: str, values: dict[str, object]) -> list[Row]:
        raise NotImplementedError

    def limits(self) -> list[Limit]:
        return [kept_from_row(row).limit for row in self._looked("limits", {})]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    known = {kept.limit.scope: kept for kept in _kept(tx)}
    old, bucket = known.get(limit.scope, (None, Bucket(0, tx.now)))
    tx.run("limit_save", row_from_kept(Kept(limit, limit.changed_from(old, bucket, tx.now))))
    _tell(tx, actor, f"saved {limit.scope}")


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    if tx.run("limit_remove", {"scope": scope}).rowcount == 0:
        return False
    _tell(tx, actor, f"removed {scope}")
    return True


def tally(tx: Transaction) -> Tally:
    """What all limits leave now."""
    if tx.seen.has_limits is False:
        return Tally((), tx.now)
    found = _kept(tx)
    tx.seen.has_limits = bool(found)
    return Tally([Gauge(kept, _running(tx, kept.limit)) for kept in found], tx.now)


def keep(tx: Transaction, limits: Tally, *, freed: int) -> None:
    """Write what claims have taken. Where places were freed that nobody took, others may want them."""
    for limit, (parts, at) in limits.changed:
        tx.run("limit_spend", {"scope": limit.scope, "parts": parts, "at": at})
    if freed > 0 and tx.seen.has_limits:
        tx.has_news = True


def _kept(tx: Transaction) -> list[Kept]:
    return [kept_from_row(row) for row in tx.all("limits", {})]


def _running(tx: Transaction, limit: Limit) -> int:
    """Every job that runs is counted; those whose lease has ended are few, and do not count."""
    if limit.concurrency is None:
        return 0
    (lapsed,) = tx.one("lapsed", {"queue": limit.queue, "now": tx.now}) or (0,)
    running = tx.running() if limit.queue is None else tx.counted(limit.queue, JobState.RUNNING)
    return running - int(lapsed)


def _tell(tx: Transaction, actor: str, detail: str) -> None:
    tx.record(Event(kind=EventKind.LIMIT, actor=actor, detail=detail))
    tx.seen.has_limits = None
    tx.has_news = True
