"""Which executor runs a task, and which of them the jobs of a queue will need."""

from __future__ import annotations

from forebay.app.codec import VERSION
from forebay.app.registry import Registry
from forebay.clock import Clock
from forebay.domain.gate import gates_of
from forebay.domain.job import QueueName
from forebay.worker.executors.loop import LoopExecutor
from forebay.worker.executors.protocol import Executor, Sorts
from forebay.worker.executors.threads import ThreadExecutor
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke
from forebay.worker.slots import Slots


class Choosing:
    """The executors of one worker, by what its tasks are."""

    def __init__(self, registry: Registry, slots: Slots, inbox: Inbox, clock: Clock) -> None:
        self._registry = registry
        self._coroutines = slots.sizes[True]
        self._invoke = Invoke(registry, inbox.watch)
        self._inbox = inbox
        self._clock = clock
        self._calls = ThreadExecutor(slots.sizes[False], self._invoke, inbox, clock)
        self._loop: LoopExecutor | None = None
        self._known = 0
        self._gates = gates_of((), VERSION)

    def start(self) -> None:
        self._calls.start()

    def executor(self, task: str) -> Executor:
        """What runs jobs of this task. The event loop starts with the first coroutine."""
        if not self._invoke.is_async(task):
            return self._calls
        if self._loop is None:
            self._loop = LoopExecutor(self._coroutines, self._invoke, self._inbox, self._clock)
            self._loop.start()
        return self._loop

    def sorts(self, queue: QueueName) -> Sorts:
        """What sorts of tasks the queue holds, if some name it as their own; else all sorts there are."""
        tasks = [self._registry[name] for name in self._registry]
        here = [task.is_async for task in tasks if task.queue == queue]
        return frozenset(here or [task.is_async for task in tasks] or [False])

    def gates(self) -> frozenset[str]:
        """The gates that jobs may come from: what this program knows and can read."""
        if len(self._registry) != self._known:  # tasks may be added at any time, and none is ever removed
            self._known = len(self._registry)
            self._gates = gates_of(self._registry, VERSION)
        return self._gates

    def close(self) -> None:
        """Start nothing more; does not wait for what runs."""
        self._calls.close()
        if self._loop is not None:
            self._loop.close()
