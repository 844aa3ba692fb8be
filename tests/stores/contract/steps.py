"""Short steps from which the tests of the contract are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any, Final, TypeVar

from msgspec.structs import asdict, replace

from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, QueueName, WorkerId
from forebay.domain.job_history import Attempt, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Lost, Outcome
from forebay.domain.queue import Queue
from forebay.domain.queue_counts import Counts
from forebay.domain.rank import QueueRank, compute_rank
from forebay.domain.settlement import Settlement, decide
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import new_job

T = TypeVar("T")

T0: Final = 1_800_000_000_000  # 2027-01-15 08:00 UTC, where the clock of every test starts
SECOND: Final = 1_000
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
DAY: Final = 86_400_000

DEFAULT: Final = DEFAULT_QUEUE
MAIL: Final = QueueName("mail")
W1: Final = WorkerId("w1")
W2: Final = WorkerId("w2")
W3: Final = WorkerId("w3")
SWEEPER: Final = WorkerId("sweeper")
UNKNOWN: Final = JobId("no-job-has-this-id")
# Every state that can be reached through the store contract today; `blocked` comes with workflows.
STATES: Final[list[JobState]] = [state for state in JobState if state is not JobState.BLOCKED]
BOOM: Final = AttemptError(type="Boom", message="it broke", traceback="line 1")


def put(store: Store, **changes: Any) -> JobId:
    """Insert one job that must be new."""
    [receipt] = store.insert([new_job(**changes)])
    assert receipt.is_new
    assert receipt.id is not None
    return receipt.id


def put_many(store: Store, n: int, **changes: Any) -> list[JobId]:
    """Insert n jobs that are alike."""
    receipts = store.insert([new_job(**changes)] * n)
    return [receipt.id for receipt in receipts if receipt.id is not None]


def look(reader: Reader, job_id: JobId) -> Job:
    """The record of a job that must exist."""
    [job] = reader.jobs([job_id])
    assert job is not None
    return job


def record(reader: Reader, job_id: JobId) -> dict[str, Any] | None:
    """All fields of a job, since two records are equal when only their ids are; None if it is gone."""
    [job] = reader.jobs([job_id])
    return None if job is None else asdict(job)


def states(reader: Reader, ids: Sequence[JobId]) -> list[JobState | None]:
    return [None if job is None else job.state for job in reader.jobs(ids)]


def start(store: Store, worker: WorkerId = W1, queue: QueueName = DEFAULT) -> Job:
    """Claim the one job that must be there."""
    [job] = store.settle_and_claim(worker, claims=[QueueClaim(queue, 1)], room=1).jobs
    return job


def started(store: Store, worker: WorkerId = W1, **changes: Any) -> Job:
    """Insert a job and claim it."""
    job_id = put(store, **changes)
    job = start(store, worker, changes.get("queue", DEFAULT))
    assert job.id == job_id
    return job


def claimed(store: Store, n: int, worker: WorkerId = W1, queue: QueueName = DEFAULT) -> list[JobId]:
    """The ids of up to n jobs, in the order in which a claim gives them."""
    return [job.id for job in store.settle_and_claim(worker, claims=[QueueClaim(queue, n)], room=n).jobs]


def lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def ended(job: Job, outcome: Outcome, **changes: Any) -> Settlement:
    """What `decide` makes of the outcome, without chance, and with some fields replaced."""
    return replace(decide(job, outcome, 0.0), **changes)


def settle(
    store: Store, job: Job, outcome: Outcome, worker: WorkerId | None = None, **changes: Any
) -> SettleAndClaimResult:
    """End the attempt as its holder, or as another worker."""
    return store.settle_and_claim(worker or job.worker or W1, [ended(job, outcome, **changes)])


def make(store: Store, state: JobState, **changes: Any) -> JobId:
    """A job in the wanted state; one that waits for a time waits for an hour."""
    match state:
        case JobState.SCHEDULED:
            return put(store, delay_ms=HOUR, **changes)
        case JobState.PENDING:
            return put(store, **changes)
        case JobState.CANCELLED:
            job_id = put(store, **changes)
            store.cancel([job_id])
            return job_id
    job = started(store, **changes)
    match state:
        case JobState.RETRYING:
            settle(store, job, Failed(BOOM, HOUR))
        case JobState.COMPLETED:
            settle(store, job, Completed(b"1"))
        case JobState.DEAD:
            settle(store, job, Discarded(BOOM))
    return job.id


def lose(store: Store, clock: ManualClock, worker: WorkerId = W1) -> Job:
    """One whole crash: claim, let the lease run out, sweep, settle as lost. Answers the swept record."""
    job = start(store, worker)
    clock.advance(ms=HOUR)
    [swept] = store.sweep(SWEEPER)
    assert swept.id == job.id
    settle(store, swept, Lost("its worker died"), SWEEPER)
    clock.advance(ms=HOUR)
    return swept


def rescore_all(store: Store, limit: int = 1_000) -> list[int]:
    """Rescore until nothing is left; the answers, without the last 0."""
    answers: list[int] = []
    while answer := store.rescore(limit):
        answers.append(answer)
        assert len(answers) < 1_000, "rescore never comes to an end"
    return answers


def place_of(queue: Queue, job: Job, now: int) -> QueueRank:
    """Where `domain.rank` puts the job."""
    return compute_rank(
        queue.settings.scoring,
        ready_at=job.ready_at,
        priority=job.priority,
        failures=job.failures,
        deadline_at=job.deadline_at,
        now=now,
    )


def queue_of(reader: Reader, name: QueueName = DEFAULT) -> Queue:
    [queue] = reader.queues([name])
    return queue


def counts_of(reader: Reader, name: QueueName = DEFAULT) -> Counts:
    return reader.counts([name])[name]


def events_of(reader: Reader, job_id: JobId) -> list[Event]:
    timeline = reader.history(job_id)
    assert timeline is not None
    return list(timeline.events)


def kinds_of(reader: Reader, job_id: JobId) -> list[EventKind]:
    return [event.kind for event in events_of(reader, job_id)]


def attempts_of(reader: Reader, job_id: JobId) -> list[Attempt]:
    timeline = reader.history(job_id)
    assert timeline is not None
    return list(timeline.attempts)


def holder_of(store: Store, **key: Any) -> JobId | None:
    """Who answers for a key that must be taken."""
    [receipt] = store.insert([new_job(**key)])
    assert not receipt.is_new
    return receipt.id


def together(engine: Engine, steps: Sequence[Callable[[Store], T]]) -> list[T]:
    """Run each step in a thread and with a handle of its own, all let loose at once; their answers."""
    barrier = Barrier(len(steps))
    answers: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(number: int, step: Callable[[Store], T]) -> None:
        store = engine.store()
        try:
            barrier.wait(timeout=120)
            answers[number] = step(store)
        except BaseException as error:  # the thread has no caller to raise it to
            errors.append(error)
        finally:
            store.close()

    threads = [Thread(target=run, args=pair, daemon=True) for pair in enumerate(steps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a store call does not come back"
    if errors:
        raise errors[0]
    return [answers[number] for number in range(len(steps))]
