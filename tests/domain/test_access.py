"""API keys: what a grant opens, and until when a key does."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.access import USED_EVERY_MS, ApiKey, Grant, KeyState, Role, key_changes
from forebay.errors import ConfigError

A, B = "a" * 64, "b" * 64


def a_key(**changes: Any) -> ApiKey:
    return ApiKey(**{"name": "deploy", "grants": (Grant(Role.PRODUCE),), "digest": A, **changes})


@pytest.mark.parametrize(
    ("queues", "queue", "opens"),
    [
        ("*", "mail", True),
        ("*", None, True),
        ("mail", "mail", True),
        ("mail", "mail2", False),
        ("mail", "mail-of-others", False),
        ("mail", "Mail", False),
        ("mail", "mai", False),
        ("mail", None, False),
        ("mail-*", "mail-eu", True),
        ("mail-*", "mail-", True),
        ("mail-*", "mail", False),
        ("mail-*", "mailbox", False),
        ("mail-*", "x-mail-eu", False),
        ("mail-*", None, False),
        ("mail-*", "", False),
    ],
)
def test_a_grant_opens_its_queue_or_those_that_begin_like_it(
    queues: str, queue: str | None, opens: bool
) -> None:
    assert Grant(Role.VIEW, queues).gives({Role.VIEW}, queue) is opens


@pytest.mark.parametrize("queues", ["", "**", "*mail", "ma*il", "mail/", "a:b", "mail *", "a" * 51 + "*"])
def test_what_names_no_queues_is_refused(queues: str) -> None:
    with pytest.raises(ConfigError, match="names no queues"):
        Grant(Role.VIEW, queues)


@pytest.mark.parametrize("role", Role)
def test_a_role_gives_itself_and_what_it_includes(role: Role) -> None:
    given = {one for one in Role if Grant(role).gives({one}, "mail")}

    assert (
        given
        == {
            Role.PRODUCE: {Role.PRODUCE},
            Role.CONSUME: {Role.CONSUME},
            Role.VIEW: {Role.VIEW},
            Role.OPERATE: {Role.OPERATE, Role.VIEW},
            Role.ADMIN: set(Role),
        }[role]
    )


def test_grants_are_read_as_they_are_written() -> None:
    for text in ("produce:*", "consume:mail", "operate:mail-*"):
        assert str(Grant.parse(text)) == text
    assert Grant.parse("view") == Grant(Role.VIEW, "*")
    for wrong in ("view:", "root", ""):
        with pytest.raises(ConfigError):
            Grant.parse(wrong)


def test_a_key_may_what_one_of_its_grants_gives() -> None:
    key = a_key(grants=(Grant(Role.PRODUCE, "mail"), Grant(Role.VIEW, "*")))

    assert key.may({Role.PRODUCE}, "mail")
    assert not key.may({Role.PRODUCE}, "other")
    assert key.may({Role.PRODUCE, Role.VIEW}, "other")
    assert not key.may({Role.ADMIN}, "mail")
    assert key.has({Role.PRODUCE})  # for some queue
    assert not key.has({Role.CONSUME, Role.ADMIN})


def test_a_key_opens_until_it_expires_or_is_revoked() -> None:
    key = a_key(expires_at=100)

    assert (key.state(99), key.digests(99)) == (KeyState.ACTIVE, (A,))
    assert (key.state(100), key.digests(100)) == (KeyState.EXPIRED, ())
    assert (key.revoked(5).state(6), key.revoked(5).digests(6)) == (KeyState.REVOKED, ())


def test_the_old_secret_opens_for_its_grace() -> None:
    rotated = a_key().rotated(B, 100, 50)

    assert rotated.digests(149) == (B, A)
    assert rotated.digests(150) == (B,)
    assert a_key().rotated(B, 100, 0).digests(100) == (B,)
    assert rotated.revoked(120).digests(121) == ()


def test_when_a_key_was_used_is_news_once_an_hour() -> None:
    assert a_key().is_news_that_used(1)
    assert not a_key().used(1).is_news_that_used(USED_EVERY_MS)
    assert a_key().used(1).is_news_that_used(USED_EVERY_MS + 1)


def test_nothing_of_a_secret_is_shown_or_told() -> None:
    key = a_key(rate=5)
    changed = key_changes(key, key.rotated(B, 1, 9))

    assert changed == {"secret": ("***", "***"), "old_until": (None, 10)}
    assert key_changes(None, key) == {"rate": (None, 5), "grants": (None, ["produce:*"])}
    assert A not in str([key.shown(), changed, key_changes(None, key)])
    assert B not in str(changed)


def test_a_key_has_a_rate_of_its_own_or_none() -> None:
    limit = a_key(rate=5).limit

    assert limit is not None
    assert (limit.rate, limit.most_at_once) == (5, 10)
    assert a_key().limit is None


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a#b"},
        {"name": "a" * 51},
        {"name": "a b"},
        {"grants": ()},
        {"grants": (Grant(Role.VIEW),) * 101},
        {"digest": "secret"},
        {"rate": 0},
        {"burst": 5},
    ],
)
def test_a_key_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        a_key(**fields)
