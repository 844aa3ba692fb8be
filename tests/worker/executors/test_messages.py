"""Messages between a worker and its isolated processes: whole again however they are cut, or refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.domain.job import NewJob
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.progress import LogLine, Progress
from forebay.errors import PayloadError
from forebay.worker.executors.messages import (
    MAX_FRAME,
    AttemptEnded,
    ChildReady,
    FrameReader,
    FromChild,
    ProgressReported,
    ProtocolError,
    encode_frame,
    from_child,
    make_ended,
    outcome_of,
)

MESSAGES: Sequence[FromChild] = (
    ChildReady(1_000),
    ProgressReported(1, progress=Progress(done=1, total=2, message="half")),
    ProgressReported(2, line=LogLine(at=1, level="INFO", text="ü")),
    AttemptEnded(3, "Interrupted", {}, None, True),
)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_messages_are_put_together_however_they_are_cut(cuts: list[int]) -> None:
    data = b"".join(encode_frame(message) for message in MESSAGES)
    frames, bodies, at = FrameReader(), list[bytes](), 0
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
        Parked("task:other", "unknown"),
    ],
)
def test_every_outcome_of_a_task_comes_back_as_it_was(outcome: Outcome) -> None:
    [body] = FrameReader().feed(encode_frame(make_ended(7, outcome, 1, False)))
    message = from_child(body)

    assert isinstance(message, AttemptEnded)
    assert outcome_of(message) == outcome


@pytest.mark.parametrize(
    "message",
    [
        AttemptEnded(1, "Lost", {"reason": "x"}),
        AttemptEnded(1, "Completed", {"result": 1, "follow_ups": []}),
        AttemptEnded(1, "Completed", {"result": None, "follow_ups": [{"task": "a", "queue": "not a queue"}]}),
        AttemptEnded(1, "Completed", {"result": None, "follow_ups": [{"no": "field"}]}),
        AttemptEnded(1, "Completed", None),
        AttemptEnded(1, "Failed", {"error": "text"}),
        AttemptEnded(1, "Snoozed", []),
    ],
)
def test_an_outcome_that_cannot_be_is_refused(message: AttemptEnded) -> None:
    with pytest.raises(ProtocolError):
        outcome_of(message)


@given(st.binary(max_size=50))
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_child(b"\xc1" + body)


def test_a_message_of_another_kind_is_refused() -> None:
    with pytest.raises(ProtocolError):
        from_child(msgspec.msgpack.encode({"type": "Run"}))


def test_an_impossible_length_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed(b"\xff" * 4)


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(PayloadError, match="too many to pass on"):
        encode_frame(AttemptEnded(1, "Completed", {"result": bytes(MAX_FRAME), "follow_ups": []}))
