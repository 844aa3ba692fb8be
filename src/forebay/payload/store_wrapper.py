"""Engine wrapper that applies the payload pipeline: its users see payloads and results as they were given.

It is between the programs of a store and the engine. So producers, workers, consumers, commands and services
all work with encrypted and offloaded jobs without code for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from forebay.domain.document import Document
from forebay.domain.job import DAY_MS, Job, JobId, NewJob, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.lease import Lease
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.schedule import Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.domain.settlement import Settlement
from forebay.errors import ConfigError, ForebayError, StoreBusy, StoreLocked, StoreUnavailable
from forebay.payload.blob_stores import ORPHAN_AGE_MS, Blobs, FolderBlobs, blob_name
from forebay.payload.encryption import EncryptionKeys
from forebay.payload.pipeline import MAX_INLINE, PayloadPipeline, blob_of
from forebay.payload.store_identity import StoreIdentity
from forebay.payload.store_move_log import AFTER_MOVE_MS, keeps_blobs
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import BATCH, ActionResult, InsertResult, QueueClaim, SettleAndClaimResult

COLLECT_EVERY_MS: Final = 60_000
MAX_PAGES: Final = 10  # pages of blobs per collection: the worker that runs it has jobs too

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
    """Wrap an engine so that payloads are encrypted and offloaded; return the engine itself if neither is
    asked for.

    `keys` are `EncryptionKeys` or their argument; `blobs` is a folder or an object with the methods of
    `Blobs`. With `requires_encryption` unencrypted payloads and results are refused.
    """
    if requires_encryption and keys is None:
        raise ConfigError("require_encryption needs encryption_keys: give at least one key, or leave it out")
    if keys is None and blobs is None:
        return engine
    if type(blobs_above) is not int or blobs_above < 0:
        raise ConfigError(f"blobs_above must be a number of bytes, not {blobs_above!r:.60}")
    encryption_keys, blob_store, identity = _build_keys(keys), _build_blobs(blobs), StoreIdentity(engine)
    pipeline, tx_pipeline = (
        PayloadPipeline(
            encryption_keys,
            blob_store,
            identity,
            above=blobs_above,
            requires_encryption=requires_encryption,
            makes_id=makes_id,
        )
        for makes_id in (True, False)
    )
    # The wrapper delegates the methods that it does not define to the engine.
    return cast(Engine, PayloadEngine(engine, pipeline, tx_pipeline))


def encrypts(engine: Engine) -> bool:
    """Return whether this engine encrypts payloads."""
    return isinstance(engine, PayloadEngine) and engine.has_keys


def _build_keys(keys: Any) -> EncryptionKeys | None:
    return keys if keys is None or isinstance(keys, EncryptionKeys) else EncryptionKeys(keys)


def _build_blobs(blobs: Any) -> Blobs | None:
    if isinstance(blobs, (str, Path)):
        return FolderBlobs(blobs)
    if blobs is not None and not all(hasattr(blobs, name) for name in ("put", "get", "delete", "names")):
        raise ConfigError(f"blobs must be a folder, or have put, get, delete and names; not {blobs!r:.60}")
    blob_store: Blobs | None = blobs
    return blob_store


class _Delegate:
    """Delegates all methods that it does not define."""

    def __init__(self, inner: Any, pipeline: PayloadPipeline) -> None:
        self._inner = inner
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class PayloadEngine(_Delegate):
    """Opens wrapped handles, and encodes jobs and settlements for caller transactions."""

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
        results: list[InsertResult] = self._inner.insert_tx(
            connection, list(map(self._tx_pipeline.encode_job, jobs)), **options
        )
        return results

    async def insert_tx_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[InsertResult]:
        encoded = await self._encode_in_thread(lambda: list(map(self._tx_pipeline.encode_job, jobs)))
        results: list[InsertResult] = await self._inner.insert_tx_async(connection, encoded, **options)
        return results

    def complete_tx(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        self._inner.complete_tx(connection, worker, self._tx_pipeline.encode_settlement(settlement))

    async def complete_tx_async(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        encoded = await self._encode_in_thread(lambda: self._tx_pipeline.encode_settlement(settlement))
        await self._inner.complete_tx_async(connection, worker, encoded)

    async def _encode_in_thread(self, encode: Callable[[], T]) -> T:
        """Encode for a coroutine, in a thread if that may block: writing a blob or reading the id of the
        store must not stop the event loop."""
        if not self._tx_pipeline.may_block:
            return encode()
        # Imported here: most programs that enqueue have no event loop, and loading asyncio takes 25 ms.
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(encode)


class PayloadStore(_Delegate):
    """The write side. It also removes the blobs of deleted jobs."""

    def __init__(self, inner: Store, pipeline: PayloadPipeline, reader: Callable[[], Reader]) -> None:
        super().__init__(inner, pipeline)
        self._new_reader = reader
        self._scanned_to = ""
        self._has_logged = False
        self._encoded_outputs: dict[Lease, tuple[_StoredOutput, _StoredOutput]] = {}

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[InsertResult]:
        encoded = list(map(self._pipeline.encode_job, jobs))
        if self._pipeline.blobs is None:
            results: list[InsertResult] = self._inner.insert(encoded, **options)
            return results
        written = [
            blob_of(new.payload) if new is not job else None for new, job in zip(encoded, jobs, strict=True)
        ]
        try:
            results = self._inner.insert(encoded, **options)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable) and not isinstance(exc, (StoreBusy, StoreLocked)):
                raise  # the jobs may be stored, and only the answer lost
            self._remove(name for name in written if name is not None)
            raise
        pairs = zip(written, results, strict=True)
        self._remove(name for name, result in pairs if name is not None and not result.is_new)
        return results

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        pipeline = self._pipeline
        ends = list(map(self._encode_settlement, settlements))
        answer: SettleAndClaimResult = self._inner.settle_and_claim(
            worker,
            ends,
            list(map(pipeline.add_readable_lanes, claims)),
            room,
            known,
            list(map(pipeline.encode_update, updates)),
        )
        self._encoded_outputs.clear()
        if not answer.jobs and not answer.recovered:
            return answer
        # A blob may be larger than the caller's bound, so it is read by a call of its own, like a large
        # payload.
        is_bounded = any(claim.max_payload is not None for claim in claims)
        jobs = map(_without_blob, answer.jobs) if is_bounded else answer.jobs
        return replace(answer, jobs=self._decode_jobs(jobs), recovered=self._decode_jobs(answer.recovered))

    def _encode_settlement(self, end: Settlement) -> Settlement:
        """Encode a settlement. During an outage it is offered again and again, with other delays but the same
        result: its blobs are written once."""
        lease, output = Lease(end.job_id, end.attempt), (end.result, end.follow_ups)
        cached = self._encoded_outputs.get(lease)
        if cached is not None and cached[0] == output:
            return replace(end, result=cached[1][0], follow_ups=cached[1][1])
        encoded = self._pipeline.encode_settlement(end)
        if self._pipeline.blobs is not None and encoded is not end:
            self._encoded_outputs[lease] = output, (encoded.result, encoded.follow_ups)
        return encoded

    def _decode_jobs(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        return tuple(map(self._decode_job, jobs))

    def _decode_job(self, job: Job) -> Job:
        try:
            return self._pipeline.decode_job(job)
        except Exception:
            # The jobs are claimed: if this were raised, they would not run until their leases end.
            logger.exception("job %s cannot be decoded", job.id)
            return job

    def sweep(self, sweeper: WorkerId, *args: Any, **options: Any) -> list[Job]:
        swept: list[Job] = self._inner.sweep(sweeper, *args, **options)
        # These jobs do not run here: listeners of dead jobs need the arguments at most.
        return [self._pipeline.decode_job(job, fetches=False) for job in swept]

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        saved: bool = self._inner.save_schedule(self._pipeline.encode_schedule(schedule), actor=actor)
        return saved

    def save_document(self, document: Document, **options: Any) -> bool:
        saved: bool = self._inner.save_document(self._pipeline.encode_document(document), **options)
        return saved

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        due: DueSchedules = self._inner.due_schedules(limit)
        return replace(due, schedules=tuple(map(self._pipeline.decode_schedule, due.schedules)))

    def fire_schedules(self, advances: Sequence[ScheduleAdvance]) -> list[FireResult]:
        def encode(advance: ScheduleAdvance) -> ScheduleAdvance:
            runs = (replace(run, job=self._pipeline.encode_run(run.job)) for run in advance.runs)
            return replace(advance, runs=tuple(runs))

        results: list[FireResult] = self._inner.fire_schedules(list(map(encode, advances)))
        return results

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        blobs = self._pipeline.blobs
        if blobs is None:
            results: list[ActionResult] = self._inner.delete(ids, actor=actor)
            return results
        # By their names, and before the delete: a new job may take the id of a deleted one, with blobs of its
        # own.
        names = self._blob_names_of(ids)
        results = self._inner.delete(ids, actor=actor)
        removable = [name for result in results if result.applied for name in names.get(result.job_id, ())]
        # After the rows are deleted: a move that begins later does not copy these jobs. A move that began
        # before may have copied them, and then the jobs of the new store refer to these blobs.
        if removable and not self._keeps_blobs():
            self._remove(removable)
        return results

    def _keeps_blobs(self) -> bool:
        reader = self._new_reader()
        try:
            return keeps_blobs(reader)
        finally:
            reader.close()

    def _blob_names_of(self, ids: Sequence[JobId]) -> dict[JobId, list[str]]:
        reader = self._new_reader()
        try:
            jobs = [job for job in reader.jobs(ids) if job is not None]
        finally:
            reader.close()
        return {
            job.id: [name for data in (job.payload, job.result) if (name := blob_of(data)) is not None]
            for job in jobs
        }

    def prune(self, limit: int = BATCH) -> int:
        pruned: int = self._inner.prune(limit)
        blobs = self._pipeline.blobs
        # Once a minute, by the first worker. Stores delete jobs in many ways, some by themselves. So blobs
        # without a job are searched for: one page, and further ones while there is much to remove.
        if blobs is not None and self._inner.acquire_maintenance("collect", COLLECT_EVERY_MS):
            self.collect(blobs)
        return pruned

    def collect(self, blobs: Blobs) -> None:
        """Remove blobs without a job in this store."""
        for _ in range(MAX_PAGES):
            orphans = self._find_orphans(blobs)
            self._remove(orphans)
            if not orphans:
                break

    def _find_orphans(self, blobs: Blobs) -> list[str]:
        """Return the blobs of the next page that have no job in this store."""
        try:
            texts = blobs.names(self._pipeline.store_id(), after=self._scanned_to)
        except Exception as exc:  # a user's own blob store may raise anything
            logger.warning("blobs cannot be listed: %s", exc)
            return []
        self._scanned_to = texts[-1] if texts else ""
        names = [name for text in texts if (name := blob_name(text)) is not None]
        reader = self._new_reader()
        try:
            # The clock first: a blob that is old by it has its row, or will never have one.
            now, ids = reader.now(), list(dict.fromkeys(name.job for name in names))
            jobs = reader.jobs(ids, with_payload=False)
            deleted = {job_id for job_id, job in zip(ids, jobs, strict=True) if job is None}
            # After the jobs were read. A move is announced in the new store before that gets the blob id of
            # the old one, so the announcement is visible. If the move has ended since the jobs were read, its
            # end is younger than `AFTER_MOVE_MS`. The marker of the old store is written before the first job
            # is copied: without a marker, no other store refers to these blobs.
            if deleted and keeps_blobs(reader):
                self._log_once()
                return []
        finally:
            reader.close()
        return [str(name) for name in names if name.job in deleted and name.written_at < now - ORPHAN_AGE_MS]

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
            # No error for the caller, and no sign that the store is unavailable: a later collection finds
            # them again.
            logger.warning("blobs of deleted jobs stay for now: %s", exc)


def _without_blob(job: Job) -> Job:
    return job if blob_of(job.payload) is None else replace(job, payload=b"")


class PayloadReader(_Delegate):
    """The read side."""

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        jobs: list[Job | None] = self._inner.jobs(ids, with_payload=with_payload)
        if not with_payload:
            return jobs
        return [None if job is None else self._pipeline.decode_job(job) for job in jobs]

    def history(self, job_id: JobId) -> Timeline | None:
        timeline: Timeline | None = self._inner.history(job_id)
        if timeline is None:
            return None
        progress = self._pipeline.decode_progress(job_id, timeline.progress)
        return replace(timeline, job=self._pipeline.decode_job(timeline.job), progress=progress)

    def progress(self, job_id: JobId) -> JobProgress:
        return self._pipeline.decode_progress(job_id, self._inner.progress(job_id))

    def schedules(self, names: Sequence[str] | None = None, **options: Any) -> list[Schedule]:
        return list(map(self._pipeline.decode_schedule, self._inner.schedules(names, **options)))

    def documents(self, kind: str, *args: Any, **options: Any) -> list[Document]:
        return list(map(self._pipeline.decode_document, self._inner.documents(kind, *args, **options)))
