"""Options of `forebay server` that bound what clients hold, at a real server."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from pathlib import Path
from select import select

import httpx2
import pytest

from forebay.domain.api_key import Grant
from forebay.domain.login_session import MINUTE_MS
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.browser_sessions import all_sessions
from forebay.stores.factory import open_engine
from tests.cli.command_runner import DEADLINE
from tests.security.authority import Authority
from tests.security.measured import QUEUE, Measured, server_process
from tests.worker.support import eventually

Start = Callable[..., Measured]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server with these options, and gives a client with a key for one queue."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    engine = open_engine(url)
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.save_queue(QUEUE)
        grants = [Grant.parse(f"produce:{QUEUE}"), Grant.parse("view")]
        token = ApiKeyAdmin(store, reader, actor="test").create("shop", grants).token
    with ExitStack() as stack:

        def begin(*options: str) -> Measured:
            address = stack.enter_context(server_process(url, tmp_path, *options))
            found = Measured(address.pid, address.http, token, engine)
            stack.callback(found.client.close)
            return found

        yield begin


def statuses(measured: Measured, path: str, count: int, stack: ExitStack) -> list[int]:
    """The statuses of requests on as many connections, which stay open."""
    opened = [stack.enter_context(measured.connect(path)) for _ in range(count)]
    found = [HTTPResponse(one) for one in opened]
    for one in found:
        one.begin()
    return sorted(one.status for one in found)


def test_waits_streams_and_connections_of_each_key_have_bounds(start: Start) -> None:
    measured = start("--max-waits", "1", "--max-streams", "1", "--max-connections-per-key", "3")
    job_id = measured.ask("POST", "/v1/jobs", {"task": "t", "queue": QUEUE})["id"]
    measured.client.close()

    with ExitStack() as stack:
        waiting = [stack.enter_context(measured.connect(f"/v1/jobs/{job_id}/wait")) for _ in range(2)]
        [refused], _, _ = select(waiting, (), (), DEADLINE)
        assert refused.recv(12) == b"HTTP/1.1 429"
    with ExitStack() as stack:
        assert statuses(measured, "/v1/events/stream", 2, stack) == [200, 429]

    def counts() -> list[int]:
        with ExitStack() as stack:
            return statuses(measured, "/v1/workers", 4, stack)

    eventually(lambda: counts() == [200, 200, 200, 429])  # the server has noticed that the others are closed


@pytest.mark.parametrize("option", ["--max-connections", "--max-connections-each"])
def test_connections_of_all_clients_have_bounds(start: Start, option: str) -> None:
    measured = start(option, "2")

    with ExitStack() as stack:
        assert statuses(measured, "/v1/workers", 3, stack) == [200, 200, 503]


def test_bytes_of_a_key_have_a_rate(start: Start) -> None:
    measured = start("--bytes-rate", "1000")

    measured.enqueue(1)

    refused = measured.client.get("/v1/workers")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert "1,000 a second" in refused.json()["detail"]


def test_each_server_counts_the_requests_of_a_client_by_itself(start: Start) -> None:
    first, second = (start("--rate", "1", "--burst", "1").client for _ in range(2))

    answers = (first.get("/v1/workers").status_code for _ in range(1_000))
    assert 429 in answers
    assert second.get("/v1/workers").status_code == 200


@pytest.mark.parametrize(("more", "is_served"), [(["--client-certificate", "optional"], True), ([], False)])
def test_a_client_without_a_certificate_is_served_where_it_is_optional(
    start: Start, tmp_path: Path, more: list[str], is_served: bool
) -> None:
    authority = Authority(tmp_path, "ours")
    files = ["--certificate", str(authority.issue("127.0.0.1")), "--client-ca", str(authority.path)]
    measured = start(*files, *more)
    context = ssl.create_default_context(cafile=str(authority.path))
    headers = {"Authorization": f"Bearer {measured.token}"}

    with httpx2.Client(base_url=measured.client.base_url, verify=context, headers=headers) as client:
        if is_served:
            assert client.get("/v1/workers", timeout=DEADLINE).status_code == 200
        else:
            with pytest.raises(httpx2.TransportError):
                client.get("/v1/workers", timeout=DEADLINE)


def test_the_access_log_has_each_request(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start("--access-log").ask("GET", "/v1/workers")

    lines = list[str]()

    def is_logged() -> bool:
        lines.append(capfd.readouterr().err)
        return "GET '/v1/workers' 200" in "".join(lines)

    eventually(is_logged)
    assert "caller shop" in "".join(lines)


def test_a_session_ends_when_the_options_say(start: Start) -> None:
    measured = start("--session-idle", "20m", "--session-lasts", "1h")

    measured.ask("POST", "/v1/session", {})

    with closing(measured.engine.reader()) as reader:
        [stored] = all_sessions(reader)
    assert stored.session.idle_ms == 20 * MINUTE_MS
    assert stored.session.expires_at - stored.session.created_at == 60 * MINUTE_MS
