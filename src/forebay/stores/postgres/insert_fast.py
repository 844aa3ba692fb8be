"""Insert jobs: the fast path, one statement for the common case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import JobId, NewJob
from forebay.domain.job_states import JobState
from forebay.domain.rank import compute_rank
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.id_generator import create_ids
from forebay.stores.postgres.binary_parameters import (
    Packed,
    bigint,
    blobs,
    integer,
    text,
    texts,
    uniform_texts,
)
from forebay.stores.postgres.connection import Connection, RetryTransaction, Statements
from forebay.stores.postgres.insert import GROUP_BYTES
from forebay.stores.postgres.insert_graph import InsertGraph, graph_of
from forebay.stores.postgres.prepared_statement import PreparedStatement
from forebay.stores.postgres.transaction import HandleCache
from forebay.stores.postgres.wakeups import PostgresNotifier
from forebay.stores.shared.rows import new_options_text, settings_from_text

# An attribute of the enum takes as long as creating a result.
_PENDING: Final = JobState.PENDING
_BLOCKED: Final = JobState.BLOCKED
_EDGE_BYTES: Final = 80  # approximate size of an edge in a statement


class InsertTerms(NamedTuple):
    """Settings of a queue, applied to a job that is ready now."""

    settings: bytes
    priority: bytes
    rank: bytes  # of a job that is ready at zero


@lru_cache(maxsize=1024)
def _terms(settings_text: str, wanted: int | None) -> InsertTerms | None:
    """Return the terms of a queue; None if the job needs the slow path, or is to be refused."""
    settings = settings_from_text(settings_text)
    priority = settings.default_priority if wanted is None else wanted
    if settings.max_length is not None or settings.has_rates:
        return None
    if not settings.min_priority <= priority <= settings.max_priority:
        return None
    # Without a deadline, and as long as its age is not capped, the rank is the ready time plus a constant.
    queue_rank = compute_rank(
        settings.scoring, ready_at=0, priority=priority, failures=0, deadline_at=None, now=0
    )
    return (
        None
        if queue_rank.age_capped
        else InsertTerms(settings_text.encode(), integer(priority), bigint(queue_rank.rank))
    )


class FastInsert:
    """Fast path of inserts: one round trip and one commit.

    It is for jobs without keys for one queue that this handle knows, ready now or after other jobs of the
    batch. The known settings are a hint that the statement verifies. If the queue is closed by now, or has
    other settings, nothing is stored and the slow path handles it.
    """

    needs_wakeup = False
    has_new_jobs = True

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        cache: HandleCache,
        notifier: PostgresNotifier,
        new_id: Callable[[], JobId],
    ) -> None:
        self._connection = connection
        self._insert_one = PreparedStatement("insert_one", statements["insert_one"])
        self._insert_group = PreparedStatement("insert_identical", statements["insert_identical"])
        self._insert_graph = PreparedStatement("insert_graph", statements["insert_graph"])
        self._cache = cache
        self._notifier = notifier
        self._new_id = new_id
        self._channel: bytes | None = None

    def notify(self, channel: str) -> None:
        """Wake up listeners with the commit."""
        self._channel = channel.encode()

    def insert(self, jobs: Sequence[NewJob]) -> list[InsertResult] | None:
        """Insert all of these jobs; None if they need the slow path."""
        first = jobs[0]
        settings = self._cache.open_queues.get(first.queue)
        terms = None if settings is None else _terms(settings, first.priority)
        # A pooler may send the next statement to a session in which it is not prepared.
        if terms is None or self._connection.address.pooled or not _fit_fast_path(jobs):
            return None
        is_uniform = _are_uniform(jobs)
        graph = None if is_uniform else graph_of(jobs)
        if graph is None and not is_uniform:
            return None
        edges = 0 if graph is None else len(graph.parents)
        if sum(len(job.payload) for job in jobs) + edges * _EDGE_BYTES > GROUP_BYTES:
            return None
        ids = create_ids(self._new_id, len(jobs))
        try:
            written = self._execute(jobs, ids, terms, graph)
        except RetryTransaction:
            return None
        if written is None:
            self._cache.open_queues.pop(first.queue, None)
            return None
        if graph is None:
            return [InsertResult(id=job_id, is_new=True, state=_PENDING) for job_id in ids]
        return [
            InsertResult(id=job_id, is_new=True, state=_BLOCKED if unmet else _PENDING)
            for job_id, unmet in zip(ids, graph.unmet, strict=True)
        ]

    def _execute(
        self, jobs: Sequence[NewJob], ids: Sequence[JobId], terms: InsertTerms, graph: InsertGraph | None
    ) -> int | None:
        self._channel = None
        self._notifier.send(self)
        values = _values(jobs[0], terms, self._channel)
        if len(jobs) == 1:
            statement = self._insert_one
            values["id"] = text(ids[0])
            values["options"] = text(new_options_text(jobs[0]))
            values["payload"] = jobs[0].payload
        else:
            statement = self._insert_group
            options = [new_options_text(job) for job in jobs]
            values["ids"] = uniform_texts(ids)
            values["options"] = texts(options if any(options) else ())  # mostly all are null
            values["payloads"] = blobs([job.payload for job in jobs])
        if graph is not None:
            statement = self._insert_graph
            values["tasks"] = uniform_texts([job.task for job in jobs])
            values |= graph.values(ids)
        return self._connection.call(lambda raw: statement(raw, values))


def _values(job: NewJob, terms: InsertTerms, channel: bytes | None) -> dict[str, Packed]:
    """Return the parameters that the jobs of one statement have in common."""
    return {
        "queue": job.queue.encode(),
        "settings": terms.settings,
        "task": job.task.encode(),
        "priority": terms.priority,
        "rank": terms.rank,
        "expires_at": None if job.expires_at is None else bigint(job.expires_at),
        "channel": channel,
    }


def _fit_fast_path(jobs: Sequence[NewJob]) -> bool:
    """Return whether these jobs relate to no other job, except for parents in the batch."""
    first = jobs[0]
    for job in jobs:
        if job.id is not None or job.unique_key is not None or job.idempotency_key is not None:
            return False
        if job.delay_ms or job.run_at is not None or job.deadline_at is not None:
            return False
        if job.sequence is not None or (job.limit_keys and FAIRNESS in job.limit_keys):
            return False
        if job is not first and (job.queue, job.priority, job.expires_at) != (
            first.queue, first.priority, first.expires_at,
        ):  # fmt: skip
            return False
    return True


def _are_uniform(jobs: Sequence[NewJob]) -> bool:
    """Return whether all jobs are of one task and have no parents."""
    task = jobs[0].task
    return not any(job.depends_on or job.task != task for job in jobs)
