"""Ownership, leases and room."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from forebay.domain.job import JobId
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.lease_table import LeaseTable
from forebay.worker.slots import Slots
from tests.domain.sample_jobs import NOW, a_job
from tests.worker.support import DEADLINE, an_assignment


def test_ownership_is_taken_once_however_many_threads_want_it() -> None:
    threads, jobs = 8, 500
    assignments = [an_assignment() for _ in range(jobs)]
    barrier = Barrier(threads)
    taken: list[list[bool]] = [[] for _ in range(threads)]

    def take_all(mine: list[bool]) -> None:
        barrier.wait(DEADLINE)
        mine.extend(one.acquire() for one in assignments)

    workers = [Thread(target=take_all, args=(mine,)) for mine in taken]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(DEADLINE)

    assert [sum(each) for each in zip(*taken, strict=True)] == [1] * jobs


@pytest.mark.shows("R-LEASE-36", "R-LEASE-50")
def test_a_lease_is_due_for_renewal_after_a_third_of_its_length() -> None:
    one = Assignment(a_job(started_at=NOW, lease_expires_at=NOW + 30_000), claimed_at=100.0)
    assert one.renew_at == pytest.approx(110.0)

    one.mark_renewed(200.0)

    assert one.renew_at == pytest.approx(210.0)


@pytest.mark.shows("R-EDGE-31")
def test_a_long_lease_is_renewed_as_often_as_one_of_thirty_seconds() -> None:
    """A step of the store's clock may end it, and sweepers wait for its renewal for twelve seconds."""
    one = Assignment(a_job(started_at=NOW, lease_expires_at=NOW + 3_600_000), claimed_at=100.0)
    assert one.renew_at == pytest.approx(110.0)

    one.mark_renewed(200.0)

    assert one.renew_at == pytest.approx(210.0)


def test_a_job_is_not_started_with_less_than_a_third_of_its_lease_left() -> None:
    job = a_job(started_at=NOW, lease_expires_at=NOW + 30_000)

    claimed_long_ago = Assignment(job, claimed_at=100.0, leased_at=90.0)

    assert claimed_long_ago.start_by == pytest.approx(110.0)


def test_blocking_tasks_and_coroutines_have_slots_of_their_own() -> None:
    slots = Slots(threads=2, coroutines=5)
    call = an_assignment()
    coroutine = Assignment(a_job(id=JobId("co")), 0.0, kind=ExecutorKind.COROUTINES)

    slots.add([call, coroutine])

    assert (slots.free(ExecutorKind.CALLS), slots.free(ExecutorKind.COROUTINES), len(slots)) == (1, 4, 2)
    slots.end(coroutine)
    slots.end(coroutine)
    assert (slots.free(ExecutorKind.CALLS), slots.free(ExecutorKind.COROUTINES), len(slots)) == (1, 5, 1)


@pytest.mark.shows("R-LEASE-21")
def test_the_end_of_a_lost_attempt_leaves_the_next_attempt_at_the_same_job_alone() -> None:
    slots = Slots(threads=2)
    lost = an_assignment(attempt=1)
    present = an_assignment(attempt=2)
    slots.add([lost])
    slots.add([present])
    assert slots.free(ExecutorKind.CALLS) == 0

    slots.end(lost)

    assert list(slots) == [present]
    assert slots.leases() == [present.lease]
    assert slots.free(ExecutorKind.CALLS) == 1


def test_each_assignment_gives_back_its_own_slot_and_line_however_many_have_its_lease() -> None:
    slots = Slots(threads=4)
    slots.lease_table = page = LeaseTable.create(4)
    first, second = an_assignment(), an_assignment()
    assert first.lease == second.lease
    slots.add([first])
    slots.add([second])

    slots.end(first)
    assert list(slots) == [second]
    slots.end(second)
    slots.end(second)

    assert (slots.free(ExecutorKind.CALLS), len(slots), page.entries()) == (4, 0, [])
    page.close()


def test_a_lease_that_is_given_again_is_fresh_and_its_line_says_so() -> None:
    slots = Slots(threads=4)
    slots.lease_table = page = LeaseTable.create(4)
    one = Assignment(a_job(started_at=NOW, lease_expires_at=NOW + 30_000), claimed_at=100.0)
    slots.add([one])
    assert one.mark_started(101.0)
    one.mark_lost()

    again = Assignment(one.job, claimed_at=201.0)
    assert slots.find_duplicates([again, an_assignment(id=JobId("other"))]) == [again]
    assert slots.renew(again, 200.0) is one

    assert one.renew_at == pytest.approx(210.0)
    [entry] = page.entries()
    assert (entry.leased_at, entry.started_at, entry.lease) == (200.0, 101.0, one.lease)
    page.close()


def test_one_side_alone_tells_the_outcome_and_one_alone_has_the_place() -> None:
    threads, rounds = 8, 500
    assignments = [an_assignment() for _ in range(rounds)]
    barrier = Barrier(threads)
    results: list[list[bool]] = [[] for _ in range(threads)]
    placed: list[list[bool]] = [[] for _ in range(threads)]

    def race(number: int) -> None:
        barrier.wait(DEADLINE)
        for one in assignments:
            results[number].append(one.conclude() if number else one.give_up(TimeoutError()))

    def place(number: int) -> None:
        barrier.wait(DEADLINE)
        placed[number].extend(one.acquire_slot() for one in assignments)

    for part in (race, place):
        workers = [Thread(target=part, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(DEADLINE)

    assert [sum(each) for each in zip(*results, strict=True)] == [1] * rounds
    assert [sum(each) for each in zip(*placed, strict=True)] == [1] * rounds
