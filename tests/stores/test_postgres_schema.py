"""Making and checking the tables."""

from __future__ import annotations

import pytest

from forebay.domain.history import Event, EventKind
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.domain.workflow import needs_of
from forebay.errors import SchemaNewer, SchemaOutdated, StoreUnavailable, StoreUnusable
from forebay.stores.migrations import Migration, load_migrations
from forebay.stores.postgres import connection, schema
from forebay.stores.postgres import engine as opening
from forebay.stores.postgres.connection import Address, Connection
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema import check_version, statements_for
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.clock import ManualClock
from tests.stores.postgres_support import make_engine, new_schema, problems, raw, server
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job

NEWEST = len(load_migrations(schema.PACKAGE))


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


def ids(store: PostgresStore, *jobs: NewJob) -> list[JobId]:
    return [JobId(receipt.id or "") for receipt in store.insert(jobs)]


@pytest.mark.shows("R-STORE-06")
@pytest.mark.parametrize("_", range(8))
def test_programs_that_start_at_once_make_the_tables_once(_: int) -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=new_schema()))

    answers = [in_thread(engine.store) for _ in range(6)]

    stores = [answer() for answer in answers]
    assert {store.migrate() for store in stores} == {NEWEST}
    for store in stores:
        store.close()
    with raw() as connection:
        rows = connection.execute(f"select number from {engine.address.schema}.schema").fetchall()
    assert sorted(rows) == [(number,) for number in range(1, NEWEST + 1)]


def test_looking_for_the_schema_creates_nothing() -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=new_schema()))

    with pytest.raises(StoreUnusable, match="has no Forebay tables"):
        engine.check_schema()

    with raw() as connection:
        found = connection.execute(
            "select 1 from pg_namespace where nspname = %s", [engine.address.schema]
        ).fetchall()
    assert found == []
    engine.store().close()
    engine.check_schema()


def test_a_schema_that_has_outgrown_this_program_is_refused(engine: PostgresEngine) -> None:
    with raw() as connection:
        connection.execute(
            f"insert into {engine.address.schema}.schema values ({NEWEST + 1}, 'later', {NEWEST + 1}, 0)"
        )

    with pytest.raises(SchemaNewer, match="upgrade Forebay"):
        engine.store()
    with pytest.raises(SchemaNewer, match="upgrade Forebay"):
        engine.check_schema()


def outgrow(engine: PostgresEngine, oldest: int = NEWEST + 1) -> None:
    """Write down that a newer program has been here."""
    with raw() as connection:
        connection.execute(
            f"insert into {engine.address.schema}.schema values ({NEWEST + 1}, 'later', {oldest}, 0)"
        )


@pytest.mark.shows("R-EXT-15")
def test_a_handle_that_connects_again_is_refused_once_the_schema_has_outgrown_its_program(
    engine: PostgresEngine,
) -> None:
    store, reader = engine.store(), engine.reader()
    store.insert([new_job()])
    outgrow(engine)
    store._connection.drop()
    reader._connection.drop()

    for _ in range(2):  # not only at the first call after it
        for call in (lambda: store.insert([new_job()]), reader.counts, lambda: store.take_duty("sweep", 0)):
            with pytest.raises(SchemaNewer, match="upgrade Forebay"):
                call()
    store.close()
    reader.close()


def test_an_open_handle_looks_at_the_schema_by_and_by(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engine.store()
    store.insert([new_job()])
    outgrow(engine)
    monkeypatch.setattr(connection, "SCHEMA_SECONDS", 0.0)

    with pytest.raises(SchemaNewer, match="upgrade Forebay"):
        store.insert([new_job()])
    store.close()


def test_a_caller_of_a_program_that_is_too_old_is_refused_in_a_transaction_of_its_own(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(engine.address.dsn) as caller:
        with caller.transaction():
            engine.insert_within(caller, [new_job()])
        outgrow(engine)
        monkeypatch.setattr(opening, "SCHEMA_SECONDS", 0.0)

        with pytest.raises(SchemaNewer, match="upgrade Forebay"), caller.transaction():
            engine.insert_within(caller, [new_job()])


@pytest.mark.shows("R-EXT-15")
def test_a_step_that_old_programs_cannot_work_with_ends_their_sessions(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = engine.store()
    old.insert([new_job()])
    later = Migration(NEWEST + 1, "later", NEWEST + 1, "create table forebay.later ();")
    monkeypatch.setattr(schema, "load_migrations", lambda package: (*load_migrations(package), later))
    newer = Connection(engine.address)
    assert schema.migrate(newer, schema.statements_for(engine.address.schema)) == NEWEST + 1
    newer.close()

    with pytest.raises((SchemaNewer, StoreUnavailable)):  # its session has ended, perhaps unseen until now
        old.insert([new_job()])
    with pytest.raises(SchemaNewer, match="upgrade Forebay"):
        old.insert([new_job()])
    old.close()


def test_a_newer_schema_that_bears_this_program_is_used(engine: PostgresEngine) -> None:
    with raw() as connection:
        connection.execute(f"insert into {engine.address.schema}.schema values ({NEWEST + 1}, 'later', 1, 0)")

    store = engine.store()

    assert store.insert([new_job()])[0].is_new
    assert store.migrate() == NEWEST + 1
    store.close()


def test_an_older_schema_waits_for_the_migration(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Migration(NEWEST + 1, "later", 1, "create table forebay.later ();")
    store = engine.store()
    monkeypatch.setattr(schema, "load_migrations", lambda package: (*load_migrations(package), later))

    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.store()
    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.check_schema()
    assert store.migrate() == NEWEST + 1

    engine.check_schema()
    engine.store().close()
    store.close()


def test_what_came_later_is_added_to_a_store_of_the_first_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=new_schema()))
    with monkeypatch.context() as before:
        first = load_migrations(schema.PACKAGE)[:1]
        before.setattr(schema, "load_migrations", lambda package: first)
        store = engine.store()

    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.store()
    assert store.migrate() == NEWEST

    store.insert([new_job(), new_job(depends_on=needs_of([1]))])
    assert store.due_schedules().schedules == ()
    assert len(claim(store, 2)) == 1
    store.close()


def test_edges_of_a_callers_transaction_that_nobody_has_looked_at_are_unsure_after_a_migration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=(name := new_schema())))
    with monkeypatch.context() as before:
        older = load_migrations(schema.PACKAGE)[:9]
        before.setattr(schema, "load_migrations", lambda package: older)
        store = engine.store()
    with raw() as connection:
        connection.execute(
            f"insert into {name}.edges (child, number, parent, on_failure, state) values"
            " ('a', 0, 'p', 'hold', 'open'), ('a', 1, 'q', 'hold', 'met'), ('b', 0, 'p', 'hold', 'open')"
        )
        connection.execute(f"insert into {name}.aftermaths (parent, aftermath) values ('a', 'check')")

        store.migrate()

        rows = connection.execute(f"select child, number, state from {name}.edges order by child, number")
        assert rows.fetchall() == [("a", 0, "unsure"), ("a", 1, "met"), ("b", 0, "open")]
    store.close()


def test_actions_of_an_older_schema_are_in_the_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=(name := new_schema())))
    with monkeypatch.context() as before:
        older = load_migrations(schema.PACKAGE)[:12]
        before.setattr(schema, "load_migrations", lambda package: older)
        store = engine.store()
    with raw() as connection:
        connection.execute(
            f"insert into {name}.events (kind, at, job_id, actor, detail) values"
            " ('cancel', 1, 'j', 'ann', 'why'), ('swept', 1, 'j', 'w1', ''),"
            " ('deleted', 2, 'k', 'bob', 'dead'),"
            " ('queue', 3, null, 'ann', 'paused'), ('note', 4, null, 'w1', 'hello')"
        )

        store.migrate()

        rows = connection.execute(f"select number from {name}.events order by number").fetchall()
    assert rows == [(1,), (2,), (5,)]
    reader = engine.reader()
    assert [number for number, _ in reader.audit()] == [5, 4, 3, 2, 1]
    assert (reader.unchained(), store.chain_audit()) == (3, 3)
    chained = [(line.number, line.event.who) for line in reader.audit_chain()]
    assert chained == [(1, "ann"), (3, "bob"), (4, "ann")]
    store.record([Event(kind=EventKind.KEY, detail="next"), Event(kind=EventKind.NOTE, detail="last")])
    assert [number for number, _ in reader.audit(limit=2)] == [7, 6]
    store.close()
    reader.close()


def test_jobs_that_wait_for_others_go_on_after_a_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PostgresEngine(Address(dsn=server().url(), schema=(name := new_schema())))
    mail = QueueName("mail")
    with monkeypatch.context() as before:
        older = load_migrations(schema.PACKAGE)[:9]
        before.setattr(schema, "load_migrations", lambda package: older)
        before.setattr(PostgresStore, "_follow", lambda _: False)
        store = engine.store()
        first, _, join = ids(store, new_job(), new_job(queue=mail), new_job(depends_on=needs_of([1, 2])))
        _, listed = ids(store, new_job(), new_job(depends_on=needs_of([1])))
        _, unseen = ids(store, new_job(queue=mail), new_job(depends_on=needs_of([1])))
        store.exchange(WORKER, [complete(job) for job in claim(store, 2)])
    with raw() as connection:
        # As programs from before have left them: one edge of the join is met and written.
        connection.execute(f"update {name}.edges set state = 'met' where parent = %s", [first])
        connection.execute(f"update {name}.blocked set unmet = 1 where id = %s", [join])
        connection.execute(f"delete from {name}.aftermaths where parent = %s", [first])
        connection.execute(
            f"insert into {name}.aftermaths (parent, aftermath) values (%s, 'check')", [unseen]
        )
    store.migrate()

    store.promote()

    released = claim(store, 3)
    parents = claim(store, 3, queue=mail)
    store.exchange(WORKER, [complete(job) for job in (*released, *parents)])
    last = claim(store, 3)
    store.exchange(WORKER, [complete(job) for job in last])
    assert [job.id for job in released] == [listed]
    assert {job.id for job in last} == {join, unseen}
    assert problems(engine) == ()
    store.close()


def test_a_migration_that_stands_in_the_way_of_others_is_tried_again(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlock = "raise exception using errcode = '40P01'"
    script = f"do $$ begin if nextval('forebay.tries') < 3 then {deadlock}; end if; end $$"
    store = engine.store()
    with raw() as connection:
        connection.execute(f"create sequence {engine.address.schema}.tries")  # which no rollback sets back
    later = Migration(NEWEST + 1, "later", 1, script)
    monkeypatch.setattr(schema, "load_migrations", lambda package: (*load_migrations(package), later))

    assert store.migrate() == NEWEST + 1

    engine.check_schema()
    store.close()


def test_a_server_that_is_too_old_is_refused() -> None:
    check_version(150_000, "here")

    with pytest.raises(StoreUnusable, match="here is PostgreSQL 14; Forebay needs 15 or newer"):
        check_version(140_012, "here")


def test_stores_in_two_schemas_of_one_database_know_nothing_of_each_other(
    engine: PostgresEngine, clock: ManualClock
) -> None:
    other = make_engine(clock)
    store, reader = engine.store(), other.reader()

    store.insert([new_job()])

    assert reader.queues() == []
    store.close()
    reader.close()


def test_statements_name_the_schema_of_their_store_alone(engine: PostgresEngine) -> None:
    everything = b"\n".join(statements_for("jobs_of_mine").values())

    assert b" forebay." not in everything
    assert b'"jobs_of_mine".ready' in everything


def test_tables_through_which_jobs_flow_are_vacuumed_by_the_number_of_their_dead_rows(
    engine: PostgresEngine,
) -> None:
    with raw() as connection:
        rows = connection.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace"
            " and 'autovacuum_vacuum_scale_factor=0' = any(reloptions)",
            [engine.address.schema],
        ).fetchall()

    flow = {"jobs", "ready", "gated", "due", "leases", "keys", "count_deltas"}
    flow |= {"blocked", "edges", "aftermaths", "sequences"}
    flow |= {"limits", "buckets", "places", "closed", "freed", "shares", "lanes"}
    assert {name for (name,) in rows} == flow
