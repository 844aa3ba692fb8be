"""Which queues are asked, and for how many jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from forebay.domain.job import Job, JobId, QueueName
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import ExecutorKinds
from forebay.worker.prefetch import PrefetchPolicy
from forebay.worker.queue_selector import QueueSelector
from forebay.worker.queue_weights_and_pauses import QueueWeights
from forebay.worker.slots import Slots
from tests.domain.sample_jobs import a_job

CALLS: ExecutorKinds = frozenset([ExecutorKind.CALLS])
COROUTINES: ExecutorKinds = frozenset([ExecutorKind.COROUTINES])


LANES = frozenset(["task:known"])


def make_selector(
    slots: Slots, clock: ManualClock, prefetch: PrefetchPolicy | None = None, **lanes: ExecutorKinds
) -> QueueSelector:
    queue_weights = QueueWeights({QueueName(name): 1 for name in lanes}, slots, Inbox())
    return make_selector_of(queue_weights, slots, clock, prefetch, **lanes)


def make_selector_of(
    queue_weights: QueueWeights,
    slots: Slots,
    clock: ManualClock,
    prefetch: PrefetchPolicy | None = None,
    **lanes: ExecutorKinds,
) -> QueueSelector:
    return QueueSelector(
        queue_weights,
        lambda queue: lanes.get(queue, CALLS),
        lambda: LANES,
        slots,
        prefetch or PrefetchPolicy(),
        clock,
    )


def held(
    count: int, *, kind: ExecutorKind = ExecutorKind.CALLS, started_at: float | None = None
) -> list[Assignment]:
    jobs = [a_job(id=JobId(f"{kind}-{number}-{started_at}")) for number in range(count)]
    found = [Assignment(job, 0.0, kind=kind) for job in jobs]
    for one in found:
        one.started_at = started_at
    return found


def names(claims: Sequence[QueueClaim]) -> list[str]:
    return [claim.queue for claim in claims]


@pytest.mark.shows("R-LEASE-11")
def test_as_many_jobs_are_asked_for_as_slots_are_free(clock: ManualClock) -> None:
    slots = Slots(threads=4)
    slots.add(held(3))

    claims, room = make_selector(slots, clock, mail=CALLS).next_claims([])

    assert (claims, room) == ([QueueClaim(QueueName("mail"), 1, lanes=LANES)], 1)


def test_what_is_about_to_end_counts_as_free(clock: ManualClock) -> None:
    slots = Slots(threads=4)
    running = held(4)
    slots.add(running)

    _, room = make_selector(slots, clock, mail=CALLS).next_claims(running[:3])

    assert room == 3


def test_nothing_is_asked_for_without_room(clock: ManualClock) -> None:
    slots = Slots(threads=2)
    slots.add(held(3))

    assert make_selector(slots, clock, mail=CALLS).next_claims([]) == ([], 0)


def test_each_queue_is_first_in_its_turn(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=1), clock, a=CALLS, b=CALLS, c=CALLS)

    orders = [names(selector.next_claims([])[0]) for _ in range(4)]

    assert orders == [["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"], ["b", "c", "a"]]


def test_queues_of_coroutines_are_asked_for_as_many_as_there_are_coroutines(clock: ManualClock) -> None:
    _, room = make_selector(Slots(threads=4, coroutines=100), clock, web=COROUTINES).next_claims([])

    assert room == 100


def test_each_lane_has_its_turn_before_the_coordinator_sleeps(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=4, coroutines=100), clock, mail=CALLS, web=COROUTINES, more=CALLS)

    first, second = selector.next_claims([]), selector.next_claims([])

    assert (names(first[0]), first[1]) == (["more", "mail"], 4)
    assert (names(second[0]), second[1]) == (["web"], 100)
    assert not selector.has_more(0)


def test_a_lane_that_was_not_asked_yet_is_asked_at_once(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=4, coroutines=100), clock, mail=CALLS, web=COROUTINES)

    selector.next_claims([])

    assert selector.has_more(0)


def test_full_threads_do_not_hold_up_coroutines(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=100)
    slots.add(held(4))

    claims, room = make_selector(slots, clock, mail=CALLS, web=COROUTINES).next_claims([])

    assert (names(claims), room) == (["web"], 100)


def test_a_queue_of_both_sorts_is_asked_for_no_more_than_either_could_take(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=100)
    selector = make_selector(slots, clock, mixed=CALLS | COROUTINES)

    _, room = selector.next_claims([])
    slots.add(held(room, kind=ExecutorKind.COROUTINES))

    assert room == 4
    assert selector.has_more(claimed=4)  # all were coroutines, and the threads are still free
    assert selector.next_claims([])[1] == 4


def test_when_less_came_than_was_asked_for_the_queues_are_empty(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=4), clock, mail=CALLS)

    selector.next_claims([])

    assert not selector.has_more(claimed=3)


def test_short_jobs_travel_with_a_prefetch(clock: ManualClock) -> None:
    slots, prefetch = Slots(threads=4), PrefetchPolicy()
    selector = make_selector(slots, clock, prefetch, mail=CALLS)
    for _ in range(50):
        prefetch.record_duration("send", 0.001)
    selector.next_claims([])
    selector.record_claimed([a_job(task="send")])

    rooms = [selector.next_claims([])[1] for _ in range(12)]

    assert rooms[-1] == pytest.approx(404, abs=1)


def test_there_is_no_prefetch_behind_slots_that_are_taken_by_long_jobs(clock: ManualClock) -> None:
    # The long ones have not ended, so the policy knows nothing of them: it would claim hundreds of short jobs
    # that then wait here while another worker has a free slot.
    slots, prefetch = Slots(threads=4), PrefetchPolicy()
    selector = make_selector(slots, clock, prefetch, mail=CALLS)
    for _ in range(50):
        prefetch.record_duration("send", 0.001)
    selector.record_claimed([a_job(task="send")])
    slots.add(held(4, started_at=clock.monotonic()))
    clock.advance(seconds=0.2)

    assert [selector.next_claims([])[1] for _ in range(12)] == [0] * 12


@pytest.mark.shows("R-PRI-33")
def test_a_queue_that_has_had_fewer_jobs_is_asked_first(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=4), clock, a=CALLS, b=CALLS)
    selector.next_claims([])
    selector.record_claimed([a_job(queue=QueueName("a"))] * 4)

    firsts = [names(selector.next_claims([])[0])[0] for _ in range(3)]

    assert firsts == ["b", "b", "b"]


def test_a_queue_that_had_nothing_to_give_is_owed_nothing_for_that(clock: ManualClock) -> None:
    selector = make_selector(Slots(threads=4), clock, a=CALLS, b=CALLS)
    selector.next_claims([])
    selector.record_claimed([a_job(queue=QueueName("a"))] * 3)  # b was empty, else there were four

    firsts = {names(selector.next_claims([])[0])[0] for _ in range(2)}

    assert firsts == {"a", "b"}


def test_the_lane_that_has_had_the_fewest_jobs_is_asked_first(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=4)
    selector = make_selector(slots, clock, mixed=CALLS | COROUTINES, reports=CALLS)
    first = names(selector.next_claims([])[0])
    selector.record_claimed([a_job(id=JobId(f"m{number}"), queue=QueueName("mixed")) for number in range(4)])
    slots.add(held(4))
    full = selector.next_claims([])

    again = names(selector.next_claims(held(4))[0])

    assert (first, full, again) == (["mixed"], ([], 0), ["reports"])


def test_a_worker_says_which_lanes_it_may_serve(clock: ManualClock) -> None:
    claims, _ = make_selector(
        Slots(2), clock, a=frozenset([ExecutorKind.CALLS]), b=frozenset([ExecutorKind.CALLS])
    ).next_claims(())

    assert [claim.lanes for claim in claims] == [LANES, LANES]


# ------------------------------------------------------------------ weights, strictness and pauses


def weighted(slots: Slots, *, strict: bool = False, **weights: int) -> QueueWeights:
    return QueueWeights(
        {QueueName(name): weight for name, weight in weights.items()}, slots, Inbox(), strict=strict
    )


def visits(selector: QueueSelector, count: int) -> list[str]:
    """Which queue was asked first, when each has one job to give every time."""
    first = []
    for _ in range(count):
        [queue, *_] = names(selector.next_claims([])[0])
        selector.record_claimed([a_job(queue=QueueName(queue))])
        first.append(queue)
    return first


def test_the_heavier_queue_is_asked_first_and_more_often(clock: ManualClock) -> None:
    slots = Slots(threads=1)

    order = visits(make_selector_of(weighted(slots, low=1, high=3), slots, clock), 8)

    assert order == ["high", "high", "low", "high"] * 2


@pytest.mark.shows("R-PRI-28", "R-PRI-30", "R-WORK-23", "R-PRI-26", "R-PRI-29")
def test_each_queue_has_its_share_of_the_visits(clock: ManualClock) -> None:
    slots = Slots(threads=1)

    order = visits(make_selector_of(weighted(slots, a=3, b=2, c=1, d=1), slots, clock), 1_001)

    assert {queue: order.count(queue) for queue in "abcd"} == {"a": 429, "b": 286, "c": 143, "d": 143}


def test_room_for_many_is_divided_among_the_queues_that_flow(clock: ManualClock) -> None:
    slots = Slots(threads=40)
    selector = make_selector_of(weighted(slots, low=1, high=3), slots, clock)
    firsts = portions(selector)
    selector.record_claimed(jobs_of(high=40))
    seconds = portions(selector)
    selector.record_claimed(jobs_of(high=39, low=1))
    thirds = portions(selector)
    selector.record_claimed(jobs_of(high=11, low=29))

    assert firsts == {"high": 40, "low": 40}  # unknown yet which queue has something
    assert seconds == {"low": 1, "high": 40}
    assert thirds == {"low": 29, "high": 11}  # low makes up for what it was behind
    assert portions(selector) == {"high": 30, "low": 10}


def test_a_queue_that_runs_dry_leaves_its_room_to_the_others_at_once(clock: ManualClock) -> None:
    slots = Slots(threads=40)
    selector = make_selector_of(weighted(slots, low=1, high=3), slots, clock)
    selector.next_claims([])
    selector.record_claimed(jobs_of(high=20, low=20))

    portions(selector)
    selector.record_claimed(jobs_of(low=10, high=2))

    assert selector.has_more(12)
    slots.add(held(12))
    assert portions(selector) == {"high": 1, "low": 28}
    selector.record_claimed(jobs_of(low=28))
    slots.add(held(28, kind=ExecutorKind.CALLS, started_at=0.0))
    assert not selector.has_more(28)


def portions(selector: QueueSelector) -> dict[str, int]:
    return {claim.queue: claim.limit for claim in selector.next_claims([])[0]}


def jobs_of(**counts: int) -> list[Job]:
    return [a_job(queue=QueueName(name)) for name, count in counts.items() for _ in range(count)]


@pytest.mark.shows("R-PRI-28")
def test_long_runs_keep_to_the_weights_whatever_the_room(clock: ManualClock) -> None:
    dice, had = Random(1), Counter[str]()
    slots = Slots(threads=100)
    selector = make_selector_of(weighted(slots, a=3, b=2, c=1), slots, clock)
    for _ in range(500):
        busy = held(dice.randrange(100))
        slots.add(busy)
        claims, room = selector.next_claims([])
        jobs: list[Job] = []
        for claim in claims:
            jobs += [a_job(queue=claim.queue)] * min(claim.limit, room - len(jobs))
        selector.record_claimed(jobs)
        had.update(job.queue for job in jobs)
        for one in busy:
            slots.end(one)

    assert had["a"] / had.total() == pytest.approx(3 / 6, abs=0.01)
    assert had["b"] / had.total() == pytest.approx(2 / 6, abs=0.01)


@pytest.mark.shows("R-PRI-31", "R-EDGE-41")
def test_a_light_queue_waits_no_longer_than_its_weight_says_however_full_the_others_are(
    clock: ManualClock,
) -> None:
    slots = Slots(threads=1)

    order = visits(make_selector_of(weighted(slots, urgent=20, other=3, low=1), slots, clock), 240)

    turns = [place for place, queue in enumerate(order) if queue == "low"]
    assert len(turns) == 10
    assert max(later - one for one, later in pairwise(turns)) <= 24 + 2


def test_other_weights_count_from_now_on_and_no_queue_owes_for_what_was(clock: ManualClock) -> None:
    slots = Slots(threads=1)
    queue_weights = QueueWeights({QueueName("a"): None, QueueName("b"): None}, slots, Inbox())
    selector = make_selector_of(queue_weights, slots, clock)
    queue_weights.update_weights({QueueName("a"): 9})
    before = visits(selector, 100)

    queue_weights.update_weights({QueueName("b"): 3})

    assert (before.count("a"), before.count("b")) == (90, 10)
    assert visits(selector, 40).count("b") == 30


@pytest.mark.shows("R-PRI-32")
def test_a_strict_worker_asks_in_the_order_given_and_others_do_not(clock: ManualClock) -> None:
    slots = Slots(threads=1)

    strict = visits(make_selector_of(weighted(slots, strict=True, first=1, second=9), slots, clock), 4)
    fair = visits(make_selector_of(weighted(slots, first=1, second=9), slots, clock), 4)

    assert strict == ["first"] * 4
    assert fair[0] == "second"


def test_a_strict_worker_keeps_the_order_between_lanes_too(clock: ManualClock) -> None:
    slots = Slots(threads=4, coroutines=4)
    queue_weights = weighted(slots, strict=True, mail=1, web=1)
    selector = make_selector_of(queue_weights, slots, clock, web=COROUTINES | CALLS)

    for _ in range(3):
        assert names(selector.next_claims([])[0]) == ["mail"]
        selector.record_claimed([a_job(queue=QueueName("mail"))] * 4)
        assert names(selector.next_claims([])[0]) == ["web"]


@pytest.mark.shows("R-QUEUE-15")
def test_a_paused_queue_is_left_out(clock: ManualClock) -> None:
    slots = Slots(threads=2)
    queue_weights = weighted(slots, a=1, b=1)
    selector = make_selector_of(queue_weights, slots, clock)

    queue_weights.pause("a")

    assert {name for _ in range(3) for name in names(selector.next_claims([])[0])} == {"b"}


def test_when_all_queues_are_paused_nothing_is_asked_and_no_claim_follows(clock: ManualClock) -> None:
    slots = Slots(threads=2)
    queue_weights = weighted(slots, a=1)
    selector = make_selector_of(queue_weights, slots, clock)
    queue_weights.pause()

    assert selector.next_claims([]) == ([], 0)
    assert not selector.has_more(0)

    queue_weights.resume()

    assert names(selector.next_claims([])[0]) == ["a"]


def test_a_queue_that_was_paused_is_owed_nothing_for_that(clock: ManualClock) -> None:
    slots = Slots(threads=1)
    queue_weights = weighted(slots, a=1, b=1)
    selector = make_selector_of(queue_weights, slots, clock)
    queue_weights.pause("a")
    visits(selector, 100)

    queue_weights.resume("a")

    assert visits(selector, 4).count("b") == 2
