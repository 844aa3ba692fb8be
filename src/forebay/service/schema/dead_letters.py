"""Shapes of failure groups and of ramps, by which dead letters come back in batches."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from forebay.domain.failure_group import DEFAULT_NEWEST, MAX_NEWEST, FailureGroup, FailureGroups
from forebay.domain.gradual_revive import (
    MAX_BATCH,
    MAX_FACTOR,
    MIN_EVERY_MS,
    GradualRevive,
    GradualRevivePlan,
    GradualReviveState,
)
from forebay.domain.job import DAY_MS
from forebay.service.schema.base import RequestModel, ResponseModel, at, length, moment_of, seconds
from forebay.service.schema.search import FilterRequest, JobFilter

GroupId = Annotated[
    str, Meta(pattern="^[0-9a-f]{16}$", description="A failure group: the fingerprint that its jobs share.")
]
GradualReviveName = Annotated[str, Meta(pattern="^[0-9A-Z]{1,40}$", description="The name of a ramp.")]


class FailureGroupsRequest(RequestModel, frozen=True, kw_only=True):
    """Which dead letters to group; of these the newest ones are looked at."""

    where: JobFilter = field(default_factory=JobFilter)
    newest: Annotated[int, Meta(ge=1, le=MAX_NEWEST)] = DEFAULT_NEWEST


class FailureGroupView(ResponseModel, frozen=True, kw_only=True):
    """Dead letters that have died of the same. `message` is their reason without what differs from job to
    job, `frames` are the functions of the task's own code that it came from, the innermost last."""

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
    """The largest groups first. So many dead letters were looked at; if not `is_whole` there are more.
    `others` are those of groups that are not shown."""

    groups: list[FailureGroupView]
    jobs: int
    is_complete: bool
    others: int


class DeadLetterRequest(FilterRequest, frozen=True, kw_only=True):
    """Which dead letters are meant, or those of one failure group among them. With `dry_run` nothing is
    done."""

    group: GroupId | None = None


class GradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Dead letters to put back in batches: `first` of them, then `factor` times as many each time, at most
    `most`, not sooner than `every_seconds` one after the other, and not before half of the last batch has
    ended. When more than `max_failure_percent` of a batch have died again it stops."""

    where: JobFilter = field(default_factory=JobFilter)
    group: GroupId | None = None
    initial_batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 10
    growth_factor: Annotated[float, Meta(ge=1, le=MAX_FACTOR)] = 2
    max_batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = MAX_BATCH
    every_seconds: Annotated[float, Meta(ge=MIN_EVERY_MS / 1_000, le=DAY_MS / 1_000)] = 30
    max_failure_percent: Annotated[float, Meta(ge=0, le=100)] = 20

    def plan(self) -> GradualRevivePlan:
        """How fast it goes."""
        return GradualRevivePlan(
            initial_batch=self.initial_batch,
            growth_factor=self.growth_factor,
            max_batch=self.max_batch,
            every_ms=length(self.every_seconds) or MIN_EVERY_MS,
            max_failure_percent=self.max_failure_percent,
        )


class GradualReviveView(ResponseModel, frozen=True, kw_only=True):
    """How far a ramp has come. `waiting` jobs were put back and have not ended again; `refused` ones could
    not be put back, `gone` ones were cancelled or deleted meanwhile."""

    name: str
    state: GradualReviveState
    reason: str
    group: str | None
    queues: list[str]
    initial_batch: int
    growth_factor: float
    max_batch: int
    every_seconds: float
    max_failure_percent: float
    started_at: datetime
    started_by: str
    next_at: datetime
    ended_at: datetime | None
    batches: int
    scanned: int
    revived: int
    waiting: int
    completed: int
    failed_again: int
    refused: int
    removed: int


class GradualReviveList(ResponseModel, frozen=True, kw_only=True):
    """Ramps that go on and the last ones that have ended, the newest first."""

    gradual_revives: list[GradualReviveView]


def failure_group_list(groups: FailureGroups) -> FailureGroupList:
    """Groups as they are told."""
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


def gradual_revive_view(gradual_revive: GradualRevive) -> GradualReviveView:
    """A ramp as it is told."""
    return GradualReviveView(
        name=gradual_revive.name,
        state=gradual_revive.state,
        reason=gradual_revive.reason,
        group=gradual_revive.group,
        queues=list(gradual_revive.query.queues),
        initial_batch=gradual_revive.plan.initial_batch,
        growth_factor=gradual_revive.plan.growth_factor,
        max_batch=gradual_revive.plan.max_batch,
        every_seconds=seconds(gradual_revive.plan.every_ms) or 0,
        max_failure_percent=gradual_revive.plan.max_failure_percent,
        started_at=moment_of(gradual_revive.started_at),
        started_by=gradual_revive.started_by.partition("#")[0],
        next_at=moment_of(gradual_revive.next_batch_at),
        ended_at=at(gradual_revive.ended_at),
        batches=gradual_revive.batches,
        scanned=gradual_revive.scanned,
        revived=gradual_revive.revived,
        waiting=len(gradual_revive.watched),
        completed=gradual_revive.completed_jobs,
        failed_again=gradual_revive.dead_jobs,
        refused=gradual_revive.refused,
        removed=gradual_revive.removed_jobs,
    )
