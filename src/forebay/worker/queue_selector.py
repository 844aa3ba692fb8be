"""Selection of the queues to claim from next, and for how many jobs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from forebay.clock import Clock
from forebay.domain.job import Job, QueueName
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.executors.executor_protocol import ExecutorKinds
from forebay.worker.prefetch import PREFETCH_SECONDS, PrefetchPolicy
from forebay.worker.queue_weights_and_pauses import QueueWeights
from forebay.worker.slots import Slots


class QueueSelector:
    """Claims no more jobs than can start soon.

    Blocking tasks and coroutines have slots of their own, and the store has one limit for all queues of a
    claim. So a claim names only queues with the same kinds of tasks. Each such group has its turn before the
    coordinator sleeps. Most workers have one group.

    A queue of weight 3 gets three jobs for each one of a queue of weight 1, and comes first when both are
    level. With `strict` a queue is claimed from only for what those before it could not give.

    Room for many jobs is divided by the same rule among the flowing queues, those that gave jobs at their
    last claim. The others are claimed from for one job, and flow again when it comes. If each were claimed
    from for all, a light queue would fill its share with hundreds of short jobs.
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
        order = {queue: position for position, queue in enumerate(self._weights)}
        self._strict_order = order if queue_weights.strict else None
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
        """Return the claims to make now, when these attempts are about to end, and the limit for all of
        them."""
        ended_by_kind = Counter(assignment.kind for assignment in ended)
        self._apply_new_weights()
        if not self._remaining_groups:
            self._remaining_groups.extend(sorted(self._groups, key=self._lowest_share))
        paused = self._paused_queues()
        self._has_more_work = False
        while self._remaining_groups:
            self._current_group = self._remaining_groups.popleft()
            self._room = self._room_in(self._current_group, ended_by_kind)
            queues = (
                [queue for queue in self._queues_in_order() if queue not in paused] if self._room > 0 else []
            )
            if queues:
                lanes = self._known_lanes()
                self._claim_sizes = self._divide_room(queues)
                return [
                    QueueClaim(queue, limit, lanes=lanes) for queue, limit in self._claim_sizes.items()
                ], self._room
        self._room = 0
        return [], 0

    def record_claimed(self, jobs: Sequence[Job]) -> None:
        """Record the jobs that were claimed, before they occupy their slots."""
        if jobs:
            self._last_tasks[self._current_group] = {job.task for job in jobs}
        claimed = Counter(job.queue for job in jobs)
        self._served.update(claimed)
        self._flowing.update(claimed)
        if len(jobs) < self._room:
            # Some queue had no more jobs. It is not owed later what it did not take now.
            short = {queue for queue, limit in self._claim_sizes.items() if claimed[queue] < limit}
            self._has_more_work = len(short) < len(self._claim_sizes)
            self._flowing -= short
            self._reset_deficit(short)
        self._reset_deficit(self._paused_queues())

    def reasons(self) -> Iterator[tuple[QueueName, str]]:
        """Yield each queue of the last claim, in its order, with the number of jobs and the reason."""
        for queue, limit in self._claim_sizes.items() if self._room else ():
            had, weight = self._served[queue], self._weights[queue]
            reason = (
                "named before others"
                if self._strict_order is not None
                else f"had {had} for its weight of {weight}"
            )
            flows = "" if queue in self._flowing or limit == self._room else ", and nothing when last asked"
            yield queue, f"asked for {limit} of {self._room} jobs: {reason}{flows}"

    def _apply_new_weights(self) -> None:
        """Take over changed weights: no queue owes anything for jobs claimed under the old ones."""
        weights = self._queue_weights.weights
        if weights is not self._weights:
            for queue, weight in weights.items():
                self._served[queue] = round(self._served[queue] * weight / self._weights[queue])
            self._weights = weights

    def _reset_deficit(self, queues: Collection[QueueName]) -> None:
        """Forget what these queues are owed: they could have had no more. They start again level with the
        queue that has had the most."""
        if not queues:
            return
        most = max(self._served[queue] / weight for queue, weight in self._weights.items())
        for queue in queues:
            self._served[queue] = max(self._served[queue], round(most * self._weights[queue]))

    def _lowest_share(self, kinds: ExecutorKinds) -> float:
        """Return the share of the least served queue of a group: groups share slots, so they take turns by
        that."""
        return min(map(self._served_per_weight, self._groups[kinds]))

    def _served_per_weight(self, queue: QueueName) -> float:
        """Return how many jobs a queue has had for its weight, half of its next job included. Of two queues
        that are level the heavier one is behind, and comes first."""
        if self._strict_order is not None:
            return self._strict_order[queue]
        return (self._served[queue] + 0.5) / self._weights[queue]

    def _queues_in_order(self) -> list[QueueName]:
        """Return the queues of the group, the least served for their weight first; equal ones take turns.

        Taking turns alone is not enough: room comes in pieces of all sizes, and a queue whose turn always
        meets a small one would wait behind the others for ever.
        """
        group = self._groups[self._current_group]
        group.rotate(-1)
        return sorted(group, key=lambda queue: (self._served_per_weight(queue), -self._weights[queue]))

    def _divide_room(self, queues: Sequence[QueueName]) -> dict[QueueName, int]:
        """Return how many jobs to claim from each of these queues, in their order."""
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
        """Return the share that these queues reach when the room goes to those that are behind. They come in
        the order of their shares."""
        level, weight, owed = 0.0, 0, float(room)
        for queue in queues:
            if weight and level <= self._served_per_weight(queue):
                break  # this queue is ahead already, and so are all after it
            weight += self._weights[queue]
            owed += self._served_per_weight(queue) * self._weights[queue]
            level = owed / weight
        return level

    @property
    def has_room(self) -> bool:
        """Whether a slot is free that some queue could fill."""
        return any(min(map(self._slots.free, kinds)) > 0 for kinds in self._groups)

    def has_more(self, claimed: int) -> bool:
        """Return whether to claim again at once.

        That is so if a group has not been claimed from yet. It is so if one queue has filled its part of the
        room and another has not. It is also so if all came and went to other slots than they might have.
        """
        if self._remaining_groups or self._has_more_work:
            return True
        return 0 < self._room <= claimed and min(map(self._slots.free, self._current_group)) > 0

    def _room_in(self, kinds: ExecutorKinds, ended: Counter[ExecutorKind]) -> int:
        free = min(self._slots.free(kind) + ended[kind] for kind in kinds)
        if self._lowest_share(kinds) > min(map(self._lowest_share, self._groups)):
            # Prefetched jobs take slots that another group needs, and that group has had less.
            return max(0, free)
        prefetched = self._prefetch.prefetch_count(self._last_tasks.get(kinds, ()), self._moving_slots(kinds))
        return max(0, free + prefetched)

    def _moving_slots(self, kinds: ExecutorKinds) -> int:
        """Return the number of slots in which one job follows another. A prefetched job may wait for one of
        these, but not behind a job that takes long: its duration is known only when it ends."""
        since = self._clock.monotonic() - PREFETCH_SECONDS
        slow = Counter(
            assignment.kind
            for assignment in self._slots
            if assignment.started_at is not None and assignment.started_at < since
        )
        return max(0, min(self._slots.sizes[kind] - slow[kind] for kind in kinds))
