"""Everything that the service can do, in one hand: made once for a process, used by every protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import random

from forebay.app.consumer import new_worker
from forebay.app.duty import Duty
from forebay.app.metrics_recorder import MetricsRecorder
from forebay.clock import Clock, SystemClock
from forebay.domain.delivery import DeliveryPolicy
from forebay.domain.job import WorkerId
from forebay.errors import StoreUnavailable
from forebay.scheduler.standard import standard_duties
from forebay.scheduler.sweeping import LEASE_MS
from forebay.service.operations.administering import Administering
from forebay.service.operations.alerting import Alerting
from forebay.service.operations.consuming import Consuming
from forebay.service.operations.debugging import Debugging
from forebay.service.operations.desk import Desk
from forebay.service.operations.keeping import Keeping
from forebay.service.operations.logins import Logins, LoginSettings
from forebay.service.operations.looking import Looking
from forebay.service.operations.measuring import Measuring
from forebay.service.operations.producing import Producing
from forebay.service.operations.requests import Requests
from forebay.service.operations.reviving import Reviving
from forebay.service.operations.steering import Steering
from forebay.service.operations.store_check import StoreCheck
from forebay.service.operations.waiting import Waiting
from forebay.service.operations.watching import Watching
from forebay.service.request_log import Refusals
from forebay.service.schema.shared import LONGEST_WAIT_SECONDS
from forebay.stores.protocol import Engine
from forebay.telemetry.observing import End


class Service:
    """The operations on one store. Made and started on an event loop; it remembers nobody but those who wait,
    so any number may run beside each other. Nobody waits for longer than `longest_wait` seconds, whatever
    they ask for: something between here and them may cut a connection that is silent for long. It does
    `duties`, those of every worker if none are given; these deliver alerts by the `policy`. `logins` says how
    browsers reach it."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        roll: Callable[[], float] = random,
        longest_wait: float = LONGEST_WAIT_SECONDS,
        duties: Sequence[Duty] | None = None,
        policy: DeliveryPolicy | None = None,
        logins: LoginSettings | None = None,
    ) -> None:
        used = clock or SystemClock()
        self.desk: Desk = Desk(engine, used)
        self.refusals: Refusals = Refusals(used)
        self._check_store = StoreCheck(lambda: self.desk.read(lambda reader: reader.now()), used)
        worker = WorkerId(f"service-{new_worker()}")
        metrics = MetricsRecorder(worker, used)
        if duties is None:
            duties = standard_duties(
                sweeper=new_worker(),
                clock=used,
                roll=roll,
                engine=engine,
                tell=partial(_count_lost, metrics),
                policy=policy,
            )
        self.waiting: Waiting = Waiting(self.desk, worker, duties, longest_wait, roll, metrics)
        self.watching: Watching = Watching(self.desk)
        self.looking: Looking = Looking(self.desk)
        self.requests: Requests = Requests(used)
        self.measuring: Measuring = Measuring(self.desk, self.requests)
        self.producing: Producing = Producing(self.desk, self.waiting, self.looking, self.requests)
        self.consuming: Consuming = Consuming(self.desk, self.waiting, roll)
        self.administering: Administering = Administering(self.desk, self.waiting)
        self.reviving: Reviving = Reviving(self.desk)
        self.keeping: Keeping = Keeping(self.desk)
        self.logins: Logins = Logins(self.desk, logins or LoginSettings())
        self.alerting: Alerting = Alerting(self.desk)
        self.debugging: Debugging = Debugging(self.desk, self.waiting, roll)
        self.steering: Steering = Steering(self.desk, self.waiting, roll)

    async def start(self) -> None:
        """Begin to listen for the store's hints and to do the duties."""
        self.waiting.start()

    def refuse(self) -> None:
        """Let nobody wait or look on any more, because a stop is near; other requests are served."""
        self.waiting.refuse()
        self.watching.refuse()

    async def stop(self) -> None:
        """Answer everybody who waits, let go of the store. Stopping twice is fine."""
        try:
            await self.watching.stop()
            await self.waiting.stop()
            await self.consuming.stop()
            await self.debugging.stop()
            await self.waiting.write_metrics()
        finally:
            await self.desk.close()

    async def check(self) -> None:
        """Whether the store answers and jobs are looked for; raises StoreUnavailable."""
        if not self.waiting.is_running:
            raise StoreUnavailable("this server looks for no jobs: it has not started, or is about to end")
        await self._check_store()


def _count_lost(metrics: MetricsRecorder, ends: Sequence[End]) -> None:
    if ends:
        metrics.swept(ends, (ends[0][0].lease_expires_at or 0) - LEASE_MS)
