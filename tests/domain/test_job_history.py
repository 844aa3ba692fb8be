"""Errors are cut to what a page can show before they are stored."""

from __future__ import annotations

import pytest

from forebay.domain.actor_name import check_actor
from forebay.domain.job import JobId
from forebay.domain.job_history import MAX_MESSAGE, MAX_TRACEBACK, Event, EventKind, truncate_error
from forebay.domain.outcome import AttemptError
from forebay.errors import ConfigError


def test_a_short_error_stays_as_it_is() -> None:
    error = AttemptError(type="ValueError", message="no", traceback="Traceback ...")

    assert truncate_error(error) == error


def test_of_a_long_message_the_beginning_stays() -> None:
    error = truncate_error(AttemptError(type="E" * 5_000, message="first" + "x" * 5_000))

    assert len(error.type) == MAX_MESSAGE
    assert len(error.message) == MAX_MESSAGE
    assert error.message.startswith("first")


def test_of_a_long_traceback_the_end_stays() -> None:
    error = truncate_error(AttemptError(type="E", traceback="x" * 20_000 + "last"))

    assert len(error.traceback) == MAX_TRACEBACK
    assert error.traceback.endswith("last")


@pytest.mark.parametrize("size", [MAX_TRACEBACK - 1, MAX_TRACEBACK])
def test_a_traceback_up_to_the_limit_stays_whole(size: int) -> None:
    assert len(truncate_error(AttemptError(type="E", traceback="x" * size)).traceback) == size


def test_nul_is_shown_as_a_picture() -> None:
    error = truncate_error(AttemptError(type="a\x00", message="b\x00", traceback="c\x00"))

    assert (error.type, error.message, error.traceback) == ("a␀", "b␀", "c␀")


def test_an_event_needs_only_its_kind() -> None:
    event = Event(kind=EventKind.COMMENT)

    assert (event.occurred_at, event.job_id, event.queue, event.detail) == (0, None, None, "")


def test_an_actor_is_not_named_like_an_actor_with_a_request() -> None:
    check_actor("root")
    with pytest.raises(ConfigError, match="'root#1' cannot be an actor of the audit log"):
        check_actor("root#1")


@pytest.mark.parametrize(
    ("kind", "job_id", "is_action", "is_history"),
    [
        (EventKind.CANCEL, JobId("j"), True, True),
        (EventKind.DELETED, JobId("j"), True, False),
        (EventKind.QUEUE_CHANGED, None, True, False),
        (EventKind.SWEPT, JobId("j"), False, True),
    ],
)
def test_an_event_stands_in_the_audit_log_in_the_history_or_in_both(
    kind: EventKind, job_id: JobId | None, is_action: bool, is_history: bool
) -> None:
    event = Event(kind=kind, job_id=job_id)

    assert (event.is_action, event.is_history) == (is_action, is_history)
