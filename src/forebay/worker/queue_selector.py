"""Which queues to ask next, and for how many jobs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from forebay.clock import Clock
from forebay.domain.job import Job, QueueName
from forebay.stores.contract.values import QueueClaim
from forebay.worker.executors.protocol import ExecutorKinds
from forebay.worker.prefetch import PREFETCH_SECONDS, PrefetchPolicy
from forebay.worker.queue_weights import QueueWeights
from forebay.worker.slots import Assignment, ExecutorKind, Slots


class QueueSelector:
    """Claims no more than can start soon.

    Blocking tasks and coroutines have slots of their own, and the store counts one room for all queues of
    an exchange. So an exchange asks only queues with the same sorts of tasks, and each such lane has its turn
    before the coordinator sleeps. Most workers have one lane.

    A queue of weight 3 gets three jobs for each one of a queue of weight 1, and is asked first when both are
    level. With `strict` a queue is asked only for what those before it could not give.

    Room for many jobs is divided by the same rule among the queues that flow, those that had something to
    give when they were last asked; the others are asked for one job, and flow again when it comes. If each
    were asked for all, a light queue would fill its turn with hundreds of short jobs.
    """

    def __init__(
        self,
        queue_weights: QueueWeights,
        kinds_of: Callable[[QueueName], ExecutorKinds],
        known_lanes: Callable[[], frozenset[str] | None],
        slots: Slots,
        prefetch: PrefetchPolicy,
        clock: Clock,
    ) -> None:
        self._queue_weights = queue_weights
        self._weights = queue_weights.weights
        places = {queue: place for place, queue in enumerate(self._weights)}
        self._strict_order = places if queue_weights.strict else None
        self._paused_queues = queue_weights.paused_queues
        self._groups: dict[ExecutorKinds, deque[QueueName]] = {}
        for queue in self._weights:
            self._groups.setdefault(kinds_of(queue), deque()).append(queue)
        self._known_lanes = known_lanes
        self._slots = slots
        self._prefetch = prefetch
        self._clock = clock
        self._served: Counter[QueueName] = Counter()
        self._remaining_groups: deque[ExecutorKinds] = deque()
        self._current_group: ExecutorKinds = frozenset()
        self._room = 0
        self._claim_sizes: dict[QueueName, int] = {}
        self._flowing: set[QueueName] = set()
        self._has_more_work = False
        self._last_tasks: dict[ExecutorKinds, set[str]] = {}

    def next_claims(self, ended: Iterable[Assignment]) -> tuple[list[QueueClaim], int]:
        """What to ask for now, when these are about to end."""
        ends = Counter(one.kind for one in ended)
        self._apply_new_weights()
        if not self._remaining_groups:
            self._remaining_groups.extend(sorted(self._groups, key=self._lowest_share))
        paused = self._paused_queues()
        self._has_more_work = False
        while self._remaining_groups:
            self._current_group = self._remaining_groups.popleft()
            self._room = self._room_in(self._current_group, ends)
            queues = (
                [queue for queue in self._queues_in_order() if queue not in paused] if self._room > 0 else []
            )
            if queues:
                gates = self._known_lanes()
                self._claim_sizes = self._divide_room(queues)
                return [
                    QueueClaim(queue, most, lanes=gates) for queue, most in self._claim_sizes.items()
                ], self._room
        self._room = 0
        return [], 0

    def record_claimed(self, jobs: Sequence[Job]) -> None:
        """What came of it; before it is put in its slots."""
        if jobs:
            self._last_tasks[self._current_group] = {job.task for job in jobs}
        had = Counter(job.queue for job in jobs)
        self._served.update(had)
        self._flowing.update(had)
        if len(jobs) < self._room:
            # Somebody had nothing to give. What it did not take now it is not owed later.
            short = {queue for queue, most in self._claim_sizes.items() if had[queue] < most}
            self._has_more_work = len(short) < len(self._claim_sizes)
            self._flowing -= short
            self._reset_deficit(short)
        self._reset_deficit(self._paused_queues())

    def reasons(self) -> Iterator[tuple[QueueName, str]]:
        """Of each queue that was asked last, in this order: for how many jobs, and why."""
        for queue, most in self._claim_sizes.items() if self._room else ():
            had, weight = self._served[queue], self._weights[queue]
            how = (
                "named before others"
                if self._strict_order is not None
                else f"had {had} for its weight of {weight}"
            )
            flows = "" if queue in self._flowing or most == self._room else ", and nothing when last asked"
            yield queue, f"asked for {most} of {self._room} jobs: {how}{flows}"

    def _apply_new_weights(self) -> None:
        """Other weights count from now on: nobody owes anything for jobs had under the old ones."""
        weights = self._queue_weights.weights
        if weights is not self._weights:
            for queue, weight in weights.items():
                self._served[queue] = round(self._served[queue] * weight / self._weights[queue])
            self._weights = weights

    def _reset_deficit(self, queues: Collection[QueueName]) -> None:
        """These queues could have had no more; they begin again with those that have had the most."""
        if not queues:
            return
        most = max(self._served[queue] / weight for queue, weight in self._weights.items())
        for queue in queues:
            self._served[queue] = max(self._served[queue], round(most * self._weights[queue]))

    def _lowest_share(self, kinds: ExecutorKinds) -> float:
        """What the least served queue of a lane has had: lanes share slots, so they take turns by that."""
        return min(map(self._served_per_weight, self._groups[kinds]))

    def _served_per_weight(self, queue: QueueName) -> float:
        """How much a queue has had for its weight, half of its next job included: of two that are level the
        heavier one is behind, and comes first."""
        if self._strict_order is not None:
            return self._strict_order[queue]
        return (self._served[queue] + 0.5) / self._weights[queue]

    def _queues_in_order(self) -> list[QueueName]:
        """The queues of the lane, those first that have had the fewest jobs for their weight; among equals by
        turns.

        By jobs and not by turns alone: room comes in pieces of all sizes, and a queue whose turn always
        meets a small one would wait behind the others for ever.
        """
        lane = self._groups[self._current_group]
        lane.rotate(-1)
        return sorted(lane, key=lambda queue: (self._served_per_weight(queue), -self._weights[queue]))

    def _divide_room(self, queues: Sequence[QueueName]) -> dict[QueueName, int]:
        """For how many jobs each of these queues is asked, in their order."""
        flowing = [queue for queue in queues if queue in self._flowing]
        if self._strict_order is not None or not flowing or self._room <= len(queues):
            return dict.fromkeys(queues, self._room)
        level = self._level(flowing, self._room)
        return {
            queue: max(1, round((level - self._served_per_weight(queue)) * self._weights[queue]))
            if queue in self._flowing
            else 1
            for queue in queues
        }

    def _level(self, queues: Sequence[QueueName], room: int) -> float:
        """To which share these queues come when the room is given to those that are behind; they are in the
        order of their shares."""
        level, weight, owed = 0.0, 0, float(room)
        for queue in queues:
            if weight and level <= self._served_per_weight(queue):
                break  # this one is ahead already, and all after it are
            weight += self._weights[queue]
            owed += self._served_per_weight(queue) * self._weights[queue]
            level = owed / weight
        return level

    @property
    def has_room(self) -> bool:
        """Whether a slot is free that some queue could fill."""
        return any(min(map(self._slots.free, sorts)) > 0 for sorts in self._groups)

    def has_more(self, claimed: int) -> bool:
        """Whether to ask again at once: a lane was not asked yet, a queue has given all of its portion and
        another has not, or all that was asked for has come and went to other slots than it might have."""
        if self._remaining_groups or self._has_more_work:
            return True
        return 0 < self._room <= claimed and min(map(self._slots.free, self._current_group)) > 0

    def _room_in(self, kinds: ExecutorKinds, ended: Counter[ExecutorKind]) -> int:
        free = min(self._slots.free(sort) + ended[sort] for sort in kinds)
        if self._lowest_share(kinds) > min(map(self._lowest_share, self._groups)):
            # A surplus takes slots that another lane needs, and that one has had less.
            return max(0, free)
        surplus = self._prefetch.prefetch_count(self._last_tasks.get(kinds, ()), self._moving_slots(kinds))
        return max(0, free + surplus)

    def _moving_slots(self, kinds: ExecutorKinds) -> int:
        """Slots in which one job follows another. What a surplus brings may wait for one of these, but not
        behind a job that takes its time: how long those take is known only when they end."""
        since = self._clock.monotonic() - PREFETCH_SECONDS
        slow = Counter(
            one.kind for one in self._slots if one.started_at is not None and one.started_at < since
        )
        return max(0, min(self._slots.sizes[sort] - slow[sort] for sort in kinds))
