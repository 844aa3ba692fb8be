"""An app before and after a fork: real processes on one SQLite file, nothing lost, no process stuck."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forebay.domain.job import QueueName
from forebay.stores.sqlite.engine import SqliteEngine
from tests.stores.sqlite_support import problems, program

# What each program begins with: an app on the file, a task, and a way to have children.
OPENING = """
from threading import Event, Thread
from forebay import Forebay, StoreError
import forebay.app.client as client_module

app = Forebay(f"sqlite:///{path}")

@app.task(name="note")
def note(who):
    pass

def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            say(type(error).__name__, error)
        os._exit(code)
    return pid

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def stored(path: Path) -> int:
    """How many jobs all other processes see."""
    engine = SqliteEngine(str(path))
    reader = engine.reader()
    counts = reader.counts()
    reader.close()
    assert problems(engine) == ()
    return counts[QueueName("default")].pending


def test_parent_and_child_go_on_after_a_fork(path: Path) -> None:
    script = """
note.enqueue("before")
pid = child(lambda: [note.enqueue("child") for _ in range(20)])
for _ in range(20):
    note.enqueue("parent")
say(ended(pid))
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "0"
        assert forking.wait() == 0

    assert stored(path) == 41


def test_a_child_may_be_the_first_to_use_the_app(path: Path) -> None:
    script = """
pid = child(lambda: note.enqueue("child"))
say(ended(pid))
note.enqueue("parent")
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "0"
        assert forking.wait() == 0

    assert stored(path) == 2


def test_what_a_child_stores_is_not_lost_when_its_parent_closes_the_file(path: Path) -> None:
    # SQLite deletes its log with the last connection. The parent must not take the child's for its own.
    script = """
note.enqueue("before").refresh()
told, tell = os.pipe()
heard, hear_me = os.pipe()

def work():
    note.enqueue("first")
    os.write(hear_me, b"x")
    os.read(told, 1)
    note.enqueue("second")
    os.write(hear_me, b"x")
    os.read(told, 1)

pid = child(work)
os.read(heard, 1)
app.close()
os.write(tell, b"x")
os.read(heard, 1)
look = Forebay(f"sqlite:///{path}")
say(look.client.counts()["default"].pending)
look.close()
os.write(tell, b"x")
say(ended(pid))
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "3"
        assert forking.hear() == "0"

    assert stored(path) == 3


HELD = """
reached, opened, about_to_fork = Event(), Event(), Event()

class Slow:
    def __init__(self, store):
        self._store = store
    def __getattr__(self, name):
        return getattr(self._store, name)
    def insert(self, jobs, **options):
        if not reached.is_set():
            # In the middle of a transaction, as when the disk is slow.
            self._store._connection._raw.execute("begin immediate")
            reached.set()
            opened.wait(120)
            self._store._connection._raw.execute("commit")
        return self._store.insert(jobs, **options)

engine = app.client._engine
open_store = engine.store
engine.store = lambda: Slow(open_store())
holder = Thread(target=lambda: note.enqueue("holder"))
holder.start()
reached.wait(120)
"""


def test_a_fork_waits_for_the_thread_that_is_writing(path: Path) -> None:
    script = """
def open_later():
    about_to_fork.wait(120)
    opened.set()

Thread(target=open_later).start()
about_to_fork.set()
pid = child(lambda: note.enqueue("child"))
note.enqueue("parent")
holder.join()
say(ended(pid))
"""
    with program(OPENING + HELD + script, path) as forking:
        assert forking.hear() == "0"
        assert forking.wait() == 0

    assert stored(path) == 3


def test_a_child_that_was_forked_from_a_stuck_write_refuses_and_its_parent_goes_on(path: Path) -> None:
    script = """
client_module.FORK_WAIT_SECONDS = 0.01
pid = child(lambda: note.enqueue("child"))
say(ended(pid))
opened.set()
holder.join()
note.enqueue("parent")
again = child(lambda: note.enqueue("later child"))
say(ended(again))
"""
    with program(OPENING + HELD + script, path) as forking:
        assert forking.hear() == (
            "StoreError this process was forked while its parent used the store; start it anew"
        )
        assert forking.hear() == "1"
        assert forking.hear() == "0"
        assert forking.wait() == 0

    assert stored(path) == 3


def test_threads_may_enqueue_while_others_fork(path: Path) -> None:
    script = """
go_on = Event()
go_on.set()
counts = [0] * 4

def enqueue(number):
    while go_on.is_set():
        note.enqueue("thread")
        counts[number] += 1

threads = [Thread(target=enqueue, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
children = [child(lambda: [note.enqueue("child") for _ in range(5)]) for _ in range(6)]
codes = [ended(pid) for pid in children]
go_on.clear()
for thread in threads:
    thread.join()
say(*codes)
say(sum(counts) + 30)
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "0 0 0 0 0 0"
        expected = int(forking.hear())
        assert forking.wait() == 0

    assert stored(path) == expected


def test_coroutines_of_a_child_can_enqueue(path: Path) -> None:
    script = """
import asyncio

asyncio.run(note.enqueue_async("parent"))
pid = child(lambda: asyncio.run(note.enqueue_async("child")))
asyncio.run(note.enqueue_async("parent"))
say(ended(pid))
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "0"

    assert stored(path) == 3


def test_coroutines_of_a_child_can_look_and_wait(path: Path) -> None:
    script = """
import asyncio

handle = note.enqueue("parent")
asyncio.run(handle.refresh_async())

def work():
    asyncio.run(handle.cancel_async("by the child"))
    say(asyncio.run(handle.wait_async(timeout=100)).reason)

say(ended(child(work)))
say(asyncio.run(handle.wait_async(timeout=100)).reason)
note.enqueue("parent")
"""
    with program(OPENING + script, path) as forking:
        assert [forking.hear() for _ in range(3)] == ["by the child", "0", "by the child"]
        assert forking.wait() == 0

    assert stored(path) == 1


def test_a_closed_app_stays_closed_in_a_child(path: Path) -> None:
    script = """
note.enqueue("before")
app.close()
say(ended(child(lambda: note.enqueue("child"))))
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "StoreError this app is closed"
        assert forking.hear() == "1"

    assert stored(path) == 1


def test_a_grandchild_can_enqueue(path: Path) -> None:
    script = """
def work():
    note.enqueue("child")
    assert ended(child(lambda: note.enqueue("grandchild"))) == 0
    note.enqueue("child again")

note.enqueue("parent")
say(ended(child(work)))
"""
    with program(OPENING + script, path) as forking:
        assert forking.hear() == "0"

    assert stored(path) == 4


POOL = """
import multiprocessing, sys
from forebay import Forebay

app = Forebay("sqlite:///jobs.db")

@app.task(name="note")
def note(who: int) -> None: ...

def work(number: int) -> str:
    return note.enqueue(number).id

if __name__ == "__main__":
    note.enqueue(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        ids = pool.map(work, range(20), chunksize=1)
    note.enqueue(0)
    print(len(set(ids)))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_a_pool_can_enqueue(method: str, tmp_path: Path, path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)

    run = subprocess.run(
        [sys.executable, "pool.py", method],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (run.stdout, run.stderr) == ("20\n", "")
    assert stored(path) == 22
