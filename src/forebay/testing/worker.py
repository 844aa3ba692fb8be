"""A worker that takes its turns when it is told to, runs jobs in the thread of the test, and can be killed
after any of its steps. The coordinator is that of every worker."""

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
from forebay.app.context import JobContext
from forebay.app.progress import PendingStep
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lane import lanes_for_program
from forebay.domain.outcome import Discarded, Failed, Interrupted, Outcome
from forebay.domain.progress import StepResult
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.errors import JobSignal, StoreUnavailable
from forebay.payload.codec import VERSION
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import QueueClaim, SettleAndClaimResult
from forebay.stores.ids import new_worker_id
from forebay.testing.faults import Killed
from forebay.worker.coordinator import Coordinator
from forebay.worker.executors.protocol import Executor, ExecutorKinds
from forebay.worker.inbox import Inbox
from forebay.worker.invoker import Invoker, TaskInvocation
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.slots import Assignment, ExecutorKind, Slots

OUTAGE_SECONDS: Final = 60.0
MAX_ATTEMPTS: Final = 10_000


class WorkerStep(StrEnum):
    """What a worker does with each job, in this order; it can be killed after any of these."""

    CLAIMED = "claimed"  # the job is its own, and nothing of it was begun
    STARTED = "started"  # the arguments are read, and the task is about to be called
    RAN = "ran"  # the task has returned, and nobody knows it yet
    SETTLED = "settled"  # the store knows


OnStep = Callable[[WorkerStep | str, Job], None]


class TrialWorker:
    """One worker with room for one job. `reach` hears of every step, and may raise `Killed`; `sleep` is how
    time passes while the store is away. With `lease_ms` its leases are of this length."""

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
        # A task may say things on threads of its own.
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
        self.raised: BaseException | None = None  # by the first task that has failed

    def work(self) -> int:
        """Run what is due until there is no more; how many attempts that were. Raises StoreUnavailable when
        the store was away for a minute."""
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
        # What the job sets in context variables is its own affair.
        outcome = copy_context().run(self._run_task, assignment)
        # One whose lease was nearly over is handed back, and comes again.
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

    # What the coordinator asks of executors

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
        """It runs in the thread that would have to interrupt it."""

    def close(self) -> None:
        """Let go of the store; what it holds stays held."""
        self._store.close()


class _FixedLeaseStore:
    """A handle that claims for another time than jobs and queues say."""

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
        chosen = [want._replace(lease_ms=self._lease_ms) for want in claims]
        return self._store.settle_and_claim(worker, settlements, chosen, *others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ImmediateProgress(ProgressBuffer):
    """What a job says is written while the job waits: nobody else would do it meanwhile."""

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
    """Run a coroutine to its end, also for a test that is a coroutine itself: its loop waits meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="forebay-trial") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()
