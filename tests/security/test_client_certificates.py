"""TLS with certificates of clients, and certificates that are renewed, with real handshakes."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from forebay import Forebay
from forebay.domain.api_key import Grant
from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.generated import forebay_pb2_grpc
from forebay.service.server_security import ServerSecurity
from forebay.service.tls_certificates import Certificates, common_name, subject_name
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from tests.security.authority import Authority, name_in
from tests.service.live_protocols import running
from tests.service.live_server import PATIENCE
from tests.worker.support import eventually

JOB = {"task": "t", "queue": "mail"}


class Secured:
    """A server that speaks TLS, and clients of it."""

    def __init__(self, engine: Engine, http: str, target: str, authority: Authority) -> None:
        self.engine = engine
        self.http = http
        self.target = target
        self._authority = authority

    def client(self, certificate: Path | None = None, **headers: str) -> httpx2.Client:
        context = ssl.create_default_context(cafile=str(self._authority.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return httpx2.Client(
            base_url=f"https://{self.http}", verify=context, headers=headers, timeout=PATIENCE
        )

    def channel(self, certificate: Path | None = None) -> grpc.Channel:
        shown = (None, None) if certificate is None else (certificate.read_bytes(),) * 2
        credentials = grpc.ssl_channel_credentials(self._authority.path.read_bytes(), *shown)
        options = [("grpc.use_local_subchannel_pool", 1)]  # a handshake for each
        return grpc.secure_channel(self.target, credentials, options)

    def session(self, certificate: Path | None = None, **headers: str) -> Any:
        with self.client(certificate, **headers) as client:
            return client.get("/v1/session")

    def enqueue(self, certificate: Path | None = None, token: str | None = None) -> Any:
        """A call over gRPC; raises RpcError."""
        with self.channel(certificate) as channel:
            shown = () if token is None else (("authorization", f"Bearer {token}"),)
            request = pb.EnqueueRequest(job=pb.NewJob(task="t", queue="mail"))
            return forebay_pb2_grpc.ProducerStub(channel).Enqueue(request, metadata=shown, timeout=PATIENCE)

    def names(self) -> list[str]:
        """Whose certificates the server shows to new clients, over HTTP and over gRPC."""
        addresses = (where.rpartition(":") for where in (self.http, self.target))
        return [name_in(ssl.get_server_certificate((host, int(port)))) for host, _, port in addresses]


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@contextmanager
def secured(ours: Authority, **more: Any) -> Iterator[Secured]:
    engine = open_engine("memory://")
    store = engine.store()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    security = ServerSecurity(**{"certificate": str(ours.issue("server", "server.pem")), **more})
    with running(engine, security) as (_, http, target):
        yield Secured(engine, http, target, ours)
    store.close()


@contextmanager
def keys_of(engine: Engine) -> Iterator[ApiKeyAdmin]:
    store, reader = engine.store(), engine.reader()
    yield ApiKeyAdmin(store, reader, actor="test")
    store.close()
    reader.close()


def asking(ours: Authority, **more: Any) -> dict[str, Any]:
    return {"requires_keys": True, "client_ca": str(ours.path), **more}


@pytest.mark.shows("R-SEC-03")
def test_a_client_without_a_certificate_of_the_authority_gets_no_connection(
    ours: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path, "foreign").issue("shop")
    with secured(ours, **asking(ours)) as server:
        with keys_of(server.engine) as keys:
            token = keys.create("shop", [Grant.parse("produce:mail")]).token
        for certificate in (None, foreign):
            with pytest.raises(httpx2.TransportError):
                server.session(certificate, Authorization=f"Bearer {token}")
            with pytest.raises(grpc.RpcError) as caught:
                server.enqueue(certificate, token)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.shows("R-SEC-03", "R-SEC-13")
def test_a_certificate_is_the_key_of_its_common_name_and_no_more(ours: Authority) -> None:
    shop, absent = ours.issue("shop"), ours.issue("absent")
    with secured(ours, **asking(ours)) as server:
        with keys_of(server.engine) as keys:
            keys.create("shop", [Grant.parse("produce:mail")])
            gone = keys.create("gone", [Grant.parse("admin")])
            keys.revoke("gone")
            other = keys.create("other", [Grant.parse("view")]).token
        with server.client(shop) as client:
            known = client.get("/v1/session").json()
            codes = [client.post("/v1/jobs", json=JOB).status_code, client.get("/v1/workers").status_code]
            # A token counts before the certificate of its connection.
            right = client.get("/v1/session", headers={"Authorization": f"Bearer {other}"})
            wrong = client.get("/v1/session", headers={"Authorization": f"Bearer {gone.token}"})
        assert server.enqueue(shop).state == "pending"
        for certificate in (absent, ours.issue("gone")):
            assert server.session(certificate).status_code == 401
            with pytest.raises(grpc.RpcError) as caught:
                server.enqueue(certificate)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    assert (known["name"], known["has_key"]) == ("shop", False)
    assert (codes, right.json()["name"], wrong.status_code) == ([201, 403], "other", 401)


def test_a_page_of_another_site_cannot_use_the_certificate_of_a_browser(ours: Authority) -> None:
    root = ours.issue("root")
    with secured(ours, **asking(ours)) as server:
        with keys_of(server.engine) as keys:
            keys.create("root", [Grant.parse("admin")])
        with server.client(root) as client:
            path = "/v1/queues/mail/pause"
            foreign = client.post(path, headers={"Origin": "https://evil.example"})
            sandboxed = client.post(path, headers={"Origin": "null"})
            own = client.post(path, headers={"Origin": f"https://{server.http}"})

    assert [foreign.status_code, sandboxed.status_code, own.status_code] == [403, 403, 200]


@pytest.mark.shows("R-SEC-12")
def test_an_optional_certificate_lets_others_show_their_keys(ours: Authority, tmp_path: Path) -> None:
    shop, foreign = ours.issue("shop"), Authority(tmp_path, "foreign").issue("shop")
    with secured(ours, **asking(ours, client_certificate="optional")) as server:
        with keys_of(server.engine) as keys:
            keys.create("shop", [Grant.parse("produce:mail")])
            other = keys.create("other", [Grant.parse("produce:mail")]).token
        assert server.session(shop).json()["name"] == "shop"
        assert server.session(None, Authorization=f"Bearer {other}").json()["name"] == "other"
        assert server.session().status_code == 401
        with pytest.raises(httpx2.TransportError):
            server.session(foreign)
        # Over gRPC such a server asks for none, and believes none.
        assert server.enqueue(None, other).state == "pending"
        for certificate in (shop, foreign):
            with pytest.raises(grpc.RpcError) as caught:
                server.enqueue(certificate)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.shows("R-SEC-12")
def test_without_keys_a_certificate_is_the_name_in_the_audit_log(ours: Authority) -> None:
    with secured(ours, client_ca=str(ours.path)) as server, server.client(ours.issue("ann")) as client:
        assert client.post("/v1/queues/mail/pause").is_success
        log = client.post("/v1/audit/search", json={}).json()

    assert "certificate:ann" in str(log)
    assert "anonymous" not in str(log)


@pytest.mark.shows("R-SEC-03")
def test_a_program_over_the_service_shows_its_certificate(ours: Authority, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("")
    with secured(ours, **asking(ours)) as server:
        with keys_of(server.engine) as keys:
            keys.create("shop", [Grant.parse("produce:mail")])
        address = f"https://{server.http}?ssl_ca_certs={ours.path}&response_timeout=5&ssl_certfile="
        assert enqueued(f"{address}{ours.issue('shop')}")
        with pytest.raises(StoreUnusable, match=r"broken.pem cannot be used"):
            enqueued(f"{address}{broken}")
        with pytest.raises(StoreUnavailable):
            enqueued(address.removesuffix("&ssl_certfile="))


def enqueued(address: str) -> str:
    """The id of a new job."""
    app = Forebay(address)

    @app.task(queue="mail")
    def send() -> None: ...

    try:
        return send.enqueue().id
    finally:
        app.close()


# Renewal


def test_a_renewed_certificate_is_shown_without_a_restart(
    ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with secured(ours) as server, server.client() as client, server.channel() as channel:
        assert server.names() == ["server", "server"]
        producer = forebay_pb2_grpc.ProducerStub(channel)
        request = pb.EnqueueRequest(job=pb.NewJob(task="t", queue="mail"))
        assert client.get("/health/live").is_success
        assert producer.Enqueue(request, timeout=PATIENCE).state == "pending"

        ours.issue("renewed", "server.pem")

        assert server.names() == ["renewed", "renewed"]
        # What is open goes on.
        assert client.get("/health/live").is_success
        assert producer.Enqueue(request, timeout=PATIENCE).state == "pending"
        with server.client() as another:
            assert another.get("/health/live").is_success
    assert "certificates were read again" in caplog.text


def test_a_certificate_that_cannot_be_read_leaves_the_one_before(
    ours: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, key = tmp_path / "server.pem", tmp_path / "key.pem"
    key.write_bytes(ours.issue("server", "server.pem").read_bytes())
    with secured(ours) as server:
        path.write_text("half of a cert")
        assert server.names() == ["server", "server"]
        path.unlink()
        assert server.names() == ["server", "server"]
        ours.issue("renewed", "server.pem")
        assert server.names() == ["renewed", "renewed"]

    broken = [one for one in caplog.records if "the old one stays in use" in one.getMessage()]
    assert len(broken) == 4  # two states, two protocols, and not a line for each handshake


def test_a_key_of_its_own_is_renewed_with_its_certificate(ours: Authority, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(ours.issue("server", "server.pem").read_bytes())
    with secured(ours) as plain:
        assert plain.names() == ["server", "server"]
    key.write_bytes((tmp_path / "server.pem").read_bytes())
    with running(
        open_engine("memory://"),
        ServerSecurity(certificate=str(tmp_path / "server.pem"), private_key=str(key)),
    ) as (_, http, target):
        server = Secured(open_engine("memory://"), http, target, ours)
        ours.issue("renewed", "server.pem")
        assert server.names() == ["server", "server"]  # a pair that does not fit
        key.write_bytes((tmp_path / "server.pem").read_bytes())
        assert server.names() == ["renewed", "renewed"]


def test_another_authority_for_clients_holds_without_a_restart(ours: Authority, tmp_path: Path) -> None:
    clients = Authority(tmp_path, "clients")
    old, path = clients.issue("shop"), clients.path
    with secured(ours, requires_keys=True, client_ca=str(path)) as server:
        with keys_of(server.engine) as keys:
            keys.create("shop", [Grant.parse("produce:mail")])
        assert server.session(old).status_code == 200
        assert server.enqueue(old).state == "pending"

        new = Authority(tmp_path, "clients").issue("shop", "new.pem")  # in place of the old one

        assert server.session(new).status_code == 200
        assert eventually(lambda: server.enqueue(new)).state == "pending"
        with pytest.raises(httpx2.TransportError):
            server.session(old)
        with pytest.raises(grpc.RpcError):
            server.enqueue(old)


# What cannot be


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("shop", "shop"),
        (b"shop", "shop"),
        ("ann@example.org", "ann@example.org"),
        ("a\nb", None),
        ("root#1", None),
        ("", None),
        (b"\xff", None),
        ("x" * 101, None),
        (None, None),
    ],
)
def test_only_a_name_that_can_stand_in_a_log_is_one(name: str | bytes | None, known: str | None) -> None:
    assert common_name(name) == known


def test_a_certificate_without_a_common_name_has_no_identity() -> None:
    assert subject_name(None) is None
    assert subject_name({}) is None
    assert subject_name({"subject": ((("organizationName", "us"),),)}) is None


def test_an_authority_that_cannot_be_used_is_named(ours: Authority, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("")
    found = Certificates(certificate=str(ours.issue("server")), client_ca=str(wrong))

    with pytest.raises(ConfigError, match=r"wrong.pem cannot be used"):
        found.load()
