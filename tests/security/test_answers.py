"""Headers that keep browsers from using answers that they should not have got."""

from __future__ import annotations

import pytest

from forebay.service.server_security import ListenAddress, ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_protocols import speaking
from tests.service.live_server import serving

PUBLIC = "https://jobs.example.org"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health/live", 200),
        ("GET", "/openapi/v1.json", 200),
        ("GET", "/v1/session", 200),
        ("POST", "/v1/jobs", 400),
        ("POST", "/v1/claim", 400),
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/jobs", 405),
    ],
)
@pytest.mark.parametrize("requires_keys", [True, False])
def test_every_answer_is_for_its_client_alone(
    requires_keys: bool, method: str, path: str, status: int
) -> None:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=requires_keys)) as served:
        answer = served.client.request(method, path, content=b"[")

    assert answer.status_code == (401 if requires_keys and path.startswith("/v1/") else status)
    assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]
    assert answer.headers.get_list("Cache-Control") == ["no-store"]
    assert answer.headers.get_list("Cross-Origin-Resource-Policy") == ["same-origin"]


def test_a_stream_is_for_its_client_alone() -> None:
    with (
        serving(open_engine("memory://")) as served,
        served.client.stream("GET", "/v1/events/stream") as answer,
    ):
        assert answer.headers.get_list("Cache-Control") == ["no-store"]


@pytest.mark.parametrize(
    ("security", "host", "is_sent"),
    [
        ({}, "127.0.0.1", False),
        ({"public_url": PUBLIC}, "127.0.0.1", True),
        ({"public_url": "http://jobs.example.org"}, "127.0.0.1", False),
        ({"certificate": "server.pem"}, "192.0.2.1", True),
        # A browser would want TLS of every port of localhost, for a year.
        ({"certificate": "server.pem"}, "127.0.0.1", False),
    ],
)
def test_browsers_are_told_to_stay_with_tls_where_there_is_some(
    security: dict[str, str], host: str, is_sent: bool
) -> None:
    headers = dict(ServerSecurity(**security).headers(ListenAddress(host)))  # type: ignore[arg-type]  # of its fields

    assert ("Strict-Transport-Security" in headers) is is_sent


def test_the_public_address_is_known_to_the_service_and_to_browsers() -> None:
    with speaking(open_engine("memory://"), security=ServerSecurity(public_url=PUBLIC)) as spoken:
        answer = spoken.client.get("/health/live")

        assert spoken.service.logins.settings.public_url == PUBLIC
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
