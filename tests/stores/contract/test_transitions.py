"""The lifecycle: each operation on a job in each state either moves it or leaves it exactly as it was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from forebay.domain.job import Job
from forebay.domain.job_states import TRANSITIONS, JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
)
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DAY,
    DEFAULT,
    HOUR,
    MAIL,
    STATES,
    SWEEPER,
    T0,
    W1,
    W2,
    ended,
    look,
    make,
    record,
)

Operation = Callable[[Store, ManualClock, Job], object]

SCHEDULED, PENDING, RUNNING, RETRYING = (
    JobState.SCHEDULED,
    JobState.PENDING,
    JobState.RUNNING,
    JobState.RETRYING,
)
COMPLETED, DEAD, CANCELLED = JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED
WAITING = (SCHEDULED, PENDING, RETRYING)


def settling(outcome: Outcome) -> Operation:
    """The end of the attempt that the record shows, by the worker that it shows."""
    return lambda store, _, job: store.settle_and_claim(job.worker or W1, [ended(job, outcome)])


def settling_as_another(outcome: Outcome) -> Operation:
    return lambda store, _, job: store.settle_and_claim(W2, [ended(job, outcome)])


def settling_an_old_attempt(outcome: Outcome) -> Operation:
    return lambda store, _, job: store.settle_and_claim(
        job.worker or W1, [ended(job, outcome, attempt=job.attempt - 1)]
    )


def claim(store: Store, clock: ManualClock, job: Job) -> object:
    return store.settle_and_claim(W2, claims=[QueueClaim(DEFAULT, 9)], room=9)


def claim_when_due(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=HOUR)
    return claim(store, clock, job)


def claim_when_expired(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=DAY)
    return claim(store, clock, job)


def renew(store: Store, clock: ManualClock, job: Job) -> object:
    return store.renew(job.worker or W1, [Lease(job.id, job.attempt)], 99_000)


def sweep(store: Store, clock: ManualClock, job: Job) -> object:
    return store.sweep(SWEEPER)


def sweep_when_lease_is_over(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=HOUR)
    return store.sweep(SWEEPER)


def promote(store: Store, clock: ManualClock, job: Job) -> object:
    return store.promote()


def promote_when_due(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=HOUR)
    return store.promote()


def promote_when_expired(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=DAY)
    return store.promote()


def cancel(store: Store, clock: ManualClock, job: Job) -> object:
    return store.cancel([job.id])


def cancel_by_force(store: Store, clock: ManualClock, job: Job) -> object:
    return store.cancel([job.id], force=True)


def updating(change: JobUpdate) -> Operation:
    return lambda store, _, job: store.update_job(job.id, change)


def revive(store: Store, clock: ManualClock, job: Job) -> object:
    return store.revive([job.id])


def revive_for_later(store: Store, clock: ManualClock, job: Job) -> object:
    return store.revive([job.id], delay_ms=HOUR)


def revive_elsewhere(store: Store, clock: ManualClock, job: Job) -> object:
    return store.revive([job.id], queue=MAIL)


def delete(store: Store, clock: ManualClock, job: Job) -> object:
    return store.delete([job.id])


def drop_queue(store: Store, clock: ManualClock, job: Job) -> object:
    return store.drop_queue(DEFAULT, force=True)


def prune(store: Store, clock: ManualClock, job: Job) -> object:
    return store.prune()


def prune_when_old(store: Store, clock: ManualClock, job: Job) -> object:
    clock.advance(ms=100 * DAY)
    return store.prune()


OPERATIONS: dict[str, Operation] = {
    "claim": claim,
    "claim when due": claim_when_due,
    "claim when expired": claim_when_expired,
    "complete": settling(Completed(b"1")),
    "fail": settling(Failed(BOOM, HOUR)),
    "snooze": settling(Snoozed(HOUR)),
    "discard": settling(Discarded(BOOM)),
    "end as cancelled": settling(Cancelled("x")),
    "hand back": settling(Interrupted()),
    "lose": settling(Lost("died")),
    "complete as another": settling_as_another(Completed(b"1")),
    "fail as another": settling_as_another(Failed(BOOM, HOUR)),
    "complete an old attempt": settling_an_old_attempt(Completed(b"1")),
    "fail an old attempt": settling_an_old_attempt(Failed(BOOM, HOUR)),
    "renew": renew,
    "sweep": sweep,
    "sweep when lease is over": sweep_when_lease_is_over,
    "promote": promote,
    "promote when due": promote_when_due,
    "promote when expired": promote_when_expired,
    "cancel": cancel,
    "cancel by force": cancel_by_force,
    "update priority": updating(JobUpdate(priority=3)),
    "update to now": updating(JobUpdate(delay_ms=0)),
    "update to later": updating(JobUpdate(delay_ms=2 * HOUR)),
    "update metadata": updating(JobUpdate(metadata={"a": 1})),
    "revive": revive,
    "revive for later": revive_for_later,
    "revive elsewhere": revive_elsewhere,
    "delete": delete,
    "drop queue": drop_queue,
    "prune": prune,
    "prune when old": prune_when_old,
}

# What an operation makes of a job; None means that it is gone, the same state that it is changed in place.
MOVES: dict[tuple[JobState, str], JobState | None] = {
    (PENDING, "claim"): RUNNING,
    (PENDING, "claim when due"): RUNNING,
    (SCHEDULED, "claim when due"): RUNNING,
    (RETRYING, "claim when due"): RUNNING,
    (RUNNING, "complete"): COMPLETED,
    (RUNNING, "fail"): RETRYING,
    (RUNNING, "snooze"): SCHEDULED,
    (RUNNING, "discard"): DEAD,
    (RUNNING, "end as cancelled"): CANCELLED,
    (RUNNING, "hand back"): PENDING,
    (RUNNING, "lose"): PENDING,
    (RUNNING, "renew"): RUNNING,
    (RUNNING, "sweep when lease is over"): RUNNING,
    (SCHEDULED, "promote when due"): PENDING,
    (RETRYING, "promote when due"): PENDING,
    (RUNNING, "cancel"): RUNNING,
    (RUNNING, "cancel by force"): DEAD,
    (SCHEDULED, "update to now"): PENDING,
    (RETRYING, "update to now"): PENDING,
    (SCHEDULED, "update to later"): SCHEDULED,
    (RETRYING, "update to later"): RETRYING,
    (RUNNING, "update metadata"): RUNNING,
    (DEAD, "revive"): PENDING,
    (DEAD, "revive for later"): SCHEDULED,
    (DEAD, "revive elsewhere"): PENDING,
    (CANCELLED, "revive"): PENDING,
    (CANCELLED, "revive for later"): SCHEDULED,
    (CANCELLED, "revive elsewhere"): PENDING,
    **{(state, "claim when expired"): CANCELLED for state in WAITING},
    **{(state, "promote when expired"): CANCELLED for state in WAITING},
    **{(state, "cancel"): CANCELLED for state in WAITING},
    **{(state, "cancel by force"): CANCELLED for state in WAITING},
    **{(state, "update priority"): state for state in WAITING},
    **{(state, "update metadata"): state for state in WAITING},
    **{(state, "drop queue"): DEAD for state in WAITING},
    **{(state, "delete"): None for state in STATES if state is not RUNNING},
    **{(state, "prune when old"): None for state in (COMPLETED, DEAD, CANCELLED)},
}
PAIRS = list(product(STATES, OPERATIONS))
LEGAL = [(state, name, MOVES[state, name]) for state, name in PAIRS if (state, name) in MOVES]
ILLEGAL = [(state, name) for state, name in PAIRS if (state, name) not in MOVES and name != "update to now"]


def prepared(store: Store, reader: Reader, state: JobState) -> Job:
    """A job that expires long after it is due, with a past if it has one."""
    return look(reader, make(store, state, expires_at=T0 + DAY, extension_ms=366 * DAY))


@pytest.mark.shows("R-JOB-45")
@pytest.mark.parametrize(("state", "name", "after"), LEGAL)
def test_a_legal_move_is_made(
    store: Store, reader: Reader, clock: ManualClock, state: JobState, name: str, after: JobState | None
) -> None:
    job = prepared(store, reader, state)

    OPERATIONS[name](store, clock, job)

    [moved] = reader.jobs([job.id])
    assert (moved.state if moved else None) is after


@pytest.mark.shows("R-JOB-45", "R-LEASE-22", "R-JOB-56")
@pytest.mark.parametrize(("state", "name"), ILLEGAL)
def test_an_illegal_move_leaves_the_job_exactly_as_it_was(
    store: Store, reader: Reader, clock: ManualClock, state: JobState, name: str
) -> None:
    job = prepared(store, reader, state)
    before = record(reader, job.id)
    counts = reader.counts()

    OPERATIONS[name](store, clock, job)

    assert record(reader, job.id) == before
    assert reader.counts()[DEFAULT] == counts[DEFAULT]


@pytest.mark.parametrize("state", [RUNNING, COMPLETED, DEAD, CANCELLED])
def test_only_a_waiting_job_can_be_made_pending_by_hand(
    store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    job = prepared(store, reader, state)
    before = record(reader, job.id)

    OPERATIONS["update to now"](store, clock, job)

    assert record(reader, job.id) == before


def test_every_move_tested_here_is_in_the_table_of_the_domain() -> None:
    moves = {
        (state, after)
        for (state, name), after in MOVES.items()
        if after is not None and after is not state and name != "claim when due"
    }

    assert all(after in TRANSITIONS[state] for state, after in moves)


def test_every_move_of_the_domain_between_these_states_is_tested_here() -> None:
    tested = {(state, after) for (state, _), after in MOVES.items() if after is not None}
    wanted = {(state, after) for state in STATES for after in TRANSITIONS[state] if after in STATES}

    assert wanted - tested == set()
