"""Write transaction: statements by name, queues, counters, keys, outbox entries and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

import psycopg

from forebay.domain.dependencies import AFFECTED_STATES, DependencyEvent, EdgeState
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import MAX_EVENTS, Event
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue, QueueSettings, QueueState
from forebay.domain.rank import QueueRank, Scoring, compute_rank
from forebay.stores.postgres.claim_cursor import ClaimCursor, ClaimCursors
from forebay.stores.postgres.connection import RetryTransaction, Statements, Values
from forebay.stores.shared.limit_counters import StoredLimit
from forebay.stores.shared.rows import (
    STATES,
    Row,
    changes_text,
    queue_from_row,
    row_from_queue,
    settings_from_text,
)

DEFAULT_CAP_MS: Final = QueueSettings().scoring.cap_ms
OPEN: Final = (QueueState.ACTIVE, QueueState.PAUSED)
_RUNNING: Final = JobState.RUNNING
# Stored state of an open edge whose child was inserted in a caller transaction, until its parent is checked:
# before that it is not known whether the parent has completed and resolved its other edges.
UNCHECKED: Final = "unchecked"
_HIDDEN_LOCKS: Final = (None, None, None, None)  # see `find_key_holders`


def affected_edge_states(event: DependencyEvent) -> list[str]:
    """Return the stored states of the edges that an event affects."""
    states = [state.value for state in AFFECTED_STATES[event]]
    return [*states, UNCHECKED] if EdgeState.OPEN in AFFECTED_STATES[event] else states


class JobKey(NamedTuple):
    """Row of a key; keys are taken in this order."""

    queue: str
    kind: str
    key: str


class HandleCache:
    """Cache of a handle across transactions: hints that statements verify."""

    def __init__(self) -> None:
        self.caps: dict[str, int] = {}
        self.open_queues: dict[str, str] = {}  # queues that accept jobs, with their stored settings
        self.cursors: ClaimCursors = ClaimCursors()
        self.limited: set[str] = set()  # queues that had limits when this handle last loaded them
        self.fair_queues: set[str] = set()  # queues that had fairness keys then


class StatementExecutor(Protocol):
    """Connection of the store or of a caller, as far as a transaction needs it."""

    def execute(
        self, statement: bytes, values: Values | None = ..., /, *, binary: bool = ...
    ) -> psycopg.Cursor[Row]: ...


class QueryRunner(Protocol):
    """Transaction or snapshot that runs read statements by name."""

    def all(self, name: str, values: Values | None = None) -> list[Row]: ...


class CommitNotifier(Protocol):
    """Transaction that may notify listeners with its commit."""

    needs_wakeup: bool
    has_new_jobs: bool

    def notify(self, channel: str) -> None: ...


class Transaction:
    """State that all operations of one transaction share. `now` is read once, so they agree about the time.

    Statements are pipelined: a result is waited for only where it is read. So `run` costs no round trip, and
    its error comes with the next result that is read, at the latest with the commit.
    """

    def __init__(
        self,
        raw: StatementExecutor,
        statements: Statements,
        new_id: Callable[[], JobId],
        cache: HandleCache,
        *,
        is_caller_tx: bool = False,
        completes: JobId | None = None,
    ) -> None:
        self._raw = raw
        self._caps = cache.caps
        self._open_queues = cache.open_queues
        self.cursors: ClaimCursors = cache.cursors
        self.limited: set[str] = cache.limited
        self.fair_queues: set[str] = cache.fair_queues
        self.stored_limits: dict[str, StoredLimit] = {}  # locked by this transaction
        # Results not fetched yet: unparked jobs, and queues with lanes to recheck.
        self.unparked: list[psycopg.Cursor[Row]] = []
        self.released_queues: list[psycopg.Cursor[Row]] = []
        # Lanes to recheck now, and the time of the next recheck; None once that has changed.
        self.due_lanes: psycopg.Cursor[Row] | None = None
        self.next_lane: psycopg.Cursor[Row] | None = None
        # Claim cursors, and times up to which no due job is left, valid once this is committed.
        self.advanced_cursors: dict[str, ClaimCursor] = {}
        self.due_from: dict[str, int] = {}
        self._statements = statements
        self._counts: defaultdict[tuple[str, JobState], int] = defaultdict(int)
        self._removed: defaultdict[str, int] = defaultdict(int)
        self._queues: dict[str, Queue | None] = {}
        self._scorings: dict[str, Scoring] = {}
        self.new_id = new_id
        self.needs_wakeup = False  # workers should poll: something has changed
        self.has_new_jobs = False  # workers should poll: jobs have come
        self.outbox_ids: list[int] = []  # outbox entries of this transaction
        # A caller transaction may hold locks for any time.
        self.is_caller_tx = is_caller_tx
        self._clock = self.run("now") if completes is None else self.run("now_completing", {"id": completes})
        self.busy_keys: set[JobKey] = set()  # taken by an open caller transaction
        self.busy_parents: set[JobId] = set()  # completed in an open caller transaction
        self._has_hidden_locks = False  # a caller transaction has more keys or ids than advisory locks
        self._now: int | None = None

    @property
    def now(self) -> int:
        """Clock of the store at the start of this transaction."""
        if self._now is None:
            row = self._clock.fetchone()
            self._now = 0 if row is None else row[0]
        return self._now

    def reread_clock(self, pending: psycopg.Cursor[Row] | None = None) -> int:
        """Read the clock again after a wait for a lock, and use it from now on.

        `pending` is a query of it that was sent together with the lock.
        """
        row = (pending or self.run("now")).fetchone()
        self._now = self.now if row is None else row[0]
        return self.now

    @property
    def has_limits(self) -> bool:
        """Whether this handle has seen limits; only a hint."""
        return bool(self.limited)

    def run(self, name: str, values: Values | None = None) -> psycopg.Cursor[Row]:
        """Send a statement; its result can be fetched later."""
        return self._raw.execute(self._statements[name], values, binary=True)

    def one(self, name: str, values: Values | None = None) -> Row | None:
        return self.run(name, values).fetchone()

    def all(self, name: str, values: Values | None = None) -> list[Row]:
        return self.run(name, values).fetchall()

    def define(self, statement: str) -> None:
        """Run a statement that changes the schema."""
        self._raw.execute(statement.encode())

    def notify(self, channel: str) -> None:
        """Wake up listeners with the commit."""
        self.run("notify", {"channel": channel})

    # Counts

    def count(self, queue: str, state: JobState, change: int) -> None:
        self._counts[queue, state] += change

    def count_removed(self, queue: str, state: JobState, jobs: int = 1) -> None:
        """Count jobs that are removed for good."""
        self._counts[queue, state] -= jobs
        self._removed[queue] += jobs

    def count_leaving(self, queue: str, state: JobState, target: str) -> None:
        """Count a job that moves to a target queue, where it counts as new; in another queue as removed."""
        if target == queue:
            self.count(queue, state, -1)
        else:
            self.count_removed(queue, state)

    def count_moved(self, queue: str, old: JobState, new: JobState, jobs: int = 1) -> None:
        self._counts[queue, old] -= jobs
        self._counts[queue, new] += jobs

    def count_jobs(self, queue: str, states: Iterable[JobState]) -> int:
        """Return the number of jobs of a queue in these states, with the changes of this transaction."""
        wanted = set(states)
        stored = sum(row[2] for row in self.all("counts") if row[0] == queue and STATES[row[1]] in wanted)
        return int(stored) + sum(self._counts[queue, state] for state in wanted)

    @property
    def shrunk_queues(self) -> list[str]:
        """Queues with fewer running jobs than before this transaction."""
        return [queue for (queue, state), jobs in self._counts.items() if state is _RUNNING and jobs < 0]

    def flush_counts(self) -> None:
        """Append changed counts; no transaction waits for the counts of another one."""
        changed = [(queue, state.value, jobs) for (queue, state), jobs in self._counts.items() if jobs]
        if changed:
            queues, states, jobs = zip(*changed, strict=True)
            self.run("count", {"queues": list(queues), "states": list(states), "jobs": list(jobs)})
        self._counts.clear()
        if self._removed:
            removed = {"queues": list(self._removed), "jobs": list(self._removed.values())}
            self.run("removed_counts_add", removed)
            self._removed.clear()

    # Queues

    def load_queues(self, names: Iterable[str]) -> None:
        """Load several queues at once."""
        missing = sorted({name for name in names if name not in self._queues})
        if missing:
            self.remember_queues(missing, self.all("queues_named", {"names": missing}))

    def remember_queues(self, names: Iterable[str], rows: Iterable[Row]) -> None:
        """Remember loaded queues."""
        self._queues.update(dict.fromkeys(names))
        for row in rows:
            queue = self._remember(queue_from_row(row))
            if queue.state in OPEN:
                self._open_queues[queue.name] = row[2]
            (self.limited.add if row[7] else self.limited.discard)(queue.name)
            (self.fair_queues.add if row[8] else self.fair_queues.discard)(queue.name)

    def forget_queues(self, names: Iterable[str]) -> None:
        """Forget queues that another transaction may have changed."""
        for name in names:
            self._queues.pop(name, None)

    def remembered_cap_ms(self, name: str) -> int:
        """Return the age cap of a queue when this handle last loaded it; only a hint."""
        return self._caps.get(name, DEFAULT_CAP_MS)

    def queue(self, name: str) -> Queue | None:
        if name not in self._queues:
            self.load_queues([name])
        return self._queues[name]

    def lock_queue(self, name: QueueName) -> Queue | None:
        """Lock a queue until this transaction ends, and return it."""
        row = self.one("queue_lock", {"name": name})
        queue = self._queues[name] = None if row is None else queue_from_row(row)
        self._scorings.pop(name, None)
        return queue

    def get_or_create_queue(self, name: QueueName) -> Queue:
        """Return the queue; create it with default settings if it is missing."""
        return self.queue(name) or self.add_queue(self.build_queue(name))

    def build_queue(self, name: QueueName) -> Queue:
        return Queue(name=name, created_at=self.now, updated_at=self.now)

    def add_queue(self, queue: Queue) -> Queue:
        """Create a queue; retry if another transaction has created it since, with unknown settings."""
        if self.one("queue_add", row_from_queue(queue, 0 if queue.is_rescoring else None)) is None:
            raise RetryTransaction
        return self._remember(queue)

    def save_queue(self, queue: Queue, rescored_to_seq: int | None = None) -> Queue:
        """Store a locked queue; `rescored_to_seq` matters only during a rescore."""
        self.run("queue_save", row_from_queue(queue, (rescored_to_seq or 0) if queue.is_rescoring else None))
        return self._remember(queue)

    def _remember(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        self._scorings.pop(queue.name, None)
        self._caps[queue.name] = queue.settings.scoring.cap_ms
        return queue

    def scoring(self, name: QueueName) -> Scoring:
        if name not in self._scorings:
            self._scorings[name] = self.get_or_create_queue(name).settings.scoring
        return self._scorings[name]

    def load_scorings(self, names: Iterable[str]) -> list[QueueSettings]:
        """Load only the scoring of several queues; whole queues would load limits and fairness keys too.

        Return the settings of all queues, identical ones once.
        """
        rows = self.all("settings", {"names": sorted(set(names))})
        loaded = [(name, settings_from_text(text)) for name, text in rows]
        self._scorings |= {name: settings.scoring for name, settings in loaded if name is not None}
        return [settings for name, settings in loaded if name is None]

    def compute_rank(
        self, queue: QueueName, ready_at: int, priority: int, failures: int, deadline_at: int | None
    ) -> QueueRank:
        """Compute the rank of a job that becomes pending in a queue now."""
        return compute_rank(
            self.scoring(queue),
            ready_at=ready_at,
            priority=priority,
            failures=failures,
            deadline_at=deadline_at,
            now=self.now,
        )

    # Keys

    def find_key_holders(self, keys: Iterable[JobKey]) -> dict[JobKey, JobId]:
        """Return the holders of these keys; keys taken by an open caller transaction go to `busy_keys`.

        A caller transaction does not probe for those: it waits for another caller, as for any row.
        """
        wanted = sorted(set(keys))
        if not wanted:
            return {}
        values = {**_columns(wanted), "now": self.now, "probes": not self.is_caller_tx}
        rows = self.all("key_holders", values)
        self._has_hidden_locks |= _HIDDEN_LOCKS in rows
        self.busy_keys.update(JobKey(*row[:3]) for row in rows if row[3] is None and row != _HIDDEN_LOCKS)
        return {JobKey(*row[:3]): row[3] for row in rows if row[3] is not None}

    def take_keys(self, keys: Sequence[tuple[JobKey, JobId, int | None]]) -> bool:
        """Give keys to jobs; return whether all of them were free."""
        if not keys:
            return True
        ordered = sorted(keys, key=lambda taken: taken[0])
        values = {
            **_columns([key for key, _, _ in ordered]),
            "job_ids": [job_id for _, job_id, _ in ordered],
            "held_until": [until for _, _, until in ordered],
            "now": self.now,
        }
        with self.short_lock_timeout():
            taken = self.all("keys_take_tx" if self.is_caller_tx else "keys_take", values)
        return len(taken) == len(ordered)

    @contextmanager
    def short_lock_timeout(self) -> Iterator[None]:
        """Wait briefly for keys and ids while a caller transaction has more of them than advisory locks.

        Only a wait shows whether the key is among those. An error ends the transaction, and the setting with
        it.
        """
        if self._has_hidden_locks:
            self.run("shorten_lock_timeout")
        yield
        if self._has_hidden_locks:
            self.run("restore_lock_timeout")

    def release_keys(self, rows: Iterable[tuple[JobId, str, str | None]]) -> None:
        """Release the unique keys of jobs, given as (id, queue, key)."""
        keyed = sorted((queue, key, job_id) for job_id, queue, key in rows if key is not None)
        if keyed:
            queues, keys, job_ids = zip(*keyed, strict=True)
            self.run("keys_free", {"queues": list(queues), "keys": list(keys), "job_ids": list(job_ids)})

    # Jobs and events

    def states(self, ids: Iterable[JobId]) -> dict[JobId, JobState]:
        """Return the states of these jobs, in any table."""
        wanted = sorted(set(ids))
        return {row[0]: STATES[row[1]] for row in self.all("states", {"ids": wanted})} if wanted else {}

    def states_and_busy(
        self, given: Iterable[JobId], others: Iterable[JobId]
    ) -> tuple[dict[JobId, JobState], set[JobId]]:
        """Return the states of jobs, and the given ids that an open caller transaction is about to write."""
        ids = sorted(set(given))
        if self.is_caller_tx or not ids:
            return self.states([*ids, *others]), set()
        rows = self.all("states_of_given", {"ids": sorted({*ids, *others}), "given_ids": ids})
        self._has_hidden_locks |= _HIDDEN_LOCKS[:2] in rows
        found = {row[0]: STATES[row[1]] for row in rows if row[1] is not None}
        return found, {row[0] for row in rows if row[1] is None} - found.keys() - {None}

    def add_to_outbox(self, events: Sequence[tuple[JobId, str]]) -> None:
        """Add outbox entries, so that these events are propagated to the dependants."""
        if events:
            job_ids, kinds = zip(*events, strict=True)
            rows = self.all("outbox_add", {"job_ids": list(job_ids), "events": list(kinds)})
            self.outbox_ids += [entry_id for (entry_id,) in rows]

    def add_to_outbox_if_affected(self, job_ids: Sequence[JobId], event: DependencyEvent) -> None:
        """Add outbox entries for those of these jobs that have affected dependants."""
        if job_ids:
            values = {
                "job_ids": list(job_ids),
                "event": event.value,
                "states": affected_edge_states(event),
            }
            self.outbox_ids += [entry_id for (entry_id,) in self.all("outbox_add_if_affected", values)]

    def record_all(self, events: Sequence[Event]) -> None:
        for event in events:
            self.record(event)

    def record(self, event: Event) -> None:
        values = {
            "kind": event.kind.value,
            "occurred_at": event.occurred_at or self.now,
            "job_id": event.job_id,
            "queue": event.queue,
            "attempt": event.attempt,
            "actor": event.actor,
            "detail": event.detail,
            "changes": changes_text(event.changes),
            "max_events": MAX_EVENTS,
        }
        if event.is_history:
            self.run("event", values)
        if event.is_action:
            self.run("audit_add", values)


def _columns(keys: Sequence[JobKey]) -> dict[str, list[str]]:
    return {
        "queues": [key.queue for key in keys],
        "kinds": [key.kind for key in keys],
        "keys": [key.key for key in keys],
    }
