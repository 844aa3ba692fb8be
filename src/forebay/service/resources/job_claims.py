"""Claims of consumers: claim, stream, settle, heartbeat and extend."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence

from msgspec.structs import replace

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import Outcome
from forebay.domain.progress import Progress, ProgressUpdate
from forebay.domain.settlement import Settlement, decide
from forebay.errors import ForebayError, JobNotFound, LeaseLost, StoreBusy, StoreError, StoreUnavailable
from forebay.operations.settlement_isolation import (
    FallbackSettlements,
    match_kept_outcomes,
    select_newly_settled,
    settle_and_claim_isolating,
)
from forebay.service.problem_details import problem_of
from forebay.service.runtime.claim_stream_leases import StreamWindows
from forebay.service.runtime.claim_waiters import POLL_SECONDS, ClaimGroupKey, ClaimWaiters
from forebay.service.runtime.codec_threads import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.runtime.write_batcher import WriteBatcher
from forebay.service.schema.base import length, moment_of
from forebay.service.schema.job_claims import (
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
from forebay.stores.contract.claims_and_results import RenewResult, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

SettledJobs = list[tuple[Job, Settlement]]

logger: logging.Logger = logging.getLogger(__name__)


class EndedAttempt:
    """Ended attempt: the stored job, the lease holder and the outcome."""

    __slots__ = ("job", "lease", "outcome", "worker")

    def __init__(self, job: Job, worker: WorkerId, outcome: Outcome) -> None:
        self.job: Job = job
        self.worker: WorkerId = worker
        self.outcome: Outcome = outcome
        self.lease: Lease = Lease(job.id, job.attempt)


class ClaimResource:
    """Claims and settlements. A lease token identifies the attempt and its holder, so any server can settle a
    job that another one has claimed."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters, roll: Callable[[], float]) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._roll = roll
        self._windows = StreamWindows()
        self._returning: set[asyncio.Future[None]] = set()
        self._settle_batcher: WriteBatcher[EndedAttempt, bool] = WriteBatcher(self._settle_together)

    async def claim(self, request: ClaimRequest) -> ClaimResponse:
        """Claim jobs; wait for some as long as the request allows."""
        key = group_key_of(request)
        with self._claim_waiters.presence.track(key.queues):
            jobs = await self._claim_waiters.claim(key, request.limit, request.wait_seconds)
        return await self._respond(jobs)

    async def stream(self, request: ClaimCriteria, size: int) -> AsyncGenerator[ClaimResponse, None]:
        """Yield jobs as they come, at most `size` unsettled ones at a time.

        Raises StoreUnavailable when this server stops; leases belong to the client, which continues at
        another server. The caller delivers each response before it asks for the next one, or gives it back.
        """
        key = group_key_of(request)
        window = self._windows.open(size)
        presence = self._claim_waiters.presence.track(key.queues)
        presence.__enter__()
        try:
            while not self._claim_waiters.is_stopped:
                if window.room:
                    jobs = await self._claim_waiters.claim(key, window.room, self._claim_waiters.longest_wait)
                    window.add(Lease(job.id, job.attempt) for job in jobs)
                    if jobs:
                        yield await self._respond(jobs)
                elif not await window.wait_for_change(POLL_SECONDS):
                    window.retain(await self._find_running(window.leases))
            raise StoreUnavailable("this server stops; open the stream at another server")
        finally:
            self._windows.close(window)
            presence.__exit__(None, None, None)

    async def _find_running(self, leases: Sequence[Lease]) -> set[Lease]:
        """Return the attempts that still run: another server may have settled some."""
        jobs = await self._pool.jobs([lease.job_id for lease in leases], with_payload=False)
        return {
            Lease(job.id, job.attempt) for job in jobs if job is not None and job.state is JobState.RUNNING
        }

    async def _respond(self, jobs: Sequence[Job]) -> ClaimResponse:
        size = sum(len(job.payload) for job in jobs)
        try:
            return await self._pool.converter.run(size, _claim_response, jobs, self._pool.clock.now_ms())
        except asyncio.CancelledError:  # the client has disconnected during the conversion
            await self._claim_waiters.give_back(jobs)
            raise

    async def give_back(self, response: ClaimResponse) -> None:
        """Hand back the jobs of a client that has disconnected. Continues if the caller is cancelled."""
        # Shielded: a gRPC call notices by a failed send that its client has gone. It is cancelled for the
        # same
        # reason while it hands back its jobs.
        returning = asyncio.ensure_future(self._give_back(response))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.shield(returning)

    async def stop(self) -> None:
        """Wait until jobs in flight are handed back. May be called twice."""
        if self._returning:
            await asyncio.wait(self._returning)

    async def _give_back(self, response: ClaimResponse) -> None:
        outcomes = [OutcomeRequest(id=job.id, lease=job.lease, outcome="released") for job in response.jobs]
        if not outcomes:
            return
        try:
            await self.settle(SettleRequest(outcomes=outcomes))
        except StoreError as exc:  # the caller is handling another error already
            logger.warning("jobs of a client that has gone wait for the end of their leases: %s", exc)
        self._claim_waiters.wake()

    # Settlements

    async def ack(self, job_id: str, request: AckRequest) -> SettleResult:
        """Settle a completed job; raises LeaseLost if the lease is not held any more."""
        outcome = OutcomeRequest(id=job_id, lease=request.lease, result=request.result, cost=request.cost)
        return await self._settle_one(outcome)

    async def nack(self, job_id: str, request: NackRequest) -> SettleResult:
        """Settle a failed attempt; raises LeaseLost if the lease is not held any more."""
        outcome = OutcomeRequest(
            id=job_id,
            lease=request.lease,
            outcome="failed" if request.requeue else "discarded",
            error=request.error,
            error_type=request.error_type,
            traceback=request.traceback,
            delay_seconds=request.retry_after_seconds,
        )
        return await self._settle_one(outcome)

    async def _settle_one(self, request: OutcomeRequest) -> SettleResult:
        outcome = await self._pool.converter.run(BODY_SIZE.get(), request.as_outcome)
        [job] = await self._pool.jobs([JobId(request.id)], with_payload=False)
        if job is None:
            raise JobNotFound(f"there is no job {request.id}")
        if not await self._settle_batcher(_ended_attempt(job, request, outcome)):
            raise _lease_lost_error(request.id)
        return SettleResult(id=request.id, is_kept=True)

    async def settle(self, request: SettleRequest) -> SettleResponse:
        """Settle many attempts; each is answered separately."""
        ids = [JobId(outcome.id) for outcome in request.outcomes]
        jobs = await self._pool.jobs(ids, with_payload=False)
        attempts = await self._pool.converter.run(BODY_SIZE.get(), _check_outcomes, jobs, request.outcomes)
        valid = [attempt for attempt in attempts if isinstance(attempt, EndedAttempt)]
        results = iter(await self._settle_together(valid))
        return SettleResponse(
            settled=[
                _settle_result(outcome.id, attempt if isinstance(attempt, ForebayError) else next(results))
                for outcome, attempt in zip(request.outcomes, attempts, strict=True)
            ]
        )

    async def _settle_together(self, attempts: Sequence[EndedAttempt]) -> Sequence[bool | Exception]:
        """Return for each attempt whether its outcome was stored, or StoreBusy if another transaction holds
        the job. There is one call per holder, because a settlement names one."""
        by_worker: dict[WorkerId, list[EndedAttempt]] = defaultdict(list)
        for attempt in attempts:
            by_worker[attempt.worker].append(attempt)

        def settle(store: Store) -> dict[WorkerId, tuple[SettleAndClaimResult, SettledJobs]]:
            return {
                worker: self._settle_for_worker(store, worker, batch) for worker, batch in by_worker.items()
            }

        settled = await self._pool.write(settle) if attempts else {}
        results = {worker: result for worker, (result, _) in settled.items()}
        for _, jobs in settled.values():
            self._count(jobs)
        # By holder: a refusal of a client that never held the lease must not count against its holder.
        kept_by_worker = {
            worker: iter(
                match_kept_outcomes(
                    result, [(attempt.lease, type(attempt.outcome)) for attempt in by_worker[worker]]
                )
            )
            for worker, result in results.items()
        }
        busy = {lease for result in results.values() for lease in result.busy}
        kept = [next(kept_by_worker[attempt.worker]) for attempt in attempts]
        # Without refused ones: another holder may run the attempt. The periodic check notices its end.
        self._windows.remove_ended(
            attempt.lease for attempt, is_kept in zip(attempts, kept, strict=True) if is_kept
        )
        for attempt, is_kept in zip(attempts, kept, strict=True):
            if not is_kept and attempt.lease not in busy:
                logger.warning(
                    "the outcome of attempt %d of job %s comes too late", attempt.job.attempt, attempt.job.id
                )
        if not busy:
            return kept
        return [
            _busy_error(attempt.job.id) if attempt.lease in busy else is_kept
            for attempt, is_kept in zip(attempts, kept, strict=True)
        ]

    def _settle_for_worker(
        self, store: Store, worker: WorkerId, attempts: Sequence[EndedAttempt]
    ) -> tuple[SettleAndClaimResult, SettledJobs]:
        jobs = {attempt.lease: attempt.job for attempt in attempts}
        fallback = FallbackSettlements(jobs.__getitem__, self._roll)
        settlements = [decide(attempt.job, attempt.outcome, self._roll()) for attempt in attempts]
        result = settle_and_claim_isolating(store, worker, settlements, fallback=fallback)
        return result, select_newly_settled(jobs, fallback.substitute(settlements), result)

    def _count(self, settled: SettledJobs) -> None:
        self._claim_waiters.metrics.count_settled(settled)
        for queue in {job.queue for job, _ in settled}:
            self._claim_waiters.presence.record(queue)

    # Leases

    async def heartbeat(self, job_id: str, request: HeartbeatRequest) -> HeartbeatResponse:
        """Renew a lease and save progress; raises LeaseLost if the lease is not held any more."""
        token = DecodedLeaseToken.parse(request.lease)
        update = _progress_update(job_id, token, request)

        def renew(store: Store) -> RenewResult:
            if update is not None:
                store.settle_and_claim(token.worker, updates=[update])
            return store.renew(
                token.worker, [Lease(JobId(job_id), token.attempt)], length(request.extend_seconds)
            )

        return await self._heartbeat_response(job_id, await self._pool.write(renew))

    async def extend(self, job_id: str, request: ExtendRequest) -> HeartbeatResponse:
        """Extend a lease, at most to the limit of the job: by default 24 hours after the start of the
        attempt."""
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
        cancel = next((pending.reason for pending in renewal.cancels if pending.job_id == job_id), None)
        return HeartbeatResponse(
            lease_expires_at=moment_of(job.lease_expires_at),
            heartbeat_seconds=interval(job.lease_expires_at - now),
            cancel=cancel,
        )

    async def _load_job(self, job_id: str) -> tuple[Job, int]:
        def load(reader: Reader) -> tuple[Job | None, int]:
            return reader.jobs([JobId(job_id)], with_payload=False)[0], reader.now()

        job, now = await self._pool.read_fast(load)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}")
        return job, now


def group_key_of(request: ClaimCriteria) -> ClaimGroupKey:
    """Return the key under which claims wait together."""
    return ClaimGroupKey(
        tuple(dict.fromkeys(QueueName(name) for name in request.queues)),
        None if request.tasks is None else frozenset(request.tasks),
        _round_up(length(request.lease_seconds)),
    )


def _round_up(lease_ms: int | None) -> int | None:
    """Return a lease in whole seconds with two significant digits. Each length is a group of claims of its
    own, which costs a settle_and_claim once a second."""
    if lease_ms is None:
        return None
    step: int = max(1_000, 10 ** (len(str(lease_ms)) - 2))
    return min(-(-lease_ms // step) * step, DAY_MS)


def _claim_response(jobs: Sequence[Job], now_ms: int) -> ClaimResponse:
    return ClaimResponse(jobs=[claimed_job(job, now_ms) for job in jobs])


def _check_outcomes(
    jobs: Sequence[Job | None], requests: Sequence[OutcomeRequest]
) -> list[EndedAttempt | ForebayError]:
    return [_check_outcome(job, request) for job, request in zip(jobs, requests, strict=True)]


def _check_outcome(job: Job | None, request: OutcomeRequest) -> EndedAttempt | ForebayError:
    if job is None:
        return JobNotFound(f"there is no job {request.id}")
    try:
        return _ended_attempt(job, request, request.as_outcome())
    except ForebayError as exc:
        return exc


def _ended_attempt(job: Job, request: OutcomeRequest, outcome: Outcome) -> EndedAttempt:
    token = DecodedLeaseToken.parse(request.lease)
    # The store's guard refuses the outcome of another attempt or another holder.
    ended = job if job.attempt == token.attempt else replace(job, attempt=token.attempt)
    return EndedAttempt(ended, token.worker, outcome)


def _settle_result(job_id: str, result: bool | Exception) -> SettleResult:
    if result is True:
        return SettleResult(id=job_id, is_kept=True)
    error = result if isinstance(result, ForebayError) else _lease_lost_error(job_id)
    return SettleResult(id=job_id, is_kept=False, problem=problem_of(error))


def _busy_error(job_id: str) -> StoreBusy:
    return StoreBusy(f"another transaction holds job {job_id}: send its outcome again when that has ended")


def _lease_lost_error(job_id: str) -> LeaseLost:
    return LeaseLost(f"the lease of job {job_id} is not held any more: it has ended, or another attempt runs")


def _progress_update(
    job_id: str, token: DecodedLeaseToken, request: HeartbeatRequest
) -> ProgressUpdate | None:
    if request.done is None and request.total is None and not request.message:
        return None
    progress = Progress(done=request.done or 0.0, total=request.total, message=request.message)
    return ProgressUpdate(lease=Lease(JobId(job_id), token.attempt), progress=progress)
