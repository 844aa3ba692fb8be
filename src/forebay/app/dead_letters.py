"""`app.dead_letters`: dead letters grouped by error, revived or purged in bulk."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from forebay.app.client import Client
from forebay.deferred_interrupts import check_between_calls, uninterrupted
from forebay.domain.durations_and_instants import Duration, duration_within
from forebay.domain.failure_group import DEFAULT_NEWEST, FailureGroups
from forebay.domain.gradual_revive import MAX_BATCH, MIN_EVERY_MS, GradualRevive, GradualRevivePlan
from forebay.domain.job import DAY_MS
from forebay.domain.job_query import JobQuery
from forebay.domain.retry_stats import RetryStats
from forebay.operations.bulk_actions import purge, revive_matching
from forebay.operations.failure_groups import failure_groups, restrict_to_dead
from forebay.operations.gradual_revive import (
    find_gradual_revive,
    list_gradual_revives,
    pause_gradual_revive,
    resume_gradual_revive,
    start_gradual_revive,
    stop_gradual_revive,
)
from forebay.operations.retry_stats import retry_stats
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store

T = TypeVar("T")


class DeadLetters:
    """The dead letters of a store.

    [largest, *_] = app.dead_letters.failure_groups().groups
    app.dead_letters.revive_gradually(group=largest.id, initial_batch=10, every=30,
    max_failure_percent=20)
    """

    def __init__(self, client: Client, engine: Engine) -> None:
        self._client = client
        self._engine = engine

    def failure_groups(self, query: JobQuery | None = None, *, newest: int = DEFAULT_NEWEST) -> FailureGroups:
        """Return the newest dead letters, grouped by error, the largest group first."""
        return self._read(lambda reader: failure_groups(reader, query or JobQuery(), newest))

    async def failure_groups_async(
        self, query: JobQuery | None = None, *, newest: int = DEFAULT_NEWEST
    ) -> FailureGroups:
        """`failure_groups` for coroutines."""
        return await to_thread(self.failure_groups, query, newest=newest)

    def revive(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Revive all matching dead letters at once; return how many. With `group` only those of one group."""
        return self._read_and_write(partial(_revive_dead, query=query, group=group, actor=self._client.actor))

    async def revive_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`revive` for coroutines."""
        return await to_thread(self.revive, query, group=group)

    def purge(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Delete all matching dead letters for good; return how many. With `group` only those of one
        group."""
        return self._read_and_write(partial(_purge_dead, query=query, group=group, actor=self._client.actor))

    async def purge_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`purge` for coroutines."""
        return await to_thread(self.purge, query, group=group)

    def retry_stats(self, task: str | None = None, *, newest: int = DEFAULT_NEWEST) -> RetryStats:
        """Return statistics of the newest completed and dead jobs, of one task or of all.

        They count the jobs that had failed before, those of them that completed, their attempts, and the
        errors of the dead ones.
        """
        query = JobQuery(tasks=() if task is None else (task,))
        return self._read(lambda reader: retry_stats(reader, query, newest))

    async def retry_stats_async(self, task: str | None = None, *, newest: int = DEFAULT_NEWEST) -> RetryStats:
        """`retry_stats` for coroutines."""
        return await to_thread(self.retry_stats, task, newest=newest)

    # In batches

    def revive_gradually(
        self,
        query: JobQuery | None = None,
        *,
        group: str | None = None,
        initial_batch: int = 10,
        growth_factor: float = 2.0,
        max_batch: int = MAX_BATCH,
        every: Duration = 30,
        max_failure_percent: float = 20.0,
    ) -> GradualRevive:
        """Start to revive dead letters in growing batches.

        The first batch has `initial_batch` jobs, each later one `growth_factor` times as many, at most
        `max_batch`. A batch starts at least `every` after the last one, and when half of that one has ended.
        The gradual revive stops when more than `max_failure_percent` of a batch have died again.

        Workers, consumers and servers continue it; the caller need not wait. Raises IllegalTransition if
        another gradual revive covers the same jobs, and ConfigError for a wrong value.
        """
        every_ms = duration_within("every", every, MIN_EVERY_MS, DAY_MS)
        plan = GradualRevivePlan(
            initial_batch=initial_batch,
            growth_factor=growth_factor,
            max_batch=max_batch,
            every_ms=every_ms,
            max_failure_percent=max_failure_percent,
        )
        matching = query or JobQuery()
        return self._read_and_write(
            lambda store, reader: start_gradual_revive(
                store, reader, matching, group=group, plan=plan, actor=self._client.actor
            )
        )

    async def revive_gradually_async(
        self,
        query: JobQuery | None = None,
        *,
        group: str | None = None,
        initial_batch: int = 10,
        growth_factor: float = 2.0,
        max_batch: int = MAX_BATCH,
        every: Duration = 30,
        max_failure_percent: float = 20.0,
    ) -> GradualRevive:
        """`revive_gradually` for coroutines."""
        return await self._client.run_in_thread(
            self.revive_gradually,
            query,
            group=group,
            initial_batch=initial_batch,
            growth_factor=growth_factor,
            max_batch=max_batch,
            every=every,
            max_failure_percent=max_failure_percent,
        )

    def gradual_revives(self) -> Sequence[GradualRevive]:
        """Return the open gradual revives and the last finished ones, the newest first."""
        return self._client.read(list_gradual_revives)

    async def gradual_revives_async(self) -> Sequence[GradualRevive]:
        """`gradual_revives` for coroutines."""
        return await self._client.run_in_thread(self.gradual_revives)

    def gradual_revive(self, name: str) -> GradualRevive:
        """Return a gradual revive by name. Raises GradualReviveNotFound, like the next three methods."""
        return self._client.read(lambda reader: find_gradual_revive(reader, name))

    async def gradual_revive_async(self, name: str) -> GradualRevive:
        """`gradual_revive` for coroutines."""
        return await self._client.run_in_thread(self.gradual_revive, name)

    def pause_revive(self, name: str) -> GradualRevive:
        """Revive no more jobs until `resume_revive`; revived jobs are not affected."""
        return self._read_and_write(partial(pause_gradual_revive, name=name, actor=self._client.actor))

    async def pause_revive_async(self, name: str) -> GradualRevive:
        """`pause_revive` for coroutines."""
        return await self._client.run_in_thread(self.pause_revive, name)

    def resume_revive(self, name: str) -> GradualRevive:
        """Continue a gradual revive that was paused, or that has stopped."""
        return self._read_and_write(partial(resume_gradual_revive, name=name, actor=self._client.actor))

    async def resume_revive_async(self, name: str) -> GradualRevive:
        """`resume_revive` for coroutines."""
        return await self._client.run_in_thread(self.resume_revive, name)

    def stop_revive(self, name: str) -> GradualRevive:
        """End a gradual revive; revived jobs are not affected."""
        return self._read_and_write(partial(stop_gradual_revive, name=name, actor=self._client.actor))

    async def stop_revive_async(self, name: str) -> GradualRevive:
        """`stop_revive` for coroutines."""
        return await self._client.run_in_thread(self.stop_revive, name)

    # Own handles and threads: reading many dead letters takes a while, and other threads of the program
    # enqueue at the same time.

    def _read(self, call: Callable[[Reader], T]) -> T:
        with uninterrupted, closing(self._engine.reader()) as reader:
            return call(check_between_calls(reader))

    def _read_and_write(self, call: Callable[[Store, Reader], T]) -> T:
        with (
            uninterrupted,
            closing(self._engine.store()) as store,
            closing(self._engine.reader()) as reader,
        ):
            return call(check_between_calls(store), check_between_calls(reader))


def _revive_dead(
    store: Store, reader: Reader, *, query: JobQuery | None, group: str | None, actor: str
) -> int:
    options = ReviveOptions(actor=actor)
    return revive_matching(store, reader, restrict_to_dead(query or JobQuery()), group=group, options=options)


def _purge_dead(
    store: Store, reader: Reader, *, query: JobQuery | None, group: str | None, actor: str
) -> int:
    return purge(store, reader, restrict_to_dead(query or JobQuery()), group=group, actor=actor)
