"""State of the in-memory engine: its tables, and the indexes of its jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec.structs import replace

from forebay.domain.audit_hash_chain import ChainLine
from forebay.domain.concurrency_and_rate_limits import Bucket
from forebay.domain.dependencies import DependencyEvent, Edge
from forebay.domain.fairness import FAIRNESS, joining_virtual_time, lane_for_keys, resuming_virtual_time
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Attempt
from forebay.domain.job_states import WAITING, JobState
from forebay.domain.job_views import ArchiveEntry
from forebay.domain.metrics import MetricRow
from forebay.domain.progress import JobProgress
from forebay.domain.queue import Queue
from forebay.domain.rank import QueueRank, compute_rank
from forebay.domain.schedule import Schedule, ScheduleRun
from forebay.domain.stored_document import Document
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.stores.memory.event_log import EventLog
from forebay.stores.memory.job_heap import JobHeap, StoredJob
from forebay.stores.memory.text_check import check_writable
from forebay.stores.memory.undo_log import set_or_remove
from forebay.stores.shared.limit_counters import StoredLimit

QueueKey = tuple[QueueName, str]


class MetricsState:
    """Rows of metrics by their keys, and the number of removed jobs of each queue."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int, str, str], MetricRow] = {}
        self.removed_counts: dict[str, int] = {}


class State(EventLog):
    """Tables as dictionaries, and the undo steps of the current call.

    Values are never changed in place, so that an undo step puts the old value back.
    """

    expiring: JobHeap
    rescoring: JobHeap
    # Lanes of limits with parked jobs, and the times at which to recheck them.
    limit_lanes: dict[tuple[QueueName, str], int]
    # Fairness keys with jobs parked at a limit: queue, scope, key -> virtual time there, and in the queue.
    limit_fairness_keys: dict[tuple[QueueName, str, str], tuple[int, int]]
    audit_chain: dict[int, ChainLine]  # lines of the chain, by position

    def __init__(self, new_id: Callable[[], JobId]) -> None:
        super().__init__()
        self.new_id = new_id
        self.jobs: dict[JobId, StoredJob] = {}
        self.jobs_by_state: dict[tuple[QueueName, JobState], dict[JobId, StoredJob]] = defaultdict(dict)
        self.leases: dict[WorkerId, dict[JobId, StoredJob]] = defaultdict(dict)
        self.queues: dict[QueueName, Queue] = {}
        self.rescored_to_seq: dict[QueueName, int] = {}
        self.unique_keys: dict[QueueKey, JobId] = {}
        self.idempotency_keys: dict[QueueKey, tuple[JobId, int]] = {}
        # Each failed attempt with the worker that settled it, which need not be the one that ran it.
        self.attempts: dict[JobId, tuple[tuple[Attempt, WorkerId], ...]] = {}
        self.archive: dict[int, ArchiveEntry] = {}
        self.workers: dict[WorkerId, WorkerInfo] = {}
        self.commands: dict[str, Command] = {}
        self.progress: dict[JobId, JobProgress] = {}
        # Edges by child and position; children by parent; number of edges that block a child; the outbox.
        self.edges: dict[JobId, dict[int, Edge]] = {}
        self.children: dict[JobId, dict[tuple[JobId, int], int]] = {}
        self.unmet: dict[JobId, int] = {}
        self.outbox: dict[int, tuple[JobId, DependencyEvent]] = {}
        # Live jobs of each sequence by position, and the sequence and position of each job.
        self.sequences: dict[str, dict[int, JobId]] = {}
        self.sequence_positions: dict[JobId, tuple[str, int]] = {}
        self.limits: dict[str, StoredLimit] = {}
        self.rate_buckets: dict[str, Bucket] = {}  # of keys, and of rates of new jobs
        # Fairness keys with pending jobs, and their virtual times.
        self.fairness_keys: dict[tuple[QueueName, str], int] = {}
        self.limit_lanes, self.limit_fairness_keys, self.audit_chain = {}, {}, {}
        self.schedules: dict[str, Schedule] = {}
        self.schedule_runs: dict[str, tuple[ScheduleRun, ...]] = {}
        self.documents: dict[tuple[str, str], Document] = {}
        self.metrics: MetricsState = MetricsState()
        self.maintenance: dict[str, int] = {}
        self.ready: dict[tuple[QueueName, str | None, bool], JobHeap] = {}
        self.delayed: dict[QueueName, JobHeap] = {}
        self.expiring, self.rescoring = JobHeap(self.jobs, _expires_at), JobHeap(self.jobs, _rescore_at)
        self.begin(0)

    def begin(self, now: int) -> None:
        self.now = now
        self.needs_wakeup: bool = False
        self.released_queues: set[QueueName] = set()  # queues with parked jobs that a released slot may take
        self._undo_steps = []

    def undo(self) -> None:
        self.needs_wakeup = False
        super().undo()

    # Jobs

    def put(self, record: StoredJob) -> None:
        """Write a job, and update its indexes."""
        job = record.job
        check_writable(job.worker, job.reason, job.cancel_reason)
        self._undo_steps.append(partial(self._replace, job.id, self.jobs.get(job.id)))
        self._replace(job.id, record)
        self.needs_wakeup = self.needs_wakeup or job.state in WAITING

    def put_new(self, job: Job) -> None:
        """Write a job that begins to wait: blocked by its parents, pending if it is due, else scheduled."""
        if job.id in self.unmet:
            queue_rank = self._compute_rank(job)
            self.put(StoredJob(replace(job, state=JobState.BLOCKED, rank=queue_rank.rank, age_capped=False)))
        elif job.run_at <= self.now:
            self.put_due(job)
        else:
            self.put(
                StoredJob(
                    replace(
                        job, state=JobState.SCHEDULED, rank=self._compute_rank(job).rank, age_capped=False
                    )
                )
            )

    def put_due(self, job: Job) -> None:
        """Write a job that is due; one with a fairness key goes to the lane of that key."""
        fairness_key = job.limit_keys.get(FAIRNESS)
        if fairness_key is not None:
            self.join_fairness(job.queue, fairness_key)
        self.put_pending(replace(job, lane=lane_for_keys(job.limit_keys)))

    def join_fairness(self, queue: QueueName, key: str) -> None:
        """Add a fairness key with pending jobs, and give it a virtual time, unless it has one."""
        if (queue, key) not in self.fairness_keys:
            first = min(
                (virtual_time for (name, _), virtual_time in self.fairness_keys.items() if name == queue),
                default=None,
            )
            weights = self.queues[queue].settings.fairness_weights
            stored_times = [
                resume_virtual_time
                for lane, (_, resume_virtual_time) in self.limit_fairness_keys.items()
                if (lane[0], lane[2]) == (queue, key)
            ]
            virtual_time = (
                resuming_virtual_time(weights, key, max(stored_times), first)
                if stored_times
                else joining_virtual_time(weights, key, first)
            )
            self.write(self.fairness_keys, (queue, key), virtual_time)

    def put_pending(self, job: Job) -> None:
        """Write a job that becomes pending, or whose rank has changed."""
        queue_rank = self._compute_rank(job)
        job = replace(job, state=JobState.PENDING, rank=queue_rank.rank, age_capped=queue_rank.age_capped)
        self.put(StoredJob(job, rescore_at=queue_rank.rescore_at))

    def put_final(self, job: Job, state: JobState, reason: str | None, result: bytes | None = None) -> None:
        """End a job and release its unique key."""
        self.release_unique_key(job)
        ended = replace(
            job,
            state=state,
            reason=reason,
            result=result,
            lane=None,
            lease_expires_at=None,
            finished_at=self.now,
            updated_at=self.now,
        )
        self.put(StoredJob(ended, end_number=self.next_number("ended")))
        self.add_to_outbox(job.id, DependencyEvent(state.value))

    def add_to_outbox(self, job_id: JobId, event: DependencyEvent) -> None:
        """Add a job to the dependency outbox if it has dependants, or successors in a sequence; most have
        none."""
        if self.children.get(job_id) or job_id in self.sequence_positions:
            self.write(self.outbox, self.next_number("outbox"), (job_id, event))

    def is_sequence_blocked(self, job_id: JobId) -> bool:
        """Return whether an earlier job of its sequence blocks a job."""
        name, position = self.sequence_positions.get(job_id, ("", 0))
        return bool(name) and position != min(self.sequences[name])

    def count_removed(self, queue: QueueName) -> None:
        self.write(self.metrics.removed_counts, queue, self.metrics.removed_counts.get(queue, 0) + 1)

    def remove(self, job: Job) -> None:
        """Remove a job with its unique key, its history, its progress and the edges to its parents."""
        self.release_unique_key(job)
        self._remove_edges(job)
        self._undo_steps.append(partial(self._replace, job.id, self.jobs[job.id]))
        self._replace(job.id, None)
        self.count_removed(job.queue)
        self.write(self.attempts, job.id, None)
        self.write(self.progress, job.id, None)
        for number in self.job_events.get(job.id, ()):
            self.write(self.events, number, None)
        self.write(self.job_events, job.id, None)

    def _remove_edges(self, job: Job) -> None:
        if job.state is not JobState.COMPLETED:
            self.add_to_outbox(job.id, DependencyEvent.DELETED)
        for edge in list(self.edges.get(job.id, {}).values()):
            self.write(self.edges[job.id], edge.position, None)
            self.write(self.children[edge.parent], (job.id, edge.position), None)
        self.write(self.unmet, job.id, None)

    def queue_or_default(self, name: QueueName) -> Queue:
        """Return the queue of this name, or the default one that an insert would create."""
        return self.queues.get(name) or Queue(name=name, created_at=self.now, updated_at=self.now)

    def release_unique_key(self, job: Job) -> None:
        """Release the job's unique key if it names this very job."""
        if job.unique_key is not None and self.unique_keys.get((job.queue, job.unique_key)) == job.id:
            self.write(self.unique_keys, (job.queue, job.unique_key), None)

    def count(self, queue: QueueName, *states: JobState) -> int:
        return sum(len(self.jobs_by_state.get((queue, state), ())) for state in states)

    def jobs_in_states(self, queue: QueueName, states: Iterable[JobState]) -> Iterator[StoredJob]:
        """Yield the jobs of a queue in any of these states, in no order."""
        for state in states:
            yield from self.jobs_by_state.get((queue, state), {}).values()

    def ready_heap(self, queue: QueueName, age_capped: bool, lane: str | None = None) -> JobHeap:
        """Return the pending jobs of one class, by rank: those of the queue's main order, or those of a
        lane."""
        key = (queue, lane, age_capped)
        if key not in self.ready:
            self.ready[key] = JobHeap(self.jobs, partial(_rank, queue, lane, age_capped))
        return self.ready[key]

    def lanes_of(self, queue: QueueName) -> list[str]:
        """Return all lanes of a queue that have jobs, or had."""
        return sorted({lane for name, lane, _ in self.ready if name == queue and lane is not None})

    def delayed_heap(self, queue: QueueName) -> JobHeap:
        """Return the scheduled and retrying jobs of a queue, by due time."""
        if queue not in self.delayed:
            self.delayed[queue] = JobHeap(self.jobs, partial(_run_at, queue))
        return self.delayed[queue]

    def _compute_rank(self, job: Job) -> QueueRank:
        return compute_rank(
            self.queues[job.queue].settings.scoring,
            ready_at=job.ready_at,
            priority=job.priority,
            failures=job.failures,
            deadline_at=job.deadline_at,
            now=self.now,
        )

    def _replace(self, job_id: JobId, record: StoredJob | None) -> None:
        old = self.jobs.get(job_id)
        if old is not None:
            self._remove_from_indexes(old.job)
        set_or_remove(self.jobs, job_id, record)
        if record is not None:
            self._add_to_indexes(record, old)

    def _remove_from_indexes(self, job: Job) -> None:
        del self.jobs_by_state[job.queue, job.state][job.id]
        if job.state is JobState.RUNNING and job.worker is not None:
            del self.leases[job.worker][job.id]
            if not self.leases[job.worker]:
                del self.leases[job.worker]

    def _add_to_indexes(self, record: StoredJob, old: StoredJob | None) -> None:
        job = record.job
        self.jobs_by_state[job.queue, job.state][job.id] = record
        if job.state is JobState.RUNNING and job.worker is not None:
            self.leases[job.worker][job.id] = record
        elif job.state is JobState.PENDING:
            self.ready_heap(job.queue, job.age_capped, job.lane).add(record, old)
        elif job.state in WAITING:
            self.delayed_heap(job.queue).add(record, old)
        self.expiring.add(record, old)
        self.rescoring.add(record, old)


# The queue is compared because a revived job may have moved to another one.


def _rank(queue: QueueName, lane: str | None, age_capped: bool, record: StoredJob) -> int | None:
    job = record.job
    is_pending = job.state is JobState.PENDING and job.lane == lane
    return job.rank if is_pending and job.queue == queue and job.age_capped is age_capped else None


def _run_at(queue: QueueName, record: StoredJob) -> int | None:
    job = record.job
    is_due_later = job.state in (JobState.SCHEDULED, JobState.RETRYING)
    return job.run_at if is_due_later and job.queue == queue else None


def _expires_at(record: StoredJob) -> int | None:
    return record.job.expires_at if record.job.state in WAITING else None


def _rescore_at(record: StoredJob) -> int | None:
    return record.rescore_at
