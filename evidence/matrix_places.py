"""Where a row of the crash matrix is played: a store of each engine, a process that dies while it uses it,
and what it takes until the server has noticed that."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, cast

import psycopg

from evidence.faults import Faults
from evidence.points import die_at
from forebay.domain.job import NewJob, WorkerId
from forebay.domain.settlement import Settlement
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.server_address import RedisAddress
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.fault_injection import Fault, FaultyStore, Killed
from tests.clocks import FollowedClock
from tests.stores import postgres_support, redis_support, sqlite_support
from tests.stores.postgres_sessions import KeepingEngine

T0: Final = 1_800_000_000_000
PATIENCE_SECONDS: Final = 60.0
# A lock that another process has left would be waited for; no other process is here.
NO_WAIT_MS: Final = 0


class Process:
    """What a program has in its hand: a handle, and connections of its own whose transactions it can let jobs
    be part of."""

    def __init__(self, place: Place, engine: Engine) -> None:
        self._place = place
        self.engine = engine
        self.store: Store = engine.store()

    def close(self) -> None:
        self.store.close()

    def insert_tx(self, jobs: list[NewJob]) -> None:
        with self._place.caller() as connection:
            self.engine.insert_tx(connection, jobs)

    def complete_tx(self, worker: WorkerId, settlement: Settlement) -> None:
        with self._place.caller() as connection:
            self.engine.complete_tx(connection, worker, settlement)

    def insert_tx_async(self, jobs: list[NewJob]) -> None:
        asyncio.run(self._on_loop(lambda one: self.engine.insert_tx_async(one, jobs)))

    def complete_tx_async(self, worker: WorkerId, settlement: Settlement) -> None:
        asyncio.run(self._on_loop(lambda one: self.engine.complete_tx_async(one, worker, settlement)))

    async def _on_loop(self, work: Callable[[Any], Any]) -> None:
        async with await psycopg.AsyncConnection.connect(self._place.dsn) as connection:
            await work(connection)


Act = Callable[[Process], object]


class Place(Protocol):
    """One empty store of one engine, on a clock that is moved by hand."""

    clock: FollowedClock
    dsn: str

    def engine(self) -> Engine:
        """The engine, for any process that has nothing of it yet."""
        ...

    def ours(self) -> Engine:
        """The engine for this process, which outlives all others."""
        ...

    def caller(self) -> Any:
        """A connection of the program's own with an open transaction, which is committed with the block."""
        ...

    def struck(self, act: Act, deadly: int, *, is_new: bool = False) -> int | None:
        """Let a process act and be killed before its word of this number to the driver; which one it was,
        None if it had none left to say and was killed before a caller heard its answer. Where the store
        `is_new`, what it says to open it counts too."""
        ...


class MemoryPlace:
    """Dies with its process: a call that is not made, or whose answer no caller hears, is all there is."""

    def __init__(self) -> None:
        self.clock = FollowedClock(T0)
        self.dsn = ""
        self._engine = MemoryEngine(clock=self.clock)

    def engine(self) -> Engine:
        return self._engine

    ours = engine

    def caller(self) -> Any:
        raise NotImplementedError

    def struck(self, act: Act, deadly: int, *, is_new: bool = False) -> int | None:
        process = Process(self, self._engine)
        fault = Fault.KILLED if deadly == 1 else Fault.KILLED_AFTER
        process.store = cast("Store", FaultyStore(process.store, OneFault(fault), lambda *_: None))
        with suppress(Killed):
            act(process)
        return 1 if fault is Fault.KILLED else None


class OneFault(Faults):
    """The same fault for every call."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(Random(0), 1.0)
        self._fault = fault

    def next(self, operation: str, *, is_process: bool) -> Fault:
        return self._fault


class _Forking:
    """One whose store outlives a process."""

    def engine(self) -> Engine:
        raise NotImplementedError

    def ours(self) -> Engine:
        return self.engine()

    def sessions(self) -> set[int]:
        """The sessions of the server; empty where there is none."""
        return set()

    def struck(self, act: Act, deadly: int, *, is_new: bool = False) -> int | None:
        before = self.sessions()

        def use(points: Any) -> None:
            points.is_armed = is_new
            process = Process(self, self.engine())  # type: ignore[arg-type]  # those below have the rest
            points.is_armed = True
            act(process)

        where = die_at(deadly, use)
        self._wait_for_the_server(before)
        return where

    def _wait_for_the_server(self, before: set[int]) -> None:
        """Until it has noticed that the process is gone, which takes it some milliseconds. From then on
        nothing of it may be in the way of another process."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.sessions() - before:
            if time.monotonic() > until:
                raise RuntimeError("the server keeps the session of a process that was killed")
            time.sleep(0.001)


class SqlitePlace(_Forking):
    def __init__(self, folder: Path, *, is_new: bool = False) -> None:
        self.clock = FollowedClock(T0)
        self.dsn = str(folder / "jobs.db")
        if not is_new:
            sqlite_support.put_empty(Path(self.dsn))

    def engine(self) -> Engine:
        return SqliteEngine(self.dsn, clock=self.clock, lock_timeout_ms=NO_WAIT_MS)

    @contextmanager
    def caller(self) -> Iterator[Any]:
        with closing(sqlite3.connect(self.dsn, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")


class PostgresPlace(_Forking):
    def __init__(self, *, is_new: bool = False) -> None:
        self.clock = FollowedClock(T0)
        self.dsn = postgres_support.server().url()
        self._is_new = is_new
        if is_new:
            self._address = PostgresAddress(dsn=self.dsn, schema=postgres_support.new_schema())
        else:
            self._address = postgres_support.make_engine(self.clock).address

    def engine(self) -> Engine:
        return PostgresEngine(self._address)

    def ours(self) -> Engine:
        # The schema of a new store is used once: sessions that were kept for the next use would only add up.
        return self.engine() if self._is_new else KeepingEngine(self._address)

    @contextmanager
    def caller(self) -> Iterator[Any]:
        with psycopg.connect(self.dsn) as connection:
            yield connection

    def sessions(self) -> set[int]:
        found = postgres_support.admin().execute(
            "select pid from pg_stat_activity where backend_type = 'client backend'"
        )
        return {pid for (pid,) in found.fetchall()}


class RedisPlace(_Forking):
    def __init__(self) -> None:
        self.clock = FollowedClock(T0)
        self.dsn = ""
        self._address: RedisAddress = redis_support.make_engine(self.clock).address

    def engine(self) -> Engine:
        return RedisEngine(self._address)

    def caller(self) -> Any:
        raise NotImplementedError

    def sessions(self) -> set[int]:
        return {int(client["id"]) for client in redis_support.admin().client_list()}


@contextmanager
def placed(engine: str, *, is_new: bool = False) -> Iterator[Place]:
    """An empty store for the time of one kill; one that `is_new` has no tables yet."""
    if engine == "memory":
        yield MemoryPlace()
    elif engine == "sqlite":
        # Who is killed takes nothing with it that it has written: only a power cut asks for a disk.
        memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
        with tempfile.TemporaryDirectory(
            prefix="forebay-matrix-", dir=memory if memory.is_dir() else None
        ) as folder:
            yield SqlitePlace(Path(folder), is_new=is_new)
    elif engine == "postgresql":
        yield PostgresPlace(is_new=is_new)
        postgres_support.release()
    else:
        yield RedisPlace()
        redis_support.release()
