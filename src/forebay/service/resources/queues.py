"""What operators do to queues, and to many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from forebay.domain.backpressure import Throughput
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import LIVE, WAITING, JobState
from forebay.domain.query import Counts, JobQuery, Page
from forebay.domain.queue import Queue, QueueState
from forebay.errors import IllegalTransition, InvalidJob, JobNotFound, QueueNotEmpty, QueueNotFound
from forebay.operations import bulk
from forebay.operations.search import count_jobs, search_jobs
from forebay.payload.codec import check_new_payload, check_queue, encode_tagged_call
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.converter import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import at, length
from forebay.service.schema.dead_letters import DeadLetterRequest
from forebay.service.schema.job_views import JobList, job_list_item
from forebay.service.schema.jobs import ActionResponse, EnqueueResponse
from forebay.service.schema.payloads import check_not_masked
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropResponse,
    QueueList,
    QueueSettingsRequest,
    QueueView,
    queue_view,
)
from forebay.service.schema.search import (
    BulkRequest,
    BulkResponse,
    FilterRequest,
    JobFilter,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import ActionResult as StoreVerdict
from forebay.stores.contract.values import InsertResult

REVIVABLE: Final = frozenset({JobState.DEAD, JobState.CANCELLED})
DELETABLE: Final = frozenset(JobState) - {JobState.RUNNING}
DEAD: Final = frozenset({JobState.DEAD})


class BulkAction(Protocol):
    """Change all jobs that fit, tell the verdicts of each batch, and return how many jobs were changed."""

    def __call__(
        self, store: Store, reader: Reader, query: JobQuery, *, on_results: bulk.OnResults
    ) -> int: ...


class Administering:
    """Queues, searches, and what is done to all jobs that fit. Each job's change is atomic, the whole is not:
    what was broken off can be asked for again."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters

    # Queues

    async def queues(self) -> QueueList:
        """All queues with their jobs by state."""

        def look(reader: Reader) -> list[tuple[Queue, Counts, Throughput]]:
            found = reader.queues()
            names = [queue.name for queue in found]
            counts = reader.counts(names) if names else {}
            paces = reader.throughputs(names) if names else {}
            return [(queue, counts[queue.name], paces[queue.name]) for queue in found]

        return QueueList(queues=[queue_view(*one) for one in await self._pool.read(look)])

    async def queue(self, name: str) -> QueueView:
        """One queue; raises QueueNotFound."""
        wanted = QueueName(name)

        def look(reader: Reader) -> QueueView:
            queue = _require_queue(reader, wanted)
            return queue_view(queue, reader.counts([wanted])[wanted], reader.throughputs([wanted])[wanted])

        return await self._pool.read(look)

    async def create_queue(self, request: CreateQueueRequest, actor: str = "") -> QueueView:
        """A new queue; raises IllegalTransition if there is one of this name."""
        name = QueueName(request.name)
        known = await self._pool.read(lambda reader: reader.queues([name]))
        if known and known[0].state is not QueueState.DROPPED:
            raise IllegalTransition(f"there is a queue {name} already")
        # Somebody may create it between the look and this write; then this changes what is named here.
        return await self._save(name, request.settings.changes(), None, actor)

    async def configure_queue(self, name: str, request: QueueSettingsRequest, actor: str = "") -> QueueView:
        """Change settings of a queue; everybody follows at once."""
        await self._check_exists(name)
        return await self._save(QueueName(name), request.changes(), None, actor)

    async def set_state(self, name: str, state: QueueState, actor: str = "") -> QueueView:
        """Pause, resume or drain a queue."""
        await self._check_exists(name)
        return await self._save(QueueName(name), None, state, actor)

    async def drop_queue(self, name: str, *, force: bool, actor: str = "") -> DropResponse:
        """Close a queue for good. Raises QueueNotEmpty for one that has jobs, unless by force: then those
        that wait go to the dead letters."""
        wanted = QueueName(name)

        def look(reader: Reader) -> int:
            _require_queue(reader, wanted)
            return reader.counts([wanted])[wanted].live

        live = await self._pool.read(look)
        if live and not force:
            raise QueueNotEmpty(f"queue {name} still has {live} jobs to do; drain it, or use force")
        await self._pool.run_long(lambda store, _: bulk.drop_queue(store, wanted, force=force, actor=actor))
        return DropResponse(name=name, live_jobs=live)

    async def _check_exists(self, name: str) -> None:
        """Raise unless the queue is there: the store would make one under a mistyped name."""
        queue = await self._pool.read(lambda reader: _require_queue(reader, QueueName(name)))
        if queue.state is QueueState.DROPPED:
            raise IllegalTransition(f"queue {name} was deleted; create it again")

    async def _save(
        self, name: QueueName, changes: dict[str, object] | None, state: QueueState | None, actor: str
    ) -> QueueView:
        await self._pool.write(lambda store: store.save_queue(name, changes, state=state, actor=actor))
        self._claim_waiters.wake({name})
        return await self.queue(name)

    # Searches

    async def search(self, request: SearchRequest) -> JobList:
        """Jobs that fit, newest first."""
        return await self._list_jobs(request.where.query(), request)

    async def dead_letters(self, request: SearchRequest) -> JobList:
        """Dead letters that fit, newest first, with how many there are."""
        return await self._list_jobs(request.where.query(states=(JobState.DEAD,)), request)

    async def _list_jobs(self, query: JobQuery, request: SearchRequest) -> JobList:
        def look(reader: Reader) -> tuple[Page, tuple[int, bool] | None]:
            page = search_jobs(reader, query, request.limit, request.after)
            return page, count_jobs(reader, query) if request.with_total else None

        page, total = await self._pool.read(look)
        return JobList(
            jobs=[job_list_item(job) for job in page.jobs],
            after=page.after,
            has_more=page.after is not None,
            scanned_back_to=at(page.scanned_back_to),
            total=None if total is None else total[0],
            total_is_exact=None if total is None else total[1],
        )

    # Many jobs at once

    async def bulk(self, request: BulkRequest, actor: str = "") -> BulkResponse:
        """Cancel, revive or delete all jobs that fit, or say how many they are."""
        if request.where.is_empty and not request.all:
            raise InvalidJob(
                "a filter without conditions means all jobs: say so by everything", field="where"
            )
        deeds: dict[str, tuple[BulkAction, frozenset[JobState]]] = {
            "cancel": (partial(bulk.cancel_matching, reason=request.reason, actor=actor), LIVE),
            "revive": (
                partial(
                    bulk.revive_matching,
                    options=ReviveOptions(
                        queue=None if request.queue is None else QueueName(request.queue),
                        delay_ms=length(request.delay_seconds) or 0,
                        reset=request.reset,
                        actor=actor,
                    ),
                ),
                REVIVABLE,
            ),
            "delete": (partial(bulk.purge, actor=actor), DELETABLE),
        }
        deed, allowed = deeds[request.action]
        return await self._run_bulk(deed, allowed, request.where.query(), dry_run=request.dry_run)

    async def purge_queue(self, name: str, request: FilterRequest, actor: str = "") -> BulkResponse:
        """Delete jobs of a queue: those that wait, unless the filter names states; running ones stay."""
        query = await self._queue_query(name, request.where, WAITING)
        return await self._run_bulk(
            partial(bulk.purge, actor=actor), DELETABLE, query, dry_run=request.dry_run
        )

    async def requeue(self, name: str, request: FilterRequest, actor: str = "") -> BulkResponse:
        """Put dead and cancelled jobs of a queue back."""
        query = await self._queue_query(name, request.where, REVIVABLE)
        return await self._run_bulk(
            partial(bulk.revive_matching, options=ReviveOptions(actor=actor)),
            REVIVABLE,
            query,
            dry_run=request.dry_run,
        )

    async def revive_dead(self, request: DeadLetterRequest, actor: str = "") -> BulkResponse:
        """Put dead letters back."""
        deed = partial(bulk.revive_matching, options=ReviveOptions(actor=actor), group=request.group)
        return await self._run_bulk(
            deed, DEAD, request.where.query(), dry_run=request.dry_run, group=request.group
        )

    async def purge_dead(self, request: DeadLetterRequest, actor: str = "") -> BulkResponse:
        """Delete dead letters for good."""
        deed = partial(bulk.purge, actor=actor, group=request.group)
        return await self._run_bulk(
            deed, DEAD, request.where.query(), dry_run=request.dry_run, group=request.group
        )

    async def _queue_query(self, name: str, job_filter: JobFilter, states: frozenset[JobState]) -> JobQuery:
        await self._pool.read(lambda reader: _require_queue(reader, QueueName(name)))
        query = job_filter.query(queues=(QueueName(name),))
        return query if query.states else replace(query, states=tuple(sorted(states)))

    async def _run_bulk(
        self,
        action: BulkAction,
        allowed: frozenset[JobState],
        query: JobQuery,
        *,
        dry_run: bool,
        group: str | None = None,
    ) -> BulkResponse:
        states = tuple(state for state in query.states or JobState if state in allowed)
        if not states:
            return BulkResponse(matched=0, matched_is_exact=True, affected=0, dry_run=dry_run, busy=0)
        narrow = replace(query, states=states)
        if group is None:
            matched, is_exact = await self._pool.read(lambda reader: count_jobs(reader, narrow))
        else:  # whoever just looks does not wait for one who goes through all dead letters
            matched, is_exact = await self._pool.run_long(lambda _, reader: count_jobs(reader, narrow, group))
        done, busy = 0, 0
        if (matched or not is_exact) and not dry_run:
            done, busy = await self._pool.run_long(
                lambda store, reader: _run_action(action, store, reader, narrow)
            )
            self._claim_waiters.wake()
        return BulkResponse(
            matched=matched, matched_is_exact=is_exact, affected=done, dry_run=dry_run, busy=busy
        )

    # One job

    async def delete(self, job_id: str, actor: str = "") -> ActionResponse:
        """Remove a job that does not run."""
        [verdict] = await self._pool.write(lambda store: store.delete([JobId(job_id)], actor=actor))
        return _action_response(verdict)

    async def revive(self, job_id: str, request: ReviveRequest, actor: str = "") -> ActionResponse:
        """Put a dead or cancelled job back."""

        def revive(store: Store) -> StoreVerdict:
            [verdict] = store.revive(
                [JobId(job_id)],
                queue=None if request.queue is None else QueueName(request.queue),
                delay_ms=length(request.delay_seconds) or 0,
                reset=request.reset,
                actor=actor,
                dependants=request.dependants,
            )
            return verdict

        verdict = await self._pool.write(revive)
        self._claim_waiters.wake()
        return _action_response(verdict)

    async def replay(self, job_id: str, request: ReplayRequest, actor: str = "") -> EnqueueResponse:
        """A new job like an earlier one, whatever became of that."""
        [found] = await self._pool.jobs([JobId(job_id)])
        if found is None:
            raise JobNotFound(f"there is no job {job_id}")
        job = await self._pool.converter.run(BODY_SIZE.get(), _copy_job, found, request)

        def insert(store: Store) -> InsertResult:
            [receipt] = store.insert([job], create_queues=False)
            # Jobs that are enqueued leave no line, so this one comes by a call of its own, a moment later.
            detail = f"like {found.id}"
            store.record_events(
                [
                    Event(
                        kind=EventKind.REPLAYED,
                        job_id=receipt.id,
                        queue=job.queue,
                        actor=actor or None,
                        detail=detail,
                    )
                ]
            )
            return receipt

        receipt = await self._pool.write(insert)
        self._claim_waiters.wake({job.queue})
        return EnqueueResponse(
            id=receipt.id or "", queue=job.queue, state=receipt.state, is_duplicate=not receipt.is_new
        )


def _require_queue(reader: Reader, name: QueueName) -> Queue:
    found: Sequence[Queue] = reader.queues([name])
    if not found:
        raise QueueNotFound(f"there is no queue {name}")
    return found[0]


def _run_action(action: BulkAction, store: Store, reader: Reader, query: JobQuery) -> tuple[int, int]:
    """Return how many jobs were changed, and how many another transaction holds."""
    busy = 0

    def hear(verdicts: Sequence[StoreVerdict]) -> None:
        nonlocal busy
        busy += sum(verdict.is_busy for verdict in verdicts)

    return action(store, reader, query, on_results=hear), busy


def _action_response(verdict: StoreVerdict) -> ActionResponse:
    verdict.check()
    return ActionResponse(
        id=verdict.job_id, applied=verdict.applied, state=verdict.state, reason=verdict.reason
    )


def _copy_job(job: Job, request: ReplayRequest) -> NewJob:
    """The request for such a job; its keys and its times are its own."""
    payload = job.payload
    if request.args is not None or request.kwargs is not None:
        if request.args is None or request.kwargs is None:
            raise InvalidJob("give both args and kwargs, or neither to keep those of the job", field="args")
        check_not_masked(request.args, request.kwargs)
        payload = encode_tagged_call(request.args, request.kwargs)
    check_new_payload(payload, None)
    check_queue(payload, request.queue or job.queue)
    return NewJob(
        task=job.task,
        payload=payload,
        queue=QueueName(request.queue or job.queue),
        priority=job.priority if request.priority is None else request.priority,
        delay_ms=length(request.delay_seconds) or 0,
        timeout_ms=job.timeout_ms,
        lease_ms=job.lease_ms,
        extension_ms=job.extension_ms,
        policy=job.policy,
        metadata=job.metadata,
        tags=job.tags,
        correlation_id=job.correlation_id,
        parent_id=job.id,
        limit_keys=job.limit_keys,
        cost=job.cost,
    )
