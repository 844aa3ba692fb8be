"""What a worker and its isolated processes say to each other, and how it is framed.

Each message is a struct as msgpack behind its length. Nothing is pickled: what comes from a process that may
run untrusted code is read as plain data and checked, and what cannot be read ends that process.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgspec

from forebay.app.serialization import job_from_dict
from forebay.domain.job import NewJob
from forebay.domain.lease import Lease
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
from forebay.domain.progress import LogLine, Progress, StepResult
from forebay.errors import PayloadError
from forebay.worker.executors.program_origin import ProgramOrigin, TaskModule

MAX_FRAME: Final = 64 * 2**20
_LENGTH: Final = Struct("=I")
_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (Failed, Snoozed, Discarded, Cancelled, Interrupted, Parked)
}


class ProtocolError(Exception):
    """What came is no message of ours."""


# From the worker


class StartChild(msgspec.Struct, frozen=True, tag=True):
    """The first message: where the program is, and which task the first job will ask for."""

    origin: ProgramOrigin
    place: TaskModule


class RunAttempt(msgspec.Struct, frozen=True, tag=True):
    """Run one attempt, the process's n-th; all that is said of it carries that number. `job` is a `Job`,
    which comes out as its fields."""

    number: int
    job: Any
    place: TaskModule
    memory: int | None = None


class ContextUpdate(msgspec.Struct, frozen=True, tag=True):
    """What the attempt's context should know by now."""

    cancel_reason: str | None = None
    is_overdue: bool = False
    renewed_at: int | None = None
    failures: int = 0
    lost_because: str | None = None


class StopAttempt(msgspec.Struct, frozen=True, tag=True):
    """Stop this attempt; who does not listen is killed."""

    lease: Lease
    reason: str


class StepReply(msgspec.Struct, frozen=True, tag=True):
    """To `SaveStep` and `LoadSteps`: the results of steps by name; why a step was refused; why nobody could
    look,
    now or at all."""

    number: int
    steps: dict[str, bytes] = {}
    refused: str | None = None
    unavailable: str | None = None
    error: str | None = None


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """There are no more jobs."""


# From the isolated process


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    """The program is loaded and its hooks have run. `resident` is how many bytes that took."""

    resident: int | None


class ChildBroken(msgspec.Struct, frozen=True, tag=True):
    """It cannot run anything, and ends."""

    error: AttemptError


class ProgressReported(msgspec.Struct, frozen=True, tag=True):
    """The task has told something about itself."""

    run: int
    progress: Progress | None = None
    line: LogLine | None = None


class SaveStep(msgspec.Struct, frozen=True, tag=True):
    """A step is done: answer when it is kept."""

    run: int
    number: int
    step: StepResult


class LoadSteps(msgspec.Struct, frozen=True, tag=True):
    """Which steps have earlier attempts done?"""

    run: int
    number: int


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    """The attempt is over. `outcome` is an `Outcome`, which comes out as its fields; `is_spent` says that the
    process should not be used again."""

    run: int
    kind: str
    outcome: Any
    resident: int | None = None
    is_spent: bool = False


ToChild = StartChild | RunAttempt | ContextUpdate | StopAttempt | StepReply | Shutdown
FromChild = ChildReady | ChildBroken | ProgressReported | SaveStep | LoadSteps | AttemptEnded

_TO_CHILD: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD: Final[msgspec.msgpack.Decoder[FromChild]] = msgspec.msgpack.Decoder(FromChild)


def encode_frame(message: ToChild | FromChild) -> bytes:
    """A message as it is sent; raises PayloadError if it is too large."""
    body = msgspec.msgpack.encode(message)
    if len(body) > MAX_FRAME:
        raise PayloadError(f"{len(body):,} bytes are too many to hand over; the limit is {MAX_FRAME:,}")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Puts together what comes in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The bodies that are whole now; raises Garbled for a length that nobody sends."""
        self._buffer += piece
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ProtocolError(f"a message of {length:,} bytes is announced")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies


def from_child(body: bytes) -> FromChild:
    """A message of an isolated process; raises Garbled."""
    try:
        return _FROM_CHILD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(str(exc)) from exc


def to_child(body: bytes) -> ToChild:
    """A message of the worker, which is trusted."""
    return _TO_CHILD.decode(body)


def make_ended(run: int, outcome: Outcome, resident: int | None, is_spent: bool) -> AttemptEnded:
    return AttemptEnded(run, type(outcome).__name__, outcome, resident, is_spent)


def outcome_of(message: AttemptEnded) -> Outcome:
    """What has become of the attempt; raises Garbled for what cannot be."""
    try:
        if message.kind == Completed.__name__:
            return _parse_completed(message.outcome)
        outcome: Outcome = msgspec.convert(message.outcome, _KINDS[message.kind])
        return outcome
    except (KeyError, TypeError, AttributeError, ValueError) as exc:  # InvalidJob is a ValueError
        raise ProtocolError(f"an outcome that cannot be: {exc!s:.120}") from exc


def _parse_completed(fields: dict[str, Any]) -> Completed:
    result = msgspec.convert(fields["result"], bytes | None)
    follow_ups = tuple(job_from_dict(NewJob, one) for one in fields["follow_ups"])
    is_in_caller_tx = msgspec.convert(fields["is_in_caller_tx"], bool)
    return Completed(result, follow_ups, is_in_caller_tx, msgspec.convert(fields["cost"], int | None))
