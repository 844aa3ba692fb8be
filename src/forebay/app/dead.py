"""`app.dead`: the dead letters by what they died of, and ways to put them back."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

from forebay.app.bulk import purge, revive_matching
from forebay.app.client import Client
from forebay.app.grouping import among_dead, failure_groups
from forebay.app.ramping import all_ramps, find_ramp, pause_ramp, resume_ramp, start_ramp, stop_ramp
from forebay.app.retry_stats import retry_stats
from forebay.app.times import Length, length_within
from forebay.domain.group import NEWEST, Groups, RetryStats
from forebay.domain.job import DAY_MS
from forebay.domain.query import JobQuery
from forebay.domain.ramp import MAX_BATCH, MIN_EVERY_MS, Pace, Ramp
from forebay.interrupts import heard_between, uninterrupted
from forebay.stores.protocol import Engine, Reader, Store
from forebay.stores.reviving import Revival

T = TypeVar("T")


class DeadLetters:
    """The dead letters of a store.

    [largest, *_] = app.dead.groups().groups
    app.dead.ramp(group=largest.id, first=10, every=30, stop_percent=20)
    """

    def __init__(self, client: Client, engine: Engine) -> None:
        self._client = client
        self._engine = engine

    def groups(self, query: JobQuery | None = None, *, newest: int = NEWEST) -> Groups:
        """The newest dead letters by what they died of, the largest group first."""
        return self._look(lambda reader: failure_groups(reader, query or JobQuery(), newest))

    async def groups_async(self, query: JobQuery | None = None, *, newest: int = NEWEST) -> Groups:
        """`groups` for coroutines."""
        return await to_thread(self.groups, query, newest=newest)

    def revive(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Put back all dead letters that fit, at once; how many. With `group` those of one group."""
        return self._both(partial(_revive, query=query, group=group, actor=self._client.actor))

    async def revive_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`revive` for coroutines."""
        return await to_thread(self.revive, query, group=group)

    def purge(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """Delete all dead letters that fit for good; how many. With `group` those of one group."""
        return self._both(partial(_purge, query=query, group=group, actor=self._client.actor))

    async def purge_async(self, query: JobQuery | None = None, *, group: str | None = None) -> int:
        """`purge` for coroutines."""
        return await to_thread(self.purge, query, group=group)

    def retry_stats(self, task: str | None = None, *, newest: int = NEWEST) -> RetryStats:
        """How the newest jobs that have completed or died fared, of one task or of all: how many had failed
        before, how many of these completed, how many attempts it took, and what the dead ones died of."""
        query = JobQuery(tasks=() if task is None else (task,))
        return self._look(lambda reader: retry_stats(reader, query, newest))

    async def retry_stats_async(self, task: str | None = None, *, newest: int = NEWEST) -> RetryStats:
        """`retry_stats` for coroutines."""
        return await to_thread(self.retry_stats, task, newest=newest)

    # In batches

    def ramp(
        self,
        query: JobQuery | None = None,
        *,
        group: str | None = None,
        first: int = 10,
        factor: float = 2.0,
        most: int = MAX_BATCH,
        every: Length = 30,
        stop_percent: float = 20.0,
    ) -> Ramp:
        """Begin to put dead letters back in batches: `first` of them, then `factor` times as many each time
        and at most `most`, not sooner than `every` one after the other and not before half of the last batch
        has ended. When more than `stop_percent` of a batch have died again it stops.

        Workers, consumers and servers go on with it, whoever of them is there; nobody has to wait here.
        Raises IllegalTransition if a ramp is at the same jobs, and ConfigError for a wrong value.
        """
        every_ms = length_within("every", every, MIN_EVERY_MS, DAY_MS)
        pace = Pace(first=first, factor=factor, most=most, every_ms=every_ms, stop_percent=stop_percent)
        asked = query or JobQuery()
        return self._both(
            lambda store, reader: start_ramp(
                store, reader, asked, group=group, pace=pace, actor=self._client.actor
            )
        )

    async def ramp_async(
        self,
        query: JobQuery | None = None,
        *,
        group: str | None = None,
        first: int = 10,
        factor: float = 2.0,
        most: int = MAX_BATCH,
        every: Length = 30,
        stop_percent: float = 20.0,
    ) -> Ramp:
        """`ramp` for coroutines."""
        return await self._client.offloaded(
            self.ramp,
            query,
            group=group,
            first=first,
            factor=factor,
            most=most,
            every=every,
            stop_percent=stop_percent,
        )

    def ramps(self) -> Sequence[Ramp]:
        """Ramps that go on, and the last ones that have ended; the newest first."""
        return self._client.read(all_ramps)

    async def ramps_async(self) -> Sequence[Ramp]:
        """`ramps` for coroutines."""
        return await self._client.offloaded(self.ramps)

    def progress(self, name: str) -> Ramp:
        """How far a ramp has come; raises RampNotFound, like the next three."""
        return self._client.read(lambda reader: find_ramp(reader, name))

    async def progress_async(self, name: str) -> Ramp:
        """`progress` for coroutines."""
        return await self._client.offloaded(self.progress, name)

    def pause(self, name: str) -> Ramp:
        """Put no more back until the ramp is resumed; what was put back goes on."""
        return self._both(partial(pause_ramp, name=name, actor=self._client.actor))

    async def pause_async(self, name: str) -> Ramp:
        """`pause` for coroutines."""
        return await self._client.offloaded(self.pause, name)

    def resume(self, name: str) -> Ramp:
        """Go on with a ramp that was paused, or that has stopped."""
        return self._both(partial(resume_ramp, name=name, actor=self._client.actor))

    async def resume_async(self, name: str) -> Ramp:
        """`resume` for coroutines."""
        return await self._client.offloaded(self.resume, name)

    def stop(self, name: str) -> Ramp:
        """End a ramp; what was put back goes on."""
        return self._both(partial(stop_ramp, name=name, actor=self._client.actor))

    async def stop_async(self, name: str) -> Ramp:
        """`stop` for coroutines."""
        return await self._client.offloaded(self.stop, name)

    # Handles of their own, and threads: to go through many dead letters takes a while, and others enqueue
    # meanwhile.

    def _look(self, call: Callable[[Reader], T]) -> T:
        with uninterrupted, closing(self._engine.reader()) as reader:
            return call(heard_between(reader))

    def _both(self, call: Callable[[Store, Reader], T]) -> T:
        with (
            uninterrupted,
            closing(self._engine.store()) as store,
            closing(self._engine.reader()) as reader,
        ):
            return call(heard_between(store), heard_between(reader))


def _revive(store: Store, reader: Reader, *, query: JobQuery | None, group: str | None, actor: str) -> int:
    how = Revival(actor=actor)
    return revive_matching(store, reader, among_dead(query or JobQuery()), group=group, how=how)


def _purge(store: Store, reader: Reader, *, query: JobQuery | None, group: str | None, actor: str) -> int:
    return purge(store, reader, among_dead(query or JobQuery()), group=group, actor=actor)
