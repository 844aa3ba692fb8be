"""Delivery of alert notifications by webhook and mail.

A webhook is a POST with a JSON body. With a secret it is signed: `Forebay-Signature` is `v1=` and, in hex,
the HMAC-SHA256 of the `Forebay-Timestamp`, a dot and the body. `Forebay-Delivery` is the same in all retries.
Redirects are not followed: only the administrator chooses the address. Connections go to public addresses,
and to networks that the policy of this process allows.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import smtplib
import socket
import ssl
from contextlib import closing
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPSConnection
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Final, assert_never
from urllib.parse import SplitResult, urlsplit

import msgspec

from forebay.clock import SystemClock
from forebay.domain.alert import Alert, AlertTransition
from forebay.domain.alert_channel import Channel, MailChannel, TlsMode, WebhookChannel
from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
from forebay.domain.durations_and_instants import as_datetime
from forebay.domain.job import Job
from forebay.operations.alerts.channel_secrets import resolve_secret
from forebay.operations.alerts.outbound_connections import DeliveryFailed, connect
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERTS, CHANNELS
from forebay.stores.contract.reader import Reader
from forebay.telemetry.host_name import host_name

TIMEOUT_SECONDS: Final = 10.0
DELIVERY_SECONDS: Final = 60.0
SIGNATURE: Final = "Forebay-Signature"
TIMESTAMP: Final = "Forebay-Timestamp"
DELIVERY: Final = "Forebay-Delivery"


logger: logging.Logger = logging.getLogger(__name__)


class ChannelLocked(Exception):
    """The channel is encrypted with a key that this process lacks."""


class _DeliveryThread(Thread):
    """Thread of one delivery, so that the caller can continue without it. A DNS look-up may take minutes, and
    an answer may come byte by byte: no socket time-out ends these."""

    def __init__(self, channel: Channel, alert: Alert, step: str, policy: DeliveryPolicy) -> None:
        super().__init__(name="forebay-delivery", daemon=True)
        self.channel = channel
        self.is_late = False
        self.error: Exception | None = None
        self._alert = alert
        self._step = step
        self._policy = policy

    def run(self) -> None:
        name = self.channel.name
        try:
            send(self.channel, self._alert, AlertTransition(self._step), self._policy)
        except DeliveryFailed as exc:
            self.error = DeliveryFailed(f"channel {name}: {exc}")
        except Exception as exc:
            # Jobs can be read with the role `view`. Answers and errors of a connection would make alerts a
            # scanner of ports and paths, so they are only logged.
            logger.warning("channel %s: the delivery failed: %s: %s", name, type(exc).__name__, exc)
            self.error = DeliveryFailed(f"channel {name}: it was not accepted; see the log of {host_name()}")


def deliver(
    reader: Reader, job: Job, timeout: float = DELIVERY_SECONDS, policy: DeliveryPolicy | None = None
) -> Exception | None:
    """Run a delivery job; return the error of a failure. Nothing is sent for a deleted alert or channel, nor
    for a transition that is not the alert's last one."""
    alert_id, step, name = (str(job.metadata.get(field, "")) for field in ("alert", "step", "channel"))
    alert, channel = ALERTS.get(reader, alert_id), CHANNELS.get(reader, name)
    if alert is None or channel is None or not channel.value.enabled:
        return None
    if step != alert.value.transition:
        # A later notification follows, or came before: a late retry must not reopen a resolved alert, and
        # the program that wrote this job may be wrong about the alert.
        return None
    if channel.value.is_masked:
        return ChannelLocked(f"channel {name} is encrypted with a key that this process lacks")
    # A hanging delivery is abandoned, and blocks its channel until it has ended: so there is at most one for
    # each channel.
    if any(
        isinstance(thread, _DeliveryThread) and thread.is_late and thread.channel.name == name
        for thread in enumerate_threads()
    ):
        return DeliveryFailed(f"channel {name}: an earlier delivery still hangs")
    delivery = _DeliveryThread(channel.value, alert.value, step, policy or DeliveryPolicy())
    delivery.start()
    delivery.join(timeout)
    if delivery.is_alive():
        delivery.is_late = True
        return DeliveryFailed(f"channel {name}: it took more than {timeout:g} seconds")
    return delivery.error


def send(channel: Channel, alert: Alert, step: AlertTransition, policy: DeliveryPolicy) -> None:
    """Send a notification of an alert to a channel; raise on failure."""
    match channel:
        case WebhookChannel():
            _post_webhook(channel, alert, step, policy)
        case MailChannel():
            _send_mail(channel, alert, step, policy)
        case _:
            assert_never(channel)


def webhook_body(alert: Alert, step: AlertTransition) -> bytes:
    """Return the body of a webhook; times as texts."""
    shown = msgspec.to_builtins(alert)
    for name in ("triggered_at", "acknowledged_at", "resolved_at"):
        at = as_datetime(shown[name])
        shown[name] = None if at is None else at.isoformat()
    return msgspec.json.encode({"event": f"alert.{step}", "alert": shown})


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body and its timestamp with the shared secret."""
    signed = timestamp.encode() + b"." + body
    return f"v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def _post_webhook(
    channel: WebhookChannel, alert: Alert, step: AlertTransition, policy: DeliveryPolicy
) -> None:
    address = urlsplit(channel.url)
    body = webhook_body(alert, step)
    timestamp = str(SystemClock().now_ms() // 1_000)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "forebay-alerts",
        TIMESTAMP: timestamp,
        DELIVERY: f"{alert.id}.{step}",
    }
    if channel.secret:
        headers[SIGNATURE] = sign(resolve_secret(policy, channel.secret), timestamp, body)
    path = (address.path or "/") + (f"?{address.query}" if address.query else "")
    with closing(_open_connection(address, policy)) as connection:
        connection.request("POST", path, body, headers)
        status = connection.getresponse().status
    if not 200 <= status < 300:  # noqa: PLR2004 - the success range of HTTP
        raise OSError(f"the receiver answered {status}")


def _open_connection(address: SplitResult, policy: DeliveryPolicy) -> HTTPConnection:
    """Connect to the checked address; the Host header and TLS use the name."""
    host, is_tls = address.hostname or "", address.scheme == "https"
    kind = HTTPSConnection if is_tls else HTTPConnection
    connection = kind(host, address.port, timeout=TIMEOUT_SECONDS)
    raw = connect(policy, host, connection.port, TIMEOUT_SECONDS)
    connection.sock = _wrap_tls(raw, host) if is_tls else raw
    connection.auto_open = 0  # a reconnect would resolve the name again, perhaps to another address
    return connection


def _wrap_tls(raw: socket.socket, host: str) -> socket.socket:
    try:
        return ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except BaseException:
        raw.close()
        raise


def _send_mail(channel: MailChannel, alert: Alert, step: AlertTransition, policy: DeliveryPolicy) -> None:
    password = resolve_secret(policy, channel.password)
    with _MailServer(channel, policy) as server:
        if channel.tls is TlsMode.STARTTLS:
            server.starttls(context=ssl.create_default_context())
        if channel.username:
            server.login(channel.username, password)
        refused = server.send_message(build_mail(channel, alert, step))
    if refused:
        # The accepted recipients get it again with the next attempt: better twice than never.
        raise OSError(f"the server refused {', '.join(sorted(refused))}")


class _MailServer(smtplib.SMTP):
    """A mail server at a checked address."""

    def __init__(self, channel: MailChannel, policy: DeliveryPolicy) -> None:
        self._tls, self._policy = channel.tls, policy
        super().__init__(channel.host, channel.port, timeout=TIMEOUT_SECONDS)

    # The hook by which the library's own SMTP_SSL gets its socket.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        raw = connect(self._policy, host, port, timeout)
        return _wrap_tls(raw, host) if self._tls is TlsMode.ALWAYS else raw


def build_mail(channel: MailChannel, alert: Alert, step: AlertTransition) -> EmailMessage:
    """Build the mail. Text from users cannot add a header: `EmailMessage` refuses line breaks there, and
    neither rules nor alerts can contain one."""
    message = EmailMessage()
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.to)
    # A task's name may contain U+2028 or U+0085, which `EmailMessage` takes for a line break.
    message["Subject"] = " ".join(f"[{alert.severity.upper()}] {step}: {alert.message}".splitlines())
    message["Message-ID"] = f"<{alert.id}.{step}.{channel.name}@forebay>"
    at = as_datetime(alert.triggered_at)
    lines = [
        alert.message,
        "",
        f"alert:     {alert.id}",
        f"severity:  {alert.severity}",
        f"source:    {alert.source}",
        f"triggered: {at.isoformat() if at else ''}",
    ]
    if alert.condition:
        lines.append(f"condition: {alert.condition}")
    message.set_content("\n".join(lines) + "\n")
    return message
