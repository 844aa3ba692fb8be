"""The Redis engine behind TLS: who is trusted, and what is said to those who are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest

from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer
from tests.stores.support import WORKER, claim, complete, everything, new_job
from tests.stores.tls_front import CERTIFICATES, TlsFront

AUTHORITY = f"ssl_ca_certs={CERTIFICATES}/authority.pem"
CLIENT = f"ssl_certfile={CERTIFICATES}/client.pem&ssl_keyfile={CERTIFICATES}/client.pem"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    started = RedisServer(requirepass="secret")
    yield started
    started.close()


@pytest.fixture
def front(server: RedisServer) -> Iterator[TlsFront]:
    with closing(TlsFront(server.port)) as front:
        yield front


def url_of(front: TlsFront, *options: str, password: str = "secret") -> str:  # noqa: S107 - of the test's server
    return f"rediss://:{password}@127.0.0.1:{front.port}/0?{'&'.join(('persistence=none', *options))}"


@pytest.mark.shows("R-STORE-48", "R-SEC-07")
def test_a_store_behind_tls(front: TlsFront) -> None:
    engine = open_engine(url_of(front, AUTHORITY))

    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.insert([new_job()])
        [job] = claim(store)
        assert store.settle_and_claim(WORKER, [complete(job)]).settled == (job.id,)
        assert job.id in {one.id for one in everything(reader)}
        listening, heard = Event(), Event()
        with closing(engine.wakeups()) as wakeups:
            wakeups.start(lambda: heard.set() if listening.is_set() else listening.set())
            assert listening.wait(120)
            store.insert([new_job()])
            assert heard.wait(120)


@pytest.mark.shows("R-STORE-48")
@pytest.mark.parametrize("trusted", [[], [f"ssl_ca_certs={CERTIFICATES}/other_authority.pem"]])
def test_an_untrusted_certificate_is_refused_with_the_way_out(front: TlsFront, trusted: list[str]) -> None:
    with pytest.raises(StoreUnusable, match="not trusted: name the one that has signed it in ssl_ca_certs"):
        open_engine(url_of(front, *trusted)).store()


def test_a_wrong_password_behind_tls_is_named(front: TlsFront) -> None:
    with pytest.raises(StoreUnusable, match="does not accept this user") as caught:
        open_engine(url_of(front, AUTHORITY, password="typo")).store()  # noqa: S106 - a wrong one

    assert "typo" not in str(caught.value)


@pytest.mark.shows("R-STORE-48")
def test_a_server_that_asks_for_certificates_lets_in_those_who_have_one(server: RedisServer) -> None:
    with closing(TlsFront(server.port, asks_clients=True)) as front:
        with closing(open_engine(url_of(front, AUTHORITY, CLIENT)).store()) as store:
            assert len(store.insert([new_job()])) == 1

        with pytest.raises(StoreUnavailable):
            open_engine(url_of(front, AUTHORITY)).store()


def test_a_program_that_does_not_speak_tls_gets_no_further(front: TlsFront) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_engine(url_of(front).replace("rediss://", "redis://")).store()


def test_a_certificate_file_that_is_not_there_is_a_mistake_in_the_address(front: TlsFront) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        open_engine(url_of(front, "ssl_ca_certs=/nowhere.pem"))
