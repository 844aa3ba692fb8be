"""Executor set: the executor of each task, and the kinds of tasks in each queue."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from forebay.app.registry import Registry
from forebay.clock import Clock
from forebay.domain.job import QueueName
from forebay.domain.lane import lanes_for_program
from forebay.payload.codec import VERSION
from forebay.worker.assigned_job import ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import Executor, ExecutorKinds
from forebay.worker.executors.task_module_origin import (
    check_loadable,
    check_not_isolated,
    origin_of_this_program,
    present_folder,
)
from forebay.worker.executors.thread_executor import ThreadExecutor
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import Invoker

if TYPE_CHECKING:
    from forebay.worker.executors.event_loop_executor import EventLoopExecutor
    from forebay.worker.executors.isolated_executor import IsolatedExecutor


class ExecutorSet:
    """The executors of one worker. `program` is the name `package.module:app` by which isolated processes
    load the program; without one they use the modules of its tasks."""

    def __init__(
        self, registry: Registry, slots: Slots, inbox: Inbox, clock: Clock, *, program: str | None = None
    ) -> None:
        self._registry = registry
        self._program = program
        self._sizes = slots.sizes
        self._invoke = Invoker(registry, inbox.add_soft_limit)
        self._inbox = inbox
        self._clock = clock
        self._threads = ThreadExecutor(slots.sizes[ExecutorKind.CALLS], self._invoke, inbox, clock)
        self._loop: EventLoopExecutor | None = None
        self._isolated: IsolatedExecutor | None = None
        self._folder: str | None = None
        self._known = 0
        self._lanes = lanes_for_program((), VERSION)

    def check(self) -> None:
        """Raise ConfigError where no worker may be started, or if it has an isolated task that cannot be
        loaded in another process."""
        check_not_isolated()
        check_loadable(self._registry)

    def start(self) -> None:
        self._folder = present_folder()
        self._threads.start()

    def executor(self, task: str) -> Executor:
        """Return the executor for jobs of this task. The event loop starts with the first coroutine, the
        threads of isolated tasks with the first of those."""
        kind = self._kind(task)
        if kind is ExecutorKind.CALLS:
            return self._threads
        return self._ensure_loop() if kind is ExecutorKind.COROUTINES else self._ensure_isolated()

    def _ensure_isolated(self) -> IsolatedExecutor:
        if self._isolated is None:
            from forebay.worker.executors.isolated_executor import IsolatedExecutor  # noqa: PLC0415 - few need it

            self._isolated = IsolatedExecutor(
                self._sizes[ExecutorKind.ISOLATED],
                self._registry,
                self._invoke,
                self._inbox,
                self._clock,
                origin=origin_of_this_program(self._program, self._folder),
            )
            self._isolated.start()
        return self._isolated

    def _ensure_loop(self) -> EventLoopExecutor:
        if self._loop is None:
            from forebay.worker.executors.event_loop_executor import EventLoopExecutor  # noqa: PLC0415 - it loads asyncio: 20 ms

            self._loop = EventLoopExecutor(
                self._sizes[ExecutorKind.COROUTINES], self._invoke, self._inbox, self._clock
            )
            self._loop.start()
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of the program, a hook, on the event loop of its tasks, and wait for it."""
        return self._ensure_loop().run(coroutine)

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds:
        """Return the kinds of tasks in the queue, if some name it as their own; else all kinds of this
        program."""
        names = list(self._registry)
        own_kinds = [self._kind(name) for name in names if self._registry[name].queue == queue]
        return frozenset(own_kinds or [self._kind(name) for name in names] or [ExecutorKind.CALLS])

    def _kind(self, task: str) -> ExecutorKind:
        if task not in self._registry:
            return ExecutorKind.CALLS
        registered = self._registry[task]
        if registered.execution_policy.isolated:
            return ExecutorKind.ISOLATED
        return ExecutorKind.COROUTINES if registered.is_async else ExecutorKind.CALLS

    def known_lanes(self) -> frozenset[str]:
        """Return the lanes to claim from: those of tasks and payloads that this program knows."""
        if len(self._registry) != self._known:  # tasks may be added at any time, and are never removed
            self._known = len(self._registry)
            self._lanes = lanes_for_program(self._registry, VERSION)
        return self._lanes

    def close(self) -> None:
        """Start nothing more. Does not wait for running jobs, except that isolated processes are ended."""
        self._threads.close()
        if self._loop is not None:
            self._loop.close()
        if self._isolated is not None:
            self._isolated.close()
