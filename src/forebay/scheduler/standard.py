"""The duties that everybody who consumes jobs runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.app.duty import Duty
from forebay.app.hooks import Hooks
from forebay.clock import Clock
from forebay.domain.job import WorkerId
from forebay.scheduler.firing import FiringSchedules
from forebay.scheduler.measuring import Measuring
from forebay.scheduler.promoting import Promoting
from forebay.scheduler.pruning import Pruning
from forebay.scheduler.ramping import Ramping
from forebay.scheduler.rescoring import Rescoring
from forebay.scheduler.sweeping import Sweeping
from forebay.stores.protocol import Reader


def standard_duties(
    *,
    sweeper: WorkerId,
    clock: Clock,
    roll: Callable[[], float],
    reader: Callable[[], Reader] | None = None,
    hooks: Hooks | None = None,
    notices_death: bool = True,
    measures: bool = True,
) -> list[Duty]:
    """Promote, fire, sweep, rescore, prune, ramp and, unless told otherwise, measure. The sweeper sweeps
    under a worker id of its own; for the dead alone only where the store notices a death. Who cannot look
    leaves ramps to others."""
    sweep = partial(Sweeping, sweeper=sweeper, clock=clock, roll=roll, hooks=hooks)
    sweeps = [sweep(), sweep(only_dead=True)] if notices_death else [sweep()]
    measuring = [Measuring(clock)] if measures else []
    ramps = [] if reader is None else [Ramping(reader=reader)]
    others: list[Duty] = [Rescoring(), Pruning(), *measuring, *ramps]
    return [Promoting(), FiringSchedules(roll=roll), *sweeps, *others]
