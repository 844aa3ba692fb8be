"""Operations on all jobs that fit a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.queue_counts import Counts
from forebay.errors import QueueClosed, QueueNotEmpty, QueueNotFound, StoreRefused
from forebay.operations.bulk_actions import cancel_matching, drop_queue, purge, revive_matching
from forebay.operations.lease_sweep import sweep
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.app.watched_store import Watched
from tests.stores.support import SWEEPER, WORKER, claim, complete, everything, fail, new_job

MAIL = QueueName("mail")
OTHER = QueueName("other")
Operation = Callable[..., int]
EVERY_JOB = JobQuery()
START = 1_800_000_000_000  # where the clock of every test begins


def put(store: Store, count: int, **fields: Any) -> list[JobId]:
    receipts = store.insert([new_job(**fields)] * count)
    return [receipt.id for receipt in receipts if receipt.id is not None]


@pytest.fixture
def one_of_each(store: Store) -> dict[JobState, JobId]:
    """A job in every state but blocked, which nothing leads to yet."""
    put(store, 4)
    running, done, retrying, dead = claim(store, 4)
    store.settle_and_claim(WORKER, [complete(done), fail(retrying)])
    store.cancel([dead.id], force=True)
    [cancelled, pending], [scheduled] = put(store, 2), put(store, 1, delay_ms=60_000)
    store.cancel([cancelled])
    return {
        JobState.SCHEDULED: scheduled,
        JobState.PENDING: pending,
        JobState.RUNNING: running.id,
        JobState.RETRYING: retrying.id,
        JobState.COMPLETED: done.id,
        JobState.DEAD: dead.id,
        JobState.CANCELLED: cancelled,
    }


def states(reader: Reader, jobs: dict[JobState, JobId]) -> dict[str, str | None]:
    found = reader.jobs(list(jobs.values()))
    return {old: None if job is None else job.state for old, job in zip(jobs, found, strict=True)}


# ------------------------------------------------------------------ which jobs are meant


def test_purge_deletes_everything_but_running_jobs(
    store: Store, reader: Reader, one_of_each: dict[JobState, JobId]
) -> None:
    assert purge(store, reader, EVERY_JOB) == 6
    assert {old for old, new in states(reader, one_of_each).items() if new} == {"running"}


def test_revive_puts_back_dead_and_cancelled_jobs(
    store: Store, reader: Reader, one_of_each: dict[JobState, JobId]
) -> None:
    assert revive_matching(store, reader, EVERY_JOB) == 2

    after = states(reader, one_of_each)
    assert (after["dead"], after["cancelled"], after["completed"]) == ("pending", "pending", "completed")


def test_cancel_ends_waiting_jobs_and_asks_running_ones_to_stop(
    store: Store, reader: Reader, one_of_each: dict[JobState, JobId]
) -> None:
    assert cancel_matching(store, reader, EVERY_JOB, reason="not needed") == 4

    after = states(reader, one_of_each)
    assert {after[old] for old in ("scheduled", "pending", "retrying")} == {"cancelled"}
    assert (after["running"], after["completed"], after["dead"]) == ("running", "completed", "dead")
    [running] = reader.jobs([one_of_each[JobState.RUNNING]])
    assert running is not None
    assert running.cancel_reason == "not needed"


@pytest.mark.parametrize(
    ("operation", "requested_states"),
    [
        (purge, (JobState.RUNNING,)),
        (revive_matching, (JobState.PENDING, JobState.COMPLETED)),
        (cancel_matching, (JobState.DEAD, JobState.CANCELLED)),
    ],
)
def test_states_in_which_nothing_can_be_done_mean_no_job_and_not_every_job(
    store: Store,
    reader: Reader,
    one_of_each: dict[JobState, JobId],
    operation: Operation,
    requested_states: tuple[JobState, ...],
) -> None:
    before = states(reader, one_of_each)

    assert operation(store, reader, JobQuery(states=requested_states)) == 0
    assert states(reader, one_of_each) == before


@pytest.fixture
def six_dead(store: Store, clock: ManualClock) -> list[JobId]:
    """Dead jobs, two each minute, of which the second differs in everything but its state."""
    ids: list[JobId] = []
    for minute in range(3):
        old = new_job(queue=MAIL, priority=minute, metadata={"tenant": "a"})
        receipts = store.insert([old, new_job(queue=OTHER, priority=50, metadata={"tenant": "b"})])
        ids += [receipt.id for receipt in receipts if receipt.id is not None]
        store.drop_queue(MAIL, force=True)
        store.drop_queue(OTHER, force=True)
        clock.advance(ms=60_000)
        store.save_queue(MAIL)
        store.save_queue(OTHER)
    return ids


FILTERS = [
    pytest.param({"queues": (MAIL,)}, {0, 2, 4}, id="queue"),
    pytest.param({"states": (JobState.DEAD,)}, {0, 1, 2, 3, 4, 5}, id="state"),
    pytest.param({"priority_from": 1, "priority_to": 2}, {2, 4}, id="priority"),
    pytest.param({"created_from": START + 60_000}, {2, 3, 4, 5}, id="created from"),
    pytest.param({"created_before": START + 60_000}, {0, 1}, id="created before"),
    pytest.param({"queues": (MAIL,), "finished_before": START + 60_000}, {0}, id="queue and age"),
    pytest.param({"metadata": {"tenant": "b"}}, {1, 3, 5}, id="metadata"),
]


@pytest.mark.shows("R-QUEUE-09", "R-DLQ-11", "R-DLQ-13", "R-QUEUE-07", "R-QUEUE-08")
@pytest.mark.parametrize(("conditions", "fitting"), FILTERS)
@pytest.mark.parametrize("operation", [purge, revive_matching])
def test_exactly_the_dead_jobs_that_fit_are_purged_or_revived(
    store: Store,
    reader: Reader,
    six_dead: list[JobId],
    operation: Operation,
    conditions: dict[str, Any],
    fitting: set[int],
) -> None:
    assert operation(store, reader, JobQuery(**conditions)) == len(fitting)

    left = [job for job in everything(reader) if job.state is JobState.DEAD]
    assert {job.id for job in left} == {six_dead[n] for n in range(6) if n not in fitting}


def test_only_jobs_that_fit_are_touched(store: Store, reader: Reader) -> None:
    put(store, 3, queue=MAIL, priority=5)
    put(store, 2, queue=MAIL, priority=1)
    put(store, 4, queue=OTHER, priority=5)

    assert purge(store, reader, JobQuery(queues=(MAIL,), priority_from=3)) == 3
    assert [(job.queue, job.priority) for job in everything(reader)] == [("other", 5)] * 4 + [("mail", 1)] * 2


@pytest.mark.shows("R-HIST-30")
def test_revived_jobs_can_go_elsewhere_and_later(store: Store, reader: Reader) -> None:
    [job_id] = put(store, 1, queue=MAIL)
    store.cancel([job_id])

    how = ReviveOptions(queue=OTHER, delay_ms=5_000, actor="ada")
    assert revive_matching(store, reader, EVERY_JOB, options=how) == 1

    [job] = reader.jobs([job_id])
    assert job is not None
    assert (job.queue, job.state, job.run_at) == (OTHER, JobState.SCHEDULED, reader.now() + 5_000)
    assert [event.actor for _, event in reader.audit() if event.kind is EventKind.REVIVED] == ["ada"]


@pytest.mark.parametrize(
    ("operation", "kind"), [(purge, EventKind.DELETED), (cancel_matching, EventKind.CANCEL)]
)
def test_the_audit_log_says_who_did_it(
    store: Store, reader: Reader, operation: Operation, kind: EventKind
) -> None:
    put(store, 2)

    operation(store, reader, EVERY_JOB, actor="ada")

    assert [(event.kind, event.actor) for _, event in reader.audit()] == [(kind, "ada")] * 2


# ------------------------------------------------------------------ batches and counting


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a hundred, so that a few hundred jobs make several."""
    monkeypatch.setattr("forebay.operations.bulk_actions.MAX_PAGE", 100)


@pytest.mark.usefixtures("small_pages")
def test_a_large_purge_goes_in_batches_and_tells_how_far_it_is(store: Store, reader: Reader) -> None:
    put(store, 230)
    heard: list[int] = []

    assert purge(store, reader, EVERY_JOB, progress=heard.append) == 230
    assert heard[-1] == 230
    assert len(heard) >= 3
    assert heard == sorted(set(heard))
    assert everything(reader) == []


def test_nothing_to_do_is_not_worth_a_word(store: Store, reader: Reader) -> None:
    heard: list[int] = []

    assert cancel_matching(store, reader, EVERY_JOB, progress=heard.append) == 0
    assert heard == []


class Changing:
    """A reader after each of whose pages something happens in the store."""

    def __init__(self, reader: Reader, happens: Callable[[Page], object]) -> None:
        self._reader = reader
        self._happens = happens

    def search(self, query: JobQuery, *, limit: int = 100, after: str | None = None) -> Page:
        page = self._reader.search(query, limit=limit, after=after)
        self._happens(page)
        return page

    @property
    def contract(self) -> Reader:
        return cast(Reader, self)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("operation", [purge, cancel_matching])
def test_it_ends_although_jobs_keep_arriving(store: Store, reader: Reader, operation: Operation) -> None:
    put(store, 150)

    def arrive(page: Page) -> None:
        put(store, 10)

    assert operation(store, Changing(reader, arrive).contract, EVERY_JOB) == 150


def test_what_changed_between_the_look_and_the_request_is_not_counted(store: Store, reader: Reader) -> None:
    put(store, 5)

    def start_two(page: Page) -> None:
        claim(store, 2)

    assert purge(store, Changing(reader, start_two).contract, EVERY_JOB) == 3
    assert reader.counts()[QueueName("default")] == Counts(running=2)


def test_a_revival_that_is_refused_is_not_counted(store: Store, reader: Reader) -> None:
    [first] = put(store, 1, unique_key="k")
    store.cancel([first])
    put(store, 1, unique_key="k")

    assert revive_matching(store, reader, EVERY_JOB) == 0


# ------------------------------------------------------------------ dropping a queue


@pytest.mark.shows("R-QUEUE-04", "R-EDGE-52")
def test_a_queue_dropped_by_force_is_empty_in_the_end(store: Store, reader: Reader) -> None:
    put(store, 2_500, queue=MAIL)
    [running] = claim(store, 1, queue=MAIL)
    heard: list[int] = []

    drop_queue(store, MAIL, force=True, actor="ada", progress=heard.append)

    assert heard == [1_499, 499, 0]
    assert reader.counts([MAIL])[MAIL] == Counts(running=1, dead=2_499)
    assert [queue.state for queue in reader.queues([MAIL])] == [QueueState.DROPPED]
    assert store.settle_and_claim(WORKER, [complete(running)]).settled == (running.id,)
    with pytest.raises(QueueClosed):
        store.insert([new_job(queue=MAIL)])


@pytest.mark.shows("R-QUEUE-04")
def test_without_force_a_queue_that_has_jobs_stays(store: Store, reader: Reader) -> None:
    put(store, 1, queue=MAIL)

    with pytest.raises(QueueNotEmpty):
        drop_queue(store, MAIL)

    assert [queue.state for queue in reader.queues([MAIL])] == [QueueState.ACTIVE]


def test_an_empty_queue_is_dropped_at_once(store: Store, reader: Reader) -> None:
    store.save_queue(MAIL)
    heard: list[int] = []

    drop_queue(store, MAIL, progress=heard.append)

    assert heard == [0]
    assert [queue.state for queue in reader.queues([MAIL])] == [QueueState.DROPPED]


def test_an_unknown_queue_cannot_be_dropped(store: Store) -> None:
    with pytest.raises(QueueNotFound):
        drop_queue(store, MAIL, force=True)


# ------------------------------------------------------------------ sweeping by hand


@pytest.mark.shows("R-SWEEP-07")
def test_a_sweep_settles_as_many_lost_attempts_as_it_may_and_counts_them(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store, 5)
    jobs = claim(store, 5)
    clock.advance(seconds=31)

    counts = [sweep(store, SWEEPER, lambda: 0.0, limit=3) for _ in range(3)]

    assert counts == [3, 2, 0]
    found = reader.jobs([job.id for job in jobs])
    assert [(job.state, job.crashes) for job in found if job] == [(JobState.PENDING, 1)] * 5


def test_a_sweep_goes_on_where_the_store_cannot_hold_one_settlement(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    put(store, 3)
    jobs = claim(store, 3)
    clock.advance(seconds=31)

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        # The settlement as lost is what it refuses; the one as failed counts no crash.
        ends = args[1] if name == "settle_and_claim" else ()
        if any(end.job_id == jobs[1].id and end.crashes for end in ends):
            raise StoreRefused("too odd")

    assert sweep(Watched(store, trouble).contract, SWEEPER, lambda: 0.0) == 3

    found = reader.jobs([job.id for job in jobs])
    assert [job.state for job in found if job] == [JobState.PENDING, JobState.RETRYING, JobState.PENDING]
