"""Reviving many dead letters carefully: a few at first, then more, and no more when they die again.

A ramp is a plain value that says how far it has come. Whoever looks at it works out what comes next, and
writes that down before doing it. It speaks only of jobs that had ended when it began (`started_at`), and the
store revives none that has ended since: so it puts each job back at most once, whoever does it and how often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.failure_group import check_group
from forebay.domain.job import DAY_MS, JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery, JobStateInfo
from forebay.errors import ConfigError, IllegalTransition

MAX_BATCH: Final = 500
MAX_FACTOR: Final = 100
MIN_EVERY_MS: Final = 1_000
# A ramp is kept as one document, with the ids of two batches. Ids may be long if people make them.
BATCH_BYTES: Final = 20_000
MAX_QUERY_BYTES: Final = 16_000


class GradualReviveState(StrEnum):
    """How a ramp stands."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"  # too many died again, or somebody has stopped it
    COMPLETED = "completed"  # all were put back, and have ended


OPEN_STATES: Final = frozenset({GradualReviveState.RUNNING, GradualReviveState.PAUSED})


class GradualRevivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a ramp goes: `first` jobs, then `factor` times as many each time and at most `most`, one batch
    not sooner than `every_ms` after the other. It stops when more than `max_failure_percent` of one died
    again."""

    initial_batch: int = 10
    growth_factor: float = 2.0
    max_batch: int = MAX_BATCH
    every_ms: int = 30_000
    max_failure_percent: float = 20.0

    def __post_init__(self) -> None:
        wrong = (
            (not 1 <= self.initial_batch <= MAX_BATCH, f"first is from 1 to {MAX_BATCH} jobs"),
            (not 1 <= self.max_batch <= MAX_BATCH, f"most is from 1 to {MAX_BATCH} jobs"),
            (not 1 <= self.growth_factor <= MAX_FACTOR, f"the factor is from 1 to {MAX_FACTOR}"),
            (
                not MIN_EVERY_MS <= self.every_ms <= DAY_MS,
                "a batch comes every second at most, and every day at least",
            ),
            (
                not 0 <= self.max_failure_percent <= 100,  # noqa: PLR2004 - percent
                "the share that may die again is from 0 to 100 percent",
            ),
        )
        for is_wrong, what in wrong:
            if is_wrong:
                raise ConfigError(f"a ramp: {what}")

    def size(self, batches: int) -> int:
        """How many jobs the next batch has after so many."""
        try:
            power = self.growth_factor ** min(batches, MAX_BATCH)
        except OverflowError:
            return self.max_batch
        return min(self.max_batch, int(self.initial_batch * min(float(self.max_batch), power)))


class GradualRevive(msgspec.Struct, frozen=True, kw_only=True):
    """A revival in batches, and how far it has come.

    `picked` are jobs of the next batch while the rest of it is still looked for, behind `after`; `watched`
    are those of the batches so far that have not ended again. `size` and `died` are of the last batch, the
    other counts of all; whoever ends late counts for the batch that is the last one by then. `seen_at` is
    when somebody last looked at those that are watched.
    """

    name: str
    query: JobQuery
    group: str | None = None
    plan: GradualRevivePlan = GradualRevivePlan()
    state: GradualReviveState = GradualReviveState.RUNNING
    reason: str = ""
    started_at: int = 0
    started_by: str = ""
    next_batch_at: int = 0
    checked_at: int = 0
    ended_at: int | None = None
    after: str | None = None
    is_searched: bool = False
    picked: tuple[JobId, ...] = ()
    watched: tuple[JobId, ...] = ()
    batches: int = 0
    size: int = 0
    failed_again: int = 0
    scanned: int = 0
    chosen: int = 0
    refused: int = 0
    completed_jobs: int = 0
    dead_jobs: int = 0
    removed_jobs: int = 0

    def __post_init__(self) -> None:
        if self.group is not None:
            check_group(self.group)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def revived(self) -> int:
        """How many jobs were put back, or will be in a moment."""
        return self.chosen - self.refused

    @property
    def wanted(self) -> int:
        """How many jobs the next batch still lacks."""
        return self.plan.size(self.batches) - len(self.picked)

    def is_due(self, now: int) -> bool:
        """Whether the next batch may be put together: its time has come, and at least half of the last one
        has ended. Nobody knows how the others will do; but one that is tried again for hours must not hold up
        the rest."""
        return (
            self.state is GradualReviveState.RUNNING
            and not self.is_searched
            and now >= self.next_batch_at
            and 2 * len(self.watched) <= self.size
        )

    def is_check_due(self, now: int) -> bool:
        """Whether it is worth a look how the watched jobs fare: four times for each batch, and before the
        next one is put together."""
        return now >= self.checked_at + self.plan.every_ms // 4 or (
            now >= self.next_batch_at and not self.picked
        )

    def has_room_for(self, ids: Sequence[JobId]) -> bool:
        """Whether the next batch takes these as well."""
        return len(ids) <= self.wanted and sum(map(_bytes, (*self.picked, *ids))) <= BATCH_BYTES

    def with_picked(
        self, ids: Sequence[JobId], after: str | None, *, scanned: int, is_searched: bool
    ) -> GradualRevive:
        """After a look at so many more dead letters, which has found these; there are no others behind
        `after` if it `is_searched`."""
        return replace(
            self,
            picked=(*self.picked, *ids),
            after=after,
            scanned=self.scanned + scanned,
            is_searched=is_searched,
        )

    def start_batch(self, now: int) -> GradualRevive:
        """With the picked jobs as its next batch. They are put back once this is written."""
        return replace(
            self,
            picked=(),
            watched=(*self.watched, *self.picked),
            batches=self.batches + 1,
            size=len(self.picked),
            failed_again=0,
            chosen=self.chosen + len(self.picked),
            next_batch_at=now + self.plan.every_ms,
        )

    def pause(self) -> GradualRevive:
        self._check(GradualReviveState.RUNNING)
        return replace(self, state=GradualReviveState.PAUSED)

    def resume(self, now: int) -> GradualRevive:
        """Going on after a pause, or after it was stopped: what has died until now is forgiven."""
        self._check(GradualReviveState.PAUSED, GradualReviveState.STOPPED)
        next_at = max(now, self.started_at)
        return replace(
            self,
            state=GradualReviveState.RUNNING,
            reason="",
            failed_again=0,
            next_batch_at=next_at,
            ended_at=None,
        )

    def stop(self, now: int, reason: str) -> GradualRevive:
        self._check(*OPEN_STATES)
        return replace(self, state=GradualReviveState.STOPPED, reason=reason, ended_at=now)

    def _check(self, *states: GradualReviveState) -> None:
        if self.state not in states:
            raise IllegalTransition(f"ramp {self.name} is {self.state}")


def is_still_dead(revive: GradualRevive, info: JobStateInfo) -> bool:
    """Whether a watched job still is as the ramp has found it."""
    return info.state is JobState.DEAD and (info.finished_at or 0) < revive.started_at


def evaluate_batch(
    revive: GradualRevive, infos: Mapping[JobId, JobStateInfo | None], refused: Sequence[JobId], now: int
) -> GradualRevive:
    """The ramp after a look at the jobs that it watches. `refused` are those that the store does not put
    back: they are no part of a batch, or it could not fail where most of it was never tried."""
    still: list[JobId] = []
    dead = completed = gone = 0
    for job_id in revive.watched:
        fate = infos.get(job_id)
        if job_id in refused:
            continue
        if fate is None or fate.state is JobState.CANCELLED:
            gone += 1
        elif fate.state is JobState.COMPLETED:
            completed += 1
        elif fate.state is JobState.DEAD and not is_still_dead(revive, fate):
            dead += 1
        else:
            still.append(job_id)
    seen = replace(
        revive,
        watched=tuple(still),
        checked_at=now if revive.watched else revive.checked_at,
        size=max(0, revive.size - len(refused)),
        failed_again=revive.failed_again + dead,
        dead_jobs=revive.dead_jobs + dead,
        completed_jobs=revive.completed_jobs + completed,
        removed_jobs=revive.removed_jobs + gone,
        refused=revive.refused + len(refused),
    )
    return check_completion(seen, now)


def check_completion(revive: GradualRevive, now: int) -> GradualRevive:
    """Stopped, if too many have died again; completed, if there is nothing left."""
    if (
        revive.state is GradualReviveState.RUNNING
        and revive.failed_again * 100 > revive.plan.max_failure_percent * revive.size
    ):
        return revive.stop(
            now, f"{revive.failed_again} jobs died again, {revive.size} were in the last batch"
        )
    if revive.is_open and revive.is_searched and not revive.watched and not revive.picked:
        return replace(revive, state=GradualReviveState.COMPLETED, ended_at=now)
    return revive


def _bytes(job_id: JobId) -> int:
    return len(job_id.encode()) + 3
