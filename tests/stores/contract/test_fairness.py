"""Fairness keys: jobs of one queue that belong to several are served by weighted fair queueing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import Dependency, Job, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Interrupted
from forebay.domain.queue import QueueState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, MAIL, SECOND, W1, W2, put, settle
from tests.stores.support import claim, complete, fail, new_job


def keyed(key: str, jobs: int = 1, **changes: Any) -> list[NewJob]:
    return [new_job(limit_keys={"fairness": key} if key else {}, **changes) for _ in range(jobs)]


def keys_of(jobs: Sequence[Job]) -> dict[str, int]:
    return dict(Counter(job.limit_keys.get("fairness", "") for job in jobs))


@pytest.mark.shows("R-PRI-36")
def test_a_few_jobs_of_one_fairness_key_do_not_wait_behind_the_backlog_of_another(store: Store) -> None:
    store.insert(keyed("acme", 300))
    store.insert(keyed("small", 10))

    jobs = [*claim(store, 8), *claim(store, 13)]

    assert keys_of(jobs)["small"] >= 9
    assert keys_of([*jobs, *claim(store, 2)])["small"] == 10


def test_a_claim_for_many_takes_what_there_is_when_fairness_keys_run_dry(store: Store) -> None:
    store.insert([*keyed("a", 30), *keyed("b", 2), *keyed("c", 1)])

    first, rest = claim(store, 20), claim(store, 50)

    assert keys_of(first) == {"a": 17, "b": 2, "c": 1}
    assert (keys_of(rest), claim(store, 5)) == ({"a": 13}, [])


@pytest.mark.shows("R-PRI-36")
def test_fairness_keys_are_served_by_their_weights_and_these_can_be_changed_at_any_time(store: Store) -> None:
    store.save_queue(DEFAULT, {"fairness_weights": {"gold": 3}})
    store.insert([*keyed("gold", 60), *keyed("trial", 60)])

    before = Counter(keys_of(claim(store, 40)))
    store.save_queue(DEFAULT, {"fairness_weights": {"trial": 4}})
    after = Counter(keys_of(claim(store, 20)))

    assert before["gold"] in (29, 30, 31)
    assert after["trial"] in (15, 16, 17)


def test_within_a_fairness_key_the_order_of_the_queue_holds(store: Store, clock: ManualClock) -> None:
    late = put(store, limit_keys={"fairness": "a"}, priority=0)
    urgent = put(store, limit_keys={"fairness": "a"}, priority=9)
    put(store, limit_keys={"fairness": "b"}, priority=0)
    clock.advance(1)
    first = put(store, limit_keys={"fairness": "a"}, priority=50)

    ids = [job.id for _ in range(4) for job in claim(store) if job.limit_keys["fairness"] == "a"]

    assert ids == [first, urgent, late]


def test_jobs_without_a_fairness_key_stand_next_to_them_by_their_rank(
    store: Store, clock: ManualClock
) -> None:
    old = put(store)
    clock.advance(1)
    ours = put(store, limit_keys={"fairness": "a"})
    clock.advance(1)
    young = put(store)
    urgent = put(store, priority=50)

    assert [job.id for _ in range(5) for job in claim(store)] == [urgent, old, ours, young]


def test_next_to_jobs_without_a_fairness_key_only_the_next_of_the_keys_counts(store: Store) -> None:
    store.insert(keyed("urgent", 4, priority=50))
    claim(store)
    store.insert(keyed("other", 3, priority=0))
    store.insert([new_job(priority=10)] * 3)

    assert keys_of(claim(store, 4)) == {"urgent": 1, "": 3}
    assert keys_of(claim(store, 2)) == {"other": 1, "urgent": 1}


def test_one_who_has_a_single_job_at_a_time_takes_turns_with_a_backlog(store: Store) -> None:
    store.insert(keyed("backlog", 30))

    had: list[str] = []
    for _ in range(20):
        store.insert(keyed("single", 1) if "single" not in had[-1:] else [])
        had += [job.limit_keys["fairness"] for job in claim(store)]

    assert 8 <= had.count("backlog") <= 12


@pytest.mark.shows("R-PRI-36")
def test_scheduled_retried_blocked_and_revived_jobs_wait_for_the_turn_of_their_fairness_key_too(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    retried = put(store, limit_keys={"fairness": "a"})
    store.settle_and_claim(W1, [fail(job, after_ms=SECOND) for job in claim(store)])
    waiting = put(store, limit_keys={"fairness": "a"}, delay_ms=SECOND)
    child = released_child(store)
    cancelled = put(store, limit_keys={"fairness": "a"})
    store.cancel([cancelled])
    store.revive([cancelled])
    clock.advance(SECOND)
    store.promote()

    lanes = {job.id: job.lane for job in reader.jobs([waiting, child, retried, cancelled]) if job}

    assert lanes == dict.fromkeys([waiting, child, retried, cancelled], "fairness:a")
    assert {job.id for job in claim(store, 9)} == {waiting, child, retried, cancelled}


def test_a_job_that_comes_due_is_claimed_by_the_call_that_finds_it(store: Store, clock: ManualClock) -> None:
    later = put(store, limit_keys={"fairness": "a"}, delay_ms=SECOND)
    clock.advance(SECOND)

    assert [job.id for job in claim(store)] == [later]


def released_child(store: Store) -> JobId:
    """A job of fairness key a that has waited for another one to complete."""
    need = Dependency(parent=put(store), on_failure=OnFailure.CANCEL)
    child = put(store, limit_keys={"fairness": "a"}, depends_on=(need,))
    store.settle_and_claim(W1, [complete(job) for job in claim(store)])
    return child


def test_a_job_that_is_updated_to_run_now_waits_for_the_turn_of_its_fairness_key(
    store: Store, reader: Reader
) -> None:
    later = put(store, limit_keys={"fairness": "a"}, delay_ms=SECOND)

    store.update_job(later, JobUpdate(delay_ms=0))

    assert [job and job.lane for job in reader.jobs([later])] == ["fairness:a"]
    assert [job.id for job in claim(store)] == [later]


def test_a_job_that_is_handed_back_has_had_its_turn_and_is_next(store: Store) -> None:
    store.insert([*keyed("a", 3), *keyed("b", 3)])
    [job] = claim(store)

    settle(store, job, Interrupted())

    assert [one.id for one in claim(store)] == [job.id]


def test_fairness_keys_of_other_queues_and_ended_jobs_do_not_count(store: Store) -> None:
    store.insert(keyed("a", 2, queue=MAIL))
    gone = put(store, limit_keys={"fairness": "gone"})
    store.cancel([gone])
    ours = put(store, limit_keys={"fairness": "b"})

    assert [job.id for job in claim(store, 5)] == [ours]
    assert len(claim(store, 5, MAIL)) == 2
    assert claim(store, 5) == []


def test_a_paused_queue_gives_out_nothing_of_its_fairness_keys_either(store: Store) -> None:
    store.insert(keyed("a", 2))
    store.save_queue(DEFAULT, state=QueueState.PAUSED)

    assert claim(store, 2) == []


def test_a_fairness_key_can_have_a_limit_as_well(store: Store) -> None:
    store.save_limit(Limit(scope="key:fairness", concurrency=2))
    store.insert([*keyed("a", 20), *keyed("b", 3)])

    jobs = claim(store, 10)

    assert keys_of(jobs) == {"a": 2, "b": 2}
    store.settle_and_claim(W1, list(map(complete, jobs)))
    assert keys_of(claim(store, 10)) == {"a": 2, "b": 1}


def test_a_fairness_key_at_its_limit_does_not_hide_another_from_a_claim_for_one_job(store: Store) -> None:
    store.save_limit(Limit(scope="key:fairness", concurrency=1))
    store.insert(keyed("a", 2))
    claim(store)
    store.insert(keyed("b", 1))

    assert keys_of(claim(store)) == {"b": 1}


def test_jobs_for_other_workers_go_in_the_lanes_of_their_tasks(store: Store, reader: Reader) -> None:
    store.insert([*keyed("a", 2, task="other"), *keyed("a", 2, task="mine")])

    request = QueueClaim(DEFAULT, 4, lanes=frozenset(["task:mine"]))
    jobs = store.settle_and_claim(W1, claims=[request], room=4).jobs

    assert [job.task for job in jobs] == ["mine", "mine"]
    assert [(held.lane, held.jobs) for held in reader.lanes()] == [("task:other", 2)]
    assert len(claim(store, 4, worker=W2)) == 2


def test_a_dropped_queue_marks_the_jobs_of_its_fairness_keys_dead(store: Store, reader: Reader) -> None:
    store.insert([*keyed("a", 3), *keyed("b", 1)])

    store.drop_queue(DEFAULT, force=True)

    assert reader.counts([DEFAULT])[DEFAULT].dead == 4


def test_two_workers_share_the_turns(store: Store, other_store: Store) -> None:
    store.insert([*keyed("a", 20), *keyed("b", 20)])

    jobs = [*claim(store, 5), *claim(other_store, 5, worker=W2), *claim(store, 4)]

    assert keys_of(jobs) in ({"a": 7, "b": 7}, {"a": 8, "b": 6}, {"a": 6, "b": 8})
    assert len({job.id for job in jobs}) == 14


def test_who_comes_after_a_fairness_key_ran_dry_begins_next_to_those_that_filled_up(store: Store) -> None:
    store.insert([*keyed("short", 1), *keyed("long", 40)])
    assert keys_of(claim(store, 11)) == {"short": 1, "long": 10}

    store.insert(keyed("late", 40))

    assert keys_of(claim(store, 10)) == {"long": 5, "late": 5}


WEIGHTS = {"a": 1, "b": 2, "c": 5}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(1, 6)),
        st.tuples(st.just("claim"), st.integers(1, 5)),
    ),
    min_size=4,
    max_size=14,
)
numbers = count()


@pytest.mark.shows("R-PRI-36", "R-PRI-19")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(STEPS)
def test_no_fairness_key_with_a_backlog_gets_less_than_its_part(
    store: Store, steps: list[tuple[str, int]]
) -> None:
    queue = QueueName(f"q{next(numbers)}")
    store.save_queue(queue, {"fairness_weights": WEIGHTS})
    waiting: Counter[str] = Counter()
    served: Counter[str] = Counter()
    since: dict[str, Counter[str]] = {}

    for what, jobs in steps:
        if what != "claim":
            store.insert(keyed(what, jobs, queue=queue))
            waiting[what] += jobs
            if what:
                since.setdefault(what, Counter(served))
            continue
        had = Counter(keys_of(claim(store, jobs, queue)))
        assert had.total() == min(jobs, waiting.total())
        served += had
        waiting -= had
        since = {key: began for key, began in since.items() if waiting[key]}
        for key, began in since.items():
            for other, other_began in since.items():
                # While both had a backlog: from when the later one of them had something on.
                start = max(began, other_began, key=Counter.total)
                mine = (served - start)[key] / WEIGHTS[key]
                theirs = (served - start)[other] / WEIGHTS[other]
                assert mine >= theirs - 2 / WEIGHTS[key] - 2 / WEIGHTS[other]
