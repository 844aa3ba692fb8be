"""`app.dead`: the dead letters by what they died of, and ways to put them back."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from forebay.app.client import Client
from forebay.domain.durations import Duration, duration_within
from forebay.domain.failure_group import DEFAULT_NEWEST, FailureGroups, RetryStats
from forebay.domain.gradual_revive import MAX_BATCH, MIN_EVERY_MS, GradualRevive, GradualRevivePlan
from forebay.domain.job import DAY_MS
from forebay.domain.query import JobQuery
from forebay.interrupts import check_between_calls, uninterrupted
from forebay.operations.bulk import purge, revive_matching
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

    [largest, *_] = app.dead.groups().groups
    app.dead.ramp(group=largest.id, first=10, every=30, max_failure_percent=20)
    """

    def __init__(self, client: Client, engine: Engine) -> None:
        self._client = client
        self._engine = engine

    def failure_groups(self, query: JobQuery | None = None, *, newest: int = DEFAULT_NEWEST) -> FailureGroups:
        """The newest dead letters by what they died of, the largest group first."""
        return self._read(lambda reader: failure_groups(reader, query or JobQuery(), newest))

    async def failure_groups_async(
        self, query: JobQuery | None = None, *, newest: int = DEFAULT_NEWEST
    ) -> FailureGroups:
        """`groups` for coroutines."""
        return await to_thread(self.failure_groups, query, newest=newest)

    def revive(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Put back all dead letters that fit, at once; how many. With `group` those of one group."""
        return self._read_and_write(partial(_revive_dead, query=query, group=group, actor=self._client.actor))

    async def revive_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`revive` for coroutines."""
        return await to_thread(self.revive, query, group=group)

    def purge(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Delete all dead letters that fit for good; how many. With `group` those of one group."""
        return self._read_and_write(partial(_purge_dead, query=query, group=group, actor=self._client.actor))

    async def purge_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`purge` for coroutines."""
        return await to_thread(self.purge, query, group=group)

    def retry_stats(self, task: str | None = None, *, newest: int = DEFAULT_NEWEST) -> RetryStats:
        """How the newest jobs that have completed or died fared, of one task or of all: how many had failed
        before, how many of these completed, how many attempts it took, and what the dead ones died of."""
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
        """Begin to put dead letters back in batches: `initial_batch` of them, then `growth_factor` times as
        many each time
        and at most `max_batch`, not sooner than `every` one after the other and not before half of the last
        batch
        has ended. When more than `max_failure_percent` of a batch have died again it stops.

        Workers, consumers and servers go on with it, whoever of them is there; nobody has to wait here.
        Raises IllegalTransition if a ramp is at the same jobs, and ConfigError for a wrong value.
        """
        every_ms = duration_within("every", every, MIN_EVERY_MS, DAY_MS)
        pace = GradualRevivePlan(
            initial_batch=initial_batch,
            growth_factor=growth_factor,
            max_batch=max_batch,
            every_ms=every_ms,
            max_failure_percent=max_failure_percent,
        )
        asked = query or JobQuery()
        return self._read_and_write(
            lambda store, reader: start_gradual_revive(
                store, reader, asked, group=group, plan=pace, actor=self._client.actor
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
        """`ramp` for coroutines."""
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
        """Ramps that go on, and the last ones that have ended; the newest first."""
        return self._client.read(list_gradual_revives)

    async def gradual_revives_async(self) -> Sequence[GradualRevive]:
        """`gradual_revives` for coroutines."""
        return await self._client.run_in_thread(self.gradual_revives)

    def gradual_revive(self, name: str) -> GradualRevive:
        """How far a ramp has come; raises GradualReviveNotFound, like the next three."""
        return self._client.read(lambda reader: find_gradual_revive(reader, name))

    async def gradual_revive_async(self, name: str) -> GradualRevive:
        """`progress` for coroutines."""
        return await self._client.run_in_thread(self.gradual_revive, name)

    def pause_revive(self, name: str) -> GradualRevive:
        """Put no more back until the ramp is resumed; what was put back goes on."""
        return self._read_and_write(partial(pause_gradual_revive, name=name, actor=self._client.actor))

    async def pause_revive_async(self, name: str) -> GradualRevive:
        """`pause` for coroutines."""
        return await self._client.run_in_thread(self.pause_revive, name)

    def resume_revive(self, name: str) -> GradualRevive:
        """Go on with a ramp that was paused, or that has stopped."""
        return self._read_and_write(partial(resume_gradual_revive, name=name, actor=self._client.actor))

    async def resume_revive_async(self, name: str) -> GradualRevive:
        """`resume` for coroutines."""
        return await self._client.run_in_thread(self.resume_revive, name)

    def stop_revive(self, name: str) -> GradualRevive:
        """End a ramp; what was put back goes on."""
        return self._read_and_write(partial(stop_gradual_revive, name=name, actor=self._client.actor))

    async def stop_revive_async(self, name: str) -> GradualRevive:
        """`stop` for coroutines."""
        return await self._client.run_in_thread(self.stop_revive, name)

    # Handles of their own, and threads: to go through many dead letters takes a while, and others enqueue
    # meanwhile.

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
    how = ReviveOptions(actor=actor)
    return revive_matching(store, reader, restrict_to_dead(query or JobQuery()), group=group, options=how)


def _purge_dead(
    store: Store, reader: Reader, *, query: JobQuery | None, group: str | None, actor: str
) -> int:
    return purge(store, reader, restrict_to_dead(query or JobQuery()), group=group, actor=actor)
