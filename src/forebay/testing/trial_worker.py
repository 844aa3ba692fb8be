"""Trial worker: runs jobs in the thread of the test, step by step, and can be killed after any of its steps.
Its coordinator is the one that all workers use."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import StrEnum
from threading import RLock
from typing import Any, Final, cast

from forebay.app.app import Forebay
from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import JobContext
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lane import lanes_for_program
from forebay.domain.outcome import Discarded, Failed, Interrupted, Outcome
from forebay.domain.progress import StepResult
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.errors import JobSignal, StoreUnavailable
from forebay.payload.codec import VERSION
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_worker_id
from forebay.testing.fault_injection import Killed
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import Executor, ExecutorKinds
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import Invoker, TaskInvocation

OUTAGE_SECONDS: Final = 60.0
MAX_ATTEMPTS: Final = 10_000


class WorkerStep(StrEnum):
    """Step of a worker with a job, in this order; a worker can be killed after any of them."""

    CLAIMED = "claimed"  # the job is claimed and not started
    STARTED = "started"  # the arguments are decoded, and the task is about to be called
    RAN = "ran"  # the task has returned, and its outcome is not settled yet
    SETTLED = "settled"  # the outcome is in the store


OnStep = Callable[[WorkerStep | str, Job], None]


class TrialWorker:
    """One worker with one slot. `on_step` is called with every step, and may raise `Killed`. `sleep` lets
    time pass while the store is unreachable. With `lease_ms` all leases have this length."""

    kind = ExecutorKind.CALLS

    def __init__(
        self,
        app: Forebay,
        queues: Sequence[str],
        on_step: OnStep,
        sleep: Callable[[float], None],
        lease_ms: int | None = None,
    ) -> None:
        self._registry, self._clock = app.registry, app.clock
        self._on_step, self._sleep = on_step, sleep
        self._slots = Slots(1)
        self._inbox = Inbox()
        self._invoker = Invoker(app.registry)
        self._submitted: deque[Assignment] = deque()
        self._id = new_worker_id()
        self._store = cast(Store, _FixedLeaseStore(lease_ms, app.engine.store()))
        # A task may report progress on threads of its own.
        self._tick_lock = RLock()
        self._coordinator = Coordinator(
            worker=WorkerInfo(id=self._id, queues=tuple(map(QueueName, queues))),
            store=self._store,
            slots=self._slots,
            inbox=self._inbox,
            executors=self,
            maintenance_tasks=(),
            clock=app.clock,
            roll=random.random,
            progress_buffer=_ImmediateProgress(self, app),
            hooks=app.registry.hooks,
            records_metrics=False,
        )
        self.raised: BaseException | None = None  # by the first task that failed

    def work(self) -> int:
        """Run what is due until there is no more; return the number of attempts. Raises StoreUnavailable
        after a minute without the store."""
        attempts, waited = 0, 0.0
        while True:
            pause = self.tick()
            while self._submitted:
                self._run_attempt(self._submitted.popleft())
                attempts, pause = attempts + 1, 0.0
                if attempts > MAX_ATTEMPTS:
                    raise AssertionError(f"{attempts} attempts were made, and there is always another job")
            if pause <= 0:
                continue
            if self._coordinator.is_idle:
                return attempts
            if waited >= OUTAGE_SECONDS:
                raise StoreUnavailable("the store was away for a minute")
            self._sleep(pause)
            waited += pause

    def tick(self) -> float:
        with self._tick_lock:
            return self._coordinator.tick()

    def report_step(self, step: WorkerStep | str, job: Job) -> None:
        self._on_step(step, job)

    def _run_attempt(self, assignment: Assignment) -> None:
        self.report_step(WorkerStep.CLAIMED, assignment.job)
        if not assignment.acquire():
            return
        # A copy: context variables that the job sets must not reach the test.
        outcome = copy_context().run(self._run_task, assignment)
        # A job whose lease is nearly over is handed back, and claimed again.
        has_run = assignment.started_at is not None
        if has_run:
            self.report_step(WorkerStep.RAN, assignment.job)
        self._inbox.put(assignment, outcome)
        self.tick()
        if has_run and assignment not in list(self._slots):
            self.report_step(WorkerStep.SETTLED, assignment.job)

    def _run_task(self, assignment: Assignment) -> Outcome:
        now = self._clock.monotonic()
        if now > assignment.start_by or not assignment.mark_started(now):
            return Interrupted(started=False)
        self._invoker.announce(assignment)
        call: TaskInvocation | None = None
        value: Any = None
        raised: BaseException | None = None
        try:
            call = self._invoker.prepare(assignment)
            self.report_step(WorkerStep.STARTED, assignment.job)
            value = call.func(*call.args, **call.kwargs)
            if call.task.is_async:
                value = run_coroutine(value)
        except (Killed, KeyboardInterrupt):
            raise
        except BaseException as exc:
            raised = exc
        outcome = self._invoker.make_outcome(assignment, call, value, raised)
        if isinstance(outcome, (Failed, Discarded)) and not isinstance(raised, JobSignal):
            self.raised = self.raised or raised
        return outcome

    # Protocol of executors

    def executor(self, task: str) -> Executor:
        return cast("Executor", self)

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds:
        return frozenset([ExecutorKind.CALLS])

    def known_lanes(self) -> frozenset[str]:
        return lanes_for_program(self._registry, VERSION)

    def start(self) -> None:
        pass

    def submit(self, assignment: Assignment) -> None:
        self._submitted.append(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Do nothing: the job runs in the thread that would have to interrupt it."""

    def close(self) -> None:
        """Close the store; leases stay held."""
        self._store.close()


class _FixedLeaseStore:
    """A store handle whose claims have leases of a fixed length."""

    def __init__(self, lease_ms: int | None, store: Store) -> None:
        self._lease_ms = lease_ms
        self._store = store

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        *others: Any,
    ) -> SettleAndClaimResult:
        chosen = [claim._replace(lease_ms=self._lease_ms) for claim in claims]
        return self._store.settle_and_claim(worker, settlements, chosen, *others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ImmediateProgress(ProgressBuffer):
    """Writes progress of a job at once, while the job waits: this worker has no thread that would do it."""

    def __init__(self, worker: TrialWorker, app: Forebay) -> None:
        super().__init__(app.clock, lambda: None, app.engine.reader)
        self._worker = worker

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        pending = super().save_step(context, step, on_saved)
        self._worker.tick()
        self._worker.report_step(step.name, context.job)
        return pending


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also in a test that is a coroutine itself: its loop waits until then."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="forebay-trial") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()
