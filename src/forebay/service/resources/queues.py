"""Queues: settings, states, purge and requeue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.job import QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import WAITING, JobState
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts
from forebay.domain.throughput import Throughput
from forebay.errors import IllegalTransition, QueueNotEmpty, QueueNotFound
from forebay.operations import bulk_actions
from forebay.service.resources.bulk_actions import DELETABLE, REVIVABLE, run_bulk
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import FilterRequest, JobFilter
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropResponse,
    QueueList,
    QueueSettingsRequest,
    QueueView,
    queue_view,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions


class QueueResource:
    """Queues of the store, with their jobs by state."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters

    async def queues(self) -> QueueList:
        """Return all queues with their jobs by state."""

        def load(reader: Reader) -> list[tuple[Queue, Counts, Throughput]]:
            found = reader.queues()
            names = [queue.name for queue in found]
            counts = reader.counts(names) if names else {}
            throughputs = reader.throughputs(names) if names else {}
            return [(queue, counts[queue.name], throughputs[queue.name]) for queue in found]

        return QueueList(queues=[queue_view(*row) for row in await self._pool.read(load)])

    async def queue(self, name: str) -> QueueView:
        """Return one queue; raises QueueNotFound."""
        queue_name = QueueName(name)

        def load(reader: Reader) -> QueueView:
            queue = _require_queue(reader, queue_name)
            counts, throughputs = reader.counts([queue_name]), reader.throughputs([queue_name])
            return queue_view(queue, counts[queue_name], throughputs[queue_name])

        return await self._pool.read(load)

    async def create_queue(self, request: CreateQueueRequest, actor: str = "") -> QueueView:
        """Create a queue; raises IllegalTransition if there is one of this name."""
        name = QueueName(request.name)
        known = await self._pool.read(lambda reader: reader.queues([name]))
        if known and known[0].state is not QueueState.DROPPED:
            raise IllegalTransition(f"there is a queue {name} already")
        # Another client may create it between the read and this write; the write then changes its settings.
        return await self._save(name, request.settings.changes(), None, actor)

    async def configure_queue(self, name: str, request: QueueSettingsRequest, actor: str = "") -> QueueView:
        """Change settings of a queue; workers and claims follow at once."""
        await self._check_exists(name)
        return await self._save(QueueName(name), request.changes(), None, actor)

    async def set_state(self, name: str, state: QueueState, actor: str = "") -> QueueView:
        """Pause, resume or drain a queue."""
        await self._check_exists(name)
        return await self._save(QueueName(name), None, state, actor)

    async def drop_queue(self, name: str, *, force: bool, actor: str = "") -> DropResponse:
        """Delete a queue. Raises QueueNotEmpty if it has jobs, unless `force` sends the waiting ones to the
        dead letters."""
        queue_name = QueueName(name)

        def count_live(reader: Reader) -> int:
            _require_queue(reader, queue_name)
            return reader.counts([queue_name])[queue_name].live

        live = await self._pool.read(count_live)
        if live and not force:
            raise QueueNotEmpty(f"queue {name} still has {live} jobs to do; drain it, or use force")
        await self._pool.run_long(
            lambda store, _: bulk_actions.drop_queue(store, queue_name, force=force, actor=actor)
        )
        return DropResponse(name=name, live_jobs=live)

    async def purge_queue(self, name: str, request: FilterRequest, actor: str = "") -> BulkResponse:
        """Delete jobs of a queue: the waiting ones, unless the filter names states. Running jobs stay."""
        query = await self._queue_query(name, request.where, WAITING)
        action = partial(bulk_actions.purge, actor=actor)
        return await run_bulk(
            self._pool, self._claim_waiters, action, DELETABLE, query, dry_run=request.dry_run
        )

    async def requeue(self, name: str, request: FilterRequest, actor: str = "") -> BulkResponse:
        """Revive dead and cancelled jobs of a queue."""
        query = await self._queue_query(name, request.where, REVIVABLE)
        action = partial(bulk_actions.revive_matching, options=ReviveOptions(actor=actor))
        return await run_bulk(
            self._pool, self._claim_waiters, action, REVIVABLE, query, dry_run=request.dry_run
        )

    async def _check_exists(self, name: str) -> None:
        """Raise unless the queue exists: the store would create one under a mistyped name."""
        queue = await self._pool.read(lambda reader: _require_queue(reader, QueueName(name)))
        if queue.state is QueueState.DROPPED:
            raise IllegalTransition(f"queue {name} was deleted; create it again")

    async def _save(
        self, name: QueueName, changes: dict[str, object] | None, state: QueueState | None, actor: str
    ) -> QueueView:
        await self._pool.write(lambda store: store.save_queue(name, changes, state=state, actor=actor))
        self._claim_waiters.wake({name})
        return await self.queue(name)

    async def _queue_query(self, name: str, job_filter: JobFilter, states: frozenset[JobState]) -> JobQuery:
        await self._pool.read(lambda reader: _require_queue(reader, QueueName(name)))
        query = job_filter.query(queues=(QueueName(name),))
        return query if query.states else replace(query, states=tuple(sorted(states)))


def _require_queue(reader: Reader, name: QueueName) -> Queue:
    found: Sequence[Queue] = reader.queues([name])
    if not found:
        raise QueueNotFound(f"there is no queue {name}")
    return found[0]
