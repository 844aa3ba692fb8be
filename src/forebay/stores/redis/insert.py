"""New jobs as scripts take them, and what scripts answer about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from forebay.domain.backpressure import (
    THROUGHPUT_WINDOW_MS,
    Throughput,
    queue_full_error,
    rate_limited_error,
)
from forebay.domain.dependencies import missing_batch_parent, missing_parent
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Dependency, JobId, NewJob, OnFailure, UniqueUntil
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Limit, queue_scope
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
from forebay.stores.contract.values import InsertResult
from forebay.stores.ids import create_ids
from forebay.stores.redis.rows import FRESH_QUEUE, body_of, header_prefix
from forebay.stores.shared.dependencies import PropagationPending
from forebay.stores.shared.rows import STATES

T = TypeVar("T")

_TRIES: Final = 10
# What the head of a plain job says of it besides its number and time, and what only its body says. A job in
# which anything else is not as usual is not plain; so whoever adds a field need not think of it here.
_IN_HEAD: Final = ("queue", "task", "priority", "lease_ms", "extension_ms", "unique_until")
_IN_BODY: Final = ("payload", "policy", "timeout_ms", "metadata", "tags", "correlation_id", "parent_id")
_ON_FAILURE_VALUES: Final = {
    one: one.value for one in OnFailure
}  # to ask a member for its value takes longer
STAYS_SLOW: Final = -1  # the answer of `insert_fast` where it has nothing to do for a while
_STATES: Final = {name.encode(): state for name, state in STATES.items()}
_UNUSED: Final = ("idempotency_ttl_ms", "allow_missing")  # without a key, without parents
# Looked at with the claim, but for a share; by a queue with a rate, which is not plain.
_LIMITED: Final = ("limit_keys", "client")
_shape_of: Final = attrgetter(*_IN_HEAD)
# What jobs of one lot have in common (see `_lot`).
_group_key_of: Final = attrgetter(
    *(*_IN_HEAD, "delay_ms", "run_at", "deadline_at", "expires_at", "client", "limit_keys", "allow_missing")
)
_rest_of: Final = attrgetter(
    *(name for name in NewJob.__struct_fields__ if name not in {*_IN_HEAD, *_IN_BODY, *_UNUSED, *_LIMITED})
)
_USUAL: Final = _rest_of(NewJob(task="plain"))


class RepeatedId(StoreUnavailable):
    """An id that was made for a new job is another job's. Nothing has happened; the call is made again with
    other ids."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the id {job_id} was made for a new job, and another job has it; try again")


def retry_with_other_ids(call: Callable[[], T]) -> T:
    """The answer of a call that makes ids for new jobs; it is made again with others while one is taken."""
    for _ in range(_TRIES - 1):
        with suppress(RepeatedId):
            return call()
    return call()


class FastInsertRequest:
    """Plain jobs that are alike on their way to their script."""

    def __init__(self, jobs: Sequence[NewJob], new_id: Callable[[], JobId]) -> None:
        self._ids = create_ids(new_id, len(jobs))
        self.arguments: list[bytes | str] = [*_common_arguments(*_shape_of(jobs[0]))]
        for job_id, job in zip(self._ids, jobs, strict=True):
            self.arguments += (job_id, body_of(job_id, job))

    @property
    def results(self) -> list[InsertResult]:
        """What is to be said of them once they are stored."""
        return [InsertResult(id=job_id, is_new=True, state=JobState.PENDING) for job_id in self._ids]


def fit_fast_path(jobs: Sequence[NewJob]) -> bool:
    """Whether these jobs, at least one, are plain and differ in nothing but what is in their bodies."""
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
    """Jobs on their way to a script. What jobs that are alike have in common is sent once."""

    def __init__(self, new_id: Callable[[], JobId]) -> None:
        self._new_id = new_id
        self._groups: dict[tuple[Any, ...], int] = {}
        self._group_of: list[int] = []
        self._keyed: dict[int, tuple[Any, ...]] = {}
        self._dependencies: dict[int, list[Any]] = {}
        self._near: list[int | list[int]] = []  # for each; 0 for none
        self._has_near = False
        self._sequences: dict[int, str] = {}
        self._last: tuple[Any, ...] = ()
        self._has_token_costs = False  # whether any costs another number of tokens than one
        self.ids: list[JobId] = []
        self.arguments: list[bytes | str] = []

    def add(self, job: NewJob, before: int) -> None:
        """Take a job along; `before` is how many it may name by their place."""
        near, how = _nearby_parents(job, before) if job.depends_on else (0, None)
        alike = (*_group_key_of(job), how)
        # Nearly all are like the one before, and to compare takes less time than to look.
        if alike == self._last:
            self._group_of.append(self._group_of[-1])
        else:
            self._last = alike
            self._group_of.append(self._groups.setdefault(_group_row(job, how), len(self._groups) + 1))
        self._near.append(near)
        if near:
            self._has_near = True
        elif job.depends_on:
            needs = (_dependency_row(need, before) for need in job.depends_on)
            self._dependencies[len(self._group_of)] = [job.allow_missing, *needs]
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
        """What the script must know of them; their ids and bodies are its arguments from `first` on."""
        needs = {"dependencies": self._dependencies} if self._dependencies else {}
        near = {"nearby": self._near} if self._has_near else {}
        sequences = {"sequences": self._sequences} if self._sequences else {}
        return {
            **needs,
            **near,
            **sequences,
            "has_token_costs": self._has_token_costs,
            "groups": [[False if part is None else part for part in lot] for lot in self._groups],
            "group_of": self._group_of,
            "keyed": self._keyed,
            "first": first,
            "default_queue": FRESH_QUEUE,
        }


def _group_row(job: NewJob, on_failure: OnFailure | None) -> tuple[Any, ...]:
    """What the script must know of all jobs that are like this one. What is not given is None here and
    not False: that is 0 to a dictionary, and a priority of 0 is another than the queue's own."""
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
    """How many places before a job its parents stand, and what their failures mean; nothing unless all
    come with it, and that is the same for all."""
    how = job.depends_on[0].on_failure
    near = [
        need.parent
        for need in job.depends_on
        if isinstance(need.parent, int) and 0 < need.parent <= before and need.on_failure is how
    ]
    if len(near) < len(job.depends_on):
        return 0, None
    return near if len(near) > 1 else near[0], how


def _dependency_row(dependency: Dependency, before: int) -> tuple[Any, ...]:
    """A need as scripts take it. No job stands on its own place, so that one is refused there."""
    if isinstance(dependency.parent, int):
        return (
            dependency.parent if dependency.parent <= before else 0,
            _ON_FAILURE_VALUES[dependency.on_failure],
            dependency.parent,
        )
    try:
        made_at: int | bool = ulid_created_at(dependency.parent)
    except InvalidJob:
        made_at = False
    return (dependency.parent, _ON_FAILURE_VALUES[dependency.on_failure], made_at)


def state_of(text: bytes | None) -> JobState | None:
    return None if text is None else STATES[text.decode()]


def insert_results(ids: Iterable[JobId], answers: Iterable[Any]) -> list[InsertResult]:
    """What a script answers for jobs with these ids: the state of a new one, or a list."""
    return [
        InsertResult(id=job_id, is_new=True, state=_STATES[answer])
        if type(answer) is bytes
        else _existing_result(answer)
        for job_id, answer in zip(ids, answers, strict=True)
    ]


def _existing_result(answer: Sequence[Any]) -> InsertResult:
    if answer[0] is None:
        return InsertResult(id=None, is_new=False, error=error_of(answer[1]))
    return InsertResult(id=JobId(answer[0].decode()), is_new=False, state=state_of(answer[1]))


def error_of(refusal: Sequence[Any]) -> ForebayError:
    """What a script has refused, in our words."""
    kind, *details = (part.decode() if isinstance(part, bytes) else part for part in refusal)
    return _ERRORS[kind](*details)


def _invalid_error(queue: str, priority: int, min_priority: int, max_priority: int) -> ForebayError:
    return InvalidJob(
        f"priority {priority} is outside the range of queue {queue}: {min_priority} to {max_priority}",
        field="priority",
    )


def _refused_error(parent: str, why_not: Sequence[Any]) -> ForebayError:
    cause = error_of(why_not)
    error = StoreRefused(f"a follow-up of job {parent} cannot be stored: {cause}")
    error.__cause__ = cause
    return error


def _queue_full_error(queue: str, limit: int, excess: int | None = None, completed: int = 0) -> ForebayError:
    """`completed` jobs were completed in the last minute, and so many must be before there is room."""
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
    "WorkerNotFound": lambda worker: WorkerNotFound(
        f"there is no worker {worker}; see the list with `forebay workers`"
    ),
}


def check_reply(answer: Sequence[Any]) -> list[Any]:
    """What a script answers after "done"; raises what it has refused."""
    word, *rest = answer
    if word == b"refused":
        raise error_of(rest[0])
    if word != b"done":
        raise StoreError(f"a script answered {word!r}")
    return rest
