"""Destinations of an export of the audit log: a file, syslog, an OpenTelemetry collector."""

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
from forebay.domain.audit_chain import ChainLine, ChainLink
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
    """A destination did not take the lines; they stay in the store and are sent again."""


class Sink(Protocol):
    """One destination. `send` returns when it has the lines, as far as its protocol can tell."""

    destination: str

    def send(self, lines: Sequence[ChainLine]) -> None:
        """Raises OSError or SinkFailed."""
        ...

    def find_last(self) -> ChainLink | None:
        """The last line that the destination holds; None where it cannot be asked."""
        ...

    def close(self) -> None: ...


def open_sink(destination: str) -> Sink:
    """The destination of this name; raises ConfigError for one that means nothing."""
    kind, _, rest = destination.partition(":")
    makes: Callable[[str, str], Sink] | None = {
        "file": _FileSink,
        "syslog": _open_syslog,
        "otlp": _OtlpSink,
    }.get(kind)
    if makes is None or not rest:
        raise ConfigError(f"{destination!r:.200} is no destination; write {_FORMS}")
    try:
        return makes(destination, rest)
    except OSError as exc:
        raise ConfigError(f"{destination} cannot be opened: {exc}") from exc


def line_bytes(line: ChainLine) -> bytes:
    """A line as it is sent everywhere."""
    return msgspec.json.encode(redact_data(chain_json(line)))


class _FileSink:
    """A file with one JSON object a line, which only its owner can read. It holds its own cursor."""

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
            self._file.truncate(size)  # half a line would stand before the next try
            raise

    def find_last(self) -> ChainLink | None:
        """The last whole line. An export that was killed may have left half of one behind it, which goes."""
        whole, found = 0, b""
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            lines.seek(0)
            for line in lines:
                if line.endswith(b"\n"):
                    whole, found = whole + len(line), line
        self._file.truncate(whole)
        if not found:
            return None
        try:
            place = msgspec.json.decode(found, type=_LastEntry)
        except msgspec.MsgspecError as exc:
            raise ConfigError(f"{self.destination} holds something else than an export: {exc}") from exc
        return ChainLink(place.position, place.hash)

    def close(self) -> None:
        self._file.close()


class _LastEntry(msgspec.Struct, frozen=True):
    position: int
    hash: str


class _SyslogSink:
    """Messages of RFC 5424: one in a datagram, or counted octets on a stream (RFC 6587)."""

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
            self.close()  # the next try connects again
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
            # The hash tells that something is missing; the store has it.
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
    """Log records for a collector, as OTLP over HTTP in its JSON form."""

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
            raise SinkFailed(f"{self.destination} gave no answer of HTTP: {exc!r}") from exc
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
        """Each batch has a connection of its own."""


class _PartialSuccess(msgspec.Struct, frozen=True, rename="camel"):
    rejected_log_records: int | str = 0
    error_message: str = ""


class _ExportResponse(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _PartialSuccess = _PartialSuccess()


def _check_accepted(destination: str, content: bytes) -> None:
    """Raise for records that a collector has refused one by one."""
    try:
        partial = msgspec.json.decode(content or b"{}", type=_ExportResponse).partial_success
    except msgspec.MsgspecError:
        return  # it has said that it took them, in a form of its own
    if int(partial.rejected_log_records):
        raise SinkFailed(
            f"{destination} refused {partial.rejected_log_records} lines: {partial.error_message:.200}"
        )


def otlp_body(lines: Sequence[ChainLine]) -> bytes:
    """One request of OTLP with a log record for each line."""
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
    """What OpenTelemetry's own variable says, such as the key of a collector."""
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
        raise ConfigError(f"{destination!r:.200} is no destination; write {_FORMS}")
    if address.username or address.password:
        raise ConfigError(f"a destination holds no password; give it in {HEADERS}")
    return address
