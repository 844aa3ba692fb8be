"""What happened to an attempt, as its executor or the sweep saw it.

`cost` is what the task says that the attempt has cost, in tokens of rates; None if it has said nothing.
"""

from __future__ import annotations

import msgspec

from forebay.domain.job import NewJob


class AttemptError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt ended badly. Tracebacks are cut to 16 KiB before they are stored."""

    type: str
    message: str = ""
    traceback: str = ""


class Completed(msgspec.Struct, frozen=True):
    """The task returned; `result` is its encoded value, `follow_ups` are new jobs that it hands back.

    `is_within` says that it has completed its job in a transaction of its own, with all of these, and that
    somebody has to look what has come of it.
    """

    result: bytes | None = None
    follow_ups: tuple[NewJob, ...] = ()
    is_in_caller_tx: bool = False
    cost: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The attempt failed and counts; `after_ms` replaces the policy's delay."""

    error: AttemptError
    after_ms: int | None = None
    cost: int | None = None


class Snoozed(msgspec.Struct, frozen=True):
    """The task asks to run later; not a failure."""

    delay_ms: int
    cost: int | None = None


class Discarded(msgspec.Struct, frozen=True):
    """No further attempt makes sense: straight to the dead letters."""

    error: AttemptError
    cost: int | None = None


class Cancelled(msgspec.Struct, frozen=True):
    """The task stopped because it was cancelled, or asked for it."""

    reason: str = "cancelled"
    cost: int | None = None


class Interrupted(msgspec.Struct, frozen=True):
    """Not started, or stopped in order by its worker; not a failure."""

    started: bool = True
    cost: int | None = None


class Parked(msgspec.Struct, frozen=True):
    """This program cannot run the job, and another one may: it waits behind a gate. Not a failure. `started`
    says that the task had begun before this showed."""

    lane: str
    reason: str = ""
    started: bool = False


class Lost(msgspec.Struct, frozen=True):
    """The worker died or its lease ran out. What it had not started counts for nothing."""

    reason: str
    started: bool = True


Outcome = Completed | Failed | Snoozed | Discarded | Cancelled | Interrupted | Parked | Lost
