"""Event feed: changes of queues, workers and the audit log. One poll of the store serves all listeners.

While there are listeners the store is polled twice a second, and each listener gets what is new for it. A
queue has changed when its counts have, so a page that shows its jobs knows when to reload them. Without
listeners there are no polls.

Messages about queues and workers carry their present state, so a listener that reconnects has missed nothing.
Audit events have ids, and a listener that names its last id gets the events after it. Two events that are
written concurrently may become visible in another order than that of their ids. The late one is not sent; it
is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Event
from forebay.domain.throughput import Throughput
from forebay.errors import ForebayError
from forebay.service.problem_details import problem_of
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import ResponseModel
from forebay.service.schema.events import (
    AuditEvents,
    EventsMissed,
    QueueChanges,
    WorkerChanges,
    audit_event_view,
)
from forebay.service.schema.queues import QueueView, queue_view
from forebay.service.schema.workers_and_commands import WorkerView, worker_view
from forebay.stores.contract.reader import Reader

POLL_SECONDS: Final = 0.5
THROUGHPUT_SECONDS: Final = 5.0  # the throughput of a queue costs more to read than its counts
MAX_UNREAD: Final = 5
MAX_EVENTS: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


class FeedFilter(NamedTuple):
    """Events that a listener may get: of which queues, of workers, of no queue, and whether an event may name
    other jobs. With `tasks`, only audit events about jobs of these tasks."""

    queue: Callable[[str], bool]
    workers: bool
    audit: bool
    names_other_jobs: bool
    tasks: frozenset[str] = frozenset()

    def shows(self, event: Event, task: str | None) -> bool:
        if self.tasks and task not in self.tasks:
            return False
        return self.audit if event.queue is None else self.queue(event.queue)


class FeedMessage(NamedTuple):
    """Message to listeners; `event_id` is the newest id of the audit log that it includes."""

    kind: str
    body: ResponseModel
    event_id: int


class FeedState(NamedTuple):
    """Result of a poll; `events` are the newest of the audit log, oldest first. `tasks` are the tasks of
    their jobs, if a listener needs them."""

    queues: dict[str, QueueView]
    workers: list[WorkerView]
    events: list[tuple[int, Event]]
    tasks: Mapping[JobId, str]

    @property
    def last_event_id(self) -> int:
        return self.events[-1][0] if self.events else 0

    def task_of(self, event: Event) -> str | None:
        return None if event.job_id is None else self.tasks.get(event.job_id)


class FeedListener:
    """Listener with a short queue of messages. One that does not read them is dropped, so that it costs other
    listeners nothing; it may reconnect and name its last event."""

    def __init__(self, feed_filter: FeedFilter, after: int | None) -> None:
        self._filter = feed_filter
        self.needs_tasks: bool = bool(feed_filter.tasks)
        self._after = after
        self._queues: dict[str, QueueView] = {}
        self._workers: list[WorkerView] | None = None
        self._unread: asyncio.Queue[FeedMessage] = asyncio.Queue(MAX_UNREAD)
        self.is_over: asyncio.Event = asyncio.Event()

    async def next(self, seconds: float) -> FeedMessage | None:
        """Return the next message; None after this time, or once the listener was dropped."""
        if self.is_over.is_set() and self._unread.empty():
            return None
        getting = asyncio.ensure_future(self._unread.get())
        stopping = asyncio.ensure_future(self.is_over.wait())
        try:
            await asyncio.wait((getting, stopping), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
            stopping.cancel()

    def send_changes(self, state: FeedState) -> None:
        """Send what is new for this listener."""
        sources = (self._queue_changes, self._worker_changes, self._audit_events)
        for message in (message for source in sources for message in source(state)):
            self.put(message)

    def put(self, message: FeedMessage) -> None:
        try:
            self._unread.put_nowait(message)
        except asyncio.QueueFull:
            self.is_over.set()

    def _queue_changes(self, state: FeedState) -> Iterator[FeedMessage]:
        visible = {name: queue for name, queue in state.queues.items() if self._filter.queue(name)}
        changed = [queue for name, queue in visible.items() if self._queues.get(name) != queue]
        removed = sorted(self._queues.keys() - visible.keys())
        is_first = self._workers is None  # the first message is sent even if there are no queues
        self._queues = visible
        if changed or removed or is_first:
            yield FeedMessage(
                "queues", QueueChanges(queues=changed, removed=removed, is_all=is_first), state.last_event_id
            )

    def _worker_changes(self, state: FeedState) -> Iterator[FeedMessage]:
        workers = state.workers if self._filter.workers else []
        if workers != self._workers:
            self._workers = workers
            yield FeedMessage("workers", WorkerChanges(workers=workers), state.last_event_id)

    def _audit_events(self, state: FeedState) -> Iterator[FeedMessage]:
        after, self._after = self._after, state.last_event_id
        if after is None:
            return
        if len(state.events) == MAX_EVENTS and state.events[0][0] > after + 1:
            yield FeedMessage("missed", EventsMissed(after=after), state.last_event_id)
        views = [
            audit_event_view(number, event, names_others=self._filter.names_other_jobs)
            for number, event in state.events
            if number > after and self._filter.shows(event, state.task_of(event))
        ]
        if views:
            yield FeedMessage("audit", AuditEvents(lines=views), state.last_event_id)


class EventFeed:
    """Poller of the store for all listeners, from the first that connects to the last that leaves."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._listeners: set[FeedListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._wake_event = asyncio.Event()
        self._tasks: dict[JobId, str] = {}  # of the jobs in the newest audit events
        self._throughputs: dict[QueueName, Throughput] = {}
        self._throughputs_loaded_at = float("-inf")
        self._is_refusing = False

    @property
    def listeners(self) -> int:
        """Number of listeners."""
        return len(self._listeners)

    @contextmanager
    def listen(self, feed_filter: FeedFilter, after: int | None = None) -> Iterator[FeedListener]:
        """Listen while the block lasts."""
        listener = FeedListener(feed_filter, after)
        if self._is_refusing:
            listener.is_over.set()
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="forebay-event-feed")
        self._wake_event.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            self._wake_event.set()

    def end_streams(self) -> None:
        """Drop all listeners, now and from now on: a stop is near."""
        self._is_refusing = True
        for listener in self._listeners:
            listener.is_over.set()
        self._wake_event.set()

    async def stop(self) -> None:
        """End the polls. May be called twice, or before the start."""
        self.end_streams()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._listeners and not self._is_refusing:
                await self._tick()
                self._wake_event.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._wake_event.wait()  # a listener has come or gone
        finally:
            self._task = None

    async def _tick(self) -> None:
        try:
            needs_tasks = any(listener.needs_tasks for listener in self._listeners)
            state = await self._pool.read_for_polling(partial(self._load_state, needs_tasks))
        except ForebayError as error:
            self._notify_all(FeedMessage("problem", problem_of(error), 0))
            return
        except Exception:
            # All listeners depend on this loop, so an error of any kind ends one tick only.
            logger.exception("a poll of the event feed failed; it is tried again")
            return
        for listener in list(self._listeners):
            listener.send_changes(state)

    def _notify_all(self, message: FeedMessage) -> None:
        for listener in list(self._listeners):
            listener.put(message)

    def _load_state(self, needs_tasks: bool, reader: Reader) -> FeedState:
        now = reader.now()
        queues = reader.queues()
        names = [queue.name for queue in queues]
        counts = reader.counts(names) if names else {}
        self._load_throughputs(reader, [name for name in names if counts[name].pending])
        events = list(reversed(reader.audit(limit=MAX_EVENTS)))
        if needs_tasks:
            self._load_tasks(reader, events)
        return FeedState(
            queues={
                queue.name: queue_view(queue, counts[queue.name], self._throughputs.get(queue.name))
                for queue in queues
            },
            workers=[worker_view(worker, now) for worker in reader.workers()],
            events=events,
            tasks=self._tasks,
        )

    def _load_tasks(self, reader: Reader, events: Sequence[tuple[int, Event]]) -> None:
        """Load the task of each job in `events`, once per job. An event does not name it, and a deleted job
        has none."""
        ids = dict.fromkeys(event.job_id for _, event in events if event.job_id is not None)
        known = {job_id: task for job_id, task in self._tasks.items() if job_id in ids}
        found = reader.job_states([job_id for job_id in ids if job_id not in known])
        self._tasks = known | {state.id: state.task for state in found if state is not None}

    def _load_throughputs(self, reader: Reader, queues: Sequence[QueueName]) -> None:
        at = self._pool.clock.monotonic()
        if at - self._throughputs_loaded_at >= THROUGHPUT_SECONDS:
            self._throughputs_loaded_at = at
            self._throughputs = reader.throughputs(queues) if queues else {}
