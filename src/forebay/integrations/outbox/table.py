"""Outbox table for SQLAlchemy: jobs in the transactions of a database that does not hold the queue.

    outbox = Outbox(queue)                      # a queue on Redis, say
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.enqueue(session, [receipt.job(order.id)])

The job is written into a table of your own database, and becomes visible with your commit. A relay (`forebay
outbox`, or `run_relay(outbox, engine)` in a program) carries it to the queue. It stores first and deletes
second. If it dies in between, the row stays, and the next relay finds that the id of the job is taken. The
queue may have forgotten a finished job by then. So each job has an idempotency key too, which is kept for
seven days whatever happens to the job. So a job is carried once, if a relay that died has a successor within
that time. Any number of relays may run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from forebay.app.app import Forebay
from forebay.app.job_handle import JobHandle
from forebay.domain.dependency_graph import sort_topologically
from forebay.domain.job import DAY_MS, NewJob
from forebay.errors import ConfigError, InvalidJob, PayloadError
from forebay.operations.priority_inheritance import has_dependencies
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.id_generator import IdGenerator

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

TABLE_NAME: Final = "forebay_outbox"
MAX_ROW: Final = 16 * 1_048_576 - 1  # the largest blob of MySQL; a single job is far smaller

# How long a queue knows that a row was carried, also where it keeps only the newest of its finished jobs.
IDEMPOTENCY_TTL_MS: Final = 7 * DAY_MS


def outbox_table(metadata: MetaData, name: str = TABLE_NAME, *, schema: str | None = None) -> Table:
    """Return the table of an outbox, as a part of your own metadata, so that your migrations know it too."""
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
    """Writes jobs for one queue into a table. `table` is one from `outbox_table`; without it the table is
    called forebay_outbox."""

    def __init__(self, queue: Forebay, table: Table | None = None) -> None:
        if not isinstance(queue, Forebay):
            raise ConfigError(f"an outbox is for a Forebay object, not {queue!r:.60}")
        self.table: Table = outbox_table(MetaData()) if table is None else table
        self.queue = queue
        self._new_id = IdGenerator()

    def create(self, engine: Engine) -> None:
        """Create the table, if it does not exist."""
        self.table.create(engine, checkfirst=True)

    def enqueue(self, connection: Session | Connection, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        """Write jobs in the open transaction of a session or a connection; return a handle for each, in
        order. The handles find no job before it was carried."""
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
        prepared = [self._prepare_job(job, now) for job in client.prepare_jobs(list(jobs))]
        # Jobs that depend on each other are one row, stored in one call: they refer to each other by
        # position.
        ordered, positions = sort_topologically(prepared)
        parts = [ordered] if has_dependencies(ordered) else [[job] for job in ordered]
        rows = [self._build_row(part, now) for part in parts]
        receipts = [InsertResult(id=job.id, is_new=True) for job in ordered]
        return rows, [JobHandle(client, receipts[position]) for position in positions]

    def _prepare_job(self, job: NewJob, now: int) -> NewJob:
        if not isinstance(job, NewJob):
            raise InvalidJob(f"only jobs made by task.job(...) can be enqueued, not {job!r:.60}")
        # A delay counts from the transaction, however long the job waits for a relay.
        run_at = now + job.delay_ms if job.delay_ms else job.run_at
        job_id = self._new_id() if job.id is None else job.id
        # Not derived from the id: an id of the program's own may be used again after its job is gone.
        idempotency = (
            {}
            if job.idempotency_key
            else {"idempotency_key": f"outbox {self._new_id()}", "idempotency_ttl_ms": IDEMPOTENCY_TTL_MS}
        )
        return msgspec.structs.replace(job, id=job_id, delay_ms=0, run_at=run_at, **idempotency)

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
