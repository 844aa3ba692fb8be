"""Which queues to ask next, and for how many jobs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from forebay.clock import Clock
from forebay.domain.job import Job, QueueName
from forebay.stores.protocol import Want
from forebay.worker.executors.protocol import Sorts
from forebay.worker.pace import SURPLUS_SECONDS, Pace
from forebay.worker.slots import Assignment, Slots


class Asking:
    """Claims no more than can start soon.

    Blocking tasks and coroutines have slots of their own, and the store counts one room for all queues of
    an exchange. So an exchange asks only queues with the same sorts of tasks, and each such lane has its turn
    before the coordinator sleeps. Most workers have one lane.
    """

    def __init__(
        self,
        queues: Sequence[QueueName],
        sorts: Callable[[QueueName], Sorts],
        gates: Callable[[], frozenset[str] | None],
        slots: Slots,
        pace: Pace,
        clock: Clock,
    ) -> None:
        self._lanes: dict[Sorts, deque[QueueName]] = {}
        for queue in queues:
            self._lanes.setdefault(sorts(queue), deque()).append(queue)
        self._gates = gates
        self._slots = slots
        self._pace = pace
        self._clock = clock
        self._served: Counter[QueueName] = Counter()
        self._left: deque[Sorts] = deque()
        self._asked: Sorts = frozenset()
        self._room = 0
        self._last_tasks: dict[Sorts, set[str]] = {}

    def wants(self, ending: Iterable[Assignment]) -> tuple[list[Want], int]:
        """What to ask for now, when these are about to end."""
        ends = Counter(one.is_async for one in ending)
        if not self._left:
            self._left.extend(sorted(self._lanes, key=self._had))
        while self._left:
            self._asked = self._left.popleft()
            self._room = self._room_in(self._asked, ends)
            if self._room > 0:
                gates = self._gates()
                return [Want(queue, self._room, gates=gates) for queue in self._in_turn()], self._room
        return [], 0

    def given(self, jobs: Sequence[Job]) -> None:
        """What came of it; before it is put in its slots."""
        if jobs:
            self._last_tasks[self._asked] = {job.task for job in jobs}
        self._served.update(job.queue for job in jobs)
        if len(jobs) < self._room:
            # Somebody had nothing to give. What it did not take now it is not owed later.
            most = max(self._served.values(), default=0)
            self._served.update({queue: most - self._served[queue] for queue in self._lanes[self._asked]})

    def _had(self, sorts: Sorts) -> int:
        """What the least served queue of a lane has had: lanes share slots, so they take turns by that."""
        return min(self._served[queue] for queue in self._lanes[sorts])

    def _in_turn(self) -> list[QueueName]:
        """The queues of the lane, those first that have had the fewest jobs; among equals by turns.

        By jobs and not by turns alone: room comes in pieces of all sizes, and a queue whose turn always
        meets a small one would wait behind the others for ever.
        """
        lane = self._lanes[self._asked]
        lane.rotate(-1)
        return sorted(lane, key=self._served.__getitem__)

    def has_more(self, given: int) -> bool:
        """Whether to ask again at once: a lane was not asked yet, or all that was asked for has come and it
        went to other slots than it might have."""
        if self._left:
            return True
        return 0 < self._room <= given and min(map(self._slots.free, self._asked)) > 0

    def _room_in(self, sorts: Sorts, ends: Counter[bool]) -> int:
        free = min(self._slots.free(sort) + ends[sort] for sort in sorts)
        if self._had(sorts) > min(map(self._had, self._lanes)):
            # A surplus takes slots that another lane needs, and that one has had less.
            return max(0, free)
        surplus = self._pace.surplus(self._last_tasks.get(sorts, ()), self._moving(sorts))
        return max(0, free + surplus)

    def _moving(self, sorts: Sorts) -> int:
        """Slots in which one job follows another. What a surplus brings may wait for one of these, but not
        behind a job that takes its time: how long those take is known only when they end."""
        since = self._clock.monotonic() - SURPLUS_SECONDS
        slow = Counter(
            one.is_async for one in self._slots if one.started_at is not None and one.started_at < since
        )
        return max(0, min(self._slots.sizes[sort] - slow[sort] for sort in sorts))
