"""All that is in a store goes to another one, none of it twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from forebay.app.moving import KIND, KINDS, Mover, Place
from forebay.app.ramping import KIND as RAMPS
from forebay.app.sealed import KIND as BLOBS
from forebay.clock import SystemClock
from forebay.domain.document import Document
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import GLOBAL, Limit
from forebay.domain.outcome import Completed
from forebay.domain.queue import QueueState
from forebay.domain.schedule import Definition, Schedule
from forebay.domain.settlement import decide
from forebay.domain.workflow import needs_of
from forebay.errors import ConfigError, IllegalTransition, QueueClosed
from forebay.service.keys import KIND as KEYS
from forebay.stores.memory.store import MemoryEngine
from forebay.stores.protocol import Engine, Want
from forebay.stores.sqlite.store import SqliteEngine
from tests.stores.support import new_job

MAIL = QueueName("mail")
W1 = WorkerId("w1")
HOUR = 3_600_000


class Killed(Exception):
    """The mover came to an end."""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    """An old store and a new one."""
    with ExitStack() as stack:
        yield [opened(stack, engine) for engine in (SqliteEngine(str(tmp_path / "old.db")), MemoryEngine())]


def opened(stack: ExitStack, engine: Engine) -> Place:
    store, reader = engine.store(), engine.reader()
    stack.callback(store.close)
    stack.callback(reader.close)
    return Place(engine.features.name, engine.place, store, reader)


def mover(old: Place, new: Place) -> Mover:
    return Mover(old, new, SystemClock(), actor="ada")


def move_all(one: Mover) -> None:
    one.move()
    one.finish(one.compare())


def put(place: Place, *jobs: NewJob) -> list[JobId]:
    return [JobId(str(receipt.id)) for receipt in place.store.insert(jobs)]


def claimed(place: Place, queue: QueueName = MAIL) -> list[JobId]:
    return [job.id for job in place.store.exchange(W1, wants=[Want(queue, 100)], room=100).jobs]


def done(place: Place, queue: QueueName = MAIL) -> JobId:
    [job] = place.store.exchange(W1, wants=[Want(queue, 1)], room=1).jobs
    place.store.exchange(W1, [decide(job, Completed(b"1"), 0.0)])
    return job.id


@pytest.mark.shows("R-STORE-05")
def test_everything_goes_to_the_other_store_and_none_of_it_twice(places: list[Place]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL))
    ended = done(old)
    ids = put(old, new_job(queue=MAIL), new_job(queue=MAIL, depends_on=needs_of([1])), new_job(delay_ms=HOUR))
    old.store.save_queue(MAIL, {"weight": 3, "mode": "fifo"})
    old.store.save_queue(QueueName("idle"), state=QueueState.PAUSED)
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    for name in ("on", "off"):
        definition = Definition(name=name, job=new_job(), cron="0 0 1 1 *")
        at = old.reader.now() + HOUR
        old.store.save_schedule(
            Schedule(
                definition=definition,
                is_paused=name == "off",
                next_at=at,
                due_at=None if name == "off" else at,
            )
        )
    old.store.save_document(Document(kind="key", name="ada", body="{}"))

    moved = mover(old, new).move()
    compared = mover(old, new).compare()

    assert (moved.jobs, moved.queues, moved.limits, moved.schedules, moved.documents) == (4, 3, 1, 2, 1)
    assert (compared.agrees, compared.jobs) == (True, 4)
    assert claimed(old) == claimed(old, QueueName("default")) == []
    assert claimed(new) == ids[:1]
    states = [job and job.state for job in new.reader.jobs([ended, *ids[1:]])]
    assert states == [JobState.COMPLETED, JobState.BLOCKED, JobState.SCHEDULED]
    [queue] = new.reader.queues([MAIL])
    settings = replace(old.reader.queues([MAIL])[0].settings, keep_finished_ms=0, keep_dead_ms=0)
    assert (queue.state, queue.settings) == (QueueState.ACTIVE, settings)
    assert new.reader.queues([QueueName("idle")])[0].state is QueueState.PAUSED
    assert new.reader.limits() == [Limit(scope=GLOBAL, concurrency=7)]
    off, on = new.reader.schedules()
    assert (off.is_paused, off.due_at, on.is_paused, on.due_at == on.next_at) == (True, None, False, True)
    assert [schedule.is_paused for schedule in old.reader.schedules()] == [True, True]
    assert [document.name for document in new.reader.documents("key")] == ["ada"]


def test_what_came_meanwhile_comes_with_the_next_move_and_the_old_store_is_empty_in_the_end(
    places: list[Place],
) -> None:
    old, new = places
    first = put(old, new_job(queue=MAIL))
    mover(old, new).move()
    later = put(old, new_job(queue=MAIL), new_job(queue=QueueName("fresh"), depends_on=needs_of(first)))
    assert not mover(old, new).compare().agrees

    last = mover(old, new)
    assert last.move().jobs == 2
    assert last.finish(last.compare()) == 3

    assert sum(counts.total for counts in old.reader.counts().values()) == 0
    assert claimed(new) == [*first, later[0]]
    with pytest.raises(QueueClosed):
        put(old, new_job(queue=MAIL))
    assert new.reader.health().problems == old.reader.health().problems == ()


def test_the_new_store_forgets_nothing_before_the_move_is_finished(places: list[Place]) -> None:
    """What has been done there and is not known any more would be copied once more."""
    old, new = places
    old.store.save_queue(MAIL, {"keep_finished_ms": 1})
    put(old, new_job(queue=MAIL))
    one = mover(old, new)
    one.move()
    ran = done(new)
    assert new.store.prune() == 0

    assert one.move().jobs == 0
    one.finish(one.compare())

    assert [job and job.id for job in new.reader.jobs([ran])] == [ran]
    assert new.reader.queues([MAIL])[0].settings == old.reader.queues([MAIL])[0].settings


@pytest.mark.parametrize("after", range(6))
def test_a_mover_that_comes_to_an_end_is_begun_again(
    places: list[Place], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call by which something is written in one of the stores."""
    old, new = places
    monkeypatch.setattr("forebay.app.moving.AT_ONCE", 1)
    ids = put(old, new_job(queue=MAIL, unique_key="u"), new_job(queue=MAIL, depends_on=needs_of([1])))
    calls = iter(range(after))

    class Dying:
        def __init__(self, store: object) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            if name in ("save_queue", "adopt", "delete") and next(calls, None) is None:
                raise Killed
            return getattr(self._store, name)

    dying = mover(*(place._replace(store=Dying(place.store)) for place in places))  # type: ignore[arg-type]
    with pytest.raises(Killed):
        move_all(dying)

    move_all(mover(old, new))

    assert sum(counts.total for counts in old.reader.counts().values()) == 0
    assert [done(new), done(new)] == ids
    assert new.reader.health().problems == ()


def test_jobs_that_run_are_waited_for_and_else_it_is_said_what_to_do(places: list[Place]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL), new_job(queue=MAIL))
    [job] = old.store.exchange(W1, wants=[Want(MAIL, 1)], room=1).jobs

    with pytest.raises(IllegalTransition, match="1 job is running in sqlite; its queues are paused"):
        mover(old, new).move()
    assert claimed(old) == []

    old.store.exchange(W1, [decide(job, Completed(b"1"), 0.0)])
    assert mover(old, new).move(1_000).jobs == 2


def test_nothing_is_taken_out_while_the_stores_differ(places: list[Place]) -> None:
    old, new = places
    [job_id] = put(old, new_job(queue=MAIL))
    one = mover(old, new)
    one.move()
    compared = one.compare()

    for wrong in (replace(compared, missing=(job_id,)), replace(compared, different=(job_id,))):
        with pytest.raises(IllegalTransition, match="none is taken out"):
            one.finish(wrong)

    assert old.reader.counts()[MAIL].pending == 1


def test_a_store_goes_back_once_its_move_is_finished(places: list[Place]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL))
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    definition = Definition(name="on", job=new_job(), cron="0 0 1 1 *")
    old.store.save_schedule(Schedule(definition=definition, next_at=1, due_at=1))
    there = mover(old, new)
    there.move()
    with pytest.raises(ConfigError, match="is not finished: jobs in it may have been done there"):
        mover(new, old).move()
    there.finish(there.compare())
    new.store.save_limit(Limit(scope=GLOBAL, concurrency=8))

    move_all(mover(new, old))

    [job_id] = put(old, new_job(queue=QueueName("other")))
    assert done(old) != job_id
    put(old, new_job(queue=MAIL))
    assert old.reader.limits() == [Limit(scope=GLOBAL, concurrency=8)]
    assert [schedule.is_paused for schedule in old.reader.schedules()] == [False]
    assert mover(old, new).move().jobs == 3


def test_a_store_goes_to_one_place_at_a_time(places: list[Place]) -> None:
    old, new = places
    put(old, new_job())
    mover(old, new).move()

    with ExitStack() as stack, pytest.raises(ConfigError, match="finish that move first"):
        mover(old, opened(stack, MemoryEngine())).move()
    with pytest.raises(ConfigError, match="are the same store"):
        mover(old, old)


def test_every_kind_of_document_comes_along() -> None:
    assert {BLOBS, KEYS, RAMPS} < set(KINDS)
    assert KIND not in KINDS
