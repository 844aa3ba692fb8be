"""The schema of a database file: made once, brought up to date, and a good guest in the user's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.job import DEFAULT_QUEUE
from forebay.domain.queue_counts import Counts
from forebay.errors import SchemaNewer, SchemaOutdated, StoreError
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.shared.migration_loader import Migration, load_migrations
from forebay.stores.sqlite import schema_setup_and_check
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.schema_setup_and_check import PACKAGE, split_statements
from forebay.stores.sqlite.store import SqliteStore
from tests.stores.sqlite_support import problems, program, raw
from tests.stores.support import WORKER, claim, complete, new_job

NEWEST: Final = len(load_migrations(PACKAGE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteEngine(str(path)).store()
    yield store
    store.close()


def tables(path: Path) -> set[str]:
    with raw(path) as connection:
        rows = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
    return {name for (name,) in rows}


def applied(path: Path) -> list[tuple[int, str]]:
    with raw(path) as connection:
        return connection.execute("select number, name from forebay_schema order by number").fetchall()


# Made once

OPEN: Final = """
say("ready")
while name := hear():
    store = SqliteEngine(name).store()
    store.insert([job()])
    store.close()
    say("done")
"""


@pytest.mark.shows("R-STORE-06", "R-STORE-23")
def test_several_programs_that_open_a_new_file_at_once_make_one_schema(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(25)]

    with ExitStack() as stack:
        programs = [stack.enter_context(program(OPEN, "")) for _ in range(4)]
        assert [one.hear() for one in programs] == ["ready"] * 4
        for path in paths:
            for one in programs:
                one.write_line(str(path))
            assert [one.hear() for one in programs] == ["done"] * 4

    for path in paths:
        assert applied(path) == [(one.number, one.name) for one in load_migrations(PACKAGE)]
        reader = SqliteEngine(str(path)).reader()
        assert reader.counts() == {"default": Counts(pending=4)}
        assert reader.health().schema == NEWEST
        reader.close()


OPEN_AND_CLOSE: Final = """
for _ in range(40):
    SqliteEngine(path).store().close()
    SqliteEngine(path).reader().close()
say("done")
"""


@pytest.mark.shows("R-STORE-06")
def test_programs_that_open_and_close_all_the_time_do_not_get_in_each_others_way(path: Path) -> None:
    with ExitStack() as stack:
        programs = [stack.enter_context(program(OPEN_AND_CLOSE, path)) for _ in range(3)]
        assert [one.hear() for one in programs] == ["done"] * 3

    assert problems(SqliteEngine(str(path))) == ()


@pytest.mark.shows("R-STORE-06")
def test_migrating_again_changes_nothing(store: SqliteStore, path: Path) -> None:
    before = applied(path)

    assert store.migrate() == NEWEST
    assert store.migrate() == NEWEST
    assert applied(path) == before


# Newer ones


def pretend(path: Path, number: int, oldest: int) -> None:
    """Write down that a newer program has been here."""
    with raw(path) as connection:
        connection.execute("insert into forebay_schema values (?, 'later', ?, 0)", (number, oldest))


def test_a_schema_that_is_too_new_is_refused_and_left_alone(store: SqliteStore, path: Path) -> None:
    store.insert([new_job()])
    pretend(path, NEWEST + 1, NEWEST + 1)

    for open_handle in (SqliteEngine(str(path)).store, SqliteEngine(str(path)).reader):
        with pytest.raises(SchemaNewer, match="upgrade Forebay") as refused:
            open_handle()
        assert str(path) in str(refused.value)
    with raw(path) as connection:
        (jobs,) = connection.execute("select count(*) from forebay_jobs").fetchone()

    assert jobs == 1
    assert applied(path)[-1] == (NEWEST + 1, "later")


@pytest.mark.shows("R-EXT-15")
def test_an_open_handle_is_refused_once_the_schema_has_outgrown_its_program(
    store: SqliteStore, path: Path
) -> None:
    [receipt] = store.insert([new_job()])
    assert receipt.id is not None
    reader = SqliteEngine(str(path)).reader()
    reader.jobs([receipt.id])
    pretend(path, NEWEST + 1, NEWEST + 1)

    for _ in range(2):  # not only at the first call after it
        with pytest.raises(SchemaNewer, match="upgrade Forebay"):
            store.insert([new_job()])
        with pytest.raises(SchemaNewer, match="upgrade Forebay"):
            store.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1)
        with pytest.raises(SchemaNewer, match="upgrade Forebay"):
            reader.jobs([receipt.id])
    reader.close()
    with raw(path) as connection:
        (jobs,) = connection.execute("select count(*) from forebay_jobs").fetchone()

    assert jobs == 1


@pytest.mark.shows("R-EXT-15")
def test_an_open_handle_works_on_with_a_newer_schema_that_bears_it(store: SqliteStore, path: Path) -> None:
    store.insert([new_job()])
    pretend(path, NEWEST + 3, NEWEST)

    assert store.insert([new_job()])[0].is_new


@pytest.mark.shows("R-EXT-15")
def test_a_newer_schema_that_bears_us_works(store: SqliteStore, path: Path) -> None:
    pretend(path, NEWEST + 3, NEWEST)

    other = SqliteEngine(str(path)).store()
    other.insert([new_job()])
    answer = other.settle_and_claim(WORKER, [complete(job) for job in claim(other)])

    assert other.migrate() == NEWEST + 3
    assert len(answer.settled) == 1
    assert applied(path)[-1] == (NEWEST + 3, "later")
    other.close()


# Steps forward


def with_steps(monkeypatch: pytest.MonkeyPatch, *scripts: str, oldest: int = 1) -> None:
    """Let the program know these steps too, of which the last works only for programs that know `oldest`."""
    known = [*load_migrations(PACKAGE)]
    for script in scripts:
        known.append(Migration(len(known) + 1, f"step{len(known) + 1}", 1, script))
    known[-1] = known[-1]._replace(min_program=oldest)
    monkeypatch.setattr(schema_setup_and_check, "load_migrations", lambda package: tuple(known))


# A column with what is known of the jobs that are there, and an index of it.
MORE: Final = (
    "alter table forebay_jobs add column size integer not null default 0;\n"
    "update forebay_jobs set size = length(payload);\n",
    "create index forebay_jobs_size on forebay_jobs (size);\n",
)


@pytest.mark.shows("R-STORE-06")
def test_a_file_of_the_first_schema_goes_on_where_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SqliteEngine(str(path)).store()
    old.insert([new_job(payload=b"{}"), new_job(), new_job(id="waits", delay_ms=3_600_000)])
    done, running = claim(old, 2)
    old.settle_and_claim(WORKER, [complete(done)])
    old.close()
    with_steps(monkeypatch, *MORE)

    engine = SqliteEngine(str(path))
    store, reader = engine.store(), engine.reader()
    answer = store.settle_and_claim(WORKER, [complete(running)])

    assert answer.settled == (running.id,)
    assert reader.counts() == {"default": Counts(completed=2, scheduled=1)}
    assert reader.health().problems == ()
    assert reader.health().schema == NEWEST + 2
    assert applied(path)[NEWEST:] == [(NEWEST + 1, f"step{NEWEST + 1}"), (NEWEST + 2, f"step{NEWEST + 2}")]
    with raw(path) as connection:
        rows = connection.execute("select size = length(payload) from forebay_jobs").fetchall()
    assert rows == [(1,)]
    store.close()
    reader.close()


@pytest.mark.shows("R-EXT-15")
def test_a_program_of_the_first_schema_works_on_next_to_a_newer_one(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        with_steps(newer, *MORE)
        new = SqliteEngine(str(path)).store()
    late = SqliteEngine(str(path)).store()

    for one in (store, late, new):
        one.insert([new_job()])
        answer = one.settle_and_claim(WORKER, [complete(job) for job in claim(one)])
        assert len(answer.settled) == 1
    new.close()
    late.close()
    assert problems(SqliteEngine(str(path))) == ()


def test_a_program_is_refused_where_a_step_needs_newer_ones(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        with_steps(newer, *MORE, oldest=NEWEST + 2)
        SqliteEngine(str(path)).store().close()

    with pytest.raises(SchemaNewer, match=f"this one knows up to {NEWEST}"):
        SqliteEngine(str(path)).store()
    with pytest.raises(SchemaNewer, match=f"this one knows up to {NEWEST}"):
        store.insert([new_job()])


# As the last commit before the baseline left it.
UNRELEASED: Final = """
create table forebay_schema (
  number integer primary key,
  name text not null,
  oldest integer not null,
  applied_at integer not null
) strict;
insert into forebay_schema values (1, 'jobs', 1, 5), (11, 'lanes', 11, 5), (12, 'audit', 12, 5);
create table forebay_jobs (seq integer primary key, id text not null) strict;
"""


def test_a_file_from_before_the_baseline_is_refused_and_left_alone(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.executescript(UNRELEASED)
        before = list(connection.iterdump())
    engine = SqliteEngine(str(path))

    with raw(path) as caller:
        caller.execute("begin")
        for call in (
            engine.store,
            engine.reader,
            engine.check_schema,
            lambda: engine.insert_tx(caller, [new_job()]),
        ):
            with pytest.raises(SchemaOutdated, match="forebay move --from") as refused:
                call()
            assert str(path) in str(refused.value)
        assert list(caller.iterdump()) == before


# Migrations that fail


def with_another(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the program know one migration more."""
    known = (*load_migrations(PACKAGE), Migration(NEWEST + 1, "another", 1, script))
    monkeypatch.setattr(schema_setup_and_check, "load_migrations", lambda package: known)


def test_a_new_migration_is_applied_to_a_file_that_is_in_use(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert([new_job()])
    with_another(
        monkeypatch, "-- oldest: 1\ncreate table forebay_more (x);\ninsert into forebay_more values (1);"
    )

    SqliteEngine(str(path)).store().close()

    assert "forebay_more" in tables(path)
    assert applied(path)[-1] == (NEWEST + 1, "another")
    assert store.insert([new_job()])[0].is_new
    assert problems(SqliteEngine(str(path))) == ()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_migration_that_fails_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        SqliteEngine(str(path)).store().close()
    with_another(monkeypatch, "-- oldest: 1\ncreate table forebay_more (x);\ninsert into nowhere values (1);")

    with pytest.raises(StoreError, match="no such table: nowhere") as refused:
        SqliteEngine(str(path)).store()
    found = tables(path)
    monkeypatch.undo()
    SqliteEngine(str(path)).store().close()

    assert str(path) in str(refused.value)
    assert "forebay_more" not in found
    assert ("forebay_jobs" in found) is not is_new
    assert applied(path)[-1][0] == NEWEST


SCRIPT: Final = """-- a; b
create table a (x);
insert into a
values (';');
create trigger t after insert on a begin
  select 1;
  select 2;
end;
-- the end
"""


def test_a_script_is_split_at_the_ends_of_its_statements() -> None:
    statements = list(split_statements(SCRIPT))

    assert [statement.splitlines()[-1] for statement in statements] == [
        "create table a (x);",
        "values (';');",
        "end;",
    ]


def test_a_script_that_ends_in_the_middle_of_a_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="ends in the middle of a statement: 'create table b"):
        list(split_statements("create table a (x);\ncreate table b (x)\n"))


# A guest in the user's own file


def test_the_tables_live_next_to_those_of_the_user(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("pragma user_version = 42")
        connection.execute("pragma application_id = 4711")
        connection.execute("create table jobs (id integer primary key, name text)")
        connection.execute("create table queues (name text)")
        connection.execute("insert into jobs values (1, 'mine')")

    store = SqliteEngine(str(path)).store()
    store.insert([new_job()])
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    store.prune()
    store.close()

    with raw(path) as connection:
        assert connection.execute("pragma user_version").fetchone() == (42,)
        assert connection.execute("pragma application_id").fetchone() == (4711,)
        assert connection.execute("select * from jobs").fetchall() == [(1, "mine")]
        names = connection.execute("select name from sqlite_master where name not like 'sqlite_%'").fetchall()
    assert {name for (name,) in names if not name.startswith("forebay_")} == {"jobs", "queues"}


def test_the_user_may_look_at_jobs_in_a_transaction_of_their_own(store: SqliteStore, path: Path) -> None:
    store.insert([new_job()] * 2)

    with raw(path) as connection:
        connection.execute("create table orders (job text)")
        connection.execute("begin immediate")
        connection.execute("insert into orders select id from forebay_jobs")
        connection.execute("commit")
        (orders,) = connection.execute("select count(*) from orders").fetchone()

    assert orders == 2
    assert len(claim(store, 5)) == 2


def test_a_database_in_another_journal_mode_is_switched(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("pragma journal_mode = delete")
        connection.execute("create table mine (x)")

    SqliteEngine(str(path)).store().close()

    with sqlite3.connect(path) as connection:
        mode = connection.execute("pragma journal_mode").fetchone()
    connection.close()
    assert mode == ("wal",)
