"""A newer program on the same file, and a call that is broken off."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_update import JobUpdate
from forebay.errors import StoreUnusable
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from tests.stores.support import new_job

DEFAULT = QueueName("default")


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(str(tmp_path / "jobs.db"))


@pytest.fixture
def store(engine: SqliteEngine) -> Iterator[SqliteStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def newer(store: SqliteStore, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Writes what only a newer program would write."""
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.shows("R-EXT-15")
def test_a_setting_of_a_newer_program_stops_no_worker(
    engine: SqliteEngine, store: SqliteStore, newer: sqlite3.Connection
) -> None:
    store.insert([new_job()])
    newer.execute("update forebay_queues set settings = json_set(settings, '$.max_running', 5)")

    store.insert([new_job()])
    store.promote()
    store.prune()

    reader = engine.reader()
    assert [queue.name for queue in reader.queues()] == [DEFAULT]
    reader.close()


def test_an_event_of_a_newer_program_is_shown_as_a_note(
    engine: SqliteEngine, store: SqliteStore, newer: sqlite3.Connection
) -> None:
    newer.execute(
        "insert into forebay_events (kind, occurred_at, detail) values ('teleported', 1, 'to mars')"
    )

    reader = engine.reader()
    [(_, event)] = reader.audit()
    reader.close()

    assert (event.kind, event.detail) == (EventKind.COMMENT, "teleported: to mars")


def test_an_update_keeps_options_of_a_newer_program(store: SqliteStore, newer: sqlite3.Connection) -> None:
    [receipt] = store.insert([new_job(tags=("a",))])
    newer.execute("update forebay_jobs set options = json_set(options, '$.concurrency_key', 'k')")
    assert receipt.id is not None

    store.update_job(receipt.id, JobUpdate(priority=5, metadata={"who": "ada"}))

    (options,) = newer.execute("select options from forebay_jobs").fetchone()
    assert '"concurrency_key":"k"' in options
    assert '"who":"ada"' in options


def test_an_interrupt_with_the_lock_just_taken_does_not_keep_it(
    engine: SqliteEngine, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = store._connection._begin

    def begin_and_be_interrupted() -> None:
        begin()
        raise KeyboardInterrupt

    monkeypatch.setattr(store._connection, "_begin", begin_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.insert([new_job()])
    monkeypatch.undo()

    other = engine.store()
    assert store.insert([new_job()])[0].is_new
    assert other.insert([new_job()])[0].is_new
    other.close()


def test_a_child_forked_while_the_file_was_open_is_refused_and_harms_no_other_process(
    engine: SqliteEngine, store: SqliteStore
) -> None:
    def attempts() -> list[str]:
        output = []
        for attempt in (engine.store, lambda: store.insert([new_job()])):
            try:
                attempt()
                output.append("went through")
            except StoreUnusable as exc:
                output.append(str(exc))
        return output

    answers = in_a_forked_child(attempts)

    assert [("forked" in answer, "spawn" in answer) for answer in answers] == [(True, True)] * 2
    assert store.insert([new_job()])[0].is_new
    reader = engine.reader()
    assert reader.counts()[DEFAULT].pending == 1
    assert reader.health().problems == ()
    reader.close()


def test_a_child_forked_while_nothing_was_open_may_use_the_file(engine: SqliteEngine) -> None:
    engine.store().close()

    def insert() -> list[str]:
        store = engine.store()
        [receipt] = store.insert([new_job()])
        store.close()
        return [str(receipt.id)]

    [job_id] = in_a_forked_child(insert)

    reader = engine.reader()
    assert [job is not None for job in reader.jobs([JobId(job_id)])] == [True]
    reader.close()


def in_a_forked_child(work: Callable[[], list[str]]) -> list[str]:
    """What some work answers in a child process made by fork, which ends at once."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(there, "\n".join(work()).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here) as answers:
        output = answers.read().split("\n")
    os.waitpid(child, 0)
    return output
