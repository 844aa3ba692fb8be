"""`forebay audit verify` and `export`: to files, real sockets and a real collector of HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Final

import pytest

from forebay.cli.audit_sinks import HEADERS
from forebay.domain.job_history import Event, EventKind
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.sqlite.store import SqliteStore
from tests.cli.command_runner import DEADLINE, answer, call, command, environment, refusal
from tests.stores.sqlite_support import raw

PATIENCE: Final = 60.0
FILE: Final = ("audit", "export", "--once", "--to", "file:audit.jsonl")


def act(store: Store, *details: str) -> None:
    store.record_events(
        [Event(kind=EventKind.API_KEY_CHANGED, actor="ann#r1", detail=detail) for detail in details]
    )


def tamper(statement: str) -> None:
    with raw(Path("jobs.db")) as connection:
        connection.execute(statement)


def exported() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]


def details(lines: list[dict[str, Any]]) -> str:
    return "".join(line["detail"] for line in lines)


# Verify


@pytest.mark.shows("R-SEC-12")
def test_an_unchanged_log_fits(store: Store, reader: Reader) -> None:
    assert call("audit", "verify").stdout == "0 entries are intact\n"
    act(store, "a", "b")
    store.chain_audit()
    act(store, "c")

    found = answer("audit", "verify")

    head = reader.audit_chain()[-1]
    assert found == {
        "is_sound": True,
        "lines": 2,
        "head": {"position": 2, "hash": head.hash},
        "unchained": 1,
        "flaw": None,
    }
    assert call("audit", "verify").stdout == (
        f"2 entries are intact, up to position 2 ({head.hash}); 1 newer ones are not in the chain yet\n"
    )


def test_the_first_line_that_does_not_fit_is_named_and_the_status_is_1(store: Store) -> None:
    act(store, "a", "b", "c")
    store.chain_audit()
    tamper("update forebay_audit set actor = 'bob' where position >= 2")

    result = call("audit", "verify", "--json")

    reason = "its content does not fit its hash"
    assert (result.exit_code, json.loads(result.stdout)["flaw"]) == (
        1,
        {"position": 2, "number": 2, "reason": reason},
    )
    result = call("audit", "verify")
    assert (result.exit_code, result.stdout) == (
        1,
        f"position 2 (entry 2 of the log) is wrong: {reason}. 1 entries before it are intact\n",
    )


def test_an_export_finds_a_log_that_was_written_anew_or_cut_short(store: Store) -> None:
    act(store, "a", "b", "c")
    answer(*FILE)
    assert answer("audit", "verify", "--against", "audit.jsonl")["is_sound"]
    tamper("delete from forebay_audit where position = 3")

    assert answer("audit", "verify")["is_sound"]
    cut = call("audit", "verify", "--against", "audit.jsonl")
    assert (cut.exit_code, cut.stdout) == (
        1,
        "position 3 is wrong: lines up to position 3 were exported, and the log ends before. "
        "2 entries before it are intact\n",
    )
    act(store, "x")
    store.chain_audit()
    anew = call("audit", "verify", "--against", "audit.jsonl")
    assert (anew.exit_code, "it is not the line that was exported" in anew.stdout) == (1, True)


def test_what_is_no_export_is_refused(store: Store) -> None:
    Path("other.txt").write_text("hello\n")

    assert "other.txt is not an export" in refusal("audit", "verify", "--against", "other.txt")["message"]


def test_options_before_a_command_are_not_passed_over(store: Store) -> None:
    result = call("audit", "--url", "sqlite:///other.db", "verify")

    assert (result.exit_code, "write options after `verify`" in result.stderr) == (2, True)


# A file


@pytest.mark.shows("R-HIST-29")
def test_a_file_gets_each_line_once_and_oldest_first(store: Store, reader: Reader) -> None:
    act(store, "a", "b")
    assert answer(*FILE) == {"sent": 2, "flaws": 0}
    act(store, "c")
    assert answer(*FILE) == {"sent": 1, "flaws": 0}
    assert answer(*FILE) == {"sent": 0, "flaws": 0}

    lines = exported()
    assert details(lines) == "abc"
    assert [(line["actor"], line["request"]) for line in lines] == [("ann", "r1")] * 3
    chain = reader.audit_chain()
    assert [(line["position"], line["hash"], line["number"]) for line in lines] == [
        (line.position, line.hash, line.number) for line in chain
    ]
    assert Path("audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_half_a_line_of_an_export_that_was_killed_is_written_again(store: Store) -> None:
    act(store, "a", "b")
    answer(*FILE)
    path = Path("audit.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])

    assert answer(*FILE) == {"sent": 1, "flaws": 0}
    assert path.read_bytes() == whole


def test_a_file_that_was_put_away_is_begun_where_it_ended(store: Store) -> None:
    act(store, "a")
    answer(*FILE)
    Path("audit.jsonl").rename("audit.jsonl.1")
    act(store, "b")

    answer(*FILE)

    assert details(exported()) == "b"
    answer(*FILE, "--restart")
    assert details(exported()) == "bab"


def test_a_file_with_something_else_is_left_alone(store: Store) -> None:
    Path("audit.jsonl").write_text('{"a": 1}\n')

    assert "is not an export" in refusal(*FILE)["message"]
    assert Path("audit.jsonl").read_text() == '{"a": 1}\n'


@pytest.mark.parametrize(
    "statement", ["delete from forebay_audit where position = 3", "delete from forebay_audit"]
)
def test_an_export_names_a_log_that_lost_what_was_sent(store: Store, statement: str) -> None:
    act(store, "a", "b", "c")
    answer(*FILE)
    tamper(statement)

    result = call(*FILE, "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (1, {"sent": 0, "flaws": 1})


def test_a_line_that_does_not_fit_is_sent_and_counted(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    act(store, "a", "b", "c")
    store.chain_audit()
    tamper("update forebay_audit set detail = 'x' where position = 2")

    result = call(*FILE, "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (1, {"sent": 3, "flaws": 1})
    assert details(exported()) == "axc"
    assert "position 2 of the audit log is wrong: its content does not fit its hash" in caplog.text


def test_secrets_in_urls_stay_out_of_an_export(store: Store) -> None:
    act(store, "to redis://me:Sup3rSecret@cache/0")

    answer(*FILE)

    assert details(exported()) == "to redis://me:***@cache/0"


# Syslog


@contextmanager
def listening(kind: socket.SocketKind) -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        if kind is socket.SOCK_STREAM:
            server.listen()
        yield server, server.getsockname()[1]


def content_of(message: bytes) -> dict[str, Any]:
    head, _, content = message.partition(b" audit - ")
    assert head.startswith(b"<109>1 20")
    assert head.endswith(f" {socket.gethostname()} forebay -".encode())
    found: dict[str, Any] = json.loads(content)
    return found


def test_syslog_gets_a_datagram_for_each_line(store: Store) -> None:
    act(store, "a", "b")
    with listening(socket.SOCK_DGRAM) as (server, port):
        to = ("audit", "export", "--once", "--to", f"syslog:udp://127.0.0.1:{port}")

        assert answer(*to) == {"sent": 2, "flaws": 0}
        act(store, "c")
        assert answer(*to) == {"sent": 1, "flaws": 0}

        assert details([content_of(server.recv(65_536)) for _ in range(3)]) == "abc"


def test_a_line_too_long_for_a_datagram_comes_without_its_changes(store: Store) -> None:
    event = Event(kind=EventKind.API_KEY_CHANGED, detail="a", changes={"note": (None, "x " * 40_000)})
    store.record_events([event])
    with listening(socket.SOCK_DGRAM) as (server, port):
        answer("audit", "export", "--once", "--to", f"syslog:udp://127.0.0.1:{port}")
        line = content_of(server.recv(65_536))

    assert (line["detail"], "after" in line, line["position"]) == ("a", False, 1)


def test_syslog_gets_counted_messages_on_a_stream(store: Store) -> None:
    act(store, "a", "bä")
    with listening(socket.SOCK_STREAM) as (server, port):
        to = ("audit", "export", "--once", "--to", f"syslog:tcp://127.0.0.1:{port}")
        assert answer(*to) == {"sent": 2, "flaws": 0}
        accepted, _ = server.accept()
        with closing(accepted), accepted.makefile("rb") as stream:
            rest = stream.read()

    found = []
    while rest:
        length, _, rest = rest.partition(b" ")
        message, rest = rest[: int(length)], rest[int(length) :]
        found.append(content_of(message))
    assert details(found) == "abä"


def test_a_destination_that_is_away_leaves_the_lines_in_the_store(store: Store) -> None:
    act(store, "a")
    with listening(socket.SOCK_STREAM) as (_, port):
        pass

    error = refusal("audit", "export", "--once", "--to", f"syslog:tcp://127.0.0.1:{port}")

    assert "the entries stay in the store" in error["message"]
    with listening(socket.SOCK_DGRAM) as (_, port):
        sent = answer("audit", "export", "--once", "--to", f"syslog:udp://127.0.0.1:{port}")
    assert sent == {"sent": 1, "flaws": 0}


# OpenTelemetry


class Collector(ThreadingHTTPServer):
    """Takes what is posted, and answers as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: Queue[tuple[str, str, Any]] = Queue()
        self.status, self.content = 200, b'{"partialSuccess":{}}'

    @property
    def to(self) -> str:
        return f"otlp:http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.put((self.path, self.headers.get("api-key", ""), json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_log_records(
    store: Store, reader: Reader, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEADERS, "api-key=s%20ecret")
    act(store, "a", "b")

    assert answer("audit", "export", "--once", "--to", collector.to) == {"sent": 2, "flaws": 0}

    path, key, body = collector.requests.get(timeout=PATIENCE)
    assert (path, key) == ("/v1/logs", "s ecret")
    [resource] = body["resourceLogs"]
    [scope] = resource["scopeLogs"]
    first, second = scope["logRecords"]
    line = reader.audit_chain()[0]
    assert first["timeUnixNano"] == str(line.event.occurred_at * 1_000_000)
    assert json.loads(first["body"]["stringValue"])["hash"] == line.hash
    shown = {one["key"]: one["value"]["stringValue"] for one in second["attributes"]}
    assert shown == {
        "forebay.audit.position": "2",
        "forebay.audit.kind": "api_key_changed",
        "forebay.audit.actor": "ann",
        "forebay.audit.request": "r1",
    }
    service = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert service["service.name"] == "forebay"


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (503, b"", "answered 503"),
        (302, b"", "answered 302"),
        (200, b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"no"}}', "rejected 2 entries: no"),
    ],
)
def test_what_a_collector_refuses_is_sent_again(
    store: Store, collector: Collector, status: int, content: bytes, message: str
) -> None:
    act(store, "a", "b")
    collector.status, collector.content = status, content

    error = refusal("audit", "export", "--once", "--to", collector.to)

    assert message in error["message"]
    collector.status, collector.content = 200, b"fine"
    assert answer("audit", "export", "--once", "--to", f"{collector.to}") == {"sent": 2, "flaws": 0}


@pytest.mark.parametrize(
    "destination",
    [
        "audit.jsonl",
        "file:",
        "s3:bucket",
        "syslog:unix://x",
        "syslog:udp://",
        "syslog:udp://host:0",
        "syslog:tcp://host:99999",
        "otlp:ftp://host",
        "otlp:http://me:secret@host",
        "file:none/audit.jsonl",
    ],
)
def test_what_is_no_destination_is_refused(store: Store, destination: str) -> None:
    error = refusal("audit", "export", "--once", "--to", destination)

    assert error["status"] == 2
    assert "secret" not in error["message"]


# Following


def test_an_export_follows_until_a_signal_and_goes_on_after_a_kill(store: Store, folder: Path) -> None:
    act(store, "a")
    with listening(socket.SOCK_DGRAM) as (server, port):
        words = ("audit", "export", "--every", "10ms", "--to", f"syslog:udp://127.0.0.1:{port}", "--json")
        for details_sent, stop in (("ab", signal.SIGKILL), ("cd", signal.SIGTERM)):
            with subprocess.Popen(
                command(*words),
                cwd=folder,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                for detail in details_sent:
                    if detail != "a":
                        act(store, detail)
                    while content_of(server.recv(65_536))["detail"] != detail:
                        pass  # the line before was sent, and not remembered before the kill
                os.kill(process.pid, stop)
                output, _ = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert json.loads(output)["flaws"] == 0


def test_a_second_export_to_one_destination_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    act(store, "a")
    with listening(socket.SOCK_DGRAM) as (_, port):
        to = ("audit", "export", "--once", "--to", f"syslog:udp://127.0.0.1:{port}")
        real = SqliteStore.chain_audit

        def chain_audit(handle: SqliteStore, limit: int) -> int:
            monkeypatch.setattr(SqliteStore, "chain_audit", real)
            answer(*to)  # after the first has read how far it came
            return real(handle, limit)

        monkeypatch.setattr(SqliteStore, "chain_audit", chain_audit)
        error = refusal(*to)

    assert (error["status"], "stop one of them" in error["message"]) == (5, True)
