"""Outcomes are plain frozen values."""

from __future__ import annotations

import pytest

from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Snoozed,
)

ERROR = AttemptError(type="ValueError", message="no")


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(b"1"),
        Failed(ERROR),
        Snoozed(1),
        Discarded(ERROR),
        Cancelled(),
        Interrupted(),
        Lost("gone"),
    ],
)
def test_two_outcomes_with_the_same_content_are_equal(outcome: Outcome) -> None:
    assert outcome == type(outcome)(*(getattr(outcome, name) for name in outcome.__struct_fields__))


def test_a_lost_attempt_counts_as_started_unless_a_record_says_otherwise() -> None:
    assert Lost("gone").started


def test_an_outcome_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Completed(b"1").result = b"2"  # type: ignore[misc]  # that it is refused is the point
