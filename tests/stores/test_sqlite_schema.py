"""The schema of a database file: made once, brought up to date, and a good guest in the user's own file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.history import Event, EventKind
from forebay.domain.job import DEFAULT_QUEUE, JobId, Need, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note, Step
from forebay.domain.query import Counts
from forebay.domain.worker import CommandKind, WorkerInfo
from forebay.errors import SchemaNewer, StoreError
from forebay.stores.migrations import Migration, load_migrations
from forebay.stores.protocol import Want
from forebay.stores.sqlite import schema
from forebay.stores.sqlite.schema import PACKAGE, split_statements
from forebay.stores.sqlite.store import SqliteEngine, SqliteStore
from forebay.stores.sqlite.transaction import Transaction
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
                one.say(str(path))
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
            store.exchange(WORKER, wants=[Want(DEFAULT_QUEUE, 1)], room=1)
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
    answer = other.exchange(WORKER, [complete(job) for job in claim(other)])

    assert other.migrate() == NEWEST + 3
    assert len(answer.settled) == 1
    assert applied(path)[-1] == (NEWEST + 3, "later")
    other.close()


# From the first schema on


WORKFLOWS: Final = 5  # the schema with which jobs may depend on others


def as_before(monkeypatch: pytest.MonkeyPatch, known: int = 1) -> None:
    """Let the program know the first migrations only, and nothing of workflows. It is ours still, which names
    a column that came later whenever it inserts; `forget_column` takes that away."""
    first, *others = load_migrations(PACKAGE)[:known]
    script = first.script.replace("errors text,", "errors text,\n  unmet integer not null default 0,")
    monkeypatch.setattr(schema, "load_migrations", lambda package: (first._replace(script=script), *others))
    monkeypatch.setattr(Transaction, "has_edges", lambda self: False)
    monkeypatch.setattr(Transaction, "may_have_aftermaths", lambda self: False)
    monkeypatch.setattr(Transaction, "has_limits", False)  # of which it knows nothing
    monkeypatch.setattr(Transaction, "has_shares", False)


def forget_column(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("alter table forebay_jobs drop column unmet")


OLD_BEAT: Final = """
insert into forebay_workers (id, host, pid, queues, state, started_at, beat_at)
values ('old', 'h', 1, '["default"]', 'running', 5, 6)
"""


@pytest.mark.shows("R-STORE-06")
def test_a_file_of_the_first_schema_goes_on_where_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        as_before(before)
        old = SqliteEngine(str(path)).store()
        old.insert([new_job(), new_job(), new_job(id="waits", delay_ms=3_600_000)])
        done, running = claim(old, 2)
        old.exchange(WORKER, [complete(done)])
        with raw(path) as connection:
            connection.execute(OLD_BEAT)
        assert applied(path) == [(1, "jobs")]
        old.close()
    forget_column(path)

    engine = SqliteEngine(str(path))
    store, reader = engine.store(), engine.reader()
    note = Note(lease=Lease(running.id, running.attempt), steps=(Step(name="fetch", result=b"1"),))
    answer = store.exchange(WORKER, [complete(running)], notes=[note])

    assert answer.settled == (running.id,)
    assert [step.name for step in reader.notes(running.id).steps] == ["fetch"]
    assert reader.counts() == {"default": Counts(completed=2, scheduled=1)}
    assert reader.workers() == [
        WorkerInfo(id=WorkerId("old"), host="h", pid=1, queues=(DEFAULT_QUEUE,), started_at=5, beat_at=6)
    ]
    assert [command.worker for command in store.send(CommandKind.STOP)] == ["old"]
    assert reader.health().problems == ()
    assert applied(path)[-1][0] == NEWEST
    store.close()
    reader.close()


@pytest.mark.shows("R-EXT-15")
def test_a_program_of_the_first_schema_works_on_beside_a_newer_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        as_before(before)
        old = SqliteEngine(str(path)).store()
    with monkeypatch.context() as before:
        as_before(before, WORKFLOWS - 1)
        new = SqliteEngine(str(path)).store()
    with monkeypatch.context() as before:
        as_before(before)
        late = SqliteEngine(str(path)).store()

        for store in (old, late):
            store.insert([new_job()])
            answer = store.exchange(WORKER, [complete(job) for job in claim(store)])
            assert len(answer.settled) == 1
            store.close()
    with raw(path) as connection:
        connection.execute(OLD_BEAT)

    new.close()
    forget_column(path)
    newest = SqliteEngine(str(path)).store()
    assert newest.send(CommandKind.STOP, [WorkerId("old")])
    newest.close()
    assert problems(SqliteEngine(str(path))) == ()


# As schema 9 left it: every edge was written when it was met.
OLD_EDGES: Final = """
update forebay_edges set state = 'met' where number = 0;
alter table forebay_jobs drop column unmet;
alter table forebay_aftermaths drop column after_child;
alter table forebay_aftermaths drop column after_number;
create index forebay_edges_unmet on forebay_edges (child) where state = 'open' or state = 'held';
drop table forebay_lanes;
drop table forebay_audit;
delete from forebay_schema where number > 9;
"""
# As schema 11 left it: the audit log was what is left of the events of jobs.
OLD_AUDIT: Final = """
drop table forebay_audit;
delete from forebay_events;
insert into forebay_events (number, kind, at, job_id, actor, detail, changes) values
  (3, 'cancel', 1, 'j', 'ann', 'why', '{"state":["pending","cancelled"]}'),
  (4, 'swept', 1, 'j', 'w1', '', null),
  (7, 'deleted', 2, 'gone', 'bob', 'dead', null),
  (9, 'queue', 3, null, 'ann', 'paused', null),
  (10, 'note', 4, null, 'w1', 'hello', null);
delete from forebay_schema where number > 11;
"""


def test_a_graph_of_a_schema_that_wrote_met_edges_goes_on_where_it_was(
    store: SqliteStore, path: Path
) -> None:
    store.insert([new_job(id="first"), new_job(id="second")])
    store.insert([new_job(id="join", depends_on=(Need(JobId("first")), Need(JobId("second"))))])
    jobs = {job.id: job for job in claim(store, 2)}
    store.exchange(WORKER, [complete(jobs[JobId("first")])])
    store.close()
    with raw(path) as connection:
        connection.executescript(OLD_EDGES)

    engine = SqliteEngine(str(path))
    store = engine.store()
    assert problems(engine) == ()
    store.exchange(WORKER, [complete(jobs[JobId("second")])])

    assert [job.id for job in claim(store, 2)] == ["join"]
    assert problems(engine) == ()
    store.close()


def test_actions_of_an_older_schema_are_in_the_audit_log(store: SqliteStore, path: Path) -> None:
    store.close()
    with raw(path) as connection:
        connection.executescript(OLD_AUDIT)

    store, reader = SqliteEngine(str(path)).store(), SqliteEngine(str(path)).reader()

    assert [number for number, _ in reader.audit()] == [10, 9, 7, 4, 3]
    assert (reader.unchained(), store.chain_audit()) == (3, 3)
    assert [(line.number, line.event.who) for line in reader.audit_chain()] == [
        (3, "ann"),
        (7, "bob"),
        (9, "ann"),
    ]
    store.record([Event(kind=EventKind.KEY, detail="next"), Event(kind=EventKind.NOTE, detail="last")])
    assert [number for number, _ in reader.audit(limit=2)] == [12, 11]
    with raw(path) as connection:
        rows = connection.execute("select number from forebay_events order by number").fetchall()
    assert rows == [(3,), (4,), (10,), (12,)]
    store.close()
    reader.close()


def test_a_program_that_knows_nothing_of_workflows_is_refused_where_there_may_be_some(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_before(monkeypatch, WORKFLOWS - 1)

    with pytest.raises(SchemaNewer, match=f"this one knows up to {WORKFLOWS - 1}"):
        SqliteEngine(str(path)).store()


# Migrations that fail


def with_another(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let the program know one migration more."""
    known = (*load_migrations(PACKAGE), Migration(NEWEST + 1, "another", 1, script))
    monkeypatch.setattr(schema, "load_migrations", lambda package: known)


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


def test_the_tables_live_beside_those_of_the_user(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("pragma user_version = 42")
        connection.execute("pragma application_id = 4711")
        connection.execute("create table jobs (id integer primary key, name text)")
        connection.execute("create table queues (name text)")
        connection.execute("insert into jobs values (1, 'mine')")

    store = SqliteEngine(str(path)).store()
    store.insert([new_job()])
    store.exchange(WORKER, [complete(job) for job in claim(store)])
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
