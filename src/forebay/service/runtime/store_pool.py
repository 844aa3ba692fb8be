"""Store handles of a service, each on a thread of its own.

All writes go through one handle, as in every program, so that concurrent writes commit together. Reads go
through a few others, so that a long search does not delay claims. Reads that stand before every settlement
have a handle of their own.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Final, TypeVar, cast

from forebay.app.client import Client
from forebay.clock import Clock
from forebay.domain.job import Job, JobId
from forebay.errors import StoreUnavailable
from forebay.service.runtime.circuit_breaker import StoreBreaker
from forebay.service.runtime.codec_threads import Converter
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

READERS: Final = 2

T = TypeVar("T")
Handle = TypeVar("Handle", Store, Reader)


class _AbortableHandle:
    """Store handle that raises StoreUnavailable once the server stops."""

    def __init__(self, handle: object, is_stopped: Event) -> None:
        self._handle = handle
        self._is_stopped = is_stopped

    def __getattr__(self, name: str) -> Any:
        if self._is_stopped.is_set():
            raise StoreUnavailable("this server stops; the action is partly done, so request it again")
        return getattr(self._handle, name)


class StorePool:
    """Handles of one store, opened when first needed."""

    def __init__(self, engine: Engine, clock: Clock, readers: int = READERS) -> None:
        self.engine = engine
        self.clock = clock
        self.converter: Converter = Converter()
        self.client: Client = Client(engine, clock)
        # With concurrent writers, maintenance gets its own handle and delays no request. With one writer, two
        # handles would compete for the lock.
        self._maintenance_client = self.client if engine.features.has_one_writer else Client(engine, clock)
        self._batch_client = Client(engine, clock)
        self._is_stopped = Event()
        self._polling_client = Client(engine, clock)
        self._fast_client = Client(engine, clock)
        self._readers = [Client(engine, clock) for _ in range(readers)]
        self._calls_in_flight = [0] * readers
        self._breaker = StoreBreaker(clock)

    async def write(self, call: Callable[[Store], T]) -> T:
        """Run a call on the write handle, after earlier calls."""
        return await self.client.run_in_thread(self._call_with_breaker, self.client.write, call)

    async def run_maintenance(self, call: Callable[[Store], T]) -> T:
        """Run a maintenance call on its write handle."""
        return await self._maintenance_client.run_in_thread(
            self._call_with_breaker, self._maintenance_client.write, call
        )

    async def use(self, call: Callable[[Client], T]) -> T:
        """Run a call that reads and writes, on the client of the write handle."""
        return await self.client.run_in_thread(self._breaker, lambda: call(self.client))

    async def read(self, call: Callable[[Reader], T]) -> T:
        """Run a call on the read handle with the fewest calls in flight."""
        chosen = min(range(len(self._readers)), key=self._calls_in_flight.__getitem__)
        reader = self._readers[chosen]
        self._calls_in_flight[chosen] += 1
        try:
            return await reader.run_in_thread(self._call_with_breaker, reader.read, call)
        finally:
            self._calls_in_flight[chosen] -= 1

    async def run_long(self, call: Callable[[Store, Reader], T]) -> T:
        """Run a call that changes many jobs in batches, on handles of its own, so that no claim waits for it.
        A stop aborts it between two batches."""
        walker = self._batch_client

        def breakable(handle: Handle) -> Handle:
            return cast(Handle, _AbortableHandle(handle, self._is_stopped))

        def walk() -> T:
            return walker.write(
                lambda store: walker.read(lambda reader: call(breakable(store), breakable(reader)))
            )

        return await walker.run_in_thread(self._breaker, walk)

    def break_off(self) -> None:
        """Abort long calls: their thread would delay the end of the process."""
        self._is_stopped.set()

    def _call_with_breaker(self, use: Callable[[Callable[[Handle], T]], T], call: Callable[[Handle], T]) -> T:
        return self._breaker(lambda: use(call))

    async def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        """Return jobs in the order of `ids`; a repeated id is read once."""
        return await self.read_fast(lambda reader: _load_distinct(reader, ids, with_payload=with_payload))

    async def poll_jobs(self, ids: Sequence[JobId]) -> list[Job | None]:
        """Return jobs without payloads, for calls that poll. They have a handle of their own, so no other
        request waits for them."""
        return await self.read_for_polling(lambda reader: _load_distinct(reader, ids, with_payload=False))

    async def read_for_polling(self, call: Callable[[Reader], T]) -> T:
        """Run a read on the handle for polls."""
        return await self._polling_client.run_in_thread(
            self._call_with_breaker, self._polling_client.read, call
        )

    async def read_fast(self, call: Callable[[Reader], T]) -> T:
        """Run a short read that stands before a settlement, on a handle of its own, so that no search delays
        it."""
        return await self._fast_client.run_in_thread(self._call_with_breaker, self._fast_client.read, call)

    async def close(self) -> None:
        """Close all handles after the calls in flight."""
        self.break_off()
        for client in (
            self.client,
            self._maintenance_client,
            self._batch_client,
            self._polling_client,
            self._fast_client,
            *self._readers,
        ):
            await to_thread(client.close)
        await to_thread(self.converter.close)


def _load_distinct(reader: Reader, ids: Sequence[JobId], *, with_payload: bool) -> list[Job | None]:
    distinct = list(dict.fromkeys(ids))
    found = dict(zip(distinct, reader.jobs(distinct, with_payload=with_payload), strict=True))
    return [found[job_id] for job_id in ids]
