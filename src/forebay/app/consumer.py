"""The pull API: for consumers that bring their own loop."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any

from forebay.app.codec import decode_call, encode_result
from forebay.app.duty import Duty, run_due
from forebay.app.settling import as_failed, exchange_all
from forebay.app.times import Length, length_ms
from forebay.domain.job import DEFAULT_QUEUE, Job, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Interrupted, Outcome, Snoozed
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreRefused
from forebay.stores.ids import new_id
from forebay.stores.protocol import Engine, Store, Want


class Consumer:
    """Claims jobs and says how they ended. Each call is one exchange with the store.

    A job must be settled, or renewed, before its lease ends; else somebody else gets it, and what this
    consumer says about it is refused (False). Due duties are run after each claim, so jobs become due and
    leases of the dead are taken over also where there is no other worker.
    """

    def __init__(self, engine: Engine, duties: Sequence[Duty] = ()) -> None:
        self.id = WorkerId(new_id())
        self._engine = engine
        self._duties = duties
        self._lock = Lock()
        self._store: Store | None = None

    def claim(self, most: int = 1, *, queue: str = DEFAULT_QUEUE, lease: Length | None = None) -> list[Job]:
        """Take up to `most` jobs of a queue and a lease on each, in the order they should run."""
        lease_ms = None if lease is None else length_ms("lease", lease)
        with self._lock:
            store = self._opened()
            answer = store.exchange(self.id, wants=[Want(QueueName(queue), most, lease_ms)], room=most)
            run_due(store, self._duties)
        return list(answer.jobs)

    def renew(self, jobs: Iterable[Job], *, lease: Length | None = None) -> list[bool]:
        """Push the ends of leases away; False for a lease that is lost."""
        leases = [Lease(job.id, job.attempt) for job in jobs]
        lease_ms = None if lease is None else length_ms("lease", lease)
        with self._lock:
            answer = self._opened().renew(self.id, leases, lease_ms)
        kept = set(answer.renewed)
        return [one in kept for one in leases]

    def complete(self, job: Job, result: Any = None) -> bool:
        """The job is done."""
        return self.settle([(job, Completed(encode_result(result)))])[0]

    def fail(self, job: Job, error: BaseException | str, *, after: Length | None = None) -> bool:
        """The attempt failed; it is retried by the job's policy, or after a time of your own."""
        after_ms = None if after is None else length_ms("after", after)
        return self.settle([(job, Failed(_error(error), after_ms))])[0]

    def discard(self, job: Job, reason: BaseException | str) -> bool:
        """To the dead letters: no further attempt makes sense."""
        return self.settle([(job, Discarded(_error(reason)))])[0]

    def snooze(self, job: Job, delay: Length) -> bool:
        """Run it later; not a failure."""
        return self.settle([(job, Snoozed(length_ms("delay", delay)))])[0]

    def release(self, job: Job) -> bool:
        """Hand it back unstarted; counts for nothing."""
        return self.settle([(job, Interrupted())])[0]

    def settle(self, endings: Sequence[tuple[Job, Outcome]]) -> list[bool]:
        """End many leases at once; False for those that were lost."""
        jobs = {job.id: job for job, _ in endings}

        def instead(settlement: Settlement, error: StoreRefused) -> Settlement:
            return as_failed(jobs[settlement.job_id], settlement, error, _roll())

        settlements = [decide(job, outcome, _roll()) for job, outcome in endings]
        with self._lock:
            answer = exchange_all(self._opened(), self.id, settlements, fallback=instead)
        kept = {*answer.settled, *answer.repeated}
        return [job.id in kept for job, _ in endings]

    def close(self) -> None:
        """Let go of the store. Leases that are still held run out."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._engine.store()
        return self._store


def arguments(job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a claimed job."""
    return decode_call(job.payload)


def _error(error: BaseException | str) -> AttemptError:
    if isinstance(error, str):
        return AttemptError(type="Failed", message=error)
    return AttemptError(type=type(error).__qualname__, message=str(error))


def _roll() -> float:
    return random.random()  # noqa: S311 - spreads retries, guards nothing
