"""The duties that everybody who consumes jobs runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from forebay.app.duty import Duty
from forebay.app.hooks import Hooks
from forebay.clock import Clock
from forebay.domain.job import WorkerId
from forebay.scheduler.alerting import Alerting
from forebay.scheduler.firing import FiringSchedules
from forebay.scheduler.measuring import Measuring
from forebay.scheduler.promoting import Promoting
from forebay.scheduler.pruning import Pruning
from forebay.scheduler.ramping import Ramping
from forebay.scheduler.rescoring import Rescoring
from forebay.scheduler.sweeping import Sweeping, Tell
from forebay.scheduler.unserved_queues import UnservedQueueWarner
from forebay.stores.protocol import Engine

if TYPE_CHECKING:
    from forebay.domain.delivery import DeliveryPolicy


def standard_duties(  # noqa: PLR0913 - each is a thing that a process may say about its duties
    *,
    sweeper: WorkerId,
    clock: Clock,
    roll: Callable[[], float],
    hooks: Hooks | None = None,
    notices_death: bool = True,
    measures: bool = True,
    engine: Engine | None = None,
    tell: Tell | None = None,
    policy: DeliveryPolicy | None = None,
) -> list[Duty]:
    """Promote, fire, sweep, rescore, prune and, unless told otherwise, measure. The sweeper sweeps under a
    worker id of its own; for the dead alone only where the store notices a death. Who is given no engine
    cannot look, and leaves ramps, alerts and queues without workers to others; alerts are about what was
    measured. `tell` hears of attempts that were lost. The `policy` says where alerts may be delivered."""
    sweep = partial(Sweeping, sweeper=sweeper, clock=clock, roll=roll, hooks=hooks, tell=tell)
    sweeps = [sweep(), sweep(only_dead=True)] if notices_death else [sweep()]
    measuring: list[Duty] = [Measuring(clock)] if measures else []
    ramps: list[Duty] = [] if engine is None else [Ramping(engine.reader, clock)]
    alerts: list[Duty] = [Alerting(engine, clock, policy)] if engine is not None and measures else []
    telling: list[Duty] = [] if engine is None else [UnservedQueueWarner(engine.reader)]
    others: list[Duty] = [Rescoring(), Pruning(), *measuring, *ramps, *alerts, *telling]
    return [Promoting(), FiringSchedules(roll=roll), *sweeps, *others]
