"""What happens, for those who look on: however many do, one look at the store serves them all.

While somebody looks on, the store is looked at twice a second, and each listener is told what is new for it:
queues that have changed, workers, and lines of the audit log. A queue has changed when its counts have, so
whoever shows its jobs knows when to ask for them again. With nobody there, nothing is asked.

What is told of queues and workers is how they are, so somebody who comes back has missed nothing. Lines of
the log have numbers, and who names the last one it has got is told those after it. Two lines that are written
in the same moment may become visible in another order than that of their numbers; the one that comes late is
not told, and stands in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

from forebay.domain.backpressure import Throughput
from forebay.domain.history import Event
from forebay.domain.job import JobId, QueueName
from forebay.errors import ForebayError
from forebay.service.problems import problem_of
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
from forebay.service.schema.workers import WorkerView, worker_view
from forebay.stores.contract.reader import Reader

POLL_SECONDS: Final = 0.5
THROUGHPUT_SECONDS: Final = 5.0  # how fast a queue is costs more to find out than how long it is
MAX_UNREAD: Final = 5
MAX_EVENTS: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


class FeedFilter(NamedTuple):
    """What somebody may be told of: which queues with what the log says of them, the workers, lines that
    belong to no queue, and which other jobs a line names. With `tasks` lines are about their jobs alone."""

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
    """Something to tell; `number` is that of the newest line of the log that is known with it."""

    kind: str
    body: ResponseModel
    event_id: int


class FeedState(NamedTuple):
    """What a look at the store has found; `lines` are the newest of the log, the oldest first. `tasks` are
    those of the jobs that they are about, where somebody wants to know."""

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
    """Somebody who looks on.

    It has room for a few messages only. One that does not fetch them is let go, so that it costs nobody else
    anything; it may come again and name the last line it has got.
    """

    def __init__(self, feed_filter: FeedFilter, after: int | None) -> None:
        self._filter = feed_filter
        self.needs_tasks: bool = bool(feed_filter.tasks)
        self._after = after
        self._queues: dict[str, QueueView] = {}
        self._workers: list[WorkerView] | None = None
        self._unread: asyncio.Queue[FeedMessage] = asyncio.Queue(MAX_UNREAD)
        self.is_over: asyncio.Event = asyncio.Event()

    async def next(self, seconds: float) -> FeedMessage | None:
        """The next message; None if none comes in this time, or none will come any more."""
        if self.is_over.is_set() and self._unread.empty():
            return None
        getting = asyncio.ensure_future(self._unread.get())
        ending = asyncio.ensure_future(self.is_over.wait())
        try:
            await asyncio.wait((getting, ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
            ending.cancel()

    def send_changes(self, state: FeedState) -> None:
        """What is new for this one."""
        for news in (*self._queue_changes(state), *self._worker_changes(state), *self._audit_events(state)):
            self.put(news)

    def put(self, message: FeedMessage) -> None:
        try:
            self._unread.put_nowait(message)
        except asyncio.QueueFull:
            self.is_over.set()

    def _queue_changes(self, state: FeedState) -> Iterator[FeedMessage]:
        mine = {name: queue for name, queue in state.queues.items() if self._filter.queue(name)}
        changed = [queue for name, queue in mine.items() if self._queues.get(name) != queue]
        gone = sorted(self._queues.keys() - mine.keys())
        is_first = self._workers is None  # then even that there are none is worth telling
        self._queues = mine
        if changed or gone or is_first:
            yield FeedMessage(
                "queues", QueueChanges(queues=changed, removed=gone, is_all=is_first), state.last_event_id
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
        told = [
            audit_event_view(number, event, names_others=self._filter.names_other_jobs)
            for number, event in state.events
            if number > after and self._filter.shows(event, state.task_of(event))
        ]
        if told:
            yield FeedMessage("audit", AuditEvents(lines=told), state.last_event_id)


class EventFeed:
    """Looks at the store for all who look on, from the first that comes to the last that leaves."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._listeners: set[FeedListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._wake_event = asyncio.Event()
        self._tasks: dict[JobId, str] = {}  # of the jobs that the newest lines of the log are about
        self._throughputs: dict[QueueName, Throughput] = {}
        self._throughputs_loaded_at = float("-inf")
        self._is_refusing = False

    @property
    def listeners(self) -> int:
        """How many look on."""
        return len(self._listeners)

    @contextmanager
    def listen(self, feed_filter: FeedFilter, after: int | None = None) -> Iterator[FeedListener]:
        """Look on while the block lasts."""
        listener = FeedListener(feed_filter, after)
        if self._is_refusing:
            listener.is_over.set()
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="forebay-watching")
        self._wake_event.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            self._wake_event.set()

    def end_streams(self) -> None:
        """Let everybody go, and nobody in: a stop is near."""
        self._is_refusing = True
        for listener in self._listeners:
            listener.is_over.set()
        self._wake_event.set()

    async def stop(self) -> None:
        """Look no more. Stopping twice, or before the start, is fine."""
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
                        await self._wake_event.wait()  # somebody has come or gone
        finally:
            self._task = None

    async def _tick(self) -> None:
        try:
            asks_for_tasks = any(listener.needs_tasks for listener in self._listeners)
            seen = await self._pool.read_for_polling(partial(self._load_state, asks_for_tasks))
        except ForebayError as error:
            self._notify_all(FeedMessage("problem", problem_of(error), 0))
            return
        except Exception:
            # Everybody who looks on depends on this loop, so whatever it was costs one turn only.
            logger.exception("a look for those who look on went wrong; it is tried again")
            return
        for listener in list(self._listeners):
            listener.send_changes(seen)

    def _notify_all(self, message: FeedMessage) -> None:
        for listener in list(self._listeners):
            listener.put(message)

    def _load_state(self, needs_tasks: bool, reader: Reader) -> FeedState:
        now = reader.now()
        queues = reader.queues()
        names = [queue.name for queue in queues]
        counts = reader.counts(names) if names else {}
        self._load_throughputs(reader, [name for name in names if counts[name].pending])
        lines = list(reversed(reader.audit(limit=MAX_EVENTS)))
        if needs_tasks:
            self._load_tasks(reader, lines)
        return FeedState(
            queues={
                queue.name: queue_view(queue, counts[queue.name], self._throughputs.get(queue.name))
                for queue in queues
            },
            workers=[worker_view(worker, now) for worker in reader.workers()],
            events=lines,
            tasks=self._tasks,
        )

    def _load_tasks(self, reader: Reader, events: Sequence[tuple[int, Event]]) -> None:
        """A line does not say of which task its job is: that is looked up once for each job, and only while
        somebody wants to know. Of one that is gone nobody can say."""
        ids = dict.fromkeys(event.job_id for _, event in events if event.job_id is not None)
        known = {job_id: task for job_id, task in self._tasks.items() if job_id in ids}
        found = reader.job_states([job_id for job_id in ids if job_id not in known])
        self._tasks = known | {fate.id: fate.task for fate in found if fate is not None}

    def _load_throughputs(self, reader: Reader, queues: Sequence[QueueName]) -> None:
        at = self._pool.clock.monotonic()
        if at - self._throughputs_loaded_at >= THROUGHPUT_SECONDS:
            self._throughputs_loaded_at = at
            self._throughputs = reader.throughputs(queues) if queues else {}
