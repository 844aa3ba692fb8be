"""Claims that wait for jobs: however many clients do, one of them looks for all.

Wishes for the same jobs (queues, tasks, lease) make a group, and a look asks the store once for the whole
group. A look happens when a wish comes (unless others of its group wait in vain already), when the store
hints that something has changed, when a scheduled job is due, and once a second without a reason, because a
hint may be lost. So ten thousand idle clients of one group, who come again and again, cost no more than one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.lane import lanes_for_program
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.errors import StoreError, StoreUnavailable
from forebay.operations.maintenance_task import (
    MaintenanceTask,
    close_tasks,
    notify_connected,
    run_due_tasks,
)
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.payload.codec import VERSION
from forebay.service.runtime.claim_bytes import payload_limit, read_payloads
from forebay.service.runtime.presence import Presence
from forebay.service.runtime.store_pool import StorePool
from forebay.stores.contract.engine import Wakeups
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import QueueClaim, SettleAndClaimResult

POLL_SECONDS: Final = 1.0  # without a hint, while somebody waits; and for the duties, always
# For stores that send one hint for several jobs: what came after the hint is found by looking again.
RETRY_SECONDS: Final = (0.001, 0.003, 0.007, 0.015, 0.031, 0.05)
MAX_CLAIM: Final = 1_000
MAX_REMEMBERED_GROUPS: Final = 1_000
GROUPS_PER_WRITE: Final = 20  # then others who write have their turn

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class ClaimGroupKey(NamedTuple):
    """What wishes of one group have in common."""

    queues: tuple[QueueName, ...]
    tasks: frozenset[str] | None = None
    lease_ms: int | None = None

    def queue_claims(self, limit: int, max_payload: int) -> list[QueueClaim]:
        gates = None if self.tasks is None else lanes_for_program(self.tasks, VERSION)
        return [QueueClaim(queue, limit, self.lease_ms, gates, max_payload) for queue in self.queues]


class ClaimWaiter:
    """Somebody who waits for jobs, or only wants to know whether there are some."""

    __slots__ = ("future", "is_patient", "limit")

    def __init__(self, limit: int, *, is_patient: bool) -> None:
        self.limit: int = limit
        self.is_patient: bool = is_patient
        self.future: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()

    def grant(self, jobs: list[Job]) -> None:
        if not self.future.done():
            self.future.set_result(jobs)

    def withdraw(self) -> list[Job]:
        """Wait no longer; what was claimed meanwhile."""
        is_granted = self.future.done() and not self.future.cancelled() and self.future.exception() is None
        self.future.cancel()
        return self.future.result() if is_granted else []


class ClaimGroup:
    """The wishes of one kind, the oldest first. `is_dry` says that the last look left somebody waiting, and
    that nothing is known to have changed since: who comes to wait now need not look."""

    __slots__ = ("due_timer", "is_dry", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[ClaimWaiter, None] = {}
        self.is_dry: bool = False
        self.due_timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.due_timer is not None:
            self.due_timer.cancel()
            self.due_timer = None

    @property
    def room(self) -> int:
        return min(sum(wish.limit for wish in self.waiters), MAX_CLAIM)

    def distribute(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Give jobs to those who wait, as many as each wants; what is left, since somebody has gone."""
        given = 0
        for wish in list(self.waiters):
            mine = list(jobs[given : given + wish.limit])
            given += len(mine)
            if mine or not wish.is_patient:
                del self.waiters[wish]
                wish.grant(mine)
        return jobs[given:]

    def fail(self, error: Exception) -> None:
        for wish in self.waiters:
            if not wish.future.done():
                wish.future.set_exception(error)
        self.waiters.clear()


class ClaimWaiters:
    """Claims for all clients of this process, under one worker id, and does the duties beside it. With the
    duties it writes the metrics that `metrics` has collected.

    The id is never said to be alive: leases are the clients', and must not end with this process.
    """

    def __init__(
        self,
        pool: StorePool,
        worker: WorkerId,
        maintenance_tasks: Sequence[MaintenanceTask],
        longest_wait: float,
        roll: Callable[[], float],
        metrics: MetricsRecorder,
    ) -> None:
        self.worker = worker
        self.longest_wait = longest_wait
        self.metrics = metrics
        self.presence: Presence = Presence()
        self._pool = pool
        self._maintenance_tasks = maintenance_tasks
        self._roll = roll
        self._was_away = False
        self._groups: dict[ClaimGroupKey, ClaimGroup] = {}
        self._requested: dict[ClaimGroupKey, None] = {}
        self._batch_sizes: dict[ClaimGroupKey, int] = {}  # how many large jobs the next look asks for
        self._wake_event = asyncio.Event()
        self._retry_timers: list[asyncio.TimerHandle] = []
        self._wakeups: Wakeups | None = None
        self._task: asyncio.Task[None] | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._stopped = asyncio.Event()
        self._wakeup_count = 0
        self._wakeup_event = asyncio.Event()

    def start(self) -> None:
        """Begin to listen; on the event loop."""
        loop = asyncio.get_running_loop()
        self._wakeups = self._pool.engine.wakeups()
        try:
            self._wakeups.start(lambda: _call_soon(loop, self._on_wakeup))
        except StoreError as exc:
            # A server that is started while its store is away answers 503 until it is there.
            logger.warning("no hints from the store, so jobs are looked for once a second: %s", exc)
        self._task = asyncio.create_task(self._run(), name="forebay-waiting")

    async def stop(self) -> None:
        """Answer everybody who waits with nothing, and end. Stopping twice, or before the start, is fine."""
        self.end_waits()
        self._wake_event.set()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])  # however it ends
            if self._maintenance is not None:
                await asyncio.wait([self._maintenance])
        finally:
            await asyncio.to_thread(close_tasks, self._maintenance_tasks)
            if self._wakeups is not None:
                await asyncio.to_thread(self._wakeups.close)

    @property
    def is_running(self) -> bool:
        """Whether somebody looks for jobs: from the start to the stop."""
        return self._task is not None and not self._task.done()

    @property
    def is_stopped(self) -> bool:
        """Whether nobody may wait any more."""
        return self._is_stopped

    def end_waits(self) -> None:
        """Let nobody wait from now on: whoever does is told that there is nothing."""
        self._is_stopped = True
        self._stopped.set()
        for timer in self._retry_timers:
            timer.cancel()
        for group in self._groups.values():
            group.stop_timer()
            for wish in group.waiters:
                wish.grant([])
            group.waiters.clear()

    async def run_unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something long; None if nobody may wait any more before it is done."""
        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            working.cancel()
            ending.cancel()

    async def wait_for_wakeup(self, last_token: str | None) -> str:
        """A word that changes with every hint of the store, and that no other server says; who has seen the
        last one waits for the next, for as long as anybody may."""
        if last_token == self._wakeup_token():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.longest_wait):
                    await self.run_unless_stopped(self._wakeup_event.wait())
        return self._wakeup_token()

    def _wakeup_token(self) -> str:
        return f"{self.worker}:{self._wakeup_count}"

    def _signal_wakeup(self) -> None:
        self._wakeup_count += 1
        self._wakeup_event.set()
        self._wakeup_event = asyncio.Event()

    # Wishing

    async def claim(self, kind: ClaimGroupKey, limit: int, wait_seconds: float) -> list[Job]:
        """Up to `limit` jobs; none if none comes in time. If the caller is cancelled, what was claimed for it
        goes back at once."""
        if self._is_stopped:
            return []
        wish = ClaimWaiter(limit, is_patient=wait_seconds > 0)
        group = self._groups.setdefault(kind, ClaimGroup())
        group.waiters[wish] = None
        if not (wish.is_patient and group.is_dry):
            self._request_claim(kind)
        try:
            # Without patience for one look, however long that takes.
            patience = min(wait_seconds, self.longest_wait) if wish.is_patient else None
            await asyncio.wait([wish.future], timeout=patience)
            return wish.future.result() if wish.future.done() else wish.withdraw()
        except asyncio.CancelledError:
            await self.give_back(wish.withdraw())
            raise
        finally:
            self._remove_waiter(kind, group, wish)

    def _remove_waiter(self, kind: ClaimGroupKey, group: ClaimGroup, waiter: ClaimWaiter) -> None:
        group.waiters.pop(waiter, None)
        if not group.waiters and self._groups.get(kind) is group:
            group.stop_timer()
            del self._groups[kind]

    async def give_back(self, jobs: Sequence[Job]) -> None:
        """Hand jobs back unstarted, because nobody is there to run them."""
        if not jobs:
            return
        ends = [decide(job, Interrupted(started=False), 0.0) for job in jobs]
        worker = jobs[0].worker or self.worker  # a remote worker has claimed them through this server
        try:
            await asyncio.shield(self._pool.write(lambda store: store.settle_and_claim(worker, ends)))
        except Exception as exc:  # whoever hands back has something else to say or to do
            logger.warning("jobs that nobody is there to run wait for the end of their leases: %s", exc)
        self.wake()

    # Looking

    def wake(self, queues: Set[str] | None = None) -> None:
        """There may be new jobs: in these queues, or in any."""
        for kind in self._groups:
            if queues is None or not queues.isdisjoint(kind.queues):
                self._request_claim(kind)

    def _request_claim(self, kind: ClaimGroupKey) -> None:
        if (group := self._groups.get(kind)) is not None:
            group.is_dry = False
        self._requested[kind] = None
        self._wake_event.set()

    def _on_wakeup(self) -> None:
        self.wake()
        self._signal_wakeup()
        if self._pool.engine.features.coalesces_wakeups:
            # Those who listen from afar do not look again by themselves.
            asyncio.get_running_loop().call_later(RETRY_SECONDS[-1], self._signal_wakeup)
        if self._pool.engine.features.coalesces_wakeups and self._groups:
            loop = asyncio.get_running_loop()
            for timer in self._retry_timers:
                timer.cancel()
            self._retry_timers = [loop.call_later(seconds, self.wake) for seconds in RETRY_SECONDS]

    async def _run(self) -> None:
        duties_at = 0.0
        while not self._is_stopped:
            is_time = await self._wait_for_work(duties_at)
            if is_time:
                # Not on the beat: servers that were started together shall not look together for ever.
                duties_at = asyncio.get_running_loop().time() + POLL_SECONDS * (1 - self._roll() / 5)
            try:
                await self._tick(with_maintenance=is_time)
            except Exception:
                # Everybody who claims here depends on this loop, so whatever it was costs one turn only.
                logger.exception("a look for jobs went wrong; it is tried again within a second")

    async def _tick(self, *, with_maintenance: bool) -> None:
        if with_maintenance:
            self.wake()  # a hint may have been lost
        await self._claim_requested()
        if with_maintenance and (self._maintenance is None or self._maintenance.done()):
            # Beside the looks: who waits for a job does not wait for them.
            self._maintenance = asyncio.create_task(self._run_maintenance(), name="forebay-duties")

    async def _wait_for_work(self, moment: float) -> bool:
        """Wait until there is a reason to look; whether it is that this time has come."""
        # Asked first: a bell that rings without a pause would never let the time-out be heard.
        if asyncio.get_running_loop().time() >= moment:
            return True
        try:
            async with asyncio.timeout_at(moment):
                await self._wake_event.wait()
        except TimeoutError:
            return True
        self._wake_event.clear()
        return False

    async def _claim_requested(self) -> None:
        kinds = [kind for kind in self._requested if kind in self._groups]
        self._requested.clear()
        for first in range(0, len(kinds), GROUPS_PER_WRITE):
            await self._claim_and_distribute(kinds[first : first + GROUPS_PER_WRITE])

    async def _claim_and_distribute(self, kinds: Sequence[ClaimGroupKey]) -> None:
        # Some may have left while others were looked for.
        wanted = [(kind, self._room_of(kind)) for kind in kinds if kind in self._groups]
        if not wanted:
            return
        answers: Sequence[SettleAndClaimResult | Exception]
        try:
            answers = await self._pool.write(partial(self._claim_groups, wanted))
        except Exception as exc:  # somebody waits for an answer, whatever it is
            answers = [exc] * len(wanted)
        self._count(answers)
        left: list[Job] = []
        for (kind, room), answer in zip(wanted, answers, strict=True):
            whole, rest = await self._load_payloads(kind, answer)
            left += [*rest, *self._distribute(kind, room, whole)]
        await self.give_back(left)

    def _room_of(self, kind: ClaimGroupKey) -> int:
        return min(self._groups[kind].room, self._batch_sizes.get(kind, MAX_CLAIM))

    async def _load_payloads(
        self, kind: ClaimGroupKey, answer: SettleAndClaimResult | Exception
    ) -> tuple[SettleAndClaimResult | Exception, Sequence[Job]]:
        """An answer with the payloads that were left out, and jobs that have too many bytes for it."""
        if isinstance(answer, Exception):
            return answer, ()
        ready, rest = list(answer.jobs), list[Job]()
        if not all(job.payload for job in answer.jobs):
            try:
                ready, rest = await self._pool.read_fast(partial(read_payloads, jobs=answer.jobs))
            except Exception as exc:  # the claim is made, and its jobs must go back
                return exc, answer.jobs
        self._adapt_batch_size(kind, len(ready), has_rest=bool(rest))
        return replace(answer, jobs=tuple(ready)), rest

    def _adapt_batch_size(self, kind: ClaimGroupKey, jobs: int, *, has_rest: bool) -> None:
        """Ask for fewer jobs next time where many had to go back, and for more again where none had."""
        most = jobs if has_rest else 2 * self._batch_sizes.pop(kind, MAX_CLAIM)
        if most < MAX_CLAIM and len(self._batch_sizes) < MAX_REMEMBERED_GROUPS:
            self._batch_sizes[kind] = most

    def _count(self, answers: Sequence[SettleAndClaimResult | Exception]) -> None:
        now = self._pool.clock.monotonic()
        for answer in answers:
            if isinstance(answer, SettleAndClaimResult):
                self.metrics.count_claimed(answer.jobs, now)

    def _claim_groups(
        self, wanted: Sequence[tuple[ClaimGroupKey, int]], store: Store
    ) -> list[SettleAndClaimResult | Exception]:
        """One exchange for each group; one that fails takes nothing away from those before it."""
        answers: list[SettleAndClaimResult | Exception] = []
        share = payload_limit(sum(room for _, room in wanted))
        for kind, room in wanted:
            try:
                answers.append(
                    store.settle_and_claim(self.worker, claims=kind.queue_claims(room, share), room=room)
                )
            except StoreUnavailable as exc:
                if not any(isinstance(answer, SettleAndClaimResult) and answer.jobs for answer in answers):
                    raise  # the breaker counts it
                # The others would wait for the same silence one by one, and all writers behind them.
                return answers + [exc] * (len(wanted) - len(answers))
            except Exception as exc:  # what was claimed before must reach those who wait
                answers.append(exc)
        return answers

    def _distribute(
        self, kind: ClaimGroupKey, room: int, answer: SettleAndClaimResult | Exception
    ) -> Sequence[Job]:
        group = self._groups.get(kind)
        if isinstance(answer, Exception):
            if group is not None:
                group.fail(answer)
            return ()
        if group is None:
            return answer.jobs
        left = group.distribute(answer.jobs)
        # Not if somebody has come, or rung, while this look was under way: it was not for them.
        group.is_dry = bool(group.waiters) and len(answer.jobs) < room and kind not in self._requested
        if group.waiters and len(answer.jobs) == room:
            self._request_claim(kind)  # more wait than one look asks for
        group.stop_timer()
        if answer.next_due_ms is not None and group.waiters:
            loop = asyncio.get_running_loop()
            group.due_timer = loop.call_later(answer.next_due_ms / 1_000, self._request_claim, kind)
        return left

    async def _run_maintenance(self) -> None:
        self.metrics.set_consumers(self.presence.take_peaks())
        try:
            # Each by itself: several are due every second, with a commit or two each, and whoever writes at
            # that moment would wait for all of them.
            for duty in self._maintenance_tasks:
                await self._pool.run_maintenance(partial(self._run_task, duty))
            await self._pool.run_maintenance(self.metrics.record)
        except StoreError as exc:
            self._was_away = self._was_away or isinstance(exc, StoreUnavailable)
            logger.warning("duties are left to the next turn: %s", exc)
        except Exception:  # nobody else would hear of it
            logger.exception("duties went wrong; they are tried again within a second")

    async def write_metrics(self) -> None:
        """Write all metrics, because nothing comes any more. Not to a store that is away: a stop does not
        wait for metrics."""
        if self._task is None or self._was_away:
            return
        self.metrics.set_consumers(self.presence.take_peaks())
        try:
            await self._pool.run_maintenance(self.metrics.record_all)
        except StoreError as exc:
            logger.warning("the last metrics are not written: %s", exc)

    def _run_task(self, task: MaintenanceTask, store: Store) -> None:
        if self._was_away:
            self._was_away = False
            notify_connected(self._maintenance_tasks)
        run_due_tasks(store, [task])


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The loop may have been closed between the hint and here; then nobody waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
