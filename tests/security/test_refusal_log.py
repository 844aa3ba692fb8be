"""The log about requests: refusals are in it, bounded; all requests on demand; secrets never."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import grpc
import pytest

from forebay.clock import SystemClock
from forebay.domain.api_key import Grant
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.generated import forebay_pb2 as pb
from forebay.service.request_log import LINES, Refusals, RequestLine
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE

WRONG = "fbk_viewer.QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY"


@pytest.fixture
def spoken(caplog: pytest.LogCaptureFixture) -> Iterator[tuple[Spoken, str]]:
    """A server that logs every request, and the token of a key that may look and ask once in a while."""
    caplog.set_level(logging.INFO)
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    token = (
        ApiKeyAdmin(store, reader, actor="test")
        .create("viewer", [Grant.parse("view")], rate=1, burst=4)
        .token
    )
    with speaking(engine, security=ServerSecurity(requires_keys=True, access_log=True)) as found:
        yield found, token
    store.close()
    reader.close()


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == f"forebay.service.{logger}"]


def shown(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), ("x-request-id", "mine"))


@pytest.mark.shows("R-SEC-12")
def test_a_refusal_is_logged_with_address_key_and_request(
    spoken: tuple[Spoken, str], caplog: pytest.LogCaptureFixture
) -> None:
    served, token = spoken
    headers = {"X-Request-Id": "mine"}
    served.client.get("/v1/queues?cursor=secret", headers={"Authorization": f"Bearer {WRONG}", **headers})
    served.client.post("/v1/queues/q/pause", headers={"Authorization": f"Bearer {token}", **headers})
    for shows in (WRONG, token):
        with pytest.raises(grpc.RpcError):
            served.admin.PauseQueue(pb.PauseQueueRequest(name="q"), metadata=shown(shows), timeout=PATIENCE)

    refused = lines(caplog, "refusals")
    assert [vars(one)["status"] for one in refused] == ["401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED"]
    for one in refused:
        assert (vars(one)["caller"], vars(one)["request"]) == ("viewer", "mine")
        assert "address 127.0.0.1, key viewer, request mine" in one.getMessage()
    for secret in (WRONG.partition(".")[2], token.partition(".")[2], "cursor"):
        assert secret not in "".join(one.getMessage() for one in (*refused, *lines(caplog, "access")))


def test_a_client_that_asks_too_often_is_logged(
    spoken: tuple[Spoken, str], caplog: pytest.LogCaptureFixture
) -> None:
    served, token = spoken

    def is_refused() -> bool:
        answer = served.client.get("/v1/queues", headers={"Authorization": f"Bearer {token}"})
        return answer.status_code == 429

    assert any(is_refused() for _ in range(1_000))
    assert "429" in {vars(one)["status"] for one in lines(caplog, "refusals")}


def test_the_access_log_has_a_line_for_each_request(
    spoken: tuple[Spoken, str], caplog: pytest.LogCaptureFixture
) -> None:
    served, token = spoken
    served.client.get("/v1/queues?limit=3", headers={"Authorization": f"Bearer {token}"})
    served.client.get("/dashboard/nowhere.txt")
    served.admin.ListQueues(pb.ListQueuesRequest(), metadata=shown(token), timeout=PATIENCE)

    records = [vars(one) for one in lines(caplog, "access")]
    assert [(one["method"], one["path"], one["status"], one["caller"]) for one in records] == [
        ("GET", "/v1/queues", "200", "viewer"),
        ("GET", "/dashboard/nowhere.txt", "401", "-"),
        ("gRPC", "/forebay.v1.Admin/ListQueues", "OK", "viewer"),
    ]
    assert all(one["address"] == "127.0.0.1" and one["milliseconds"] >= 0 for one in records)


def test_without_the_option_only_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with speaking(open_engine("memory://")) as served:
        served.client.get("/v1/queues")
        served.admin.ListQueues(pb.ListQueuesRequest(), timeout=PATIENCE)

    assert lines(caplog, "access") == lines(caplog, "refusals") == []


def test_a_path_cannot_forge_a_line(spoken: tuple[Spoken, str], caplog: pytest.LogCaptureFixture) -> None:
    served, _ = spoken
    served.client.get("/v1/%0A2026-01-01 refused everything%1b[2J" + "x" * 5_000)

    [refused] = lines(caplog, "refusals")
    assert "\n" not in refused.getMessage()
    assert "\x1b" not in refused.getMessage()
    assert len(refused.getMessage()) < 400


def test_lines_about_refusals_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    class Still(SystemClock):
        at = 0.0

        def monotonic(self) -> float:
            return self.at

    clock = Still()
    refusals = Refusals(clock)
    line = RequestLine(method="GET", path="/", status="401", address="192.0.2.1")
    for _ in range(10_000):
        refusals.write(line)
    assert len(lines(caplog, "refusals")) == LINES.burst_size

    caplog.clear()
    clock.at += 1.0
    refusals.write(line)
    assert "more refusals were not written" in caplog.text
