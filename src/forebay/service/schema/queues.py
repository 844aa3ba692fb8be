"""Queues: settings, counts and states."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from forebay.domain.job import DAY_MS, MIN_LEASE_MS
from forebay.domain.queue import MAX_LENGTH, MAX_PROMOTED, MAX_RATE, QueueMode, QueueSettings, QueueState
from forebay.domain.queue import Queue as StoredQueue
from forebay.domain.queue_counts import Counts
from forebay.domain.rank import STRICT_AGING_MS
from forebay.domain.throughput import Throughput
from forebay.service.schema.base import Priority, Queue, RequestModel, ResponseModel, moment_of, seconds

_KEEP = Annotated[float, Meta(ge=0, le=100 * 366 * DAY_MS / 1_000)]
_POINTS = Annotated[float, Meta(ge=0, le=1_000)]
_RATE = Annotated[int, Meta(ge=1, le=MAX_RATE)]


class QueueSettingsRequest(RequestModel, frozen=True, kw_only=True):
    """Settings of a queue; fields that are left out stay, and null removes a limit."""

    mode: QueueMode | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    lease_seconds: Annotated[float, Meta(ge=MIN_LEASE_MS / 1_000, le=DAY_MS / 1_000)] | UnsetType = UNSET
    max_length: Annotated[int, Meta(ge=1, le=MAX_LENGTH)] | UnsetType | None = UNSET
    default_priority: Priority | UnsetType = UNSET
    min_priority: Priority | UnsetType = UNSET
    max_priority: Priority | UnsetType = UNSET
    aging_seconds: Annotated[float, Meta(ge=0.001, le=STRICT_AGING_MS / 1_000)] | UnsetType = UNSET
    max_aging_bonus: _POINTS | UnsetType | None = UNSET
    retry_penalty: _POINTS | UnsetType = UNSET
    deadline_weight: _POINTS | UnsetType = UNSET
    deadline_horizon_seconds: Annotated[float, Meta(ge=0.008, le=366 * DAY_MS / 1_000)] | UnsetType = UNSET
    keep_finished_seconds: _KEEP | UnsetType = UNSET
    keep_dead_seconds: _KEEP | UnsetType = UNSET
    archive: bool | UnsetType = UNSET
    keep_archive_seconds: _KEEP | UnsetType = UNSET
    enqueue_rate: _RATE | UnsetType | None = UNSET
    enqueue_burst: _RATE | UnsetType | None = UNSET
    client_rate: _RATE | UnsetType | None = UNSET
    client_burst: _RATE | UnsetType | None = UNSET
    fairness_weights: dict[str, int] | UnsetType = UNSET
    promote_per_second: Annotated[int, Meta(ge=1, le=MAX_PROMOTED)] | UnsetType | None = UNSET

    def changes(self) -> dict[str, object]:
        """Return the given settings as the store takes them."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return dict(_in_ms(name, value) for name, value in given.items() if value is not UNSET)


class CreateQueueRequest(RequestModel, frozen=True, kw_only=True):
    """New queue."""

    name: Queue
    settings: QueueSettingsRequest = msgspec.field(default_factory=QueueSettingsRequest)


class CountsView(ResponseModel, frozen=True, kw_only=True):
    """Jobs by state; `live` counts those that have not ended."""

    scheduled: int
    blocked: int
    pending: int
    running: int
    retrying: int
    completed: int
    dead: int
    cancelled: int
    live: int
    total: int


class QueueView(ResponseModel, frozen=True, kw_only=True):
    """Queue. `drain_seconds` is the estimated time for its pending jobs at the throughput of the last minute,
    null without one. `is_reordering` says that a change of its order has not reached all its jobs yet."""

    name: str
    state: QueueState
    settings: dict[str, Any]
    counts: CountsView
    drain_seconds: float | None
    is_reordering: bool
    created_at: datetime
    updated_at: datetime


class QueueList(ResponseModel, frozen=True, kw_only=True):
    """Queues by name."""

    queues: list[QueueView]


class DropResponse(ResponseModel, frozen=True, kw_only=True):
    """Deleted queue. `live_jobs` of its jobs went to the dead letters, or end if they run."""

    name: str
    live_jobs: int


def counts_view(counts: Counts) -> CountsView:
    return CountsView(**msgspec.to_builtins(counts), live=counts.live, total=counts.total)


def queue_view(queue: StoredQueue, counts: Counts, throughput: Throughput | None) -> QueueView:
    drain_ms = 0 if not counts.pending else throughput and throughput.wait_ms(counts.pending)
    return QueueView(
        name=queue.name,
        state=queue.state,
        settings=_settings(queue.settings),
        counts=counts_view(counts),
        drain_seconds=seconds(drain_ms),
        is_reordering=queue.is_rescoring,
        created_at=moment_of(queue.created_at),
        updated_at=moment_of(queue.updated_at),
    )


def _settings(settings: QueueSettings) -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.to_builtins(settings)
    return dict(_in_seconds(name, value) for name, value in stored.items())


def _in_ms(name: str, value: Any) -> tuple[str, object]:
    if name.endswith("_seconds"):
        return f"{name.removesuffix('_seconds')}_ms", round(value * 1_000)
    return name, value


def _in_seconds(name: str, value: Any) -> tuple[str, Any]:
    return (f"{name.removesuffix('_ms')}_seconds", value / 1_000) if name.endswith("_ms") else (name, value)
