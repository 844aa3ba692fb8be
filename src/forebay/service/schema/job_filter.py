"""Filter of jobs in requests: conditions that must all hold; and the search for jobs by one."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from forebay.domain.job import JobId as StoredId
from forebay.domain.job import QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.service.schema.base import (
    Key,
    Moment,
    Priority,
    Queue,
    RequestModel,
    Task,
    Values,
    in_ms,
)

_After = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
_MOMENTS = ("created_from", "created_before", "finished_before")


class JobFilter(RequestModel, frozen=True, kw_only=True):
    """Conditions that must all hold; an empty filter matches every job. `text` is searched in the arguments
    and in the reason of the end, `metadata` compares top-level keys, and a job must have all `tags`."""

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

    def query(self, **overrides: Any) -> JobQuery:
        """Return the query for a reader; `overrides` replace conditions of the filter."""
        copied = ("priority_from", "priority_to", "unique_key", "correlation_id", "metadata", "text")
        fields: dict[str, Any] = {
            "queues": tuple(QueueName(name) for name in self.queues),
            "states": tuple(self.states),
            "tasks": tuple(self.tasks),
            "tags": tuple(self.tags),
            "idempotency_key": self.idempotency_key,
            "parent_id": None if self.parent_id is None else StoredId(self.parent_id),
            **{name: getattr(self, name) for name in copied},
            **{name: in_ms(name, getattr(self, name)) for name in _MOMENTS},
        }
        return JobQuery(**{**fields, **overrides})

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()


class FilterRequest(RequestModel, frozen=True, kw_only=True):
    """Filter of the jobs of a queue. `dry_run` only counts them."""

    where: JobFilter = field(default_factory=JobFilter)
    dry_run: bool = False


class SearchRequest(RequestModel, frozen=True, kw_only=True):
    """Jobs to list, newest first; `after` continues behind an earlier page."""

    where: JobFilter = field(default_factory=JobFilter)
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    after: _After | None = None
    with_total: bool = False
