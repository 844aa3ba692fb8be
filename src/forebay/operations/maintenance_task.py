"""Duties: what has to be done by the clock with a store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from forebay.errors import StoreError
from forebay.stores.contract.store import Store

# More than this at a time, and whoever runs the duties would neglect its other work.
MAX_BATCHES: Final = 10

logger: logging.Logger = logging.getLogger(__name__)


class MaintenanceTask(Protocol):
    """Something to do every `every_ms`, by whoever comes first.

    A duty is bounded, safe to repeat and safe with any number of runners: there is no leader.
    """

    @property
    def name(self) -> str:
        """What it is called in `take_duty`."""
        ...

    @property
    def every_ms(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """Whether this runner may do it now. Asked before `take_duty`, so that one who must hold back does
        not use up the turn of one who need not."""
        ...

    def run(self, store: Store) -> bool:
        """Do one bounded batch; true if there is more to do."""
        ...


@runtime_checkable
class OutageAware(Protocol):
    """A duty that could do harm right after an outage, and so wants to know when one is over."""

    def on_connected(self) -> None:
        """The store has just been reached again."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A duty that keeps a handle of its own from turn to turn, or has one in a thread."""

    def close(self) -> None:
        """Let go of it: there will be no other turn. Doing so twice is fine."""
        ...


def close_tasks(tasks: Iterable[MaintenanceTask]) -> None:
    """Say that there will be no other turn. One that goes wrong leaves neither the handles of the others nor
    those of whoever has run them behind."""
    for duty in tasks:
        if isinstance(duty, Closeable):
            try:
                duty.close()
            except Exception:
                logger.exception("the duty %r could not be closed", duty.name)


def notify_connected(tasks: Iterable[MaintenanceTask]) -> None:
    """Say that the store answers again. A duty cannot find that out by itself: during an outage its owner has
    no answer either, and so does not even come to run it."""
    for duty in tasks:
        if isinstance(duty, OutageAware):
            duty.on_connected()


def run_due_tasks(store: Store, tasks: Iterable[MaintenanceTask]) -> bool:
    """Do the duties that are due and that nobody else has done; true if one of them has more to do.

    Only what is wrong with the store gets out: that concerns whoever runs them too.
    """
    return any([_run_if_due(store, duty) for duty in tasks])


def _run_if_due(store: Store, task: MaintenanceTask) -> bool:
    try:
        return (
            task.is_ready
            and store.acquire_maintenance(task.name, task.every_ms)
            and _run_batches(store, task)
        )
    except StoreError:
        raise
    except Exception:
        # A fault in one duty costs neither the others their turn nor its runner the jobs it holds.
        logger.exception("the duty %r went wrong; it is tried again later", task.name)
        return False


def _run_batches(store: Store, task: MaintenanceTask) -> bool:
    # Ends with the first batch that leaves nothing to do.
    has_more = all(task.run(store) for _ in range(MAX_BATCHES))
    if has_more:
        # What piles up must not wait for the next turn, or it would pile up for ever.
        store.acquire_maintenance(task.name, 0)
    return has_more
