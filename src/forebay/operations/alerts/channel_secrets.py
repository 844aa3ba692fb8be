"""Secrets of alert channels: read from the environment or from files."""

from __future__ import annotations

import os
from pathlib import Path

from forebay.domain.alert_channel import MAX_SECRET, secret_reference
from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
from forebay.operations.alerts.outbound_connections import DeliveryFailed


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
