"""API keys and the audit log over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.api_key import Grant
from forebay.service.api_keys import ApiKeyAdmin, all_keys, digest_of, parse_token
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving

NAMES = ("admin", "operate", "admin:mine")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server that asks for keys."""
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture(scope="module")
def holders(served: Served) -> dict[str, Holder]:
    """Clients by what their keys allow."""
    engine = served.service.pool.engine
    store, reader = engine.store(), engine.reader()
    keys = ApiKeyAdmin(store, reader, actor="ann")
    made = {name: keys.create(name.replace(":", "-"), [Grant.parse(name)]).token for name in NAMES}
    store.close()
    reader.close()
    return {name: Holder(served, token) for name, token in made.items()}


def opens(served: Served, token: str) -> bool:
    """Whether a server that looks now lets in who shows this."""
    name, secret = parse_token(token)
    reader = served.service.pool.engine.reader()
    try:
        [key] = [kept.key for kept in all_keys(reader) if kept.key.name == name]
        return digest_of(secret) in key.digests(reader.now())
    finally:
        reader.close()


@pytest.mark.shows("R-SEC-03", "R-SEC-13")
def test_a_key_is_made_rotated_and_revoked(served: Served, holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    wanted = {"name": "shop", "grants": ["produce:mail", "view"], "lasts_seconds": 3_600, "rate": 5}

    made = admin.ask("POST", "/v1/keys", wanted)
    first = made.json()["token"]
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    assert opens(served, first)

    rotated = admin.ask("POST", "/v1/keys/shop/rotate", {})
    second = rotated.json()["token"]
    assert (rotated.status_code, rotated.headers["Cache-Control"]) == (200, "no-store")
    assert (opens(served, first), opens(served, second)) == (False, True)

    revoked = admin.ask("POST", "/v1/keys/shop/revoke")
    assert revoked.json()["state"] == "revoked"
    assert not opens(served, second)

    shown = admin.ask("GET", "/v1/keys/shop").json()
    listed = {one["name"]: one for one in admin.ask("GET", "/v1/keys").json()["keys"]}
    assert listed["shop"] == shown == revoked.json()
    assert shown["grants"] == ["produce:mail", "view:*"]
    assert (shown["rate"], shown["burst"]) == (5, None)
    assert "token" not in shown


def test_an_old_secret_opens_for_its_grace(served: Served, holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    first = admin.ask("POST", "/v1/keys", {"name": "patient", "grants": ["view"]}).json()["token"]

    second = admin.ask("POST", "/v1/keys/patient/rotate", {"grace_seconds": 3_600}).json()["token"]

    assert opens(served, first)
    assert opens(served, second)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "x", "grants": ["king"]}, 422, "invalid"),
        ({"name": "x", "grants": ["view:a b"]}, 422, "invalid"),
        ({"name": "x", "grants": ["view"], "burst": 5}, 422, "invalid"),
        ({"name": "x", "grants": []}, 400, "bad_request"),
        ({"name": "x y", "grants": ["view"]}, 400, "bad_request"),
        ({"name": "admin", "grants": ["view"]}, 409, "illegal_state"),
    ],
)
def test_what_makes_no_key(holders: dict[str, Holder], body: object, status: int, code: str) -> None:
    assert holders["admin"].code("POST", "/v1/keys", body) == (status, code)


@pytest.mark.parametrize("path", ["/v1/keys/absent/rotate", "/v1/keys/absent/revoke"])
def test_a_key_that_is_not_there(holders: dict[str, Holder], path: str) -> None:
    assert holders["admin"].code("POST", path, {}) == (404, "key_not_found")
    assert holders["admin"].code("GET", "/v1/keys/absent") == (404, "key_not_found")


@pytest.mark.shows("R-SEC-03")
@pytest.mark.parametrize("name", ["operate", "admin:mine"])
def test_keys_and_the_log_are_for_who_administers_all_queues(holders: dict[str, Holder], name: str) -> None:
    made = {"name": "mine", "grants": ["admin"]}
    requests = [
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", made),
        ("GET", "/v1/keys/admin", None),
        ("POST", "/v1/keys/admin/rotate", {}),
        ("POST", "/v1/keys/admin/revoke", None),
        ("POST", "/v1/audit/search", {}),
    ]

    for method, path, body in requests:
        assert holders[name].code(method, path, body) == (403, "forbidden")


@pytest.mark.shows("R-SEC-12")
def test_the_log_says_who_did_what_and_nothing_of_a_secret(holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    made = admin.ask("POST", "/v1/keys", {"name": "told", "grants": ["view"]}, **{"X-Request-Id": "r-1"})
    admin.ask("POST", "/v1/queues", {"name": "told"}, **{"X-Request-Id": "r-2"})
    admin.ask("PATCH", "/v1/queues/told", {"default_priority": 7}, **{"X-Request-Id": "r-3"})

    def lines(**wanted: object) -> list[dict[str, object]]:
        found: list[dict[str, object]] = admin.ask("POST", "/v1/audit/search", wanted).json()["lines"]
        return found

    [key], [queue] = lines(request="r-1"), lines(request="r-3", queue="told")
    assert (key["kind"], key["actor"], key["detail"]) == ("api_key_changed", "admin", "created told")
    assert (queue["before"], queue["after"]) == ({"default_priority": 0}, {"default_priority": 7})
    assert made.json()["token"] not in admin.ask("POST", "/v1/audit/search", {}).text
    assert (
        lines(actor="absent") == lines(until="2020-01-01T00:00:00Z") == lines(kinds=["limit_changed"]) == []
    )


def test_the_log_comes_page_by_page(holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    for number in range(3):
        admin.ask("POST", "/v1/keys", {"name": f"page-{number}", "grants": ["view"]})
    whole = admin.ask("POST", "/v1/audit/search", {"kinds": ["api_key_changed"]}).json()

    found, after = [], None
    while (
        page := admin.ask(
            "POST", "/v1/audit/search", {"kinds": ["api_key_changed"], "limit": 2, "after": after}
        ).json()
    )["has_more"]:
        found += page["lines"]
        after = page["after"]

    assert found + page["lines"] == whole["lines"]
    assert (whole["after"], whole["has_more"]) == (None, False)
