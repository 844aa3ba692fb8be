"""`forebay keys`: tokens are shown once, and never again."""

from __future__ import annotations

import json

import pytest

from forebay.cli.redaction import redact, redact_data
from forebay.service.api_keys import digest_of, parse_token
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, refusal


@pytest.mark.shows("R-SEC-03", "R-SEC-13")
def test_a_key_is_created_shown_rotated_and_revoked(store: Store, reader: Reader) -> None:
    made = answer(
        "keys", "create", "deploy", "--allow", "produce:mail-*", "--allow", "view", "--expires", "90d"
    )
    assert made["grants"] == ["produce:mail-*", "view:*"]
    assert parse_token(made["token"])[0] == "deploy"

    rotated = answer("keys", "rotate", "deploy", "--grace", "1h")
    assert rotated["token"] != made["token"]
    assert rotated["old_until"] is not None

    shown = [answer("keys", "show", "deploy"), *answer("keys", "list")["keys"]]
    assert [one["state"] for one in shown] == ["active", "active"]
    assert answer("keys", "revoke", "deploy", "--yes")["state"] == "revoked"
    assert answer("keys", "show", "deploy")["state"] == "revoked"
    details = [event.detail for _, event in reader.audit()]
    assert details == ["revoked deploy", "rotated deploy", "created deploy"]


def test_a_key_is_created_with_a_quota(store: Store) -> None:
    words = (
        "--max-waits",
        "5",
        "--max-streams",
        "2",
        "--bytes-rate",
        "1000000",
        "--rate",
        "9",
        "--max-connections",
        "3",
    )
    made = answer("keys", "create", "small", "--allow", "view", *words)

    shown = answer("keys", "show", "small")
    assert [one["max_waits"] for one in (made, shown)] == [5, 5]
    assert (shown["max_streams"], shown["bytes_rate"], shown["rate"]) == (2, 1_000_000, 9)
    assert shown["max_connections"] == 3
    refused = refusal("keys", "create", "none", "--allow", "view", "--max-waits", "0")["message"]
    assert refused == "max_waits is a whole number from 1 to 10,000,000,000, not 0"


def test_people_see_the_token_once(store: Store) -> None:
    output = call("keys", "create", "deploy", "--allow", "admin").stdout
    token = output.splitlines()[-1]
    secret = parse_token(token)[1]

    later = [call("keys", *words).stdout for words in (("list",), ("show", "deploy"))]
    later += [call("audit").stdout, call("audit", "--json").stdout]
    assert all("deploy" in one for one in later)
    assert not any(secret in one or digest_of(secret) in one for one in later)
    assert "never" in later[0]
    assert "within 5 s" in call("keys", "revoke", "deploy", "--yes").stdout


def test_what_makes_no_sense_is_refused(store: Store) -> None:
    assert "is no role" in refusal("keys", "create", "a", "--allow", "root")["message"]
    assert "names no queues" in refusal("keys", "create", "a", "--allow", "view:a*b")["message"]
    assert "there is no key a" in refusal("keys", "rotate", "a")["message"]
    assert refusal("keys", "revoke", "a", "--yes")["kind"] == "ApiKeyNotFound"
    answer("keys", "create", "a", "--allow", "view")
    assert "already" in refusal("keys", "create", "a", "--allow", "view")["message"]


def test_a_user_is_asked_once_and_a_no_is_a_no(store: Store) -> None:
    answer("keys", "create", "a", "--allow", "view")

    assert call("keys", "revoke", "a").exit_code != 0
    assert answer("keys", "show", "a")["state"] == "active"


def test_a_token_that_strays_into_a_message_is_hidden() -> None:
    token = "fbk_deploy." + "x" * 43

    assert redact(f"no store at {token}!") == "no store at fbk_deploy.***!"
    assert redact_data({"args": [f"Bearer {token}"]}) == {"args": ["Bearer fbk_deploy.***"]}
    assert json.dumps(redact_data("fbk_short.x")) == '"fbk_short.x"'
