"""A disk without room: nothing is half done, and the same call works when there is room again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay.domain.queue_counts import Counts
from forebay.errors import StoreUnavailable
from forebay.stores.contract.reader import Reader
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import problems, program
from tests.stores.support import WORKER, claim, complete, new_job

LARGE: Final = b"x" * 10_000


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), clock=clock)
    yield engine
    assert problems(engine) == ()


def fill(store: SqliteStore) -> None:
    """Let the file grow no more. The limit is the connection's own, and SQLite answers as on a full disk."""
    (pages,) = store._connection.execute("pragma page_count").fetchone()
    store._connection.execute(f"pragma max_page_count = {pages}")


def make_room(store: SqliteStore) -> None:
    store._connection.execute("pragma max_page_count = 1000000")


@pytest.mark.shows("R-EDGE-22", "R-EDGE-65")
@pytest.mark.parametrize("atomic", [True, False])
def test_an_insert_without_room_stores_nothing_and_works_later(
    store: SqliteStore, reader: Reader, tmp_path: Path, atomic: bool
) -> None:
    store.insert([new_job()])
    jobs = [new_job(payload=LARGE, unique_key=f"key {number}", queue="new") for number in range(100)]
    fill(store)

    with pytest.raises(StoreUnavailable, match="has no room left: free some space on its disk") as refused:
        store.insert(jobs, atomic=atomic)
    counts_without_room = reader.counts()
    make_room(store)
    receipts = store.insert(jobs, atomic=atomic)

    assert str(tmp_path / "jobs.db") in str(refused.value)
    assert counts_without_room == {"default": Counts(pending=1)}
    assert all(receipt.is_new for receipt in receipts)
    assert reader.counts() == {"default": Counts(pending=1), "new": Counts(pending=100)}


def test_a_settle_and_claim_without_room_settles_and_claims_nothing_and_works_later(
    store: SqliteStore, reader: Reader
) -> None:
    store.insert([new_job()] * 60)
    settlements = [complete(job, LARGE) for job in claim(store, 50)]
    fill(store)

    with pytest.raises(StoreUnavailable, match="no room left"):
        store.settle_and_claim(WORKER, settlements, claims=[], room=10)
    counts_without_room = reader.counts()
    make_room(store)
    answer = store.settle_and_claim(WORKER, settlements)

    assert counts_without_room == {"default": Counts(pending=10, running=50)}
    assert len(answer.settled) == 50
    assert reader.counts() == {"default": Counts(pending=10, completed=50)}


def test_what_needs_no_room_goes_on_while_the_disk_is_full(store: SqliteStore, reader: Reader) -> None:
    store.insert([new_job()] * 3)
    jobs = claim(store, 2)
    fill(store)

    with pytest.raises(StoreUnavailable):
        store.insert([new_job(payload=LARGE)] * 100)
    answer = store.settle_and_claim(WORKER, [complete(job, None) for job in jobs])

    assert len(answer.settled) == 2
    assert reader.counts() == {"default": Counts(pending=1, completed=2)}


# The same on a disk that is really full: a file system of 3 MiB where we may make one, else a limit on the
# size of files, which needs no rights.
REALLY_FULL: Final = """
import ctypes, resource

CLONE_NEWNS, MS_PRIVATE_ALL = 0x20000, 0x44000
LARGE = b"x" * 10_000
filler = os.path.join(os.path.dirname(path), "filler")

def small_disk():
    libc = ctypes.CDLL(None)
    if sys.argv[2] != "small disk" or not hasattr(libc, "unshare") or libc.unshare(CLONE_NEWNS):
        return False
    libc.mount(b"none", b"/", None, MS_PRIVATE_ALL, None)
    return not libc.mount(b"tmpfs", os.fsencode(os.path.dirname(path)), b"tmpfs", 0, b"size=3m")

def fill_disk():
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

def limit_size():
    most = max(os.path.getsize(path), os.path.getsize(path + "-wal")) + 8192
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

def drop_limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

fill, make_room = (fill_disk, lambda: os.unlink(filler)) if small_disk() else (limit_size, drop_limit)

def attempt(call):
    try:
        call()
        say("it worked")
    except Exception as error:
        say(type(error).__name__, error)

def tell():
    say(*[f"{name}={value}" for name, value in reader.counts()["default"].__rich_repr__() if value])

engine = SqliteEngine(path)
store, reader = engine.store(), engine.reader()
store.insert([job() for _ in range(60)])
claimed = store.settle_and_claim(WorkerId("w"), claims=[QueueClaim(DEFAULT, 50)], room=50).jobs
ends = [decide(one, Completed(LARGE), 0.0) for one in claimed]
fill()
attempt(lambda: store.settle_and_claim(WorkerId("w"), ends))
tell()
attempt(lambda: store.insert([job(payload=LARGE) for _ in range(100)]))
tell()
make_room()
attempt(lambda: store.settle_and_claim(WorkerId("w"), ends))
tell()
attempt(lambda: store.insert([job(payload=LARGE) for _ in range(100)]))
tell()
say("problems", reader.health().problems)
"""


@pytest.mark.shows("R-EDGE-22", "R-EDGE-65")
@pytest.mark.parametrize("way", ["small disk", "limit on the size of files"])
def test_a_disk_that_is_really_full_loses_nothing(tmp_path: Path, way: str) -> None:
    path = tmp_path / "jobs.db"

    with program(REALLY_FULL, path, way) as user:
        output = [user.hear() for _ in range(9)]

    assert output[0].startswith(f"StoreUnavailable {path} ")
    assert "disk" in output[0]
    assert output[1] == "pending=10 running=50"
    assert output[2].startswith(f"StoreUnavailable {path} ")
    assert "disk" in output[2]
    assert output[3] == "pending=10 running=50"
    assert output[4:6] == ["it worked", "pending=10 completed=50"]
    assert output[6:8] == ["it worked", "pending=110 completed=50"]
    assert output[8] == "problems ()"
