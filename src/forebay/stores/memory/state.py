"""All that the memory engine knows. Every write goes through here and can be undone until its call ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from forebay.domain.audit_chain import ChainLine
from forebay.domain.document import Document
from forebay.domain.history import MAX_EVENTS, Attempt, Changes, Event, EventKind
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.lifecycle import WAITING, JobState
from forebay.domain.limits import Bucket
from forebay.domain.metrics import MetricRow
from forebay.domain.note import Notes
from forebay.domain.query import Archived
from forebay.domain.queue import Queue
from forebay.domain.rank import Place, place
from forebay.domain.schedule import Firing, Schedule
from forebay.domain.share import SHARE, gate_of, joining, resuming
from forebay.domain.worker import Command, WorkerInfo
from forebay.domain.workflow import Aftermath, Edge
from forebay.errors import StoreRefused
from forebay.stores.limiting import Kept
from forebay.stores.memory.order import Order, Record

K = TypeVar("K")
V = TypeVar("V")

QueueKey = tuple[QueueName, str]


class Measured:
    """Rows of metrics by their keys, and how many jobs of each queue are gone."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int, str, str], MetricRow] = {}
        self.removed: dict[str, int] = {}


class State:
    """Tables as dictionaries, and a list of how to undo what the current call has done.

    Values are never changed in place, so that undoing is putting the old one back.
    """

    expiring: Order
    rescoring: Order
    # Gates of limits with jobs behind them, and when to look there.
    closed: dict[tuple[QueueName, str], int]
    # Shares with jobs behind a limit: queue, scope, share -> turn behind the limit, last turn in the queue.
    lanes: dict[tuple[QueueName, str, str], tuple[int, int]]
    audit: dict[int, Event]  # lines of the audit log by number
    audit_chain: dict[int, ChainLine]  # those of them that are chained, by position

    def __init__(self, new_id: Callable[[], JobId]) -> None:
        self.new_id = new_id
        self.jobs: dict[JobId, Record] = {}
        self.standing: dict[tuple[QueueName, JobState], dict[JobId, Record]] = defaultdict(dict)
        self.held: dict[WorkerId, dict[JobId, Record]] = defaultdict(dict)
        self.queues: dict[QueueName, Queue] = {}
        self.reordered_to: dict[QueueName, int] = {}
        self.unique: dict[QueueKey, JobId] = {}
        self.once: dict[QueueKey, tuple[JobId, int]] = {}
        # Each bad attempt with the worker that settled it, who need not be the one that ran it.
        self.attempts: dict[JobId, tuple[tuple[Attempt, WorkerId], ...]] = {}
        self.events: dict[int, Event] = {}
        self.events_of: dict[JobId, tuple[int, ...]] = {}
        self.archive: dict[int, Archived] = {}
        self.workers: dict[WorkerId, WorkerInfo] = {}
        self.commands: dict[str, Command] = {}
        self.notes: dict[JobId, Notes] = {}
        # Edges by child and number; who has edges to children; how many edges block a child; the list.
        self.edges: dict[JobId, dict[int, Edge]] = {}
        self.behind: dict[JobId, dict[tuple[JobId, int], int]] = {}
        self.unmet: dict[JobId, int] = {}
        self.aftermaths: dict[int, tuple[JobId, Aftermath]] = {}
        # The live jobs of each sequence by their turns, and the sequence and turn of each job.
        self.sequences: dict[str, dict[int, JobId]] = {}
        self.turns: dict[JobId, tuple[str, int]] = {}
        self.limits: dict[str, Kept] = {}
        self.buckets: dict[str, Bucket] = {}  # of keys, and of rates at which queues take jobs
        self.shares: dict[tuple[QueueName, str], int] = {}  # those that have jobs waiting, and their turns
        self.closed, self.lanes, self.audit, self.audit_chain = {}, {}, {}, {}
        self.schedules: dict[str, Schedule] = {}
        self.firings: dict[str, tuple[Firing, ...]] = {}
        self.documents: dict[tuple[str, str], Document] = {}
        self.measured: Measured = Measured()
        self.duties: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.ready: dict[tuple[QueueName, str | None, bool], Order] = {}
        self.due: dict[QueueName, Order] = {}
        self.expiring, self.rescoring = Order(self.jobs, _expires_at), Order(self.jobs, _rescore_at)
        self.begin(0)

    def begin(self, now: int) -> None:
        self.now = now
        self.has_news: bool = False
        self.opened: set[QueueName] = set()  # queues with gates behind which a place became free
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        self.has_news = False
        for step in reversed(self._undo):
            step()

    def write(self, table: dict[K, V], key: K, value: V | None) -> None:
        """Set a value, or remove it with None."""
        self._undo.append(partial(_set, table, key, table.get(key)))
        _set(table, key, value)

    def number(self, name: str) -> int:
        """The next number of a series."""
        number = self.numbers.get(name, 0) + 1
        self.write(self.numbers, name, number)
        return number

    # Jobs

    def put(self, record: Record) -> None:
        """Write a job, wherever it was before."""
        job = record.job
        check_writable(job.worker, job.reason, job.cancel_reason)
        self._undo.append(partial(self._stand, job.id, self.jobs.get(job.id)))
        self._stand(job.id, record)
        self.has_news = self.has_news or job.state in WAITING

    def put_new(self, job: Job) -> None:
        """Write a job that begins to wait: blocked by its parents, pending if it is due, else scheduled."""
        if job.id in self.unmet:
            at = self._place(job)
            self.put(Record(replace(job, state=JobState.BLOCKED, rank=at.rank, capped=False)))
        elif job.run_at <= self.now:
            self.put_due(job)
        else:
            self.put(Record(replace(job, state=JobState.SCHEDULED, rank=self._place(job).rank, capped=False)))

    def put_due(self, job: Job) -> None:
        """Write a job whose time has come: one of a share waits for the turn of that."""
        share = job.limit_keys.get(SHARE)
        if share is not None:
            self.join(job.queue, share)
        self.put_pending(replace(job, gate=gate_of(job.limit_keys)))

    def join(self, queue: QueueName, share: str) -> None:
        """A share has something to run: give it a turn, unless it has one."""
        if (queue, share) not in self.shares:
            first = min((turn for (name, _), turn in self.shares.items() if name == queue), default=None)
            weights = self.queues[queue].settings.share_weights
            kept = [
                resume for lane, (_, resume) in self.lanes.items() if (lane[0], lane[2]) == (queue, share)
            ]
            turn = resuming(weights, share, max(kept), first) if kept else joining(weights, share, first)
            self.write(self.shares, (queue, share), turn)

    def put_pending(self, job: Job) -> None:
        """Write a job that becomes pending, or whose place among the pending ones has changed."""
        at = self._place(job)
        job = replace(job, state=JobState.PENDING, rank=at.rank, capped=at.capped)
        self.put(Record(job, rescore_at=at.rescore_at))

    def put_final(self, job: Job, state: JobState, reason: str | None, result: bytes | None = None) -> None:
        """End a job and free its unique key."""
        self.free_unique(job)
        ended = replace(
            job,
            state=state,
            reason=reason,
            result=result,
            gate=None,
            lease_expires_at=None,
            finished_at=self.now,
            updated_at=self.now,
        )
        self.put(Record(ended, ended=self.number("ended")))
        self.list_aftermath(job.id, Aftermath(state.value))

    def list_aftermath(self, parent: JobId, aftermath: Aftermath) -> None:
        """Remember to look at what depends on a job, or comes after it; nothing does on most."""
        if self.behind.get(parent) or parent in self.turns:
            self.write(self.aftermaths, self.number("aftermath"), (parent, aftermath))

    def waits_its_turn(self, job_id: JobId) -> bool:
        """Whether another job of its sequence comes before this one."""
        name, turn = self.turns.get(job_id, ("", 0))
        return bool(name) and turn != min(self.sequences[name])

    def count_removed(self, queue: QueueName) -> None:
        self.write(self.measured.removed, queue, self.measured.removed.get(queue, 0) + 1)

    def remove(self, job: Job) -> None:
        """Forget a job with its unique key, its history, its notes and the edges to its parents."""
        self.free_unique(job)
        self._remove_edges(job)
        self._undo.append(partial(self._stand, job.id, self.jobs[job.id]))
        self._stand(job.id, None)
        self.count_removed(job.queue)
        self.write(self.attempts, job.id, None)
        self.write(self.notes, job.id, None)
        for number in self.events_of.get(job.id, ()):
            self.write(self.events, number, None)
        self.write(self.events_of, job.id, None)

    def _remove_edges(self, job: Job) -> None:
        if job.state is not JobState.COMPLETED:
            self.list_aftermath(job.id, Aftermath.DELETED)
        for edge in list(self.edges.get(job.id, {}).values()):
            self.write(self.edges[job.id], edge.number, None)
            self.write(self.behind[edge.parent], (job.id, edge.number), None)
        self.write(self.unmet, job.id, None)

    def queue_or_fresh(self, name: QueueName) -> Queue:
        """The queue of this name, or how it would be made."""
        return self.queues.get(name) or Queue(name=name, created_at=self.now, updated_at=self.now)

    def free_unique(self, job: Job) -> None:
        """Free the job's unique key if it names this very job."""
        if job.unique_key is not None and self.unique.get((job.queue, job.unique_key)) == job.id:
            self.write(self.unique, (job.queue, job.unique_key), None)

    def count(self, queue: QueueName, *states: JobState) -> int:
        return sum(len(self.standing.get((queue, state), ())) for state in states)

    def among(self, queue: QueueName, states: Iterable[JobState]) -> Iterator[Record]:
        """The jobs of a queue in any of these states, in no order."""
        for state in states:
            yield from self.standing.get((queue, state), {}).values()

    def ready_in(self, queue: QueueName, capped: bool, gate: str | None = None) -> Order:
        """The pending jobs of one class, by rank: those of the queue's order, or those behind a gate."""
        key = (queue, gate, capped)
        if key not in self.ready:
            self.ready[key] = Order(self.jobs, partial(_rank, queue, gate, capped))
        return self.ready[key]

    def gates_of(self, queue: QueueName) -> list[str]:
        """Behind which gates of a queue jobs wait, or have waited, all of them."""
        return sorted({gate for name, gate, _ in self.ready if name == queue and gate is not None})

    def due_in(self, queue: QueueName) -> Order:
        """The scheduled and retrying jobs of a queue, by the time they are due."""
        if queue not in self.due:
            self.due[queue] = Order(self.jobs, partial(_run_at, queue))
        return self.due[queue]

    def _place(self, job: Job) -> Place:
        return place(
            self.queues[job.queue].settings.scoring,
            ready_at=job.ready_at,
            priority=job.priority,
            failures=job.failures,
            deadline_at=job.deadline_at,
            now=self.now,
        )

    def _stand(self, job_id: JobId, record: Record | None) -> None:
        old = self.jobs.get(job_id)
        if old is not None:
            self._leave(old.job)
        _set(self.jobs, job_id, record)
        if record is not None:
            self._enter(record, old)

    def _leave(self, job: Job) -> None:
        del self.standing[job.queue, job.state][job.id]
        if job.state is JobState.RUNNING and job.worker is not None:
            del self.held[job.worker][job.id]
            if not self.held[job.worker]:
                del self.held[job.worker]

    def _enter(self, record: Record, old: Record | None) -> None:
        job = record.job
        self.standing[job.queue, job.state][job.id] = record
        if job.state is JobState.RUNNING and job.worker is not None:
            self.held[job.worker][job.id] = record
        elif job.state is JobState.PENDING:
            self.ready_in(job.queue, job.capped, job.gate).add(record, old)
        elif job.state in WAITING:
            self.due_in(job.queue).add(record, old)
        self.expiring.add(record, old)
        self.rescoring.add(record, old)

    # Events

    def tell(
        self,
        kind: EventKind,
        job: Job,
        *,
        actor: str | None = None,
        attempt: int | None = None,
        detail: str = "",
        changes: Changes | None = None,
    ) -> None:
        """Note what happened to a job."""
        self.record(
            Event(
                kind=kind,
                job_id=job.id,
                queue=job.queue,
                attempt=attempt,
                actor=actor,
                detail=detail,
                changes=changes or {},
            )
        )

    def record(self, event: Event) -> None:
        """Add an event to the history, or count it if its job has as many as it may have, and an action to
        the audit log."""
        check_writable(event.job_id, event.queue, event.actor, event.detail)
        event = replace(event, at=event.at or self.now)
        if event.is_history:
            self._record_history(event)
        if event.is_action:
            self.write(self.audit, self.number("event"), event)

    def _record_history(self, event: Event) -> None:
        if event.job_id is None:
            self.write(self.events, self.number("event"), event)
        elif len(self.events_of.get(event.job_id, ())) < MAX_EVENTS:
            self._record_of(event.job_id, event)
        else:
            self._count_more(event.job_id, event)

    def forget_event(self, number: int) -> None:
        job_id = self.events[number].job_id
        self.write(self.events, number, None)
        if job_id is not None and number in self.events_of.get(job_id, ()):
            rest = tuple(one for one in self.events_of[job_id] if one != number)
            self.write(self.events_of, job_id, rest or None)

    def _record_of(self, job_id: JobId, event: Event) -> None:
        number = self.number("event")
        self.write(self.events, number, event)
        self.write(self.events_of, job_id, (*self.events_of.get(job_id, ()), number))

    def _count_more(self, job_id: JobId, event: Event) -> None:
        for number in self.events_of[job_id]:
            more = self.events[number]
            if more.kind is EventKind.MORE:
                self.write(self.events, number, replace(more, at=event.at, detail=str(int(more.detail) + 1)))
                return
        more = Event(kind=EventKind.MORE, at=event.at, job_id=job_id, queue=event.queue, detail="1")
        self._record_of(job_id, more)


def check_writable(*texts: str | None) -> None:
    """Raise StoreRefused for text that an engine which writes UTF-8 could not hold."""
    for text in texts:
        if text is None or text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise StoreRefused(f"this text cannot be written as UTF-8: {text!r:.60}") from exc


def _set(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


# A revived job may have gone to another queue, and its old one must let go of it.


def _rank(queue: QueueName, gate: str | None, capped: bool, record: Record) -> int | None:
    job = record.job
    is_pending = job.state is JobState.PENDING and job.gate == gate
    return job.rank if is_pending and job.queue == queue and job.capped is capped else None


def _run_at(queue: QueueName, record: Record) -> int | None:
    job = record.job
    is_due_later = job.state in (JobState.SCHEDULED, JobState.RETRYING)
    return job.run_at if is_due_later and job.queue == queue else None


def _expires_at(record: Record) -> int | None:
    return record.job.expires_at if record.job.state in WAITING else None


def _rescore_at(record: Record) -> int | None:
    return record.rescore_at
