"""An engine whose payloads and results are wrapped: whoever uses it sees them as they were given.

It stands between the programs of a store and the store itself, so that producers, workers, consumers,
commands and services all work with encrypted jobs and know nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from forebay.domain.document import Document
from forebay.domain.history import Timeline
from forebay.domain.job import DAY_MS, Job, JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.schedule import Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError, ForebayError, StoreBusy, StoreLocked, StoreUnavailable
from forebay.payload.blobs import ORPHAN_AGE_MS, Blobs, FolderBlobs, blob_name
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.pipeline import MAX_INLINE, PayloadPipeline, blob_of
from forebay.payload.store_identity import StoreIdentity
from forebay.payload.store_move_log import AFTER_MOVE_MS, keeps_blobs
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import (
    BATCH,
    ActionResult,
    InsertResult,
    QueueClaim,
    SettleAndClaimResult,
)

COLLECT_EVERY_MS: Final = 60_000
MAX_PAGES: Final = 10  # of blobs that are collected at once: whoever does it has other work too

T = TypeVar("T")
_StoredOutput = tuple[bytes | None, tuple[NewJob, ...]]  # the result of an attempt, and its follow-ups

logger: logging.Logger = logging.getLogger(__name__)


def wrap_engine(
    engine: Engine,
    keys: object = None,
    blobs: object = None,
    *,
    blobs_above: int = MAX_INLINE,
    requires_encryption: bool = False,
) -> Engine:
    """The engine with its payloads sealed and put away; the engine itself if there is nothing to do.

    `keys` are what `Keys` takes, or that; `blobs` is a folder or a place of your own (see `Blobs`). With
    `requires_encryption` payloads and results that are not encrypted are refused.
    """
    if requires_encryption and keys is None:
        raise ConfigError("require_encryption needs encryption_keys: give at least one key, or leave it out")
    if keys is None and blobs is None:
        return engine
    if type(blobs_above) is not int or blobs_above < 0:
        raise ConfigError(f"blobs_above must be a number of bytes, not {blobs_above!r:.60}")
    own_keys, place, identity = _build_keys(keys), _build_blobs(blobs), StoreIdentity(engine)
    wrapping, within = (
        PayloadPipeline(
            own_keys,
            place,
            identity,
            above=blobs_above,
            requires_encryption=requires_encryption,
            makes_id=makes_id,
        )
        for makes_id in (True, False)
    )
    # It has all the methods of an engine; those that it does not change are the engine's own.
    return cast(Engine, PayloadEngine(engine, wrapping, within))


def encrypts(engine: Engine) -> bool:
    """Whether what goes into this engine is encrypted."""
    return isinstance(engine, PayloadEngine) and engine.has_keys


def _build_keys(keys: Any) -> EncryptionKeys | None:
    return keys if keys is None or isinstance(keys, EncryptionKeys) else EncryptionKeys(keys)


def _build_blobs(blobs: Any) -> Blobs | None:
    if isinstance(blobs, (str, Path)):
        return FolderBlobs(blobs)
    if blobs is not None and not all(hasattr(blobs, name) for name in ("put", "get", "delete", "names")):
        raise ConfigError(f"blobs must be a folder, or have put, get, delete and names; not {blobs!r:.60}")
    found: Blobs | None = blobs
    return found


class _Delegate:
    """Passes on whatever it does not do itself."""

    def __init__(self, inner: Any, pipeline: PayloadPipeline) -> None:
        self._inner = inner
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class PayloadEngine(_Delegate):
    """Opens handles that wrap, and wraps what goes into callers' own transactions."""

    def __init__(self, inner: Engine, pipeline: PayloadPipeline, tx_pipeline: PayloadPipeline) -> None:
        super().__init__(inner, pipeline)
        self._tx_pipeline = tx_pipeline

    @property
    def has_keys(self) -> bool:
        return self._tx_pipeline.keys is not None

    def store(self) -> Store:
        return cast(Store, PayloadStore(self._inner.store(), self._pipeline, self._inner.reader))  # as above

    def reader(self) -> Reader:
        return cast(Reader, PayloadReader(self._inner.reader(), self._pipeline))

    def insert_tx(self, connection: object, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        receipts: list[InsertResult] = self._inner.insert_tx(
            connection, list(map(self._tx_pipeline.encode_job, jobs)), **options
        )
        return receipts

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[InsertResult]:
        wrapped = await self._encode_in_thread(lambda: list(map(self._tx_pipeline.encode_job, jobs)))
        receipts: list[InsertResult] = await self._inner.insert_tx_async(connection, wrapped, **options)
        return receipts

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        self._inner.complete_tx(connection, worker, self._tx_pipeline.encode_settlement(settlement))

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        wrapped = await self._encode_in_thread(lambda: self._tx_pipeline.encode_settlement(settlement))
        await self._inner.complete_tx_async(connection, worker, wrapped)

    async def _encode_in_thread(self, encode: Callable[[], T]) -> T:
        """Wrap something for a coroutine. A blob is written to a disk or a network, the id of the store is
        read, and the loop has others to serve meanwhile."""
        if not self._tx_pipeline.may_block:
            return encode()
        # Here, because most programs that enqueue have no event loop, and loading asyncio takes 25 ms.
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(encode)


class PayloadStore(_Delegate):
    """The write side. It also removes the blobs of jobs that are gone."""

    def __init__(self, inner: Store, pipeline: PayloadPipeline, reader: Callable[[], Reader]) -> None:
        super().__init__(inner, pipeline)
        self._new_reader = reader
        self._scanned_to = ""
        self._has_logged = False
        self._encoded_outputs: dict[Lease, tuple[_StoredOutput, _StoredOutput]] = {}

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        wrapped = list(map(self._pipeline.encode_job, jobs))
        if self._pipeline.blobs is None:
            receipts: list[InsertResult] = self._inner.insert(wrapped, **options)
            return receipts
        written = [
            blob_of(new.payload) if new is not job else None for new, job in zip(wrapped, jobs, strict=True)
        ]
        try:
            receipts = self._inner.insert(wrapped, **options)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable) and not isinstance(exc, (StoreBusy, StoreLocked)):
                raise  # perhaps they were stored, and only the answer is lost
            self._remove(name for name in written if name is not None)
            raise
        pairs = zip(written, receipts, strict=True)
        self._remove(name for name, receipt in pairs if name is not None and not receipt.is_new)
        return receipts

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        wrap = self._pipeline
        ends = list(map(self._encode_settlement, settlements))
        answer: SettleAndClaimResult = self._inner.settle_and_claim(
            worker,
            ends,
            list(map(wrap.add_readable_lanes, claims)),
            room,
            known,
            list(map(wrap.encode_update, updates)),
        )
        self._encoded_outputs.clear()
        if not answer.jobs and not answer.recovered:
            return answer
        # A blob may be larger than the caller takes, so it is read apart, like a large payload.
        is_bounded = any(want.max_payload is not None for want in claims)
        jobs = map(_without_blob, answer.jobs) if is_bounded else answer.jobs
        return replace(answer, jobs=self._decode_jobs(jobs), recovered=self._decode_jobs(answer.recovered))

    def _encode_settlement(self, end: Settlement) -> Settlement:
        """A settlement as it is stored. While the store is away it comes again and again, with other delays
        but the same result: its blobs are written once."""
        lease, given = Lease(end.job_id, end.attempt), (end.result, end.follow_ups)
        kept = self._encoded_outputs.get(lease)
        if kept is not None and kept[0] == given:
            return replace(end, result=kept[1][0], follow_ups=kept[1][1])
        wrapped = self._pipeline.encode_settlement(end)
        if self._pipeline.blobs is not None and wrapped is not end:
            self._encoded_outputs[lease] = given, (wrapped.result, wrapped.follow_ups)
        return wrapped

    def _decode_jobs(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        return tuple(map(self._decode_job, jobs))

    def _decode_job(self, job: Job) -> Job:
        try:
            return self._pipeline.decode_job(job)
        except Exception:
            # The claim is made: if this passed through, nobody would run these jobs until their leases end.
            logger.exception("job %s cannot be opened", job.id)
            return job

    def sweep(self, sweeper: WorkerId, *args: Any, **options: Any) -> list[Job]:
        taken: list[Job] = self._inner.sweep(sweeper, *args, **options)
        # Nobody runs these: listeners that hear of a dead one want its arguments at most.
        return [self._pipeline.decode_job(job, fetches=False) for job in taken]

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        saved: bool = self._inner.save_schedule(self._pipeline.encode_schedule(schedule), actor=actor)
        return saved

    def save_document(self, document: Document, **options: Any) -> bool:
        saved: bool = self._inner.save_document(self._pipeline.encode_document(document), **options)
        return saved

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        due: DueSchedules = self._inner.due_schedules(limit)
        return replace(due, schedules=tuple(map(self._pipeline.decode_schedule, due.schedules)))

    def fire_schedules(self, moves: Sequence[ScheduleAdvance]) -> list[FireResult]:
        def wrapped(move: ScheduleAdvance) -> ScheduleAdvance:
            runs = (replace(run, job=self._pipeline.encode_run(run.job)) for run in move.runs)
            return replace(move, runs=tuple(runs))

        fired: list[FireResult] = self._inner.fire_schedules(list(map(wrapped, moves)))
        return fired

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        blobs = self._pipeline.blobs
        if blobs is None:
            verdicts: list[ActionResult] = self._inner.delete(ids, actor=actor)
            return verdicts
        # By their names, and before: as soon as a job is gone another one may have its id, and its own blobs.
        names = self._blob_names_of(ids)
        verdicts = self._inner.delete(ids, actor=actor)
        removable = [name for one in verdicts if one.applied for name in names.get(one.job_id, ())]
        # After the rows are gone: a move that begins later does not copy these jobs. A move that began before
        # may have copied them, and then the jobs of the new store refer to these blobs.
        if removable and not self._keeps_blobs():
            self._remove(removable)
        return verdicts

    def _keeps_blobs(self) -> bool:
        reader = self._new_reader()
        try:
            return keeps_blobs(reader)
        finally:
            reader.close()

    def _blob_names_of(self, ids: Sequence[JobId]) -> dict[JobId, list[str]]:
        reader = self._new_reader()
        try:
            found = [job for job in reader.jobs(ids) if job is not None]
        finally:
            reader.close()
        return {
            job.id: [name for data in (job.payload, job.result) if (name := blob_of(data)) is not None]
            for job in found
        }

    def prune(self, limit: int = BATCH) -> int:
        pruned: int = self._inner.prune(limit)
        blobs = self._pipeline.blobs
        # Each minute, by whoever comes first. Stores forget jobs in many ways, and some by themselves, so
        # what is left of them is looked for: a page, and the next ones while there is much to remove.
        if blobs is not None and self._inner.acquire_maintenance("collect", COLLECT_EVERY_MS):
            self.collect(blobs)
        return pruned

    def collect(self, blobs: Blobs) -> None:
        """Remove blobs that belong to no job of this store."""
        for _ in range(MAX_PAGES):
            orphans = self._find_orphans(blobs)
            self._remove(orphans)
            if not orphans:
                break

    def _find_orphans(self, blobs: Blobs) -> list[str]:
        """Blobs of the next page that belong to no job of this store."""
        try:
            texts = blobs.names(self._pipeline.store_id(), after=self._scanned_to)
        except Exception as exc:  # of a place that may be somebody's own
            logger.warning("blobs cannot be looked through: %s", exc)
            return []
        self._scanned_to = texts[-1] if texts else ""
        names = [name for text in texts if (name := blob_name(text)) is not None]
        reader = self._new_reader()
        try:
            # The clock first: whatever is old by it has its row, or will never have one.
            now, jobs = reader.now(), list(dict.fromkeys(name.job for name in names))
            found = reader.jobs(jobs, with_payload=False)
            gone = {job_id for job_id, job in zip(jobs, found, strict=True) if job is None}
            # After the jobs were read. The new store of a move has the blob id of the old one only after the
            # move was announced here, so the announcement is visible. If the move has ended since the jobs
            # were read, its end is younger than `AFTER_MOVE_MS`. The mark of the old store is written before
            # the first job is copied: without a mark, no other store refers to these blobs.
            if gone and keeps_blobs(reader):
                self._log_once()
                return []
        finally:
            reader.close()
        return [str(name) for name in names if name.job in gone and name.written_at < now - ORPHAN_AGE_MS]

    def _log_once(self) -> None:
        if not self._has_logged:
            self._has_logged = True
            logger.info(
                "blobs without a job are not removed while this store is moved, and for %s days after",
                AFTER_MOVE_MS // DAY_MS,
            )

    def _remove(self, names: Iterable[str]) -> None:
        unused = list(names)
        if self._pipeline.blobs is None or not unused:
            return
        try:
            self._pipeline.blobs.delete(unused)
        except Exception as exc:
            # Not the caller's trouble, and no reason to think that the store is away: they are found again.
            logger.warning("blobs of jobs that are gone stay for now: %s", exc)


def _without_blob(job: Job) -> Job:
    return job if blob_of(job.payload) is None else replace(job, payload=b"")


class PayloadReader(_Delegate):
    """The read side."""

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        found: list[Job | None] = self._inner.jobs(ids, with_payload=with_payload)
        if not with_payload:
            return found
        return [None if job is None else self._pipeline.decode_job(job) for job in found]

    def history(self, job_id: JobId) -> Timeline | None:
        found: Timeline | None = self._inner.history(job_id)
        if found is None:
            return None
        notes = self._pipeline.decode_progress(job_id, found.progress)
        return replace(found, job=self._pipeline.decode_job(found.job), progress=notes)

    def progress(self, job_id: JobId) -> JobProgress:
        return self._pipeline.decode_progress(job_id, self._inner.progress(job_id))

    def schedules(self, names: Sequence[str] | None = None, **options: Any) -> list[Schedule]:
        return list(map(self._pipeline.decode_schedule, self._inner.schedules(names, **options)))

    def documents(self, kind: str, *args: Any, **options: Any) -> list[Document]:
        return list(map(self._pipeline.decode_document, self._inner.documents(kind, *args, **options)))
