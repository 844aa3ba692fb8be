"""Maintenance tasks: periodic work on a store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

from forebay.errors import StoreError
from forebay.stores.contract.store import Store

# A process that runs more batches at a time would neglect its other work.
MAX_BATCHES: Final = 10

logger: logging.Logger = logging.getLogger(__name__)


class MaintenanceTask(Protocol):
    """Periodic work that is due every `every_ms`. The first process to acquire a run does it.

    A task is bounded, safe to repeat and safe with any number of processes: there is no leader.
    """

    @property
    def name(self) -> str:
        """Name of the task in `acquire_maintenance`."""
        ...

    @property
    def every_ms(self) -> int: ...

    @property
    def is_ready(self) -> bool:
        """True if this process may run it now. Checked before `acquire_maintenance`, so that a process that
        must wait does not use up the run."""
        ...

    def run(self, store: Store) -> bool:
        """Run one bounded batch; return true if there is more to do."""
        ...


@runtime_checkable
class OutageAware(Protocol):
    """A task that could do harm right after an outage, and so must be notified of its end."""

    def on_connected(self) -> None:
        """Handle that the store is reachable again."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A task that holds a handle of its own from run to run, or has one in a thread."""

    def close(self) -> None:
        """Close the handle: no further run follows. Closing twice is fine."""
        ...


def close_tasks(tasks: Iterable[MaintenanceTask]) -> None:
    """Close the tasks after their last run. An error of one leaves no handle of another task open."""
    for task in tasks:
        if isinstance(task, Closeable):
            try:
                task.close()
            except Exception:
                logger.exception("maintenance task %r could not be closed", task.name)


def notify_connected(tasks: Iterable[MaintenanceTask]) -> None:
    """Notify the tasks that the store answers again. They cannot detect it: during an outage they do not
    run."""
    for task in tasks:
        if isinstance(task, OutageAware):
            task.on_connected()


def run_due_tasks(store: Store, tasks: Iterable[MaintenanceTask]) -> bool:
    """Run the tasks that are due; return true if one of them has more to do.

    Only errors of the store are raised: they concern the caller too.
    """
    return any([_run_if_due(store, task) for task in tasks])


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
        # A fault in one task must neither stop the rest nor cost the caller the jobs that it has claimed.
        logger.exception("maintenance task %r has failed; it is tried again later", task.name)
        return False


def _run_batches(store: Store, task: MaintenanceTask) -> bool:
    # Ends with the first batch that leaves nothing to do.
    has_more = all(task.run(store) for _ in range(MAX_BATCHES))
    if has_more:
        # A backlog must not wait for the next run, or it would grow for ever.
        store.acquire_maintenance(task.name, 0)
    return has_more
