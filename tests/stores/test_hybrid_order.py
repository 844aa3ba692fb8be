"""Redis names places, PostgreSQL decides: no job is given twice, none is lost, and none waits for long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Final

import pytest

from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.outcome import Interrupted
from forebay.domain.settlement import decide
from forebay.stores.hybrid import order
from forebay.stores.hybrid.engine import HybridEngine
from forebay.stores.hybrid.store import HybridStore
from forebay.stores.postgres import cursor
from forebay.stores.protocol import Want
from forebay.testing.clock import ManualClock
from tests.stores.hybrid_support import admin, hot, keys_of, make_engine
from tests.stores.postgres_support import problems, raw, server
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, new_job

DEFAULT: Final = QueueName("default")
GATES: Final = frozenset(["task:t"])
DEADLINE: Final = 60.0

pytestmark = pytest.mark.usefixtures("patience_with_redis")


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> Iterator[HybridEngine]:
    """One that goes by what Redis names wherever it can."""
    made = make_engine(clock)
    yield made
    assert problems(made) == ()


@pytest.fixture
def usual(clock: ManualClock, postgres: object) -> Iterator[HybridEngine]:
    """One as users have it."""
    made = make_engine(clock, is_eager=False)
    yield made
    assert problems(made) == ()


@pytest.fixture
def store(engine: HybridEngine) -> Iterator[HybridStore]:
    store = engine.store()
    yield store
    store.close()


def taken(store: HybridStore, n: int, worker: WorkerId = WORKER) -> list[Job]:
    return list(store.exchange(worker, wants=[Want(DEFAULT, n, None, GATES)], room=n).jobs)


def known(engine: HybridEngine, store: HybridStore) -> list[int]:
    """What Redis holds once it has heard all that this handle has said."""
    store._link.command("PING")
    return hot(engine)


def filled(store: HybridStore, jobs: int) -> list[str]:
    """Let jobs wait, of which Redis knows all."""
    ids = [str(receipt.id) for receipt in store.insert([new_job()] * jobs)]
    assert taken(store, 0) == []
    return ids


@pytest.mark.shows("R-STORE-54")
def test_redis_holds_the_places_of_waiting_jobs_and_lets_go_of_those_that_were_claimed(
    engine: HybridEngine, store: HybridStore
) -> None:
    ids = filled(store, 5)
    assert [job.id for job in taken(store, 2)] == ids[:2]
    store.insert([new_job()])

    assert len(known(engine, store)) == 4
    assert [job.id for job in taken(store, 9)][:3] == ids[2:]
    assert known(engine, store) == []


@pytest.mark.shows("R-BUG-16")
def test_the_order_in_redis_is_priority_first_and_then_the_oldest(
    engine: HybridEngine, store: HybridStore, clock: ManualClock
) -> None:
    filled(store, 1)
    urgent = [str(store.insert([new_job(priority=9)])[0].id) for _ in range(3)]
    clock.advance(1)
    old = str(store.insert([new_job(priority=9)])[0].id)

    assert [job.id for job in taken(store, 4)] == [*urgent, old]


@pytest.mark.shows("R-STORE-57", "R-STORE-58")
def test_a_name_that_is_out_of_date_is_passed_over_and_the_rest_comes_from_postgresql(
    engine: HybridEngine, store: HybridStore
) -> None:
    ids = filled(store, 6)
    with raw() as connection:  # by a program that knows nothing of Redis
        schema = engine.address.schema
        connection.execute(f"delete from {schema}.ready where id = any(%s)", [ids[:2]])
        connection.execute(f"delete from {schema}.jobs where id = any(%s)", [ids[:2]])
        connection.execute(
            f"insert into {schema}.count_deltas (queue, state, jobs) values ('default', 'pending', -2)"
        )

    assert [job.id for job in taken(store, 3)] == ids[2:5]


@pytest.mark.shows("R-STORE-57")
def test_a_place_that_somebody_holds_is_passed_over_and_comes_later(
    engine: HybridEngine, store: HybridStore
) -> None:
    ids = filled(store, 3)
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select 1 from {engine.address.schema}.ready where id = %s for update", [ids[0]])
        assert [job.id for job in taken(store, 2)] == ids[1:]
        connection.execute("rollback")

    assert [job.id for job in taken(store, 2)] == ids[:1]


@pytest.mark.shows("R-BUG-17", "R-STORE-58")
def test_what_was_named_to_somebody_who_died_is_found_by_others(
    engine: HybridEngine, store: HybridStore
) -> None:
    ids = filled(store, 4)
    dying = engine.store()
    assert len(dying._order.named(DEFAULT, 3)) == 3
    dying._link.close()  # it says nothing any more
    assert len(known(engine, store)) == 1

    assert [job.id for job in taken(store, 4)] == ids
    dying.close()


@pytest.mark.shows("R-BUG-17")
def test_what_was_named_and_not_claimed_is_named_again(engine: HybridEngine, store: HybridStore) -> None:
    filled(store, 4)
    before = known(engine, store)

    # A worker that may not run this task leaves it to others, and this takes the long way.
    nobody = [Want(DEFAULT, 2, None, frozenset(["task:other"]))]
    places = store._order.named(DEFAULT, 2)
    store._order.tried(DEFAULT, places, is_over=False)
    assert known(engine, store) == before
    assert store.exchange(WORKER, wants=nobody, room=2).jobs == ()
    assert len(taken(store, 4)) == 4


def test_a_claim_that_fails_gives_its_names_back(
    engine: HybridEngine, store: HybridStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, 4)
    before = known(engine, store)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._plain_exchange._call_named, "rows", fail)
        with pytest.raises(KeyboardInterrupt):
            taken(store, 2)

    assert known(engine, store) == before


@pytest.mark.shows("R-STORE-62", "R-NFR-20", "R-CFG-36")
def test_only_the_hottest_places_are_held_and_more_move_in_as_there_is_room(
    clock: ManualClock, postgres: object
) -> None:
    engine = make_engine(clock, hot=10)
    store = engine.store()
    ids = []
    for _ in range(40):
        clock.advance(1)
        ids += [str(receipt.id) for receipt in store.insert([new_job(), new_job()])]
    seen, sizes = [], []
    while jobs := taken(store, 3):
        seen += [job.id for job in jobs]
        sizes.append(len(known(engine, store)))

    assert seen == ids
    assert max(sizes) == 10
    assert problems(engine) == ()
    store.close()


def test_what_comes_in_behind_the_hottest_part_is_not_named_before_it(
    clock: ManualClock, postgres: object
) -> None:
    engine = make_engine(clock, hot=4)
    store = engine.store()
    first = [str(store.insert([new_job()])[0].id) for _ in range(8)]
    assert [job.id for job in taken(store, 3)] == first[:3]
    clock.advance(1)
    last = str(store.insert([new_job()])[0].id)

    assert [job.id for job in taken(store, 6)] == [*first[3:], last]
    store.close()


@pytest.mark.shows("R-STORE-58")
def test_a_job_of_a_callers_transaction_waits_no_longer_than_a_look(usual: HybridEngine) -> None:
    store = usual.store()
    store.insert([new_job()] * 2_000)
    assert [len(taken(store, 5)) for _ in range(4)] == [5] * 4
    with raw(server().url()) as connection:
        connection.execute("begin")
        [receipt] = usual.insert_within(connection, [new_job(priority=9)])
        connection.execute("commit")

    until, left = monotonic() + DEADLINE, 1_980
    while receipt.id not in {job.id for job in taken(store, 1)}:
        left -= 1
        if left < 1_000:  # so that a fast machine does not come to the end of the queue before a look is due
            left += len(store.insert([new_job()] * 1_000))
        assert monotonic() < until, "it was not found in time"
    store.close()


def test_many_jobs_that_redis_does_not_know_are_found_together(usual: HybridEngine) -> None:
    store = usual.store()
    store.insert([new_job()] * 2_000)
    assert [len(taken(store, 5)) for _ in range(4)] == [5] * 4
    with raw(server().url()) as connection:
        connection.execute("begin")
        urgent = {receipt.id for receipt in usual.insert_within(connection, [new_job(priority=9)] * 300)}
        connection.execute("commit")

    jobs: list[Job] = []
    until = monotonic() + DEADLINE
    while not urgent & {job.id for job in jobs}:
        jobs = taken(store, 5)
        assert jobs
        assert monotonic() < until, "none was found before the others"
    # From then on the order is PostgreSQL's own until nothing is missing; one claim may have been under way.
    found = [job.id in urgent for _ in range(59) for job in taken(store, 5)]
    assert sum(found) >= 290
    store.close()


def test_an_order_of_which_much_is_missing_is_forgotten_and_built_anew(
    usual: HybridEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "DOUBT_SECONDS", 0.0)
    monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)
    store = usual.store()
    store.insert([new_job()] * 300)
    # The long way, on which it gets to know the queue; a look of its own; and one in vain, which builds it.
    assert [len(taken(store, 5)) for _ in range(3)] == [5] * 3
    assert len(known(usual, store)) == 285
    admin().zremrangebyrank(f"{keys_of(usual)}:hot:default", 0, 99)
    monkeypatch.setattr(order, "LOOK_SECONDS", 0.0)
    store._order._look_at.clear()
    for _ in range(4):
        assert len(taken(store, 5)) == 5
    assert known(usual, store) == []  # it was forgotten
    monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)

    for _ in range(3):
        assert len(taken(store, 5)) == 5
        store._link.command("PING")
    assert len(known(usual, store)) == 250
    store.close()


def test_a_retried_and_a_handed_back_job_are_known_again(engine: HybridEngine, store: HybridStore) -> None:
    filled(store, 3)
    [first] = taken(store, 1)
    store.exchange(WORKER, [decide(first, Interrupted(), 0.0)])

    assert known(engine, store)[0] == first.seq
    assert [job.id for job in taken(store, 1)] == [first.id]


def test_handles_that_claim_at_once_never_get_the_same_job(usual: HybridEngine) -> None:
    store = usual.store()
    ids = [receipt.id for receipt in store.insert([new_job()] * 1_000)]
    seen: list[list[str]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        mine, worker = usual.store(), WorkerId(f"w{number}")
        done: list[Job] = []
        while True:
            wants = [Want(DEFAULT, 7, None, GATES)]
            answer = mine.exchange(worker, [complete(job) for job in done], wants, 7)
            seen[number] += answer.settled
            done = list(answer.jobs)
            if not done:
                break
        mine.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE * 2)

    assert Counter(one for each in seen for one in each) == Counter(ids)
    store.close()


@pytest.mark.shows("R-STORE-55")
def test_every_key_is_documented_and_expires(engine: HybridEngine, store: HybridStore) -> None:
    filled(store, 3)
    store._order.named(DEFAULT, 1)
    store._link.ask("forget", "other", 5_000)
    start = keys_of(engine)
    assert start.startswith("{test-")
    assert f":beside:postgres.{engine.address.schema}." in start
    found = {key.decode().removeprefix(f"{start}:") for key in admin().scan_iter(match=f"{start}*")}

    assert found == {"hot:default", "end:default", "taken:default", "forgot:other"}
    assert all(admin().pttl(f"{start}:{name}") > 0 for name in found)


def test_an_order_that_was_empty_for_a_moment_expires_too(engine: HybridEngine, store: HybridStore) -> None:
    filled(store, 3)
    assert len(store._order.named(DEFAULT, 3)) == 3

    store.insert([new_job()])

    assert len(known(engine, store)) == 1
    assert admin().pttl(f"{keys_of(engine)}:hot:default") > 0


@pytest.mark.shows("R-STORE-61")
def test_without_postgresql_nothing_is_claimed_whatever_redis_names(
    engine: HybridEngine, store: HybridStore
) -> None:
    filled(store, 3)
    with raw() as connection:
        connection.execute(f"delete from {engine.address.schema}.ready")
        connection.execute(f"delete from {engine.address.schema}.jobs")
        connection.execute(f"delete from {engine.address.schema}.count_deltas")

    assert taken(store, 3) == []
    assert claim(store, 3, worker=OTHER_WORKER) == []


def test_an_order_that_redis_forgets_is_not_read_again_over_all_that_was_removed(
    usual: HybridEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH", 50)
    monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)
    monkeypatch.setattr(cursor, "CHEAP_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(cursor, "SHARE", 1_000_000)  # one from the head in half a minute
    store, removed, times = usual.store(), 3_000, 10
    with raw() as pin:
        pin.execute("begin isolation level repeatable read")
        pin.execute("select 1 from pg_class")
        for _ in range(5):
            store.insert([new_job()] * 1_000)
        jobs = [job for _ in range(removed // 100) for job in taken(store, 100)]
        before = entries_read(store, usual)
        for _ in range(times):
            admin().delete(f"{keys_of(usual)}:end:default")
            jobs += taken(store, 10)
            assert len(known(usual, store)) == 50
        read = entries_read(store, usual) - before

    assert read < 2 * removed
    assert [job.seq for job in jobs] == list(range(1, removed + 10 * times + 1))
    store.close()


def entries_read(store: HybridStore, engine: HybridEngine) -> int:
    """How many entries of the order were read so far, dead ones included."""
    own = store._connection.opened()
    own.execute(b"select pg_stat_force_next_flush()")
    own.execute(b"select 1")
    with raw() as connection:
        [(read,)] = connection.execute(
            "select idx_tup_read from pg_stat_user_indexes"
            " where schemaname = %s and indexrelname = 'ready_pkey'",
            [engine.address.schema],
        ).fetchall()
    return int(read)
