"""What goes past the framework is answered as the framework would."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from forebay.stores.factory import open_engine
from tests.service.live_server import PATIENCE, Served, serving

USUAL: Final = "?usual=way"  # it is ignored, but a request with more than a body goes the usual way
MAX_BODY: Final = 2_000

PATHS: Final = ("/v1/jobs", "/v1/jobs/batch", "/v1/claim", "/v1/settle")
JOB: Final = {"task": "t", "queue": "mail", "args": [1, "two", None], "metadata": {"a": "b"}}
GOOD: Final[list[tuple[str, Any]]] = [
    ("/v1/jobs", JOB),
    ("/v1/jobs/batch", {"jobs": [JOB, JOB]}),
    ("/v1/jobs/batch", {"jobs": [JOB, {**JOB, "queue": "unknown"}], "atomic": False}),
    ("/v1/claim", {"queues": ["mail"], "wait_seconds": 0}),
    ("/v1/claim", {"queues": ["empty"], "wait_seconds": 0}),
    ("/v1/settle", {"outcomes": [{"id": "unknown", "lease": "1-w"}]}),
]
REFUSED: Final[list[tuple[str, Any]]] = [
    ("/v1/jobs", {**JOB, "queue": "unknown"}),
    ("/v1/jobs", {**JOB, "run_at": "1969-01-01T00:00:00Z"}),
    ("/v1/jobs/batch", {"jobs": [JOB, {**JOB, "queue": "unknown"}]}),
    *((path, body) for path in PATHS for body in ({"misspelt": 1}, {"queues": 7}, ["x" * MAX_BODY])),
]
PASSING: Final = {"id", "lease", "lease_expires_at", "heartbeat_seconds"}


@pytest.fixture(scope="module")
def short() -> Iterator[Served]:
    with serving(open_engine("memory://"), max_body=MAX_BODY) as found:
        for name in ("mail", "empty"):
            found.done("POST", "/v1/queues", {"name": name})
        yield found


def lasting(answer: Any) -> Any:
    """An answer without what is another one each time."""
    if isinstance(answer, dict):
        return {name: lasting(value) for name, value in answer.items() if name not in PASSING}
    return [lasting(one) for one in answer] if isinstance(answer, list) else answer


def comparable(answer: httpx2.Response) -> tuple[int, dict[str, str], Any]:
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, headers, lasting(answer.json())


@pytest.mark.parametrize(("path", "body"), GOOD + REFUSED)
def test_both_ways_give_one_answer(short: Served, path: str, body: Any) -> None:
    if path == "/v1/claim":
        short.done("POST", "/v1/jobs/batch", {"jobs": [JOB, JOB]})

    past, usual = comparable(short.ask("POST", path, body)), comparable(short.ask("POST", path + USUAL, body))

    assert past == usual
    assert (past[0] < 300) is ((path, body) in GOOD)


@pytest.mark.parametrize("path", PATHS)
def test_no_body_is_no_request(short: Served, path: str) -> None:
    past, usual = short.ask("POST", path), short.ask("POST", path + USUAL)

    assert [(one.status_code, one.json()["code"]) for one in (past, usual)] == [(400, "bad_request")] * 2


@pytest.mark.parametrize("path", PATHS)
def test_another_method_is_refused_as_ever(short: Served, path: str) -> None:
    past, usual = short.ask("PUT", path), short.ask("PUT", path + USUAL)

    assert (past.status_code, past.headers["allow"]) == (405, usual.headers["allow"])
    assert past.json() == usual.json()


def test_a_body_may_come_in_parts(short: Served) -> None:
    answer = short.client.post("/v1/jobs", content=iter([b'{"task": "t", ', b'"queue": "mail"}']))

    assert answer.status_code == 201


def test_a_body_that_never_ends_is_refused(short: Served) -> None:
    answer = short.client.post("/v1/jobs", content=(b" " * 500 for _ in range(5)))

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_who_leaves_before_the_end_has_asked_for_nothing(
    short: Served, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = short.address.removeprefix("http://").partition(":")
    for rest in (b'{"task": "t", "queue": "empty"}', b'{"task": "t", "queue": '):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as leaving:
            leaving.sendall(
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + rest
            )
            leaving.shutdown(socket.SHUT_WR)
            assert leaving.recv(1) == b""  # the server has noticed

    assert short.claim("empty") == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
