"""What producers ask for: jobs, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import astuple

from forebay.app.codec import is_same_call
from forebay.app.graphs import MayRaise, has_needs
from forebay.app.handle import JobHandle, Patience
from forebay.app.masking import masked
from forebay.app.patience import call_again_async
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import JobState
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueNotFound,
    RateLimited,
    StoreBusy,
    StoreUnavailable,
    WaitTimeout,
)
from forebay.service.operations.converter import BODY_SIZE
from forebay.service.operations.desk import Desk
from forebay.service.operations.looking import Looking, Sees
from forebay.service.operations.merging import Merging
from forebay.service.operations.requests import Requests
from forebay.service.operations.telling import problem_of
from forebay.service.operations.waiting import Waiting
from forebay.service.schema.calls import value_of
from forebay.service.schema.looking import JobShape
from forebay.service.schema.producing import (
    Accepted,
    AmendRequest,
    CancelRequest,
    EnqueueManyAnswer,
    EnqueueManyRequest,
    EnqueueRequest,
    Rejected,
    ResultAnswer,
    Verdict,
    new_job,
    new_jobs,
)
from forebay.service.schema.shared import seconds
from forebay.stores.protocol import Receipt, Store
from forebay.stores.protocol import Verdict as StoreVerdict

COMPARED_TOGETHER: Final = 8  # jobs whose payloads, of up to a megabyte, are in memory at a time


class Producing:
    """Enqueue, look, wait, amend and cancel. Queues are not created by the way: a name that is misspelt would
    be a queue that nobody works on, so it is refused with QueueNotFound."""

    def __init__(self, desk: Desk, waiting: Waiting, looking: Looking, requests: Requests) -> None:
        self._desk = desk
        self._waiting = waiting
        self._looking = looking
        self._requests = requests
        self._enqueue: Merging[NewJob, Receipt] = Merging(self._insert_singly)
        self._watch: Merging[JobId, Job | None] = Merging(desk.watch)

    async def enqueue(
        self, request: EnqueueRequest, *, with_position: bool = False, may_raise: MayRaise | None = None
    ) -> Accepted:
        """Store one job. Requests that come together are stored together, and answered one by one.
        Jobs that it waits for get its priority, in queues that `may_raise` allows."""
        job = await self._desk.converter.run(BODY_SIZE.get(), new_job, request)
        try:
            receipt = await self._insert_one(job, may_raise)
        except StoreBusy as exc:
            # On the loop, so that no other request waits for the transaction that holds its key.
            receipt = await call_again_async(lambda: self._insert_one(job, may_raise), exc)
        [receipt] = await self._compared([job], [receipt])
        if receipt.error is not None:
            self._requests.refused(receipt.error)
            raise receipt.error
        answer = _accepted(job, receipt, 0)
        self._waiting.poke({job.queue})
        return await self._placed(answer) if with_position else answer

    async def _insert_one(self, job: NewJob, may_raise: MayRaise | None) -> Receipt:
        if has_needs([job]):
            [receipt] = await self._insert([job], atomic=True, may_raise=may_raise)
        else:
            receipt = await self._enqueue(job)
        if isinstance(receipt.error, StoreBusy):
            raise receipt.error
        return receipt

    async def enqueue_many(
        self, request: EnqueueManyRequest, *, may_raise: MayRaise | None = None
    ) -> EnqueueManyAnswer:
        """Store jobs together, in the order given; `may_raise` as for one."""
        receipts: Sequence[Receipt | ForebayError]
        if request.atomic:
            jobs = await self._desk.converter.run(BODY_SIZE.get(), new_jobs, request.jobs)
            try:
                stored = await self._insert(jobs, atomic=True, may_raise=may_raise)
            except StoreBusy as exc:
                stored = await call_again_async(
                    lambda: self._insert(jobs, atomic=True, may_raise=may_raise), exc
                )
            receipts = await self._compared(jobs, stored)
            made: list[NewJob | None] = [*jobs]
        else:
            made, receipts = await self._insert_possible(request.jobs, may_raise)
        answer = EnqueueManyAnswer(accepted=[], rejected=[])
        errors: list[ForebayError] = []
        for index, (job, receipt) in enumerate(zip(made, receipts, strict=True)):
            error = receipt if isinstance(receipt, ForebayError) else receipt.error
            if error is not None:
                errors.append(error)
                answer.rejected.append(Rejected(index=index, problem=problem_of(error)))
            elif job is not None and isinstance(receipt, Receipt):
                answer.accepted.append(_accepted(job, receipt, index))
        self._requests.refused(*errors)
        self._waiting.poke({job.queue for job in made if job is not None})
        return answer

    async def _insert_possible(
        self, requests: Sequence[EnqueueRequest], may_raise: MayRaise | None
    ) -> tuple[list[NewJob | None], list[Receipt | ForebayError]]:
        """Store the jobs that can be; an error in the place of each of the others."""
        made = await self._desk.converter.run(BODY_SIZE.get(), _all_made, requests)
        jobs = [one for one in made if isinstance(one, NewJob)]
        if len(jobs) < len(made) and has_needs(jobs):
            # They name each other by their places, and one of these is empty.
            error = next(one for one in made if isinstance(one, ForebayError))
            raise error
        inserted = await self._insert(jobs, atomic=False, may_raise=may_raise) if jobs else ()
        stored = iter(await self._compared(jobs, inserted))
        answers = [one if isinstance(one, ForebayError) else next(stored) for one in made]
        return [one if isinstance(one, NewJob) else None for one in made], answers

    async def _insert_singly(self, jobs: list[NewJob]) -> Sequence[Receipt]:
        return await self._insert(jobs, atomic=False)

    async def _insert(
        self, jobs: Sequence[NewJob], *, atomic: bool, may_raise: MayRaise | None = None
    ) -> Sequence[Receipt]:
        def insert(store: Store) -> list[Receipt]:
            return store.insert(jobs, atomic=atomic, create_queues=False)

        try:
            if has_needs(jobs):
                return await self._insert_graph(jobs, atomic=atomic, may_raise=may_raise)
            return await self._desk.write(insert)
        except RateLimited as exc:  # of jobs that are stored together or not at all
            self._requests.refused(exc)
            raise

    async def _insert_graph(
        self, jobs: Sequence[NewJob], *, atomic: bool, may_raise: MayRaise | None
    ) -> Sequence[Receipt]:
        await self._check_known(sorted({job.queue for job in jobs}))
        handles = await self._desk.use(
            lambda client: client.enqueue_graph(jobs, atomic=atomic, may_raise=may_raise)
        )
        stored = [handle.id for handle in handles if handle.error is None]
        found = await self._desk.jobs(stored, with_payload=False)
        states = {job.id: job.state for job in found if job is not None}
        return [_receipt(handle, states) for handle in handles]

    async def _check_known(self, names: Sequence[QueueName]) -> None:
        known = {queue.name for queue in await self._desk.read(lambda reader: reader.queues(names))}
        for name in names:
            if name not in known:
                raise QueueNotFound(f"there is no queue {name}")

    async def _compared(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> Sequence[Receipt]:
        """Refuse what came with the idempotency key of another job: its producer would take it for stored."""
        compared = list(receipts)
        repeated = [
            (place, receipt.id)
            for place, (job, receipt) in enumerate(zip(jobs, receipts, strict=True))
            if receipt.id is not None and not receipt.is_new and job.once_key is not None
        ]
        for first in range(0, len(repeated), COMPARED_TOGETHER):
            part = repeated[first : first + COMPARED_TOGETHER]
            places = [place for place, _ in part]
            found = await self._desk.jobs([job_id for _, job_id in part])
            holders = {job.id: job for job in found if job is not None}
            some = [jobs[place] for place in places], [receipts[place] for place in places]
            size = sum(len(job.payload) for job in holders.values())
            answers = await self._desk.converter.run(size, _with_refused, *some, holders)
            for place, answer in zip(places, answers, strict=True):
                compared[place] = answer
        return compared

    async def _placed(self, answer: Accepted) -> Accepted:
        found = await self._desk.read(lambda reader: reader.position(JobId(answer.id)))
        if found is None:
            return answer
        return Accepted(
            id=answer.id,
            queue=answer.queue,
            state=answer.state,
            is_duplicate=answer.is_duplicate,
            position=found.ahead,
            position_is_exact=found.is_exact,
            starts_in_seconds=seconds(found.starts_in_ms),
        )

    # What came of it

    async def wait(self, job_id: str, timeout_seconds: float, sees: Sees | None = None) -> JobShape:
        """The job when it is final, or as it is when the time is up, to somebody who `sees` so much."""
        with suppress(WaitTimeout):  # the answer says how it stands
            patience = Patience(min(timeout_seconds, self._waiting.longest))
            await self._waiting.unless_over(self._watched(JobId(job_id), patience))
        return await self._looking.job(job_id, sees)

    async def _watched(self, job_id: JobId, patience: Patience) -> None:
        """Come back when a job is final or gone; however many wait, one look is for all."""
        while (job := await self._watch(job_id)) is not None and not job.is_final:
            await asyncio.sleep(patience.pause(job))

    async def watch(self, job_id: str, sees: Sees | None = None) -> AsyncGenerator[JobShape, None]:
        """The job as it is, and again whenever something has happened to it, until it is final. Raises
        StoreUnavailable when this server stops: another one goes on where this one has ended."""
        [seen] = await self._desk.watch([JobId(job_id)])
        if seen is None:
            raise JobNotFound(f"there is no job {job_id}")
        while True:
            # What happens between the two looks is shown now, and once more.
            shown = await self._looking.job(job_id, sees)
            yield shown
            if shown.is_final:
                return
            changed = await self._waiting.unless_over(self._changed(seen))
            if changed is None:
                raise StoreUnavailable(f"this server stops; job {job_id} can be watched at another one")
            seen = changed

    async def _changed(self, seen: Job) -> Job:
        """A job when it is not what it was; raises JobNotFound."""
        patience = Patience(None)
        while (job := await self._watch(seen.id)) is not None:
            if astuple(job) != astuple(seen):  # records are equal when they speak of the same job
                return job
            await asyncio.sleep(patience.pause(seen))
        raise JobNotFound(f"there is no job {seen.id}")

    async def result(self, job_id: str, reads: Sees | None = None) -> ResultAnswer:
        """What a completed job has returned, masked in a queue that `reads` excludes. Raises WaitTimeout for
        one that has not ended, JobFailed or JobCancelled for one that has ended without a result."""
        [job] = await self._desk.jobs([JobId(job_id)])
        if job is None:
            raise JobNotFound(f"there is no job {job_id}")
        if job.state is JobState.DEAD:
            raise JobFailed(f"job {job_id} failed for good: {job.reason}")
        if job.state is JobState.CANCELLED:
            raise JobCancelled(f"job {job_id} was cancelled: {job.reason}")
        if job.state is not JobState.COMPLETED:
            raise WaitTimeout(f"job {job_id} is {job.state}", job_id=job_id, state=job.state.value)
        result = await self._desk.converter.run(len(job.result or b""), value_of, job.result)
        return ResultAnswer(id=job.id, result=result if reads is None or reads(job.queue) else masked(result))

    async def cancel(self, job_id: str, request: CancelRequest, actor: str = "") -> Verdict:
        """Cancel a job that waits; ask one that runs to stop. Raises IllegalTransition for a final one."""

        def cancel(store: Store) -> StoreVerdict:
            [verdict] = store.cancel(
                [JobId(job_id)],
                request.reason,
                actor=actor,
                force=request.force,
                dependants=request.dependants,
            )
            return verdict

        return _checked(await self._desk.write(cancel))

    async def amend(self, job_id: str, request: AmendRequest, actor: str = "") -> Verdict:
        """Change a job that waits."""
        now_ms = await self._desk.read(lambda reader: reader.now())
        change = request.amendment(now_ms)
        if change.queue is not None:
            await self._check_known([change.queue])
        verdict = await self._desk.write(lambda store: store.amend(JobId(job_id), change, actor=actor))
        self._waiting.poke()
        return _checked(verdict)


def _all_made(requests: Sequence[EnqueueRequest]) -> list[NewJob | ForebayError]:
    return [_made(request, index) for index, request in enumerate(requests)]


def _made(request: EnqueueRequest, index: int) -> NewJob | ForebayError:
    try:
        return new_job(request, index)
    except ForebayError as exc:
        return exc


def _accepted(job: NewJob, receipt: Receipt, index: int) -> Accepted:
    return Accepted(
        id=receipt.id or "",
        queue=job.queue,
        state=receipt.state,
        is_duplicate=not receipt.is_new,
        index=index,
    )


def _receipt(handle: JobHandle[object], states: Mapping[JobId, JobState]) -> Receipt:
    if handle.error is not None:
        return Receipt(id=None, is_new=False, error=handle.error)
    return Receipt(id=handle.id, is_new=handle.is_new, state=states.get(handle.id))


def _is_other(job: NewJob, holder: Job) -> bool:
    """Whether the key of this job is held by one that does something else."""
    if job.once_key is None or job.once_key != holder.once_key:
        return False
    return job.task != holder.task or not is_same_call(job.payload, holder.payload)


def _with_refused(
    jobs: Sequence[NewJob], receipts: Sequence[Receipt], holders: Mapping[JobId, Job]
) -> list[Receipt]:
    found = list(receipts)
    for place, (job, receipt) in enumerate(zip(jobs, receipts, strict=True)):
        holder = None if receipt.id is None or receipt.is_new else holders.get(receipt.id)
        if holder is not None and _is_other(job, holder):
            found[place] = _refused(holder)
    return found


def _refused(holder: Job) -> Receipt:
    words = (
        f"job {holder.id} of queue {holder.queue} has this idempotency key, with another task or arguments"
    )
    return Receipt(id=None, is_new=False, error=DuplicateJob(words, holder=holder.id))


def _checked(verdict: StoreVerdict) -> Verdict:
    verdict.check()
    return Verdict(id=verdict.job_id, done=verdict.done, state=verdict.state, reason=verdict.reason)
