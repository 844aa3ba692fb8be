"""Deliveries of alerts reach public hosts and allowed networks, and tell viewers nothing of hosts."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.alert import Alert, AlertTransition, Severity
from forebay.domain.alert_channel import Channel, MailChannel, TlsMode, WebhookChannel
from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy, parse_policy
from forebay.domain.job import ALERT_QUEUE, Job
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.maintenance.alert_delivery import deliver_due
from forebay.operations.alerts.notification_jobs import make_delivery_job
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, CHANNELS
from forebay.stores.contract.engine import Engine
from tests.app.receivers import LOCAL, LOOPBACK, Calls, Mails, served

HERE = ("127.0.0.1", "localhost", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]")  # noqa: S104 - to call
REFERENCE = "env:FOREBAY_SECRET_OPS"
ALERT = Alert(
    id="01A", severity=Severity.CRITICAL, source="mail", message="Deep", triggered_at=1_800_000_000_000
)


@pytest.fixture
def calls() -> Iterator[Calls]:
    with served(Calls()) as server:
        yield server


@pytest.fixture
def mails() -> Iterator[Mails]:
    with served(Mails()) as server:
        yield server


@pytest.fixture
def memory() -> Engine:
    return Forebay("memory://").engine


def hook(url: str, **options: Any) -> WebhookChannel:
    return WebhookChannel(name="ops", url=url, **options)


def mail(port: int, **options: Any) -> MailChannel:
    fields: dict[str, Any] = {
        "to": ("a@example.com",),
        "sender": "f@example.com",
        "tls": TlsMode.NEVER,
        **options,
    }
    return MailChannel(name="post", host=LOOPBACK, port=port, **fields)


def delivered(engine: Engine, channel: Channel, policy: DeliveryPolicy | None = None) -> Job:
    """The job of a delivery that was tried."""
    store, reader = engine.store(), engine.reader()
    ALERTS.save(store, ALERT.id, ALERT)
    CHANNELS.save(store, channel.name, channel)
    store.insert([make_delivery_job(ALERT, AlertTransition.FIRED, channel)])
    assert deliver_due(engine, policy=policy) == 1
    [line] = reader.search(JobQuery(queues=(ALERT_QUEUE,))).jobs
    [job] = reader.jobs([line.id])
    assert job is not None
    return job


def why(job: Job) -> str:
    return f"{job.errors[0].message} {job.errors[0].traceback}"


@pytest.mark.parametrize("host", HERE)
def test_a_webhook_on_this_machine_is_not_called(memory: Engine, calls: Calls, host: str) -> None:
    job = delivered(memory, hook(f"http://{host}:{calls.server_port}/latest/api/token"))

    assert job.state is JobState.RETRYING
    assert "no public address; --allow-webhooks-to" in why(job)
    assert calls.seen == []


def test_a_mail_server_on_this_machine_gets_nothing(memory: Engine, mails: Mails) -> None:
    job = delivered(memory, mail(mails.port))

    assert "no public address" in why(job)
    assert mails.seen == []


def test_an_allowed_network_is_reached(memory: Engine, calls: Calls, mails: Mails) -> None:
    policy = parse_policy("127.0.0.0/8")

    assert delivered(memory, hook(calls.url), policy).state is JobState.COMPLETED
    assert len(calls.seen) == 1


def test_a_name_keeps_its_host_header(memory: Engine, calls: Calls) -> None:
    delivered(memory, hook(f"http://localhost:{calls.server_port}/a"), LOCAL)

    [(_, headers, _)] = calls.seen
    assert headers["Host"] == f"localhost:{calls.server_port}"


def test_tls_is_asked_for_by_name(memory: Engine, tmp_path: Path) -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: names.append(name)

    def shake_hands(listener: socket.socket) -> None:
        # Without a certificate it ends after the name was told.
        with closing(listener.accept()[0]) as plain, pytest.raises(OSError):  # noqa: PT011 - of TLS
            context.wrap_socket(plain, server_side=True)

    with closing(socket.create_server((LOOPBACK, 0))) as listener:
        thread = Thread(target=shake_hands, args=(listener,))
        thread.start()
        job = delivered(memory, hook(f"https://localhost:{listener.getsockname()[1]}/"), LOCAL)
        thread.join(60)

    assert names == ["localhost"]
    assert job.state is JobState.RETRYING


def test_a_name_is_resolved_once(memory: Engine, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server of an attacker answers an allowed address first, and another one the next time."""
    lookups, real = [], socket.getaddrinfo

    def rebind(host: Any, *args: Any, **options: Any) -> Any:
        if host != "rebind.example":
            return real(host, *args, **options)
        lookups.append(host)
        return real(LOOPBACK if len(lookups) == 1 else "127.0.0.9", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    job = delivered(
        memory, hook(f"http://rebind.example:{calls.server_port}/"), parse_policy(f"{LOOPBACK}/32")
    )

    assert job.state is JobState.COMPLETED
    assert len(lookups) == 1
    assert len(calls.seen) == 1


def test_of_several_addresses_only_allowed_ones_are_tried(
    memory: Engine, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def both(host: Any, *args: Any, **options: Any) -> Any:
        if host != "both.example":
            return real(host, *args, **options)
        return [*real("127.0.0.9", *args, **options), *real(LOOPBACK, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    delivered(memory, hook(f"http://both.example:{calls.server_port}/"), parse_policy(f"{LOOPBACK}/32"))

    assert len(calls.seen) == 1


@pytest.mark.parametrize("status", [200, 302, 404, 418, 500])
def test_viewers_of_jobs_do_not_learn_what_a_host_answered(
    memory: Engine, calls: Calls, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    calls.answers = [status]
    with caplog.at_level(logging.WARNING):
        job = delivered(memory, hook(calls.url), LOCAL)

    if status == 200:
        assert job.state is JobState.COMPLETED
        return
    assert str(status) not in why(job)
    assert why(job).startswith("channel ops: it was not accepted; see the log of ")
    assert f"channel ops: the delivery failed: OSError: the receiver answered {status}" in caplog.text


def test_a_closed_port_looks_like_any_other_failure(memory: Engine, calls: Calls) -> None:
    calls.answers = [404]
    other = Forebay("memory://").engine
    with closing(socket.create_server((LOOPBACK, 0))) as listener:
        closed = listener.getsockname()[1]

    refused = delivered(memory, hook(f"http://{LOOPBACK}:{closed}/"), LOCAL)
    missing = delivered(other, hook(calls.url), LOCAL)

    assert why(refused) == why(missing)
    assert refused.errors[0].type == missing.errors[0].type


# Secrets that are kept elsewhere


def test_a_secret_of_the_environment_is_read_for_each_delivery(
    memory: Engine, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = hook(calls.url, secret=REFERENCE)
    assert "FOREBAY_SECRET_OPS is no line" in why(delivered(memory, channel, LOCAL))

    monkeypatch.setenv("FOREBAY_SECRET_OPS", "hunter2")
    other = Forebay("memory://").engine
    delivered(other, channel, LOCAL)

    [(_, headers, body)] = calls.seen
    assert headers["Forebay-Signature"] == signature(headers, body)
    kept = CHANNELS.get(other.reader(), "ops")
    assert kept is not None
    assert kept.value == channel


def signature(headers: dict[str, str], body: bytes) -> str:
    from forebay.operations.alerts.webhook_and_mail_delivery import sign  # noqa: PLC0415 - loads TLS

    return sign("hunter2", headers["Forebay-Timestamp"], body)


def test_a_secret_in_a_file_is_read_from_its_folder(memory: Engine, calls: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "..data").mkdir()
    (folder / "..data" / "ops").write_text("hunter2\n")
    (folder / "ops").symlink_to("..data/ops")  # as Kubernetes mounts secrets

    policy = parse_policy("127.0.0.0/8", str(folder))
    delivered(memory, hook(calls.url, secret=f"file:{folder}/ops"), policy)

    [(_, headers, body)] = calls.seen
    assert headers["Forebay-Signature"] == signature(headers, body)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("secrets/../outside", "is not in the folder"),
        ("secrets/link", "is not in the folder"),
        ("outside", "is not in the folder"),
        ("secrets/missing", "is no line of 1 to 500 characters"),
        ("secrets/large", "is no line of 1 to 500 characters"),
        ("secrets/binary", "is no line of 1 to 500 characters"),
        ("secrets", "is no line of 1 to 500 characters"),
    ],
)
def test_other_files_are_not_read(
    memory: Engine, calls: Calls, tmp_path: Path, name: str, message: str
) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (tmp_path / "outside").write_text("hunter2")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "large").write_text("x" * 5_000)
    (folder / "binary").write_bytes(b"\xff\xfe")

    job = delivered(
        memory, hook(calls.url, secret=f"file:{tmp_path}/{name}"), parse_policy("127.0.0.0/8", str(folder))
    )

    assert message in why(job)
    assert calls.seen == []


def test_a_file_without_a_folder_of_secrets_is_not_read(memory: Engine, calls: Calls, tmp_path: Path) -> None:
    job = delivered(memory, hook(calls.url, secret=f"file:{tmp_path}/ops"), LOCAL)

    assert "this process has no --secrets-folder" in why(job)
    assert calls.seen == []
