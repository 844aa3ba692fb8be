"""Gradual revives of dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

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
from forebay.service.schema.dead_letters import GroupId
from forebay.service.schema.job_filter import JobFilter

GradualReviveName = Annotated[
    str, Meta(pattern="^[0-9A-Z]{1,40}$", description="The name of a gradual revive.")
]


class GradualReviveRequest(RequestModel, frozen=True, kw_only=True):
    """Dead letters to revive in batches. The first batch has `initial_batch` jobs, and each next one
    `growth_factor` times as many, up to `max_batch`. A batch starts at least `every_seconds` after the one
    before, and when half of that has ended. The revive stops when more than `max_failure_percent` of a batch
    have failed again."""

    where: JobFilter = field(default_factory=JobFilter)
    group: GroupId | None = None
    initial_batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 10
    growth_factor: Annotated[float, Meta(ge=1, le=MAX_FACTOR)] = 2
    max_batch: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = MAX_BATCH
    every_seconds: Annotated[float, Meta(ge=MIN_EVERY_MS / 1_000, le=DAY_MS / 1_000)] = 30
    max_failure_percent: Annotated[float, Meta(ge=0, le=100)] = 20

    def plan(self) -> GradualRevivePlan:
        """Return the sizes and times of the batches."""
        return GradualRevivePlan(
            initial_batch=self.initial_batch,
            growth_factor=self.growth_factor,
            max_batch=self.max_batch,
            every_ms=length(self.every_seconds) or MIN_EVERY_MS,
            max_failure_percent=self.max_failure_percent,
        )


class GradualReviveView(ResponseModel, frozen=True, kw_only=True):
    """Progress of a gradual revive. `waiting` jobs were revived and have not ended yet, `refused` ones could
    not be revived, `removed` ones were cancelled or deleted meanwhile."""

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
    """Active gradual revives and the last ended ones, newest first."""

    gradual_revives: list[GradualReviveView]


def gradual_revive_view(revive: GradualRevive) -> GradualReviveView:
    """Return the view of a gradual revive."""
    return GradualReviveView(
        name=revive.name,
        state=revive.state,
        reason=revive.reason,
        group=revive.group,
        queues=list(revive.query.queues),
        initial_batch=revive.plan.initial_batch,
        growth_factor=revive.plan.growth_factor,
        max_batch=revive.plan.max_batch,
        every_seconds=seconds(revive.plan.every_ms) or 0,
        max_failure_percent=revive.plan.max_failure_percent,
        started_at=moment_of(revive.started_at),
        started_by=revive.started_by.partition("#")[0],
        next_at=moment_of(revive.next_batch_at),
        ended_at=at(revive.ended_at),
        batches=revive.batches,
        scanned=revive.scanned,
        revived=revive.revived,
        waiting=len(revive.watched),
        completed=revive.completed_jobs,
        failed_again=revive.dead_jobs,
        refused=revive.refused,
        removed=revive.removed_jobs,
    )
