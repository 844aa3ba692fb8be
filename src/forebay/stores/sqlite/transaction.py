"""Write transaction: named statements, counters, keys, queues and events."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from random import getrandbits
from typing import Any, Final, NamedTuple, Protocol

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import MAX_EVENTS, Event
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue
from forebay.domain.rank import QueueRank, Scoring, compute_rank
from forebay.errors import StoreError
from forebay.stores.id_generator import RANDOM_BITS, SeqIds, first_seq, seq_in_id
from forebay.stores.shared.limit_counters import StoredLimit
from forebay.stores.shared.rows import STATES, Row, changes_text, json_text, queue_from_row, row_from_queue

UNCOUNTED: Final = 256
Values = Mapping[str, object] | tuple[object, ...]


class ReadContext(NamedTuple):
    """Context of a reader: queries without a write transaction."""

    all: Callable[[str, Mapping[str, object]], list[Row]]


def states_of(context: ReadContext | Transaction, ids: Iterable[JobId]) -> dict[JobId, JobState]:
    """Return the states of these jobs, whatever table they are in. Most are found together, by the seq in
    their ids."""
    job_ids = set(ids)
    seqs = {job_id: seq_in_id(job_id) for job_id in job_ids}
    id_of_seq = {seq: job_id for job_id, seq in seqs.items() if seq is not None}
    rows = context.all("states", {"ids": json_text(id_of_seq)}) if id_of_seq else []
    states = {job_id: STATES[state] for job_id, state in rows}
    for job_id in job_ids - states.keys():
        for _, state in context.all("locate", {"seq": seqs[job_id], "job_id": job_id}):
            states[job_id] = STATES[state]
    return states


@cache
def expand_rows(statement: str) -> tuple[tuple[int, str], ...]:
    """Return a statement for 64, 8 and 1 rows: its line of values, which begins with (?, is repeated that
    often."""
    match = re.search(r"^\(\?.*\)", statement, re.MULTILINE)
    if match is None:
        raise StoreError(f"a statement for many rows needs a line of values: {statement[:60]}")
    head, tail = statement[: match.start()], statement[match.end() :]
    return tuple((rows, f"{head}{','.join([match[0]] * rows)}{tail}") for rows in (64, 8, 1))


class HandleCache:
    """State of the store as this handle knows it. A commit of another connection empties it."""

    def __init__(self) -> None:
        self._version = -1
        self.id_of: SeqIds = SeqIds(getrandbits(RANDOM_BITS))
        self.queues: dict[str, Queue | None] = {}
        self.scorings: dict[str, Scoring] = {}
        self.last_seq: int | None = None
        self.uncounted = 0  # jobs that this handle has inserted and left for later writers to count
        self.has_edges: bool | None = None  # whether any job depends on another one
        self.may_have_outbox_entries: bool = True
        self.has_limits: bool | None = None
        self.has_fairness_keys: bool | None = None

    def refresh(self, raw: sqlite3.Connection, check: Callable[[sqlite3.Connection], None]) -> None:
        # data_version changes with every commit of another connection; our own changes update this cache.
        (version,) = raw.execute("pragma data_version").fetchone()
        if version != self._version:
            check(raw)
            self.clear()
            self._version = version

    def clear(self) -> None:
        self.queues.clear()
        self.scorings.clear()
        self.last_seq = None
        self.has_edges = None
        self.may_have_outbox_entries = True
        self.has_limits = None
        self.has_fairness_keys = None


class StatementExecutor(Protocol):
    """Protocol of a connection that a transaction runs on, ours or the caller's."""

    def execute(self, statement: str, values: Any = ..., /) -> sqlite3.Cursor: ...


class Transaction:
    """State that all operations of one transaction share. `now` is read once, so they agree about the
    time."""

    def __init__(
        self, raw: StatementExecutor, statements: Mapping[str, str], handle_cache: HandleCache, now: int
    ) -> None:
        self._raw = raw
        self._statements = statements
        self.cache = handle_cache
        self.stored_limits: dict[str, StoredLimit] = {}  # loaded by this transaction
        self._counts: defaultdict[tuple[str, JobState], int] = defaultdict(int)
        self._removed: defaultdict[str, int] = defaultdict(int)
        self.id_of: SeqIds = handle_cache.id_of
        self.now = now
        self._first_seq = first_seq(now)
        self.has_new_jobs: bool = False  # inserted by this transaction and not counted
        self.needs_wakeup = False  # work has come, or a setting has changed
        self.has_outbox_entries: bool = False  # a job with dependants has ended
        self.completed: list[JobId] = []  # jobs that may have dependants, and are not in the outbox yet

    def run(self, name: str, values: Values) -> sqlite3.Cursor:
        return self._raw.execute(self._statements[name], values)

    def run_rows(self, name: str, shared: tuple[object, ...], values: list[object], width: int) -> None:
        """Run a statement for many rows, as few times as possible; `values` holds `width` values for each
        row."""
        start, left = 0, len(values)
        for rows, statement in expand_rows(self._statements[name]):
            step = rows * width
            while left >= step:
                self._raw.execute(statement, [*shared, *values[start : start + step]])
                start += step
                left -= step

    def one(self, name: str, values: Values) -> Row | None:
        row: Row | None = self._raw.execute(self._statements[name], values).fetchone()
        return row

    def all(self, name: str, values: Values) -> list[Row]:
        return self._raw.execute(self._statements[name], values).fetchall()

    # Counts

    def count(self, queue: str, state: JobState, change: int) -> None:
        self._counts[queue, state] += change

    def count_removed(self, queue: str, state: JobState, jobs: int = 1) -> None:
        """Count jobs that are removed for good."""
        self._counts[queue, state] -= jobs
        self._removed[queue] += jobs

    def count_leaving(self, queue: str, state: JobState, target: str) -> None:
        """Count a job that leaves this queue for `target`. In another queue it counts as new, so here it
        counts as removed."""
        if target == queue:
            self.count(queue, state, -1)
        else:
            self.count_removed(queue, state)

    def count_moved(self, queue: str, old: JobState, new: JobState, jobs: int = 1) -> None:
        self._counts[queue, old] -= jobs
        self._counts[queue, new] += jobs

    def count_new(self) -> None:
        """Count the jobs that were inserted since the last count.

        Inserts leave the counters alone: their page would have to be written for every single job. So each
        transaction that moves jobs counts the new ones first; a job must not be moved before it was counted.
        """
        self.has_new_jobs = False
        self.cache.uncounted = 0
        rows = self.all("uncounted", {})
        for queue, state, jobs, _ in rows:
            self.count(queue, STATES[state], jobs)
        if rows:
            self.run("counted_seq_save", {"counted": max(row[3] for row in rows)})

    def mark_all_counted(self) -> None:
        """Record that every job with a seq is counted."""
        self.has_new_jobs = False
        if self.cache.last_seq is not None:
            self.run("counted_seq_save", {"counted": self.cache.last_seq})

    def defer_counting(self, jobs: int) -> None:
        """Leave new jobs for the next writer to count, but not more than a few: counting holds the write
        lock."""
        self.cache.uncounted += jobs
        if self.cache.uncounted >= UNCOUNTED:
            self.count_new()

    def count_jobs(self, queue: str, *states: JobState) -> int:
        """Return how many jobs of a queue are in these states, with the changes of this transaction."""
        rows = (self.one("count_of", {"queue": queue, "state": state.value}) for state in states)
        stored: int = sum(row[0] for row in rows if row is not None)
        return stored + sum(self._counts[queue, state] for state in states)

    def count_running(self) -> int:
        """Return how many jobs run, with the changes of this transaction."""
        (stored,) = self.one("running", {}) or (0,)
        return int(stored) + sum(n for (_, state), n in self._counts.items() if state is JobState.RUNNING)

    @property
    def has_limits(self) -> bool:
        """Return whether there are limits, or jobs in the lanes of limits that were removed."""
        if self.cache.has_limits is None:
            (exists,) = self.one("limits_exist", {}) or (0,)
            self.cache.has_limits = bool(exists)
        return self.cache.has_limits

    @property
    def has_fairness_keys(self) -> bool:
        """Return whether there are jobs with a fairness key, or were lately."""
        if self.cache.has_fairness_keys is None:
            (exists,) = self.one("fairness_keys_exist", {}) or (0,)
            self.cache.has_fairness_keys = bool(exists)
        return self.cache.has_fairness_keys

    def flush_counts(self) -> None:
        """Write each counter once, however many jobs have moved."""
        for (queue, state), jobs in self._counts.items():
            if jobs:
                self.run("count", {"queue": queue, "state": state.value, "jobs": jobs})
        self._counts.clear()
        for queue, jobs in self._removed.items():
            self.run("removed_counts_add", {"queue": queue, "jobs": jobs})
        self._removed.clear()

    def next_seq(self) -> int:
        """Return a seq above every earlier one. In a generated id it is also the time."""
        last = self.cache.last_seq
        if last is None:
            (last,) = self.one("last_seq", {}) or (0,)
        seq: int = last + 1
        seq = max(seq, self._first_seq)
        self.cache.last_seq = seq
        return seq

    # Queues

    def queue(self, name: str) -> Queue | None:
        queues = self.cache.queues
        if name not in queues:
            row = self.one("queue", {"name": name})
            queues[name] = None if row is None else queue_from_row(row)
        return queues[name]

    def get_or_create_queue(self, name: QueueName) -> Queue:
        """Return the queue; create it with default settings if it is unknown."""
        known = self.queue(name)
        return self.save_queue(self.build_queue(name)) if known is None else known

    def build_queue(self, name: QueueName) -> Queue:
        return Queue(name=name, created_at=self.now, updated_at=self.now)

    def save_queue(self, queue: Queue, rescored_to_seq: int | None = None) -> Queue:
        """Write a queue; `rescored_to_seq` matters only while it is being rescored."""
        self.run("queue_save", row_from_queue(queue, (rescored_to_seq or 0) if queue.is_rescoring else None))
        self.cache.queues[queue.name] = queue
        self.cache.scorings.pop(queue.name, None)
        return queue

    def scoring(self, name: QueueName) -> Scoring:
        scorings = self.cache.scorings
        if name not in scorings:
            scorings[name] = self.get_or_create_queue(name).settings.scoring
        return scorings[name]

    def compute_rank(
        self, queue: QueueName, ready_at: int, priority: int, failures: int, deadline_at: int | None
    ) -> QueueRank:
        """Return the rank of a job that becomes pending in a queue now."""
        return compute_rank(
            self.scoring(queue),
            ready_at=ready_at,
            priority=priority,
            failures=failures,
            deadline_at=deadline_at,
            now=self.now,
        )

    # Keys

    def find_key_holder(self, queue: str, kind: str, key: str) -> JobId | None:
        row = self.one("key_holder", {"queue": queue, "kind": kind, "key": key, "now": self.now})
        return None if row is None else row[0]

    def take_key(self, queue: str, kind: str, key: str, job_id: JobId, until: int | None) -> None:
        values = {
            "queue": queue,
            "kind": kind,
            "key": key,
            "job_id": job_id,
            "held_until": until,
            "now": self.now,
        }
        self.run("key_take", values)

    def release_key(self, queue: str, key: str | None, job_id: JobId) -> None:
        if key is not None:
            self.run("key_free", {"queue": queue, "key": key, "job_id": job_id})

    # Edges

    def has_edges(self) -> bool:
        """Return whether any job depends on another one; queried once for many transactions."""
        if self.cache.has_edges is None:
            self.cache.has_edges = self.one("has_dependencies", {}) == (1,)
        return self.cache.has_edges

    def mark_has_edges(self) -> None:
        self.cache.has_edges = True

    def add_to_outbox(self, job_ids: Iterable[JobId], event: DependencyEvent) -> None:
        """Add these jobs to the dependency outbox if they have dependants; most have none."""
        if self.has_edges():
            added = self.run("outbox_add", {"job_ids": json_text(list(job_ids)), "event": event})
            if added.rowcount:
                self.cache.may_have_outbox_entries = self.has_outbox_entries = True

    def add_completed(self, ids: Sequence[JobId]) -> None:
        """Remember completed jobs for the end of the transaction, which mostly resolves their dependants
        inline, without the outbox."""
        if ids and self.has_edges():
            self.completed += ids
            self.has_outbox_entries = True

    def may_have_outbox_entries(self) -> bool:
        """Return whether the outbox may have entries: False once this handle has found it empty, until
        another connection commits."""
        return self.cache.may_have_outbox_entries

    def mark_outbox_empty(self) -> None:
        self.cache.may_have_outbox_entries = False

    # Sequences

    def is_sequence_busy(self, sequence: str) -> bool:
        """Return whether a job that joins a sequence now would have to wait."""
        return self.one("sequence_any", {"name": sequence}) == (1,)

    def join_sequence(self, sequence: str, job_id: JobId) -> None:
        self.run("sequence_join", {"name": sequence, "job_id": job_id})
        self.mark_has_edges()

    # Jobs and events

    def locate(self, job_id: JobId) -> tuple[int, JobState] | None:
        """Return the seq and the state of a job, whatever table it is in."""
        row = self.one("locate", {"seq": seq_in_id(job_id), "job_id": job_id})
        return None if row is None else (row[0], STATES[row[1]])

    def states(self, ids: Iterable[JobId]) -> dict[JobId, JobState]:
        """Return the states of these jobs, whatever table they are in."""
        return states_of(self, ids)

    def record_all(self, events: Sequence[Event]) -> None:
        for event in events:
            self.record(event)

    def record(self, event: Event) -> None:
        values: dict[str, object] = {
            "kind": event.kind.value,
            "occurred_at": event.occurred_at or self.now,
            "job_id": event.job_id,
            "queue": event.queue,
            "attempt": event.attempt,
            "actor": event.actor,
            "detail": event.detail,
            "changes": changes_text(event.changes),
        }
        if event.is_history and self.run("event", {**values, "max_events": MAX_EVENTS}).rowcount == 0:
            overflow = {"occurred_at": values["occurred_at"], "job_id": event.job_id, "queue": event.queue}
            if self.run("event_overflow_add", overflow).rowcount == 0:
                self.run("event_overflow_first", overflow)
        if event.is_action:
            self.run("audit_add", values)
