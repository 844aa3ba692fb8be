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

from forebay.domain.history import Event
from forebay.domain.job import JobId, QueueName
from forebay.domain.pressure import Pace
from forebay.errors import ForebayError
from forebay.service.operations.desk import Desk
from forebay.service.operations.telling import problem_of
from forebay.service.schema.queues import QueueShape, queue_shape
from forebay.service.schema.shared import Shape
from forebay.service.schema.steering import WorkerShape, worker_shape
from forebay.service.schema.watching import Happening, Missed, QueueNews, WorkerNews, happening
from forebay.stores.protocol import Reader

LOOK_SECONDS: Final = 0.5
PACE_SECONDS: Final = 5.0  # how fast a queue is costs more to find out than how long it is
MOST_UNREAD: Final = 5
MOST_LINES: Final = 100

logger: logging.Logger = logging.getLogger(__name__)


class View(NamedTuple):
    """What somebody may be told of: which queues with what the log says of them, the workers, lines that
    belong to no queue, and which other jobs a line names. With `tasks` lines are about their jobs alone."""

    queue: Callable[[str], bool]
    workers: bool
    log: bool
    others: bool
    tasks: frozenset[str] = frozenset()

    def shows(self, event: Event, task: str | None) -> bool:
        if self.tasks and task not in self.tasks:
            return False
        return self.log if event.queue is None else self.queue(event.queue)


class News(NamedTuple):
    """Something to tell; `number` is that of the newest line of the log that is known with it."""

    kind: str
    body: Shape
    number: int


class Seen(NamedTuple):
    """What a look at the store has found; `lines` are the newest of the log, the oldest first. `tasks` are
    those of the jobs that they are about, where somebody wants to know."""

    queues: dict[str, QueueShape]
    workers: list[WorkerShape]
    lines: list[tuple[int, Event]]
    tasks: Mapping[JobId, str]

    @property
    def number(self) -> int:
        return self.lines[-1][0] if self.lines else 0

    def task_of(self, event: Event) -> str | None:
        return None if event.job_id is None else self.tasks.get(event.job_id)


class Listener:
    """Somebody who looks on.

    It has room for a few messages only. One that does not fetch them is let go, so that it costs nobody else
    anything; it may come again and name the last line it has got.
    """

    def __init__(self, view: View, after: int | None) -> None:
        self._view = view
        self.asks_for_tasks: bool = bool(view.tasks)
        self._after = after
        self._queues: dict[str, QueueShape] = {}
        self._workers: list[WorkerShape] | None = None
        self._unread: asyncio.Queue[News] = asyncio.Queue(MOST_UNREAD)
        self.is_over: asyncio.Event = asyncio.Event()

    async def next(self, seconds: float) -> News | None:
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

    def tell(self, seen: Seen) -> None:
        """What is new for this one."""
        for news in (*self._queue_news(seen), *self._worker_news(seen), *self._line_news(seen)):
            self.put(news)

    def put(self, news: News) -> None:
        try:
            self._unread.put_nowait(news)
        except asyncio.QueueFull:
            self.is_over.set()

    def _queue_news(self, seen: Seen) -> Iterator[News]:
        mine = {name: queue for name, queue in seen.queues.items() if self._view.queue(name)}
        changed = [queue for name, queue in mine.items() if self._queues.get(name) != queue]
        gone = sorted(self._queues.keys() - mine.keys())
        is_first = self._workers is None  # then even that there are none is worth telling
        self._queues = mine
        if changed or gone or is_first:
            yield News("queues", QueueNews(queues=changed, gone=gone, is_all=is_first), seen.number)

    def _worker_news(self, seen: Seen) -> Iterator[News]:
        workers = seen.workers if self._view.workers else []
        if workers != self._workers:
            self._workers = workers
            yield News("workers", WorkerNews(workers=workers), seen.number)

    def _line_news(self, seen: Seen) -> Iterator[News]:
        after, self._after = self._after, seen.number
        if after is None:
            return
        if len(seen.lines) == MOST_LINES and seen.lines[0][0] > after + 1:
            yield News("missed", Missed(after=after), seen.number)
        told = [
            happening(number, event, names_others=self._view.others)
            for number, event in seen.lines
            if number > after and self._view.shows(event, seen.task_of(event))
        ]
        if told:
            yield News("log", Happening(lines=told), seen.number)


class Watching:
    """Looks at the store for all who look on, from the first that comes to the last that leaves."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._tasks: dict[JobId, str] = {}  # of the jobs that the newest lines of the log are about
        self._paces: dict[QueueName, Pace] = {}
        self._paced_at = float("-inf")
        self._is_refusing = False

    @property
    def listeners(self) -> int:
        """How many look on."""
        return len(self._listeners)

    @contextmanager
    def listening(self, view: View, after: int | None = None) -> Iterator[Listener]:
        """Look on while the block lasts."""
        listener = Listener(view, after)
        if self._is_refusing:
            listener.is_over.set()
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="forebay-watching")
        self._bell.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            self._bell.set()

    def refuse(self) -> None:
        """Let everybody go, and nobody in: a stop is near."""
        self._is_refusing = True
        for listener in self._listeners:
            listener.is_over.set()
        self._bell.set()

    async def stop(self) -> None:
        """Look no more. Stopping twice, or before the start, is fine."""
        self.refuse()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._listeners and not self._is_refusing:
                await self._turn()
                self._bell.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._bell.wait()  # somebody has come or gone
        finally:
            self._task = None

    async def _turn(self) -> None:
        try:
            asks_for_tasks = any(listener.asks_for_tasks for listener in self._listeners)
            seen = await self._desk.watching(partial(self._look, asks_for_tasks))
        except ForebayError as error:
            self._tell_all(News("problem", problem_of(error), 0))
            return
        except Exception:
            # Everybody who looks on depends on this loop, so whatever it was costs one turn only.
            logger.exception("a look for those who look on went wrong; it is tried again")
            return
        for listener in list(self._listeners):
            listener.tell(seen)

    def _tell_all(self, news: News) -> None:
        for listener in list(self._listeners):
            listener.put(news)

    def _look(self, asks_for_tasks: bool, reader: Reader) -> Seen:
        now = reader.now()
        queues = reader.queues()
        names = [queue.name for queue in queues]
        counts = reader.counts(names) if names else {}
        self._look_at_paces(reader, [name for name in names if counts[name].pending])
        lines = list(reversed(reader.audit(limit=MOST_LINES)))
        if asks_for_tasks:
            self._look_at_tasks(reader, lines)
        return Seen(
            queues={
                queue.name: queue_shape(queue, counts[queue.name], self._paces.get(queue.name))
                for queue in queues
            },
            workers=[worker_shape(worker, now) for worker in reader.workers()],
            lines=lines,
            tasks=self._tasks,
        )

    def _look_at_tasks(self, reader: Reader, lines: Sequence[tuple[int, Event]]) -> None:
        """A line does not say of which task its job is: that is looked up once for each job, and only while
        somebody wants to know. Of one that is gone nobody can say."""
        ids = dict.fromkeys(event.job_id for _, event in lines if event.job_id is not None)
        known = {job_id: task for job_id, task in self._tasks.items() if job_id in ids}
        found = reader.fates([job_id for job_id in ids if job_id not in known])
        self._tasks = known | {fate.id: fate.task for fate in found if fate is not None}

    def _look_at_paces(self, reader: Reader, waiting: Sequence[QueueName]) -> None:
        at = self._desk.clock.monotonic()
        if at - self._paced_at >= PACE_SECONDS:
            self._paced_at = at
            self._paces = reader.paces(waiting) if waiting else {}
