"""Outbound connections of deliveries, to addresses that the policy allows."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from forebay.domain.alert_channel import MAX_SECRET, secret_reference
from forebay.domain.alert_delivery_policy import DeliveryPolicy

_TO_ALLOW: Final = "--allow-webhooks-to, FOREBAY_ALLOW_WEBHOOKS_TO or allow_webhooks_to allows it"


class DeliveryFailed(Exception):
    """A delivery that was not accepted. Viewers of jobs read its text, so it has no address and no answer."""


def connect(policy: DeliveryPolicy, host: str, port: int, timeout: float) -> socket.socket:
    """Resolve the host once and connect to an address that the policy allows."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [text for text in dict.fromkeys(str(info[4][0]) for info in infos) if policy.allows(text)]
    if not addresses:
        raise DeliveryFailed(f"its host has no public address; {_TO_ALLOW}")
    error = OSError("no address")
    for address in addresses:
        try:
            # By number: a second look-up of the name could return another address (DNS rebinding).
            return socket.create_connection((address, port), timeout)
        except OSError as exc:
            error = exc
    raise error


def resolve_secret(policy: DeliveryPolicy, secret: str) -> str:
    """Return the secret that `env:NAME` or `file:PATH` refers to, or the secret itself; raise
    DeliveryFailed."""
    match secret_reference(secret):
        case "env", name:
            value = os.environ.get(name)
        case "file", path:
            value = _read_secret_file(policy, path)
        case _:
            return secret
    if not value or len(value) > MAX_SECRET or not value.isprintable():
        raise DeliveryFailed(
            f"its secret {secret} is no line of 1 to {MAX_SECRET} characters in this process"
        )
    return value


def _read_secret_file(policy: DeliveryPolicy, path: str) -> str | None:
    if policy.secrets_folder is None:
        raise DeliveryFailed(f"its secret {path} is in a file, and this process has no --secrets-folder")
    # Resolved: neither `..` nor a link may lead out of the folder.
    file = Path(path).resolve()
    if not file.is_relative_to(Path(policy.secrets_folder).resolve()):
        raise DeliveryFailed(f"its secret {path} is not in the folder that --secrets-folder names")
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_SECRET + 2).rstrip("\n")
    except (OSError, ValueError):
        return None
