"""Shares: whose turn it is."""

from __future__ import annotations

from forebay.domain.queue import Queue
from forebay.domain.share import fair_gate, is_fair_gate, share_behind, step
from forebay.stores.memory.order import is_in_time
from forebay.stores.memory.state import State


def turn(state: State, queue: Queue) -> list[str]:
    """The gate of the share that is next, if one has something to run; others are forgotten."""
    waiting = sorted((turn, share) for (name, share), turn in state.shares.items() if name == queue.name)
    for _, share in waiting:
        gate = fair_gate(share)
        orders = [state.ready_in(queue.name, capped, gate) for capped in (False, True)]
        if any(order.first(lambda record: is_in_time(record.job, state.now)) for order in orders):
            return [gate]
        if not any(order.first() for order in orders):
            state.write(state.shares, (queue.name, share), None)
    return []


def took(state: State, queue: Queue, gate: str | None) -> None:
    """A job was taken from behind this gate: if it was one of a share, others are next."""
    if gate is not None and is_fair_gate(gate):
        key = queue.name, share_behind(gate)
        by = step(queue.settings.share_weights, key[1])
        state.write(state.shares, key, state.shares[key] + by)
