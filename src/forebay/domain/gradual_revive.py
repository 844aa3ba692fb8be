"""Gradual revive of dead letters: a small batch first, then larger ones, until too many jobs fail again.

It is a plain value that includes its progress. A process that reads it computes the next step, and writes
that before doing it. It covers only jobs that had ended when it began (`started_at`), and the store revives
none that has ended since. So each job is revived at most once, however many processes work on it and however
often they repeat a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.failure_group import check_group
from forebay.domain.job import DAY_MS, JobId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo
from forebay.errors import ConfigError, IllegalTransition

MAX_BATCH: Final = 500
MAX_FACTOR: Final = 100
MIN_EVERY_MS: Final = 1_000
# A gradual revive is one document, with the ids of two batches. Ids that callers bring may be long.
BATCH_BYTES: Final = 20_000
MAX_QUERY_BYTES: Final = 16_000


class GradualReviveState(StrEnum):
    """State of a gradual revive."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"  # too many jobs failed again, or an operator has stopped it
    COMPLETED = "completed"  # all jobs were revived, and have ended


OPEN_STATES: Final = frozenset({GradualReviveState.RUNNING, GradualReviveState.PAUSED})


class GradualRevivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of a gradual revive: `initial_batch` jobs, then `growth_factor` times as many each time, at
    most `max_batch`. Two batches are at least `every_ms` apart. It stops when more than
    `max_failure_percent` of a batch failed again."""

    initial_batch: int = 10
    growth_factor: float = 2.0
    max_batch: int = MAX_BATCH
    every_ms: int = 30_000
    max_failure_percent: float = 20.0

    def __post_init__(self) -> None:
        wrong = (
            (not 1 <= self.initial_batch <= MAX_BATCH, f"the initial batch is from 1 to {MAX_BATCH} jobs"),
            (not 1 <= self.max_batch <= MAX_BATCH, f"the largest batch is from 1 to {MAX_BATCH} jobs"),
            (not 1 <= self.growth_factor <= MAX_FACTOR, f"the growth factor is from 1 to {MAX_FACTOR}"),
            (
                not MIN_EVERY_MS <= self.every_ms <= DAY_MS,
                "the time between two batches is from one second to one day",
            ),
            (
                not 0 <= self.max_failure_percent <= 100,  # noqa: PLR2004 - percent
                "the part of a batch that may fail again is from 0 to 100 percent",
            ),
        )
        for is_wrong, rule in wrong:
            if is_wrong:
                raise ConfigError(f"a gradual revive: {rule}")

    def size(self, batches: int) -> int:
        """Return the size of the next batch after so many."""
        try:
            power = self.growth_factor ** min(batches, MAX_BATCH)
        except OverflowError:
            return self.max_batch
        return min(self.max_batch, int(self.initial_batch * min(float(self.max_batch), power)))


class GradualRevive(msgspec.Struct, frozen=True, kw_only=True):
    """Gradual revive of dead letters, and its progress.

    `picked` are jobs of the next batch while the search for the rest of it continues after `after`; `watched`
    are jobs of the batches so far that have not ended again. `size` and `failed_again` are of the last batch,
    the other counts of all; a job that ends late counts for the batch that is the last by then. `checked_at`
    is when the watched jobs were last checked.
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
        """Return how many jobs were revived, or will be in a moment."""
        return self.chosen - self.refused

    @property
    def wanted(self) -> int:
        """Return how many jobs the next batch still lacks."""
        return self.plan.size(self.batches) - len(self.picked)

    def is_due(self, now: int) -> bool:
        """Return whether the next batch may be picked: its time has come, and at least half of the last
        one has ended. How the others will end is unknown, but one that is retried for hours must not delay
        the rest."""
        return (
            self.state is GradualReviveState.RUNNING
            and not self.is_searched
            and now >= self.next_batch_at
            and 2 * len(self.watched) <= self.size
        )

    def is_check_due(self, now: int) -> bool:
        """Return whether to check the watched jobs: four times for each batch, and before the next one is
        picked."""
        return now >= self.checked_at + self.plan.every_ms // 4 or (
            now >= self.next_batch_at and not self.picked
        )

    def has_room_for(self, ids: Sequence[JobId]) -> bool:
        """Return whether the next batch has room for these jobs."""
        return len(ids) <= self.wanted and sum(map(_bytes, (*self.picked, *ids))) <= BATCH_BYTES

    def with_picked(
        self, ids: Sequence[JobId], after: str | None, *, scanned: int, is_searched: bool
    ) -> GradualRevive:
        """Return it after a search of so many more dead letters, which has found these jobs. If it
        `is_searched`, there are no more."""
        return replace(
            self,
            picked=(*self.picked, *ids),
            after=after,
            scanned=self.scanned + scanned,
            is_searched=is_searched,
        )

    def start_batch(self, now: int) -> GradualRevive:
        """Return it with the picked jobs as its next batch. They are revived once this is written."""
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
        """Return it as running, after a pause or a stop: failures until now are forgiven."""
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
            raise IllegalTransition(f"gradual revive {self.name} is {self.state}")


def is_still_dead(revive: GradualRevive, info: JobStateInfo) -> bool:
    """Return whether a watched job is still as the search has found it."""
    return info.state is JobState.DEAD and (info.finished_at or 0) < revive.started_at


def evaluate_batch(
    revive: GradualRevive, infos: Mapping[JobId, JobStateInfo | None], refused: Sequence[JobId], now: int
) -> GradualRevive:
    """Return the gradual revive after a check of its watched jobs. `refused` are jobs that the store does
    not revive. They leave the batch, or it could not fail where most of it was never tried."""
    watched: list[JobId] = []
    failed_again = completed = removed = 0
    for job_id in revive.watched:
        info = infos.get(job_id)
        if job_id in refused:
            continue
        if info is None or info.state is JobState.CANCELLED:
            removed += 1
        elif info.state is JobState.COMPLETED:
            completed += 1
        elif info.state is JobState.DEAD and not is_still_dead(revive, info):
            failed_again += 1
        else:
            watched.append(job_id)
    checked = replace(
        revive,
        watched=tuple(watched),
        checked_at=now if revive.watched else revive.checked_at,
        size=max(0, revive.size - len(refused)),
        failed_again=revive.failed_again + failed_again,
        dead_jobs=revive.dead_jobs + failed_again,
        completed_jobs=revive.completed_jobs + completed,
        removed_jobs=revive.removed_jobs + removed,
        refused=revive.refused + len(refused),
    )
    return check_completion(checked, now)


def check_completion(revive: GradualRevive, now: int) -> GradualRevive:
    """Return it as stopped, if too many have failed again, or as completed, if nothing is left."""
    if (
        revive.state is GradualReviveState.RUNNING
        and revive.failed_again * 100 > revive.plan.max_failure_percent * revive.size
    ):
        return revive.stop(
            now, f"{revive.failed_again} jobs failed again, {revive.size} were in the last batch"
        )
    if revive.is_open and revive.is_searched and not revive.watched and not revive.picked:
        return replace(revive, state=GradualReviveState.COMPLETED, ended_at=now)
    return revive


def _bytes(job_id: JobId) -> int:
    return len(job_id.encode()) + 3
