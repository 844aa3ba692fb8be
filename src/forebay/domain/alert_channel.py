"""Alert channels: webhooks and mail."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from forebay.domain.alert import Severity
from forebay.domain.job_validation import check_text
from forebay.errors import ConfigError, InvalidJob

MAX_URL: Final = 2_000
MAX_SECRET: Final = 500
MAX_RECEIVERS: Final = 50
MASK: Final = "***"
# Only these: an administrator of alerts must not read other variables, such as the encryption keys.
SECRET_VARIABLE_PREFIX: Final = "FOREBAY_SECRET_"  # noqa: S105 - a prefix of names
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,50}\Z")
_VARIABLE: Final = re.compile(rf"{SECRET_VARIABLE_PREFIX}[A-Z0-9_]{{1,100}}\Z")
# Enough to prevent header injection; only the mail server knows whether the address exists.
_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"\\()\[\]]+@[^\s@<>,;:\"\\()\[\]]+\Z")


class TlsMode(StrEnum):
    """Use of TLS with a mail server."""

    STARTTLS = "starttls"
    ALWAYS = "always"
    NEVER = "never"


class WebhookChannel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="webhook"):
    """Webhook that receives a POST for each alert that is raised or resolved. With a `secret` each call is
    signed. The secret may be a reference (`env:NAME`, `file:PATH`), resolved for each delivery."""

    name: str
    url: str
    secret: str = ""
    severity: Severity = Severity.INFO
    enabled: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name)
        check_url(self.url)
        _check_secret("secret", self.secret)

    def public_view(self) -> WebhookChannel:
        """Return the channel as people may see it. Many services put a token into the path of an address."""
        address = urlsplit(self.url)
        hidden = f"{address.scheme}://{address.netloc}/{MASK}"
        return replace(self, url=hidden, secret=_mask_secret(self.secret))

    @property
    def is_masked(self) -> bool:
        """Return whether the address or the secret is masked: the webhook cannot be called."""
        return self.secret == MASK or urlsplit(self.url).path == f"/{MASK}"

    @property
    def destination(self) -> tuple[object, ...]:
        """Return the server that learns the secret of this channel from calls."""
        address = urlsplit(self.url)
        return address.scheme, address.hostname, address.port or _PORTS[address.scheme]


class MailChannel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="email"):
    """Mail to these receivers through a mail server. The `password` may be a reference, like the secret of
    a webhook."""

    name: str
    to: tuple[str, ...]
    sender: str
    host: str
    port: int = 587
    tls: TlsMode = TlsMode.STARTTLS
    username: str = ""
    password: str = ""
    severity: Severity = Severity.INFO
    enabled: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not 1 <= len(self.to) <= MAX_RECEIVERS:
            raise ConfigError(f"channel {self.name} needs 1 to {MAX_RECEIVERS} receivers")
        for address in (*self.to, self.sender):
            if not _ADDRESS.match(address):
                raise ConfigError(f"{address!r:.60} is no address of a mail")
        try:
            check_text("host", self.host)
            if self.username:
                check_text("username", self.username)
        except InvalidJob as exc:
            raise ConfigError(f"channel {self.name}: {exc}") from exc
        if not 1 <= self.port <= 65_535:  # noqa: PLR2004 - the range of ports
            raise ConfigError(f"a port is from 1 to 65535, not {self.port!r:.20}")
        _check_secret("password", self.password)
        if self.password and self.tls is TlsMode.NEVER:
            raise ConfigError(f"channel {self.name} would send its password in the clear; use starttls")

    def public_view(self) -> MailChannel:
        """Return the channel as people may see it."""
        return replace(self, password=_mask_secret(self.password))

    @property
    def is_masked(self) -> bool:
        """Return whether the password is masked: no mail can be sent."""
        return self.password == MASK

    @property
    def destination(self) -> tuple[object, ...]:
        """Return the server that learns the password of this channel, and over which connection."""
        return self.host, self.port, self.tls, self.username


Channel: TypeAlias = WebhookChannel | MailChannel


def check_url(url: str) -> None:
    """Raise ConfigError unless this URL can be called: http or https, a host, no credentials."""
    try:
        check_text("url", url, max_length=MAX_URL)
        address = urlsplit(url)
        has_port = address.port is None or address.port > 0
    except (InvalidJob, ValueError) as exc:
        raise ConfigError(f"a webhook needs an address: {exc}") from exc
    if address.scheme not in ("http", "https") or not address.hostname or not has_port or not url.isascii():
        raise ConfigError("a webhook is called by http or https: write https://host/path")
    if " " in url or address.username is not None or address.password is not None:
        raise ConfigError(
            "the address of a webhook has no blanks and no name or password; sign with a secret"
        )


def secret_reference(secret: str) -> tuple[str, str] | None:
    """Return kind and name of a secret that is stored elsewhere (`env:NAME` or `file:PATH`); None for a
    literal one."""
    kind, colon, name = secret.partition(":")
    return (kind, name) if colon and kind in ("env", "file") else None


def _mask_secret(secret: str) -> str:
    return MASK if secret and secret_reference(secret) is None else secret


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(f"{name!r:.60} cannot be the name of a channel: up to 50 of A-Z, a-z, 0-9, _ . -")


def _check_secret(field: str, value: str) -> None:
    # The value itself stays out of the message.
    if len(value) > MAX_SECRET or not value.isprintable():
        raise ConfigError(f"a {field} is a line of at most {MAX_SECRET} characters")
    match secret_reference(value):
        case "env", name if not _VARIABLE.match(name):
            raise ConfigError(f"a {field} in the environment is written env:{SECRET_VARIABLE_PREFIX}NAME")
        case "file", name if not name.startswith("/"):
            raise ConfigError(f"a {field} in a file is written file:/absolute/path")
