"""Jobs in the transactions of a database that does not hold them: an outbox, for SQLAlchemy.

    outbox = Outbox(queue)                      # a queue on Redis, say
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.enqueue(session, [receipt.job(order.id)])

The job is written into a table of your own database, and comes true with your commit. A relay (`forebay
outbox`, or `relaying(outbox, engine)` in a program) carries it to the queue. It stores first and deletes
second: one that dies in between leaves the row, and the next one finds that the id of the job is taken. The
queue may have forgotten a finished job by then, so each has a once key too, which is kept for seven days
whatever becomes of the job. So a job is carried once, if a relay that died has a successor within that time;
any number of them may run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from forebay.app.app import Forebay
from forebay.app.handle import JobHandle
from forebay.domain.dependencies import sort_topologically
from forebay.domain.job import DAY_MS, NewJob
from forebay.errors import ConfigError, InvalidJob, PayloadError
from forebay.operations.priority_inheritance import has_dependencies
from forebay.stores.contract.values import InsertResult
from forebay.stores.ids import IdGenerator

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

TABLE_NAME: Final = "forebay_outbox"
MAX_ROW: Final = 16 * 1_048_576 - 1  # MySQL knows blobs of this size; a single job is far smaller

# How long a queue knows that a row was carried, also where it keeps but the newest of its finished jobs.
IDEMPOTENCY_TTL_MS: Final = 7 * DAY_MS


def outbox_table(metadata: MetaData, name: str = TABLE_NAME, *, schema: str | None = None) -> Table:
    """The table of an outbox, as a part of your own metadata: so your migrations know it too."""
    return Table(
        name,
        metadata,
        Column("id", String(200), primary_key=True),  # that of the job, or of the first one
        Column("jobs", LargeBinary(MAX_ROW), nullable=False),
        Column("written_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),  # later than written if the store has refused it
        Column("tries", Integer, nullable=False),
        Column("error", Text),
        Index(f"{name}_due", "due_at", "id"),
        schema=schema,
    )


class Outbox:
    """Writes jobs for one queue into a table; `table` is one that `outbox_table` has made, else it is called
    forebay_outbox."""

    def __init__(self, queue: Forebay, table: Table | None = None) -> None:
        if not isinstance(queue, Forebay):
            raise ConfigError(f"an outbox is for a Forebay object, not {queue!r:.60}")
        self.table: Table = outbox_table(MetaData()) if table is None else table
        self.queue = queue
        self._new_id = IdGenerator()

    def create(self, engine: Engine) -> None:
        """Make the table, if it is not there."""
        self.table.create(engine, checkfirst=True)

    def enqueue(self, connection: Session | Connection, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Write jobs in the open transaction of a session or a connection; a handle each, in order. They know
        nothing of the job before it was carried."""
        _check_color(connection, is_async=False)
        rows, handles = self._build_rows(jobs)
        if rows:
            connection.execute(insert(self.table), rows)
        return handles

    async def enqueue_async(
        self, connection: AsyncSession | AsyncConnection, jobs: Sequence[NewJob]
    ) -> list[JobHandle[Any]]:
        """`enqueue` with an AsyncSession or an AsyncConnection."""
        _check_color(connection, is_async=True)
        rows, handles = self._build_rows(jobs)
        if rows:
            await connection.execute(insert(self.table), rows)
        return handles

    def _build_rows(self, jobs: Sequence[NewJob]) -> tuple[list[dict[str, Any]], list[JobHandle[Any]]]:
        client = self.queue.client
        now = client.now_ms()
        named = [self._prepare_job(job, now) for job in client.prepare_jobs(list(jobs))]
        # What depends on each other is one row, and is stored in one call: they name each other by places.
        placed, went = sort_topologically(named)
        parts = [placed] if has_dependencies(placed) else [[job] for job in placed]
        rows = [self._build_row(part, now) for part in parts]
        receipts = [InsertResult(id=job.id, is_new=True) for job in placed]
        return rows, [JobHandle(client, receipts[place]) for place in went]

    def _prepare_job(self, job: NewJob, now: int) -> NewJob:
        if not isinstance(job, NewJob):
            raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
        # A delay counts from the transaction, however long the job waits for a relay.
        run_at = now + job.delay_ms if job.delay_ms else job.run_at
        job_id = self._new_id() if job.id is None else job.id
        # Not made from the id: one of the program's own may be used again after its job is gone.
        once = (
            {}
            if job.idempotency_key
            else {"idempotency_key": f"outbox {self._new_id()}", "idempotency_ttl_ms": IDEMPOTENCY_TTL_MS}
        )
        return msgspec.structs.replace(job, id=job_id, delay_ms=0, run_at=run_at, **once)

    def _build_row(self, jobs: Sequence[NewJob], now: int) -> dict[str, Any]:
        body = msgspec.msgpack.encode(jobs)
        if len(body) > MAX_ROW:
            raise PayloadError(
                f"these {len(jobs):,} jobs have {len(body):,} bytes, and an outbox takes {MAX_ROW:,} of jobs "
                "that depend on each other; keep the data elsewhere and pass references",
                field="jobs",
            )
        return {"id": jobs[0].id, "jobs": body, "written_at": now, "due_at": now, "tries": 0, "error": None}


def _check_color(connection: object, *, is_async: bool) -> None:
    if isinstance(connection, AsyncSession | AsyncConnection) is not is_async:
        way = "blocks: call enqueue" if is_async else "lives on an event loop: await enqueue_async"
        raise ConfigError(f"{type(connection).__name__} {way}")
