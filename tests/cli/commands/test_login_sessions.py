"""`forebay sessions`: who is logged in, and how a login is ended."""

from __future__ import annotations

from uuid import uuid4

import pytest

from forebay.domain.api_key import Grant
from forebay.domain.login_session import LoginSession, SessionLimits
from forebay.service.browser_sessions import SessionAdmin
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import answer, call, refusal


@pytest.fixture
def begin(store: Store, reader: Reader) -> SessionAdmin:
    """Three sessions: two of a person and one of a key."""
    sessions = SessionAdmin(store, reader, actor="ann")
    now = reader.now()
    for name in ("oidc:ada@example.org", "oidc:ada@example.org", "ops"):
        sessions.begin(LoginSession.begin(name, now, SessionLimits(), grants=(Grant.parse("view:mail"),)))
    return sessions


def test_sessions_are_listed_without_their_digest(begin: SessionAdmin) -> None:
    found = answer("sessions", "list")["sessions"]

    assert sorted(one["name"] for one in found) == ["oidc:ada@example.org", "oidc:ada@example.org", "ops"]
    assert {len(one["id"]) for one in found} == {16}
    assert found[0]["grants"] == ["view:mail"]
    result = call("sessions", "list")
    assert "oidc:ada@example.org" in result.stdout
    assert all(kept.digest not in result.stdout + str(found) for kept in begin.list_active())


def test_sessions_are_revoked_by_id_by_name_or_all(begin: SessionAdmin) -> None:
    [ops] = [one["id"] for one in answer("sessions", "list")["sessions"] if one["name"] == "ops"]

    assert [one["id"] for one in answer("sessions", "revoke", ops, "--yes")["revoked"]] == [ops]
    assert refusal("sessions", "revoke", ops, "--yes")["kind"] == "SessionNotFound"
    output = call("sessions", "revoke", "--name", "oidc:ada@example.org", "--yes").stdout
    assert "2 sessions revoked; servers follow within 5 s" in output
    assert answer("sessions", "revoke", "--all", "--yes")["revoked"] == []
    assert begin.list_active() == []


def test_a_no_is_a_no_and_one_thing_is_named(begin: SessionAdmin) -> None:
    assert call("sessions", "revoke", "--all").exit_code != 0
    assert len(begin.list_active()) == 3
    for words in ((), (uuid4().hex[:16], "--all"), ("--name", "ops", "--all")):
        assert "--name NAME, or --all" in refusal("sessions", "revoke", *words, "--yes")["message"]
