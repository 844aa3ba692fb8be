"""Scratch store: the store of a trial, refused unless it is empty, and restored at the end."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

import msgspec

from forebay.app.schedules import all_schedules
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import QueueName
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue
from forebay.domain.schedule import Schedule
from forebay.errors import ConfigError
from forebay.operations.bulk_actions import purge
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.url_redaction import redact_url

# Calls of a store whose changes outlast the jobs.
_WRITES: Final = {
    "save_schedule": "schedule",
    "save_queue": "queue",
    "drop_queue": "queue",
    "save_limit": "limit",
    "drop_limit": "limit",
}


class ScratchStore:
    """A store's content before a trial, and the trial's changes to it. Idempotency keys, documents, metrics
    and events cannot be taken back: they expire, or stay."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine, self._url = engine, url
        self._queues: dict[QueueName, Queue] = {}
        self._limits: dict[str, Limit] = {}
        self._changed: set[tuple[str, str]] = set()

    def check_empty(self) -> None:
        """Raise ConfigError for a store with jobs, schedules or workers: a test that is given the wrong store
        must not touch it."""
        with closing(self._engine.reader()) as reader:
            found = {
                "jobs": sum(count.total for count in reader.counts(()).values()),
                "schedules": len(all_schedules(reader)),
                "workers": len(reader.workers()),
            }
            self._queues = {queue.name: queue for queue in reader.queues()}
            self._limits = {limit.scope: limit for limit in reader.limits()}
        held = ", ".join(f"{count} {what}" for what, count in found.items() if count)
        if held:
            shown = redact_url(self._url)
            raise ConfigError(f"{shown!r} holds {held}; a trial needs a store without any")

    def record_call(self, operation: str, args: tuple[Any, ...], answer: Any) -> None:
        """Record a call that took effect in the store."""
        if operation in _WRITES:
            self._changed.add((_WRITES[operation], _name_of(args[0])))

    def restore(self) -> None:
        """Delete all jobs and undo this trial's changes. All else stays: other programs may have used the
        store in the meantime."""
        if not self._engine.features.is_shared:
            return
        with closing(self._engine.store()) as store, closing(self._engine.reader()) as reader:
            _stop_running(store, reader)
            purge(store, reader, JobQuery())
            for kind, name in sorted(self._changed):
                if kind == "schedule":
                    store.drop_schedule(name)
                elif kind == "queue":
                    self._restore_queue(store, QueueName(name))
                elif name in self._limits:
                    store.save_limit(self._limits[name])
                else:
                    store.drop_limit(name)

    def _restore_queue(self, store: Store, name: QueueName) -> None:
        was = self._queues.get(name, Queue(name=name))
        store.save_queue(name, msgspec.to_builtins(was.settings), state=was.state)


def _name_of(record: Schedule | Limit | str) -> str:
    if isinstance(record, Limit):
        return record.scope
    return record.name if isinstance(record, Schedule) else record


def _stop_running(store: Store, reader: Reader) -> None:
    after, is_over = None, False
    while not is_over:
        page = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=MAX_PAGE, after=after)
        store.cancel([job.id for job in page.jobs], "the trial is over", force=True)
        after, is_over = page.after, page.after is None
