"""Making and checking the tables."""

from __future__ import annotations

import pytest

from forebay.errors import SchemaNewer, SchemaOutdated, StoreUnavailable, StoreUnusable
from forebay.stores.postgres import connection, schema_setup_and_check
from forebay.stores.postgres import engine as opening
from forebay.stores.postgres.connection import Connection
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.schema_setup_and_check import check_version, statements_for
from forebay.stores.postgres.server_address import PostgresAddress
from forebay.stores.shared.migration_loader import Migration, load_migrations
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, new_schema, problems, raw, server
from tests.stores.sqlite_support import in_thread
from tests.stores.support import WORKER, claim, complete, new_job

NEWEST = len(load_migrations(schema_setup_and_check.PACKAGE))


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.mark.shows("R-STORE-06")
@pytest.mark.parametrize("_", range(8))
def test_programs_that_start_at_once_make_the_tables_once(_: int) -> None:
    engine = PostgresEngine(PostgresAddress(dsn=server().url(), schema=new_schema()))

    answers = [in_thread(engine.store) for _ in range(6)]

    stores = [answer() for answer in answers]
    assert {store.migrate() for store in stores} == {NEWEST}
    for store in stores:
        store.close()
    with raw() as connection:
        rows = connection.execute(f"select number from {engine.address.schema}.schema").fetchall()
    assert sorted(rows) == [(number,) for number in range(1, NEWEST + 1)]


def test_looking_for_the_schema_creates_nothing() -> None:
    engine = PostgresEngine(PostgresAddress(dsn=server().url(), schema=new_schema()))

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
        for call in (
            lambda: store.insert([new_job()]),
            reader.counts,
            lambda: store.acquire_maintenance("sweep", 0),
        ):
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
            engine.insert_tx(caller, [new_job()])
        outgrow(engine)
        monkeypatch.setattr(opening, "SCHEMA_SECONDS", 0.0)

        with pytest.raises(SchemaNewer, match="upgrade Forebay"), caller.transaction():
            engine.insert_tx(caller, [new_job()])


@pytest.mark.shows("R-EXT-15")
def test_a_step_that_old_programs_cannot_work_with_ends_their_sessions(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = engine.store()
    old.insert([new_job()])
    later = Migration(NEWEST + 1, "later", NEWEST + 1, "create table forebay.later ();")
    monkeypatch.setattr(
        schema_setup_and_check, "load_migrations", lambda package: (*load_migrations(package), later)
    )
    newer = Connection(engine.address)
    assert (
        schema_setup_and_check.migrate(newer, schema_setup_and_check.statements_for(engine.address.schema))
        == NEWEST + 1
    )
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
    monkeypatch.setattr(
        schema_setup_and_check, "load_migrations", lambda package: (*load_migrations(package), later)
    )

    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.store()
    with pytest.raises(SchemaOutdated, match="forebay migrate"):
        engine.check_schema()
    assert engine.migrate() == NEWEST + 1

    engine.check_schema()
    engine.store().close()


def test_steps_are_added_to_a_store_that_has_jobs(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engine.store()
    store.insert([new_job(), new_job()])
    [done] = claim(store)
    table = Migration(NEWEST + 1, "sizes", 1, "create table forebay.sizes (id text, size bigint);")
    copied = "insert into forebay.sizes select id, length(payload) from forebay.jobs;"
    steps = (
        *load_migrations(schema_setup_and_check.PACKAGE),
        table,
        Migration(NEWEST + 2, "copied", 1, copied),
    )
    monkeypatch.setattr(schema_setup_and_check, "load_migrations", lambda package: steps)

    assert store.migrate() == NEWEST + 2

    assert store.settle_and_claim(WORKER, [complete(done)]).settled == (done.id,)
    assert len(claim(store, 2)) == 1
    with raw() as connection:
        name = engine.address.schema
        rows = connection.execute(f"select count(*) from {name}.sizes where size > 0").fetchall()
        known = connection.execute(f"select number, name from {name}.schema order by number").fetchall()
    assert rows == [(2,)]
    assert known[NEWEST:] == [(NEWEST + 1, "sizes"), (NEWEST + 2, "copied")]
    assert problems(engine) == ()
    store.close()


# As the last commit before the baseline left it.
UNRELEASED = """
create schema {schema};
create table {schema}.schema (
  number integer primary key,
  name text not null,
  oldest integer not null,
  applied_at bigint not null
);
insert into {schema}.schema values (1, 'jobs', 1, 5), (12, 'lanes', 12, 5), (13, 'audit', 13, 5);
"""


def test_a_store_from_before_the_baseline_is_refused_and_left_alone() -> None:
    engine = PostgresEngine(PostgresAddress(dsn=server().url(), schema=(name := new_schema())))
    with raw() as connection:
        connection.execute(UNRELEASED.format(schema=name))

        with raw(engine.address.dsn) as caller:
            for call in (
                engine.store,
                engine.reader,
                engine.check_schema,
                lambda: engine.insert_tx(caller, [new_job()]),
            ):
                with (
                    pytest.raises(SchemaOutdated, match="forebay move --from") as refused,
                    caller.transaction(),
                ):
                    call()
                assert engine.location in str(refused.value)
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = %s", [name]
        ).fetchall()
    assert tables == [("schema",)]


def test_an_open_handle_is_refused_where_an_unreleased_commit_has_made_the_store_anew() -> None:
    engine = PostgresEngine(PostgresAddress(dsn=server().url(), schema=new_schema()))
    store = engine.store()
    store.insert([new_job()])
    with raw() as connection:
        connection.execute(f"update {engine.address.schema}.schema set name = 'jobs' where number = 1")
    store._connection.drop()

    with pytest.raises(SchemaOutdated, match="forebay move --from"):
        store.insert([new_job()])
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
    monkeypatch.setattr(
        schema_setup_and_check, "load_migrations", lambda package: (*load_migrations(package), later)
    )

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

    flow = {"jobs", "ready", "side_lanes", "delayed", "leases", "job_keys", "queue_count_deltas"}
    flow |= {"blocked", "dependencies", "dependency_outbox", "sequences"}
    flow |= {
        "limits",
        "rate_buckets",
        "limit_slots",
        "limit_lanes",
        "limit_releases",
        "fairness_keys",
        "limit_fairness_lanes",
    }
    assert {name for (name,) in rows} == flow
