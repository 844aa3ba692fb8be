"""Rows of the crash matrix: how jobs are accepted, claimed and settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from evidence.matrix_checks import HOUR, OTHER, QUEUES, Stage
from evidence.matrix_places import Act
from evidence.matrix_rows import BOOM, DYING, JOINING, MAIL, MINUTE, Rows, Scene, held, job
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Job, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.queue import QueueState
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import Settlement, decide
from forebay.errors import LeaseLost
from forebay.stores.contract.claims_and_results import QueueClaim

ROWS: Final = Rows()
TIMEOUT: Final = AttemptError(type="Timeout", message="ran longer than 1 s")
CLAIMS: Final = [QueueClaim(queue, 10) for queue in QUEUES]


def lease(one: Job) -> Lease:
    return Lease(one.id, one.attempt)


# Jobs that are accepted


@ROWS.add("insert: one plain job", "insert", repeatable=False)
def insert_one(stage: Stage) -> Act:
    stage.put(job())
    return lambda process: process.store.insert([job()])


@ROWS.add("insert: a plain batch", "insert", repeatable=False)
def insert_batch(stage: Stage) -> Act:
    stage.put(job())
    return lambda process: process.store.insert([job() for _ in range(5)])


@ROWS.add("insert: jobs that depend on each other", "insert", repeatable=False)
def insert_graph(stage: Stage) -> Act:
    stage.put(job())
    jobs = [job(), job(depends_on=dependencies_of([1])), job(depends_on=dependencies_of([1, 2]))]
    return lambda process: process.store.insert(jobs)


@ROWS.add("insert: the first job of a queue", "insert")
def insert_into_new_queue(stage: Stage) -> Act:
    return lambda process: process.store.insert([job(queue=MAIL, unique_key="u")])


@ROWS.add("insert: with unique and idempotency keys", "insert")
def insert_with_keys(stage: Stage) -> Act:
    stage.put(job(unique_key="taken"))
    jobs = [
        job(unique_key="u"),
        job(idempotency_key="o"),
        job(unique_key="taken"),
        job(unique_key="v", delay_ms=MINUTE),
    ]
    return lambda process: process.store.insert(jobs)


@ROWS.add("insert: a workflow", "insert")
def insert_workflow(stage: Stage) -> Act:
    [parent] = stage.put(job())
    jobs = [
        job(unique_key="a", depends_on=dependencies_of([parent])),
        job(unique_key="b", depends_on=dependencies_of([1])),
        job(unique_key="c", sequence="s"),
        job(unique_key="d", sequence="s"),
    ]
    return lambda process: process.store.insert(jobs)


@ROWS.add("insert: not atomic, one refused", "insert")
def insert_not_atomic(stage: Stage) -> Act:
    stage.store.save_queue(MAIL, state=QueueState.DRAINING)
    jobs = [job(unique_key="u"), job(unique_key="v", queue=MAIL)]
    return lambda process: process.store.insert(jobs, atomic=False)


@ROWS.add("insert in the caller's transaction", "insert_tx", engines=JOINING)
def insert_tx(stage: Stage) -> Act:
    stage.put(job())
    jobs = [job(unique_key="u"), job(unique_key="v")]
    return lambda process: process.insert_tx(jobs)


@ROWS.add("insert in the caller's transaction, awaited", "insert_tx_async", engines=("postgresql",))
def insert_tx_async(stage: Stage) -> Act:
    stage.put(job())
    jobs = [job(unique_key="u"), job(unique_key="v")]
    return lambda process: process.insert_tx_async(jobs)


# Leases


@ROWS.add("settle and claim: claim", "settle_and_claim")
def claim(stage: Stage) -> Act:
    stage.put(job(), job(), job(queue=MAIL))
    return lambda process: process.store.settle_and_claim(DYING, claims=CLAIMS, room=10)


@ROWS.add("settle and claim: claim what has come due", "settle_and_claim")
def claim_due(stage: Stage) -> Act:
    stage.put(job(delay_ms=1_000), job(expires_at=stage.clock.now_ms() + 500))
    stage.clock.advance(2_000)
    return lambda process: process.store.settle_and_claim(DYING, claims=CLAIMS, room=10)


@ROWS.add("settle and claim: claim at limits", "settle_and_claim")
def claim_limited(stage: Stage) -> Act:
    stage.limits += [Limit(scope=GLOBAL, concurrency=2), Limit(scope=key_scope("tenant"), concurrency=1)]
    for limit in stage.limits:
        stage.store.save_limit(limit)
    stage.put(*[job(limit_keys={"tenant": "a"}), job(limit_keys={"tenant": "a"}), job(), job()])
    return lambda process: process.store.settle_and_claim(DYING, claims=CLAIMS, room=10)


@ROWS.add("settle and claim: claim with unknown leases", "settle_and_claim")
def claim_recovering(stage: Stage) -> Act:
    held(stage)
    stage.put(job())
    return lambda process: process.store.settle_and_claim(DYING, claims=CLAIMS, room=10, known=[])


def settling(outcome: Outcome, *, is_good: bool = False, **changes: Any) -> Scene:
    def scene(stage: Stage) -> Act:
        jobs = held(stage, 2, **changes)
        if is_good:
            stage.returned(*jobs)
        ends = [decide(each, outcome, 0.0) for each in jobs]
        return lambda process: process.store.settle_and_claim(DYING, ends)

    return scene


NO_RETRY: Final = RetryPolicy(max_retries=0)
FOLLOW_UPS: Final = (job(unique_key="next"), job(unique_key="next"))
for _how, _scene in {
    "completed": settling(Completed(b"1"), is_good=True),
    "completed, with keys": settling(Completed(b"1"), is_good=True, unique_key="u", tags=("x",)),
    "completed, with follow-ups": settling(Completed(b"1", FOLLOW_UPS), is_good=True),
    "failed, to be retried": settling(Failed(BOOM)),
    "failed for good": settling(Failed(BOOM), policy=NO_RETRY),
    "snoozed": settling(Snoozed(MINUTE)),
    "discarded": settling(Discarded(BOOM)),
    "cancelled": settling(Cancelled("enough")),
    "handed back": settling(Interrupted(started=False)),
    "parked in a lane": settling(Parked("task:t", "not here")),
    "lost": settling(Lost("its worker died")),
}.items():
    ROWS.add(f"settle and claim: settle as {_how}", "settle_and_claim")(_scene)


@ROWS.add("settle and claim: settle what was taken over", "settle_and_claim")
def settle_refused(stage: Stage) -> Act:
    [one] = held(stage)
    stage.returned(one)
    stage.clock.advance(HOUR)
    [swept] = stage.store.sweep(OTHER)
    stage.store.settle_and_claim(OTHER, [decide(swept, Lost("its worker died"), 0.0)])
    return lambda process: process.store.settle_and_claim(DYING, [decide(one, Completed(b"1"), 0.0)])


def settling_late(*, is_claimed: bool) -> Scene:
    """The call of an attempt that was settled at its time limit comes back, and is settled once more."""

    def scene(stage: Stage) -> Act:
        [one] = held(stage)
        stage.store.settle_and_claim(DYING, [decide(one, Failed(TIMEOUT), 0.0)])
        if is_claimed:
            stage.clock.advance(MINUTE)
            stage.run(1, DYING)
        stage.returned(one)
        return lambda process: process.store.settle_and_claim(DYING, [decide(one, Completed(b"1"), 0.0)])

    return scene


ROWS.add("settle and claim: settle what was abandoned", "settle_and_claim")(settling_late(is_claimed=False))
ROWS.add("settle and claim: settle what was abandoned, its retry runs", "settle_and_claim")(
    settling_late(is_claimed=True)
)


@ROWS.add("settle and claim: both at once", "settle_and_claim")
def settle_and_claim(stage: Stage) -> Act:
    jobs = held(stage, 3)
    stage.returned(jobs[0])
    stage.put(job(), job(queue=MAIL))
    ends = [decide(jobs[0], Completed(b"1"), 0.0), decide(jobs[1], Failed(BOOM), 0.0)]
    return lambda process: process.store.settle_and_claim(DYING, ends, CLAIMS, 10)


def settling_parents(claims: Sequence[QueueClaim]) -> Scene:
    def scene(stage: Stage) -> Act:
        [parent, other] = held(stage, 2)
        stage.put(
            job(depends_on=dependencies_of([parent.id])),
            job(depends_on=dependencies_of([parent.id, other.id])),
        )
        stage.returned(parent)
        ends = [decide(parent, Completed(b"1"), 0.0), decide(other, Discarded(BOOM), 0.0)]
        return lambda process: process.store.settle_and_claim(DYING, ends, claims, 10)

    return scene


ROWS.add("settle and claim: settle parents", "settle_and_claim", continues=True)(settling_parents(()))
# What a call has released is claimed by it after what was there: the jobs are pending meanwhile.
ROWS.add(
    "settle and claim: settle parents, claim children",
    "settle_and_claim",
    continues=True,
    halfway=settling_parents(()),
)(settling_parents(CLAIMS))


def settling_of_a_join(parents: int) -> Scene:
    """The handle has looked at the queue before; the first parent goes by the list, the second tells the join
    in the transaction that ends it, and the third runs on."""

    def scene(stage: Stage) -> Act:
        jobs = held(stage, 3)
        stage.put(job(depends_on=dependencies_of([one.id for one in jobs])))
        stage.returned(*jobs[:2])
        ends = [[], *([decide(one, Completed(b"1"), 0.0)] for one in jobs[:parents])]
        return lambda process: [process.store.settle_and_claim(DYING, end, CLAIMS[:1], 0) for end in ends]

    return scene


ROWS.add(
    "settle and claim: settle parents of a join by turns",
    "settle_and_claim",
    continues=True,
    halfway=settling_of_a_join(1),
    engines=("postgresql",),
)(settling_of_a_join(2))


@ROWS.add("settle and claim: keep progress", "settle_and_claim")
def keep_progress(stage: Stage) -> Act:
    [one] = held(stage)
    line = LogLine(at=stage.clock.now_ms(), level="info", text="well", attempt=1, number=1)
    step = StepResult(name="half", result=b"1", attempt=1)
    note = ProgressUpdate(lease=lease(one), progress=Progress(done=1, total=2), lines=(line,), steps=(step,))
    return lambda process: process.store.settle_and_claim(DYING, updates=[note])


def _completion(stage: Stage) -> Settlement:
    [one] = held(stage)
    stage.returned(one)
    return decide(one, Completed(b"1"), 0.0)


def _once(complete: Callable[[WorkerId, Settlement], None], end: Settlement) -> None:
    """Complete a job; a second completion is told that the lease is not held."""
    try:
        complete(DYING, end)
    except LeaseLost:
        return


@ROWS.add("complete in the caller's transaction", "complete_tx", engines=JOINING)
def complete_tx(stage: Stage) -> Act:
    end = _completion(stage)
    return lambda process: _once(process.complete_tx, end)


@ROWS.add("complete in the caller's transaction, awaited", "complete_tx_async", engines=("postgresql",))
def complete_tx_async(stage: Stage) -> Act:
    end = _completion(stage)
    return lambda process: _once(process.complete_tx_async, end)


@ROWS.add("lease status", "lease_status")
def lease_status(stage: Stage) -> Act:
    [one] = held(stage)
    return lambda process: process.store.lease_status(DYING, [lease(one)])


@ROWS.add("renew", "renew")
def renew(stage: Stage) -> Act:
    jobs = held(stage, 2)
    stage.clock.advance(10_000)
    return lambda process: process.store.renew(DYING, [lease(each) for each in jobs])


@ROWS.add("sweep", "sweep")
def sweep(stage: Stage) -> Act:
    stage.put(job(), job())
    stage.run(2)
    stage.clock.advance(HOUR)
    return lambda process: process.store.sweep(DYING)
