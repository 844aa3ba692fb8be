"""Failure groups of dead letters, and filters of dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from forebay.domain.failure_group import DEFAULT_NEWEST, MAX_NEWEST, FailureGroup, FailureGroups
from forebay.service.schema.base import RequestModel, ResponseModel, moment_of
from forebay.service.schema.job_filter import FilterRequest, JobFilter

GroupId = Annotated[
    str, Meta(pattern="^[0-9a-f]{16}$", description="A failure group: the fingerprint of its jobs.")
]


class FailureGroupsRequest(RequestModel, frozen=True, kw_only=True):
    """Dead letters to group; only the `newest` are scanned."""

    where: JobFilter = field(default_factory=JobFilter)
    newest: Annotated[int, Meta(ge=1, le=MAX_NEWEST)] = DEFAULT_NEWEST


class FailureGroupView(ResponseModel, frozen=True, kw_only=True):
    """Dead letters with the same error. `message` is their reason without the parts that differ between jobs.
    `frames` are the functions of the task's own code in the traceback, innermost last."""

    id: str
    message: str
    frames: list[str]
    jobs: int
    tasks: dict[str, int]
    first_at: datetime
    last_at: datetime
    example_id: str
    example_reason: str


class FailureGroupList(ResponseModel, frozen=True, kw_only=True):
    """Failure groups, largest first. `jobs` is the number of scanned dead letters; without `is_complete`
    there are more. `others` counts those of groups that are not listed."""

    groups: list[FailureGroupView]
    jobs: int
    is_complete: bool
    others: int


class DeadLetterRequest(FilterRequest, frozen=True, kw_only=True):
    """Filter of dead letters, optionally of one failure group. `dry_run` only counts them."""

    group: GroupId | None = None


def failure_group_list(groups: FailureGroups) -> FailureGroupList:
    """Return the view of failure groups."""
    return FailureGroupList(
        groups=[_failure_group_view(group) for group in groups.groups],
        jobs=groups.jobs,
        is_complete=groups.is_complete,
        others=groups.others,
    )


def _failure_group_view(group: FailureGroup) -> FailureGroupView:
    return FailureGroupView(
        id=group.id,
        message=group.message,
        frames=list(group.frames),
        jobs=group.jobs,
        tasks=group.tasks,
        first_at=moment_of(group.first_at),
        last_at=moment_of(group.last_at),
        example_id=group.example,
        example_reason=group.example_reason,
    )
