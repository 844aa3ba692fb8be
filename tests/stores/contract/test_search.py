"""Search: jobs by any mix of conditions, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Completed, Discarded
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    MAIL,
    STATES,
    T0,
    W1,
    look,
    make,
    put,
    put_many,
    settle,
    started,
)
from tests.stores.support import everything


def found(reader: Reader, **conditions: Any) -> set[JobId]:
    return {job.id for job in everything(reader, JobQuery(**conditions))}


@pytest.mark.shows("R-ENQ-46")
def test_an_empty_query_finds_every_job_greatest_id_first(store: Store, reader: Reader) -> None:
    ids = [make(store, state, queue=QueueName(f"q-{state}")) for state in STATES]

    assert [job.id for job in everything(reader, JobQuery())] == sorted(ids, reverse=True)


@pytest.mark.shows("R-DLQ-05")
def test_generated_ids_are_listed_newest_first(store: Store, reader: Reader) -> None:
    ids = put_many(store, 5)

    assert [job.id for job in everything(reader, JobQuery())] == ids[::-1]


@pytest.mark.shows("R-ENQ-48", "R-ENQ-46")
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
def test_pages_follow_each_other_without_gaps_or_repeats(store: Store, reader: Reader, limit: int) -> None:
    ids = [make(store, state, queue=QueueName(f"q-{state}")) for state in STATES]

    jobs = everything(reader, JobQuery(), limit=limit)

    assert [job.id for job in jobs] == sorted(ids, reverse=True)


@pytest.mark.shows("R-ENQ-48")
def test_a_page_is_no_longer_than_its_limit_and_says_how_to_go_on(store: Store, reader: Reader) -> None:
    ids = put_many(store, 5)

    page = reader.search(JobQuery(), limit=2)

    assert [job.id for job in page.jobs] == [ids[4], ids[3]]
    assert page.after is not None


def test_a_later_page_is_not_disturbed_by_new_jobs(store: Store, reader: Reader) -> None:
    ids = put_many(store, 4)
    page = reader.search(JobQuery(), limit=2)
    put_many(store, 3)

    rest = reader.search(JobQuery(), limit=2, after=page.after)

    assert [job.id for job in rest.jobs] == [ids[1], ids[0]]


def test_a_later_page_is_not_disturbed_by_jobs_that_end(store: Store, reader: Reader) -> None:
    ids = put_many(store, 4)
    page = reader.search(JobQuery(), limit=2)
    store.cancel([ids[0], ids[3]])
    store.delete([ids[2]])

    rest = reader.search(JobQuery(), limit=2, after=page.after)

    assert [job.id for job in rest.jobs] == [ids[1], ids[0]]


def test_a_search_that_finds_nothing_ends(store: Store, reader: Reader) -> None:
    put_many(store, 3)

    assert found(reader, tasks=("unknown",)) == set()


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_has_a_limit(reader: Reader, limit: int) -> None:
    with pytest.raises(ConfigError):
        reader.search(JobQuery(), limit=limit)


@pytest.mark.shows("R-ENQ-46", "R-DLQ-06", "R-HIST-26")
def test_jobs_are_found_by_queue(store: Store, reader: Reader) -> None:
    here, there, elsewhere = put(store), put(store, queue=MAIL), put(store, queue=QueueName("x"))

    assert found(reader, queues=(MAIL,)) == {there}
    assert found(reader, queues=(MAIL, DEFAULT)) == {there, here}
    assert elsewhere not in found(reader, queues=(MAIL, DEFAULT))


@pytest.mark.shows("R-ENQ-46", "R-HIST-26", "R-QUEUE-09")
@pytest.mark.parametrize("state", STATES)
def test_jobs_are_found_by_state(store: Store, reader: Reader, state: JobState) -> None:
    ids = {every: make(store, every, queue=QueueName(f"q-{every}")) for every in STATES}

    assert found(reader, states=(state,)) == {ids[state]}
    assert found(reader, states=(state, JobState.PENDING)) == {ids[state], ids[JobState.PENDING]}


@pytest.mark.shows("R-ENQ-46", "R-DLQ-06", "R-HIST-26")
def test_jobs_are_found_by_task(store: Store, reader: Reader) -> None:
    a, b, _ = put(store, task="a"), put(store, task="b"), put(store, task="A")

    assert found(reader, tasks=("a",)) == {a}
    assert found(reader, tasks=("a", "b")) == {a, b}


@pytest.mark.shows("R-QUEUE-09", "R-DLQ-13", "R-ENQ-45")
def test_jobs_are_found_by_a_range_of_priorities(store: Store, reader: Reader) -> None:
    low, zero, high = (put(store, priority=priority) for priority in (-5, 0, 5))

    assert found(reader, priority_from=0) == {zero, high}
    assert found(reader, priority_to=0) == {low, zero}
    assert found(reader, priority_from=0, priority_to=0) == {zero}


@pytest.mark.shows("R-QUEUE-09", "R-ENQ-46", "R-DLQ-13", "R-ENQ-45")
def test_jobs_are_found_by_a_range_of_creation_times(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = put(store)
    clock.advance(ms=1)
    second = put(store)
    clock.advance(ms=1)
    third = put(store)

    assert found(reader, created_from=T0 + 1) == {second, third}
    assert found(reader, created_before=T0 + 2) == {first, second}
    assert found(reader, created_from=T0 + 1, created_before=T0 + 2) == {second}


@pytest.mark.shows("R-DLQ-11")
def test_jobs_are_found_by_the_time_of_their_end(store: Store, reader: Reader, clock: ManualClock) -> None:
    first = make(store, JobState.DEAD)
    clock.advance(ms=1)
    second = make(store, JobState.COMPLETED)
    put(store)

    assert found(reader, finished_before=T0) == set()
    assert found(reader, finished_before=T0 + 1) == {first}
    assert found(reader, finished_before=T0 + 2) == {first, second}


@pytest.mark.shows("R-IDEM-05", "R-ENQ-46", "R-ENQ-45")
@pytest.mark.parametrize("state", STATES)
def test_jobs_are_found_by_their_keys_even_after_their_end(
    store: Store, reader: Reader, state: JobState
) -> None:
    job_id = make(store, state, unique_key="u", idempotency_key="o")
    put(store, queue=MAIL, unique_key="o", idempotency_key="u")

    assert found(reader, unique_key="u") == {job_id}
    assert found(reader, idempotency_key="o") == {job_id}


@pytest.mark.shows("R-JOB-15", "R-DEP-05")
@pytest.mark.parametrize("state", STATES)
def test_jobs_are_found_by_correlation_and_parent(store: Store, reader: Reader, state: JobState) -> None:
    job_id = make(store, state, correlation_id="c", parent_id=JobId("p"))
    put(store, correlation_id="p", parent_id=JobId("c"), queue=MAIL)

    assert found(reader, correlation_id="c") == {job_id}
    assert found(reader, parent_id=JobId("p")) == {job_id}


def test_a_zero_character_in_metadata_stops_no_search(store: Store, reader: Reader) -> None:
    options = {"tags": ("t",), "correlation_id": "c", "parent_id": JobId("p")}
    ids = {put(store, metadata={"a": value, "\0": 1}, **options) for value in ("x\0y", "xy")}

    assert found(reader, tags=("t",)) == found(reader, correlation_id="c") == ids
    assert found(reader, parent_id=JobId("p")) == ids
    assert found(reader, idempotency_key="o") == set()
    [found_by_value] = found(reader, metadata={"a": "x\0y"})
    assert look(reader, found_by_value).metadata == {"a": "x\0y", "\0": 1}


@pytest.mark.shows("R-JOB-14", "R-EXT-02")
def test_jobs_are_found_by_their_tags_and_all_must_be_there(store: Store, reader: Reader) -> None:
    both = put(store, tags=("red", "blue"))
    red = put(store, tags=("red",))
    put(store, tags=("red-ish",))

    assert found(reader, tags=("red",)) == {both, red}
    assert found(reader, tags=("blue", "red")) == {both}
    assert found(reader, tags=("green",)) == set()


@pytest.mark.shows("R-ENQ-47", "R-QUEUE-09", "R-DLQ-13")
@pytest.mark.parametrize(
    "value", ["ann", 7, 2.5, False, ["a", 1], {"deep": {"er": 1}}, "ü'\"%_\\", ""], ids=repr
)
def test_jobs_are_found_by_what_their_metadata_say(store: Store, reader: Reader, value: Any) -> None:
    job_id = put(store, metadata={"who": value, "other": "x"})
    put(store, metadata={"who": "another"})
    put(store, metadata={"not who": value})
    put(store)

    assert found(reader, metadata={"who": value}) == {job_id}
    assert found(reader, metadata={"who": value, "other": "x"}) == {job_id}
    assert found(reader, metadata={"who": value, "other": "y"}) == set()


@pytest.mark.parametrize("key", ["a.b", 'a"b', "a'b", "$", "a[0]", "ä ö", "%"])
def test_a_key_of_the_metadata_may_be_any_text(store: Store, reader: Reader, key: str) -> None:
    job_id = put(store, metadata={key: 1})
    put(store, metadata={"a": {"b": 1}, "b": 1})

    assert found(reader, metadata={key: 1}) == {job_id}


@pytest.mark.shows("R-ENQ-45")
@pytest.mark.parametrize("text", ["ann@example.org", "größe", "100%", "a_b", "back\\slash", "it's"])
def test_jobs_are_found_by_a_text_in_their_payload(store: Store, reader: Reader, text: str) -> None:
    job_id = put(store, payload=f'{{"to": {text}}}'.encode())
    put(store, payload=b"\xff\x00 nothing of the kind: axb 100x")

    assert found(reader, text=text) == {job_id}


@pytest.mark.shows("R-ENQ-45")
def test_jobs_are_found_by_a_text_in_the_reason_they_ended(store: Store, reader: Reader) -> None:
    dead = started(store)
    settle(store, dead, Discarded(AttemptError(type="Boom", message="disk full on node-7")))
    cancelled = put(store)
    store.cancel([cancelled], "node-7 is gone")
    settle(store, started(store), Completed(b"node-7"))

    assert found(reader, text="node-7") == {dead.id, cancelled}


def test_all_conditions_must_hold(store: Store, reader: Reader) -> None:
    job_id = put(store, queue=MAIL, task="a", priority=3, tags=("x",), metadata={"m": 1}, payload=b"find")
    put(store, queue=MAIL, task="a", priority=3, tags=("x",), metadata={"m": 2}, payload=b"find")
    put(store, queue=MAIL, task="a", priority=3, tags=("y",), metadata={"m": 1}, payload=b"find")
    put(store, task="a", priority=3, tags=("x",), metadata={"m": 1}, payload=b"find")

    conditions: dict[str, Any] = {
        "queues": (MAIL,),
        "states": (JobState.PENDING,),
        "tasks": ("a",),
        "priority_from": 3,
        "created_from": T0,
        "tags": ("x",),
        "metadata": {"m": 1},
        "text": "find",
    }

    assert found(reader, **conditions) == {job_id}
    assert found(reader, **{**conditions, "states": (JobState.DEAD,)}) == set()


def test_a_rare_job_is_found_among_many(store: Store, reader: Reader) -> None:
    first = put(store, metadata={"rare": True})
    put_many(store, 3_000)

    assert found(reader, metadata={"rare": True}) == {first}


@pytest.mark.shows("R-JOB-32")
def test_a_line_tells_how_the_job_ended(store: Store, reader: Reader, clock: ManualClock) -> None:
    job = started(store)
    clock.advance(ms=250)
    settle(store, job, Discarded(AttemptError(type="Boom")))

    [line] = everything(reader, JobQuery())

    assert (line.state, line.reason, line.worker) == (JobState.DEAD, "Boom", W1)
    assert (line.started_at, line.finished_at, line.duration_ms) == (T0, T0 + 250, 250)
    assert (line.attempt, line.failures) == (1, 1)


@pytest.mark.shows("R-QUEUE-07", "R-DLQ-11")
def test_a_purge_is_a_search_and_a_deletion(store: Store, reader: Reader, clock: ManualClock) -> None:
    old = [make(store, JobState.DEAD) for _ in range(3)]
    clock.advance(ms=HOUR)
    new = make(store, JobState.DEAD)

    results = store.delete(
        [job.id for job in everything(reader, JobQuery(states=(JobState.DEAD,), finished_before=T0 + 1))]
    )

    assert sorted(result.job_id for result in results if result.applied) == sorted(old)
    assert found(reader) == {new}


@pytest.mark.shows("R-QUEUE-08", "R-DLQ-13")
def test_a_bulk_revival_is_a_search_and_a_revival(store: Store, reader: Reader) -> None:
    dead = [make(store, JobState.DEAD, priority=5) for _ in range(3)]
    make(store, JobState.DEAD, priority=1)

    results = store.revive(
        [job.id for job in everything(reader, JobQuery(states=(JobState.DEAD,), priority_from=5))]
    )

    assert sum(result.applied for result in results) == 3
    assert found(reader, states=(JobState.PENDING,)) == set(dead)
