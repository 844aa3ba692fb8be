"""The listener of the Redis engine: what it holds, and when it lets go."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

import pytest

from forebay.stores.contract.wakeups import Wakeups
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer
from tests.stores.support import new_job
from tests.threads import started_threads

SECONDS = 120.0


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    started = RedisServer()
    yield started
    started.close()


@pytest.fixture
def url(own_server: RedisServer) -> str:
    return f"{own_server.url()}?persistence=none"


@pytest.fixture
def wakeups(url: str) -> Wakeups:
    return open_engine(url).wakeups()


def pipes() -> int:
    """How many ends of pipes this process holds."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(entry).startswith("pipe:")
    return found


def wait_for_the_listener_to_end() -> None:
    for thread in started_threads("forebay-listen"):
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_listener_that_is_busy_when_it_is_closed_keeps_its_pipe_until_it_has_ended(
    wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.redis.wakeups._JOIN_TIMEOUT", 0.01)
    before = pipes()
    notified, may_end = Event(), Event()

    def notify() -> None:
        notified.set()
        assert may_end.wait(SECONDS)

    wakeups.start(notify)
    assert notified.wait(SECONDS)
    wakeups.close()
    # A number that is closed is given to another file, and the listener would hear that one.
    held = pipes() - before
    may_end.set()
    wait_for_the_listener_to_end()

    assert held == 1
    assert pipes() == before


def test_a_listener_that_is_closed_by_its_own_wakeup_leaves_no_pipe(wakeups: Wakeups) -> None:
    before = pipes()
    closed = Event()

    def notify() -> None:
        wakeups.close()
        closed.set()

    wakeups.start(notify)
    assert closed.wait(SECONDS)
    wait_for_the_listener_to_end()

    assert pipes() == before


def test_a_listener_hears_in_a_program_with_many_open_files(url: str, wakeups: Wakeups) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, limits[1]), limits[1]))
    listening, heard = Event(), Event()
    files = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while files[-1] < 1_024:
            files.append(os.dup(files[0]))
        with closing(open_engine(url).store()) as store, closing(wakeups):
            wakeups.start(lambda: heard.set() if listening.is_set() else listening.set())
            assert listening.wait(SECONDS)

            store.insert([new_job()])

            assert heard.wait(SECONDS)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
