"""Lanes: jobs that a worker cannot run are parked, and a worker that can run them finds them there."""

from __future__ import annotations

import pytest

from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lane import lanes_for_program, payload_lane, task_lane
from forebay.domain.outcome import Completed, Failed, Parked
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts, LaneCount
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    T0,
    W1,
    W2,
    attempts_of,
    counts_of,
    ended,
    events_of,
    look,
    put,
    settle,
    started,
)
from tests.stores.support import new_job

KNOWS_A = lanes_for_program(["a"], 1)
KNOWS_B = lanes_for_program(["b"], 1)


def take(store: Store, n: int, lanes: frozenset[str] | None, worker: WorkerId = W1) -> list[Job]:
    """What a claim for a worker that serves these lanes gives."""
    return list(store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, n, lanes=lanes)], room=n).jobs)


def tasks(jobs: list[Job]) -> list[str]:
    return [job.task for job in jobs]


def lane_of(reader: Reader, job_id: JobId) -> str | None:
    return look(reader, job_id).lane


def test_a_worker_gets_only_jobs_of_tasks_it_knows(store: Store, reader: Reader) -> None:
    ids = [put(store, task=task) for task in ("a", "b", "a", "b", "a")]

    assert [job.id for job in take(store, 10, KNOWS_A)] == ids[::2]
    assert [lane_of(reader, job_id) for job_id in ids] == [None, "task:b", None, "task:b", None]
    assert counts_of(reader) == Counts(pending=2, running=3)


def test_a_job_that_is_held_is_shown_with_its_lane_and_has_lost_nothing(store: Store, reader: Reader) -> None:
    job_id = put(store, task="b", priority=7)

    take(store, 1, KNOWS_A)

    job = look(reader, job_id)
    assert (job.state, job.lane, job.attempt, job.worker, job.priority) == (
        JobState.PENDING,
        "task:b",
        0,
        None,
        7,
    )
    [event] = events_of(reader, job_id)
    assert (event.kind, event.actor, event.detail) == (EventKind.PARKED, W1, "task:b")
    assert reader.lanes() == [LaneCount(queue=DEFAULT, lane="task:b", jobs=1)]
    assert reader.peek(DEFAULT) == []
    assert reader.position(job_id) is None


def test_a_job_says_when_it_was_held(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store, task="b")
    clock.advance(HOUR)
    take(store, 1, KNOWS_A)

    job = look(reader, job_id)
    assert (job.created_at, job.ready_at, job.updated_at) == (T0, T0, T0 + HOUR)


def test_held_jobs_are_counted_by_queue_and_lane(store: Store, reader: Reader) -> None:
    store.insert([new_job(task=task, queue=queue) for task in "abb" for queue in (MAIL, DEFAULT)])
    store.settle_and_claim(
        W1,
        claims=[QueueClaim(MAIL, 9, lanes=KNOWS_A), QueueClaim(DEFAULT, 9, lanes=lanes_for_program((), 1))],
        room=18,
    )

    assert reader.lanes() == [
        LaneCount(queue=DEFAULT, lane="task:a", jobs=1),
        LaneCount(queue=DEFAULT, lane="task:b", jobs=2),
        LaneCount(queue=MAIL, lane="task:b", jobs=2),
    ]


def test_a_worker_that_knows_the_task_gets_parked_jobs_in_their_order(store: Store, reader: Reader) -> None:
    low, high = put(store, task="b"), put(store, task="b", priority=9)
    take(store, 2, KNOWS_A)
    late = put(store, task="b", priority=50)

    jobs = take(store, 3, KNOWS_B, W2)

    assert [job.id for job in jobs] == [late, high, low]
    assert [(job.lane, job.attempt) for job in jobs] == [(None, 1)] * 3
    assert [lane_of(reader, job.id) for job in jobs] == [None] * 3
    assert reader.lanes() == []


def test_room_is_shared_by_lanes_and_order(store: Store) -> None:
    ids = [put(store, task=task) for task in ("b", "c")]
    take(store, 5, KNOWS_A)
    ids.append(put(store, task="b"))
    knows = lanes_for_program(["b", "c"], 1)

    assert [[job.id for job in take(store, 1, knows)] for _ in range(4)] == [[ids[0]], [ids[1]], [ids[2]], []]


def test_a_caller_that_takes_any_job_takes_held_ones_too(store: Store) -> None:
    put(store, task="b")
    take(store, 1, KNOWS_A)
    put(store, task="c")

    assert tasks(take(store, 5, None, W2)) == ["b", "c"]


def test_a_claim_puts_aside_only_so_many_jobs(store: Store, reader: Reader) -> None:
    """Of 4 x 2 + 100 jobs and one more, the one more stands before the last that is known."""
    first = put(store, task="a")
    store.insert([new_job(task="b") for _ in range(109)])
    last = put(store, task="a")

    assert [job.id for job in take(store, 2, KNOWS_A)] == [first]
    assert reader.lanes() == [LaneCount(queue=DEFAULT, lane="task:b", jobs=108)]
    assert [job.id for job in take(store, 2, KNOWS_A)] == [last]
    assert reader.lanes() == [LaneCount(queue=DEFAULT, lane="task:b", jobs=109)]


def test_a_claim_of_one_steps_over_many(store: Store) -> None:
    store.insert([new_job(task="b") for _ in range(50)])
    known = put(store, task="a")

    assert [job.id for job in take(store, 1, KNOWS_A)] == [known]


def test_an_attempt_can_end_in_a_lane_without_a_failure(store: Store, reader: Reader) -> None:
    job = started(store, task="a")

    settle(store, job, Parked(payload_lane(2), "made for version 2"))

    found = look(reader, job.id)
    assert (found.state, found.lane, found.attempt, found.failures) == (
        JobState.PENDING,
        "payload:2",
        1,
        0,
    )
    [event] = events_of(reader, job.id)
    assert (event.kind, event.actor, event.attempt) == (EventKind.PARKED, W1, 1)
    assert event.detail == "payload:2: made for version 2"
    assert attempts_of(reader, job.id) == []
    assert take(store, 1, KNOWS_A) == []
    assert [each.attempt for each in take(store, 1, lanes_for_program(["a"], 2))] == [2]


def test_an_end_in_a_lane_is_guarded_like_every_end(store: Store, reader: Reader) -> None:
    job = started(store, task="a")

    answer = store.settle_and_claim(W2, [ended(job, Parked("payload:2"))])

    assert [refusal.reason for refusal in answer.refused] == ["other worker"]
    assert lane_of(reader, job.id) is None


def test_a_job_with_a_request_to_be_cancelled_is_not_held(store: Store, reader: Reader) -> None:
    job = started(store, task="a")
    store.cancel([job.id], "not needed")

    settle(store, job, Parked("payload:2"))

    assert look(reader, job.id).state is JobState.CANCELLED


def test_a_failed_attempt_of_a_job_that_was_held_goes_back_to_the_order(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    job_id = put(store, task="b")
    take(store, 1, KNOWS_A)
    [job] = take(store, 1, KNOWS_B)
    settle(store, job, Failed(BOOM, 5))
    clock.advance(5)

    assert [each.id for each in take(store, 1, KNOWS_B)] == [job_id]


@pytest.mark.parametrize("end", ["cancel", "delete", "complete"])
def test_a_held_job_can_end_like_any_pending_one(store: Store, reader: Reader, end: str) -> None:
    job_id = put(store, task="b", unique_key="k")
    take(store, 1, KNOWS_A)

    match end:
        case "cancel":
            store.cancel([job_id])
        case "delete":
            store.delete([job_id])
        case _:
            [job] = take(store, 1, KNOWS_B)
            settle(store, job, Completed(b"1"))

    assert reader.lanes() == []
    assert put(store, unique_key="k")


def test_a_held_job_can_be_updated_and_stays_held(store: Store, reader: Reader) -> None:
    first, second = put(store, task="b"), put(store, task="b")
    take(store, 2, KNOWS_A)

    assert store.update_job(second, JobUpdate(priority=9)).applied

    assert lane_of(reader, second) == "task:b"
    assert [job.id for job in take(store, 2, KNOWS_B)] == [second, first]


def test_a_held_job_past_its_time_is_not_started(store: Store, reader: Reader, clock: ManualClock) -> None:
    job_id = put(store, task="b", expires_at=T0 + HOUR)
    take(store, 1, KNOWS_A)
    clock.advance(HOUR)

    assert take(store, 1, KNOWS_B) == []
    assert look(reader, job_id).state is JobState.CANCELLED


def test_a_paused_queue_holds_nothing_and_gives_nothing(store: Store, reader: Reader) -> None:
    held = put(store, task="b")
    take(store, 1, KNOWS_A)
    other = put(store, task="c")
    store.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert take(store, 5, KNOWS_B) == []
    assert [lane_of(reader, held), lane_of(reader, other)] == [task_lane("b"), None]


def test_jobs_in_several_lanes_and_in_the_order_come_by_their_rank(store: Store) -> None:
    """No lane goes before another one, so that nothing behind one of them waits for ever."""
    first = [put(store, task=task, priority=priority) for task, priority in (("c", 9), ("b", 0), ("b", 3))]
    take(store, 9, KNOWS_A)
    rest = [put(store, task=task, priority=priority) for task, priority in (("c", 5), ("b", 7))]
    knows = lanes_for_program(["b", "c"], 1)

    claimed = [job.id for _ in range(3) for job in take(store, 2, knows)]

    assert claimed == [first[0], rest[1], rest[0], first[2], first[1]]


def test_a_lane_is_found_among_many(store: Store) -> None:
    store.insert([new_job(task=f"t{n:04}") for n in range(300)] + [new_job(task="z")])
    while take(store, 100, lanes_for_program(["y"], 1)):
        raise AssertionError("no worker knows these tasks")

    assert tasks(take(store, 10, lanes_for_program(["z", "y"], 1))) == ["z"]


def test_a_job_whose_payload_can_be_read_by_now_and_whose_task_is_not_known_goes_to_its_tasks_lane(
    store: Store, reader: Reader
) -> None:
    job = started(store, task="a")
    settle(store, job, Parked(payload_lane(2)))

    assert take(store, 1, lanes_for_program(["b"], 2)) == []
    assert lane_of(reader, job.id) == "task:a"
    assert [each.id for each in take(store, 1, KNOWS_A)] == [job.id]


@pytest.mark.parametrize("capped", [False, True])
def test_held_jobs_of_both_classes_are_claimed_by_lead(
    store: Store, clock: ManualClock, capped: bool
) -> None:
    """A job that waits in its lane until its age earns nothing more is still found in its turn."""
    old = put(store, task="b")
    take(store, 1, KNOWS_A)
    if capped:
        clock.advance(60 * HOUR)
        while store.rescore():
            pass
    new = put(store, task="b", priority=60)

    jobs = take(store, 2, KNOWS_B)

    assert [job.id for job in jobs] == [new, old]
    assert jobs[1].age_capped is capped
