"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from forebay.domain.history import Event, EventKind
from forebay.domain.limits import Bucket, Limit, scopes_of
from forebay.stores.limiting import Gauge, Kept, Tally
from forebay.stores.postgres.connection import TryAgain, Values
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.rows import Row, kept_from_row, row_from_kept

T = TypeVar("T")


class Looks(Protocol):
    """What a look at the store can ask."""

    def all(self, name: str, values: Values | None = None) -> list[Row]: ...


class PostgresLimits:
    """The part of a handle to write that keeps limits."""

    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        raise NotImplementedError

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        self._write(lambda tx: save(tx, limit, actor))

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        return self._write(lambda tx: drop(tx, scope, actor))


class LooksAtPostgresLimits:
    """The part of a handle to look that shows limits."""

    def _looking(self) -> AbstractContextManager[Looks]:
        raise NotImplementedError

    def limits(self) -> list[Limit]:
        with self._looking() as look:
            return [kept_from_row(row).limit for row in look.all("limits")]


def save(tx: Transaction, limit: Limit, actor: str) -> None:
    known = {kept.limit.scope: kept for kept in map(kept_from_row, _locked(tx, [limit.scope]))}
    now = tx.later()
    old, bucket = known.get(limit.scope, (None, Bucket(0, now)))
    tx.run("limit_save", row_from_kept(Kept(limit, limit.changed_from(old, bucket, now))))
    _tell(tx, actor, f"saved {limit.scope}")


def drop(tx: Transaction, scope: str, actor: str) -> bool:
    if tx.one("limit_remove", {"scope": scope}) is None:
        return False
    _tell(tx, actor, f"removed {scope}")
    return True


def tally(tx: Transaction, queues: Collection[str]) -> Tally:
    """What the limits of these queues leave, under their lock.

    The time is read again behind the lock: whoever had it before us may have claimed later than this
    transaction began, and its clock must not run backwards for a rate.
    """
    limited = [queue for queue in queues if queue in tx.limited]
    if not limited:
        return Tally((), tx.now)
    scopes = sorted({scope for queue in limited for scope in scopes_of(queue)})
    kept = tx.run("limits_lock", {"scopes": scopes})
    asked = tx.run("limits_running", {"scopes": scopes})
    found = [kept_from_row(row) for row in kept]
    running = {scope: (now, jobs) for scope, now, jobs in asked}
    if any(one.limit.scope not in running for one in found):
        raise TryAgain  # it was removed just now
    now = tx.later(*(now for now, _ in running.values()))
    return Tally([Gauge(one, running[one.limit.scope][1]) for one in found], now)


def keep(tx: Transaction, limits: Tally, *, freed: int) -> None:
    """Write what claims have taken. Where places were freed that nobody took, others may want them."""
    for limit, (parts, at) in limits.changed:
        tx.run("limit_spend", {"scope": limit.scope, "parts": parts, "at": at})
    if freed > 0 and tx.has_limits:
        tx.has_news = True


def _locked(tx: Transaction, scopes: list[str]) -> list[Row]:
    return tx.all("limits_lock", {"scopes": scopes})


def _tell(tx: Transaction, actor: str, detail: str) -> None:
    tx.record(Event(kind=EventKind.LIMIT, actor=actor, detail=detail))
    tx.has_news = True
