"""`forebay server`."""

from __future__ import annotations

import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from socket import create_connection, create_server, socket
from threading import Event

import grpc
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import forebay
from forebay.service.generated import forebay_pb2, forebay_pb2_grpc
from forebay.service.server_security import ListenAddress
from tests.cli.command_runner import DEADLINE, answer, command, environment, refusal
from tests.worker.support import eventually


@contextmanager
def running(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server that runs as a program of its own."""
    with started(folder, *options) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A server that runs as a program of its own."""
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", "sqlite:///jobs.db", *options),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def make_certificate(folder: Path) -> Path:
    """A file with a certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forebay")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.mark.shows("R-SEC-03", "R-CLI-03")
def test_with_keys_and_a_certificate_a_server_may_be_reached_from_anywhere(folder: Path) -> None:
    token = answer("keys", "create", "deploy", "--allow", "produce", "--url", "sqlite:///jobs.db")["token"]
    answer("queues", "create", "mail", "--url", "sqlite:///jobs.db")
    certificate = make_certificate(folder)
    trusting = ssl.create_default_context(cafile=str(certificate))
    everywhere = "0.0.0.0"  # noqa: S104 - that is the point

    with running(
        folder, "--host", everywhere, "--require-keys", "--certificate", str(certificate)
    ) as address:
        there = address.replace(everywhere, "127.0.0.1")
        with httpx2.Client(base_url=there, verify=trusting, timeout=DEADLINE) as client:
            job = {"task": "t", "queue": "mail"}
            refused = client.post("/v1/jobs", json=job)
            done = client.post("/v1/jobs", json=job, headers={"Authorization": f"Bearer {token}"})
            page = client.get("/")
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{there.replace('https', 'http')}/health/live", timeout=DEADLINE)

    assert there.startswith("https://")
    assert (refused.status_code, done.status_code) == (401, 201)
    assert (page.status_code, page.headers["Location"]) == (307, "/dashboard/")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--certificate", "nowhere.pem"], "nowhere.pem cannot be used"),
        (["--certificate", "forebay.toml"], "forebay.toml cannot be used"),
        (["--private-key", "key.pem"], "goes with a certificate"),
        (["--client-ca", "ca.pem"], "--client-ca needs TLS"),
        (["--public-url", "jobs.example.org"], "--public-url takes the address"),
        (["--public-url", "https://jobs.example.org?key=fbk_x.y"], "--public-url takes the address"),
        (["--public-url", "https://jobs.example.org:port"], "--public-url takes the address"),
        (["--public-url", "https://["], "--public-url takes the address"),
        (["--host", "192.0.2.1", "--require-keys"], "--behind-tls-proxy"),
        (["--grpc", "0.0.0.0:0", "--require-keys"], "API keys would be sent unencrypted"),
        (["--session-idle", "13h"], "--session-idle"),
        (["--session-lasts", "10m"], "--session-lasts"),
        (["--burst", "5"], "--burst works only with --rate"),
        (["--rate", "0"], "rate must be"),
        (["--grpc", "9090"], "--grpc takes HOST:PORT"),
        (["--grpc", "127.0.0.1:99999"], "--grpc takes HOST:PORT"),
        (["--grpc", "0.0.0.0:0"], "can be reached from other machines"),
    ],
)
def test_what_makes_no_sense_is_refused(folder: Path, options: list[str], words: str) -> None:
    (folder / "forebay.toml").write_text("")

    assert words in refusal("server", "--url", "sqlite:///jobs.db", *options)["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_answers_until_it_is_told_to_stop(folder: Path, number: int) -> None:
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", "sqlite:///jobs.db"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        ready = httpx2.get(f"{address}/health/ready", timeout=DEADLINE)
        with under_way(address) as claim:
            process.send_signal(number)
            claim.sendall(b"{}")
            answered = read_all(claim)
        _, output = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()

    assert ready.json() == {"status": "ok"}
    assert answered.endswith(b'{"jobs":[]}')
    assert (process.returncode, "Traceback" in output) == (0, False), output


def test_a_second_signal_waits_for_no_request(folder: Path) -> None:
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", "sqlite:///jobs.db", "--shutdown-timeout", "600"),
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with under_way(address) as claim:
            process.send_signal(signal.SIGTERM)
            eventually(lambda: not is_listening(address))
            process.send_signal(signal.SIGTERM)
            answered = read_all(claim)
            _, output = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 0, output
    assert not answered.startswith(b"HTTP/1.1 408")  # for that its body would have had to be waited for


def is_listening(address: str) -> bool:
    """Whether a server takes new connections."""
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        create_connection((host, int(port)), timeout=DEADLINE).close()
    except ConnectionError:
        return False
    return True


def under_way(address: str) -> socket:
    """A connection on which the server waits for the body of a claim that could take 20 seconds."""
    host, _, port = address.removeprefix("http://").partition(":")
    connection = create_connection((host, int(port)), timeout=DEADLINE)
    connection.sendall(
        b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
    return connection


def read_all(connection: socket) -> bytes:
    """What comes until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])  # noqa: S104 - it is refused
@pytest.mark.shows("R-SEC-04")
def test_no_server_listens_beyond_this_machine_without_authentication(folder: Path, host: str) -> None:
    error = refusal("server", "--host", host, "--url", "sqlite:///jobs.db")

    assert error["status"] == 2
    assert "127.0.0.1" in error["message"]


def test_without_keys_a_server_is_known_by_the_names_that_it_was_given(folder: Path) -> None:
    def status(address: str, host: str) -> int:
        return httpx2.get(f"{address}/v1/queues", headers={"Host": host}, timeout=DEADLINE).status_code

    with running(folder, "--allowed-host", "jobs.example.org") as address:
        statuses = [status(address, host) for host in ("jobs.example.org", "localhost", "other.example.org")]

    assert statuses == [200, 200, 403]


@pytest.mark.shows("R-SEC-04")
def test_behind_a_proxy_with_tls_a_server_speaks_without(folder: Path) -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - that is the point
    options = (
        "--host",
        everywhere,
        "--require-keys",
        "--behind-tls-proxy",
        "--public-url",
        "https://jobs.example.org",
    )

    with running(folder, *options) as address:
        answer = httpx2.get(f"{address.replace(everywhere, '127.0.0.1')}/health/live", timeout=DEADLINE)

    assert answer.status_code == 200
    assert "max-age" in answer.headers["Strict-Transport-Security"]


def test_a_port_that_is_taken_is_refused_for_grpc_too(folder: Path) -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        error = refusal("server", "--port", "0", "--grpc", where, "--url", "sqlite:///jobs.db")

    assert "cannot listen on 127.0.0.1" in error["message"]


@pytest.mark.shows("R-SEC-03")
def test_grpc_has_the_keys_and_the_certificate_of_http(folder: Path) -> None:
    token = answer("keys", "create", "deploy", "--allow", "produce", "--url", "sqlite:///jobs.db")["token"]
    answer("queues", "create", "mail", "--url", "sqlite:///jobs.db")
    certificate = make_certificate(folder)
    trusting = grpc.ssl_channel_credentials(certificate.read_bytes())
    everywhere = "0.0.0.0:0"
    request = forebay_pb2.EnqueueRequest(job=forebay_pb2.NewJob(task="t", queue="mail"))

    options = ["--grpc", everywhere, "--require-keys", "--certificate", str(certificate)]
    with started(folder, *options) as process:
        assert process.stdout is not None
        _, address = process.stdout.readline(), process.stdout.readline().split()[-1]
        with grpc.secure_channel(address.replace("grpcs://0.0.0.0", "127.0.0.1"), trusting) as channel:
            producer = forebay_pb2_grpc.ProducerStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                producer.Enqueue(request, timeout=DEADLINE)
            shown = (("authorization", f"Bearer {token}"),)
            done = producer.Enqueue(request, metadata=shown, timeout=DEADLINE)
        with grpc.insecure_channel(address.removeprefix("grpcs://")) as channel, pytest.raises(grpc.RpcError):
            forebay_pb2_grpc.ProducerStub(channel).Enqueue(request, timeout=DEADLINE)

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert done.state == "pending"


def test_a_call_of_grpc_keeps_http_from_nothing_and_a_second_signal_ends_it(folder: Path) -> None:
    is_over = Event()

    def messages() -> Iterator[bytes]:
        is_over.wait(DEADLINE)
        yield b""

    with started(folder, "--grpc", "127.0.0.1:0", "--shutdown-timeout", "600") as process:
        assert process.stdout is not None
        http, grpc_address = (process.stdout.readline().split()[-1] for _ in range(2))
        with grpc.insecure_channel(grpc_address.removeprefix("grpc://")) as channel:
            grpc.channel_ready_future(channel).result(DEADLINE)
            # The server waits for its message, so that only haste ends it.
            waiting = channel.stream_unary("/forebay.v1.Producer/Enqueue").future(
                messages(), timeout=DEADLINE
            )
            process.send_signal(signal.SIGTERM)
            eventually(lambda: not is_connectable(grpc_address.removeprefix("grpc://")))
            eventually(lambda: not is_listening(http))
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=DEADLINE)
            is_over.set()
            waiting.cancel()

    assert process.returncode == 0


def is_connectable(address: str) -> bool:
    """Whether a server takes new connections there."""
    return is_listening(f"http://{address}")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_has_several_names(host: str) -> None:
    assert ListenAddress(host).is_loopback


def test_a_port_that_is_taken_is_named(folder: Path) -> None:
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        error = refusal("server", "--port", str(port), "--url", "sqlite:///jobs.db")

    assert f"port {port}" in error["message"]


def test_without_the_page_it_serves_and_says_how_to_get_it(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "src"
    package = Path(forebay.__file__).parent
    ignored = shutil.ignore_patterns("static", "__pycache__")
    shutil.copytree(package, source / "forebay", ignore=ignored)  # as it is installed where there is no Node
    process = subprocess.Popen(
        command("server", "--port", "0", "--url", "sqlite:///jobs.db"),
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        page = httpx2.get(f"{address}/dashboard/", timeout=DEADLINE)
        is_alive = httpx2.get(f"{address}/health/ready", timeout=DEADLINE).status_code
    finally:
        process.terminate()
        _, output = process.communicate(timeout=DEADLINE)

    way_out = "In a checkout `make dashboard` builds it; elsewhere install Node 22.12 or newer"
    assert (page.status_code, is_alive) == (503, 200)
    assert way_out in page.text
    assert way_out in output
    assert "Traceback" not in output
