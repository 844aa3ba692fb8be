"""Redis is killed, flushed, stopped or full while jobs run: that costs time, and never a job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from forebay import Forebay
from forebay.cli.doctor import examined
from forebay.cli.settings import read_settings
from forebay.domain.history import EventKind
from forebay.domain.job import QueueName
from forebay.stores.hybrid import link, order
from forebay.stores.hybrid.engine import HybridEngine
from forebay.stores.hybrid.reader import HybridReader
from forebay.stores.hybrid.store import HybridStore
from forebay.stores.protocol import Want
from forebay.stores.redis.connection import opened
from forebay.testing.clock import ManualClock
from tests.stores.hybrid_support import STOPPED_SECONDS, Redis, keys_of, make_engine, with_redis
from tests.stores.postgres_support import new_url, problems
from tests.stores.support import WORKER, new_job
from tests.worker.support import eventually

DEADLINE: Final = 120.0
JOBS: Final = 300
DEFAULT: Final = QueueName("default")
WANTS: Final = [Want(DEFAULT, 5, None, frozenset(["task:t"]))]


@pytest.fixture
def beside() -> Iterator[Redis]:
    """A Redis that may be harmed."""
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def engine(clock: ManualClock, postgres: object, beside: Redis) -> Iterator[HybridEngine]:
    made = make_engine(clock, is_eager=False, server=beside)
    yield made
    assert problems(made) == ()


@pytest.fixture
def store(engine: HybridEngine) -> Iterator[HybridStore]:
    store = engine.store()
    yield store
    store.close()


def taken(store: HybridStore) -> list[int]:
    return [job.seq for job in store.exchange(WORKER, wants=WANTS, room=5).jobs]


def kill_and_start(server: Redis) -> None:
    server.kill()
    server.start()


def stop_for_ten_seconds(server: Redis) -> None:
    server.freeze()
    threading.Event().wait(STOPPED_SECONDS)
    server.thaw()


@pytest.mark.shows("R-EDGE-67", "R-TEST-56", "R-STORE-60", "R-SWEEP-25")
@pytest.mark.parametrize(
    "harm", [kill_and_start, Redis.flush, stop_for_ten_seconds, Redis.kill], ids=lambda one: str(one.__name__)
)
def test_a_worker_goes_on_whatever_becomes_of_redis_and_no_job_is_lost_or_run_twice(
    beside: Redis, harm: Callable[[Redis], None]
) -> None:
    done: list[int] = []
    half = threading.Event()
    with Forebay(with_redis(new_url(), beside)) as app:

        @app.task(name="count")
        def count(number: int) -> int:
            done.append(number)
            if len(done) == JOBS // 2:
                half.set()
            return number

        first = app.enqueue_many([count.job(number) for number in range(JOBS)])
        with app.working(threads=2):
            assert half.wait(DEADLINE)
            harm(beside)
            more = app.enqueue_many([count.job(number) for number in range(JOBS, 2 * JOBS)])

            assert [job.result(timeout=DEADLINE) for job in [*first, *more]] == list(range(2 * JOBS))
        assert app.client.read(lambda reader: reader.health()).problems == ()
    assert sorted(done) == list(range(2 * JOBS))


@pytest.mark.shows("R-STORE-59")
def test_without_redis_the_order_is_kept_and_nobody_waits_for_it(
    store: HybridStore, beside: Redis, clock: ManualClock
) -> None:
    jobs: list[str] = []
    for priority in (0, 5, 9):
        jobs += [str(receipt.id) for receipt in store.insert([new_job(priority=priority)] * 20)]
    beside.freeze()

    began = monotonic()
    order_ = [job for _ in range(12) for job in store.exchange(WORKER, wants=WANTS, room=5).jobs]

    assert [job.priority for job in order_] == [9] * 20 + [5] * 20 + [0] * 20
    assert [job.seq for job in order_[:20]] == sorted(job.seq for job in order_[:20])
    # Twelve claims, of which one may have waited for an answer; a driver's usual patience is some seconds.
    assert monotonic() - began < 10 * link.ANSWER_SECONDS + 10
    beside.thaw()


@pytest.mark.shows("R-NFR-17")
@pytest.mark.parametrize(("is_up", "promised_seconds"), [(True, 0.005), (False, 0.05)])
def test_a_claim_takes_milliseconds_by_what_redis_names_and_by_the_database_alone(
    clock: ManualClock, postgres: object, beside: Redis, is_up: bool, promised_seconds: float
) -> None:
    """The median of many claims, within ten times the promise: `make bench WHAT=compare` measures."""
    engine = make_engine(clock, server=beside)
    with closing(engine.store()) as store:
        store.insert([new_job()] * 120)
        taken(store)
        if not is_up:
            beside.kill()
        taken(store)  # connections are made, and whoever is away is known to be
        named = held(store, engine) if is_up else 0
        seconds = []

        for _ in range(21):
            began = monotonic()
            assert len(taken(store)) == 5
            seconds.append(monotonic() - began)

        assert store._link.is_up is is_up
        assert not is_up or held(store, engine) == named - 105
        assert sorted(seconds)[10] < 10 * promised_seconds
    assert problems(engine) == ()


@pytest.mark.shows("R-STORE-60", "R-SWEEP-25", "R-TEST-56", "R-EDGE-67")
def test_when_redis_is_back_its_part_of_the_order_is_built_in_parts(
    store: HybridStore, engine: HybridEngine, beside: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH", 50)
    monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)
    store.insert([new_job()] * 400)
    for _ in range(12):
        taken(store)
    beside.kill()
    assert len(taken(store)) == 5
    store.insert([new_job()] * 10)
    beside.start()
    eventually(lambda: store._link.is_up)

    sizes = []
    for _ in range(12):
        assert len(taken(store)) == 5
        sizes.append(held(store, engine))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) <= 50
    assert sizes[-1] == 410 - 60 - 5 - 60


def held(store: HybridStore, engine: HybridEngine) -> int:
    """How many places Redis holds, once it has heard all that was said."""
    count: Any = store._link.command("ZCARD", f"{keys_of(engine)}:hot:default")
    return int(count)


@pytest.mark.shows("R-STORE-59", "R-MET-11")
def test_the_change_is_in_the_log_in_the_events_and_in_the_gauge(
    store: HybridStore, engine: HybridEngine, beside: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    reader = engine.reader()
    store.insert([new_job()])
    assert reader.vitals().redis_fallback is False
    beside.kill()
    with caplog.at_level(logging.WARNING):
        eventually(lambda: not store._link.is_up)
        store.insert([new_job()])
        assert reader.vitals().redis_fallback is True
        assert any(note.startswith("Redis is away") for note in reader.health().notes)
        beside.start()
        eventually(lambda: store._link.is_up)
        store.insert([new_job()])

    eventually(lambda: reader.vitals().redis_fallback is False)
    said = [event.detail for _, event in reader.audit() if event.kind is EventKind.NOTE]
    assert [words.partition(":")[0] for words in reversed(said)] == [
        "Redis is away, so orders are PostgreSQL's own for now",
        "Redis is back",
    ]
    assert sum("Redis is" in line for line in caplog.messages) == 2
    reader.close()


def test_doctor_compares_both_orders(
    postgres: object, beside: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = with_redis(new_url(), beside)
    with Forebay(url) as app:
        store = app.engine.store()
        assert isinstance(store, HybridStore)
        store.insert([new_job()] * 20)
        monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)
        for _ in range(3):
            assert len(taken(store)) == 5
        store._link.command("PING")
        assert notes_of(url) == []

        key = f"{keys_of(app.engine)}:hot:default"  # type: ignore[arg-type]  # it is one
        store._link.command("ZREMRANGEBYRANK", key, 0, 1)
        store._link.command("ZADD", key, 1, f"{999:013d}")
        [note] = notes_of(url)
        assert "Redis does not know 2, and it names 1 that do not wait there" in note

        beside.kill()
        [note] = notes_of(url)
        assert note.startswith("Redis is away")
        store.close()


def notes_of(url: str) -> list[str]:
    findings, _ = examined(read_settings({"url": url}), quick=False)
    return [one.message for one in findings if one.about == "consistency" and one.level == "note"]


def test_a_redis_that_refuses_counts_as_away(store: HybridStore, engine: HybridEngine, beside: Redis) -> None:
    for _ in range(2):
        store.insert([new_job()] * 20)
    assert len(taken(store)) == 5
    store._link.command("SET", f"{keys_of(engine)}:hot:default", "no order")  # of somebody else
    store._link.command("SET", f"{keys_of(engine)}:end:default", "+")

    assert [len(taken(store)) for _ in range(7)] == [5] * 7
    assert not store._link.is_up
    assert "WRONGTYPE" in store._link.why


def test_a_refusal_that_is_heard_after_a_while_harms_no_call(
    store: HybridStore, engine: HybridEngine, beside: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "IDLE_SECONDS", 0.0)  # a program that enqueues now and then
    for _ in range(2):
        store.insert([new_job()] * 20)
    assert len(taken(store)) == 5
    store._link.command("SET", f"{keys_of(engine)}:hot:default", "no order")  # of somebody else
    store._link.command("SET", f"{keys_of(engine)}:end:default", "+")
    store.insert([new_job()])

    eventually(lambda: not store._link.is_up)

    assert "WRONGTYPE" in store._link.why
    assert store.insert([new_job()])[0].is_new


def test_scripts_that_redis_has_forgotten_are_loaded_again(
    store: HybridStore, engine: HybridEngine, beside: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "LOOK_SECONDS", 600.0)
    for _ in range(2):
        store.insert([new_job()] * 20)
    assert len(taken(store)) == 5
    beside.forget_scripts()

    assert [len(taken(store)) for _ in range(5)] == [5] * 5
    assert held(store, engine) == 10


@pytest.mark.shows("R-STORE-54")
def test_hints_go_over_redis_and_over_postgresql_where_it_is_away(
    store: HybridStore, engine: HybridEngine, beside: Redis
) -> None:
    pokes = threading.Semaphore(0)
    listener = engine.wakeups()
    listener.start(pokes.release)
    for _ in range(2):  # each says once that it listens
        assert pokes.acquire(timeout=DEADLINE)
    store.insert([new_job()])
    assert pokes.acquire(timeout=DEADLINE)
    while pokes.acquire(timeout=0.2):
        pass

    beside.kill()
    eventually(lambda: not store._link.is_up)
    store.insert([new_job()])
    assert pokes.acquire(timeout=DEADLINE)
    listener.close()


def test_a_handle_can_be_opened_while_redis_is_away(engine: HybridEngine, beside: Redis) -> None:
    beside.kill()
    store = engine.store()
    store.insert([new_job()])
    assert len(taken(store)) == 1
    store.close()


@pytest.mark.shows("R-STORE-59")
def test_nobody_waits_for_a_redis_of_which_the_program_knows_that_it_is_away(
    store: HybridStore, engine: HybridEngine, beside: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside.freeze()
    assert store._link.command("PING") is None
    seekers: list[threading.Thread] = []

    def record(*arguments: Any) -> Any:
        seekers.append(threading.current_thread())
        return opened(*arguments)

    monkeypatch.setattr(link, "opened", record)
    handles: list[HybridStore | HybridReader] = [engine.store(), engine.reader(), engine.store()]

    assert threading.current_thread() not in seekers
    beside.thaw()
    eventually(lambda: all([handle._link.is_up for handle in handles]))
    for handle in handles:
        handle.close()

    engine.store().close()
    assert seekers[-1] is threading.current_thread()  # it is there, and an answer is worth waiting for
