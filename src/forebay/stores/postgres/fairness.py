"""Shares: who has jobs waiting, and what a claim may take of them in their turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby

from forebay.domain.fairness import (
    VIRTUAL_TIME_STEP,
    FairnessKey,
    fairness_key_of,
    fairness_lane,
    virtual_time_step,
)
from forebay.domain.job import QueueName
from forebay.domain.lane import limit_fairness_lane
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.fairness import FairClaim, FairUnpark
from forebay.stores.shared.rows import Row


def mark_pending(tx: Transaction, jobs: Iterable[tuple[str, str | None]]) -> None:
    """Jobs have become pending, given as queue and share; those of shares wait for their turns."""
    pairs = sorted({(queue, share) for queue, share in jobs if share is not None})
    if pairs:
        queues, shares = zip(*pairs, strict=True)
        tx.run("fairness_keys_add", {"queues": list(queues), "fairness_keys": list(shares)})
        tx.fair_queues.update(queues)  # a claim of this transaction takes from them, too


def lock_fairness_keys(tx: Transaction, queues: Collection[str]) -> None:
    """Lock the shares of these queues, in the order of their names; a lock that is held is taken again."""
    tx.run("fairness_lock", {"queues": sorted(queues)})


def join_fairness_keys(tx: Transaction, queues: Collection[str]) -> None:
    """Lock the shares of these queues, and give those that have come their turns.

    Behind the lock, in later statements: what others have claimed meanwhile has moved the turns.
    """
    shared = sorted(queue for queue in queues if queue in tx.fair_queues)
    if not shared:
        return
    weighted = [(queue, share) for queue in shared for share in _weights(tx, queue)]
    lock_fairness_keys(tx, shared)
    values = {
        "names": shared,
        "queues": [queue for queue, _ in weighted],
        "fairness_keys": [share for _, share in weighted],
        "steps": [virtual_time_step(_weights(tx, queue), share) for queue, share in weighted],
        "step": VIRTUAL_TIME_STEP,
    }
    tx.run("fairness_keys_join", values)


def join_limit_lanes(tx: Transaction, queue: QueueName, lanes: Iterable[tuple[str, str]]) -> None:
    """Jobs of shares wait behind limits, given as scope and share. Under the lock of the queue's shares."""
    pairs = sorted(set(lanes))
    if pairs:
        scopes, shares = zip(*pairs, strict=True)
        steps = [virtual_time_step(_weights(tx, queue), share) for share in shares]
        tx.run(
            "limit_fairness_join",
            {"queue": queue, "scopes": list(scopes), "fairness_keys": list(shares), "steps": steps},
        )


def _weights(tx: Transaction, name: str) -> Mapping[str, int]:
    queue = tx.queue(name)
    return {} if queue is None else queue.settings.fairness_weights


class PostgresFairClaim(FairClaim[Row]):
    """The shares of a queue, under their lock; heads are rows as `fair_heads` has them."""

    def __init__(
        self, tx: Transaction, queue: QueueName, cap_ms: Callable[[], int], max_payload: int
    ) -> None:
        super().__init__(_weights(tx, queue))
        self._max_payload = max_payload
        self._tx = tx
        self._queue = queue
        self._cap_ms = cap_ms

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("fairness_keys", {"queue": self._queue, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        values = {
            "queue": self._queue,
            "cap_ms": self._cap_ms(),
            "max_payload": self._max_payload,
            "lanes": [fairness_lane(share) for share in counts],
            "rooms": list(counts.values()),
        }
        rows = self._tx.all("fairness_candidates", values)
        return {
            fairness_key_of(gate): list(some) for gate, some in groupby(rows, key=lambda row: str(row[2]))
        }

    def _remove_idle(self, keys: Sequence[str]) -> None:
        self._tx.run("fairness_keys_remove", {"queue": self._queue, "fairness_keys": list(keys)})

    def _advance(self, steps: Mapping[str, int]) -> None:
        self._tx.run(
            "fairness_keys_advance",
            {"queue": self._queue, "fairness_keys": list(steps), "steps": list(steps.values())},
        )


class PostgresFairUnpark(FairUnpark[str]):
    """The shares with jobs behind one limit of a queue, under the lock of its shares; heads are ctids."""

    def __init__(self, tx: Transaction, queue: QueueName, scope: str) -> None:
        super().__init__(_weights(tx, queue))
        self._tx = tx
        self._lane = {"queue": queue, "scope": scope}
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("limit_fairness_lanes", {**self._lane, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[str]]:
        shares = {limit_fairness_lane(self._scope, share): share for share in counts}
        values = {"queue": self._queue, "lanes": list(shares), "rooms": list(counts.values())}
        found: dict[str, list[str]] = {}
        for spot, gate in self._tx.all("limit_fairness_candidates", values):
            found.setdefault(shares[gate], []).append(spot)
        return found

    def _remove_idle(self, keys: Sequence[str]) -> None:
        self._tx.run("limit_fairness_remove", {**self._lane, "fairness_keys": list(keys)})

    def _unpark(self, candidates: Sequence[tuple[str, str]]) -> None:
        spots = [spot for _, spot in candidates]
        self._tx.unparked.append(self._tx.run("limit_fairness_unpark", {"ctids": spots}))
        mark_pending(self._tx, ((self._queue, share) for share, _ in candidates))

    def _advance(self, steps: Mapping[str, int]) -> None:
        self._tx.run(
            "limit_fairness_advance",
            {**self._lane, "fairness_keys": list(steps), "steps": list(steps.values())},
        )
