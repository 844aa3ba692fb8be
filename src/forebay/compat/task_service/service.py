"""`TaskService`: priority queues of tasks that programs dequeue and acknowledge, here or over a service."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from forebay.app.app import Forebay
from forebay.clock import SystemClock
from forebay.compat.task_service.task import (
    HIGHEST,
    LOWEST,
    MAX_ATTEMPTS,
    PRIORITY,
    ServiceTask,
    TaskStatus,
    check_priority,
    new_job,
    service_task,
    token_of,
    visibility_ms,
)
from forebay.compat.task_service.wakeup_counter import WakeupCounter
from forebay.domain.durations_and_instants import Duration, Instant, duration_within
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_update import JobUpdate
from forebay.domain.job_validation import check_integer, check_queue_name, check_text
from forebay.domain.json_values import Json
from forebay.domain.lane import lanes_for_program
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Outcome
from forebay.domain.queue import QueueSettings
from forebay.domain.retry_policy import MAX_DELAY_MS
from forebay.domain.settlement import decide
from forebay.errors import InvalidJob, PayloadError, StoreError
from forebay.operations.settlement_isolation import (
    FallbackSettlements,
    check_not_busy,
    select_newly_settled,
    settle_and_claim_isolating,
)
from forebay.payload.codec import VERSION, encode_result
from forebay.stores.contract.claims_and_results import InsertResult, QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

WAIT_SECONDS: Final = 20.0
LONGEST_WAIT_MS: Final = 3_600_000
POLL_SECONDS: Final = 1.0  # between looks without a wake-up, since one may be lost
MAX_TASKS: Final = 1_000
MAX_ATTEMPT: Final = 2**31 - 1  # the highest that every store can compare

logger: logging.Logger = logging.getLogger(__name__)
_clock = SystemClock()  # callers wait in real time, independent of the store's clock


class EnqueueResult(NamedTuple):
    """Result of a request; a duplicate is an earlier task with the same idempotency key."""

    task_id: str
    is_duplicate: bool


class TaskService:
    """Tasks with priorities from 0 to 100: enqueue, dequeue, ack or nack.

        service = TaskService(Forebay("https://queue.example.com", key=KEY))
        service.enqueue("mail", {"to": "ada"}, metadata={"task_type": "mail.send"})
        task = service.dequeue("mail", "worker-1")

    A dequeued task belongs to the holder of its token until its visibility time-out. The object keeps no
    state between two calls, so another process may acknowledge what this one has dequeued. It is thread-safe.
    The caller closes the app, after this object.
    """

    def __init__(self, app: Forebay) -> None:
        self._app = app
        self._consumer = app.consumer()
        self._observers = app.registry.hooks.observers
        self._wakeup_counter = WakeupCounter(app.engine.wakeups)

    # Queues

    def create_queue(
        self,
        queue_name: str,
        *,
        max_priority: int = HIGHEST,
        default_visibility_timeout: Duration | None = None,
    ) -> None:
        """Create a queue for priorities from 0 on, or change an existing one."""
        check_integer("max_priority", max_priority, LOWEST, HIGHEST)
        wanted: dict[str, object] = {
            "min_priority": LOWEST,
            "default_priority": min(PRIORITY, max_priority),
            "max_priority": max_priority,
        }
        lease_ms = visibility_ms(default_visibility_timeout, "default_visibility_timeout")
        if lease_ms is not None:
            wanted["lease_ms"] = lease_ms
        self._app.client.write(
            lambda store: store.save_queue(QueueName(queue_name), wanted, actor=self._app.client.actor)
        )

    # Producers

    def enqueue(  # noqa: PLR0913 - the options of a task
        self,
        queue_name: str,
        payload: Any,
        *,
        priority: int = PRIORITY,
        scheduled_at: Instant | None = None,
        deadline: Instant | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        visibility_timeout: Duration | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Json] | None = None,
        depends_on: Sequence[str] = (),
        parent_task_id: str | None = None,
    ) -> EnqueueResult:
        """Enqueue a task in an existing queue; raise QueueNotFound, QueueFull or RateLimited."""
        new = new_job(
            queue_name,
            payload,
            priority=priority,
            scheduled_at=scheduled_at,
            deadline=deadline,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            idempotency_key=idempotency_key,
            metadata=metadata or {},
            depends_on=depends_on,
            parent_task_id=parent_task_id,
        )

        jobs = self._app.client.prepare_jobs([new])

        def insert(store: Store) -> list[InsertResult]:
            return store.insert(jobs, create_queues=False)

        [receipt] = self._app.client.write(insert)
        return EnqueueResult(receipt.id or "", not receipt.is_new)

    def get_task_status(self, task_id: str) -> ServiceTask | None:
        """Return the task's present state; None if there is none."""

        def load(reader: Reader) -> ServiceTask | None:
            [job] = reader.jobs([JobId(task_id)])
            if job is None:
                return None
            queues = reader.queues([job.queue])
            settings = queues[0].settings if queues else QueueSettings()
            return service_task(job, job.lease_ms or settings.lease_ms, reader.now())

        return self._app.client.read(load)

    def update_task_priority(self, task_id: str, priority: int) -> bool:
        """Change the priority of a waiting task; return False for others."""
        check_priority(priority)
        return self._app.client.update(JobId(task_id), JobUpdate(priority=priority)).applied

    def cancel_task(self, task_id: str, reason: str = "cancelled") -> bool:
        """Cancel a waiting task, ask a running one to stop; return False for others."""
        return self._app.client.cancel([JobId(task_id)], reason)[0].applied

    def requeue_from_dead_letter(self, task_id: str) -> ServiceTask | None:
        """Put a task back with fresh attempts, under its id; return None if it is no dead letter."""
        task = self.get_task_status(task_id)
        if task is None or task.status is not TaskStatus.DEAD_LETTER:
            return None
        if not self._app.client.revive([JobId(task_id)])[0].applied:
            return None
        return self.get_task_status(task_id)

    # Consumers

    def dequeue(
        self,
        queue_name: str,
        worker_id: str | None = None,
        *,
        visibility_timeout: Duration | None = None,
        wait_timeout: Duration = WAIT_SECONDS,
        task_types: Sequence[str] | None = None,
    ) -> ServiceTask | None:
        """Take the next task; return None if none came in time. See `dequeue_batch`."""
        tasks = self.dequeue_batch(
            queue_name,
            worker_id,
            max_tasks=1,
            visibility_timeout=visibility_timeout,
            wait_timeout=wait_timeout,
            task_types=task_types,
        )
        return next(iter(tasks), None)

    def dequeue_batch(
        self,
        queue_name: str,
        worker_id: str | None = None,
        *,
        max_tasks: int = 10,
        visibility_timeout: Duration | None = None,
        wait_timeout: Duration = WAIT_SECONDS,
        task_types: Sequence[str] | None = None,
    ) -> list[ServiceTask]:
        """Take up to `max_tasks` tasks, only of `task_types` if given (by their `metadata.task_type`); wait
        for one if there is none."""
        check_integer("max_tasks", max_tasks, 1, MAX_TASKS)
        worker = WorkerId(self._consumer.id if worker_id is None else worker_id)
        check_text("worker_id", worker, max_length=100)
        lanes = None if task_types is None else lanes_for_program(frozenset(task_types), VERSION)
        queue = QueueName(queue_name)
        check_queue_name(queue)
        claim = QueueClaim(queue, max_tasks, visibility_ms(visibility_timeout), lanes)
        wait_ms = duration_within("wait_timeout", wait_timeout, 0, LONGEST_WAIT_MS)
        until = _clock.monotonic() + wait_ms / 1_000
        tasks = [self._read_task(job) for job in self._claim_until(worker, claim, until)]
        return [task for task in tasks if task is not None]

    def _read_task(self, job: Job) -> ServiceTask | None:
        now_ms = job.started_at or 0
        try:
            return service_task(job, (job.lease_expires_at or now_ms) - now_ms, now_ms)
        except PayloadError as exc:
            # Settle it as failed: it must not keep the other tasks from the caller, nor come back for ever.
            unreadable = AttemptError(type=type(exc).__name__, message=str(exc))
            with suppress(StoreError):  # then its lease ends, and it is claimed again
                self._settle("dequeue", job.id, token_of(job), Failed(unreadable))
            return None

    def _claim_until(self, worker: WorkerId, claim: QueueClaim, until: float) -> Sequence[Job]:
        while not self._wakeup_counter.is_closed:
            # Before the claim: claimed tasks must reach the caller, even if maintenance fails.
            with suppress(StoreError):
                self._consumer.run_maintenance()
            # Read before the claim: a wake-up after it is one that this claim may have missed.
            seen_count = self._wakeup_counter.count
            result = self._app.client.write(
                lambda store: store.settle_and_claim(worker, claims=[claim], room=claim.limit)
            )
            self._consumer._count_claimed([claim.queue], result.jobs)
            seconds = until - _clock.monotonic()
            if result.jobs or seconds <= 0:
                return result.jobs
            due_ms = POLL_SECONDS * 1_000 if result.next_due_ms is None else result.next_due_ms
            self._wakeup_counter.wait(seen_count, min(seconds, POLL_SECONDS, due_ms / 1_000))
        return ()

    def ack_task(self, task_id: str, token: str, result: Any = None) -> bool:
        """Settle the task as completed. Return False, and log a warning, if the caller has lost it."""
        return self._settle("ack", task_id, token, Completed(encode_result(result)))

    def nack_task(
        self,
        task_id: str,
        token: str,
        error: str,
        *,
        requeue: bool = True,
        retry_after_seconds: Duration | None = None,
    ) -> bool:
        """Settle the task as failed. It is retried after its back-off or this time, if `requeue`."""
        failure = AttemptError(type="Failed", message=error)
        if not requeue:
            return self._settle("nack", task_id, token, Discarded(failure))
        after = retry_after_seconds
        after_ms = None if after is None else duration_within("retry_after_seconds", after, 0, MAX_DELAY_MS)
        return self._settle("nack", task_id, token, Failed(failure, after_ms))

    def heartbeat(self, task_id: str, token: str, extend_seconds: Duration | None = None) -> bool:
        """Renew the lease, counted from now. Return False, and log a warning, if the caller has lost it."""
        attempt, worker = _parse_token(token)
        lease = Lease(JobId(task_id), attempt)
        lease_ms = visibility_ms(extend_seconds, "extend_seconds")
        renewal = self._app.client.write(lambda store: store.renew(worker, [lease], lease_ms))
        return _warn_if_lost("heartbeat", task_id, has_lease=bool(renewal.renewed))

    def _settle(self, operation: str, task_id: str, token: str, outcome: Outcome) -> bool:
        attempt, worker = _parse_token(token)
        job = self._app.client.job(JobId(task_id))
        if job is None:
            return _warn_if_lost(operation, task_id, has_lease=False)
        # The store compares: an attempt that does not run, or has another holder, is refused.
        claimed = replace(job, attempt=attempt)

        fallback = FallbackSettlements(lambda _: claimed, _roll)
        settlements = [decide(claimed, outcome, _roll())]

        def settle(store: Store) -> SettleAndClaimResult:
            return settle_and_claim_isolating(store, worker, settlements, fallback=fallback)

        answer = self._app.client.write(settle)
        check_not_busy(answer)
        is_settled = job.id in (*answer.settled, *answer.repeated)
        substituted = fallback.substitute(settlements)
        self._consumer._count_settled(
            select_newly_settled({Lease(claimed.id, attempt): claimed}, substituted, answer)
        )
        if is_settled:
            self._observers.on_settled((claimed, end, None) for end in substituted)
        else:
            self._observers.on_lease_lost([claimed])
        return _warn_if_lost(operation, task_id, has_lease=is_settled)

    def close(self) -> None:
        """Stop listening. Tasks still held become visible again after their time-out. May be called twice."""
        self._wakeup_counter.close()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse_token(token: str) -> tuple[int, WorkerId]:
    attempt, _, worker = token.partition("-")
    is_number = attempt.isdecimal() and len(attempt) <= len(str(MAX_ATTEMPT)) and int(attempt) <= MAX_ATTEMPT
    if not (is_number and worker):
        raise InvalidJob(f"{token!r:.60} is not the token of a dequeued task", field="token")
    return int(attempt), WorkerId(worker)


def _warn_if_lost(operation: str, task_id: str, *, has_lease: bool) -> bool:
    if not has_lease:
        logger.warning(
            "%s of task %s comes too late: it has ended, or another worker has it", operation, task_id
        )
    return has_lease


def _roll() -> float:
    return random.random()  # noqa: S311 - spreads retries, guards nothing
