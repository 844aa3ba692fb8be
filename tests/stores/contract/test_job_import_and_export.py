"""Jobs go from one store to another with all that is known of them, and none comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from msgspec.structs import asdict, replace

from forebay.domain.dependencies import EdgeState
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.fairness import FAIRNESS, fairness_lane
from forebay.domain.job import Dependency, Job, JobId, OnFailure
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Discarded, Failed
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.queue import QueueState
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.store_move import JobExport
from forebay.errors import IllegalTransition
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    T0,
    W1,
    claimed,
    counts_of,
    holder_of,
    kinds_of,
    lease,
    look,
    make,
    put,
    settle,
    start,
    started,
    states,
    together,
)
from tests.stores.contract.test_met_edges import edges, two_parents
from tests.stores.contract.test_workflows import run

# What each store works out for itself.
OWN: Final = {"seq", "rank", "age_capped", "lane"}
STILL: Final = [state for state in JobState if state not in (JobState.RUNNING, JobState.BLOCKED)]
RICH: Final = {
    "payload": bytes(range(256)),
    "queue": MAIL,
    "priority": 3,
    "deadline_at": T0 + 3 * HOUR,
    "expires_at": T0 + 2 * HOUR,
    "timeout_ms": None,
    "lease_ms": 5_000,
    "extension_ms": 6_000,
    "policy": RetryPolicy(max_retries=7),
    "unique_key": "ü",
    "idempotency_key": "o",
    "idempotency_ttl_ms": 7_000,
    "metadata": {"a": ["ü", 1, None]},
    "tags": ("x", "y"),
    "correlation_id": "c",
    "parent_id": JobId("p"),
    "limit_keys": {"tenant": "a"},
    "sequence": "s",
    "cost": 2,
}


@pytest.fixture
def old(clock: ManualClock) -> MemoryEngine:
    """Where jobs come from."""
    return MemoryEngine(clock=clock)


@pytest.fixture
def old_store(old: MemoryEngine) -> Iterator[Store]:
    store = old.store()
    yield store
    store.close()


@pytest.fixture
def old_reader(old: MemoryEngine) -> Iterator[Reader]:
    reader = old.reader()
    yield reader
    reader.close()


def wholes(reader: Reader, *ids: JobId) -> list[JobExport]:
    return [whole for whole in reader.export_jobs(ids) if whole is not None]


def shown(whole: JobExport) -> dict[str, Any]:
    """All of it that has to be the same in both stores."""
    job = {name: value for name, value in asdict(whole.job).items() if name not in OWN}
    return {**asdict(whole), "job": job}


def lived(store: Store, clock: ManualClock, **changes: Any) -> Job:
    """A job that has failed once, with progress, and runs again."""
    job = started(store, **changes)
    update = ProgressUpdate(
        lease=lease(job),
        progress=Progress(done=1, total=2, message="half"),
        lines=(
            LogLine(at=T0, level="info", text="one", number=1),
            LogLine(at=T0, level="info", text="two", number=2),
        ),
        steps=(StepResult(name="b", result=b"\x00\xff"), StepResult(name="a", result=b"2")),
    )
    store.settle_and_claim(W1, updates=[update])
    settle(store, job, Failed(BOOM, 0))
    clock.advance(ms=10)
    return start(store, queue=job.queue)


@pytest.mark.parametrize("state", STILL)
def test_a_job_is_the_same_in_the_store_that_has_taken_it_in(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader, clock: ManualClock, state: JobState
) -> None:
    if state in (JobState.PENDING, JobState.SCHEDULED):
        job_id = make(old_store, state, **RICH)
    else:
        job = lived(old_store, clock, **RICH)
        job_id = job.id
        match state:
            case JobState.RETRYING:
                settle(old_store, job, Failed(BOOM, HOUR))
            case JobState.COMPLETED:
                settle(old_store, job, Completed(b"\x00done"))
            case JobState.DEAD:
                settle(old_store, job, Discarded(BOOM))
            case JobState.CANCELLED:
                old_store.cancel([job_id], "enough", actor="ada")
                settle(old_store, job, Failed(BOOM, 0))
    [before] = wholes(old_reader, job_id)
    clock.advance(ms=5)

    assert store.import_jobs([before]) == [True]

    [after] = wholes(reader, job_id)
    assert shown(after) == shown(before)
    assert after.job.state is state
    assert counts_of(reader, MAIL).total == 1


def test_what_is_shown_whole_can_be_taken_in_elsewhere(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader, clock: ManualClock
) -> None:
    job = lived(store, clock, **RICH)
    settle(store, job, Discarded(BOOM))
    child = put(store, depends_on=(Dependency(job.id, OnFailure.HOLD),))

    assert old_store.import_jobs(wholes(reader, job.id, child)) == [True, True]

    assert [shown(one) for one in wholes(old_reader, job.id, child)] == [
        shown(one) for one in wholes(reader, job.id, child)
    ]
    assert reader.export_jobs([JobId("absent")]) == [None]


def test_an_id_that_is_there_stays_as_it_is(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    two, one = make(old_store, JobState.DEAD), make(old_store, JobState.PENDING)
    brought = wholes(old_reader, one, two)
    store.import_jobs(brought[:1])
    settle(store, start(store), Completed(b"1"))

    assert store.import_jobs([brought[0], brought[1], brought[1]]) == [False, True, False]

    assert states(reader, [one, two]) == [JobState.COMPLETED, JobState.DEAD]
    assert (counts_of(reader).completed, counts_of(reader).dead, counts_of(reader).total) == (1, 1, 2)


def test_of_several_who_bring_the_same_job_one_succeeds(
    old_store: Store, old_reader: Reader, engine: Engine, store: Store, reader: Reader
) -> None:
    ids = [make(old_store, state, unique_key=state.value) for state in (JobState.DEAD, JobState.PENDING)]
    brought = wholes(old_reader, *ids)
    store.insert([])

    answers = together(engine, [lambda one: one.import_jobs(brought)] * 3)

    assert sorted(map(any, zip(*answers, strict=True))) == [True, True]
    assert sum(map(sum, answers)) == len(ids)
    assert counts_of(reader).total == len(ids)


def test_a_running_job_is_refused_and_nothing_of_its_batch_comes(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    running, waiting = started(old_store).id, put(old_store)

    with pytest.raises(IllegalTransition):
        store.import_jobs(wholes(old_reader, waiting, running))

    assert states(reader, [waiting, running]) == [None, None]


def test_jobs_run_in_the_order_that_they_would_have_had(
    old_store: Store, old_reader: Reader, store: Store, clock: ManualClock
) -> None:
    first = put(old_store, priority=0)
    clock.advance(ms=10 * MINUTE)
    ids = [first, *(put(old_store, priority=priority) for priority in (0, 2, 0))]
    clock.advance(ms=5)

    store.import_jobs(wholes(old_reader, *ids))

    assert claimed(store, 9) == claimed(old_store, 9)


def test_an_attempt_goes_on_counting(
    old_store: Store, old_reader: Reader, store: Store, clock: ManualClock
) -> None:
    job = lived(old_store, clock)
    settle(old_store, job, Failed(BOOM, MINUTE))
    store.import_jobs(wholes(old_reader, job.id))
    clock.advance(ms=MINUTE)

    again = start(store)

    assert (again.id, again.attempt, again.failures, len(again.errors)) == (job.id, 3, 2, 2)


def test_keys_are_held_by_who_held_them(
    old_store: Store, old_reader: Reader, store: Store, clock: ManualClock
) -> None:
    job_id = put(old_store, unique_key="u", idempotency_key="o", idempotency_ttl_ms=MINUTE)
    ended = make(
        old_store,
        JobState.COMPLETED,
        queue=MAIL,
        unique_key="v",
        idempotency_key="p",
        idempotency_ttl_ms=MINUTE,
    )
    store.import_jobs(wholes(old_reader, job_id, ended))

    assert holder_of(store, unique_key="u") == holder_of(store, idempotency_key="o") == job_id
    assert holder_of(store, queue=MAIL, idempotency_key="p") == ended
    put(store, queue=MAIL, unique_key="v")  # freed with its end
    clock.advance(ms=MINUTE)
    put(store, idempotency_key="o")


def test_a_job_whose_key_another_one_has_comes_without_it(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    brought = put(old_store, unique_key="u", idempotency_key="o")
    holder = put(store, unique_key="u", idempotency_key="o")

    assert store.import_jobs(wholes(old_reader, brought)) == [True]

    assert look(reader, brought).unique_key is None
    assert holder_of(store, unique_key="u") == holder_of(store, idempotency_key="o") == holder
    assert kinds_of(reader, brought) == [EventKind.COMMENT]
    assert set(claimed(store, 9)) == {brought, holder}


def test_neither_length_nor_rate_nor_state_of_the_queue_matter(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    ids = [put(old_store) for _ in range(3)]
    store.save_queue(DEFAULT, {"max_length": 1, "enqueue_rate": 1}, state=QueueState.DRAINING)

    assert store.import_jobs(wholes(old_reader, *ids)) == [True] * 3
    assert counts_of(reader).pending == 3


def test_children_wait_for_their_parents_here_too(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    parent, done = put(old_store), make(old_store, JobState.COMPLETED, queue=MAIL)
    child = put(old_store, depends_on=dependencies_of([parent, done]))
    later = put(old_store, depends_on=dependencies_of([child]), delay_ms=HOUR)

    store.import_jobs(wholes(old_reader, parent, child, later))  # the completed one stays behind

    assert states(reader, [parent, child, later]) == [JobState.PENDING, JobState.BLOCKED, JobState.BLOCKED]
    assert [edge.state for edge in reader.parents([child])] == [EdgeState.OPEN, EdgeState.MET]
    settle(store, start(store), Completed(b"1"))
    assert states(reader, [child, later]) == [JobState.PENDING, JobState.BLOCKED]
    settle(store, start(store), Completed(b"1"))
    assert states(reader, [child, later]) == [JobState.COMPLETED, JobState.SCHEDULED]


@pytest.mark.parametrize(
    ("on_failure", "into"),
    [(OnFailure.CANCEL, JobState.CANCELLED), (OnFailure.HOLD, JobState.BLOCKED)],
)
def test_a_parent_that_has_ended_here_tells_its_children_when_they_come(
    old_store: Store,
    old_reader: Reader,
    store: Store,
    reader: Reader,
    on_failure: OnFailure,
    into: JobState,
) -> None:
    parent = put(old_store)
    child = put(old_store, depends_on=(Dependency(parent, on_failure),))
    brought = wholes(old_reader, parent, child)
    store.import_jobs(brought[:1])
    store.cancel([parent])

    store.import_jobs(brought[1:])

    assert states(reader, [child]) == [into]
    store.revive([parent], dependants=True)
    assert states(reader, [child]) == [JobState.BLOCKED]


def test_a_job_that_is_here_does_not_end_by_what_is_offered(store: Store, reader: Reader) -> None:
    parent = put(store)
    child = put(store, depends_on=dependencies_of([parent]))
    [ended] = wholes(reader, parent)
    done = JobExport(job=replace(ended.job, state=JobState.COMPLETED, finished_at=T0, result=b"1"))

    assert store.import_jobs([done]) == [False]

    assert states(reader, [parent, child]) == [JobState.PENDING, JobState.BLOCKED]


def test_a_job_that_comes_with_the_id_of_a_completed_parent_that_is_gone_releases_no_dependant(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    done, _, child = two_parents(store)
    store.delete([done])
    put(old_store, id=done)

    assert store.import_jobs(wholes(old_reader, done)) == [True]
    run(store, done)

    assert (states(reader, [child]), edges(reader, child)) == (
        [JobState.BLOCKED],
        [EdgeState.MET, EdgeState.OPEN],
    )
    assert reader.health().problems == ()


def test_a_sequence_keeps_its_order(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    ids = [put(old_store, sequence="s", queue=queue) for queue in (DEFAULT, MAIL, DEFAULT)]

    store.import_jobs(wholes(old_reader, *ids))

    assert states(reader, ids) == [JobState.PENDING, JobState.BLOCKED, JobState.BLOCKED]
    assert reader.first_in_sequence("s") == ids[0]
    settle(store, start(store), Completed(b"1"))
    assert states(reader, ids[1:]) == [JobState.PENDING, JobState.BLOCKED]


def test_a_fairness_key_has_its_turn(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader
) -> None:
    of_a = [put(old_store, limit_keys={FAIRNESS: "a"}) for _ in range(3)]
    of_b = put(old_store, limit_keys={FAIRNESS: "b"})

    store.import_jobs(wholes(old_reader, *of_a, of_b))

    assert look(reader, of_b).lane == fairness_lane("b")
    assert of_b in claimed(store, 3)


def test_what_is_due_later_becomes_due(
    old_store: Store, old_reader: Reader, store: Store, reader: Reader, clock: ManualClock
) -> None:
    later = put(old_store, delay_ms=MINUTE)
    first = wholes(old_reader, later)
    clock.advance(ms=MINUTE)

    store.import_jobs(first)  # as it was before its time came

    assert states(reader, [later]) == [JobState.PENDING]
    assert claimed(store, 1) == [later]
