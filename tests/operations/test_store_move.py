"""All that is in a store goes to another one, none of it twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from forebay.clock import SystemClock
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.outcome import Completed
from forebay.domain.queue import QueueState
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.settlement import decide
from forebay.domain.store_move import JobExport
from forebay.domain.stored_document import Document
from forebay.domain.worker import WorkerInfo
from forebay.errors import ConfigError, IllegalTransition, QueueClosed
from forebay.operations.gradual_revive import KIND as REVIVES
from forebay.operations.store_move import DOCUMENT_KINDS, MoveEndpoint, StoreMover
from forebay.payload.store_identity import BLOB_PREFIX_KIND
from forebay.payload.store_move_records import COPIED_KIND, KIND
from forebay.service.api_keys import KIND as KEYS
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.postgres import connection
from forebay.stores.sqlite.engine import SqliteEngine
from tests.stores.support import new_job
from tests.urls import url_of
from tests.worker.support import eventually

MAIL = QueueName("mail")
W1 = WorkerId("w1")
HOUR = 3_600_000


class Killed(Exception):
    """The mover came to an end."""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[MoveEndpoint]]:
    """An old store and a new one."""
    with ExitStack() as stack:
        yield [opened(stack, engine) for engine in (SqliteEngine(str(tmp_path / "old.db")), MemoryEngine())]


def opened(stack: ExitStack, engine: Engine) -> MoveEndpoint:
    store, reader = engine.store(), engine.reader()
    stack.callback(store.close)
    stack.callback(reader.close)
    return MoveEndpoint(engine.features.name, engine.location, store, reader)


def mover(old: MoveEndpoint, new: MoveEndpoint) -> StoreMover:
    return StoreMover(old, new, SystemClock(), actor="ada", settle=lambda: None)


def move_all(one: StoreMover) -> None:
    one.move()
    one.finish(one.compare())


def put(place: MoveEndpoint, *jobs: NewJob) -> list[JobId]:
    return [JobId(str(receipt.id)) for receipt in place.store.insert(jobs)]


def claimed(place: MoveEndpoint, queue: QueueName = MAIL) -> list[JobId]:
    return [
        job.id for job in place.store.settle_and_claim(W1, claims=[QueueClaim(queue, 100)], room=100).jobs
    ]


def done(place: MoveEndpoint, queue: QueueName = MAIL) -> JobId:
    [job] = place.store.settle_and_claim(W1, claims=[QueueClaim(queue, 1)], room=1).jobs
    place.store.settle_and_claim(W1, [decide(job, Completed(b"1"), 0.0)])
    return job.id


@pytest.mark.shows("R-STORE-05")
def test_everything_goes_to_the_other_store_and_none_of_it_twice(places: list[MoveEndpoint]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL))
    ended = done(old)
    ids = put(
        old, new_job(queue=MAIL), new_job(queue=MAIL, depends_on=dependencies_of([1])), new_job(delay_ms=HOUR)
    )
    old.store.save_queue(MAIL, {"weight": 3, "mode": "fifo"})
    old.store.save_queue(QueueName("idle"), state=QueueState.PAUSED)
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    for name in ("on", "off"):
        definition = ScheduleDefinition(name=name, job=new_job(), cron="0 0 1 1 *")
        at = old.reader.now() + HOUR
        old.store.save_schedule(
            Schedule(
                definition=definition,
                is_paused=name == "off",
                next_run_at=at,
                check_at=None if name == "off" else at,
            )
        )
    old.store.save_document(Document(kind="api_key", name="ada", body="{}"))

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
    assert (off.is_paused, off.check_at, on.is_paused, on.check_at == on.next_run_at) == (
        True,
        None,
        False,
        True,
    )
    assert [schedule.is_paused for schedule in old.reader.schedules()] == [True, True]
    assert [document.name for document in new.reader.documents("api_key")] == ["ada"]


def test_what_came_meanwhile_comes_with_the_next_move_and_the_old_store_is_empty_in_the_end(
    places: list[MoveEndpoint],
) -> None:
    old, new = places
    first = put(old, new_job(queue=MAIL))
    mover(old, new).move()
    later = put(
        old, new_job(queue=MAIL), new_job(queue=QueueName("fresh"), depends_on=dependencies_of(first))
    )
    assert not mover(old, new).compare().agrees

    last = mover(old, new)
    assert last.move().jobs == 2
    assert last.finish(last.compare()) == 3

    assert sum(counts.total for counts in old.reader.counts().values()) == 0
    assert claimed(new) == [*first, later[0]]
    with pytest.raises(QueueClosed):
        put(old, new_job(queue=MAIL))
    assert new.reader.health().problems == old.reader.health().problems == ()


def test_the_new_store_forgets_nothing_before_the_move_is_finished(places: list[MoveEndpoint]) -> None:
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


def test_a_mover_that_comes_to_an_end_is_begun_again() -> None:
    """At each call by which something is written in one of the stores."""
    for after in count():
        with ExitStack() as stack:
            places = [opened(stack, MemoryEngine()) for _ in range(2)]
            if not killed_and_begun_again(places, after):
                break
    assert after > len(("mark", "expected", "paused", "made", "recovered", "noted", "deleted", "closed"))


def killed_and_begun_again(places: list[MoveEndpoint], after: int) -> bool:
    """Whether a move that ends at this writing call was, and another one has done all of it."""
    old, new = places
    ids = put(old, new_job(queue=MAIL, unique_key="u"), new_job(queue=MAIL, depends_on=dependencies_of([1])))
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    calls = iter(range(after))

    class Dying:
        def __init__(self, store: object) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            if name.startswith(("save_", "drop_", "import_jobs", "delete")) and next(calls, None) is None:
                raise Killed
            return getattr(self._store, name)

    dying = mover(*(place._replace(store=Dying(place.store)) for place in places))  # type: ignore[arg-type]
    was_killed = False
    try:
        move_all(dying)
    except Killed:
        was_killed = True
        move_all(mover(old, new))

    assert sum(counts.total for counts in old.reader.counts().values()) == 0
    assert [done(new), done(new)] == ids
    assert new.reader.limits() == [Limit(scope=GLOBAL, concurrency=7)]
    assert new.reader.health().problems == ()
    return was_killed


def test_jobs_that_run_are_waited_for_and_else_it_is_said_what_to_do(places: list[MoveEndpoint]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL), new_job(queue=MAIL))
    [job] = old.store.settle_and_claim(W1, claims=[QueueClaim(MAIL, 1)], room=1).jobs

    with pytest.raises(IllegalTransition, match="1 job is running in sqlite; its queues are paused"):
        mover(old, new).move()
    assert claimed(old) == []

    old.store.settle_and_claim(W1, [decide(job, Completed(b"1"), 0.0)])
    assert mover(old, new).move(1_000).jobs == 2


def test_nothing_is_taken_out_while_the_stores_differ(places: list[MoveEndpoint]) -> None:
    old, new = places
    [job_id] = put(old, new_job(queue=MAIL))
    one = mover(old, new)
    one.move()
    compared = one.compare()

    for wrong in (replace(compared, missing=(job_id,)), replace(compared, different=(job_id,))):
        with pytest.raises(IllegalTransition, match="none is taken out"):
            one.finish(wrong)

    assert old.reader.counts()[MAIL].pending == 1


def test_a_store_goes_back_once_its_move_is_finished(places: list[MoveEndpoint]) -> None:
    old, new = places
    put(old, new_job(queue=MAIL))
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    definition = ScheduleDefinition(name="on", job=new_job(), cron="0 0 1 1 *")
    old.store.save_schedule(Schedule(definition=definition, next_run_at=1, check_at=1))
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


def test_a_store_goes_to_one_place_at_a_time(places: list[MoveEndpoint]) -> None:
    old, new = places
    put(old, new_job())
    mover(old, new).move()

    with ExitStack() as stack, pytest.raises(ConfigError, match="finish that move first"):
        mover(old, opened(stack, MemoryEngine())).move()
    with pytest.raises(ConfigError, match="are the same store"):
        mover(old, old)


def test_one_store_under_two_names_is_not_moved(places: list[MoveEndpoint]) -> None:
    """A host name and its number, a pooler, a service before its own database: the addresses do not tell."""
    old, _ = places
    put(old, new_job(queue=MAIL))
    other_name = old._replace(name="other", location="other")

    for _ in range(2):
        with pytest.raises(ConfigError, match="sqlite and other are the same store"):
            move_all(mover(old, other_name))

    assert len(claimed(old)) == 1


def test_what_was_done_and_forgotten_in_the_new_store_does_not_come_again(tmp_path: Path) -> None:
    """Redis keeps so many jobs of a queue and no more, however long they are to be kept."""
    with ExitStack() as stack:
        old = opened(stack, SqliteEngine(str(tmp_path / "old.db")))
        new = opened(stack, open_engine(f"{url_of('redis', tmp_path)}&max_finished=1"))
        put(old, *[new_job(queue=MAIL)] * 3)
        one = mover(old, new)
        one.move()
        last = [done(new) for _ in range(3)][-1]
        assert new.store.prune() == 2

        again = mover(old, new)
        assert again.move().jobs == 0
        compared = again.compare()
        assert (compared.agrees, compared.forgotten) == (True, 2)
        assert again.finish(compared) == 3

        assert claimed(new) == []
        assert [job and job.id for job in new.reader.jobs([last])] == [last]


def test_what_was_deleted_or_dropped_in_the_new_store_does_not_come_again(places: list[MoveEndpoint]) -> None:
    old, new = places
    new.store.save_queue(MAIL, {"keep_finished_ms": 0})
    [job_id] = put(old, new_job(queue=MAIL))
    old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
    definition = ScheduleDefinition(name="on", job=new_job(), cron="0 0 1 1 *")
    old.store.save_schedule(Schedule(definition=definition, next_run_at=HOUR, check_at=HOUR))
    old.store.save_document(Document(kind="api_key", name="ada", body="{}"))
    mover(old, new).move()
    new.store.delete([job_id])
    new.store.drop_limit(GLOBAL)
    new.store.drop_schedule("on")
    new.store.drop_document("api_key", "ada")

    move_all(mover(old, new))

    assert new.reader.jobs([job_id]) == [None]
    assert (new.reader.limits(), new.reader.schedules(), new.reader.documents("api_key")) == ([], [], [])
    assert new.reader.queues([MAIL])[0].settings.keep_finished_ms == 0  # the move has not made this one


def test_a_new_store_that_was_emptied_meanwhile_is_told_from_one_that_has_forgotten(
    places: list[MoveEndpoint],
) -> None:
    old, new = places
    put(old, new_job(queue=MAIL))
    mover(old, new).move()

    with ExitStack() as stack:
        empty = opened(stack, MemoryEngine())._replace(location=new.location)
        with pytest.raises(ConfigError, match="as if it had been emptied"):
            mover(old, empty).move()

    assert old.reader.counts()[MAIL].total == 1


@pytest.mark.parametrize("finishes", [False, True])
def test_a_new_store_that_was_restored_from_a_backup_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finishes: bool
) -> None:
    """Its jobs of the last parts are gone; the old store knows that they were copied."""
    monkeypatch.setattr("forebay.operations.store_move.BATCH_SIZE", 1)
    with ExitStack() as stack:
        old = opened(stack, SqliteEngine(str(tmp_path / "old.db")))
        new_file = tmp_path / "new.db"
        with ExitStack() as first:
            new = opened(first, SqliteEngine(str(new_file)))
            put(old, new_job(queue=MAIL))
            mover(old, new).move()
        backup = new_file.read_bytes()
        with ExitStack() as second:
            new = opened(second, SqliteEngine(str(new_file)))
            put(old, *[new_job(queue=MAIL)] * 3)
            one = mover(old, new)
            one.move()
            compared = one.compare()
        new_file.write_bytes(backup)
        new = opened(stack, SqliteEngine(str(new_file)))

        with pytest.raises(ConfigError, match="as if it had been restored from a backup"):
            mover(old, new).finish(compared) if finishes else mover(old, new).move()

        assert old.reader.counts()[MAIL].total == 4


def test_a_move_that_a_former_release_has_begun_goes_on(places: list[MoveEndpoint]) -> None:
    old, new = places
    put(old, *[new_job(queue=MAIL)] * 2)
    mover(old, new).move()
    [document] = new.reader.documents(KIND)
    assert new.store.save_document(replace(document, body="{}"))

    put(old, new_job(queue=MAIL))
    assert mover(old, new).move().jobs == 1


def test_a_claim_that_is_on_its_way_when_queues_are_paused_runs_in_one_store_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a consumer, which is in no list of workers: its claim has read that the queue is open, and is
    committed after the pause."""
    monkeypatch.setitem(connection._TIMEOUTS, "lock_timeout", "60s")  # this machine may be slow
    with ExitStack() as stack:
        engine: Any = open_engine(url_of("postgresql", tmp_path))
        old, new = opened(stack, engine), opened(stack, MemoryEngine())
        put(old, new_job(queue=MAIL))
        old.store.save_limit(Limit(scope=GLOBAL, concurrency=7))
        lock = stack.enter_context(psycopg.connect(engine.address.dsn))
        schema = engine.address.schema
        lock.execute(f"select * from {schema}.limits for update")
        consumer = opened(stack, engine)
        claims: list[list[JobId]] = []
        claiming = Thread(target=lambda: claims.append(claimed(consumer)))
        claiming.start()
        stack.callback(claiming.join)
        watching = stack.enter_context(psycopg.connect(engine.address.dsn, autocommit=True))
        waits = """select count(*) from pg_stat_activity
            where wait_event_type = 'Lock' and datname = current_database()"""
        eventually(lambda: watching.execute(waits).fetchall() != [(0,)])

        def settle() -> None:
            lock.rollback()
            claiming.join()

        with pytest.raises(IllegalTransition, match="1 job is running"):
            StoreMover(old, new, SystemClock(), settle=settle).move()

        assert [len(ids) for ids in claims] == [1]
        assert new.reader.counts() == {}


def test_ordinary_work_in_the_new_store_is_not_in_the_way(places: list[MoveEndpoint]) -> None:
    old, new = places
    revived, updated = put(old, new_job(queue=MAIL), new_job(delay_ms=HOUR))
    assert old.store.cancel([revived])[0].applied
    one = mover(old, new)
    one.move()
    assert new.store.revive([revived])[0].applied
    assert done(new) == revived
    change = JobUpdate(priority=7, metadata={"a": 1}, queue=QueueName("other"))
    assert new.store.update_job(updated, change).applied

    assert one.finish(one.compare()) == 2


def test_workers_of_the_old_store_are_waited_for(places: list[MoveEndpoint]) -> None:
    """One that lives might be given a job by a queue that a producer makes meanwhile."""
    old, new = places
    put(old, new_job(queue=MAIL))
    alive = WorkerInfo(id=W1, queues=(MAIL,))
    old.store.heartbeat(alive)
    one = mover(old, new)
    with pytest.raises(IllegalTransition, match="1 worker lives on sqlite; its queues are paused"):
        one.move()
    assert new.reader.counts() == {}

    old.store.remove_worker(W1)
    one.move()
    compared = one.compare()
    old.store.heartbeat(alive)
    with pytest.raises(IllegalTransition, match="1 worker lives on sqlite"):
        one.finish(compared)
    assert old.reader.counts()[MAIL].pending == 1


def test_an_attempt_whose_worker_has_crashed_is_settled(places: list[MoveEndpoint]) -> None:
    """There may be no worker left that would sweep it."""
    old, new = places
    put(old, new_job(queue=MAIL))
    assert old.store.settle_and_claim(W1, claims=[QueueClaim(MAIL, 1, lease_ms=1_000)], room=1).jobs

    assert mover(old, new).move(30_000).jobs == 1


def test_a_queue_is_not_opened_while_there_is_a_job_in_it(places: list[MoveEndpoint]) -> None:
    """A producer that writes until the end: what comes between emptying and closing is held back and taken
    along too."""
    old, new = places
    put(old, new_job(queue=MAIL))
    late: list[JobId] = []
    states: list[QueueState] = []

    class Writing:
        def __getattr__(self, name: str) -> object:
            if name == "save_queue" and not late and not old.reader.counts()[MAIL].total:
                late.extend(put(old, new_job(queue=MAIL)))
            if name == "delete":
                states.append(old.reader.queues([MAIL])[0].state)
            return getattr(old.store, name)

    move_all(mover(old._replace(store=Writing()), new))  # type: ignore[arg-type]

    assert states == [QueueState.PAUSED] * 2
    assert old.reader.counts()[MAIL].total == 0
    assert late[0] in claimed(new)


def test_heavy_jobs_are_written_a_few_at_once(
    places: list[MoveEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = places
    monkeypatch.setattr("forebay.operations.store_move.MAX_BYTES", 10)
    put(old, *(new_job(queue=MAIL, payload=b"x" * size) for size in (4, 6, 1, 20, 1)))
    sizes: list[int] = []

    class Weighing:
        def __getattr__(self, name: str) -> object:
            return getattr(new.store, name)

        def import_jobs(self, wholes: list[JobExport]) -> list[bool]:
            sizes.append(len(wholes))
            return new.store.import_jobs(wholes)

    assert mover(old, new._replace(store=Weighing())).move().jobs == 5  # type: ignore[arg-type]
    assert sizes == [2, 1, 1, 1]


def test_every_kind_of_document_comes_along() -> None:
    assert {BLOB_PREFIX_KIND, KEYS, REVIVES} < set(DOCUMENT_KINDS)
    assert not {KIND, COPIED_KIND} & set(DOCUMENT_KINDS)
