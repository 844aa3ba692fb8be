"""Where news of alerts go: an address that is called, or people who get a mail."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from forebay.domain.alert import Severity
from forebay.domain.job import check_text
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
# Enough to keep other headers out; whether somebody reads it is known to their server alone.
_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"\\()\[\]]+@[^\s@<>,;:\"\\()\[\]]+\Z")


class TlsMode(StrEnum):
    """How a mail server is spoken to."""

    STARTTLS = "starttls"
    ALWAYS = "always"
    NEVER = "never"


class WebhookChannel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="webhook"):
    """An address that is called with a POST for each alert that is raised or resolved. With a `secret` each
    call is signed. It may be a reference (`env:NAME`, `file:PATH`) that is resolved for each delivery."""

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
        """The same for people to see. Many services put a token into the path of an address."""
        found = urlsplit(self.url)
        hidden = f"{found.scheme}://{found.netloc}/{MASK}"
        return replace(self, url=hidden, secret=_mask_secret(self.secret))

    @property
    def is_masked(self) -> bool:
        """Whether a mask stands in the place of the address or the secret: it cannot be called."""
        return self.secret == MASK or urlsplit(self.url).path == f"/{MASK}"

    @property
    def destination(self) -> tuple[object, ...]:
        """The server that is told the secret of this channel by calls."""
        address = urlsplit(self.url)
        return address.scheme, address.hostname, address.port or _PORTS[address.scheme]


class MailChannel(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="email"):
    """Mails to these people, by way of a server that takes them. The `password` may be a reference, like the
    secret of a webhook."""

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
        if not 1 <= self.port <= 65_535:  # noqa: PLR2004 - as many as there are
            raise ConfigError(f"a port is from 1 to 65535, not {self.port!r:.20}")
        _check_secret("password", self.password)
        if self.password and self.tls is TlsMode.NEVER:
            raise ConfigError(f"channel {self.name} would send its password in the clear; use starttls")

    def public_view(self) -> MailChannel:
        """The same for people to see."""
        return replace(self, password=_mask_secret(self.password))

    @property
    def is_masked(self) -> bool:
        """Whether a mask stands in the place of the password: it cannot be sent."""
        return self.password == MASK

    @property
    def destination(self) -> tuple[object, ...]:
        """The server that is told the password of this channel, and how."""
        return self.host, self.port, self.tls, self.username


Channel: TypeAlias = WebhookChannel | MailChannel


def check_url(url: str) -> None:
    """Raise ConfigError unless this can be called: http or https, a host, no credentials."""
    try:
        check_text("url", url, max_length=MAX_URL)
        found = urlsplit(url)
        has_port = found.port is None or found.port > 0
    except (InvalidJob, ValueError) as exc:
        raise ConfigError(f"a webhook needs an address: {exc}") from exc
    if found.scheme not in ("http", "https") or not found.hostname or not has_port or not url.isascii():
        raise ConfigError("a webhook is called by http or https: write https://host/path")
    if " " in url or found.username is not None or found.password is not None:
        raise ConfigError(
            "the address of a webhook has no blanks and no name or password; sign with a secret"
        )


def secret_reference(secret: str) -> tuple[str, str] | None:
    """The kind and the name of a secret that is kept elsewhere: `env:NAME` or `file:PATH`; None for one that
    is given itself."""
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
