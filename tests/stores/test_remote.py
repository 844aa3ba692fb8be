"""The engine on a service: servers that are away, answers that get lost, and what is said to no caller."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from traceback import format_exception
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.api_key import Grant
from forebay.domain.job import JobId, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import (
    ConfigError,
    DuplicateJob,
    ForebayError,
    QueueFull,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
)
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.claims_and_results import OnConflict, QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.memory.store import MemoryStore
from forebay.stores.remote import http_client
from forebay.stores.remote.engine import RemoteEngine
from forebay.stores.remote.http_client import ServiceAddress, ServiceClient
from forebay.stores.rpc import encode
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.worker.supervisor.messages import WorkerReady
from tests.service.live_server import PATIENCE, Served, serving
from tests.stores.relay import Relay
from tests.stores.tls_front import CERTIFICATES, TlsFront

W1 = WorkerId("w1")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(open_engine("memory://")) as found:
        yield found


@pytest.fixture
def relay(served: Served) -> Iterator[Relay]:
    """Between us and the server."""
    found = Relay(int(served.address.rpartition(":")[2]))
    yield found
    found.close()


@pytest.fixture
def far(relay: Relay) -> Engine:
    return open_engine(f"http://127.0.0.1:{relay.port}")


@pytest.fixture
def store(far: Engine) -> Iterator[Store]:
    with closing(far.store()) as found:
        yield found


@pytest.fixture
def reader(served: Served) -> Iterator[Reader]:
    """Behind the server, where nothing gets lost."""
    with closing(served.service.pool.engine.reader()) as found:
        yield found


def is_answer(data: bytes) -> bool:
    return data.startswith(b"HTTP/1.1 200")


def pending(reader: Reader, queue: str) -> int:
    name = QueueName(queue)
    return reader.counts([name])[name].pending


@contextmanager
def dead_address() -> Iterator[str]:
    """An address at which no server listens, and none will while the block lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


# Servers that are away


@pytest.mark.shows("R-SDK-02", "R-EDGE-74")
def test_another_server_is_asked_where_one_is_away(served: Served) -> None:
    here = served.address.removeprefix("http://")
    with dead_address() as away, closing(open_engine(f"http://{away},{here}").store()) as store:
        [receipt] = store.insert([NewJob(task="t", queue=QueueName(served.queue()))])
        answer = store.settle_and_claim(W1)

    assert receipt.is_new
    assert answer.jobs == ()


def test_two_who_find_out_about_one_server_both_go_on_to_the_next() -> None:
    servers = ServiceClient(ServiceAddress(urls=("http://one", "http://two")))
    chosen_before = servers.chosen

    for _ in range(2):
        servers.fail_over(chosen_before)

    assert servers.chosen == chosen_before + 1


def test_where_all_are_away_the_store_is_not_available() -> None:
    with (
        dead_address() as one,
        dead_address() as two,
        closing(open_engine(f"http://{one},{two}").reader()) as reader,
        pytest.raises(StoreUnavailable, match="cannot be reached"),
    ):
        reader.now()


def test_a_look_is_repeated_when_its_answer_got_lost(relay: Relay, far: Engine) -> None:
    loss = relay.lose_answer(fits=is_answer)

    with closing(far.reader()) as reader:
        now = reader.now()

    assert (now > 0, loss.lost) == (True, 1)


def test_a_heartbeat_is_repeated_when_its_answer_got_lost(relay: Relay, store: Store, reader: Reader) -> None:
    loss = relay.lose_answer(fits=is_answer)

    store.heartbeat(WorkerInfo(id=WorkerId("heartbeats")))

    assert loss.lost == 1
    assert "heartbeats" in [worker.id for worker in reader.workers()]


def test_a_silent_server_is_given_up_soon_where_there_is_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "FAILOVER_SECONDS", 1.0)
    here = served.address.removeprefix("http://")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        both = f"http://127.0.0.1:{silent.getsockname()[1]},{here}?response_timeout=3600"
        with closing(open_engine(both).store()) as store:
            renewal = store.renew(W1, [])

    assert renewal.renewed == ()


# What a server, or what stands before it, says instead of an answer


@contextmanager
def saying(*answers: tuple[int, bytes]) -> Iterator[Engine]:
    """An engine whose server gives these answers, one after the other."""
    left = iter(answers)

    class Saying(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = next(left)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Saying) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield open_engine(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_what_a_server_did_not_wait_for_is_said_again() -> None:
    with saying((408, b""), (200, encode(3))) as engine, closing(engine.store()) as store:
        assert store.promote() == 3


def test_a_service_that_was_there_is_away_and_not_another_thing() -> None:
    with saying((200, encode(3)), (404, b"<h1>moved</h1>")) as engine, closing(engine.store()) as store:
        store.promote()
        with pytest.raises(StoreUnavailable, match="not there now"):
            store.promote()


def test_a_fault_of_the_service_is_not_waited_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise RuntimeError("stumbled")

    monkeypatch.setattr(MemoryStore, "drop_limit", stumble)
    with closing(open_engine(served.address).store()) as store, pytest.raises(ForebayError) as caught:
        store.drop_limit("global")

    assert not isinstance(caught.value, StoreError)


# An insert whose answer got lost


@pytest.mark.shows("R-SDK-01")
@pytest.mark.parametrize("on_conflict", ["return", "raise", "ignore"])
@pytest.mark.parametrize("atomic", [True, False])
def test_jobs_whose_answer_got_lost_are_stored_once_and_new(
    relay: Relay, served: Served, store: Store, reader: Reader, on_conflict: OnConflict, atomic: bool
) -> None:
    queue = served.queue(max_length=2)
    job = NewJob(task="t", queue=QueueName(queue), unique_key="u", idempotency_key="o")
    loss = relay.lose_answer(fits=is_answer)

    receipts = store.insert(
        [job, NewJob(task="t", queue=QueueName(queue))], on_conflict=on_conflict, atomic=atomic
    )

    assert loss.lost == 1
    assert [receipt.is_new for receipt in receipts] == [True, True]
    assert [receipt.error for receipt in receipts] == [None, None]
    assert None not in reader.jobs([JobId(str(receipt.id)) for receipt in receipts])
    assert pending(reader, queue) == 2


def test_a_holder_of_a_key_is_named_though_the_first_answer_got_lost(
    relay: Relay, served: Served, store: Store, reader: Reader
) -> None:
    queue = served.queue()
    job = NewJob(task="t", queue=QueueName(queue), unique_key="u")
    [holder] = store.insert([job])
    relay.lose_answer(fits=is_answer)

    [first, second] = store.insert([job, NewJob(task="t", queue=QueueName(queue))])

    assert (first.id, first.is_new, second.is_new) == (holder.id, False, True)
    assert pending(reader, queue) == 2


def test_a_request_that_never_arrived_is_made_again(
    relay: Relay, served: Served, store: Store, reader: Reader
) -> None:
    queue = served.queue()
    store.settle_and_claim(W1)  # a connection is open
    loss = relay.lose_request(b"/v1/store/insert")

    [receipt] = store.insert([NewJob(task="t", queue=QueueName(queue))])

    assert (loss.lost, receipt.is_new, pending(reader, queue)) == (1, True, 1)


@pytest.mark.parametrize(
    ("settings", "fields", "error"),
    [({"max_length": 1}, {}, QueueFull), ({}, {"unique_key": "u"}, DuplicateJob)],
)
def test_what_is_refused_at_the_second_try_is_refused(
    relay: Relay, served: Served, store: Store, settings: Any, fields: Any, error: type[Exception]
) -> None:
    queue = QueueName(served.queue(**settings))
    store.insert([NewJob(task="t", queue=queue, **fields)])
    relay.lose_request(b"/v1/store/insert")

    with pytest.raises(error):
        store.insert([NewJob(task="t", queue=queue, **fields)], on_conflict="raise")


def test_jobs_are_not_said_to_be_refused_while_they_may_come_yet(served: Served) -> None:
    queue = QueueName(served.queue(max_length=1))
    served.enqueue(queue)
    here = served.address.removeprefix("http://")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        both = f"http://127.0.0.1:{silent.getsockname()[1]},{here}?response_timeout=1"
        with closing(open_engine(both).store()) as store, pytest.raises(StoreUnavailable):
            store.insert([NewJob(task="t", queue=queue)])


def test_an_id_of_the_callers_own_is_not_tried_again(relay: Relay, served: Served, store: Store) -> None:
    relay.lose_answer(fits=is_answer)

    with pytest.raises(StoreUnavailable):
        store.insert([NewJob(task="t", queue=QueueName(served.queue()), id=JobId("mine"))])


# A claim whose answer got lost


def test_what_was_claimed_by_a_lost_answer_is_found_by_its_holder(
    relay: Relay, served: Served, store: Store
) -> None:
    queue = QueueName(served.queue())
    [receipt] = store.insert([NewJob(task="t", queue=queue)])
    relay.lose_answer(fits=is_answer)
    worker = WorkerId("holder")

    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(worker, claims=[QueueClaim(queue, 1)], room=1)
    [job] = store.settle_and_claim(worker, known=[]).recovered
    relay.lose_answer(fits=is_answer)
    decided = decide(job, Completed(b"1"), 0.0)
    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(worker, [decided])
    answer = store.settle_and_claim(worker, [decided])

    assert job.id == receipt.id
    assert answer.repeated == (job.id,)
    assert store.renew(worker, [Lease(job.id, job.attempt)]).renewed == ()


# Hints


def test_a_listener_hears_of_new_jobs_and_ends_at_once(served: Served, far: Engine) -> None:
    notified = Event()
    wakeups = far.wakeups()
    wakeups.start(notified.set)
    assert notified.wait(PATIENCE)  # the first answer
    notified.clear()

    served.enqueue(served.queue())
    assert notified.wait(PATIENCE)
    wakeups.close()
    wakeups.close()


def test_who_listens_goes_on_at_another_server(served: Served) -> None:
    here = served.address.removeprefix("http://")
    notified = Event()
    with dead_address() as away:
        wakeups = open_engine(f"http://{away},{here}").wakeups()
        wakeups.start(notified.set)
        assert notified.wait(PATIENCE)
    wakeups.close()


def test_a_worker_that_sends_heartbeats_through_a_server_does_not_die_with_it(tmp_path: Any) -> None:
    path = str(tmp_path / "jobs.db")
    with (
        serving(SqliteEngine(path)) as found,
        closing(open_engine(found.address).store()) as store,
    ):
        store.heartbeat(WorkerInfo(id=W1))
        store.insert([NewJob(task="t")])
        [job] = store.settle_and_claim(W1, claims=[QueueClaim(QueueName("default"), 1)], room=1).jobs

    with closing(SqliteEngine(path).store()) as near:
        assert near.sweep(WorkerId("sweeper"), only_dead=True) == []
        assert near.renew(W1, [Lease(job.id, job.attempt)]).refused == ()


# Keys


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[str, str]]:
    """The address of a server that asks for keys, and a key that may not come often."""
    engine = open_engine("memory://")
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        keys = ApiKeyAdmin(store, reader, actor="ann")
        token = keys.create("slow", [Grant.parse("admin")], rate=10, burst=1).token
    with serving(engine, security=ServerSecurity(requires_keys=True)) as found:
        yield found.address, token


def test_who_asks_too_often_waits_and_is_served(guarded: tuple[str, str]) -> None:
    address, token = guarded

    with closing(open_engine(address, key=token).reader()) as reader:
        answers = [reader.now() for _ in range(3)]

    assert len(answers) == 3


def test_no_log_shows_the_key(guarded: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    address, token = guarded
    caplog.set_level("DEBUG")

    app = Forebay(address, api_key=token)
    wrong = Forebay(address, api_key=f"{token}x")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it must not tell
        wrong.counts()
    app.counts()
    for one in (app, wrong):
        one.close()

    secret = token.partition(".")[2]
    hello = WorkerReady(info=WorkerInfo(id=W1), url=address, is_shared=True, key=token)
    texts = [repr(app), app.engine.location, repr(app.engine), str(caught.value), caplog.text, repr(hello)]
    assert not [text for text in texts if secret in text]
    assert secret not in repr(ServiceAddress(urls=(address,), key=token))


def test_a_key_from_a_file_may_end_with_a_line(guarded: tuple[str, str]) -> None:
    address, token = guarded

    with closing(open_engine(address, key=f" {token}\r\n").reader()) as reader:
        assert reader.now() > 0


@pytest.mark.parametrize(
    "key", ["", "\n", "fbk_a.secret\nfbk_b.other", "fbk_a.secret\N{EN DASH}x", "fbk\0secret"]
)
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="no API key") as caught:
        open_engine("http://host", key=key)

    assert "secret" not in "".join(format_exception(caught.value))


def test_a_header_that_cannot_be_sent_is_not_shown(served: Served) -> None:
    address = ServiceAddress(urls=(served.address,), key="fbk_a.secret\nx")

    with closing(RemoteEngine(address).reader()) as reader, pytest.raises(StoreUnavailable) as caught:
        reader.now()

    assert "secret" not in "".join(format_exception(caught.value))


# Addresses


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://ann:secret@host", "give it a key"),
        ("http://", "address of a service"),
        ("http://one,,two", "address of a service"),
        ("https://host?key=secret", "unknown option"),
        ("https://host?ssl_ca_certs=/nowhere.pem", "no such file"),
        ("https://host?response_timeout=0", "response_timeout"),
        ("https://host#part", "address of a service"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_secrets(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_engine(url)

    assert "secret" not in str(caught.value)


def test_a_key_is_for_services_alone() -> None:
    with pytest.raises(ConfigError, match="a key is for the store behind a service"):
        open_engine("memory://", key="fbk_a.b")


def test_one_service_is_one_place() -> None:
    assert open_engine("http://a,b:81/x/").location == open_engine("http://b:81,a/x", key="fbk_a.b").location
    assert open_engine("http://a").location != open_engine("http://b").location


def test_what_speaks_another_language_is_no_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        engine = open_engine(f"http://127.0.0.1:{address[1]}?response_timeout=1")
        with closing(engine.reader()) as reader, pytest.raises(StoreUnavailable):
            reader.now()


@pytest.fixture(scope="module")
def front(served: Served) -> Iterator[str]:
    """The address of the server behind TLS."""
    found = TlsFront(int(served.address.rpartition(":")[2]))
    yield f"https://127.0.0.1:{found.port}"
    found.close()


def test_a_server_whose_certificate_is_known_is_believed(front: str) -> None:
    notified = Event()
    engine = open_engine(f"{front}?ssl_ca_certs={CERTIFICATES / 'authority.pem'}")
    wakeups = engine.wakeups()

    engine.check_schema()
    wakeups.start(notified.set)
    assert notified.wait(PATIENCE)
    wakeups.close()


@pytest.mark.parametrize("options", ["", f"?ssl_ca_certs={CERTIFICATES / 'other_authority.pem'}"])
def test_a_server_whose_certificate_is_not_known_is_not_believed(front: str, options: str) -> None:
    with pytest.raises(StoreUnusable, match="is not trusted: name the one"):
        open_engine(f"{front}{options}").check_schema()


# What does not go over the wire


def test_there_is_no_transaction_to_join(far: Engine) -> None:
    app_calls: list[Callable[[], object]] = [
        lambda: far.insert_tx(object(), []),
        lambda: far.complete_tx(object(), W1, None),  # type: ignore[arg-type]  # not even looked at
    ]
    for call in app_calls:
        with pytest.raises(ConfigError, match="no transactions to join"):
            call()
    for awaited in (
        far.insert_tx_async(object(), []),
        far.complete_tx_async(object(), W1, None),  # type: ignore[arg-type]  # as above
    ):
        with pytest.raises(ConfigError, match="no transactions to join"):
            awaited.send(None)


def test_a_closed_handle_asks_no_server(far: Engine) -> None:
    store = far.store()
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.promote()
    with pytest.raises(AttributeError):
        _ = store.nothing  # type: ignore[attr-defined]  # that is the point


def test_a_fork_has_connections_of_its_own(served: Served) -> None:
    engine = open_engine(served.address)
    with closing(engine.reader()) as reader:
        reader.now()
        child = os.fork()
        if child == 0:
            try:
                with closing(engine.reader()) as other:
                    other.now()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        again = reader.now()

    assert (status, again > 0) == (0, True)
