"""An engine whose payloads and results are wrapped: whoever uses it sees them as they were given.

It stands between the programs of a store and the store itself, so that producers, workers, consumers,
commands and services all work with encrypted jobs and know nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import replace

from forebay.app.blobs import NAME, Blobs, FolderBlobs
from forebay.app.sealing import Keys
from forebay.app.wrapping import INLINE, Wrapping
from forebay.domain.firing import Move
from forebay.domain.history import Timeline
from forebay.domain.job import DAY_MS, Job, JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note, Notes
from forebay.domain.schedule import Schedule
from forebay.domain.settlement import Settlement
from forebay.domain.ulid import ulid_created_at
from forebay.errors import ConfigError, InvalidJob, StoreUnavailable
from forebay.stores.protocol import BATCH, Engine, Exchange, Reader, Receipt, Store, Verdict, Want
from forebay.stores.scheduling import DueSchedules, Fired

COLLECT_EVERY_MS: Final = 60_000

logger = logging.getLogger(__name__)


def sealed_engine(
    engine: Engine, keys: object = None, blobs: object = None, *, blobs_above: int = INLINE
) -> Engine:
    """The engine with its payloads sealed and put away; the engine itself if there is nothing to do.

    `keys` are what `Keys` takes, or that; `blobs` is a folder or a place of your own (see `Blobs`).
    """
    if keys is None and blobs is None:
        return engine
    if type(blobs_above) is not int or blobs_above < 0:
        raise ConfigError(f"blobs_above must be a number of bytes, not {blobs_above!r:.60}")
    wrapping = Wrapping(_keys(keys), _blobs(blobs), above=blobs_above)
    # It has all the methods of an engine; those that it does not change are the engine's own.
    return cast(Engine, SealedEngine(engine, wrapping))


def _keys(keys: Any) -> Keys | None:
    return keys if keys is None or isinstance(keys, Keys) else Keys(keys)


def _blobs(blobs: Any) -> Blobs | None:
    if isinstance(blobs, (str, Path)):
        return FolderBlobs(blobs)
    if blobs is not None and not all(hasattr(blobs, name) for name in ("put", "get", "delete", "names")):
        raise ConfigError(f"blobs must be a folder, or have put, get, delete and names; not {blobs!r:.60}")
    found: Blobs | None = blobs
    return found


class _Around:
    """Passes on whatever it does not do itself."""

    def __init__(self, inner: Any, wrapping: Wrapping) -> None:
        self._inner = inner
        self._wrapping = wrapping

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SealedEngine(_Around):
    """Opens handles that wrap, and wraps what goes into callers' own transactions."""

    def store(self) -> Store:
        return cast(Store, SealedStore(self._inner.store(), self._wrapping, self._inner.reader))  # as above

    def reader(self) -> Reader:
        return cast(Reader, SealedReader(self._inner.reader(), self._wrapping))

    def insert_within(self, connection: object, jobs: Sequence[NewJob], **options: Any) -> list[Receipt]:
        receipts: list[Receipt] = self._inner.insert_within(
            connection, list(map(self._wrapping.job, jobs)), **options
        )
        return receipts

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], **options: Any
    ) -> list[Receipt]:
        wrapped = list(map(self._wrapping.job, jobs))
        receipts: list[Receipt] = await self._inner.insert_within_async(connection, wrapped, **options)
        return receipts

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        self._inner.complete_within(connection, worker, self._wrapping.settlement(settlement))

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        await self._inner.complete_within_async(connection, worker, self._wrapping.settlement(settlement))


class SealedStore(_Around):
    """The write side. It also removes the blobs of jobs that are gone."""

    def __init__(self, inner: Store, wrapping: Wrapping, reader: Callable[[], Reader]) -> None:
        super().__init__(inner, wrapping)
        self._new_reader = reader
        self._looked_up_to = ""

    def insert(self, jobs: Sequence[NewJob], **options: Any) -> list[Receipt]:
        receipts: list[Receipt] = self._inner.insert(list(map(self._wrapping.job, jobs)), **options)
        return receipts

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        wrap = self._wrapping
        answer: Exchange = self._inner.exchange(
            worker,
            list(map(wrap.settlement, settlements)),
            list(map(wrap.want, wants)),
            room,
            known,
            list(map(wrap.note, notes)),
        )
        if not answer.jobs and not answer.adopted:
            return answer
        return replace(answer, jobs=self._opened(answer.jobs), adopted=self._opened(answer.adopted))

    def _opened(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        return tuple(map(self._wrapping.opened_job, jobs))

    def sweep(self, sweeper: WorkerId, *args: Any, **options: Any) -> list[Job]:
        taken: list[Job] = self._inner.sweep(sweeper, *args, **options)
        # Nobody runs these: listeners that hear of a dead one want its arguments at most.
        return [self._wrapping.opened_job(job, fetches=False) for job in taken]

    def save_schedule(self, schedule: Schedule, *, actor: str = "") -> bool:
        saved: bool = self._inner.save_schedule(self._wrapping.schedule(schedule), actor=actor)
        return saved

    def due_schedules(self, limit: int = 100) -> DueSchedules:
        due: DueSchedules = self._inner.due_schedules(limit)
        return replace(due, schedules=tuple(map(self._wrapping.opened_schedule, due.schedules)))

    def fire(self, moves: Sequence[Move]) -> list[Fired]:
        def wrapped(move: Move) -> Move:
            runs = (replace(run, job=self._wrapping.inline(run.job)) for run in move.runs)
            return replace(move, runs=tuple(runs))

        fired: list[Fired] = self._inner.fire(list(map(wrapped, moves)))
        return fired

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[Verdict]:
        verdicts: list[Verdict] = self._inner.delete(ids, actor=actor)
        blobs = self._wrapping.blobs
        if blobs is not None:
            self._removing(lambda: _remove_all(blobs, [one.job_id for one in verdicts if one.done]))
        return verdicts

    def prune(self, limit: int = BATCH) -> int:
        pruned: int = self._inner.prune(limit)
        blobs = self._wrapping.blobs
        # A page a minute, by whoever comes first. Stores forget jobs in many ways, and some by themselves, so
        # what is left of them is looked for.
        if blobs is not None and self._inner.take_duty("collect", COLLECT_EVERY_MS):
            self._removing(lambda: self._collect(blobs))
        return pruned

    def _collect(self, blobs: Blobs) -> None:
        names = blobs.names(after=self._looked_up_to)
        self._looked_up_to = names[-1] if names else ""
        reader = self._new_reader()
        try:
            # The clock first: whatever is older than a day by it has its row, or will never have one.
            now, jobs = reader.now(), list(dict.fromkeys(JobId(name.partition("/")[0]) for name in names))
            gone = {job_id for job_id, job in zip(jobs, reader.jobs(jobs), strict=True) if job is None}
        finally:
            reader.close()
        orphans = [
            name for name in names if name.partition("/")[0] in gone and _written_at(name) < now - DAY_MS
        ]
        blobs.delete(orphans)

    def _removing(self, remove: Callable[[], None]) -> None:
        try:
            remove()
        except StoreUnavailable as exc:
            # Not the caller's trouble, and no reason to think that the store is away: it is tried again.
            logger.warning("blobs of jobs that are gone stay for now: %s", exc)


class SealedReader(_Around):
    """The read side."""

    def jobs(self, ids: Sequence[JobId]) -> list[Job | None]:
        found: list[Job | None] = self._inner.jobs(ids)
        return [None if job is None else self._wrapping.opened_job(job) for job in found]

    def history(self, job_id: JobId) -> Timeline | None:
        found: Timeline | None = self._inner.history(job_id)
        if found is None:
            return None
        notes = self._wrapping.opened_notes(job_id, found.notes)
        return replace(found, job=self._wrapping.opened_job(found.job), notes=notes)

    def notes(self, job_id: JobId) -> Notes:
        return self._wrapping.opened_notes(job_id, self._inner.notes(job_id))

    def schedules(self, names: Sequence[str] | None = None, **options: Any) -> list[Schedule]:
        return list(map(self._wrapping.opened_schedule, self._inner.schedules(names, **options)))


def _remove_all(blobs: Blobs, ids: Sequence[JobId]) -> None:
    for job_id in ids:
        blobs.delete(blobs.names(under=job_id))


def _written_at(name: str) -> int:
    parts = NAME.match(name)
    try:
        return ulid_created_at(parts[3]) if parts else 0
    except InvalidJob:
        return 0
