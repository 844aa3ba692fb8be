"""Requests and answers that get lost, and everything a server can say instead of doing what it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import msgspec
import psycopg
import pytest

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import Dependency, QueueName
from forebay.domain.lease import Lease
from forebay.errors import StoreBusy, StoreError, StoreUnavailable, StoreUnusable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.postgres import connection as module
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.testing.manual_clock import ManualClock
from tests.servers import Postgres
from tests.stores.contract.steps import together
from tests.stores.postgres_support import make_engine, problems, raw, refused_at_commit, server
from tests.stores.relay import Relay
from tests.stores.support import WORKER, claim, complete, new_job

DEFAULT = QueueName("default")


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def relay() -> Iterator[Relay]:
    started = Relay(server().port)
    yield started
    started.close()


@pytest.fixture
def store(engine: PostgresEngine, relay: Relay) -> Iterator[Store]:
    """A handle whose words go through the relay."""
    opened = PostgresEngine(msgspec.structs.replace(engine.address, dsn=relay.url)).store()
    yield opened
    opened.close()
    assert problems(engine) == ()


# ------------------------------------------------------------------ lost on the way


@pytest.mark.shows("R-EDGE-65")
def test_an_insert_that_does_not_arrive_leaves_nothing(
    engine: PostgresEngine, relay: Relay, store: Store
) -> None:
    loss = relay.lose_request(b"commit")

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.insert([new_job(unique_key="a"), new_job(idempotency_key="b")])
    assert loss.lost == 1

    assert pending(engine) == 0
    assert [one.is_new for one in store.insert([new_job(unique_key="a"), new_job(idempotency_key="b")])] == [
        True
    ] * 2


def test_an_insert_whose_answer_is_lost_has_happened_and_its_keys_say_so(
    engine: PostgresEngine, relay: Relay, store: Store
) -> None:
    jobs = [new_job(unique_key="a"), new_job(idempotency_key="b")]
    loss = relay.lose_answer()

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.insert(jobs)
    assert loss.lost == 1

    assert [one.is_new for one in store.insert(jobs)] == [False, False]
    assert pending(engine) == 2


@pytest.mark.parametrize("jobs", [1, 5])
def test_an_insert_whose_answer_is_lost_is_not_made_again_behind_the_callers_back(
    engine: PostgresEngine, relay: Relay, store: Store, jobs: int
) -> None:
    loss = relay.lose_answer()

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.insert([new_job()] * jobs)

    assert loss.lost == 1
    assert pending(engine) == jobs


def test_a_settle_and_claim_whose_answer_is_lost_is_repeated_and_its_jobs_are_recovered(
    relay: Relay, store: Store
) -> None:
    store.insert([new_job()] * 3)
    [job] = claim(store)
    loss = relay.lose_answer()

    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(WORKER, [complete(job)], [QueueClaim(DEFAULT, 2)], 2)
    assert loss.lost == 1
    answer = store.settle_and_claim(WORKER, [complete(job)], known=[])

    assert (answer.settled, answer.repeated, answer.refused) == ((), (job.id,), ())
    assert [one.attempt for one in answer.recovered] == [1, 1]
    assert len(store.settle_and_claim(WORKER, [complete(one) for one in answer.recovered]).settled) == 2


def pending(engine: PostgresEngine) -> int:
    reader = engine.reader()
    found = reader.counts()
    reader.close()
    return found[DEFAULT].pending if DEFAULT in found else 0


# ------------------------------------------------------------------ refused by the server


@contextmanager
def inserts_fail(engine: PostgresEngine, code: str) -> Iterator[None]:
    """An insert of a job is told this instead."""
    schema = engine.address.schema
    with raw() as connection:
        connection.execute(
            f"create function {schema}.fault() returns trigger language plpgsql as"
            f" $$ begin raise exception 'no' using errcode = '{code}'; end $$;"
            f" create trigger fault before insert on {schema}.jobs execute function {schema}.fault()"
        )
        try:
            yield
        finally:
            connection.execute(f"drop function {schema}.fault cascade")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("53100", StoreUnavailable, "no room left"),
        ("53200", StoreUnavailable, "cannot be reached"),
        ("53300", StoreUnavailable, "no connection left"),
        ("55P03", StoreBusy, "an open transaction holds a lock"),
        ("57014", StoreUnavailable, "took too long"),
        ("57P01", StoreUnavailable, "cannot be reached"),
        ("57P03", StoreUnavailable, "cannot be reached"),
        ("58030", StoreUnavailable, "cannot be reached"),
        ("25006", StoreUnavailable, "read-only"),
        ("25P03", StoreUnavailable, "cannot be reached"),
        ("25P04", StoreUnavailable, "cannot be reached"),
        ("40001", StoreUnavailable, "each other's way"),
        ("40P01", StoreUnavailable, "each other's way"),
        ("42501", StoreUnusable, "grant it"),
    ],
)
def test_what_a_server_says_is_an_error_of_ours_and_nothing_is_half_stored(
    engine: PostgresEngine, code: str, kind: type[StoreError], words: str
) -> None:
    store = engine.store()
    store.insert([new_job()])

    with inserts_fail(engine, code), pytest.raises(kind, match=words) as refused:
        store.insert([new_job(unique_key="a"), new_job()])

    assert isinstance(refused.value.__cause__, psycopg.Error)
    assert store.insert([new_job(unique_key="a")])[0].is_new
    assert pending(engine) == 2
    assert problems(engine) == ()
    store.close()


@pytest.mark.parametrize("jobs", [1, 5])
@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("55P03", StoreBusy, "an open transaction holds a lock"),
        ("53100", StoreUnavailable, "no room left"),
        ("57014", StoreUnavailable, "took too long"),
        ("42501", StoreUnusable, "grant it"),
    ],
)
def test_an_insert_whose_commit_fails_raises_an_error_of_ours_and_stores_nothing(
    engine: PostgresEngine, jobs: int, code: str, kind: type[StoreError], words: str
) -> None:
    store = engine.store()
    for _ in range(3):  # once the queue is known, an insert is one statement
        store.insert([new_job()])

    with refused_at_commit(engine.address.schema, "jobs", code), pytest.raises(kind, match=words):
        store.insert([new_job()] * jobs)

    assert [one.is_new for one in store.insert([new_job()] * jobs)] == [True] * jobs
    assert pending(engine) == 3 + jobs
    assert problems(engine) == ()
    store.close()


@pytest.mark.parametrize("has_dependants", [False, True])
@pytest.mark.parametrize("limits", [(), (Limit(scope="global", concurrency=5),)])
def test_a_settle_and_claim_whose_commit_fails_raises_an_error_of_ours_and_changes_nothing(
    engine: PostgresEngine, limits: tuple[Limit, ...], has_dependants: bool
) -> None:
    """Without limits the settle-and-claim is one statement, or two where a job with dependants has ended
    before; with limits it is a pipeline of three."""
    store = engine.store()
    for limit in limits:
        store.save_limit(limit)
    parents = [receipt.id for receipt in store.insert([new_job()] * 2) if receipt.id is not None]
    if has_dependants:
        store.insert([new_job(depends_on=(Dependency(parent),)) for parent in parents])
    store.insert([new_job()])
    first, second = claim(store, 2)
    store.settle_and_claim(WORKER, [complete(first)])

    schema, words = engine.address.schema, "an open transaction holds a lock"
    with refused_at_commit(schema, "leases", "55P03"), pytest.raises(StoreUnavailable, match=words):
        store.settle_and_claim(WORKER, [complete(second)], [QueueClaim(DEFAULT, 1)], 1)

    answer = store.settle_and_claim(WORKER, [complete(second)], [QueueClaim(DEFAULT, 1)], 1)
    assert (answer.settled, len(answer.jobs)) == ((second.id,), 1)
    assert problems(engine) == ()
    store.close()


@contextmanager
def not_leased(engine: PostgresEngine, job_id: str, code: str) -> Iterator[None]:
    """A claim of this job is refused with this code; claims of others are not."""
    schema = engine.address.schema
    with raw() as connection:
        connection.execute(
            f"create function {schema}.fault() returns trigger language plpgsql as"
            f" $$ begin raise exception 'no' using errcode = '{code}'; end $$;"
            f" create trigger fault before insert on {schema}.leases for each row"
            f" when (new.id = '{job_id}') execute function {schema}.fault()"
        )
        try:
            yield
        finally:
            connection.execute(f"drop function {schema}.fault cascade")


@pytest.mark.parametrize("known", [None, ()])
def test_a_released_job_that_cannot_be_claimed_does_not_hide_what_was_claimed_before(
    engine: PostgresEngine, known: tuple[()] | None
) -> None:
    """By the fast path, and by the slow path, which a claim with known leases takes."""
    store = engine.store()
    for _ in range(2):
        store.insert([new_job()])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    parent, child, other = (
        str(receipt.id)
        for receipt in store.insert(
            [new_job(priority=1), new_job(depends_on=dependencies_of([1])), new_job()]
        )
    )
    [job] = claim(store)
    leases = known if known is None else [Lease(job.id, job.attempt)]

    with not_leased(engine, child, "22000"):
        answer = store.settle_and_claim(WORKER, [complete(job)], [QueueClaim(DEFAULT, 5)], 5, leases)

    assert (answer.settled, [one.id for one in answer.jobs]) == ((parent,), [other])
    assert [one.id for one in claim(store)] == [child]
    assert problems(engine) == ()
    store.close()


@pytest.mark.parametrize(("code", "kind"), [("22000", StoreUnavailable), ("55P03", StoreUnavailable)])
def test_a_settle_and_claim_that_fails_in_its_second_queue_is_in_doubt(
    engine: PostgresEngine, code: str, kind: type[StoreError]
) -> None:
    """The first queue was claimed from by the fast path, in a transaction of its own."""
    store, mail = engine.store(), QueueName("mail")
    for queue in (DEFAULT, mail):
        for _ in range(2):
            store.insert([new_job(queue=queue)])
            store.settle_and_claim(WORKER, [complete(job) for job in claim(store, queue=queue)])
    first, second = (str(one.id) for one in store.insert([new_job(), new_job(queue=mail)]))

    with not_leased(engine, second, code), pytest.raises(kind):
        store.settle_and_claim(WORKER, (), [QueueClaim(DEFAULT, 1), QueueClaim(mail, 1)], 2)
    answer = store.settle_and_claim(WORKER, known=[])

    assert [job.id for job in answer.recovered] == [first]
    assert problems(engine) == ()
    store.close()


def test_a_statement_that_takes_too_long_is_given_up(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._TIMEOUTS, "statement_timeout", "200ms")
    store = engine.store()
    store.save_queue(DEFAULT, {"max_length": 10})
    with raw() as connection:
        connection.execute("begin")
        connection.execute(f"select * from {engine.address.schema}.queues for update")

        with pytest.raises(StoreUnavailable, match="took too long"):
            store.insert([new_job()])
        connection.execute("rollback")

    assert store.insert([new_job()])[0].is_new
    store.close()


def test_a_session_that_was_closed_for_doing_nothing_in_a_transaction_is_made_again(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped in the middle of one for too long finds its session gone."""
    monkeypatch.setitem(module._TIMEOUTS, "idle_in_transaction_session_timeout", "100ms")
    connection = module.Connection(engine.address)

    # Where it defines tables: the rest is sent as pipelines, which are never idle to a server.
    with pytest.raises(StoreUnavailable):
        connection.write(wait_for_the_end_of_the_session, defines=True)
    assert connection.write(lambda own: own.execute(b"select 1").fetchone()) == (1,)
    connection.close()


@pytest.mark.parametrize("pooled", [False, True])
def test_a_transaction_has_an_end_where_a_server_can_limit_it(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """So that a process that is stopped in the middle of one does not hold its locks as long as it likes."""
    monkeypatch.setitem(module._TRANSACTION_TIMEOUT, "transaction_timeout", "100ms")
    connection = module.Connection(msgspec.structs.replace(engine.address, pooled=pooled))
    waiting = wait_for_the_end_of_the_session
    if connection.open().info.server_version < 170_000:
        waiting = raise_transaction_timeout

    with pytest.raises(StoreUnavailable):
        connection.write(waiting)
    assert connection.write(lambda own: own.execute(b"select 1").fetchone()) == (1,)
    connection.close()


def wait_for_the_end_of_the_session(own: module.Raw) -> None:
    own.execute(b"select 1").fetchone()
    with raw() as other:
        there = "select 1 from pg_stat_activity where pid = %s"
        while other.execute(there, [own.info.backend_pid]).fetchone():
            pass
    own.execute(b"select 1").fetchone()


def raise_transaction_timeout(own: module.Raw) -> None:
    raise psycopg.errors.TransactionTimeout("terminating connection due to transaction timeout")


def test_a_migration_has_no_end_to_its_patience(engine: PostgresEngine) -> None:
    connection = module.Connection(engine.address)
    raw_connection = connection.open()
    with raw_connection.transaction():
        raw_connection.execute(statements_for(engine.address.schema)["schema_timeouts"])
        limits: dict[str, str] = dict(raw_connection.execute(LIMITS).fetchall())
    connection.close()

    assert limits.pop("transaction_timeout", "0") == "0"
    assert limits == {"lock_timeout": "60000", "statement_timeout": "0"}


LIMITS = """
select name, setting from pg_settings
where name in ('lock_timeout', 'statement_timeout', 'transaction_timeout')
"""


@pytest.fixture(scope="module")
def small_server() -> Iterator[Postgres]:
    """A server with room for six connections."""
    started = Postgres(shared_buffers="16MB", max_connections="6", superuser_reserved_connections="0")
    yield started
    started.close()


def test_a_server_without_a_connection_left_says_so_and_has_one_again(small_server: Postgres) -> None:
    engine = PostgresEngine(PostgresAddress(dsn=small_server.url()))
    engine.store().close()
    with ExitStack() as taken:
        with suppress(psycopg.OperationalError):
            while True:
                taken.enter_context(raw(small_server.url()))

        with pytest.raises(StoreUnavailable, match="no connection left"):
            engine.store()

    store = engine.store()
    assert store.insert([new_job()])[0].is_new
    store.close()


# ------------------------------------------------------------------ settings of the user


def test_options_in_the_address_count_next_to_ours(engine: PostgresEngine) -> None:
    url = f"{server().url()}?schema={engine.address.schema}&options=-c%20synchronous_commit%3Dlocal"
    opened = open_engine(url)
    assert isinstance(opened, PostgresEngine)

    settings = module.Connection(opened.address).open()
    names = ("synchronous_commit", "idle_in_transaction_session_timeout")
    values = [settings.execute(f"show {name}").fetchone() for name in names]
    settings.close()

    assert values == [("local",), ("1min",)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_database_with_a_stricter_isolation_is_used_all_the_same(
    engine: PostgresEngine, level: str
) -> None:
    dsn = f"{server().url()}?options=-c%20default_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    strict = PostgresEngine(msgspec.structs.replace(engine.address, dsn=dsn))
    store = strict.store()

    def insert_and_claim(own: Store) -> int:
        for _ in range(10):
            own.insert([new_job(unique_key="same"), new_job()])
            own.settle_and_claim(WORKER, [complete(job) for job in claim(own, 2)])
        return 10

    assert together(strict, [insert_and_claim] * 4) == [10] * 4
    assert problems(engine) == ()
    store.close()
