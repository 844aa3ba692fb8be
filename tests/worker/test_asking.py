"""Which queues are asked, and for how many jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.stores.protocol import Want
from forebay.testing.clock import ManualClock
from forebay.worker.asking import Asking
from forebay.worker.executors.protocol import Sorts
from forebay.worker.pace import Pace
from forebay.worker.slots import Assignment, Slots
from tests.domain.making import a_job

CALLS: Sorts = frozenset([False])
COROUTINES: Sorts = frozenset([True])


GATES = frozenset(["task:known"])


def asking(slots: Slots, clock: ManualClock, pace: Pace | None = None, **lanes: Sorts) -> Asking:
    queues = [QueueName(name) for name in lanes]
    return Asking(queues, lambda queue: lanes[queue], lambda: GATES, slots, pace or Pace(), clock)


def held(count: int, *, is_async: bool = False, started_at: float | None = None) -> list[Assignment]:
    jobs = [a_job(id=JobId(f"{is_async}-{number}-{started_at}")) for number in range(count)]
    found = [Assignment(job, 0.0, is_async=is_async) for job in jobs]
    for one in found:
        one.started_at = started_at
    return found


def names(wants: Sequence[Want]) -> list[str]:
    return [want.queue for want in wants]


@pytest.mark.shows("R-LEASE-11")
def test_as_many_jobs_are_asked_for_as_slots_are_free(clock: ManualClock) -> None:
    slots = Slots(threads=4)
    slots.add(held(3))

    wants, room = asking(slots, clock, mail=CALLS).wants([])

    assert (wants, room) == ([Want(QueueName("mail"), 1, gates=GATES)], 1)


def test_what_is_about_to_end_counts_as_free(clock: ManualClock) -> None:
    slots = Slots(threads=4)
    running = held(4)
    slots.add(running)

    _, room = asking(slots, clock, mail=CALLS).wants(running[:3])

    assert room == 3


def test_nothing_is_asked_for_without_room(clock: ManualClock) -> None:
    slots = Slots(threads=2)
    slots.add(held(3))

    assert asking(slots, clock, mail=CALLS).wants([]) == ([], 0)


def test_each_queue_is_first_in_its_turn(clock: ManualClock) -> None:
    ask = asking(Slots(threads=1), clock, a=CALLS, b=CALLS, c=CALLS)

    orders = [names(ask.wants([])[0]) for _ in range(4)]

    assert orders == [["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"], ["b", "c", "a"]]


def test_queues_of_coroutines_are_asked_for_as_many_as_there_are_coroutines(clock: ManualClock) -> None:
    _, room = asking(Slots(threads=4, coroutines=100), clock, web=COROUTINES).wants([])

    assert room == 100


def test_each_lane_has_its_turn_before_the_coordinator_sleeps(clock: ManualClock) -> None:
    ask = asking(Slots(threads=4, coroutines=100), clock, mail=CALLS, web=COROUTINES, more=CALLS)

    first, second = ask.wants([]), ask.wants([])

    assert (names(first[0]), first[1]) == (["more", "mail"], 4)
    assert (names(second[0]), second[1]) == (["web"], 100)
    assert not ask.has_more(0)


def test_a_lane_that_was_not_asked_yet_is_asked_at_once(clock: ManualClock) -> None:
    ask = asking(Slots(threads=4, coroutines=100), clock, mail=CALLS, web=COROUTINES)

    ask.wants([])

    assert ask.has_more(0)


def test_full_threads_do_not_hold_up_coroutines(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=100)
    slots.add(held(4))

    wants, room = asking(slots, clock, mail=CALLS, web=COROUTINES).wants([])

    assert (names(wants), room) == (["web"], 100)


def test_a_queue_of_both_sorts_is_asked_for_no_more_than_either_could_take(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=100)
    ask = asking(slots, clock, mixed=CALLS | COROUTINES)

    _, room = ask.wants([])
    slots.add(held(room, is_async=True))

    assert room == 4
    assert ask.has_more(given=4)  # all were coroutines, and the threads are still free
    assert ask.wants([])[1] == 4


def test_when_less_came_than_was_asked_for_the_queues_are_empty(clock: ManualClock) -> None:
    ask = asking(Slots(threads=4), clock, mail=CALLS)

    ask.wants([])

    assert not ask.has_more(given=3)


def test_short_jobs_travel_with_a_surplus(clock: ManualClock) -> None:
    slots, pace = Slots(threads=4), Pace()
    ask = asking(slots, clock, pace, mail=CALLS)
    for _ in range(50):
        pace.note("send", 0.001)
    ask.wants([])
    ask.given([a_job(task="send")])

    rooms = [ask.wants([])[1] for _ in range(12)]

    assert rooms[-1] == pytest.approx(404, abs=1)


def test_there_is_no_surplus_behind_slots_that_are_taken_by_long_jobs(clock: ManualClock) -> None:
    # The long ones have not ended, so the pace knows nothing of them: it would claim hundreds of short jobs
    # that then wait here while another worker has a free slot.
    slots, pace = Slots(threads=4), Pace()
    ask = asking(slots, clock, pace, mail=CALLS)
    for _ in range(50):
        pace.note("send", 0.001)
    ask.given([a_job(task="send")])
    slots.add(held(4, started_at=clock.monotonic()))
    clock.advance(seconds=0.2)

    assert [ask.wants([])[1] for _ in range(12)] == [0] * 12


@pytest.mark.shows("R-PRI-33")
def test_a_queue_that_has_had_fewer_jobs_is_asked_first(clock: ManualClock) -> None:
    ask = asking(Slots(threads=4), clock, a=CALLS, b=CALLS)
    ask.wants([])
    ask.given([a_job(queue=QueueName("a"))] * 4)

    firsts = [names(ask.wants([])[0])[0] for _ in range(3)]

    assert firsts == ["b", "b", "b"]


def test_a_queue_that_had_nothing_to_give_is_owed_nothing_for_that(clock: ManualClock) -> None:
    ask = asking(Slots(threads=4), clock, a=CALLS, b=CALLS)
    ask.wants([])
    ask.given([a_job(queue=QueueName("a"))] * 3)  # b was empty, else there were four

    firsts = {names(ask.wants([])[0])[0] for _ in range(2)}

    assert firsts == {"a", "b"}


def test_the_lane_that_has_had_the_fewest_jobs_is_asked_first(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=4)
    ask = asking(slots, clock, mixed=CALLS | COROUTINES, reports=CALLS)
    first = names(ask.wants([])[0])
    ask.given([a_job(id=JobId(f"m{number}"), queue=QueueName("mixed")) for number in range(4)])
    slots.add(held(4))
    full = ask.wants([])

    again = names(ask.wants(held(4))[0])

    assert (first, full, again) == (["mixed"], ([], 0), ["reports"])


def test_a_worker_says_which_gates_it_may_pass(clock: ManualClock) -> None:
    wants, _ = asking(Slots(2), clock, a=frozenset([False]), b=frozenset([False])).wants(())

    assert [want.gates for want in wants] == [GATES, GATES]
