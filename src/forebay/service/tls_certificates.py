"""TLS of the server: its certificate, and the CA of client certificates.

The files are checked before each handshake and read again when they have changed, so a renewed certificate
needs no restart. The check costs a few microseconds, a handshake a millisecond. Open connections keep the
certificate of their handshake.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from forebay.errors import ConfigError

T = TypeVar("T")

ClientCertificate = Literal["required", "optional"]
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-][A-Za-z0-9_.@ -]{0,99}\Z")

logger: logging.Logger = logging.getLogger(__name__)


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of a server. `certificate` may include the private key. With `client_ca`, clients are asked
    for certificates of that CA."""

    certificate: str
    private_key: str | None = None
    client_ca: str | None = None
    client_certificate: ClientCertificate = "required"

    @property
    def paths(self) -> tuple[str, ...]:
        named = (self.certificate, self.private_key, self.client_ca)
        return tuple(path for path in named if path is not None)

    @property
    def requests_client_certificates(self) -> bool:
        """Whether a client without a certificate is refused."""
        return self.client_ca is not None and self.client_certificate == "required"

    def load(self) -> ssl.SSLContext:
        """Return a context with these files; raises ConfigError for an unusable one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.private_key)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"the certificate {self.certificate} cannot be used: {exc}") from exc
        if self.client_ca is not None:
            try:
                context.load_verify_locations(cafile=self.client_ca)
            except (OSError, ValueError) as exc:
                raise ConfigError(f"the authority of clients {self.client_ca} cannot be used: {exc}") from exc
            context.verify_mode = (
                ssl.CERT_REQUIRED if self.requests_client_certificates else ssl.CERT_OPTIONAL
            )
        return context

    def pem(self) -> tuple[bytes, bytes, bytes | None]:
        """Return private key, chain and client CA for gRPC; raises ConfigError."""
        self.load()  # gRPC reports a mismatched pair only as failed handshakes
        try:
            key, chain = self.private_key or self.certificate, self.certificate
            authority = None if self.client_ca is None else Path(self.client_ca).read_bytes()
            return Path(key).read_bytes(), Path(chain).read_bytes(), authority
        except OSError as exc:
            raise ConfigError(f"the certificate {self.certificate} cannot be used: {exc}") from exc


class FileBackedValue(Generic[T]):
    """Value read from files, and read again when they have changed.

    A renewal writes several files, one after the other. Unreadable files are tried again at each handshake,
    and the old value stays. Two threads that check at the same moment read the same files twice, which does
    no harm.
    """

    def __init__(self, paths: Sequence[str], read: Callable[[], T]) -> None:
        self._paths = paths
        self._read = read
        # Before the files are read: a change during the read is noticed at the next check.
        self._stamp: object = self._read_stamps()
        self._failed_stamp: object = None
        self._value = read()

    def current(self) -> T:
        stamp = self._read_stamps()
        if stamp == self._stamp:
            return self._value
        try:
            self._value = self._read()
        except ConfigError as exc:
            if stamp != self._failed_stamp:
                self._failed_stamp = stamp
                logger.error("%s; the old one stays in use", exc)
            return self._value
        self._stamp = stamp
        logger.info("certificates were read again: %s", ", ".join(self._paths))
        return self._value

    def _read_stamps(self) -> object:
        return tuple(_read_stamp(path) for path in self._paths)


def _read_stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # follows links: Kubernetes renews a secret by another target
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class _ReloadingContext(ssl.SSLContext):
    """Context that delegates each connection to the context of the present files.

    asyncio takes one context for the life of a listener, and asks it for an object per connection. Loading a
    new certificate into a context in use is not atomic: a handshake between certificate and key would fail.
    """

    files: FileBackedValue[ssl.SSLContext]

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        return self.files.current().wrap_bio(*args, **more)


def make_reloading_context(certificates: Certificates) -> ssl.SSLContext:
    """Return a context for a listener whose files may change; raises ConfigError."""
    context = _ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
    context.files = FileBackedValue(certificates.paths, certificates.load)
    return context


def subject_name(certificate: object) -> str | None:
    """Return the common name of a verified certificate, as Python's ssl represents it."""
    if not isinstance(certificate, dict):
        return None
    fields = (field for group in certificate.get("subject", ()) for field in group)
    return common_name(next((value for name, value in fields if name == "commonName"), None))


def common_name(name: str | bytes | None) -> str | None:
    """Return a common name that is safe to log; None for another."""
    try:
        text = name.decode() if isinstance(name, bytes) else name
    except UnicodeDecodeError:
        return None
    return text if text is not None and _NAME.match(text) else None
