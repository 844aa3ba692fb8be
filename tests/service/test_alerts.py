"""Alerts over HTTP: who may see them, acknowledge them, and say what they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from forebay.clock import SystemClock
from forebay.domain.alert import ALERT_METRICS, Severity
from forebay.domain.alert_channel import MailChannel, WebhookChannel
from forebay.domain.api_key import Grant
from forebay.domain.stored_document import Document
from forebay.errors import Forbidden
from forebay.operations.alerts.evaluation import evaluate
from forebay.operations.alerts.stored_rules_alerts_and_channels import CHANNELS
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving
from tests.worker.support import eventually

NAMES = ("admin", "operate", "view", "view:mail")
RULE = {
    "id": "deep",
    "name": "Deep",
    "condition": "queue_depth > 10",
    "queue": "deep-one",
    "severity": "info",
}
WORD = "s3cret"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server that asks for keys."""
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as found:
        yield found


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str, str]:
    engine = served.service.pool.engine
    keys = ApiKeyAdmin(engine.store(), engine.reader(), actor="ann")
    return {name: keys.create(name.replace(":", "-"), [Grant.parse(name)]).token for name in NAMES}


@pytest.fixture(scope="module")
def holders(served: Served, tokens: dict[str, str]) -> dict[str, Holder]:
    """Clients by what their keys allow."""
    return {name: Holder(served, token) for name, token in tokens.items()}


@pytest.mark.shows("R-HTTP-38", "R-HTTP-39", "R-HTTP-40", "R-ALERT-06", "R-ALERT-11", "R-ALERT-33")
def test_a_rule_is_made_and_its_alert_seen_and_acknowledged(
    served: Served, holders: dict[str, Holder]
) -> None:
    admin, operate, view = holders["admin"], holders["operate"], holders["view"]
    made = admin.ask("POST", "/v1/alert-rules", RULE)
    assert (made.status_code, made.json()["id"]) == (201, "deep")
    admin.ask("POST", "/v1/queues", {"name": "deep-one"})
    jobs = [{"task": "t", "queue": "deep-one"} for _ in range(11)]
    assert admin.ask("POST", "/v1/jobs/batch", {"jobs": jobs}).is_success

    found = alerts_of(served, view, "active=true")

    [alert] = found
    assert (alert["rule"], alert["source"], alert["acknowledged_at"]) == ("deep", "deep-one", None)
    answer = operate.ask("POST", f"/v1/alerts/{alert['id']}/acknowledge")
    assert (answer.status_code, answer.json()["acknowledged_by"].partition("#")[0]) == (200, "operate")
    assert view.ask("GET", "/v1/alerts?severity=info").json()["alerts"] == []
    [seen] = view.ask("GET", "/v1/alerts?severity=info&acknowledged=true").json()["alerts"]
    assert seen == answer.json()
    assert operate.ask("POST", f"/v1/alerts/{alert['id']}/resolve").json()["is_active"] is False
    assert len(view.ask("GET", "/v1/alerts?severity=info&all=true").json()["alerts"]) == 1


def alerts_of(served: Served, holder: Holder, query: str) -> list[dict[str, Any]]:
    """What a look at the rules has brought. The server may look at the same moment; then the notifications
    are its to pass on."""
    engine = served.service.pool.engine
    store, reader = engine.store(), engine.reader()
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        evaluate(store, reader, SystemClock())
        # Of this severity none comes by itself.
        found[:] = holder.ask("GET", f"/v1/alerts?severity=info&{query}").json()["alerts"]
        return bool(found)

    eventually(is_there)
    return found


@pytest.mark.shows("R-ALERT-02", "R-SEC-09")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "D", "condition": "depth > 1"}, 422, "invalid"),
        ({"name": "D", "condition": "__import__('os')"}, 422, "invalid"),
        ({"name": "D", "condition": "pending > 1", "task": "t"}, 422, "invalid"),
        ({"name": "D", "condition": "pending > 1", "window_seconds": 1}, 400, "bad_request"),
        ({"name": "D", "condition": "pending > 1", "id": "Not so"}, 400, "bad_request"),
        ({"name": "D", "condition": "pending > 1", "id": "queue-depth"}, 409, "illegal_state"),
    ],
)
def test_what_makes_no_rule(holders: dict[str, Holder], body: object, status: int, code: str) -> None:
    assert holders["admin"].code("POST", "/v1/alert-rules", body) == (status, code)


def test_a_usual_rule_is_changed_and_put_back(holders: dict[str, Holder]) -> None:
    admin = holders["admin"]
    changed = {"name": "Deep", "condition": "queue_depth > 5", "enabled": False, "per": "queue"}

    saved = admin.ask("PUT", "/v1/alert-rules/queue-depth", changed).json()
    assert (saved["condition"], saved["enabled"], saved["is_builtin"]) == ("queue_depth > 5", False, True)
    listed = holders["view"].ask("GET", "/v1/alert-rules").json()
    assert saved in listed["rules"]
    assert listed["metrics"] == ALERT_METRICS
    assert admin.ask("DELETE", "/v1/alert-rules/queue-depth").json() == {"applied": True}
    assert admin.ask("DELETE", "/v1/alert-rules/queue-depth").json() == {"applied": False}
    assert admin.code("DELETE", "/v1/alert-rules/none") == (404, "rule_not_found")
    assert admin.code("POST", "/v1/alerts/none/resolve") == (404, "alert_not_found")


@pytest.mark.shows("R-HTTP-40")
def test_roles_say_who_sees_who_acknowledges_and_who_makes_rules(holders: dict[str, Holder]) -> None:
    made = {"name": "D", "condition": "pending > 1"}
    by_hand = {"kind": "deploy", "message": "It is late", "severity": "warning"}
    hook = {"kind": "webhook", "url": "https://example.com/"}
    denied = (403, "forbidden")

    alert = holders["operate"].ask("POST", "/v1/alerts", by_hand).json()
    for name in ("operate", "view", "view:mail"):
        assert holders[name].code("POST", "/v1/alert-rules", made) == denied
        assert holders[name].code("PUT", "/v1/alert-rules/a", made) == denied
        assert holders[name].code("DELETE", "/v1/alert-rules/a") == denied
        assert holders[name].code("GET", "/v1/alert-channels") == denied
        assert holders[name].code("PUT", "/v1/alert-channels/a", hook) == denied
        assert holders[name].code("DELETE", "/v1/alert-channels/a") == denied
    for name in ("view", "view:mail"):
        assert holders[name].code("POST", "/v1/alerts", by_hand) == denied
        assert holders[name].code("POST", f"/v1/alerts/{alert['id']}/acknowledge") == denied
        assert holders[name].code("POST", f"/v1/alerts/{alert['id']}/resolve") == denied
    assert holders["view:mail"].code("GET", "/v1/alerts") == denied  # they are about all queues
    assert holders["view:mail"].code("GET", "/v1/alert-rules") == denied


def test_the_secret_of_a_channel_is_kept_and_never_told(served: Served, holders: dict[str, Holder]) -> None:
    admin, path = holders["admin"], "/v1/alert-channels/ops"
    first = {"kind": "webhook", "url": "https://example.com/T0K3N", "secret": WORD, "severity": "critical"}
    post = {"kind": "email", "to": ["a@example.com"], "sender": "f@example.com", "host": "mx"}

    admin.ask("PUT", path, first)
    saved = admin.ask("PUT", path, {"kind": "webhook", "enabled": False})
    admin.ask("PUT", "/v1/alert-channels/post", {**post, "password": WORD})
    again = admin.ask("PUT", "/v1/alert-channels/post", {**post, "severity": "critical"})

    kept = {name: one.value for name, one in CHANNELS.all(served.service.pool.engine.reader()).items()}
    assert kept["ops"] == WebhookChannel(
        name="ops", url="https://example.com/T0K3N", secret=WORD, enabled=False, severity=Severity.INFO
    )
    assert isinstance(kept["post"], MailChannel)
    assert (kept["post"].password, kept["post"].severity) == (WORD, Severity.CRITICAL)
    shown = f"{saved.text}{again.text}{admin.ask('GET', '/v1/alert-channels').text}"
    assert WORD not in shown
    assert "T0K3N" not in shown
    assert admin.code("PUT", "/v1/alert-channels/new", {"kind": "webhook"}) == (422, "invalid")
    assert admin.code("PUT", "/v1/alert-channels/new", {"kind": "email"}) == (422, "invalid")
    assert admin.code("PUT", path, {"kind": "webhook", "url": "file:///etc/passwd"}) == (422, "invalid")


MAIL = {
    "kind": "email",
    "to": ["a@example.com"],
    "sender": "f@example.com",
    "host": "mx.example.com",
    "username": "u",
    "password": WORD,
}
HOOK = {"kind": "webhook", "url": "https://hooks.example.com/a", "secret": WORD}


@pytest.mark.parametrize(
    ("first", "secret", "changes"),
    [
        (MAIL, "password", {"host": "attacker.example"}),
        (MAIL, "password", {"port": 2525}),
        (MAIL, "password", {"tls": "always"}),
        (MAIL, "password", {"username": "other"}),
        (HOOK, "secret", {"url": "https://attacker.example/a"}),
        (HOOK, "secret", {"url": "http://hooks.example.com/a"}),
        (HOOK, "secret", {"url": "https://hooks.example.com:8443/a"}),
    ],
)
def test_a_secret_does_not_follow_to_another_server(
    served: Served, holders: dict[str, Holder], first: dict[str, Any], secret: str, changes: dict[str, Any]
) -> None:
    admin, path = holders["admin"], "/v1/alert-channels/moved"
    changed = {**first, **changes}
    del changed[secret]
    admin.ask("PUT", path, first)

    refused = admin.ask("PUT", path, changed)

    assert (refused.status_code, refused.json()["field"]) == (422, secret)
    assert "give it again" in refused.text
    assert WORD not in refused.text
    kept = CHANNELS.get(served.service.pool.engine.reader(), "moved")
    assert kept is not None
    assert getattr(kept.value, secret) == WORD
    assert admin.ask("PUT", path, {**changed, secret: "new"}).is_success
    assert admin.ask("PUT", path, {**first, secret: ""}).json()[secret] == ""


def test_the_path_of_an_address_changes_and_its_secret_stays(
    served: Served, holders: dict[str, Holder]
) -> None:
    admin, path = holders["admin"], "/v1/alert-channels/path"
    admin.ask("PUT", path, HOOK)

    assert admin.ask("PUT", path, {"kind": "webhook", "url": "https://hooks.example.com:443/b"}).is_success

    kept = CHANNELS.get(served.service.pool.engine.reader(), "path")
    assert kept is not None
    assert isinstance(kept.value, WebhookChannel)
    assert (kept.value.url, kept.value.secret) == ("https://hooks.example.com:443/b", WORD)


def test_a_mask_is_not_saved(holders: dict[str, Holder]) -> None:
    admin, path = holders["admin"], "/v1/alert-channels/masked"
    assert admin.code("PUT", path, {**HOOK, "secret": "***"}) == (422, "invalid")
    assert admin.code("PUT", path, {**HOOK, "url": "https://hooks.example.com/***"}) == (422, "invalid")
    assert admin.code("PUT", path, {**MAIL, "password": "***"}) == (422, "invalid")


def test_the_store_contract_shows_no_secrets_of_channels(served: Served, tokens: dict[str, str]) -> None:
    store = served.service.pool.engine.store()
    CHANNELS.save(
        store,
        "contract",
        WebhookChannel(name="contract", url="https://example.com/T0K3N", secret=WORD),
    )
    store.save_document(
        Document(kind="alert-channel", name="later", body=f'{{"kind":"pager","key":"{WORD}"}}')
    )
    with closing(open_engine(served.address, key=tokens["admin"]).reader()) as reader:
        found = {one.name: one.body for one in reader.documents("alert-channel")}
    store.drop_document("alert-channel", "later")

    assert WORD not in str(found)
    assert "T0K3N" not in str(found)
    assert "https://example.com/***" in found["contract"]


def test_the_store_contract_shows_alerts_to_viewers_and_channels_to_administrators(
    served: Served, tokens: dict[str, str]
) -> None:
    def documents(name: str, kind: str) -> list[Any]:
        with closing(open_engine(served.address, key=tokens[name]).reader()) as reader:
            return reader.documents(kind)

    for kind in ("alert", "alert-rule", "alert-board"):
        documents("view", kind)
        with pytest.raises(Forbidden):
            documents("view:mail", kind)
    documents("admin", "alert-channel")
    with pytest.raises(Forbidden):
        documents("operate", "alert-channel")
