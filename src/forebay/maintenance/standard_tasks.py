"""Standard maintenance tasks: those that every worker and consumer runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.clock import Clock
from forebay.domain.job import WorkerId
from forebay.maintenance.alert_evaluator import AlertEvaluator
from forebay.maintenance.due_job_promoter import Promoter
from forebay.maintenance.gradual_reviver import GradualReviver
from forebay.maintenance.lease_sweeper import OnSettled, Sweeper
from forebay.maintenance.metrics_rollup import MetricsRollup
from forebay.maintenance.pruner_and_audit_chain import Pruner
from forebay.maintenance.rank_rescorer import Rescorer
from forebay.maintenance.schedule_enqueuer import ScheduleEnqueuer
from forebay.maintenance.unserved_queue_warner import UnservedQueueWarner
from forebay.operations.maintenance_task import MaintenanceTask
from forebay.stores.contract.engine import Engine

if TYPE_CHECKING:
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy


def standard_tasks(  # noqa: PLR0913 - each is a setting of a process for its maintenance
    *,
    sweeper: WorkerId,
    clock: Clock,
    roll: Callable[[], float],
    hooks: Hooks | None = None,
    notices_death: bool = True,
    has_metrics: bool = True,
    engine: Engine | None = None,
    on_settled: OnSettled | None = None,
    policy: DeliveryPolicy | None = None,
) -> list[MaintenanceTask]:
    """Return the tasks: promote, fire, sweep, rescore, prune, and measure if `has_metrics`.

    The sweeper has a worker id of its own. Where the store notices a death, a second one sweeps for dead
    workers alone. Without an `engine` gradual revives, alerts and queues without workers are left to other
    processes. Alerts are about what was measured. `on_settled` gets the lost attempts. The `policy` says
    where alerts may be delivered.
    """
    sweep = partial(Sweeper, sweeper=sweeper, clock=clock, roll=roll, hooks=hooks, on_settled=on_settled)
    sweeps = [sweep(), sweep(only_dead=True)] if notices_death else [sweep()]
    measuring: list[MaintenanceTask] = [MetricsRollup(clock)] if has_metrics else []
    reviving: list[MaintenanceTask] = [] if engine is None else [GradualReviver(engine.reader, clock)]
    alerts: list[MaintenanceTask] = (
        [AlertEvaluator(engine, clock, policy)] if engine is not None and has_metrics else []
    )
    warning: list[MaintenanceTask] = [] if engine is None else [UnservedQueueWarner(engine.reader)]
    others: list[MaintenanceTask] = [Rescorer(), Pruner(), *measuring, *reviving, *alerts, *warning]
    return [Promoter(), ScheduleEnqueuer(roll=roll), *sweeps, *others]
