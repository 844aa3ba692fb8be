"""Sinks of the audit export: file, syslog, OpenTelemetry collector."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from forebay.cli.json_format import chain_json, iso_instant
from forebay.cli.redaction import redact_data
from forebay.domain.audit_hash_chain import ChainLine, ChainLink
from forebay.errors import ConfigError, ForebayError

TIMEOUT_SECONDS: Final = 10.0
# RFC 5424: facility 13 (log audit), severity 5 (notice).
_PRIORITY: Final = 13 * 8 + 5
_MAX_DATAGRAM_BYTES: Final = 60_000
_NAME: Final = "forebay"
_INFO: Final = 9  # severity number of OpenTelemetry
_NS_IN_MS: Final = 1_000_000
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_FORMS: Final = "file:PATH, syslog:udp://HOST:PORT, syslog:tcp://HOST:PORT or otlp:http(s)://HOST:PORT"


class SinkFailed(ForebayError):
    """A destination did not accept the entries; they stay in the store and are sent again."""


class Sink(Protocol):
    """Destination of an export. `send` returns when the destination has the entries, as far as the protocol
    can tell."""

    destination: str

    def send(self, lines: Sequence[ChainLine]) -> None:
        """Send entries; raise OSError or SinkFailed."""
        ...

    def find_last(self) -> ChainLink | None:
        """Return the last entry at the destination; None if it cannot be read."""
        ...

    def close(self) -> None: ...


def open_sink(destination: str) -> Sink:
    """Open the sink of a destination; raise ConfigError for an invalid one."""
    kind, _, rest = destination.partition(":")
    sink_type: Callable[[str, str], Sink] | None = {
        "file": _FileSink,
        "syslog": _open_syslog,
        "otlp": _OtlpSink,
    }.get(kind)
    if sink_type is None or not rest:
        raise ConfigError(f"{destination!r:.200} is not a destination; write {_FORMS}")
    try:
        return sink_type(destination, rest)
    except OSError as exc:
        raise ConfigError(f"{destination} cannot be opened: {exc}") from exc


def line_bytes(line: ChainLine) -> bytes:
    """Return an entry as the JSON that all sinks send."""
    return msgspec.json.encode(redact_data(chain_json(line)))


class _FileSink:
    """File with one JSON object per line, readable only by its owner. Its last line is the cursor."""

    def __init__(self, destination: str, path: str) -> None:
        self.destination = f"file:{Path(path).absolute()}"
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b", buffering=0)

    def send(self, lines: Sequence[ChainLine]) -> None:
        size = os.fstat(self._file.fileno()).st_size
        rest = memoryview(b"".join(line_bytes(line) + b"\n" for line in lines))
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)  # remove a partial line before the retry
            raise

    def find_last(self) -> ChainLink | None:
        """Return the last complete line; remove a partial line that a killed export has left."""
        size, last = 0, b""
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            lines.seek(0)
            for line in lines:
                if line.endswith(b"\n"):
                    size, last = size + len(line), line
        self._file.truncate(size)
        if not last:
            return None
        try:
            entry = msgspec.json.decode(last, type=_LastEntry)
        except msgspec.MsgspecError as exc:
            raise ConfigError(f"{self.destination} is not an export: {exc}") from exc
        return ChainLink(entry.position, entry.hash)

    def close(self) -> None:
        self._file.close()


class _LastEntry(msgspec.Struct, frozen=True):
    position: int
    hash: str


class _SyslogSink:
    """Messages of RFC 5424: one per datagram, or octet-counted on a stream (RFC 6587)."""

    def __init__(self, destination: str, address: tuple[str, int], *, is_stream: bool) -> None:
        self.destination = destination
        self._address = address
        self._is_stream = is_stream
        self._socket: socket.socket | None = None

    def send(self, lines: Sequence[ChainLine]) -> None:
        try:
            connected = self._socket = self._socket or self._connect()
            for line in lines:
                connected.sendall(self._frame(line))
        except OSError:
            self.close()  # the retry connects again
            raise

    def _connect(self) -> socket.socket:
        if self._is_stream:
            return socket.create_connection(self._address, TIMEOUT_SECONDS)
        [(family, kind, *_, address), *_] = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
        connected = socket.socket(family, kind)
        connected.connect(address)
        return connected

    def _frame(self, line: ChainLine) -> bytes:
        message = syslog_message(line, line_bytes(line))
        if self._is_stream:
            return b"%d %b" % (len(message), message)
        if len(message) > _MAX_DATAGRAM_BYTES:
            # Without `before` and `after`: the hash shows that they are missing, and the store has them.
            short = {
                name: value for name, value in chain_json(line).items() if name not in ("before", "after")
            }
            message = syslog_message(line, msgspec.json.encode(redact_data(short)))
        return message

    def find_last(self) -> ChainLink | None:
        return None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def syslog_message(line: ChainLine, content: bytes) -> bytes:
    head = f"<{_PRIORITY}>1 {iso_instant(line.event.occurred_at)} {socket.gethostname()} {_NAME} - audit - "
    return head.encode() + content


def _open_syslog(destination: str, rest: str) -> Sink:
    address = _parse_address(destination, rest, ("udp", "tcp"))
    return _SyslogSink(
        destination, (address.hostname or "", address.port or 514), is_stream=address.scheme == "tcp"
    )


class _OtlpSink:
    """Log records for an OpenTelemetry collector, as OTLP over HTTP with JSON."""

    def __init__(self, destination: str, rest: str) -> None:
        self.destination = destination
        self._address = _parse_address(destination, rest, ("http", "https"))
        self._path = self._address.path if self._address.path not in ("", "/") else "/v1/logs"
        self._headers = {"Content-Type": "application/json", **_read_headers()}

    def send(self, lines: Sequence[ChainLine]) -> None:
        connection = self._connect()
        try:
            connection.request("POST", self._path, otlp_body(lines), self._headers)
            answer = connection.getresponse()
            content = answer.read()
        except HTTPException as exc:
            raise SinkFailed(f"{self.destination} gave no HTTP response: {exc!r}") from exc
        finally:
            connection.close()
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - what HTTP calls success
            raise SinkFailed(f"{self.destination} answered {answer.status}")
        _check_accepted(self.destination, content)

    def _connect(self) -> HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "https":
            return HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
        return HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def find_last(self) -> ChainLink | None:
        return None

    def close(self) -> None:
        """Do nothing: each batch has its own connection."""


class _PartialSuccess(msgspec.Struct, frozen=True, rename="camel"):
    rejected_log_records: int | str = 0
    error_message: str = ""


class _ExportResponse(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess = _PartialSuccess()


def _check_accepted(destination: str, content: bytes) -> None:
    """Raise SinkFailed for records that the collector has rejected (OTLP partial success)."""
    try:
        partial = msgspec.json.decode(content or b"{}", type=_ExportResponse).partial_success
    except msgspec.MsgspecError:
        return  # the status was a success, with a body of another form
    if int(partial.rejected_log_records):
        raise SinkFailed(
            f"{destination} rejected {partial.rejected_log_records} entries: {partial.error_message:.200}"
        )


def otlp_body(lines: Sequence[ChainLine]) -> bytes:
    """Return an OTLP request with a log record for each entry."""
    records = [
        {
            "timeUnixNano": str(line.event.occurred_at * _NS_IN_MS),
            "severityNumber": _INFO,
            "severityText": "INFO",
            "body": {"stringValue": line_bytes(line).decode()},
            "attributes": _attributes(_log_attributes(line)),
        }
        for line in lines
    ]
    resource = {"attributes": _attributes({"service.name": _NAME, "host.name": socket.gethostname()})}
    scope = {"scope": {"name": "forebay.audit"}, "logRecords": records}
    return msgspec.json.encode({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]})


def _log_attributes(line: ChainLine) -> dict[str, Any]:
    fields = redact_data(chain_json(line))
    names = ("position", "kind", "actor", "request", "queue", "job_id")
    return {f"forebay.audit.{name}": fields[name] for name in names if fields[name] is not None}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": str(value)}} for name, value in values.items()]


def _read_headers() -> dict[str, str]:
    """Read the headers of OpenTelemetry's own variable, such as the key of a collector."""
    given = os.environ.get(HEADERS, "")
    pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _parse_address(destination: str, rest: str, schemes: Sequence[str]) -> SplitResult:
    try:
        address = urlsplit(rest)
        is_known = address.scheme in schemes and bool(address.hostname) and address.port != 0
    except ValueError:
        is_known = False
    if not is_known:
        raise ConfigError(f"{destination!r:.200} is not a destination; write {_FORMS}")
    if address.username or address.password:
        raise ConfigError(f"a destination has no password; set it in {HEADERS}")
    return address
