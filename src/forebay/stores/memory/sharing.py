"""Shares: whose turn it is, in a queue and behind a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from forebay.domain.gate import lane_gate
from forebay.domain.job import QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue
from forebay.domain.share import Share, fair_gate, is_fair_gate, joining, share_behind, step
from forebay.stores.memory.order import Record, is_in_time
from forebay.stores.memory.state import State
from forebay.stores.sharing import Lanes


def turn(state: State, queue: Queue) -> list[str]:
    """The gate of the share that is next, if one has something to run; others are forgotten."""
    waiting = sorted((turn, share) for (name, share), turn in state.shares.items() if name == queue.name)
    for _, share in waiting:
        gate = fair_gate(share)
        orders = [state.ready_in(queue.name, capped, gate) for capped in (False, True)]
        if any(order.first(lambda record: is_in_time(record.job, state.now)) for order in orders):
            return [gate]
        if not any(order.first() for order in orders):
            _leave(state, queue.name, share)
    return []


def _leave(state: State, queue: QueueName, share: str) -> None:
    """Forget a share that has nothing to run. Its lanes behind limits keep its turn."""
    for lane, (turn, _) in list(state.lanes.items()):
        if (lane[0], lane[2]) == (queue, share):
            state.write(state.lanes, lane, (turn, state.shares[queue, share]))
    state.write(state.shares, (queue, share), None)


def took(state: State, queue: Queue, gate: str | None) -> None:
    """A job was taken from behind this gate: if it was one of a share, others are next."""
    if gate is not None and is_fair_gate(gate):
        key = queue.name, share_behind(gate)
        by = step(queue.settings.share_weights, key[1])
        state.write(state.shares, key, state.shares[key] + by)


def join_lane(state: State, queue: QueueName, scope: str, share: str) -> None:
    """A job of this share waits at the limit of a scope."""
    if (queue, scope, share) not in state.lanes:
        turns = [turn for lane, (turn, _) in state.lanes.items() if lane[:2] == (queue, scope)]
        weights = state.queues[queue].settings.share_weights
        turn = joining(weights, share, min(turns, default=None))
        state.write(state.lanes, (queue, scope, share), (turn, state.shares[queue, share]))


def waiting_behind(state: State, queue: QueueName, gate: str) -> list[Record]:
    """The jobs behind the gate of a limit, in their order."""
    waiting = [record for record in state.among(queue, [JobState.PENDING]) if record.job.gate == gate]
    return sorted(waiting, key=lambda record: (record.job.capped, record.job.rank, record.job.seq))


class MemoryLanes(Lanes[Record]):
    """The shares with jobs behind one limit of a queue."""

    def __init__(self, state: State, queue: QueueName, scope: str) -> None:
        super().__init__(state.queues[queue].settings.share_weights if queue in state.queues else {})
        self._state = state
        self._queue = queue
        self._scope = scope

    def _shares(self, limit: int) -> list[Share]:
        lanes = self._state.lanes.items()
        found = [Share(lane[2], turn) for lane, (turn, _) in lanes if lane[:2] == (self._queue, self._scope)]
        return sorted(found, key=lambda share: (share.turn, share.name))[:limit]

    def _look(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Record]]:
        return {share: self._behind(share)[:jobs] for share, jobs in wanted.items()}

    def _behind(self, share: str) -> list[Record]:
        return waiting_behind(self._state, self._queue, lane_gate(self._scope, share))

    def _leave(self, shares: Sequence[str]) -> None:
        for share in shares:
            if not self._behind(share):
                self._state.write(self._state.lanes, (self._queue, self._scope, share), None)

    def _put_back(self, heads: Sequence[tuple[str, Record]]) -> None:
        for share, record in heads:
            job = replace(record.job, gate=fair_gate(share), updated_at=self._state.now)
            self._state.put(record._replace(job=job))
            self._state.join(self._queue, share)

    def _move(self, by: Mapping[str, int]) -> None:
        for share, change in by.items():
            key = self._queue, self._scope, share
            turn, resume = self._state.lanes[key]
            self._state.write(self._state.lanes, key, (turn + change, resume))
