"""API keys: what a grant opens, and until when a key does."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.api_key import (
    MAX_GRANTS,
    USED_EVERY_MS,
    ApiKey,
    Grant,
    KeyPermissions,
    KeyState,
    Quota,
    Role,
    key_changes,
)
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
    assert (key.revoke(5).state(6), key.revoke(5).digests(6)) == (KeyState.REVOKED, ())


def test_the_old_secret_opens_for_its_grace() -> None:
    rotated = a_key().rotate(B, 100, 50)

    assert rotated.digests(149) == (B, A)
    assert rotated.digests(150) == (B,)
    assert a_key().rotate(B, 100, 0).digests(100) == (B,)
    assert rotated.revoke(120).digests(121) == ()


def test_the_use_of_a_key_is_recorded_once_an_hour() -> None:
    assert a_key().is_use_due(1)
    assert not a_key().mark_used(1).is_use_due(USED_EVERY_MS)
    assert a_key().mark_used(1).is_use_due(USED_EVERY_MS + 1)


def test_nothing_of_a_secret_is_shown_or_told() -> None:
    key = a_key(rate=5)
    changed = key_changes(key, key.rotate(B, 1, 9))

    assert changed == {"secret": ("***", "***"), "old_until": (None, 10)}
    assert key_changes(None, key) == {"rate": (None, 5), "grants": (None, ["produce:*"])}
    assert A not in str([key.public_view(), changed, key_changes(None, key)])
    assert B not in str(changed)


def test_a_key_has_a_rate_of_its_own_or_none() -> None:
    limit = a_key(rate=5).limit

    assert limit is not None
    assert (limit.rate, limit.burst_size) == (5, 10)
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
        {"max_waits": 0},
        {"max_streams": 1.5},
        {"bytes_rate": 10**11},
    ],
)
def test_a_key_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        a_key(**fields)


@pytest.mark.parametrize(
    ("tasks", "task", "is_allowed"),
    [
        ((), "anything", True),
        (("report",), "report", True),
        (("report",), "reports", False),
        (("report", "mail.*"), "mail.send", True),
        (("mail.*",), "mail", False),
        (("*",), "anything", True),
    ],
)
def test_a_key_with_tasks_names_no_other_one(tasks: tuple[str, ...], task: str, is_allowed: bool) -> None:
    assert a_key(tasks=tasks).may_name(task) is is_allowed


@pytest.mark.parametrize(
    ("granted", "limit_keys", "of_some", "of_all"),
    [
        ((), {}, True, True),
        ((), {"tenant": "acme"}, False, True),
        (("tenant=acme",), {"tenant": "acme"}, True, True),
        (("tenant=acme",), {"tenant": "acme-eu"}, False, False),
        (("tenant=acme",), {"host": "acme"}, False, False),
        (("tenant=acme-*",), {"tenant": "acme-eu"}, True, True),
        (("tenant=*",), {"tenant": "a=b*"}, True, True),
        (("tenant=*",), {"tenant": "acme", "host": "acme"}, False, False),
        (("tenant=*", "host=acme"), {"tenant": "acme", "host": "acme"}, True, True),
    ],
)
def test_a_key_uses_limit_keys_that_it_was_granted(
    granted: tuple[str, ...], limit_keys: dict[str, str], of_some: bool, of_all: bool
) -> None:
    key = a_key(limit_keys=granted)

    assert key.may_use_limit_keys(limit_keys, is_for_all=False) is of_some
    assert key.may_use_limit_keys(limit_keys, is_for_all=True) is of_all


def test_grants_are_read_and_written_as_texts() -> None:
    texts = ["produce:mail", "view:*", "task:mail.*", "task:a:b", "limit:tenant=a=b:c"]
    allowed = KeyPermissions.parse(reversed(texts))

    assert sorted(allowed.texts) == sorted(texts)
    assert str(allowed) == ", ".join(allowed.texts)
    key = a_key(**allowed._asdict())
    assert (key.permissions, key.public_view()["grants"]) == (allowed, allowed.texts)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["root"], "'root' is no role"),
        (["view", "task"], "task: names no tasks"),
        (["view", "task:" + "x" * 101], "names no tasks"),
        (["view", "limit"], "limit: names no limit keys: write limit:KIND=VALUE"),
        (["view", "limit:tenant"], "names no limit keys"),
        (["view", "limit:=acme"], "names no limit keys"),
        (["view", "limit:a b=acme"], "names no limit keys"),
        (["view", "limit:tenant=" + "x" * 201], "names no limit keys"),
        (["task:mail"], "needs a role"),
        (["view", *["task:mail"] * MAX_GRANTS], f"at most {MAX_GRANTS} roles, tasks and limit keys"),
    ],
)
def test_what_is_no_grant_is_refused(texts: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        a_key(**KeyPermissions.parse(texts)._asdict())


def test_a_key_has_the_usual_quota_where_it_says_nothing() -> None:
    usual = Quota(max_waits=9, max_streams=3, max_connections=7)

    assert a_key(max_waits=5, bytes_rate=1_000).quota.with_defaults(usual) == Quota(
        max_waits=5, max_streams=3, bytes_rate=1_000, max_connections=7
    )
    assert a_key().quota.with_defaults(usual) == usual
