"""The table of problems: every error of ours has a place in it."""

from __future__ import annotations

import pytest

from forebay import errors
from forebay.errors import ForebayError, QueueFull, RateLimited, StoreRefused, StoreUnavailable
from forebay.service.problem_details import INTERNAL, codes, kind_of, retry_after_of


def everything_below(kind: type[ForebayError]) -> list[type[ForebayError]]:
    return [one for sub in kind.__subclasses__() for one in (sub, *everything_below(sub))]


# Met by no client that asks over a network.
ELSEWHERE = {"WorkersDied", "BrokenApp", "Declined", "Interrupted"}


@pytest.mark.parametrize(
    "kind", [one for one in everything_below(ForebayError) if one.__module__ == errors.__name__]
)
def test_every_error_has_a_code_of_its_own_kind(kind: type[ForebayError]) -> None:
    if kind.__name__ in ELSEWHERE:
        return
    error = kind.__new__(kind)

    found = kind_of(error)

    assert found is not INTERNAL, kind.__name__
    assert codes()[found.code].status == found.status


def test_an_unforeseen_error_is_a_fault_of_ours() -> None:
    assert kind_of(ForebayError("odd")) is INTERNAL


def test_only_what_may_pass_says_when_to_come_again() -> None:
    full = QueueFull("full", queue="q", limit=1, retry_after=2.1)
    fast = RateLimited("fast", queue="q", client=None, limit=1, retry_after=0.01)
    never = QueueFull("full", queue="q", limit=1)

    assert [retry_after_of(one) for one in (full, fast, never)] == [3, 1, None]
    assert retry_after_of(StoreUnavailable("away")) == 1
    assert retry_after_of(StoreRefused("never")) is None
