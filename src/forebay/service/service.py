"""Service: all resources of one process, shared by every protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import random

from forebay.clock import Clock, SystemClock
from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
from forebay.domain.job import WorkerId
from forebay.errors import StoreUnavailable
from forebay.maintenance.lease_sweeper import LEASE_MS
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.operations.maintenance_task import MaintenanceTask
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.service.request_log import Refusals
from forebay.service.resources.alerts import AlertResource
from forebay.service.resources.api_keys import KeyResource
from forebay.service.resources.audit import AuditResource
from forebay.service.resources.concurrency_and_rate_limits import LimitResource
from forebay.service.resources.dead_letters import DeadLetterResource
from forebay.service.resources.debug import DebugResource
from forebay.service.resources.gradual_revives import GradualReviveResource
from forebay.service.resources.job_admin import JobAdminResource
from forebay.service.resources.job_claims import ClaimResource
from forebay.service.resources.job_reads import JobReads
from forebay.service.resources.logins import Logins, LoginSettings
from forebay.service.resources.metrics import MetricResource
from forebay.service.resources.producer_jobs import JobResource
from forebay.service.resources.queues import QueueResource
from forebay.service.resources.schedules import ScheduleResource
from forebay.service.resources.workers_and_commands import WorkerResource
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.event_feed import EventFeed
from forebay.service.runtime.maintenance_loop import MaintenanceLoop
from forebay.service.runtime.remote_wakeup_polls import WakeupPolls
from forebay.service.runtime.request_stats import RequestStats
from forebay.service.runtime.store_pool import StorePool
from forebay.service.runtime.store_readiness import StoreCheck
from forebay.service.schema.base import LONGEST_WAIT_SECONDS
from forebay.stores.contract.engine import Engine
from forebay.stores.id_generator import new_worker_id
from forebay.telemetry.observers import SettledAttempt


class Service:
    """Resources on one store. Created and started on an event loop.

    It remembers only waiting requests, so any number of services may share a store. No request waits longer
    than `longest_wait` seconds, whatever it asks for, because a proxy may cut a silent connection. It runs
    `maintenance_tasks`, by default those of every worker, which deliver alerts by `policy`. `logins` says how
    browsers reach it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock | None = None,
        roll: Callable[[], float] = random,
        longest_wait: float = LONGEST_WAIT_SECONDS,
        maintenance_tasks: Sequence[MaintenanceTask] | None = None,
        policy: DeliveryPolicy | None = None,
        logins: LoginSettings | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.pool: StorePool = StorePool(engine, clock)
        self.refusals: Refusals = Refusals(clock)
        self._check_store = StoreCheck(lambda: self.pool.read(lambda reader: reader.now()), clock)
        worker = WorkerId(f"service-{new_worker_id()}")
        metrics = MetricsRecorder(worker, clock)
        if maintenance_tasks is None:
            maintenance_tasks = standard_tasks(
                sweeper=new_worker_id(),
                clock=clock,
                roll=roll,
                engine=engine,
                on_settled=partial(_record_swept, metrics),
                policy=policy,
            )
        self.wakeup_polls: WakeupPolls = WakeupPolls(
            worker, longest_wait, coalesces_wakeups=engine.features.coalesces_wakeups
        )
        self.claim_waiters: ClaimWaiters = ClaimWaiters(
            self.pool, worker, longest_wait, roll, metrics, self.wakeup_polls.on_wakeup
        )
        self.maintenance: MaintenanceLoop = MaintenanceLoop(
            self.pool, maintenance_tasks, metrics, self.claim_waiters.presence, roll
        )
        self.events: EventFeed = EventFeed(self.pool)
        self.job_reads: JobReads = JobReads(self.pool)
        self.request_stats: RequestStats = RequestStats(clock)
        self.metrics: MetricResource = MetricResource(self.pool, self.request_stats)
        self.jobs: JobResource = JobResource(
            self.pool, self.claim_waiters, self.job_reads, self.request_stats
        )
        self.claims: ClaimResource = ClaimResource(self.pool, self.claim_waiters, roll)
        self.job_admin: JobAdminResource = JobAdminResource(self.pool, self.claim_waiters)
        self.queues: QueueResource = QueueResource(self.pool, self.claim_waiters)
        self.dead_letters: DeadLetterResource = DeadLetterResource(self.pool, self.claim_waiters)
        self.gradual_revives: GradualReviveResource = GradualReviveResource(self.pool)
        self.schedules: ScheduleResource = ScheduleResource(self.pool, self.claim_waiters, roll)
        self.workers: WorkerResource = WorkerResource(self.pool)
        self.limits: LimitResource = LimitResource(self.pool, self.claim_waiters)
        self.keys: KeyResource = KeyResource(self.pool)
        self.audit: AuditResource = AuditResource(self.pool)
        self.logins: Logins = Logins(self.pool, logins or LoginSettings())
        self.alerts: AlertResource = AlertResource(self.pool)
        self.debug: DebugResource = DebugResource(self.pool, self.claim_waiters, roll)

    async def start(self) -> None:
        """Start to listen for wake-ups of the store and to run maintenance."""
        self.claim_waiters.start()
        self.maintenance.start()

    def end_waits(self) -> None:
        """End all waits and streams, and allow no new ones: a stop is near. Other requests are still
        served."""
        self.claim_waiters.end_waits()
        self.wakeup_polls.end()
        self.maintenance.request_stop()
        self.events.end_streams()

    async def stop(self) -> None:
        """Answer waiting requests and close the store handles. May be called twice."""
        try:
            self.end_waits()
            await self.events.stop()
            await self.claim_waiters.stop()
            await self.maintenance.stop()
            await self.claims.stop()
            await self.debug.stop()
            await self.maintenance.write_metrics()
        finally:
            await self.pool.close()

    async def check(self) -> None:
        """Raise StoreUnavailable unless the store answers and claims are served."""
        if not self.claim_waiters.is_running:
            raise StoreUnavailable("this server claims no jobs: it has not started, or is stopping")
        await self._check_store()


def _record_swept(metrics: MetricsRecorder, ends: Sequence[SettledAttempt]) -> None:
    if ends:
        metrics.count_swept(ends, (ends[0][0].lease_expires_at or 0) - LEASE_MS)
