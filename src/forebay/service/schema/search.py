"""Shapes for choosing jobs by conditions, and for doing something to all of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from forebay.domain.job import JobId as StoredId
from forebay.domain.job import QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery
from forebay.service.schema.base import (
    DelaySeconds,
    Key,
    Moment,
    Priority,
    Queue,
    RequestModel,
    ResponseModel,
    Task,
    Values,
    in_ms,
)

_After = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
_MOMENTS = ("created_from", "created_before", "finished_before")


class JobFilter(RequestModel, frozen=True, kw_only=True):
    """Conditions that all must hold; an empty filter fits every job. `text` is looked for in the arguments
    and in the reason of an end, `metadata` compares top-level keys, and all `tags` must be there."""

    queues: Annotated[list[Queue], Meta(max_length=100)] = field(default_factory=list)
    states: Annotated[list[JobState], Meta(max_length=8)] = field(default_factory=list)
    tasks: Annotated[list[Task], Meta(max_length=100)] = field(default_factory=list)
    priority_from: Priority | None = None
    priority_to: Priority | None = None
    created_from: Moment | None = None
    created_before: Moment | None = None
    finished_before: Moment | None = None
    unique_key: Key | None = None
    idempotency_key: Key | None = None
    correlation_id: Key | None = None
    parent_id: Key | None = None
    tags: Annotated[list[Key], Meta(max_length=20)] = field(default_factory=list)
    metadata: Values = field(default_factory=dict)
    text: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None

    def query(self, **settled: Any) -> JobQuery:
        """The question to a reader; what an operation settles by itself replaces what was asked."""
        plain = ("priority_from", "priority_to", "unique_key", "correlation_id", "metadata", "text")
        fields: dict[str, Any] = {
            "queues": tuple(QueueName(name) for name in self.queues),
            "states": tuple(self.states),
            "tasks": tuple(self.tasks),
            "tags": tuple(self.tags),
            "idempotency_key": self.idempotency_key,
            "parent_id": None if self.parent_id is None else StoredId(self.parent_id),
            **{name: getattr(self, name) for name in plain},
            **{name: in_ms(name, getattr(self, name)) for name in _MOMENTS},
        }
        return JobQuery(**{**fields, **settled})

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()


class SearchRequest(RequestModel, frozen=True, kw_only=True):
    """Which jobs to list, newest first; `after` goes on behind an earlier page."""

    where: JobFilter = field(default_factory=JobFilter)
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    after: _After | None = None
    with_total: bool = False


class BulkRequest(RequestModel, frozen=True, kw_only=True):
    """Something to do to all jobs that fit. With `dry_run` nothing is done, and the answer says how many it
    would be. A filter without conditions means all jobs, and must be meant: `everything`."""

    action: Literal["cancel", "revive", "delete"]
    where: JobFilter = field(default_factory=JobFilter)
    all: bool = False
    dry_run: bool = False
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)] = "cancelled"
    queue: Queue | None = None
    delay_seconds: DelaySeconds = 0
    reset: bool = True


class FilterRequest(RequestModel, frozen=True, kw_only=True):
    """Which jobs of a queue are meant. With `dry_run` nothing is done."""

    where: JobFilter = field(default_factory=JobFilter)
    dry_run: bool = False


class BulkResponse(ResponseModel, frozen=True, kw_only=True):
    """How many jobs fitted before, which is exact up to 10,000, and how many were really changed. `busy` jobs
    were left as they are, because another transaction holds them: ask again once it has ended."""

    matched: int
    matched_is_exact: bool
    affected: int
    dry_run: bool
    busy: int


class ReviveRequest(RequestModel, frozen=True, kw_only=True):
    """How a dead or cancelled job goes back: into its queue or another one, now or later, with or without its
    failures forgotten, alone or with what ended because of it."""

    queue: Queue | None = None
    delay_seconds: DelaySeconds = 0
    reset: bool = True
    dependants: bool = False


class ReplayRequest(RequestModel, frozen=True, kw_only=True):
    """A new job like an earlier one, with what is named here in its place."""

    args: Annotated[list[Any], Meta(max_length=100)] | None = None
    kwargs: Annotated[dict[str, Any], Meta(max_length=50)] | None = None
    queue: Queue | None = None
    priority: Priority | None = None
    delay_seconds: DelaySeconds = 0
