"""Metrics: kept, removed and shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from forebay.domain.job import QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.metrics import MetricPage, MetricRow, Stock
from forebay.stores.measuring import stock_of
from forebay.stores.memory.state import State


def record(state: State, rows: Sequence[MetricRow], instead_of: Sequence[MetricRow]) -> None:
    for row in rows:
        state.write(state.measured.rows, _key(row), row)
    for row in instead_of:
        state.write(state.measured.rows, _key(row), None)


def page(state: State, tier: int, since: int, before: int, limit: int) -> MetricPage:
    fitting = sorted(key for key in state.measured.rows if key[0] == tier and since <= key[1] < before)
    found: list[MetricRow] = []
    for _, of_start in groupby(fitting, key=lambda key: key[1]):
        if len(found) >= limit:
            break
        found += [state.measured.rows[key] for key in of_start]
    return MetricPage(found, found[-1].start + tier if len(found) >= limit else None)


def last(state: State, tier: int) -> int | None:
    return max((start for of, start, _, _ in state.measured.rows if of == tier), default=None)


def forget(state: State, tier: int, before: int, limit: int) -> int:
    old = page(state, tier, 0, before, limit).rows
    record(state, (), old)
    return len(old)


def stock(state: State) -> dict[QueueName, Stock]:
    counted: dict[tuple[str, str], int] = {
        (name, each.value): state.count(name, each) for name in state.queues for each in JobState
    }
    return stock_of(state.now, counted, state.measured.removed)


def _key(row: MetricRow) -> tuple[int, int, str, str]:
    return row.tier, row.start, row.queue, row.worker
