"""The one write lock of a file: how long a call waits for it, and that each process gets a turn."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.queue_counts import Counts
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import StoreUnavailable
from forebay.stores.sqlite.connection import Connection
from forebay.stores.sqlite.database_paths import DatabasePaths
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from forebay.stores.sqlite.waiting_writer import ANNOUNCEMENT_SECONDS, WaitingWriter
from tests.stores.sqlite_support import DEADLINE, Program, folder_of, in_thread, probe, problems, program, raw
from tests.stores.support import WORKER, new_job

HOLD: Final = """
other = sqlite3.connect(path, isolation_level=None, timeout=20)
while hear() == "lock":
    other.execute("begin immediate")
    say("locked")
    hear()
    other.execute("rollback")
    say("free")
"""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A database that must be in order when the test is over."""
    path = tmp_path / "jobs.db"
    SqliteEngine(str(path)).store().close()
    yield path
    assert problems(SqliteEngine(str(path))) == ()


@contextmanager
def opened(path: Path, lock_timeout_ms: int = 30_000) -> Iterator[SqliteStore]:
    store = SqliteEngine(str(path), lock_timeout_ms=lock_timeout_ms).store()
    try:
        yield store
    finally:
        store.close()


def lock(other: Program) -> None:
    other.write_line("lock")
    assert other.hear() == "locked"


def free(other: Program) -> None:
    other.write_line()
    assert other.hear() == "free"


@pytest.mark.shows("R-STORE-07", "R-EDGE-65", "R-EDGE-72")
def test_a_lock_held_for_longer_than_the_limit_is_reported_and_the_call_works_later(path: Path) -> None:
    with opened(path, lock_timeout_ms=300) as store, program(HOLD, path) as other:
        lock(other)
        began = time.monotonic()
        with pytest.raises(
            StoreUnavailable, match=r"locked by another program for more than 0\.3 s: "
        ) as late:
            store.insert([new_job()] * 10)
        waited = time.monotonic() - began
        free(other)
        receipts = store.insert([new_job()] * 10)

        reader = SqliteEngine(str(path)).reader()
        counts = reader.counts()
        reader.close()

    assert str(path) in str(late.value)
    assert 0.3 <= waited < DEADLINE
    assert all(receipt.is_new for receipt in receipts)
    assert counts == {"default": Counts(pending=10)}


@pytest.mark.shows("R-LEASE-15")
@pytest.mark.parametrize(
    "call", ["settle_and_claim", "renew", "sweep", "promote", "prune", "rescore", "record_events"]
)
def test_every_call_reports_a_lock_that_lasts(path: Path, call: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "settle_and_claim": ("w",),
        "renew": ("w", []),
        "sweep": ("w",),
        "record_events": ([],),
    }

    with opened(path, lock_timeout_ms=0) as store, program(HOLD, path) as other:
        lock(other)
        with pytest.raises(StoreUnavailable, match="locked by another program"):
            getattr(store, call)(*arguments.get(call, ()))


@pytest.mark.shows("R-STORE-07", "R-BUG-04")
def test_a_lock_held_for_less_than_the_limit_is_waited_for(path: Path) -> None:
    with opened(path) as store, program(HOLD, path) as other:
        lock(other)
        answer = in_thread(lambda: store.insert([new_job()]))
        probe((folder_of(path) / "waiting").exists, "the insert leaves a note")
        free(other)
        [receipt] = answer()

    assert receipt.is_new


@pytest.mark.shows("R-STORE-21")
def test_readers_are_not_held_up_by_a_writer_nor_a_writer_by_readers(path: Path) -> None:
    engine = SqliteEngine(str(path))
    with opened(path) as store, program(HOLD, path) as other:
        store.insert([new_job()])
        reader = engine.reader()
        lock(other)
        during = reader.counts()
        free(other)
        with raw(path) as long_reader:
            long_reader.execute("begin")
            long_reader.execute("select count(*) from forebay_jobs").fetchone()
            store.insert([new_job()])
        after = reader.counts()
        reader.close()

    assert (during, after) == ({"default": Counts(pending=1)}, {"default": Counts(pending=2)})


def test_opening_waits_for_a_lock_that_is_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    is_opening = threading.Event()
    switch = Connection._switch_to_wal

    def announced(connection: Connection, raw: sqlite3.Connection) -> None:
        is_opening.set()
        switch(connection, raw)

    monkeypatch.setattr(Connection, "_switch_to_wal", announced)

    with raw(path) as other:
        other.execute("begin exclusive")
        answer = in_thread(lambda: SqliteEngine(str(path)).store())
        assert is_opening.wait(DEADLINE)
        other.execute("commit")
        store = answer()

    assert store.insert([new_job()])[0].is_new
    store.close()


# Fair writing

GREEDY: Final = """
store = SqliteEngine(path).store()
say("ready")
while True:
    store.insert([job() for _ in range(500)])
"""


def test_the_note_of_a_waiter_comes_and_goes(path: Path) -> None:
    note = folder_of(path) / "waiting"

    with opened(path) as store, program(HOLD, path) as other:
        lock(other)
        before = note.exists()
        answer = in_thread(lambda: store.insert([new_job()]))
        probe(note.exists, "the note comes")
        free(other)
        answer()

    assert not before
    assert not note.exists()


def test_the_note_goes_when_the_waiter_gives_up(path: Path) -> None:
    with opened(path, lock_timeout_ms=200) as store, program(HOLD, path) as other:
        lock(other)
        with pytest.raises(StoreUnavailable):
            store.insert([new_job()])

    assert not (folder_of(path) / "waiting").exists()


def test_the_note_of_the_dead_is_soon_ignored(path: Path) -> None:
    waiting_writer = WaitingWriter(DatabasePaths(str(path)))
    waiting_writer.announce()
    fresh = waiting_writer.is_announced()

    long_ago = time.time() - ANNOUNCEMENT_SECONDS - 1  # noqa: TID251 - file times
    os.utime(folder_of(path) / "waiting", (long_ago, long_ago))

    assert fresh
    assert not waiting_writer.is_announced()


def test_without_a_folder_no_call_waits_and_nothing_fails(tmp_path: Path) -> None:
    waiting_writer = WaitingWriter(DatabasePaths(str(tmp_path / "gone" / "jobs.db")))

    assert not waiting_writer.is_announced()
    assert not waiting_writer.announce()
    waiting_writer.withdraw()


@pytest.mark.shows("R-STORE-14")
def test_a_writer_gets_its_turn_next_to_greedy_ones(path: Path) -> None:
    waits = []

    with opened(path) as store, program(GREEDY, path) as one, program(GREEDY, path) as other:
        one.hear()
        other.hear()
        for _ in range(15):
            began = time.monotonic()
            store.insert([new_job(queue="patient")])
            waits.append(time.monotonic() - began)

    # The promise is 2 s; a machine that is busy with other things gets more than ten times that.
    assert max(waits) < DEADLINE


def test_a_greedy_writer_pauses_while_another_process_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("forebay.stores.sqlite.connection.time.sleep", pauses.append)

    monkeypatch.setattr("forebay.stores.sqlite.waiting_writer.CHECK_SECONDS", 0)

    with opened(path) as store:
        store.insert([new_job()])
        alone = list(pauses)
        WaitingWriter(DatabasePaths(str(path))).announce()
        store.insert([new_job()])
        store.insert([new_job()])

    assert alone == []
    assert pauses == [0.002, 0.002]


def test_progress_is_seen_soon_by_a_reader_that_has_just_looked(path: Path) -> None:
    waiting_writer = WaitingWriter(DatabasePaths(str(path)))
    until = time.monotonic() + DEADLINE
    assert not waiting_writer.is_announced()

    WaitingWriter(DatabasePaths(str(path))).announce()
    while not waiting_writer.is_announced():
        WaitingWriter(DatabasePaths(str(path))).announce()
        assert time.monotonic() < until


def test_looking_for_commands_does_not_wait_for_the_write_lock(path: Path) -> None:
    with opened(path, lock_timeout_ms=0) as store, program(HOLD, path) as holder:
        store.heartbeat(WorkerInfo(id=WORKER))
        holder.write_line("lock")
        assert holder.hear() == "locked"

        # It would raise: no process waits for the lock here.
        assert store.take_commands([WORKER]) == []

        holder.write_line("free")
        assert holder.hear() == "free"
        [sent] = store.send_command(CommandKind.STOP)
        assert [command.id for command in store.take_commands([WORKER])] == [sent.id]


def test_a_command_that_cannot_be_taken_now_is_taken_later(path: Path) -> None:
    with opened(path, lock_timeout_ms=0) as store, program(HOLD, path) as holder:
        store.heartbeat(WorkerInfo(id=WORKER))
        [sent] = store.send_command(CommandKind.STOP)
        holder.write_line("lock")
        assert holder.hear() == "locked"
        with pytest.raises(StoreUnavailable):
            store.take_commands([WORKER])
        holder.write_line("free")
        assert holder.hear() == "free"

        assert [command.id for command in store.take_commands([WORKER])] == [sent.id]
