"""Insert requests for the scripts, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from forebay.domain.backpressure import queue_full_error
from forebay.domain.concurrency_and_rate_limits import Limit, queue_scope
from forebay.domain.dependencies import missing_parent
from forebay.domain.dependency_graph import missing_batch_parent
from forebay.domain.enqueue_rates import rate_limited_error
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Dependency, JobId, NewJob, OnFailure, UniqueUntil
from forebay.domain.job_states import JobState
from forebay.domain.progress import MAX_STORED_STEP_BYTES, step_bytes_error
from forebay.domain.throughput import THROUGHPUT_WINDOW_MS, Throughput
from forebay.domain.ulid import ulid_created_at
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    IllegalTransition,
    InvalidJob,
    QueueClosed,
    QueueNotEmpty,
    QueueNotFound,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WorkerNotFound,
)
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.id_generator import create_ids
from forebay.stores.redis.rows import FRESH_QUEUE, body_of, header_prefix
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.rows import STATES

T = TypeVar("T")

_TRIES: Final = 10
# Fields in the header of a job on the fast path, besides seq and times, and fields in its body alone. A job
# with any other field set takes the slow path, so a new field of NewJob needs no change here.
_IN_HEADER: Final = ("queue", "task", "priority", "lease_ms", "extension_ms", "unique_until")
_IN_BODY: Final = ("payload", "policy", "timeout_ms", "metadata", "tags", "correlation_id", "parent_id")
# A dictionary is faster than the attribute `value` of a member.
_ON_FAILURE_VALUES: Final = {policy: policy.value for policy in OnFailure}
STAYS_SLOW: Final = -1  # reply of `insert_fast` if all inserts of the queue need the slow path for now
_STATES: Final = {name.encode(): state for name, state in STATES.items()}
_UNUSED: Final = ("idempotency_ttl_ms", "allow_missing")  # unused without a key and parents
# Read at the claim, except a fairness key; by queues with an enqueue rate, which take the slow path.
_LIMITED: Final = ("limit_keys", "client")
_shape_of: Final = attrgetter(*_IN_HEADER)
# Fields that the jobs of one insert group share (see `_group_row`).
_group_key_of: Final = attrgetter(
    *(*_IN_HEADER, "delay_ms", "run_at", "deadline_at", "expires_at", "client", "limit_keys", "allow_missing")
)
_rest_of: Final = attrgetter(
    *(name for name in NewJob.__struct_fields__ if name not in {*_IN_HEADER, *_IN_BODY, *_UNUSED, *_LIMITED})
)
_USUAL: Final = _rest_of(NewJob(task="plain"))


class RepeatedId(StoreUnavailable):
    """Id created for a new job that belongs to another job. Nothing was written; the call is repeated with
    other ids."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the id {job_id} was made for a new job, and another job has it; try again")


def retry_with_other_ids(call: Callable[[], T]) -> T:
    """Make a call that creates ids for new jobs, and repeat it with other ids while one is taken."""
    for _ in range(_TRIES - 1):
        with suppress(RepeatedId):
            return call()
    return call()


class FastInsertRequest:
    """Jobs of one shape for the script of the fast path."""

    def __init__(self, jobs: Sequence[NewJob], new_id: Callable[[], JobId]) -> None:
        self._ids = create_ids(new_id, len(jobs))
        self.arguments: list[bytes | str] = [*_common_arguments(*_shape_of(jobs[0]))]
        for job_id, job in zip(self._ids, jobs, strict=True):
            self.arguments += (job_id, body_of(job_id, job))

    @property
    def results(self) -> list[InsertResult]:
        """Results of the jobs once they are stored."""
        return [InsertResult(id=job_id, is_new=True, state=JobState.PENDING) for job_id in self._ids]


def fit_fast_path(jobs: Sequence[NewJob]) -> bool:
    """Return whether all jobs, at least one, fit the fast path and differ in their bodies alone."""
    shape = _shape_of(jobs[0])
    return all(
        _rest_of(job) == _USUAL and _shape_of(job) == shape and FAIRNESS not in job.limit_keys for job in jobs
    )


@lru_cache(maxsize=1_000)
def _common_arguments(
    queue: str,
    task: str,
    priority: int | None,
    lease_ms: int | None,
    extension_ms: int,
    unique_until: UniqueUntil,
) -> tuple[bytes | str, ...]:
    before, after = header_prefix(queue, task, lease_ms, extension_ms, unique_until is UniqueUntil.STARTED)
    return (queue, before, after, "" if priority is None else str(priority))


class InsertRequest:
    """Insert batch for a script. Fields that jobs share are sent once for each insert group."""

    def __init__(self, new_id: Callable[[], JobId]) -> None:
        self._new_id = new_id
        self._groups: dict[tuple[Any, ...], int] = {}
        self._group_of: list[int] = []
        self._keyed: dict[int, tuple[Any, ...]] = {}
        self._dependencies: dict[int, list[Any]] = {}
        self._nearby: list[int | list[int]] = []  # distances to parents of this batch; 0 for none
        self._has_nearby = False
        self._sequences: dict[int, str] = {}
        self._last: tuple[Any, ...] = ()
        self._has_token_costs = False  # whether any job costs more or less than one token
        self.ids: list[JobId] = []
        self.arguments: list[bytes | str] = []

    def add(self, job: NewJob, before: int) -> None:
        """Add a job; `before` is the number of jobs that it may refer to by distance."""
        nearby, on_failure = _nearby_parents(job, before) if job.depends_on else (0, None)
        key = (*_group_key_of(job), on_failure)
        # Nearly all jobs equal the previous one, and a comparison is faster than a lookup.
        if key == self._last:
            self._group_of.append(self._group_of[-1])
        else:
            self._last = key
            self._group_of.append(self._groups.setdefault(_group_row(job, on_failure), len(self._groups) + 1))
        self._nearby.append(nearby)
        if nearby:
            self._has_nearby = True
        elif job.depends_on:
            rows = (_dependency_row(dependency, before) for dependency in job.depends_on)
            self._dependencies[len(self._group_of)] = [job.allow_missing, *rows]
        if job.id is not None or job.unique_key is not None or job.idempotency_key is not None:
            keys = (
                job.unique_key or False,
                job.idempotency_key or False,
                job.idempotency_ttl_ms,
                job.id is not None,
            )
            self._keyed[len(self._group_of)] = keys
        if job.sequence is not None:
            self._sequences[len(self._group_of)] = job.sequence
        self._has_token_costs = self._has_token_costs or job.cost != 1
        job_id = job.id or self._new_id()
        self.ids.append(job_id)
        self.arguments += (job_id, body_of(job_id, job))

    def build_request(self, first: int) -> dict[str, Any]:
        """Build the request; ids and bodies of the jobs are the script's arguments from `first` on."""
        dependencies = {"dependencies": self._dependencies} if self._dependencies else {}
        nearby = {"nearby": self._nearby} if self._has_nearby else {}
        sequences = {"sequences": self._sequences} if self._sequences else {}
        return {
            **dependencies,
            **nearby,
            **sequences,
            "has_token_costs": self._has_token_costs,
            "groups": [[False if part is None else part for part in group] for group in self._groups],
            "group_of": self._group_of,
            "keyed": self._keyed,
            "first": first,
            "default_queue": FRESH_QUEUE,
        }


def _group_row(job: NewJob, on_failure: OnFailure | None) -> tuple[Any, ...]:
    """Build the row of an insert group. A missing value is None here and not False.

    False equals 0 as a dictionary key, and a priority of 0 differs from the queue's default."""
    return (
        job.queue,
        job.task,
        job.priority,
        job.delay_ms,
        job.run_at,
        job.deadline_at,
        job.expires_at,
        job.lease_ms or None,
        job.extension_ms,
        job.unique_until is UniqueUntil.STARTED,
        job.client or None,
        job.limit_keys.get(FAIRNESS) if job.limit_keys else None,
        None if on_failure is None else _ON_FAILURE_VALUES[on_failure],
        job.allow_missing,
    )


def _nearby_parents(job: NewJob, before: int) -> tuple[int | list[int], OnFailure | None]:
    """Return the distances to a job's parents and their failure policy.

    Return (0, None) unless all parents are of this batch and have one policy."""
    on_failure = job.depends_on[0].on_failure
    distances = [
        dependency.parent
        for dependency in job.depends_on
        if isinstance(dependency.parent, int)
        and 0 < dependency.parent <= before
        and dependency.on_failure is on_failure
    ]
    if len(distances) < len(job.depends_on):
        return 0, None
    return distances if len(distances) > 1 else distances[0], on_failure


def _dependency_row(dependency: Dependency, before: int) -> tuple[Any, ...]:
    """Build the row of a dependency. The distance 0 names the job itself, so the script refuses it."""
    if isinstance(dependency.parent, int):
        return (
            dependency.parent if dependency.parent <= before else 0,
            _ON_FAILURE_VALUES[dependency.on_failure],
            dependency.parent,
        )
    try:
        created_at: int | bool = ulid_created_at(dependency.parent)
    except InvalidJob:
        created_at = False
    return (dependency.parent, _ON_FAILURE_VALUES[dependency.on_failure], created_at)


def state_of(text: bytes | None) -> JobState | None:
    return None if text is None else STATES[text.decode()]


def insert_results(ids: Iterable[JobId], replies: Iterable[Any]) -> list[InsertResult]:
    """Return the results of jobs with these ids. A reply is the state of a new job, or a list."""
    return [
        InsertResult(id=job_id, is_new=True, state=_STATES[reply])
        if type(reply) is bytes
        else _existing_result(reply)
        for job_id, reply in zip(ids, replies, strict=True)
    ]


def _existing_result(reply: Sequence[Any]) -> InsertResult:
    if reply[0] is None:
        return InsertResult(id=None, is_new=False, error=error_of(reply[1]))
    return InsertResult(id=JobId(reply[0].decode()), is_new=False, state=state_of(reply[1]))


def error_of(refusal: Sequence[Any]) -> ForebayError:
    """Return the error for a refusal of a script."""
    kind, *details = (part.decode() if isinstance(part, bytes) else part for part in refusal)
    return _ERRORS[kind](*details)


def _invalid_error(queue: str, priority: int, min_priority: int, max_priority: int) -> ForebayError:
    return InvalidJob(
        f"priority {priority} is outside the range of queue {queue}: {min_priority} to {max_priority}",
        field="priority",
    )


def _refused_error(parent: str, refusal: Sequence[Any]) -> ForebayError:
    cause = error_of(refusal)
    error = StoreRefused(f"a follow-up of job {parent} cannot be stored: {cause}")
    error.__cause__ = cause
    return error


def _queue_full_error(queue: str, limit: int, excess: int | None = None, completed: int = 0) -> ForebayError:
    """Return the error, with a wait if `completed` jobs of the last minute allow an estimate."""
    return queue_full_error(
        queue, limit, None if excess is None else Throughput(completed, THROUGHPUT_WINDOW_MS).wait_ms(excess)
    )


def _rate_limited_error(
    queue: str, client: str | None, rate: int, burst: int | None, wait_ms: int | None
) -> ForebayError:
    limit = Limit(scope=queue_scope(queue), rate=rate, burst=burst)
    return rate_limited_error(queue, client, limit, wait_ms)


_ERRORS: dict[str, Callable[..., ForebayError]] = {
    "QueueNotFound": lambda queue: QueueNotFound(f"there is no queue {queue}; create it first"),
    "QueueClosed": lambda queue, state: QueueClosed(f"queue {queue} is {state} and takes no new jobs"),
    "QueueFull": _queue_full_error,
    "RateLimited": _rate_limited_error,
    "QueueNotEmpty": lambda queue, live: QueueNotEmpty(
        f"queue {queue} has {live} live jobs; empty it first, or drop it by force"
    ),
    "InvalidJob": _invalid_error,
    "DuplicateId": lambda job_id: DuplicateJob(f"job id {job_id} is taken", holder=job_id),
    "DuplicateKey": lambda queue, holder: DuplicateJob(
        f"a key of queue {queue} is held by {holder}", holder=holder
    ),
    "MissingParent": lambda task, parent, allowed: missing_parent(task, JobId(parent), bool(allowed)),
    "MissingBatchParent": missing_batch_parent,
    "IllegalTransition": lambda state: IllegalTransition(f"a running job cannot become {state}"),
    "PropagationPending": PropagationPending,
    "RepeatedId": RepeatedId,
    "StoreRefused": _refused_error,
    "Unwritable": lambda job_id: StoreRefused(f"a text about job {job_id} cannot be written as UTF-8"),
    "StepBytes": lambda name, total: step_bytes_error(name, total, MAX_STORED_STEP_BYTES),
    "WorkerNotFound": lambda worker: WorkerNotFound(
        f"there is no worker {worker}; see the list with `forebay workers`"
    ),
}


def check_reply(reply: Sequence[Any]) -> list[Any]:
    """Return the reply after "done"; raise the error of a refusal."""
    status, *rest = reply
    if status == b"refused":
        raise error_of(rest[0])
    if status != b"done":
        raise StoreError(f"a script returned {status!r}")
    return rest
