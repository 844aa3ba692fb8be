"""Outbound connections of deliveries, to addresses that the policy allows."""

from __future__ import annotations

import socket
from typing import Final

from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy

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
