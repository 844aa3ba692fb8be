"""Waiting claims: the claims of all clients that wait for the same jobs share one poll of the store.

Claims with the same queues, tasks and lease form a group, and a poll asks the store once for the whole group.
A poll happens when a claim comes (unless others of its group wait in vain already), after a wake-up of the
store, and when a scheduled job is due. Besides that there is one poll a second, because a wake-up may be
lost. So ten thousand idle clients of one group, which ask again and again, cost no more than one.
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
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.payload.codec import VERSION
from forebay.service.runtime.consumer_presence import Presence
from forebay.service.runtime.payload_bytes_per_response import payload_limit, read_payloads
from forebay.service.runtime.store_pool import StorePool
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups

POLL_SECONDS: Final = 1.0  # between polls without a wake-up
# For stores that coalesce wake-ups: jobs that came after the wake-up are found by polling again.
RETRY_SECONDS: Final = (0.001, 0.003, 0.007, 0.015, 0.031, 0.05)
MAX_CLAIM: Final = 1_000
MAX_REMEMBERED_GROUPS: Final = 1_000
GROUPS_PER_WRITE: Final = 20  # then other writes get the handle

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class ClaimGroupKey(NamedTuple):
    """Criteria that the claims of a group share."""

    queues: tuple[QueueName, ...]
    tasks: frozenset[str] | None = None
    lease_ms: int | None = None

    def queue_claims(self, limit: int, max_payload: int) -> list[QueueClaim]:
        lanes = None if self.tasks is None else lanes_for_program(self.tasks, VERSION)
        return [QueueClaim(queue, limit, self.lease_ms, lanes, max_payload) for queue in self.queues]


class ClaimWaiter:
    """Claim of a client; a patient one waits for jobs, another is answered by the next poll."""

    __slots__ = ("future", "is_patient", "limit")

    def __init__(self, limit: int, *, is_patient: bool) -> None:
        self.limit: int = limit
        self.is_patient: bool = is_patient
        self.future: asyncio.Future[list[Job]] = asyncio.get_running_loop().create_future()

    def grant(self, jobs: list[Job]) -> None:
        if not self.future.done():
            self.future.set_result(jobs)

    def withdraw(self) -> list[Job]:
        """Stop waiting, and return the jobs that were claimed meanwhile."""
        is_granted = self.future.done() and not self.future.cancelled() and self.future.exception() is None
        self.future.cancel()
        return self.future.result() if is_granted else []


class ClaimGroup:
    """Waiting claims of one group, oldest first.

    `is_dry` says that the last poll left a claim waiting and that no change is known since, so a new patient
    claim needs no poll.
    """

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
        return min(sum(waiter.limit for waiter in self.waiters), MAX_CLAIM)

    def distribute(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Give each waiting claim jobs up to its limit, and return the jobs that are left because a client
        has gone."""
        granted = 0
        for waiter in list(self.waiters):
            share = list(jobs[granted : granted + waiter.limit])
            granted += len(share)
            if share or not waiter.is_patient:
                del self.waiters[waiter]
                waiter.grant(share)
        return jobs[granted:]

    def fail(self, error: Exception) -> None:
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)
        self.waiters.clear()


class ClaimWaiters:
    """Claims for all clients of this process under one worker id. `on_wakeup` gets the store's wake-ups too.

    The worker id sends no heartbeats: leases belong to the clients, and must not end with this process.
    """

    def __init__(
        self,
        pool: StorePool,
        worker: WorkerId,
        longest_wait: float,
        roll: Callable[[], float],
        metrics: MetricsRecorder,
        on_wakeup: Callable[[], None],
    ) -> None:
        self.worker = worker
        self.longest_wait = longest_wait
        self.metrics = metrics
        self.presence: Presence = Presence()
        self._pool = pool
        self._roll = roll
        self._report_wakeup = on_wakeup
        self._groups: dict[ClaimGroupKey, ClaimGroup] = {}
        self._requested: dict[ClaimGroupKey, None] = {}
        self._batch_sizes: dict[ClaimGroupKey, int] = {}  # claim sizes of groups with large jobs
        self._wake_event = asyncio.Event()
        self._retry_timers: list[asyncio.TimerHandle] = []
        self._wakeups: Wakeups | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._stopped = asyncio.Event()

    def start(self) -> None:
        """Start to listen for wake-ups; on the event loop."""
        loop = asyncio.get_running_loop()
        self._wakeups = self._pool.engine.wakeups()
        try:
            self._wakeups.start(lambda: _call_soon(loop, self._on_wakeup))
        except StoreError as exc:
            # A server that is started while its store is away answers 503 until it is back.
            logger.warning("no wake-ups from the store, so it is polled once a second: %s", exc)
        self._task = asyncio.create_task(self._run(), name="forebay-claim-waiters")

    async def stop(self) -> None:
        """Answer all waiting claims with nothing, and end. May be called twice, or before the start."""
        self.end_waits()
        self._wake_event.set()
        try:
            if self._task is not None:
                await asyncio.wait([self._task])  # however it ends
        finally:
            if self._wakeups is not None:
                await asyncio.to_thread(self._wakeups.close)

    @property
    def is_running(self) -> bool:
        """Whether claims are served: from the start to the stop."""
        return self._task is not None and not self._task.done()

    @property
    def is_stopped(self) -> bool:
        """Whether waits have ended for good."""
        return self._is_stopped

    def end_waits(self) -> None:
        """Answer all waiting claims with nothing, now and from now on."""
        self._is_stopped = True
        self._stopped.set()
        for timer in self._retry_timers:
            timer.cancel()
        for group in self._groups.values():
            group.stop_timer()
            for waiter in group.waiters:
                waiter.grant([])
            group.waiters.clear()

    async def run_unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await `work`; return None if waits end before it is done."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()

    # Claims

    async def claim(self, key: ClaimGroupKey, limit: int, wait_seconds: float) -> list[Job]:
        """Claim up to `limit` jobs; return none if none comes in time. If the caller is cancelled, its
        claimed jobs are handed back at once."""
        if self._is_stopped:
            return []
        waiter = ClaimWaiter(limit, is_patient=wait_seconds > 0)
        group = self._groups.setdefault(key, ClaimGroup())
        group.waiters[waiter] = None
        if not (waiter.is_patient and group.is_dry):
            self._request_claim(key)
        try:
            # An impatient claim waits for one poll, however long that takes.
            timeout = min(wait_seconds, self.longest_wait) if waiter.is_patient else None
            await asyncio.wait([waiter.future], timeout=timeout)
            return waiter.future.result() if waiter.future.done() else waiter.withdraw()
        except asyncio.CancelledError:
            await self.give_back(waiter.withdraw())
            raise
        finally:
            self._remove_waiter(key, group, waiter)

    def _remove_waiter(self, key: ClaimGroupKey, group: ClaimGroup, waiter: ClaimWaiter) -> None:
        group.waiters.pop(waiter, None)
        if not group.waiters and self._groups.get(key) is group:
            group.stop_timer()
            del self._groups[key]

    async def give_back(self, jobs: Sequence[Job]) -> None:
        """Hand jobs back unstarted, because their client has gone."""
        if not jobs:
            return
        settlements = [decide(job, Interrupted(started=False), 0.0) for job in jobs]
        worker = jobs[0].worker or self.worker  # a remote worker may have claimed them through this server
        try:
            await asyncio.shield(self._pool.write(lambda store: store.settle_and_claim(worker, settlements)))
        except Exception as exc:  # the caller is handling another error already
            logger.warning("jobs of a client that has gone wait for the end of their leases: %s", exc)
        self.wake()

    # Polls

    def wake(self, queues: Set[str] | None = None) -> None:
        """Poll for the waiting claims of these queues, or of all: new jobs may have come."""
        for key in self._groups:
            if queues is None or not queues.isdisjoint(key.queues):
                self._request_claim(key)

    def _request_claim(self, key: ClaimGroupKey) -> None:
        if (group := self._groups.get(key)) is not None:
            group.is_dry = False
        self._requested[key] = None
        self._wake_event.set()

    def _on_wakeup(self) -> None:
        self.wake()
        self._report_wakeup()
        if self._pool.engine.features.coalesces_wakeups and self._groups:
            loop = asyncio.get_running_loop()
            for timer in self._retry_timers:
                timer.cancel()
            self._retry_timers = [loop.call_later(seconds, self.wake) for seconds in RETRY_SECONDS]

    async def _run(self) -> None:
        poll_at = 0.0
        while not self._is_stopped:
            if await self._wait_for_work(poll_at):
                # With jitter: servers that were started together must not poll together for ever.
                poll_at = asyncio.get_running_loop().time() + POLL_SECONDS * (1 - self._roll() / 5)
                self.wake()  # a wake-up may have been lost
            try:
                await self._claim_requested()
            except Exception:
                # All claims depend on this loop, so an error of any kind ends one tick only.
                logger.exception("a poll for jobs failed; it is tried again within a second")

    async def _wait_for_work(self, moment: float) -> bool:
        """Wait for a reason to poll; return whether the time `moment` has come."""
        # Checked first: wake-ups without a pause would otherwise postpone the poll of all groups for ever.
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
        keys = [key for key in self._requested if key in self._groups]
        self._requested.clear()
        for first in range(0, len(keys), GROUPS_PER_WRITE):
            await self._claim_and_distribute(keys[first : first + GROUPS_PER_WRITE])

    async def _claim_and_distribute(self, keys: Sequence[ClaimGroupKey]) -> None:
        # Groups may have emptied while others were polled.
        requests = [(key, self._room_of(key)) for key in keys if key in self._groups]
        if not requests:
            return
        results: Sequence[SettleAndClaimResult | Exception]
        try:
            results = await self._pool.write(partial(self._claim_groups, requests))
        except Exception as exc:  # the waiting claims must be answered, whatever the error is
            results = [exc] * len(requests)
        self._count(results)
        left: list[Job] = []
        for (key, room), result in zip(requests, results, strict=True):
            complete, rest = await self._load_payloads(key, result)
            left += [*rest, *self._distribute(key, room, complete)]
        await self.give_back(left)

    def _room_of(self, key: ClaimGroupKey) -> int:
        return min(self._groups[key].room, self._batch_sizes.get(key, MAX_CLAIM))

    async def _load_payloads(
        self, key: ClaimGroupKey, result: SettleAndClaimResult | Exception
    ) -> tuple[SettleAndClaimResult | Exception, Sequence[Job]]:
        """Return the result with the payloads that were left out, and the jobs beyond the byte budget."""
        if isinstance(result, Exception):
            return result, ()
        ready, rest = list(result.jobs), list[Job]()
        if not all(job.payload for job in result.jobs):
            try:
                ready, rest = await self._pool.read_fast(partial(read_payloads, jobs=result.jobs))
            except Exception as exc:  # the claim is committed, so its jobs must be handed back
                return exc, result.jobs
        self._adapt_batch_size(key, len(ready), has_rest=bool(rest))
        return replace(result, jobs=tuple(ready)), rest

    def _adapt_batch_size(self, key: ClaimGroupKey, jobs: int, *, has_rest: bool) -> None:
        """Claim fewer jobs next time if some had to be handed back, and twice as many if none had."""
        size = jobs if has_rest else 2 * self._batch_sizes.pop(key, MAX_CLAIM)
        if size < MAX_CLAIM and len(self._batch_sizes) < MAX_REMEMBERED_GROUPS:
            self._batch_sizes[key] = size

    def _count(self, results: Sequence[SettleAndClaimResult | Exception]) -> None:
        now = self._pool.clock.monotonic()
        for result in results:
            if isinstance(result, SettleAndClaimResult):
                self.metrics.count_claimed(result.jobs, now)

    def _claim_groups(
        self, requests: Sequence[tuple[ClaimGroupKey, int]], store: Store
    ) -> list[SettleAndClaimResult | Exception]:
        """Call settle_and_claim once for each group; a failure costs the groups before it nothing."""
        results: list[SettleAndClaimResult | Exception] = []
        max_payload = payload_limit(sum(room for _, room in requests))
        for key, room in requests:
            try:
                results.append(
                    store.settle_and_claim(self.worker, claims=key.queue_claims(room, max_payload), room=room)
                )
            except StoreUnavailable as exc:
                if not any(isinstance(result, SettleAndClaimResult) and result.jobs for result in results):
                    raise  # the circuit breaker counts it
                # The other groups would each run into the same time-out, with all writes queued behind them.
                return results + [exc] * (len(requests) - len(results))
            except Exception as exc:  # jobs of the groups before must reach their clients
                results.append(exc)
        return results

    def _distribute(
        self, key: ClaimGroupKey, room: int, result: SettleAndClaimResult | Exception
    ) -> Sequence[Job]:
        group = self._groups.get(key)
        if isinstance(result, Exception):
            if group is not None:
                group.fail(result)
            return ()
        if group is None:
            return result.jobs
        left = group.distribute(result.jobs)
        # Not dry after a claim or wake-up during this poll: the poll may have been too early for it.
        group.is_dry = bool(group.waiters) and len(result.jobs) < room and key not in self._requested
        if group.waiters and len(result.jobs) == room:
            self._request_claim(key)  # the group waits for more jobs than one poll claims
        group.stop_timer()
        if result.next_due_ms is not None and group.waiters:
            loop = asyncio.get_running_loop()
            group.due_timer = loop.call_later(result.next_due_ms / 1_000, self._request_claim, key)
        return left


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # The loop may have been closed since the wake-up; then no claim waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
