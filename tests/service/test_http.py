"""What holds for every request: limits, problems, health and the document."""

from __future__ import annotations

import socket
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import StoreUnavailable
from forebay.stores.factory import open_engine
from forebay.stores.memory.reader import MemoryReader
from tests.service.live_server import PATIENCE, Served, serving
from tests.urls import lent_url
from tests.worker.support import eventually


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{nope", None),
        (b"", None),
        (b"[]", None),
        (b'{"task":"t","tsk":1}', None),
        (b'{"queue":"q"}', None),
        (b'{"task":"t","priority":101}', "priority"),
        (b'{"task":"t","queue":"a:b"}', "queue"),
        (b'{"task":"t","run_at":"tomorrow"}', "run_at"),
        (b'{"task":"\xff"}', None),
        (b"2\x1c\xff%", None),  # of the wrong shape before it is no JSON
        (b'{"task":"t","args":' + b"[" * 100_000, None),
    ],
)
@pytest.mark.shows("R-HTTP-27", "R-ENQ-27", "R-ENQ-39", "R-SEC-02")
def test_a_request_that_cannot_be_read_is_refused(plain: Served, body: bytes, field: str | None) -> None:
    answer = plain.client.post("/v1/jobs", content=body)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["status"], problem.get("field")) == ("bad_request", 400, field)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/jobs/batch", {"jobs": [{"task": "t"}], "atomic": 0}, "atomic"),
        ("/v1/jobs", {"task": "t", "priority": "5"}, "priority"),
        ("/v1/jobs", {"task": "t", "run_at": 0}, "run_at"),
        ("/v1/jobs/bulk", {"action": "delete", "where": {"created_before": 1}}, "where.created_before"),
        ("/v1/dead-letters/purge", {"dry_run": "true"}, "dry_run"),
    ],
)
@pytest.mark.shows("R-SEC-02")
def test_nothing_is_taken_for_what_it_only_looks_like(
    plain: Served, path: str, body: dict[str, Any], field: str
) -> None:
    answer = plain.post(path, body)

    assert (answer.status_code, answer.json()["field"]) == (400, field)


@pytest.mark.parametrize("number", [b"5.0", b"5e0", b"50e-1"])
def test_a_whole_number_may_be_written_as_a_broken_one(plain: Served, number: bytes) -> None:
    body = b'{"task": "t", "queue": "%b", "priority": %b, "run_at": "2090-01-01T00:00:00Z"}'
    answer = plain.client.post("/v1/jobs", content=body % (plain.queue().encode(), number))

    assert answer.status_code == 201
    assert plain.job(answer.json()["id"])["priority"] == 5


@pytest.mark.parametrize("number", [b"5.5", b"1e300", b"NaN"])
def test_a_broken_number_is_not_a_whole_one(plain: Served, number: bytes) -> None:
    answer = plain.client.post("/v1/jobs", content=b'{"task": "t", "priority": %b}' % number)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_options_name_all_methods_of_a_path(plain: Served) -> None:
    answer = plain.ask("OPTIONS", "/v1/jobs/x")

    assert (answer.status_code, answer.headers["Allow"]) == (204, "DELETE, GET, OPTIONS, PATCH")


def test_what_cannot_be_is_told_from_what_cannot_be_read(plain: Served) -> None:
    late = {"task": "t", "queue": plain.queue(), "run_at": "2200-01-01T00:00:00Z"}

    answer = plain.post("/v1/jobs", late)

    assert (answer.status_code, answer.json()["field"]) == (422, "run_at")


def test_unknown_addresses_and_methods_are_told_apart(plain: Served) -> None:
    nowhere, wrong = plain.ask("GET", "/v1/nowhere"), plain.ask("DELETE", "/v1/jobs")

    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "unsupported")
    assert "POST" in wrong.headers["Allow"]


@pytest.mark.shows("R-SEC-10")
def test_a_request_may_be_neither_too_large_nor_too_slow() -> None:
    with serving(open_engine("memory://"), max_body=1_000, body_timeout=0.2) as served:
        large = served.post("/v1/jobs", {"task": "t", "args": ["x" * 1_000]})
        host, _, port = served.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as slow:
            slow.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            response = slow.recv(65_536)

    assert (large.status_code, large.json()["code"]) == (413, "too_large")
    assert response.startswith(b"HTTP/1.1 408")


@pytest.mark.shows("R-HTTP-26", "R-HTTP-46", "R-RATE-15")
def test_a_store_that_is_away_is_told_with_a_time_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> int:
        raise StoreUnavailable("away")

    with serving(open_engine("memory://")) as served:
        assert served.ask("GET", "/health/ready").status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(MemoryReader, "now", away)
            eventually(lambda: served.ask("GET", "/health/ready").status_code == 503)
            answers = [served.ask("GET", "/health/ready") for _ in range(9)]
        alive = served.ask("GET", "/health/live")

    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["Retry-After"] for answer in answers} == {"1"}
    assert answers[-1].json()["code"] == "store_unavailable"
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("sqlstate", "answer"), [("53100", (503, "store_unavailable")), ("55P03", (503, "busy"))]
)
def test_a_commit_that_fails_is_answered_as_a_store_that_is_away_or_busy(
    tmp_path: Path, sqlstate: str, answer: tuple[int, str]
) -> None:
    """Not as a fault of the service: a program that asks again is served."""
    with lent_url("postgresql", tmp_path) as url, serving(open_engine(url)) as served:
        queue = served.queue()
        for _ in range(3):  # once the queue is known, an insert is one statement
            served.enqueue(queue)
        support = import_module("tests.stores.postgres_support")
        with support.refused_at_commit(url.rpartition("=")[2], "jobs", sqlstate):
            refused = served.post("/v1/jobs", {"task": "t", "queue": queue})
        again = served.post("/v1/jobs", {"task": "t", "queue": queue})

    assert (refused.status_code, refused.json()["code"]) == answer
    assert again.status_code == 201


def test_a_fault_of_ours_is_told_to_the_log_alone(
    plain: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> int:
        raise RuntimeError("secret")

    monkeypatch.setattr(MemoryReader, "now", broken)

    answer = plain.ask("GET", "/health/ready")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


@pytest.mark.shows("R-SER-23")
def test_addresses_name_their_version_and_every_refusal_has_the_same_shape(plain: Served) -> None:
    document = plain.done("GET", "/openapi/v1.json")
    answers = [
        plain.post("/v1/jobs", {"task": 1}),
        plain.ask("GET", "/v1/jobs/unknown"),
        plain.ask("GET", "/v1/nowhere"),
        plain.post("/v1/jobs", {"task": "t", "queue": "nowhere"}),
    ]

    unversioned = {path for path in document["paths"] if not path.startswith("/v1/")}
    assert unversioned == {"/health/live", "/health/ready", "/metrics"}
    for answer in answers:
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "code", "detail"} <= set(problem)
        assert (problem["status"], problem["code"] != "") == (answer.status_code, True)


@pytest.mark.shows("R-HTTP-47")
def test_the_document_is_whole_and_no_page_loads_from_elsewhere(plain: Served) -> None:
    document = plain.done("GET", "/openapi/v1.json")

    assert document["openapi"].startswith("3.1")
    shapes = document["components"]["schemas"]
    assert shapes["EnqueueRequest"]["additionalProperties"] is False
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["description"]
            assert "default" in operation["responses"]
    assert "http" not in plain.ask("GET", "/openapi/redoc").text
    assert plain.ask("GET", "/schema").status_code == 404
