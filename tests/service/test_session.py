"""Sessions of browsers: a cookie that stands for a key, and who cannot use it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from forebay.domain.access import Grant
from forebay.service.http.admitting import COOKIE, FROM_PAGE
from forebay.service.keys import Keys
from forebay.service.server import Security
from forebay.stores.opening import open_engine
from tests.service.serving import PATIENCE, Served, serving

FROM_US = {FROM_PAGE: "1"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Served, str]]:
    """A server that asks for keys, and the token of an operator."""
    engine = open_engine("memory://")
    store, reader = engine.store(), engine.reader()
    store.save_queue("mail")  # type: ignore[arg-type]  # a plain text names it
    token = Keys(store, reader, actor="ann").create("ops", [Grant.parse("operate")]).token
    with serving(engine, security=Security(asks_for_keys=True)) as served:
        yield served, token
    store.close()
    reader.close()


@pytest.fixture
def browser(guarded: tuple[Served, str]) -> Iterator[httpx2.Client]:
    """Somebody who has logged in; only the cookie is shown from now on."""
    served, token = guarded
    with httpx2.Client(base_url=served.address, timeout=PATIENCE) as client:
        answer = client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        yield client


@pytest.mark.shows("R-DASH-22")
def test_a_key_becomes_a_cookie_that_scripts_cannot_read(guarded: tuple[Served, str]) -> None:
    served, token = guarded

    answer = served.client.post("/v1/session", headers={"Authorization": f"Bearer {token}"})
    served.client.cookies.clear()

    cookie = answer.headers["Set-Cookie"]
    assert cookie == f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    assert token not in answer.text


def test_a_session_says_who_one_is_and_what_one_may_do(browser: httpx2.Client) -> None:
    told = browser.get("/v1/session").json()

    assert (told["name"], told["is_open"], told["engine"]) == ("ops", False, "memory")
    assert told["grants"] == [{"role": "operate", "queues": "*"}]
    assert "pause_queue" in told["operations"]
    assert "configure_queue" not in told["operations"]


def test_without_a_key_there_is_no_session(guarded: tuple[Served, str]) -> None:
    served, _ = guarded

    assert served.client.get("/v1/session").status_code == 401
    assert served.client.post("/v1/session").status_code == 401
    assert served.client.get("/v1/queues", headers={"Cookie": f"{COOKIE}=fbk_ops.wrong"}).status_code == 401


def test_what_changes_something_comes_from_the_page_and_from_no_other(browser: httpx2.Client) -> None:
    own = str(browser.base_url).rstrip("/")

    assert browser.post("/v1/queues/mail/pause", headers=FROM_US).status_code == 200
    assert browser.post("/v1/queues/mail/resume", headers={**FROM_US, "Origin": own}).status_code == 200
    assert browser.post("/v1/queues/mail/pause").status_code == 403
    for origin in ("https://elsewhere.example", "null", f"{own}0", "https://[", f"{own}.example"):
        refused = browser.post("/v1/queues/mail/pause", headers={**FROM_US, "Origin": origin})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert browser.get("/v1/queues/mail").json()["state"] == "active"


def test_a_session_ends_when_the_browser_is_told_to_forget(browser: httpx2.Client) -> None:
    assert browser.delete("/v1/session", headers=FROM_US).json() == {"done": True}

    assert browser.get("/v1/session").status_code == 401


def test_a_role_is_the_same_with_a_cookie(browser: httpx2.Client) -> None:
    refused = browser.patch("/v1/queues/mail", json={"weight": 2}, headers=FROM_US)

    assert refused.status_code == 403


def test_a_server_that_asks_for_no_keys_keeps_none(plain: Served) -> None:
    answer = plain.client.post("/v1/session", headers={"Authorization": "Bearer fbk_x.y"})

    assert answer.json()["is_open"]
    assert "Set-Cookie" not in answer.headers
    assert "save_schedule" in answer.json()["operations"]
