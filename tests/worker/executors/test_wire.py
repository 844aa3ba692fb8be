"""Messages between a worker and its isolated processes: whole again however they are cut, or refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.job import NewJob
from forebay.domain.note import LogLine, Progress
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Held,
    Interrupted,
    Outcome,
    Snoozed,
)
from forebay.errors import PayloadError
from forebay.worker.executors.wire import (
    MAX_FRAME,
    Ended,
    Frames,
    FromChild,
    Garbled,
    Ready,
    Said,
    ended,
    framed,
    from_child,
    outcome_of,
)

MESSAGES: Sequence[FromChild] = (
    Ready(1_000),
    Said(1, progress=Progress(done=1, total=2, message="half")),
    Said(2, line=LogLine(at=1, level="INFO", text="ü")),
    Ended(3, "Interrupted", {}, None, True),
)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_put_together_however_they_are_cut(cuts: list[int]) -> None:
    data = b"".join(framed(message) for message in MESSAGES)
    frames, bodies, at = Frames(), list[bytes](), 0
    for cut in [*cuts, len(data)]:
        bodies += frames.feed(data[at : at + cut])
        at += cut

    assert tuple(from_child(body) for body in bodies) == MESSAGES


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(b"1", (NewJob(task="next", metadata={"a": [1, None]}, tags=("x",)),)),
        Completed(None),
        Completed(b"1", cost=7),
        Failed(AttemptError(type="ValueError", message="no", traceback="..."), 500),
        Snoozed(1_000),
        Discarded(AttemptError(type="Discard")),
        Cancelled("enough"),
        Interrupted(cost=3),
        Held("task:other", "unknown"),
    ],
)
def test_every_outcome_of_a_task_comes_back_as_it_was(outcome: Outcome) -> None:
    [body] = Frames().feed(framed(ended(7, outcome, 1, False)))
    message = from_child(body)

    assert isinstance(message, Ended)
    assert outcome_of(message) == outcome


@pytest.mark.parametrize(
    "message",
    [
        Ended(1, "Lost", {"reason": "x"}),
        Ended(1, "Completed", {"result": 1, "follow_ups": []}),
        Ended(1, "Completed", {"result": None, "follow_ups": [{"task": "a", "queue": "not a queue"}]}),
        Ended(1, "Completed", {"result": None, "follow_ups": [{"no": "field"}]}),
        Ended(1, "Completed", None),
        Ended(1, "Failed", {"error": "text"}),
        Ended(1, "Snoozed", []),
    ],
)
def test_an_outcome_that_cannot_be_is_refused(message: Ended) -> None:
    with pytest.raises(Garbled):
        outcome_of(message)


@given(st.binary(max_size=50))
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(Garbled):
        from_child(b"\xc1" + body)


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(Garbled):
        from_child(msgspec.msgpack.encode({"type": "Run"}))


def test_a_length_that_nobody_sends_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(Garbled):
        Frames().feed(b"\xff" * 4)


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(PayloadError, match="too many to hand over"):
        framed(Ended(1, "Completed", {"result": bytes(MAX_FRAME), "follow_ups": []}))
