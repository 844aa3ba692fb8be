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

from forebay.domain.job import Job, JobId, NewJob, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.lease import Lease
from forebay.domain.progress import JobProgress, ProgressUpdate
from forebay.domain.schedule import Schedule
from forebay.domain.schedule_runs import ScheduleAdvance
from forebay.domain.settlement import Settlement
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, ForebayError, StoreBusy, StoreLocked, StoreUnavailable
from forebay.payload.blob_garbage_collection import BlobCollector
from forebay.payload.blob_stores import Blobs, FolderBlobs
from forebay.payload.encryption_and_offload import MAX_INLINE, PayloadPipeline, blob_of
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.store_identity import StoreIdentity
from forebay.stores.contract.claims_and_results import (
    BATCH,
    ActionResult,
    InsertResult,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import DueSchedules, FireResult
from forebay.stores.contract.store import Store

COLLECT_EVERY_MS: Final = 60_000

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
        self.blob_collector: BlobCollector = BlobCollector(pipeline, reader)
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
            self.blob_collector.remove(name for name in written if name is not None)
            raise
        pairs = zip(written, results, strict=True)
        self.blob_collector.remove(name for name, result in pairs if name is not None and not result.is_new)
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
        if removable and not self.blob_collector.keeps_blobs():
            self.blob_collector.remove(removable)
        return results

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
            self.blob_collector.collect(blobs)
        return pruned


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
