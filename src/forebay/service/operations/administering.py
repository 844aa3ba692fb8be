"""What operators do to queues, and to many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from forebay.app import bulk
from forebay.app.codec import check_queue, check_whole, encode_tagged_call
from forebay.app.searching import counted, listed
from forebay.domain.history import Event, EventKind
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import LIVE, WAITING, JobState
from forebay.domain.pressure import Pace
from forebay.domain.query import Counts, JobQuery, Page
from forebay.domain.queue import Queue, QueueState
from forebay.errors import IllegalTransition, InvalidJob, JobNotFound, QueueNotEmpty, QueueNotFound
from forebay.service.operations.converter import BODY_SIZE
from forebay.service.operations.desk import Desk
from forebay.service.operations.waiting import Waiting
from forebay.service.schema.calls import check_told
from forebay.service.schema.looking import JobList, job_line
from forebay.service.schema.producing import Accepted, Verdict
from forebay.service.schema.queues import (
    CreateQueueRequest,
    DropAnswer,
    QueueList,
    QueueShape,
    SettingsRequest,
    queue_shape,
)
from forebay.service.schema.reviving import DeadRequest
from forebay.service.schema.searching import (
    BulkAnswer,
    BulkRequest,
    FilterRequest,
    JobFilter,
    ReplayRequest,
    ReviveRequest,
    SearchRequest,
)
from forebay.service.schema.shared import at, length
from forebay.stores.protocol import Reader, Receipt, Store
from forebay.stores.protocol import Verdict as StoreVerdict
from forebay.stores.reviving import Revival

REVIVABLE: Final = frozenset({JobState.DEAD, JobState.CANCELLED})
DELETABLE: Final = frozenset(JobState) - {JobState.RUNNING}
DEAD: Final = frozenset({JobState.DEAD})


class Deed(Protocol):
    """Change all jobs that fit, tell the verdicts of each batch, and return how many jobs were changed."""

    def __call__(self, store: Store, reader: Reader, query: JobQuery, *, hear: bulk.Hear) -> int: ...


class Administering:
    """Queues, searches, and what is done to all jobs that fit. Each job's change is atomic, the whole is not:
    what was broken off can be asked for again."""

    def __init__(self, desk: Desk, waiting: Waiting) -> None:
        self._desk = desk
        self._waiting = waiting

    # Queues

    async def queues(self) -> QueueList:
        """All queues with their jobs by state."""

        def look(reader: Reader) -> list[tuple[Queue, Counts, Pace]]:
            found = reader.queues()
            names = [queue.name for queue in found]
            counts = reader.counts(names) if names else {}
            paces = reader.paces(names) if names else {}
            return [(queue, counts[queue.name], paces[queue.name]) for queue in found]

        return QueueList(queues=[queue_shape(*one) for one in await self._desk.read(look)])

    async def queue(self, name: str) -> QueueShape:
        """One queue; raises QueueNotFound."""
        wanted = QueueName(name)

        def look(reader: Reader) -> QueueShape:
            queue = _found(reader, wanted)
            return queue_shape(queue, reader.counts([wanted])[wanted], reader.paces([wanted])[wanted])

        return await self._desk.read(look)

    async def create_queue(self, request: CreateQueueRequest, actor: str = "") -> QueueShape:
        """A new queue; raises IllegalTransition if there is one of this name."""
        name = QueueName(request.name)
        known = await self._desk.read(lambda reader: reader.queues([name]))
        if known and known[0].state is not QueueState.DROPPED:
            raise IllegalTransition(f"there is a queue {name} already")
        # Somebody may create it between the look and this write; then this changes what is named here.
        return await self._saved(name, request.settings.changes(), None, actor)

    async def configure_queue(self, name: str, request: SettingsRequest, actor: str = "") -> QueueShape:
        """Change settings of a queue; everybody follows at once."""
        await self._existing(name)
        return await self._saved(QueueName(name), request.changes(), None, actor)

    async def set_state(self, name: str, state: QueueState, actor: str = "") -> QueueShape:
        """Pause, resume or drain a queue."""
        await self._existing(name)
        return await self._saved(QueueName(name), None, state, actor)

    async def drop_queue(self, name: str, *, force: bool, actor: str = "") -> DropAnswer:
        """Close a queue for good. Raises QueueNotEmpty for one that has jobs, unless by force: then those
        that wait go to the dead letters."""
        wanted = QueueName(name)

        def look(reader: Reader) -> int:
            _found(reader, wanted)
            return reader.counts([wanted])[wanted].live

        live = await self._desk.read(look)
        if live and not force:
            raise QueueNotEmpty(f"queue {name} still has {live} jobs to do; drain it, or use force")
        await self._desk.at_length(lambda store, _: bulk.drop_queue(store, wanted, force=force, actor=actor))
        return DropAnswer(name=name, live_jobs=live)

    async def _existing(self, name: str) -> None:
        """Raise unless the queue is there: the store would make one under a mistyped name."""
        queue = await self._desk.read(lambda reader: _found(reader, QueueName(name)))
        if queue.state is QueueState.DROPPED:
            raise IllegalTransition(f"queue {name} was deleted; create it again")

    async def _saved(
        self, name: QueueName, changes: dict[str, object] | None, state: QueueState | None, actor: str
    ) -> QueueShape:
        await self._desk.write(lambda store: store.save_queue(name, changes, state=state, actor=actor))
        self._waiting.poke({name})
        return await self.queue(name)

    # Searches

    async def search(self, request: SearchRequest) -> JobList:
        """Jobs that fit, newest first."""
        return await self._listed(request.where.query(), request)

    async def dead(self, request: SearchRequest) -> JobList:
        """Dead letters that fit, newest first, with how many there are."""
        return await self._listed(request.where.query(states=(JobState.DEAD,)), request)

    async def _listed(self, query: JobQuery, request: SearchRequest) -> JobList:
        def look(reader: Reader) -> tuple[Page, tuple[int, bool] | None]:
            page = listed(reader, query, request.limit, request.after)
            return page, counted(reader, query) if request.with_total else None

        page, total = await self._desk.read(look)
        return JobList(
            jobs=[job_line(job) for job in page.jobs],
            after=page.after,
            has_more=page.after is not None,
            stopped_at=at(page.stopped_at),
            total=None if total is None else total[0],
            total_is_exact=None if total is None else total[1],
        )

    # Many jobs at once

    async def bulk(self, request: BulkRequest, actor: str = "") -> BulkAnswer:
        """Cancel, revive or delete all jobs that fit, or say how many they are."""
        if request.where.is_empty and not request.everything:
            raise InvalidJob(
                "a filter without conditions means all jobs: say so by everything", field="where"
            )
        deeds: dict[str, tuple[Deed, frozenset[JobState]]] = {
            "cancel": (partial(bulk.cancel_matching, reason=request.reason, actor=actor), LIVE),
            "revive": (
                partial(
                    bulk.revive_matching,
                    how=Revival(
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
        return await self._done(deed, allowed, request.where.query(), dry_run=request.dry_run)

    async def purge_queue(self, name: str, request: FilterRequest, actor: str = "") -> BulkAnswer:
        """Delete jobs of a queue: those that wait, unless the filter names states; running ones stay."""
        query = await self._within(name, request.where, WAITING)
        return await self._done(partial(bulk.purge, actor=actor), DELETABLE, query, dry_run=request.dry_run)

    async def requeue(self, name: str, request: FilterRequest, actor: str = "") -> BulkAnswer:
        """Put dead and cancelled jobs of a queue back."""
        query = await self._within(name, request.where, REVIVABLE)
        return await self._done(
            partial(bulk.revive_matching, how=Revival(actor=actor)), REVIVABLE, query, dry_run=request.dry_run
        )

    async def revive_dead(self, request: DeadRequest, actor: str = "") -> BulkAnswer:
        """Put dead letters back."""
        deed = partial(bulk.revive_matching, how=Revival(actor=actor), group=request.group)
        return await self._done(
            deed, DEAD, request.where.query(), dry_run=request.dry_run, group=request.group
        )

    async def purge_dead(self, request: DeadRequest, actor: str = "") -> BulkAnswer:
        """Delete dead letters for good."""
        deed = partial(bulk.purge, actor=actor, group=request.group)
        return await self._done(
            deed, DEAD, request.where.query(), dry_run=request.dry_run, group=request.group
        )

    async def _within(self, name: str, where: JobFilter, states: frozenset[JobState]) -> JobQuery:
        await self._desk.read(lambda reader: _found(reader, QueueName(name)))
        query = where.query(queues=(QueueName(name),))
        return query if query.states else replace(query, states=tuple(sorted(states)))

    async def _done(
        self,
        deed: Deed,
        allowed: frozenset[JobState],
        query: JobQuery,
        *,
        dry_run: bool,
        group: str | None = None,
    ) -> BulkAnswer:
        states = tuple(state for state in query.states or JobState if state in allowed)
        if not states:
            return BulkAnswer(matched=0, matched_is_exact=True, done=0, dry_run=dry_run, busy=0)
        narrow = replace(query, states=states)
        if group is None:
            matched, is_exact = await self._desk.read(lambda reader: counted(reader, narrow))
        else:  # whoever just looks does not wait for one who goes through all dead letters
            matched, is_exact = await self._desk.at_length(lambda _, reader: counted(reader, narrow, group))
        done, busy = 0, 0
        if (matched or not is_exact) and not dry_run:
            done, busy = await self._desk.at_length(lambda store, reader: _act(deed, store, reader, narrow))
            self._waiting.poke()
        return BulkAnswer(matched=matched, matched_is_exact=is_exact, done=done, dry_run=dry_run, busy=busy)

    # One job

    async def delete(self, job_id: str, actor: str = "") -> Verdict:
        """Remove a job that does not run."""
        [verdict] = await self._desk.write(lambda store: store.delete([JobId(job_id)], actor=actor))
        return _told(verdict)

    async def revive(self, job_id: str, request: ReviveRequest, actor: str = "") -> Verdict:
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

        verdict = await self._desk.write(revive)
        self._waiting.poke()
        return _told(verdict)

    async def replay(self, job_id: str, request: ReplayRequest, actor: str = "") -> Accepted:
        """A new job like an earlier one, whatever became of that."""
        [found] = await self._desk.jobs([JobId(job_id)])
        if found is None:
            raise JobNotFound(f"there is no job {job_id}")
        job = await self._desk.converter.run(BODY_SIZE.get(), _like, found, request)

        def insert(store: Store) -> Receipt:
            [receipt] = store.insert([job], create_queues=False)
            # Jobs that are enqueued leave no line, so this one comes by a call of its own, a moment later.
            detail = f"like {found.id}"
            store.record(
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

        receipt = await self._desk.write(insert)
        self._waiting.poke({job.queue})
        return Accepted(
            id=receipt.id or "", queue=job.queue, state=receipt.state, is_duplicate=not receipt.is_new
        )


def _found(reader: Reader, name: QueueName) -> Queue:
    found: Sequence[Queue] = reader.queues([name])
    if not found:
        raise QueueNotFound(f"there is no queue {name}")
    return found[0]


def _act(deed: Deed, store: Store, reader: Reader, query: JobQuery) -> tuple[int, int]:
    """Return how many jobs were changed, and how many another transaction holds."""
    busy = 0

    def hear(verdicts: Sequence[StoreVerdict]) -> None:
        nonlocal busy
        busy += sum(verdict.is_busy for verdict in verdicts)

    return deed(store, reader, query, hear=hear), busy


def _told(verdict: StoreVerdict) -> Verdict:
    verdict.check()
    return Verdict(id=verdict.job_id, done=verdict.done, state=verdict.state, reason=verdict.reason)


def _like(job: Job, request: ReplayRequest) -> NewJob:
    """The request for such a job; its keys and its times are its own."""
    payload = job.payload
    if request.args is not None or request.kwargs is not None:
        if request.args is None or request.kwargs is None:
            raise InvalidJob("give both args and kwargs, or neither to keep those of the job", field="args")
        check_told(request.args, request.kwargs)
        payload = encode_tagged_call(request.args, request.kwargs)
    check_whole(payload, None)
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
