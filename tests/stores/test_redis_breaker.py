"""The circuit breaker of the Redis engine, and how long a call waits for a server that says nothing."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event

import pytest
import redis as driver

from forebay.errors import StoreUnavailable
from forebay.stores.factory import open_engine
from forebay.stores.redis.circuit_breaker import (
    FAILURES,
    LONGEST_PAUSE_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    ConnectBreaker,
    ServerReachability,
)
from forebay.stores.redis.connection import CONNECT_SECONDS, open_connection
from forebay.stores.redis.engine import RedisEngine
from forebay.stores.redis.server_address import ANSWER_SECONDS
from forebay.stores.redis.wakeups import CHECK_SECONDS
from tests.redis_server import RedisServer
from tests.stores.support import new_job
from tests.worker.support import eventually

DOWN = driver.exceptions.ConnectionError("down")


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def breaker(time: Time) -> ConnectBreaker:
    return ConnectBreaker(ServerReachability(time))


def attempt(breaker: ConnectBreaker, error: Exception | None = None) -> bool:
    """Whether there was one."""
    was_made = False
    try:
        with breaker.attempt():
            was_made = True
            if error is not None:
                raise error
    except driver.exceptions.ConnectionError:
        pass
    return was_made


@pytest.mark.shows("R-TEST-44", "R-STORE-49")
def test_after_five_failures_one_attempt_is_made_in_each_pause(breaker: ConnectBreaker, time: Time) -> None:
    assert [attempt(breaker, DOWN) for _ in range(FAILURES + 2)] == [True] * 5 + [False] * 2

    time.now += SHORTEST_PAUSE_SECONDS
    assert [attempt(breaker, DOWN) for _ in range(3)] == [True, False, False]
    time.now += SHORTEST_PAUSE_SECONDS
    assert [attempt(breaker) for _ in range(3)] == [True] * 3


def test_a_server_that_lets_all_calls_wait_is_asked_less_often(breaker: ConnectBreaker, time: Time) -> None:
    def wait_in_vain() -> None:
        with breaker.attempt():
            time.now += 5
            raise driver.exceptions.TimeoutError

    for _ in range(FAILURES):
        with pytest.raises(driver.exceptions.TimeoutError):
            wait_in_vain()

    time.now += LONGEST_PAUSE_SECONDS / 2
    assert not attempt(breaker)
    time.now += LONGEST_PAUSE_SECONDS / 2
    assert attempt(breaker)


@pytest.mark.shows("R-TEST-44")
def test_a_success_and_a_refused_password_begin_the_count_anew(breaker: ConnectBreaker) -> None:
    password = driver.exceptions.AuthenticationError("no")

    answers = (*[DOWN] * 4, None, *[DOWN] * 4, password, *[DOWN] * 4, None)
    assert all(attempt(breaker, answer) for answer in answers)


def test_no_call_waits_for_an_attempt_of_another_call(breaker: ConnectBreaker, time: Time) -> None:
    for _ in range(FAILURES):
        attempt(breaker, DOWN)
    time.now += SHORTEST_PAUSE_SECONDS

    with breaker.attempt():
        assert not attempt(breaker)
    assert attempt(breaker)


def test_a_call_that_has_reached_the_server_lets_in_the_calls_that_are_held_back(
    breaker: ConnectBreaker, time: Time
) -> None:
    for _ in range(FAILURES):
        attempt(breaker, DOWN)
    time.now += SHORTEST_PAUSE_SECONDS / 4
    held_back = not attempt(breaker)

    attempt(ConnectBreaker(breaker.reachability))

    assert held_back
    assert attempt(breaker, DOWN)
    time.now += SHORTEST_PAUSE_SECONDS / 4
    assert not attempt(breaker)  # it is gone again


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each attempt of a store to connect."""
    made: list[object] = []

    def counted(*arguments: object) -> object:
        made.append(arguments)
        return open_connection(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("forebay.stores.redis.connection.open_connection", counted)
    return made


def refused(call: Callable[[], object], times: int) -> str:
    """What a call says that the store refuses so many times. Not the last time alone: on a busy machine a
    pause may be over by then."""
    words = ""
    for _ in range(times):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        words += f"{caught.value}\n"
    return words


@pytest.mark.shows("R-TEST-44", "R-STORE-49", "R-EDGE-65")
def test_a_program_whose_server_is_away_is_refused_at_once_and_goes_on_when_it_is_back(
    connections: list[object],
) -> None:
    server = RedisServer()
    engine = open_engine(f"{server.url()}?persistence=none")
    try:
        with closing(engine.store()) as store:
            store.insert([new_job()])
            server.stop(signal.SIGKILL)
            connections.clear()

            words = refused(lambda: store.insert([new_job()]), 20)

            assert "attempts to connect have failed" in words
            assert len(connections) < 20
            refused(engine.store, 20)  # what opens anew is held back as well
            assert len(connections) < 40

            server.start()
            eventually(lambda: is_accepted(store.insert))
            eventually(lambda: is_accepted(lambda _: engine.store().close()))
    finally:
        server.close()


@pytest.mark.shows("R-STORE-49", "R-EDGE-65")
def test_a_store_works_at_once_when_its_listener_says_that_the_server_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while the server loads what it has kept: the listener waits for the end of that."""
    for name in ("SHORTEST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(f"forebay.stores.redis.circuit_breaker.{name}", 3_600.0)
    slow = {"key-load-delay": "20000", "loading-process-events-interval-bytes": "1024"}
    server = RedisServer(appendonly="yes", **slow)
    engine = open_engine(server.url())
    notified = Event()
    try:
        with closing(engine.store()) as store, closing(engine.wakeups()) as wakeups:
            store.insert([new_job()] * 10)
            server.stop()
            words = refused(lambda: store.insert([new_job()]), FAILURES + 2)
            wakeups.start(notified.set)

            server.start()

            assert "attempts to connect have failed" in words
            assert notified.wait(120)
            store.insert([new_job()])
    finally:
        server.close()


def is_accepted(call: Callable[..., object]) -> bool:
    try:
        call([new_job()])
    except StoreUnavailable:
        return False
    return True


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that lets all connections in and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.shows("R-STORE-47", "R-CFG-43")
def test_a_server_that_says_nothing_is_given_up_when_the_time_to_connect_is_over(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.redis.connection.CONNECT_SECONDS", 0.1)
    monkeypatch.setattr("forebay.stores.redis.circuit_breaker.SHORTEST_PAUSE_SECONDS", 3_600.0)
    monkeypatch.setattr("forebay.stores.redis.circuit_breaker.LONGEST_PAUSE_SECONDS", 3_600.0)

    words = refused(open_engine(f"redis://127.0.0.1:{silent}/0").store, FAILURES + 1)

    assert "attempts to connect have failed" in words


@pytest.mark.shows("R-STORE-47", "R-CFG-43", "R-STORE-37")
def test_every_wait_has_an_end_and_nothing_is_sent_twice() -> None:
    server = RedisServer()
    try:
        engine = open_engine(f"{server.url()}?persistence=none")
        assert isinstance(engine, RedisEngine)
        raw = open_connection(engine.address)
        try:
            assert raw._sock.gettimeout() == ANSWER_SECONDS == 30
            assert raw.socket_connect_timeout == CONNECT_SECONDS == 5
            assert raw.retry.get_retries() == 0
            assert raw.retry_on_timeout is False
        finally:
            raw.disconnect()
        assert CHECK_SECONDS == 30
    finally:
        server.close()
