"""Relays: they carry the jobs of an outbox to their queue."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from forebay.app.client import Client
from forebay.app.graphs import has_needs
from forebay.domain.job import JobId, NewJob
from forebay.errors import ConfigError, ForebayError, StoreError, StoreRefused, StoreUnavailable
from forebay.integrations.outbox import Outbox

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

CARRIED_AT_ONCE: Final = 100
MAX_AT_ONCE: Final = 1_000
FIRST_WAIT_MS: Final = 1_000
LONGEST_WAIT_MS: Final = 3_600_000
OUTAGE_SECONDS: Final = 1.0
LONGEST_OUTAGE_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 3_600.0
# Where a row that one relay has in its hands is passed over by the others. Elsewhere two of them may carry
# the same one, for nothing: the id is taken.
_SKIPS_LOCKED: Final = frozenset({"postgresql", "mysql", "mariadb", "oracle"})

logger = logging.getLogger(__name__)
_decoder: Final = msgspec.msgpack.Decoder(list[NewJob])


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one batch: rows that went to the store, rows that it refused, and whether there may be
    more."""

    stored: int = 0
    refused: int = 0
    has_more: bool = False


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What is in an outbox: how many rows, when the oldest was written, and how many were refused before."""

    rows: int
    oldest_at: int | None
    refused: int


class Relay:
    """Looks into the outbox every so many seconds, in a thread of its own; any number may run beside each
    other. Whatever is wrong with the database or the queue, it tries again, at last every half minute."""

    def __init__(
        self,
        table: Table,
        engine: Engine,
        client: Client,
        *,
        every: float = 1.0,
        most: int = CARRIED_AT_ONCE,
    ) -> None:
        if not 0 < every <= LONGEST_SECONDS:  # also refuses NaN
            raise ConfigError(f"a relay looks every 0 to {LONGEST_SECONDS:,.0f} seconds, not every {every}")
        _check_blocks(engine)
        self._table = table
        self._engine = engine
        self._client = client
        self._every = every
        self._most = most
        self._is_stopped = Event()
        self._thread: Thread | None = None
        self._failures = 0
        self.stored = 0
        self.refused = 0

    def start(self) -> None:
        """Begin. One batch is carried before this returns, so that what somebody has to mend is raised here:
        no table, no such store. A queue that is merely away is waited for."""
        try:
            pause = 0.0 if self._carry_batch() else self._every
        except StoreUnavailable as exc:
            pause = self._pause_after(exc)
        self._thread = Thread(target=self._run, args=(pause,), name="forebay-outbox", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present batch. Stopping twice, or before the start, is fine."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def turn(self) -> None:
        """Carry all that is due, in batches, unless it is stopped between two of them."""
        while not self._is_stopped.is_set() and self._carry_batch():
            pass

    def _carry_batch(self) -> bool:
        """Whether there may be more."""
        carried = carry(self._table, self._engine, self._client, self._most)
        self.stored += carried.stored
        self.refused += carried.refused
        return carried.has_more

    def _run(self, pause: float) -> None:
        while not self._is_stopped.wait(pause):
            try:
                self.turn()
                pause = self._every
                self._failures = 0
            except (ForebayError, SQLAlchemyError) as exc:
                # Also what only somebody can mend: nobody would notice a thread that has ended.
                pause = self._pause_after(exc)

    def _pause_after(self, error: Exception) -> float:
        logger.warning("jobs stay in the outbox for now: %s", error)
        longer: float = min(LONGEST_OUTAGE_SECONDS, OUTAGE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        asked: float | None = getattr(error, "retry_after", None)
        return max(self._every, longer if asked is None else min(asked, LONGEST_SECONDS))


@contextmanager
def relaying(outbox: Outbox, engine: Engine, *, every: float = 1.0) -> Iterator[Relay]:
    """A relay in a thread of this program, while the block lasts. It begins also while the queue is away."""
    relay = Relay(outbox.table, engine, outbox.queue.client, every=every)
    relay.start()
    try:
        yield relay
    finally:
        relay.stop()


def carry(table: Table, engine: Engine, client: Client, most: int = CARRIED_AT_ONCE) -> Carried:
    """Store the jobs of up to `most` rows, and then delete the rows. One whose jobs are refused stays, with
    the reason, and is tried again later. Raises StoreUnavailable while the queue is away."""
    if not 1 <= most <= MAX_AT_ONCE:
        raise ConfigError(f"a relay carries 1 to {MAX_AT_ONCE:,} rows at a time, not {most}")
    due = (
        select(table.c.id, table.c.jobs, table.c.tries)
        .where(table.c.due_at <= client.now_ms())
        .order_by(table.c.due_at, table.c.id)
        .limit(most)
    )
    if engine.dialect.name in _SKIPS_LOCKED:
        with engine.begin() as connection:
            rows = connection.execute(due.with_for_update(skip_locked=True)).all()
            return _settled(table, connection, client, rows, _stored(client, rows), most)
    # A transaction that has read could not write any more after somebody else has, so these are two.
    with engine.begin() as connection:
        rows = connection.execute(due).all()
    refusals = _stored(client, rows)
    if not rows:
        return Carried()
    with engine.begin() as connection:
        return _settled(table, connection, client, rows, refusals, most)


def waiting(table: Table, engine: Engine) -> Waiting:
    """How much an outbox holds."""
    asked = select(func.count(), func.min(table.c.written_at), func.count(table.c.error)).select_from(table)
    with engine.connect() as connection:
        rows, oldest, refused = connection.execute(asked).one()
    return Waiting(rows=rows, oldest_at=oldest, refused=refused)


def _check_blocks(engine: object) -> None:
    if isinstance(engine, AsyncEngine):
        raise ConfigError("a relay has a thread and needs a blocking engine: one of create_engine")


def _stored(client: Client, rows: Sequence[Any]) -> dict[str, str]:
    """Why rows were refused, by their ids; the others are stored."""
    refusals: dict[str, str] = {}
    alone: list[NewJob] = []
    for row in rows:
        try:
            jobs = _decoder.decode(row.jobs)
        except msgspec.MsgspecError as exc:
            refusals[row.id] = f"this row cannot be read: {exc}"
            continue
        if has_needs(jobs):
            refusals |= _graph_stored(client, row.id, jobs)
        else:
            alone += jobs
    return {**refusals, **_alone_stored(client, alone)}


def _graph_stored(client: Client, row: str, jobs: list[NewJob]) -> dict[str, str]:
    try:
        client.enqueue_graph(jobs, on_conflict="ignore")
    except ForebayError as exc:
        _check_is_about_jobs(exc)
        return {row: str(exc)}
    return {}


def _alone_stored(client: Client, jobs: list[NewJob]) -> dict[str, str]:
    if not jobs:
        return {}
    try:
        receipts = client.write(lambda store: store.insert(jobs, on_conflict="ignore", atomic=False))
    except ForebayError as exc:
        _check_is_about_jobs(exc)
        if len(jobs) == 1:
            return {_id_of(jobs[0]): str(exc)}
        # One of them cannot be stored at all, and the others must not wait for it.
        each = [_alone_stored(client, [job]) for job in jobs]
        return {name: why for one in each for name, why in one.items()}
    return {
        _id_of(job): str(receipt.error)
        for job, receipt in zip(jobs, receipts, strict=True)
        if receipt.error is not None
    }


def _check_is_about_jobs(error: ForebayError) -> None:
    """Raise what is wrong with the queue as a whole: then all rows wait for it."""
    if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
        raise error


def _id_of(job: NewJob) -> JobId:
    assert job.id is not None  # noqa: S101 - it was given one when it was written
    return job.id


def _settled(
    table: Table,
    connection: Connection,
    client: Client,
    rows: Sequence[Any],
    refusals: dict[str, str],
    most: int,
) -> Carried:
    done = [row.id for row in rows if row.id not in refusals]
    if done:
        connection.execute(table.delete().where(table.c.id.in_(done)))
    now = client.now_ms()
    later = [
        {
            "row": row.id,
            "due_at": now + min(LONGEST_WAIT_MS, FIRST_WAIT_MS << min(row.tries, 20)),
            "tries": row.tries + 1,
            "error": refusals[row.id][:1_000],
        }
        for row in rows
        if row.id in refusals
    ]
    for one in later:
        logger.warning("the queue has refused job %s of the outbox: %s", one["row"], one["error"])
    if later:
        changed: dict[str, Any] = {name: bindparam(name) for name in ("due_at", "tries", "error")}
        connection.execute(table.update().where(table.c.id == bindparam("row")).values(changed), later)
    return Carried(stored=len(done), refused=len(later), has_more=len(rows) == most)
