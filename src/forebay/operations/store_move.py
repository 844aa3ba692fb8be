"""Moving a store: jobs, schedules, limits, documents and queues go to another one, of any engine.

The order in which it is done is what keeps a job from being lost, and from running twice:

1. All queues of the old store are paused, and all its schedules, before the first job is copied; what was
   paused already is written down first, in a document there. From then on nobody gets a job of it. Attempts
   that run are waited for.
2. Jobs are copied, each with its id, and can be claimed in the new store from then on. What is there by its
   id stays as it is. So a mover that was killed, at whatever point, is started again and goes on; and jobs
   that producers have put into the old store meanwhile come with the next pass.
3. Only when producers write to the new store are jobs deleted from the old one, each after the new one has
   answered that it has it: children before parents, whose end would mean something to them. At last the
   queues are closed for new jobs.

Until then each job is in both stores, and the old one does not give it to anybody. A move back is refused as
long as this one is not finished: there are jobs in the old store that have been done in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import random
from threading import Event
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.document import Document
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.query import MAX_PAGE, JobQuery
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule
from forebay.domain.store_move import JobExport, MoveComparison, MoveResult
from forebay.domain.worker import HeartbeatStatus, WorkerState
from forebay.errors import ConfigError, IllegalTransition
from forebay.operations.alerts.records import ALERTS, BOARDS, CHANNELS, RULES
from forebay.operations.bulk import sweep
from forebay.operations.gradual_revive import KIND as RAMPS
from forebay.operations.store_move_comparison import ComparisonBuilder, check_agreement
from forebay.operations.store_move_sentinels import SentinelJobs
from forebay.payload.blobs import Blobs
from forebay.payload.store_identity import BLOB_PREFIX_KIND, copy_identity
from forebay.payload.store_move_log import (
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
from forebay.stores.ids import new_id

# What is kept in documents, by whoever keeps it; the mark of a move itself stays where it is.
DOCUMENT_KINDS: Final = (
    BLOB_PREFIX_KIND,
    "api_key",  # see `service.api_keys`
    *(records.kind for records in (RULES, ALERTS, CHANNELS, BOARDS)),
    RAMPS,
)
BATCH_SIZE: Final = 100
MAX_PASSES: Final = 10
MAX_BYTES: Final = 4 << 20  # of payloads and results that are written at once
# For claims that are on their way when queues are paused: PostgreSQL gives one up that waits longer than 2 s
# for a lock, and on other engines no claim overlaps a pause.
SETTLE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.2
_FINAL: Final = tuple(state for state in JobState if state not in LIVE)
_RETENTION_SETTINGS: Final = ("keep_finished_ms", "keep_dead_ms")


class MoveEndpoint(NamedTuple):
    """One of the two stores."""

    name: str
    location: str  # where its jobs are, whatever the address says
    store: Store
    reader: Reader


ReportProgress = Callable[[str, int, int], None]  # what is being done, how far it is, of how much


class StoreMover:
    """Moves what is in one store to another one; may be begun again at any time."""

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
        """Copy all there is, pass after pass, until one finds nothing new."""
        mark = self._begin()
        self._wait_until_idle(wait_ms)
        moved = MoveResult(
            limits=self._copy_limits(),
            documents=sum(self._copy_documents(kind) for kind in DOCUMENT_KINDS[:-1]),
        )
        for number in range(1, MAX_PASSES + 1):
            queues, jobs = self._run_pass(mark)
            moved = replace(moved, queues=moved.queues + queues, jobs=moved.jobs + jobs, passes=number)
            if not jobs:
                break
        # What makes jobs, or lets more of them through, comes when those before them are there.
        return replace(
            moved,
            schedules=sum(self._copy_schedule(mark, schedule) for schedule in self._list_schedules()),
            documents=moved.documents + self._copy_documents(RAMPS),
        )

    def compare(self) -> MoveComparison:
        """Look at each job of the old store in both."""
        comparing = ComparisonBuilder(self._load_copied(), self._blobs)
        for part in self._report_batches("comparing", [*self._list_ids(LIVE), *self._list_ids(_FINAL)]):
            for old, new in zip(self._old.reader.jobs(part), self._new.reader.jobs(part), strict=True):
                if old is not None:  # else pruned meanwhile
                    comparing.add(old, new)
        return comparing.result()

    def finish(self, comparison: MoveComparison, wait_ms: int = 0) -> int:
        """Take what is in the new store out of the old one, and close the queues there; how many jobs went.
        For when nobody writes to the old store any more: who does so still gets QueueClosed in the end."""
        check_agreement(comparison, self._old.name, self._new.name)
        mark = self._begin()
        self._wait_until_idle(wait_ms)
        deleted = 0
        for _ in range(MAX_PASSES):
            deleted += self._delete_all()
            self._close_queues()
            if not any(counts.total for counts in self._old.reader.counts().values()):
                break
            self._pause_all()  # what came between: a queue that is closed would give it out
        else:
            raise IllegalTransition(
                f"somebody goes on writing to {self._old.name}; stop them, and begin again"
            )
        self._restore_retention()
        self._drop_settings()
        copied = self._load_copied()
        # Before the mark: a mover that is killed between the two finishes this move again. In the other order
        # the new store would wait for the end of this move for ever, and never remove blobs.
        finish_incoming_move(self._new.store, self._new.reader, mark.token)
        self._save_marker(replace(mark, is_finished=True), self._marker_revision())
        copied.drop()
        drop_marker(self._new.store)  # of the time when it was the old one
        return deleted

    def _close_queues(self) -> None:
        for queue in self._old.reader.queues():
            if queue.state is not QueueState.DRAINING:
                self._old.store.save_queue(queue.name, state=QueueState.DRAINING, actor=self._actor)

    def _restore_retention(self) -> None:
        """From now on the new store forgets jobs of the queues that were made there when the old one would
        have."""
        copied = self._load_copied()
        names = [name for name in self._old.reader.counts() if f"queue {name}" in copied]
        there = {queue.name: queue for queue in self._new.reader.queues(names)} if names else {}
        for queue in self._old.reader.queues(names) if names else ():
            changes = {
                keep: kept
                for keep in _RETENTION_SETTINGS
                if queue.name in there
                and not getattr(there[queue.name].settings, keep)
                and (kept := getattr(queue.settings, keep))
            }
            if changes:
                state = there[queue.name].state  # else one that was dropped would be active again
                self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _drop_settings(self) -> None:
        """Schedules and limits that would be in the way of a move back. Documents stay: a server that finds
        no keys lets everybody in."""
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
        """The mark of this move; all that gives work to somebody is stopped, and what was so before is
        written down first."""
        back, found = load_marker(self._new.reader), load_marker(self._old.reader)
        if back is not None and not back[0].is_finished:
            if found is not None and found[0].token == back[0].token:
                raise self._same_store_error()
            raise ConfigError(
                f"{self._new.name} is being moved to {back[0].to}, and that is not finished: jobs in it may "
                "have been done there; finish that move first"
            )
        if found is not None and not found[0].is_finished and found[0].to != self._new.location:
            raise ConfigError(f"{self._old.name} is being moved to {found[0].to}; finish that move first")
        if found is not None and not found[0].is_finished:
            mark = found[0]
        else:
            mark = self._create_marker(0 if found is None else found[1])
        self._copied_ids = CopiedIds(self._old.store, self._old.reader, mark.token)
        self._check_incoming(mark, self._copied_ids)
        self._sentinels().finish_pending(self._actor)
        self._pause_all()
        return mark

    def _check_incoming(self, mark: MoveMarker, copied: CopiedIds) -> None:
        """Raise ConfigError if the new store has lost what was copied. It notes the number of records after
        each one is written, so without a loss it lacks at most the last: the mover was killed in between."""
        expected = load_incoming_move(self._new.reader, mark.token)
        if expected is None and not len(copied):
            announce_move(self._new.store, mark.token)
            return
        if expected is None:
            lost = "knows nothing of the move to it that has begun, as if it had been emptied"
        elif expected.copied is not None and expected.copied < copied.records - 1:
            lost = "knows only the beginning of the move to it, as if it had been restored from a backup"
        else:
            return
        raise ConfigError(
            f"{self._new.name} {lost}; what was copied is in {self._old.name} still, whose queues are paused"
        )

    def _record_copied(self, names: Iterable[str]) -> None:
        """Write down what has been copied, in both stores."""
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
        mark = MoveMarker(to=self._new.location, token=new_id(), queues=queues, schedules=paused)
        self._save_marker(mark, revision)
        # One store can have two names that do not tell it: another host name, a pooler, a service before it.
        seen = load_marker(self._new.reader)
        if seen is not None and seen[0].token == mark.token:
            drop_marker(self._old.store)
            raise self._same_store_error()
        return mark

    def _same_store_error(self) -> ConfigError:
        return ConfigError(f"{self._old.name} and {self._new.name} are the same store")

    def _pause_all(self) -> None:
        active = [queue for queue in self._old.reader.queues() if queue.state is not QueueState.PAUSED]
        for queue in active:
            self._old.store.save_queue(queue.name, state=QueueState.PAUSED, actor=self._actor)
        if active:
            # A claim that began before the pause may be committed after it, by a consumer that is in no list
            # of workers. After this wait it is over, and the next look sees its jobs as running.
            self._settle()
        for schedule in self._list_schedules():
            if not schedule.is_paused:
                self._pause_schedule(schedule)

    def _pause_schedule(self, schedule: Schedule) -> None:
        while not self._old.store.save_schedule(
            replace(schedule, is_paused=True, check_at=None), actor=self._actor
        ):
            # It has fired, or somebody has changed it: the next look sees that.
            found = self._old.reader.schedules([schedule.name])
            if not found or found[0].is_paused:
                return
            [schedule] = found

    def _wait_until_idle(self, wait_ms: int) -> None:
        """Until nobody works at jobs of the old store, and no worker of it is there who could."""
        until = self._clock.monotonic() + wait_ms / 1_000
        while True:
            sweep(self._old.store, WorkerId(f"move-{new_id()}"), random)  # there may be nobody else who does
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
                what = (
                    f"{running:,} {'job is' if running == 1 else 'jobs are'} running in"
                    if running
                    else f"{workers:,} {'worker lives' if workers == 1 else 'workers live'} on"
                )
                raise IllegalTransition(
                    f"{what} {self._old.name}; its queues are paused, so no other job begins: stop its "
                    "workers, or wait for them, and begin again"
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

    def _copy_queues(self, mark: MoveMarker) -> int:
        """Make queues that are not there yet, as they were before the move. Others are left alone, but for
        those that an earlier move away from there has closed."""
        names = list(self._old.reader.counts())
        if not names:
            return 0
        was_left = load_marker(self._new.reader) is not None
        there = {
            queue.name
            for queue in self._new.reader.queues(names)
            if not (was_left and queue.state is QueueState.DRAINING)
        }
        queues = [queue for queue in self._old.reader.queues(names) if queue.name not in there]
        self._record_copied(f"queue {queue.name}" for queue in queues)
        for queue in queues:
            self._create_queue(queue, mark)
        return len(queues)

    def _create_queue(self, queue: Queue, mark: MoveMarker) -> None:
        state = mark.queues.get(queue.name, QueueState.ACTIVE)
        if queue.state is QueueState.DROPPED:
            state = QueueState.DROPPED
        # Until the end nothing is forgotten there: what has been done and pruned would be copied once more.
        changes = {**msgspec.to_builtins(queue.settings), **dict.fromkeys(_RETENTION_SETTINGS, 0)}
        self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _copy_schedule(self, mark: MoveMarker, schedule: Schedule) -> bool:
        """As it was before it was paused. Its next run is due at once if its time has come meanwhile."""
        if f"schedule {schedule.name}" in self._load_copied():
            return False
        is_paused = schedule.name in mark.schedules
        again = replace(
            schedule, revision=0, is_paused=is_paused, check_at=None if is_paused else schedule.next_run_at
        )
        is_new = self._new.store.save_schedule(again, actor=self._actor)
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

    def _run_pass(self, mark: MoveMarker) -> tuple[int, int]:
        """Make queues and copy jobs that are not there yet, the live ones first: then workers of the new
        store have something to do while history comes. In the order of their numbers, so that parents come
        before children. How many of both."""
        while self._old.store.promote(MAX_PAGE) >= MAX_PAGE:
            pass  # what the ends of jobs mean for others is done here still
        found = [
            (label, self._list_ids(states)) for label, states in (("live jobs", LIVE), ("history", _FINAL))
        ]
        # Producers may have made queues meanwhile. All that was seen is held back before it is read.
        self._pause_all()
        queues = self._copy_queues(mark)
        return queues, sum(
            self._copy_jobs(part) for label, ids in found for part in self._report_batches(label, ids)
        )

    def _copy_jobs(self, ids: Sequence[JobId]) -> int:
        copied = self._load_copied()
        ids = [job_id for job_id in ids if job_id not in copied]
        if not ids:
            return 0
        there = self._new.reader.job_states(ids)
        missing = [job_id for job_id, fate in zip(ids, there, strict=True) if fate is None]
        wholes = [whole for whole in self._old.reader.export_jobs(missing) if whole] if missing else []
        copy_identity(self._old.reader, self._new.store, self._new.reader)  # encrypted payloads name it
        fresh = sum(
            self._sentinels().import_batch(part, copied, self._actor) for part in _split_by_size(wholes)
        )
        gone = {*missing} - {whole.job.id for whole in wholes}  # pruned meanwhile
        self._record_copied(job_id for job_id in ids if job_id not in gone)
        return fresh

    def _sentinels(self) -> SentinelJobs:
        return SentinelJobs(self._old[2:], self._new[2:], self._load_copied().token, self._record_copied)

    # Taking out

    def _delete_all(self) -> int:
        """Page by page, newest first: a job has a greater number than those that it depends on."""
        deleted = 0
        total = sum(counts.total for counts in self._old.reader.counts().values())
        while ids := self._newest_ids():
            for part in _split_batches(ids):
                self._copy_jobs(part)
                gone = sum(verdict.applied for verdict in self._old.store.delete(part, actor=self._actor))
                if not gone:
                    raise IllegalTransition(
                        f"{part[0]} of {self._old.name} cannot be taken out: somebody works at it"
                    )
                deleted += gone
                self._report("taking out", deleted, max(total, deleted))
        return deleted

    def _newest_ids(self) -> list[JobId]:
        after: str | None = None
        while True:
            page = self._old.reader.search(JobQuery(), limit=MAX_PAGE, after=after)
            if page.jobs or page.after is None:
                return [job.id for job in page.jobs]
            after = page.after

    # Looking

    def _list_ids(self, states: Iterable[JobState]) -> list[JobId]:
        """The jobs of the old store in these states, in the order of their numbers."""
        query, after, ids = JobQuery(states=tuple(states)), None, list[JobId]()
        while True:
            page = self._old.reader.search(query, limit=MAX_PAGE, after=after)
            ids += [job.id for job in page.jobs]
            after = page.after
            if after is None:
                return ids[::-1]

    def _report_batches(self, label: str, ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
        done = 0
        for part in _split_batches(ids):
            yield part
            done += len(part)
            self._report(label, done, len(ids))

    def _list_schedules(self) -> Iterator[Schedule]:
        after: str | None = None
        while found := self._old.reader.schedules(limit=MAX_PAGE, after=after):
            yield from found
            after = found[-1].name

    def _list_documents(self, kind: str) -> Iterator[Document]:
        after: str | None = None
        while found := self._old.reader.documents(kind, limit=MAX_PAGE, after=after):
            yield from found
            after = found[-1].name

    def _load_copied(self) -> CopiedIds:
        """What has been copied by this move; it is read once."""
        if self._copied_ids is None:
            found = load_marker(self._old.reader)
            token = found[0].token if found else ""
            self._copied_ids = CopiedIds(self._old.store, self._old.reader, token)
        return self._copied_ids

    def _marker_revision(self) -> int:
        found = load_marker(self._old.reader)
        return found[1] if found else 0

    def _save_marker(self, mark: MoveMarker, revision: int) -> None:
        if not save_marker(self._old.store, mark, revision):
            raise IllegalTransition(f"somebody else is moving {self._old.name} at the same time")


def _split_batches(ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    return (ids[first : first + BATCH_SIZE] for first in range(0, len(ids), BATCH_SIZE))


def _split_by_size(exports: Sequence[JobExport]) -> Iterator[list[JobExport]]:
    """The same in their order, cut where a part would get too heavy."""
    part, weight = list[JobExport](), 0
    for whole in exports:
        size = len(whole.job.payload) + len(whole.job.result or b"")
        if part and weight + size > MAX_BYTES:
            yield part
            part, weight = [], 0
        part.append(whole)
        weight += size
    if part:
        yield part
