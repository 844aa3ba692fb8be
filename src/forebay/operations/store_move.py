"""Store move: copy jobs, schedules, limits, documents and queues to another store, of any engine.

The order of the steps keeps every job from being lost, and from running twice:

1. Before the first job is copied, all queues and schedules of the old store are paused. Those that were
paused
   already are recorded in a document there. From then on no worker claims a job of the old store. The move
   waits for running attempts.
2. Jobs are copied with their ids, and can be claimed in the new store from then on. A job that is there stays
   unchanged. So a killed mover can be started again at any point. Jobs that producers have added to the old
   store in between come with the next pass.
3. Jobs are deleted from the old store only when all producers write to the new one. Each is deleted after the
   new store has confirmed that it has it. Children are deleted before parents: the end of a parent would
   resolve its edges. At last the queues are closed for new jobs.

Until then each job is in both stores, and no worker can claim it from the old one. A move back is refused
until this one is finished: the old store has jobs that were done in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import random
from threading import Event
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import LIVE, JobState
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule
from forebay.domain.store_move import JobExport, MoveComparison, MoveResult
from forebay.domain.stored_document import Document
from forebay.domain.worker import HeartbeatStatus, WorkerState
from forebay.errors import ConfigError, IllegalTransition
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, BOARDS, CHANNELS, RULES
from forebay.operations.gradual_revive import KIND as GRADUAL_REVIVES
from forebay.operations.lease_sweep import sweep
from forebay.operations.store_move_comparison import ComparisonBuilder, check_agreement
from forebay.operations.store_move_sentinels import SentinelJobs
from forebay.payload.blob_stores import Blobs
from forebay.payload.store_identity import BLOB_PREFIX_KIND, copy_identity
from forebay.payload.store_move_records import (
    CopiedIds,
    MoveMarker,
    announce_move,
    drop_marker,
    finish_incoming_move,
    load_incoming_move,
    load_marker,
    record_copied,
    save_marker,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id

# Documents by kind; the marker of a move itself stays in its store.
DOCUMENT_KINDS: Final = (
    BLOB_PREFIX_KIND,
    "api_key",  # see `service.api_keys`
    *(records.kind for records in (RULES, ALERTS, CHANNELS, BOARDS)),
    GRADUAL_REVIVES,
)
BATCH_SIZE: Final = 100
MAX_PASSES: Final = 10
MAX_BYTES: Final = 4 << 20  # of payloads and results in one import
# For claims that are in flight when queues are paused: PostgreSQL aborts a claim that waits longer than 2 s
# for a lock, and on other engines no claim overlaps a pause.
SETTLE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.2
_FINAL: Final = tuple(state for state in JobState if state not in LIVE)
_RETENTION_SETTINGS: Final = ("keep_finished_ms", "keep_dead_ms")


class MoveEndpoint(NamedTuple):
    """One of the two stores."""

    name: str
    location: str  # physical location of the jobs, independent of the URL
    store: Store
    reader: Reader


ReportProgress = Callable[[str, int, int], None]  # label of the step, items done, items in total


class StoreMover:
    """Moves the content of a store to another one; may be started again at any time."""

    def __init__(
        self,
        old: MoveEndpoint,
        new: MoveEndpoint,
        clock: Clock,
        *,
        actor: str = "",
        report: ReportProgress = lambda *_: None,
        blobs: Blobs | None = None,
        settle: Callable[[], object] = lambda: Event().wait(SETTLE_SECONDS),
    ) -> None:
        self._old = old
        self._new = new
        self._blobs = blobs
        self._settle = settle
        if old.location == new.location:
            raise self._same_store_error()
        self._clock = clock
        self._actor = actor
        self._report = report
        self._copied_ids: CopiedIds | None = None

    def move(self, wait_ms: int = 0) -> MoveResult:
        """Copy everything, pass after pass, until a pass finds nothing new."""
        marker = self._begin()
        self._wait_until_idle(wait_ms)
        moved = MoveResult(
            limits=self._copy_limits(),
            documents=sum(self._copy_documents(kind) for kind in DOCUMENT_KINDS[:-1]),
        )
        for number in range(1, MAX_PASSES + 1):
            queues, jobs = self._run_pass(marker)
            moved = replace(moved, queues=moved.queues + queues, jobs=moved.jobs + jobs, passes=number)
            if not jobs:
                break
        # Schedules and gradual revives add jobs, so they are copied after the jobs.
        return replace(
            moved,
            schedules=sum(self._copy_schedule(marker, schedule) for schedule in self._list_schedules()),
            documents=moved.documents + self._copy_documents(GRADUAL_REVIVES),
        )

    def compare(self) -> MoveComparison:
        """Compare each job of the old store with the one of the new store."""
        comparison = ComparisonBuilder(self._load_copied(), self._blobs)
        for batch in self._report_batches("comparing", [*self._list_ids(LIVE), *self._list_ids(_FINAL)]):
            for old, new in zip(self._old.reader.jobs(batch), self._new.reader.jobs(batch), strict=True):
                if old is not None:  # else pruned since it was listed
                    comparison.add(old, new)
        return comparison.result()

    def finish(self, comparison: MoveComparison, wait_ms: int = 0) -> int:
        """Delete the moved content from the old store, and close its queues; return how many jobs were
        deleted.

        All producers must write to the new store by now: in the old one they get QueueClosed in the end.
        """
        check_agreement(comparison, self._old.name, self._new.name)
        marker = self._begin()
        self._wait_until_idle(wait_ms)
        deleted = 0
        for _ in range(MAX_PASSES):
            deleted += self._delete_all()
            self._close_queues()
            if not any(counts.total for counts in self._old.reader.counts().values()):
                break
            self._pause_all()  # for jobs that arrived in between: a closed queue could be claimed from
        else:
            raise IllegalTransition(
                f"a producer still writes to {self._old.name}; stop all producers, and start again"
            )
        self._restore_retention()
        self._drop_settings()
        copied = self._load_copied()
        # Before the marker: a mover that is killed between the two finishes this move again. In the other
        # order the new store would wait for the end of this move for ever, and never remove blobs.
        finish_incoming_move(self._new.store, self._new.reader, marker.token)
        self._save_marker(replace(marker, is_finished=True), self._marker_revision())
        copied.drop()
        drop_marker(self._new.store)  # from a move in the other direction
        return deleted

    def _close_queues(self) -> None:
        for queue in self._old.reader.queues():
            if queue.state is not QueueState.DRAINING:
                self._old.store.save_queue(queue.name, state=QueueState.DRAINING, actor=self._actor)

    def _restore_retention(self) -> None:
        """Restore the retention of the queues that the move has created in the new store."""
        copied = self._load_copied()
        names = [name for name in self._old.reader.counts() if f"queue {name}" in copied]
        existing = {queue.name: queue for queue in self._new.reader.queues(names)} if names else {}
        for queue in self._old.reader.queues(names) if names else ():
            changes = {
                setting: retention
                for setting in _RETENTION_SETTINGS
                if queue.name in existing
                and not getattr(existing[queue.name].settings, setting)
                and (retention := getattr(queue.settings, setting))
            }
            if changes:
                state = existing[queue.name].state  # else a dropped queue would be active again
                self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _drop_settings(self) -> None:
        """Drop schedules and limits, which would block a move back. Documents stay: a server without API keys
        accepts every request."""
        copied = self._load_copied()
        limits = {limit.scope for limit in self._new.reader.limits()}
        for limit in self._old.reader.limits():
            if limit.scope in limits or f"limit {limit.scope}" in copied:
                self._old.store.drop_limit(limit.scope, actor=self._actor)
        for schedule in list(self._list_schedules()):
            if f"schedule {schedule.name}" in copied or self._new.reader.schedules([schedule.name]):
                self._old.store.drop_schedule(schedule.name, actor=self._actor)

    # Before the first job

    def _begin(self) -> MoveMarker:
        """Return the marker of this move, after everything that starts jobs is paused. The state before is
        recorded first."""
        incoming, outgoing = load_marker(self._new.reader), load_marker(self._old.reader)
        if incoming is not None and not incoming[0].is_finished:
            if outgoing is not None and outgoing[0].token == incoming[0].token:
                raise self._same_store_error()
            raise ConfigError(
                f"{self._new.name} is being moved to {incoming[0].to}, and that is not finished: jobs in it "
                "may have been done there; finish that move first"
            )
        if outgoing is not None and not outgoing[0].is_finished and outgoing[0].to != self._new.location:
            raise ConfigError(f"{self._old.name} is being moved to {outgoing[0].to}; finish that move first")
        if outgoing is not None and not outgoing[0].is_finished:
            marker = outgoing[0]
        else:
            marker = self._create_marker(0 if outgoing is None else outgoing[1])
        self._copied_ids = CopiedIds(self._old.store, self._old.reader, marker.token)
        self._check_incoming(marker, self._copied_ids)
        self._sentinels().finish_pending(self._actor)
        self._pause_all()
        return marker

    def _check_incoming(self, marker: MoveMarker, copied: CopiedIds) -> None:
        """Raise ConfigError if the new store has lost copied jobs. It stores the number of records after each
        one. So without a loss at most the last one is missing: the mover was killed in between."""
        expected = load_incoming_move(self._new.reader, marker.token)
        if expected is None and not len(copied):
            announce_move(self._new.store, marker.token)
            return
        if expected is None:
            loss = "has no record of the move to it that has begun, as if it had been emptied"
        elif expected.copied is not None and expected.copied < copied.records - 1:
            loss = "has only the first records of the move to it, as if it had been restored from a backup"
        else:
            return
        raise ConfigError(
            f"{self._new.name} {loss}; the copied jobs are still in {self._old.name}, whose queues are paused"
        )

    def _record_copied(self, names: Iterable[str]) -> None:
        """Record copied objects in both stores."""
        copied = self._load_copied()
        for _ in copied.add(names):
            record_copied(self._new.store, self._new.reader, copied.token, copied.records)

    def _create_marker(self, revision: int) -> MoveMarker:
        queues: dict[QueueName, QueueState] = {
            queue.name: queue.state
            for queue in self._old.reader.queues()
            if queue.state is not QueueState.ACTIVE
        }
        paused = tuple(schedule.name for schedule in self._list_schedules() if schedule.is_paused)
        marker = MoveMarker(to=self._new.location, token=new_id(), queues=queues, schedules=paused)
        self._save_marker(marker, revision)
        # One store can have two locations that cannot be compared: another host name, a pooler, a service.
        incoming = load_marker(self._new.reader)
        if incoming is not None and incoming[0].token == marker.token:
            drop_marker(self._old.store)
            raise self._same_store_error()
        return marker

    def _same_store_error(self) -> ConfigError:
        return ConfigError(f"{self._old.name} and {self._new.name} are the same store")

    def _pause_all(self) -> None:
        active = [queue for queue in self._old.reader.queues() if queue.state is not QueueState.PAUSED]
        for queue in active:
            self._old.store.save_queue(queue.name, state=QueueState.PAUSED, actor=self._actor)
        if active:
            # A claim that began before the pause may commit after it, by a consumer that is in no list of
            # workers. After this wait it is over, and the next read shows its jobs as running.
            self._settle()
        for schedule in self._list_schedules():
            if not schedule.is_paused:
                self._pause_schedule(schedule)

    def _pause_schedule(self, schedule: Schedule) -> None:
        while not self._old.store.save_schedule(
            replace(schedule, is_paused=True, check_at=None), actor=self._actor
        ):
            # It has fired, or another client has changed it: read it again.
            stored = self._old.reader.schedules([schedule.name])
            if not stored or stored[0].is_paused:
                return
            [schedule] = stored

    def _wait_until_idle(self, wait_ms: int) -> None:
        """Wait until no job of the old store runs, and no worker serves it."""
        until = self._clock.monotonic() + wait_ms / 1_000
        while True:
            sweep(self._old.store, WorkerId(f"move-{new_id()}"), random)  # no other process may be sweeping
            running = sum(counts.running for counts in self._old.reader.counts().values())
            now = self._old.reader.now()
            workers = sum(
                worker.state is not WorkerState.STOPPED
                and worker.heartbeat_status(now) is not HeartbeatStatus.DEAD
                for worker in self._old.reader.workers()
            )
            if not running and not workers:
                return
            if self._clock.monotonic() >= until:
                activity = (
                    f"{running:,} {'job is' if running == 1 else 'jobs are'} running in"
                    if running
                    else f"{workers:,} {'worker lives' if workers == 1 else 'workers live'} on"
                )
                raise IllegalTransition(
                    f"{activity} {self._old.name}; its queues are paused, so no other job begins: stop its "
                    "workers, or wait for them, and start again"
                )
            Event().wait(_POLL_SECONDS)

    # Copying

    def _copy_limits(self) -> int:
        limits, copied = {limit.scope for limit in self._new.reader.limits()}, self._load_copied()
        fresh = [
            limit
            for limit in self._old.reader.limits()
            if limit.scope not in limits and f"limit {limit.scope}" not in copied
        ]
        for limit in fresh:
            self._new.store.save_limit(limit, actor=self._actor)
            self._record_copied([f"limit {limit.scope}"])
        return len(fresh)

    def _copy_queues(self, marker: MoveMarker) -> int:
        """Create missing queues in their state before the move. Existing queues stay unchanged, except those
        that an earlier move away from the new store has closed."""
        names = list(self._old.reader.counts())
        if not names:
            return 0
        was_old_store = load_marker(self._new.reader) is not None
        existing = {
            queue.name
            for queue in self._new.reader.queues(names)
            if not (was_old_store and queue.state is QueueState.DRAINING)
        }
        queues = [queue for queue in self._old.reader.queues(names) if queue.name not in existing]
        self._record_copied(f"queue {queue.name}" for queue in queues)
        for queue in queues:
            self._create_queue(queue, marker)
        return len(queues)

    def _create_queue(self, queue: Queue, marker: MoveMarker) -> None:
        state = marker.queues.get(queue.name, QueueState.ACTIVE)
        if queue.state is QueueState.DROPPED:
            state = QueueState.DROPPED
        # No retention until the end of the move: a finished and pruned job would be copied once more.
        changes = {**msgspec.to_builtins(queue.settings), **dict.fromkeys(_RETENTION_SETTINGS, 0)}
        self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _copy_schedule(self, marker: MoveMarker, schedule: Schedule) -> bool:
        """Copy a schedule in its state before the pause. A run that has become due since is due at once."""
        if f"schedule {schedule.name}" in self._load_copied():
            return False
        is_paused = schedule.name in marker.schedules
        restored = replace(
            schedule, revision=0, is_paused=is_paused, check_at=None if is_paused else schedule.next_run_at
        )
        is_new = self._new.store.save_schedule(restored, actor=self._actor)
        self._record_copied([f"schedule {schedule.name}"])
        return is_new

    def _copy_documents(self, kind: str) -> int:
        fresh, copied = 0, self._load_copied()
        for document in self._list_documents(kind):
            name = f"document {kind} {document.name}"
            if name not in copied:
                fresh += self._new.store.save_document(replace(document, revision=0))
                self._record_copied([name])
        return fresh

    def _run_pass(self, marker: MoveMarker) -> tuple[int, int]:
        """Create missing queues and copy missing jobs; return the number of both.

        Live jobs come first, so that workers of the new store can run them while history is copied. Jobs are
        copied in the order of their numbers, so that parents come before children.
        """
        while self._old.store.promote(MAX_PAGE) >= MAX_PAGE:
            pass  # job ends are still propagated to dependants in the old store
        listed = [
            (label, self._list_ids(states)) for label, states in (("live jobs", LIVE), ("history", _FINAL))
        ]
        # Producers may have created queues. All listed jobs are paused before they are read.
        self._pause_all()
        queues = self._copy_queues(marker)
        return queues, sum(
            self._copy_jobs(batch) for label, ids in listed for batch in self._report_batches(label, ids)
        )

    def _copy_jobs(self, ids: Sequence[JobId]) -> int:
        copied = self._load_copied()
        ids = [job_id for job_id in ids if job_id not in copied]
        if not ids:
            return 0
        infos = self._new.reader.job_states(ids)
        missing = [job_id for job_id, info in zip(ids, infos, strict=True) if info is None]
        exports = [export for export in self._old.reader.export_jobs(missing) if export] if missing else []
        copy_identity(self._old.reader, self._new.store, self._new.reader)  # encrypted payloads name it
        fresh = sum(
            self._sentinels().import_batch(batch, copied, self._actor) for batch in _split_by_size(exports)
        )
        pruned = {*missing} - {export.job.id for export in exports}
        self._record_copied(job_id for job_id in ids if job_id not in pruned)
        return fresh

    def _sentinels(self) -> SentinelJobs:
        return SentinelJobs(self._old[2:], self._new[2:], self._load_copied().token, self._record_copied)

    # Deleting

    def _delete_all(self) -> int:
        """Delete page by page, newest first: a job has a greater number than its parents."""
        deleted = 0
        total = sum(counts.total for counts in self._old.reader.counts().values())
        while ids := self._newest_ids():
            for batch in _split_batches(ids):
                self._copy_jobs(batch)
                applied = sum(result.applied for result in self._old.store.delete(batch, actor=self._actor))
                if not applied:
                    raise IllegalTransition(
                        f"{batch[0]} of {self._old.name} cannot be taken out: another client works on it"
                    )
                deleted += applied
                self._report("taking out", deleted, max(total, deleted))
        return deleted

    def _newest_ids(self) -> list[JobId]:
        after: str | None = None
        while True:
            page = self._old.reader.search(JobQuery(), limit=MAX_PAGE, after=after)
            if page.jobs or page.after is None:
                return [job.id for job in page.jobs]
            after = page.after

    # Reading

    def _list_ids(self, states: Iterable[JobState]) -> list[JobId]:
        """Return the jobs of the old store in these states, in the order of their numbers."""
        query, after, ids = JobQuery(states=tuple(states)), None, list[JobId]()
        while True:
            page = self._old.reader.search(query, limit=MAX_PAGE, after=after)
            ids += [job.id for job in page.jobs]
            after = page.after
            if after is None:
                return ids[::-1]

    def _report_batches(self, label: str, ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
        done = 0
        for batch in _split_batches(ids):
            yield batch
            done += len(batch)
            self._report(label, done, len(ids))

    def _list_schedules(self) -> Iterator[Schedule]:
        after: str | None = None
        while page := self._old.reader.schedules(limit=MAX_PAGE, after=after):
            yield from page
            after = page[-1].name

    def _list_documents(self, kind: str) -> Iterator[Document]:
        after: str | None = None
        while page := self._old.reader.documents(kind, limit=MAX_PAGE, after=after):
            yield from page
            after = page[-1].name

    def _load_copied(self) -> CopiedIds:
        """Return the names that this move has copied; they are read once."""
        if self._copied_ids is None:
            stored = load_marker(self._old.reader)
            token = stored[0].token if stored else ""
            self._copied_ids = CopiedIds(self._old.store, self._old.reader, token)
        return self._copied_ids

    def _marker_revision(self) -> int:
        stored = load_marker(self._old.reader)
        return stored[1] if stored else 0

    def _save_marker(self, marker: MoveMarker, revision: int) -> None:
        if not save_marker(self._old.store, marker, revision):
            raise IllegalTransition(f"another mover moves {self._old.name} at the same time")


def _split_batches(ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    return (ids[first : first + BATCH_SIZE] for first in range(0, len(ids), BATCH_SIZE))


def _split_by_size(exports: Sequence[JobExport]) -> Iterator[list[JobExport]]:
    """Split exports into batches of at most MAX_BYTES, in their order."""
    batch, total = list[JobExport](), 0
    for export in exports:
        size = len(export.job.payload) + len(export.job.result or b"")
        if batch and total + size > MAX_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(export)
        total += size
    if batch:
        yield batch
