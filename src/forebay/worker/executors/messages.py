"""Messages between a worker and its isolated processes, and their framing.

Each message is a struct as MessagePack behind its length. Nothing is pickled. Bytes of a process that may run
untrusted code are decoded as plain data and checked; invalid ones end that process.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgspec

from forebay.app.job_serialization import job_from_dict
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
from forebay.prepared_types import prepare_type
from forebay.worker.executors.task_module_origin import ProgramOrigin, TaskModule

MAX_FRAME: Final = 64 * 2**20
_LENGTH: Final = Struct("=I")
_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (Failed, Snoozed, Discarded, Cancelled, Interrupted, Parked)
}


class ProtocolError(Exception):
    """The bytes are not a valid message."""


# From the worker


class StartChild(msgspec.Struct, frozen=True, tag=True):
    """The first message: where the program is, and the task of the first job."""

    origin: ProgramOrigin
    place: TaskModule


class RunAttempt(msgspec.Struct, frozen=True, tag=True):
    """Run one attempt, the n-th of the process; all messages about it carry that number. `job` is a `Job`,
    which is decoded as its fields."""

    number: int
    job: Any
    place: TaskModule
    memory: int | None = None


class ContextUpdate(msgspec.Struct, frozen=True, tag=True):
    """State of the attempt's context in the worker."""

    cancel_reason: str | None = None
    is_overdue: bool = False
    renewed_at: int | None = None
    failures: int = 0
    lost_because: str | None = None


class StopAttempt(msgspec.Struct, frozen=True, tag=True):
    """Stop this attempt; one that does not listen is killed."""

    lease: Lease
    reason: str


class StepReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to `SaveStep` and `LoadSteps`: the results of steps by name, why a step was refused, or why the
    store could not be read, now or at all."""

    number: int
    steps: dict[str, bytes] = {}
    refused: str | None = None
    unavailable: str | None = None
    error: str | None = None


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """There are no more jobs."""


# From the isolated process


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    """The program is loaded and its hooks have run. `resident` is the bytes that it takes."""

    resident: int | None


class ChildBroken(msgspec.Struct, frozen=True, tag=True):
    """The process cannot run anything, and ends."""

    error: AttemptError


class ProgressReported(msgspec.Struct, frozen=True, tag=True):
    """The task has reported progress or logged a line."""

    run: int
    progress: Progress | None = None
    line: LogLine | None = None


class SaveStep(msgspec.Struct, frozen=True, tag=True):
    """A step is done; reply when it is stored."""

    run: int
    number: int
    step: StepResult


class LoadSteps(msgspec.Struct, frozen=True, tag=True):
    """Return the steps of earlier attempts."""

    run: int
    number: int


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    """The attempt has ended. `outcome` is an `Outcome`, which is decoded as its fields. The worker replaces a
    process that `must_not_be_reused`."""

    run: int
    kind: str
    outcome: Any
    resident: int | None = None
    must_not_be_reused: bool = False


ToChild = StartChild | RunAttempt | ContextUpdate | StopAttempt | StepReply | Shutdown
FromChild = ChildReady | ChildBroken | ProgressReported | SaveStep | LoadSteps | AttemptEnded

_TO_CHILD: Final[msgspec.msgpack.Decoder[ToChild]] = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD: Final[msgspec.msgpack.Decoder[FromChild]] = msgspec.msgpack.Decoder(FromChild)


def encode_frame(message: ToChild | FromChild) -> bytes:
    """Encode a message with its length; raises PayloadError if it is too large."""
    body = msgspec.msgpack.encode(message)
    if len(body) > MAX_FRAME:
        raise PayloadError(f"{len(body):,} bytes are too many to pass on; the limit is {MAX_FRAME:,}")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Joins pieces of the stream to frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the bodies that are complete now; raises ProtocolError for an impossible length."""
        self._buffer += piece
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise ProtocolError(f"a message of {length:,} bytes is announced")
            frame_end = _LENGTH.size + length
            if len(self._buffer) < frame_end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : frame_end]))
            del self._buffer[:frame_end]
        return bodies


def from_child(body: bytes) -> FromChild:
    """Decode a message of an isolated process; raises ProtocolError."""
    try:
        return _FROM_CHILD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise ProtocolError(str(exc)) from exc


def to_child(body: bytes) -> ToChild:
    """Decode a message of the worker, which is trusted."""
    return _TO_CHILD.decode(body)


def make_ended(run: int, outcome: Outcome, resident: int | None, must_not_be_reused: bool) -> AttemptEnded:
    return AttemptEnded(run, type(outcome).__name__, outcome, resident, must_not_be_reused)


def outcome_of(message: AttemptEnded) -> Outcome:
    """Decode the outcome of the attempt; raises ProtocolError for an invalid one."""
    try:
        if message.kind == Completed.__name__:
            return _parse_completed(message.outcome)
        outcome: Outcome = msgspec.convert(message.outcome, prepare_type(_KINDS[message.kind]))
        return outcome
    except (KeyError, TypeError, AttributeError, ValueError) as exc:  # InvalidJob is a ValueError
        raise ProtocolError(f"an invalid outcome: {exc!s:.120}") from exc


def _parse_completed(fields: dict[str, Any]) -> Completed:
    result = msgspec.convert(fields["result"], bytes | None)
    follow_ups = tuple(job_from_dict(NewJob, job) for job in fields["follow_ups"])
    is_in_caller_tx = msgspec.convert(fields["is_in_caller_tx"], bool)
    return Completed(result, follow_ups, is_in_caller_tx, msgspec.convert(fields["cost"], int | None))
