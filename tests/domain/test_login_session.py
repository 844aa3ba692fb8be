"""Sessions: when they end, and what they stand for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forebay.domain.api_key import ApiKey, Grant
from forebay.domain.login_session import DAY_MS, MINUTE_MS, LoginSession, SessionLimits
from forebay.errors import ConfigError

LIMITS = SessionLimits(idle_ms=10 * MINUTE_MS, lasts_ms=25 * MINUTE_MS)
DIGEST = "a" * 64
KEY = ApiKey(name="ops", grants=(Grant.parse("operate"),), digest=DIGEST)
BEGUN = LoginSession.begin("ops", 0, LIMITS, digest=DIGEST)


def minutes(count: float) -> int:
    return round(count * MINUTE_MS)


@pytest.mark.parametrize(
    ("idle_ms", "lasts_ms"),
    [
        (MINUTE_MS - 1, DAY_MS),
        (DAY_MS, DAY_MS - 1),
        (DAY_MS, 30 * DAY_MS + 1),
    ],
)
def test_limits_that_make_no_sense_are_refused(idle_ms: int, lasts_ms: int) -> None:
    with pytest.raises(ConfigError, match="--session-idle"):
        SessionLimits(idle_ms=idle_ms, lasts_ms=lasts_ms)


def test_a_session_ends_when_it_is_idle_for_too_long() -> None:
    assert BEGUN.is_active(minutes(10) - 1)
    assert not BEGUN.is_active(minutes(10))
    assert BEGUN.use(minutes(9)).ends_at == minutes(19)


def test_a_session_ends_at_last_however_it_is_used() -> None:
    used = BEGUN.use(minutes(9)).use(minutes(18)).use(minutes(24))

    assert used.is_active(minutes(25) - 1)
    assert not used.is_active(minutes(25))


def test_a_use_is_worth_a_write_once_in_a_tenth_of_the_idle_time() -> None:
    assert not BEGUN.is_use_due(minutes(1) - 1)
    assert BEGUN.is_use_due(minutes(1))


def test_a_clock_that_goes_back_takes_no_use_away() -> None:
    assert BEGUN.use(minutes(5)).use(minutes(4)).used_at == minutes(5)


def test_a_session_may_what_its_key_may_as_long_as_the_secret_opens_it() -> None:
    rotated = KEY.rotate("b" * 64, 100, 50)

    assert BEGUN.key(KEY, 100) == KEY
    assert BEGUN.key(rotated, 149) == rotated
    assert BEGUN.key(rotated, 150) is None
    assert BEGUN.key(KEY.revoke(50), 100) is None
    assert BEGUN.key(replace(KEY, digest="c" * 64), 100) is None
    assert BEGUN.key(None, 100) is None


def test_a_login_by_a_provider_has_grants_of_its_own() -> None:
    session = LoginSession.begin("oidc:ada", 0, LIMITS, grants=(Grant.parse("view:mail"),))

    found = session.key(None, 0)

    assert found is not None
    assert found.grants == (Grant.parse("view:mail"),)
    assert session.key(KEY, 0) == found
