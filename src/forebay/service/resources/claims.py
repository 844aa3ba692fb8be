"""What consumers ask for: jobs to run, more time, and to say how it went."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence

from msgspec.structs import replace

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import Outcome
from forebay.domain.progress import Progress, ProgressUpdate
from forebay.domain.settlement import Settlement, decide
from forebay.errors import ForebayError, JobNotFound, LeaseLost, StoreBusy, StoreError, StoreUnavailable
from forebay.operations.settlements import (
    FallbackSettlements,
    match_kept_outcomes,
    select_newly_settled,
    settle_and_claim_isolating,
)
from forebay.service.problems import problem_of
from forebay.service.runtime.claim_waiters import POLL_SECONDS, ClaimGroupKey, ClaimWaiters
from forebay.service.runtime.converter import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.runtime.stream_windows import StreamWindows
from forebay.service.runtime.write_batcher import WriteBatcher
from forebay.service.schema.base import length, moment_of
from forebay.service.schema.claims import (
    AckRequest,
    ClaimCriteria,
    ClaimRequest,
    ClaimResponse,
    DecodedLeaseToken,
    ExtendRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    NackRequest,
    OutcomeRequest,
    SettleRequest,
    SettleResponse,
    SettleResult,
    claimed_job,
    interval,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import RenewResult, SettleAndClaimResult

SettledJobs = list[tuple[Job, Settlement]]

logger: logging.Logger = logging.getLogger(__name__)


class EndedAttempt:
    """An attempt that has ended: the job as it is stored, who holds it, and how it ended."""

    __slots__ = ("job", "outcome", "worker")

    def __init__(self, job: Job, worker: WorkerId, outcome: Outcome) -> None:
        self.job: Job = job
        self.worker: WorkerId = worker
        self.outcome: Outcome = outcome

    @property
    def lease(self) -> Lease:
        return Lease(self.job.id, self.job.attempt)


class ClaimResource:
    """Claim, settle and renew. Nothing is remembered here between two calls: a lease token says all, so that
    any server can be asked about a job that another one has handed out."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll
        self._windows = StreamWindows()
        self._returning: set[asyncio.Future[None]] = set()
        self._settle_batcher: WriteBatcher[EndedAttempt, bool] = WriteBatcher(self._settle_together)

    async def claim(self, request: ClaimRequest) -> ClaimResponse:
        """Jobs to run; waits for some as long as the request says."""
        kind = group_key_of(request)
        with self._claim_waiters.presence.track(kind.queues):
            jobs = await self._claim_waiters.claim(kind, request.limit, request.wait_seconds)
        return await self._respond(jobs)

    async def stream(self, request: ClaimCriteria, size: int) -> AsyncGenerator[ClaimResponse, None]:
        """Jobs to run as they come, never more than `size` that are not settled. Raises StoreUnavailable when
        this server stops: leases are the client's, and it goes on with another server.

        Whoever takes an answer hands it on before asking for the next one, or gives it back.
        """
        kind = group_key_of(request)
        window = self._windows.open(size)
        present = self._claim_waiters.presence.track(kind.queues)
        present.__enter__()
        try:
            while not self._claim_waiters.is_stopped:
                if window.room:
                    jobs = await self._claim_waiters.claim(
                        kind, window.room, self._claim_waiters.longest_wait
                    )
                    window.add(Lease(job.id, job.attempt) for job in jobs)
                    if jobs:
                        yield await self._respond(jobs)
                elif not await window.wait_for_change(POLL_SECONDS):
                    window.retain(await self._find_running(window.leases))
            raise StoreUnavailable("this server stops; other servers have jobs")
        finally:
            self._windows.close(window)
            present.__exit__(None, None, None)

    async def _find_running(self, leases: Sequence[Lease]) -> set[Lease]:
        """Those of these attempts that still run: another server may have heard how one ended."""
        jobs = await self._pool.jobs([lease.job_id for lease in leases], with_payload=False)
        return {
            Lease(job.id, job.attempt) for job in jobs if job is not None and job.state is JobState.RUNNING
        }

    async def _respond(self, jobs: Sequence[Job]) -> ClaimResponse:
        size = sum(len(job.payload) for job in jobs)
        try:
            return await self._pool.converter.run(size, _claim_response, jobs, self._pool.clock.now_ms())
        except asyncio.CancelledError:  # the client has gone while its answer was made
            await self._claim_waiters.give_back(jobs)
            raise

    async def give_back(self, answer: ClaimResponse) -> None:
        """Hand back what was claimed for somebody who is gone; goes on if whoever says so is gone too."""
        # Shielded: a call of gRPC may find out by a message that cannot be sent that its client has gone, and
        # is cancelled for the same reason while it gives back what it has.
        returning = asyncio.ensure_future(self._give_back(answer))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    async def stop(self) -> None:
        """Wait until what is being handed back has been. Stopping twice is fine."""
        if self._returning:
            await asyncio.wait(self._returning)

    async def _give_back(self, answer: ClaimResponse) -> None:
        endings = [OutcomeRequest(id=job.id, lease=job.lease, outcome="released") for job in answer.jobs]
        if not endings:
            return
        try:
            await self.settle(SettleRequest(outcomes=endings))
        except StoreError as exc:  # whoever hands back has something else to say or to do
            logger.warning("jobs that nobody is there to run wait for the end of their leases: %s", exc)
        self._claim_waiters.wake()

    # Ends

    async def ack(self, job_id: str, request: AckRequest) -> SettleResult:
        """The job is done; raises LeaseLost if it is somebody else's by now."""
        ending = OutcomeRequest(id=job_id, lease=request.lease, result=request.result, cost=request.cost)
        return await self._settle_one(ending)

    async def nack(self, job_id: str, request: NackRequest) -> SettleResult:
        """The attempt failed; raises LeaseLost if the job is somebody else's by now."""
        ending = OutcomeRequest(
            id=job_id,
            lease=request.lease,
            outcome="failed" if request.requeue else "discarded",
            error=request.error,
            error_type=request.error_type,
            traceback=request.traceback,
            delay_seconds=request.retry_after_seconds,
        )
        return await self._settle_one(ending)

    async def _settle_one(self, ending: OutcomeRequest) -> SettleResult:
        outcome = await self._pool.converter.run(BODY_SIZE.get(), ending.as_outcome)
        [job] = await self._pool.jobs([JobId(ending.id)], with_payload=False)
        if job is None:
            raise JobNotFound(f"there is no job {ending.id}")
        if not await self._settle_batcher(_ended_attempt(job, ending, outcome)):
            raise _lease_lost_error(ending.id)
        return SettleResult(id=ending.id, is_kept=True)

    async def settle(self, request: SettleRequest) -> SettleResponse:
        """End many leases at once; each is answered for itself."""
        ids = [JobId(ending.id) for ending in request.outcomes]
        jobs = await self._pool.jobs(ids, with_payload=False)
        ends = await self._pool.converter.run(BODY_SIZE.get(), _check_ends, jobs, request.outcomes)
        kept = iter(await self._settle_together([one for one in ends if isinstance(one, EndedAttempt)]))
        return SettleResponse(
            settled=[
                _settle_result(ending.id, one if isinstance(one, ForebayError) else next(kept))
                for ending, one in zip(request.outcomes, ends, strict=True)
            ]
        )

    async def _settle_together(self, attempts: Sequence[EndedAttempt]) -> Sequence[bool | Exception]:
        """Whether each was kept, or StoreBusy where another transaction holds the job. Each holder by itself:
        settlements name one."""
        by_worker: dict[WorkerId, list[EndedAttempt]] = defaultdict(list)
        for one in attempts:
            by_worker[one.worker].append(one)

        def exchange(store: Store) -> dict[WorkerId, tuple[SettleAndClaimResult, SettledJobs]]:
            return {
                worker: self._settle_for_worker(store, worker, batch) for worker, batch in by_worker.items()
            }

        exchanged = await self._pool.write(exchange) if attempts else {}
        answers = {worker: answer for worker, (answer, _) in exchanged.items()}
        for _, written in exchanged.values():
            self._count(written)
        # By holder: who never held a lease is refused, and that takes nothing from who does.
        kept = {
            worker: iter(
                match_kept_outcomes(one, [(end.lease, type(end.outcome)) for end in by_worker[worker]])
            )
            for worker, one in answers.items()
        }
        busy = {lease for one in answers.values() for lease in one.busy}
        found = [next(kept[one.worker]) for one in attempts]
        # Not what was refused: its attempt may go on in other hands. If it is over a look will find that out.
        self._windows.remove_ended(one.lease for one, is_kept in zip(attempts, found, strict=True) if is_kept)
        for one, is_kept in zip(attempts, found, strict=True):
            if not is_kept and one.lease not in busy:
                logger.warning("the end of attempt %d of job %s comes too late", one.job.attempt, one.job.id)
        return [
            _busy_error(one.job.id) if one.lease in busy else is_kept
            for one, is_kept in zip(attempts, found, strict=True)
        ]

    def _settle_for_worker(
        self, store: Store, worker: WorkerId, attempts: Sequence[EndedAttempt]
    ) -> tuple[SettleAndClaimResult, SettledJobs]:
        jobs = {one.lease: one.job for one in attempts}
        instead = FallbackSettlements(jobs.__getitem__, self._roll)
        settlements = [decide(one.job, one.outcome, self._roll()) for one in attempts]
        answer = settle_and_claim_isolating(store, worker, settlements, fallback=instead)
        return answer, select_newly_settled(jobs, instead.substitute(settlements), answer)

    def _count(self, settled: SettledJobs) -> None:
        self._claim_waiters.metrics.count_settled(settled)
        for job, _ in settled:
            self._claim_waiters.presence.record(job.queue)

    # Time

    async def heartbeat(self, job_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        """The job is still worked on; raises LeaseLost if it is somebody else's by now."""
        token = DecodedLeaseToken.parse(request.lease)
        note = _progress_update(job_id, token, request)

        def renew(store: Store) -> RenewResult:
            if note is not None:
                store.settle_and_claim(token.worker, updates=[note])
            return store.renew(
                token.worker, [Lease(JobId(job_id), token.attempt)], length(request.extend_seconds)
            )

        return await self._heartbeat_response(job_id, await self._pool.write(renew))

    async def extend(self, job_id: str, request: ExtendRequest) -> HeartbeatResponse:
        """The lease ends so much later than it would have, but never later than the job allows: 24 hours
        after its attempt has begun, unless it says otherwise."""
        token = DecodedLeaseToken.parse(request.lease)
        job, now = await self._load_job(job_id)
        left = max(0, (job.lease_expires_at or now) - now)
        lease_ms = left + (length(request.additional_seconds) or 0)
        lease = Lease(JobId(job_id), token.attempt)
        renewal = await self._pool.write(lambda store: store.renew(token.worker, [lease], lease_ms))
        return await self._heartbeat_response(job_id, renewal)

    async def _heartbeat_response(self, job_id: str, renewal: RenewResult) -> HeartbeatResponse:
        job, now = await self._load_job(job_id)
        if not renewal.renewed or job.lease_expires_at is None:
            raise _lease_lost_error(job_id)
        self._claim_waiters.presence.record(job.queue)
        cancel = next((one.reason for one in renewal.cancels if one.job_id == job_id), None)
        return HeartbeatResponse(
            lease_expires_at=moment_of(job.lease_expires_at),
            heartbeat_seconds=interval(job.lease_expires_at - now),
            cancel=cancel,
        )

    async def _load_job(self, job_id: str) -> tuple[Job, int]:
        def look(reader: Reader) -> tuple[Job | None, int]:
            return reader.jobs([JobId(job_id)], with_payload=False)[0], reader.now()

        job, now = await self._pool.read_fast(look)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}")
        return job, now


def group_key_of(request: ClaimCriteria) -> ClaimGroupKey:
    """What claims that wait together have in common."""
    return ClaimGroupKey(
        tuple(dict.fromkeys(QueueName(name) for name in request.queues)),
        None if request.tasks is None else frozenset(request.tasks),
        _round_up(length(request.lease_seconds)),
    )


def _round_up(lease_ms: int | None) -> int | None:
    """A lease of two digits, in whole seconds: each other length would be a group of claims of its own, with
    an exchange of its own once a second."""
    if lease_ms is None:
        return None
    step: int = max(1_000, 10 ** (len(str(lease_ms)) - 2))
    return min(-(-lease_ms // step) * step, DAY_MS)


def _claim_response(jobs: Sequence[Job], now_ms: int) -> ClaimResponse:
    return ClaimResponse(jobs=[claimed_job(job, now_ms) for job in jobs])


def _check_ends(
    jobs: Sequence[Job | None], endings: Sequence[OutcomeRequest]
) -> list[EndedAttempt | ForebayError]:
    return [_check_end(job, ending) for job, ending in zip(jobs, endings, strict=True)]


def _check_end(job: Job | None, ending: OutcomeRequest) -> EndedAttempt | ForebayError:
    if job is None:
        return JobNotFound(f"there is no job {ending.id}")
    try:
        return _ended_attempt(job, ending, ending.as_outcome())
    except ForebayError as exc:
        return exc


def _ended_attempt(job: Job, ending: OutcomeRequest, outcome: Outcome) -> EndedAttempt:
    token = DecodedLeaseToken.parse(ending.lease)
    # The store compares: if this is not the attempt that runs, or not its holder, the ending is refused.
    return EndedAttempt(replace(job, attempt=token.attempt), token.worker, outcome)


def _settle_result(job_id: str, answer: bool | Exception) -> SettleResult:
    if answer is True:
        return SettleResult(id=job_id, is_kept=True)
    error = answer if isinstance(answer, ForebayError) else _lease_lost_error(job_id)
    return SettleResult(id=job_id, is_kept=False, problem=problem_of(error))


def _busy_error(job_id: str) -> StoreBusy:
    return StoreBusy(f"another transaction holds job {job_id}: send its end again once that has ended")


def _lease_lost_error(job_id: str) -> LeaseLost:
    return LeaseLost(f"the lease of job {job_id} is not held any more: it has ended, or another attempt runs")


def _progress_update(
    job_id: str, token: DecodedLeaseToken, request: HeartbeatRequest
) -> ProgressUpdate | None:
    if request.done is None and request.total is None and not request.message:
        return None
    progress = Progress(done=request.done or 0.0, total=request.total, message=request.message)
    return ProgressUpdate(lease=Lease(JobId(job_id), token.attempt), progress=progress)
