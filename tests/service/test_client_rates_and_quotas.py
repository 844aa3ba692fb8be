"""How fast clients may ask."""

from __future__ import annotations

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.errors import TooManyRequests
from forebay.service import client_rates_and_quotas
from forebay.service.client_rates_and_quotas import ClientRateLimiter, RateAllowance
from forebay.testing.manual_clock import ManualClock

USUAL = Limit(scope="global", rate=2, burst=3)


def test_a_client_may_ask_a_burst_at_once_and_then_at_its_rate() -> None:
    clock = ManualClock()
    one = ClientRateLimiter(USUAL, clock)

    assert [one.take("a") for _ in range(3)] == [
        RateAllowance(3, 2, 1),
        RateAllowance(3, 1, 1),
        RateAllowance(3, 0, 2),
    ]
    with pytest.raises(TooManyRequests, match="2 requests a second") as refused:
        one.take("a")
    assert (refused.value.limit, refused.value.retry_after, refused.value.reset_seconds) == (3, 0.5, 2)
    clock.advance(ms=499)
    with pytest.raises(TooManyRequests):
        one.take("a")
    clock.advance(ms=1)
    assert one.take("a") == RateAllowance(3, 0, 2)


def test_clients_do_not_hold_each_other_up() -> None:
    one = ClientRateLimiter(Limit(scope="global", rate=1, burst=1), ManualClock())

    one.take("a")
    one.take("b")

    with pytest.raises(TooManyRequests):
        one.take("a")


def test_a_key_may_have_a_rate_of_its_own() -> None:
    one = ClientRateLimiter(None, ManualClock())

    assert one.take("a") is None
    assert one.take("b", USUAL) == RateAllowance(3, 2, 1)


def test_the_clients_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_rates_and_quotas, "MAX_CLIENTS", 2)
    one = ClientRateLimiter(USUAL, ManualClock())

    for client in ("a", "b", "a", "c", "b"):
        last = one.take(client)

    assert last == RateAllowance(3, 2, 1)  # b was forgotten when c came
    assert one.take("c") == RateAllowance(3, 1, 1)


def test_what_is_left_is_told_in_headers() -> None:
    assert RateAllowance(3, 2, 1).headers() == {
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": "2",
        "X-RateLimit-Reset": "1",
    }
