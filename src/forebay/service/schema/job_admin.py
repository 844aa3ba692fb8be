"""Administration of jobs: requests for bulk actions, revive and replay."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from forebay.service.schema.base import (
    DelaySeconds,
    Priority,
    Queue,
    RequestModel,
    ResponseModel,
)
from forebay.service.schema.job_filter import JobFilter


class BulkRequest(RequestModel, frozen=True, kw_only=True):
    """Action on all matching jobs. `dry_run` only counts them. A filter without conditions matches all jobs,
    and must be confirmed with `all`."""

    action: Literal["cancel", "revive", "delete"]
    where: JobFilter = field(default_factory=JobFilter)
    all: bool = False
    dry_run: bool = False
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)] = "cancelled"
    queue: Queue | None = None
    delay_seconds: DelaySeconds = 0
    reset: bool = True


class BulkResponse(ResponseModel, frozen=True, kw_only=True):
    """Result of a bulk action: the number of `matched` jobs before it, exact up to 10,000, and of `affected`
    ones. `busy` jobs were skipped because another transaction holds them: repeat the action when it has
    ended."""

    matched: int
    matched_is_exact: bool
    affected: int
    dry_run: bool
    busy: int


class ReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Options of a revive: another queue, a delay, whether failures are reset, and whether dependants that
    ended because of the job are revived too."""

    queue: Queue | None = None
    delay_seconds: DelaySeconds = 0
    reset: bool = True
    dependants: bool = False


class ReplayRequest(RequestModel, frozen=True, kw_only=True):
    """Copy of an earlier job, with these fields replaced."""

    args: Annotated[list[Any], Meta(max_length=100)] | None = None
    kwargs: Annotated[dict[str, Any], Meta(max_length=50)] | None = None
    queue: Queue | None = None
    priority: Priority | None = None
    delay_seconds: DelaySeconds = 0
