"""Shapes of failure groups and of ramps, by which dead letters come back in batches."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from forebay.domain.group import MOST_NEWEST, NEWEST, Group, Groups
from forebay.domain.job import DAY_MS
from forebay.domain.ramp import MAX_BATCH, MAX_FACTOR, MIN_EVERY_MS, Pace, Ramp, RampState
from forebay.service.schema.searching import FilterRequest, JobFilter
from forebay.service.schema.shared import Asked, Shape, at, length, moment_of, seconds

GroupId = Annotated[
    str, Meta(pattern="^[0-9a-f]{16}$", description="A failure group: the fingerprint that its jobs share.")
]
RampName = Annotated[str, Meta(pattern="^[0-9A-Z]{1,40}$", description="The name of a ramp.")]


class GroupsRequest(Asked, frozen=True, kw_only=True):
    """Which dead letters to group; of these the newest ones are looked at."""

    where: JobFilter = field(default_factory=JobFilter)
    newest: Annotated[int, Meta(ge=1, le=MOST_NEWEST)] = NEWEST


class GroupShape(Shape, frozen=True, kw_only=True):
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


class GroupList(Shape, frozen=True, kw_only=True):
    """The largest groups first. So many dead letters were looked at; if not `is_whole` there are more.
    `others` are those of groups that are not shown."""

    groups: list[GroupShape]
    jobs: int
    is_whole: bool
    others: int


class DeadRequest(FilterRequest, frozen=True, kw_only=True):
    """Which dead letters are meant, or those of one failure group among them. With `dry_run` nothing is
    done."""

    group: GroupId | None = None


class RampRequest(Asked, frozen=True, kw_only=True):
    """Dead letters to put back in batches: `first` of them, then `factor` times as many each time, at most
    `most`, not sooner than `every_seconds` one after the other, and not before half of the last batch has
    ended. When more than `stop_percent` of a batch have died again it stops."""

    where: JobFilter = field(default_factory=JobFilter)
    group: GroupId | None = None
    first: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = 10
    factor: Annotated[float, Meta(ge=1, le=MAX_FACTOR)] = 2
    most: Annotated[int, Meta(ge=1, le=MAX_BATCH)] = MAX_BATCH
    every_seconds: Annotated[float, Meta(ge=MIN_EVERY_MS / 1_000, le=DAY_MS / 1_000)] = 30
    stop_percent: Annotated[float, Meta(ge=0, le=100)] = 20

    def pace(self) -> Pace:
        """How fast it goes."""
        return Pace(
            first=self.first,
            factor=self.factor,
            most=self.most,
            every_ms=length(self.every_seconds) or MIN_EVERY_MS,
            stop_percent=self.stop_percent,
        )


class RampShape(Shape, frozen=True, kw_only=True):
    """How far a ramp has come. `waiting` jobs were put back and have not ended again; `refused` ones could
    not be put back, `gone` ones were cancelled or deleted meanwhile."""

    name: str
    state: RampState
    reason: str
    group: str | None
    queues: list[str]
    first: int
    factor: float
    most: int
    every_seconds: float
    stop_percent: float
    started_at: datetime
    started_by: str
    next_at: datetime
    ended_at: datetime | None
    batches: int
    looked: int
    revived: int
    waiting: int
    completed: int
    dead: int
    refused: int
    gone: int


class RampList(Shape, frozen=True, kw_only=True):
    """Ramps that go on and the last ones that have ended, the newest first."""

    ramps: list[RampShape]


def group_list(found: Groups) -> GroupList:
    """Groups as they are told."""
    return GroupList(
        groups=[_group_shape(group) for group in found.groups],
        jobs=found.jobs,
        is_whole=found.is_whole,
        others=found.others,
    )


def _group_shape(group: Group) -> GroupShape:
    return GroupShape(
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


def ramp_shape(ramp: Ramp) -> RampShape:
    """A ramp as it is told."""
    return RampShape(
        name=ramp.name,
        state=ramp.state,
        reason=ramp.reason,
        group=ramp.group,
        queues=list(ramp.query.queues),
        first=ramp.pace.first,
        factor=ramp.pace.factor,
        most=ramp.pace.most,
        every_seconds=seconds(ramp.pace.every_ms) or 0,
        stop_percent=ramp.pace.stop_percent,
        started_at=moment_of(ramp.started_at),
        started_by=ramp.started_by.partition("#")[0],
        next_at=moment_of(ramp.next_at),
        ended_at=at(ramp.ended_at),
        batches=ramp.batches,
        looked=ramp.looked,
        revived=ramp.revived,
        waiting=len(ramp.watched),
        completed=ramp.completed_jobs,
        dead=ramp.dead_jobs,
        refused=ramp.refused,
        gone=ramp.gone_jobs,
    )
