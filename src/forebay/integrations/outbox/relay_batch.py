"""One batch of an outbox relay: store its jobs, then delete its rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import bindparam, select

from forebay.app.client import Client
from forebay.domain.job import Job, JobId, NewJob
from forebay.errors import (
    ConfigError,
    DuplicateJob,
    Forbidden,
    ForebayError,
    InvalidJob,
    StoreBusy,
    StoreError,
    StoreRefused,
    TooManyRequests,
    Unauthenticated,
)
from forebay.operations.priority_inheritance import has_dependencies

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

    from forebay.app.job_handle import JobHandle
    from forebay.stores.contract.claims_and_results import InsertResult

DEFAULT_BATCH_ROWS: Final = 100
MAX_BATCH_ROWS: Final = 1_000
FIRST_WAIT_MS: Final = 1_000
LONGEST_WAIT_MS: Final = 3_600_000
# Databases with SKIP LOCKED: a row that one relay has locked is skipped by the others. Elsewhere two relays
# may carry the same row, without harm: the id is taken.
_SKIPS_LOCKED: Final = frozenset({"postgresql", "mysql", "mariadb", "oracle"})

Refusals = dict[str, ForebayError]  # why rows were refused, by their ids

logger: logging.Logger = logging.getLogger(__name__)
_decoder: Final = msgspec.msgpack.Decoder(list[NewJob])


class RelayResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one batch: rows that were stored, rows that were refused, and whether there may be more."""

    stored: int = 0
    refused: int = 0
    has_more: bool = False


def relay_batch(table: Table, engine: Engine, client: Client, limit: int = DEFAULT_BATCH_ROWS) -> RelayResult:
    """Store the jobs of up to `limit` rows, and then delete the rows. A row whose jobs are refused stays,
    with the reason, and is tried again later. Raises StoreUnavailable while the queue is unavailable."""
    if not 1 <= limit <= MAX_BATCH_ROWS:
        raise ConfigError(f"a relay carries 1 to {MAX_BATCH_ROWS:,} rows at a time, not {limit}")
    due = (
        select(table.c.id, table.c.jobs, table.c.tries)
        .where(table.c.due_at <= client.now_ms())
        .order_by(table.c.due_at, table.c.id)
        .limit(limit)
    )
    if engine.dialect.name in _SKIPS_LOCKED:
        with engine.begin() as connection:
            rows = connection.execute(due.with_for_update(skip_locked=True)).all()
            return _finish_batch(table, connection, client, rows, _store_rows(client, rows), limit)
    # A transaction that has read could not write after another transaction has, so these are two.
    with engine.begin() as connection:
        rows = connection.execute(due).all()
    refusals = _store_rows(client, rows)
    if not rows:
        return RelayResult()
    with engine.begin() as connection:
        return _finish_batch(table, connection, client, rows, refusals, limit)


def _store_rows(client: Client, rows: Sequence[Any]) -> Refusals:
    """Store the jobs of rows, in their order: one may wait for a job of an earlier row."""
    refusals: Refusals = {}
    independent: list[NewJob] = []
    for row in rows:
        try:
            jobs = _parse_row(row.jobs)
        except InvalidJob as exc:
            refusals[row.id] = exc
            continue
        if has_dependencies(jobs):
            refusals |= _store_independent(client, independent)
            refusals |= _store_graph(client, row.id, jobs)
            independent = []
        else:
            independent += jobs
    refusals |= _store_independent(client, independent)
    _check_may_store(rows, refusals)
    return refusals


def _parse_row(body: bytes) -> list[NewJob]:
    try:
        jobs = _decoder.decode(body)
    except msgspec.MsgspecError as exc:
        raise InvalidJob(f"this row cannot be read: {exc}") from exc
    lost = _find_unknown_field(
        msgspec.msgpack.decode(body), msgspec.msgpack.decode(msgspec.msgpack.encode(jobs))
    )
    if lost is not None:
        raise InvalidJob(
            f"a newer program has written this row: {lost!r:.60} of a job is unknown here; upgrade this relay"
        )
    return jobs


def _find_unknown_field(written: Any, understood: Any) -> str | None:
    """Return the first field of the written job that the decoded one does not have."""
    if isinstance(written, dict):
        for name in written:
            if name not in understood:
                return str(name)
        pairs = [(value, understood[name]) for name, value in written.items()]
    else:
        pairs = list(zip(written, understood, strict=True)) if isinstance(written, list) else []
    return next(
        (
            name
            for written_value, understood_value in pairs
            if (name := _find_unknown_field(written_value, understood_value)) is not None
        ),
        None,
    )


def _store_graph(client: Client, row: str, jobs: list[NewJob]) -> Refusals:
    try:
        handles = client.enqueue_graph(jobs, on_conflict="ignore")
    except ForebayError as exc:
        _check_is_about_jobs(exc)
        return {row: exc}
    known = [job for job, handle in zip(jobs, handles, strict=True) if _is_known(job, handle)]
    conflicts = list(_find_id_conflicts(client, known).values())
    return {row: conflicts[0]} if conflicts else {}


def _store_independent(client: Client, jobs: list[NewJob]) -> Refusals:
    if not jobs:
        return {}
    try:
        receipts = client.write(lambda store: store.insert(jobs, on_conflict="ignore", atomic=False))
    except ForebayError as exc:
        _check_is_about_jobs(exc)
        if len(jobs) == 1:
            return {_id_of(jobs[0]): exc}
        # One of them cannot be stored at all, and the others must not wait for it.
        parts = [_store_independent(client, [job]) for job in jobs]
        return {name: reason for part in parts for name, reason in part.items()}
    answered = list(zip(jobs, receipts, strict=True))
    refused: Refusals = {_id_of(job): receipt.error for job, receipt in answered if receipt.error is not None}
    known = [job for job, receipt in answered if receipt.error is None and _is_known(job, receipt)]
    return _find_id_conflicts(client, known) | refused


def _is_known(job: NewJob, answer: InsertResult | JobHandle[Any]) -> bool:
    """Return whether the queue has, or had, a job with this very id before."""
    return not answer.is_new and answer.id == job.id


def _find_id_conflicts(client: Client, jobs: Sequence[NewJob]) -> Refusals:
    """Return refusals of jobs whose id another job has. The others were carried before."""
    if not jobs:
        return {}
    pairs = zip(jobs, client.jobs([_id_of(job) for job in jobs]), strict=True)
    return {
        holder.id: DuplicateJob(
            f"the id {holder.id} is that of another job, of task {holder.task} in queue {holder.queue}",
            holder=holder.id,
        )
        for job, holder in pairs
        if holder is not None and _is_other(job, holder)
    }


def _is_other(job: NewJob, holder: Job) -> bool:
    return job.idempotency_key != holder.idempotency_key and (job.task, job.payload) != (
        holder.task,
        holder.payload,
    )


def _check_is_about_jobs(error: ForebayError) -> None:
    """Raise an error of the queue as a whole: then all rows wait for it."""
    if isinstance(error, StoreError | Unauthenticated | TooManyRequests) and not isinstance(
        error, StoreRefused | StoreBusy
    ):
        raise error


def _check_may_store(rows: Sequence[Any], refusals: Refusals) -> None:
    """Raise Forbidden if no job may be stored: a key may be for some queues only, but hardly for none."""
    if rows and len(rows) == len(refusals):
        first, *others = refusals.values()
        if all(isinstance(error, Forbidden) for error in (first, *others)):
            raise first


def _id_of(job: NewJob) -> JobId:
    assert job.id is not None  # noqa: S101 - it was given one when it was written
    return job.id


def _finish_batch(
    table: Table,
    connection: Connection,
    client: Client,
    rows: Sequence[Any],
    refusals: Refusals,
    limit: int,
) -> RelayResult:
    stored = [row.id for row in rows if row.id not in refusals]
    if stored:
        connection.execute(table.delete().where(table.c.id.in_(stored)))
    now = client.now_ms()
    refused = [
        {
            "row": row.id,
            "due_at": now + _wait_ms(row.tries, refusals[row.id]),
            "tries": row.tries + 1,
            "error": str(refusals[row.id])[:1_000],
        }
        for row in rows
        if row.id in refusals
    ]
    for entry in refused:
        logger.warning("the queue has refused job %s of the outbox: %s", entry["row"], entry["error"])
    if refused:
        values: dict[str, Any] = {name: bindparam(name) for name in ("due_at", "tries", "error")}
        connection.execute(table.update().where(table.c.id == bindparam("row")).values(values), refused)
    return RelayResult(stored=len(stored), refused=len(refused), has_more=len(rows) == limit)


def _wait_ms(tries: int, error: ForebayError) -> int:
    """Return the time until a row is tried again: as long as the queue says, if it says so."""
    retry_after: float | None = getattr(error, "retry_after", None)
    wait = (
        FIRST_WAIT_MS << min(tries, 20)
        if retry_after is None
        else max(FIRST_WAIT_MS, round(retry_after * 1_000))
    )
    return min(LONGEST_WAIT_MS, wait)
