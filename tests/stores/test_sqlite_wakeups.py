"""Wake-ups between processes: by datagram at once, by a poll at last, and never in the way of a call."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.job import JobId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import CommandKind
from forebay.errors import StoreError, StoreUnusable
from forebay.stores.sqlite import waiting_writer
from forebay.stores.sqlite import wakeups as module
from forebay.stores.sqlite.engine import SqliteEngine
from tests.stores.sqlite_support import DEADLINE, folder_of, probe, problems, program, raw
from tests.stores.support import WORKER, claim, fail, new_job
from tests.threads import started_threads

NEVER: Final = DEADLINE * 10  # a poll so slow that only a datagram can have been it


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "jobs.db"
    SqliteEngine(str(path)).store().close()
    yield path
    assert problems(SqliteEngine(str(path))) == ()


@pytest.fixture
def slow_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a datagram can have been it; and a sender that saw no listener a moment ago looks again."""
    monkeypatch.setattr(module, "POLL_SECONDS", NEVER)
    monkeypatch.setattr(waiting_writer, "CHECK_SECONDS", 0)


class WakeupCount:
    """Counts wake-ups, and waits for them."""

    def __init__(self) -> None:
        self.count = 0
        self._came = threading.Semaphore(0)

    def __call__(self) -> None:
        self.count += 1
        self._came.release()

    def wait(self, seconds: float = DEADLINE) -> bool:
        return self._came.acquire(timeout=seconds)


@contextmanager
def listening(path: Path) -> Iterator[WakeupCount]:
    notified = WakeupCount()
    wakeups = SqliteEngine(str(path)).wakeups()
    wakeups.start(notified)
    try:
        yield notified
    finally:
        wakeups.close()


def sockets(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder_of(path)) if name.startswith("wake-"))


INSERT: Final = """
store = SqliteEngine(path).store()
while hear() == "insert":
    store.insert([job()])
    say("inserted")
"""


@pytest.mark.usefixtures("slow_poll")
def test_an_insert_of_another_process_notifies_long_before_the_poll(path: Path) -> None:
    with listening(path) as notified, program(INSERT, path) as other:
        for _ in range(3):
            other.write_line("insert")
            other.hear()
            assert notified.wait()

    assert notified.count == 3


@pytest.mark.usefixtures("slow_poll")
def test_what_a_worker_should_look_at_notifies_too(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    store.insert([new_job()] * 2)
    first, second = claim(store, 2)

    with listening(path) as notified:
        store.settle_and_claim(WORKER, [fail(first, after_ms=0)])
        assert notified.wait()
        store.cancel([second.id])
        assert notified.wait()
        store.cancel([second.id], force=True)
        assert notified.wait()
        store.save_queue(second.queue, {"max_length": 10})
        assert notified.wait()
        store.heartbeat(WorkerInfo(id=WORKER))
        store.send_command(CommandKind.STOP)
        assert notified.wait()
    store.close()


@pytest.mark.usefixtures("slow_poll")
def test_what_brings_no_work_notifies_no_listener(path: Path) -> None:
    store = SqliteEngine(str(path)).store()

    with listening(path) as notified:
        claim(store)
        store.promote()
        store.acquire_maintenance("sweep", 1_000)
        store.heartbeat(WorkerInfo(id=WORKER))
        store.take_commands([WORKER])
        store.answer_command("absent", "done")
        store.settle_and_claim(WORKER, updates=[ProgressUpdate(lease=Lease(JobId("absent"), 1))])
        store.insert([])
        count = notified.count
        store.insert([new_job()])
        assert notified.wait()
    store.close()

    assert (count, notified.count) == (0, 1)


def test_a_write_by_plain_sqlite_is_found_by_the_poll(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("create table mine (x)")
        with listening(path) as notified:
            connection.execute("insert into mine values (1)")
            assert notified.wait()


@pytest.mark.usefixtures("slow_poll")
def test_a_datagram_notifies_without_a_look_at_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteEngine(str(path)).store()

    with listening(path) as notified:
        monkeypatch.delattr(
            module, "_data_version"
        )  # a listener that reads the file does not come to the wake-up
        store.insert([new_job()])
        assert notified.wait()
    store.close()


def test_a_write_by_plain_sqlite_right_after_a_datagram_is_found(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    notified, wakeups = WakeupCount(), SqliteEngine(str(path)).wakeups()
    with raw(path) as connection:
        connection.execute("create table mine (x)")

    def write_and_count() -> None:
        if not notified.count:  # before the listener can look again
            with raw(path) as own:
                own.execute("insert into mine values (1)")
        notified()

    wakeups.start(write_and_count)
    store.insert([new_job()])
    found = (notified.wait(), notified.wait())
    wakeups.close()
    store.close()

    assert found == (True, True)


def test_without_a_socket_the_poll_finds_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(path).write_text("in the way of the folder")
    store = SqliteEngine(str(path)).store()

    with listening(path) as notified:
        store.insert([new_job()])
        assert notified.wait()
    store.close()


LISTEN: Final = """
wakeups = SqliteEngine(path).wakeups()
wakeups.start(lambda: say("notified"))
say("listening")
hear()
"""


def test_the_socket_of_a_dead_listener_is_removed(path: Path) -> None:
    with program(LISTEN, path) as other:
        other.hear()
        other.kill()
    left = sockets(path)
    store = SqliteEngine(str(path)).store()

    store.insert([new_job()])
    store.close()

    assert len(left) == 1
    assert sockets(path) == []


@pytest.mark.usefixtures("slow_poll")
def test_a_dead_listener_does_not_keep_hints_from_the_living(path: Path) -> None:
    with program(LISTEN, path) as dead:
        dead.hear()
        dead.kill()
    store = SqliteEngine(str(path)).store()

    with listening(path) as notified, program(LISTEN, path) as other:
        other.hear()
        store.insert([new_job()])
        assert notified.wait()
        assert other.hear() == "notified"
    store.close()


@pytest.mark.usefixtures("slow_poll")
@pytest.mark.parametrize("length", [40, 100, 240])
def test_a_long_path_works(tmp_path: Path, length: int) -> None:
    folder = tmp_path / ("x" * (length // 2)) / ("y" * (length // 2))
    folder.mkdir(parents=True)
    path = folder / "jobs.db"
    store = SqliteEngine(str(path)).store()

    with listening(path) as notified:
        store.insert([new_job()])
        assert notified.wait()
    store.close()

    assert sockets(path) == []


@pytest.mark.usefixtures("slow_poll")
def test_many_listeners_are_all_notified(path: Path) -> None:
    store = SqliteEngine(str(path)).store()

    with ExitStack() as stack:
        listeners = [stack.enter_context(listening(path)) for _ in range(20)]
        store.insert([new_job()])
        assert all(notified.wait() for notified in listeners)
    store.close()

    assert sockets(path) == []


@pytest.mark.usefixtures("slow_poll")
def test_a_listener_that_comes_later_is_found(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    store.insert([new_job()])

    for _ in range(3):
        with listening(path) as notified:
            store.insert([new_job()])
            assert notified.wait()
    store.close()


def test_without_a_listener_nothing_fails_and_nothing_is_made(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    store.insert([new_job()])
    store.close()

    assert not folder_of(path).exists()


@pytest.mark.usefixtures("slow_poll")
def test_a_listener_that_does_not_listen_delays_no_writer(path: Path) -> None:
    folder_of(path).mkdir()
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    deaf.bind(str(folder_of(path) / "wake-deaf"))
    store = SqliteEngine(str(path), durability="relaxed").store()

    receipts = [store.insert([new_job()]) for _ in range(500)]
    deaf.close()
    store.close()

    assert len(receipts) == 500


def test_a_burst_notifies_at_most_once_each(path: Path) -> None:
    store = SqliteEngine(str(path), durability="relaxed").store()

    with listening(path) as notified:
        for _ in range(100):
            store.insert([new_job()])
        assert notified.wait()
    store.close()

    # A commit that is found by its datagram may be found by the poll again, but not more often.
    assert 1 <= notified.count <= 200


def test_a_listener_whose_thread_has_ended_before_it_read_all_can_be_closed(path: Path) -> None:
    wakeups = SqliteEngine(str(path)).wakeups()
    wakeups.start(WakeupCount())
    wakeups._stopped.set()
    assert wakeups._thread is not None
    wakeups._thread.join(DEADLINE)
    [name] = sockets(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with module._SocketAddress(folder_of(path) / name) as address, suppress(BlockingIOError):
            while True:  # until there is no room for more
                sender.sendto(b"", address)

    closing = threading.Thread(target=wakeups.close, daemon=True)
    closing.start()
    closing.join(DEADLINE)

    assert not closing.is_alive()


def listener_threads() -> list[threading.Thread]:
    return started_threads("forebay-sqlite-wakeups")


@pytest.mark.usefixtures("slow_poll")
def test_closing_ends_the_thread_and_removes_the_socket_at_once(path: Path) -> None:
    wakeups = SqliteEngine(str(path)).wakeups()
    wakeups.start(lambda: None)
    before = (len(listener_threads()), len(sockets(path)))

    wakeups.close()
    wakeups.close()

    assert before == (1, 1)
    assert (listener_threads(), sockets(path)) == ([], [])


def test_closing_before_the_start_is_fine(path: Path) -> None:
    wakeups = SqliteEngine(str(path)).wakeups()

    wakeups.close()
    wakeups.close()

    assert listener_threads() == []


def test_starting_twice_or_after_the_end_is_refused(path: Path) -> None:
    wakeups = SqliteEngine(str(path)).wakeups()
    wakeups.start(lambda: None)

    with pytest.raises(StoreError, match="ask the engine for others"):
        wakeups.start(lambda: None)
    wakeups.close()
    with pytest.raises(StoreError, match="ask the engine for others"):
        wakeups.start(lambda: None)

    assert listener_threads() == []


def test_a_start_that_fails_leaves_nothing_behind(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)
    wakeups = SqliteEngine(str(path)).wakeups()

    with pytest.raises(StoreUnusable, match="is not a SQLite database"):
        wakeups.start(lambda: None)
    wakeups.close()
    left = sockets(path)
    path.unlink()

    assert (left, listener_threads()) == ([], [])


def test_wakeups_stop_with_the_end(path: Path) -> None:
    store = SqliteEngine(str(path)).store()
    with listening(path) as notified:
        store.insert([new_job()])
        assert notified.wait()
    count = notified.count

    store.insert([new_job()])
    probe(lambda: not listener_threads(), "the thread ends")
    store.close()

    assert notified.count == count
