"""The duties that everybody who consumes jobs runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.app.duty import Duty
from forebay.app.hooks import Hooks
from forebay.clock import Clock
from forebay.domain.job import WorkerId
from forebay.scheduler.promoting import Promoting
from forebay.scheduler.pruning import Pruning
from forebay.scheduler.rescoring import Rescoring
from forebay.scheduler.sweeping import Sweeping


def standard_duties(
    *, sweeper: WorkerId, clock: Clock, roll: Callable[[], float], hooks: Hooks | None = None
) -> list[Duty]:
    """Promote, sweep, rescore and prune. The sweeper sweeps under a worker id of its own."""
    sweep = partial(Sweeping, sweeper=sweeper, clock=clock, roll=roll, hooks=hooks)
    return [Promoting(), sweep(), sweep(only_dead=True), Rescoring(), Pruning()]
