"""Outcomes of an attempt, as its executor or the sweeper reports them.

`cost` is the cost of the attempt in tokens of rates, as the task reported it; None if it did not.
"""

from __future__ import annotations

import msgspec

from forebay.domain.job import NewJob


class AttemptError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Error of a failed attempt. Tracebacks are cut to 16 KiB before they are stored."""

    type: str
    message: str = ""
    traceback: str = ""


class Completed(msgspec.Struct, frozen=True):
    """The task returned; `result` is its encoded value, `follow_ups` are new jobs that it returned.

    `is_in_caller_tx` means that the task has completed its job in a transaction of its own, with all of
    these. The worker has to check whether that was committed.
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
    """The task asked to run later; not a failure."""

    delay_ms: int
    cost: int | None = None


class Discarded(msgspec.Struct, frozen=True):
    """No further attempt makes sense: the job goes straight to the dead letters."""

    error: AttemptError
    cost: int | None = None


class Cancelled(msgspec.Struct, frozen=True):
    """The task stopped because it was cancelled, or cancelled itself."""

    reason: str = "cancelled"
    cost: int | None = None


class Interrupted(msgspec.Struct, frozen=True):
    """Not started, or stopped in order by its worker; not a failure."""

    started: bool = True
    cost: int | None = None


class Parked(msgspec.Struct, frozen=True):
    """This program cannot run the job, and another one may: it is moved to a lane. Not a failure.
    `started` means that the task had begun before this showed."""

    lane: str
    reason: str = ""
    started: bool = False


class Lost(msgspec.Struct, frozen=True):
    """The worker died or its lease ended. Attempts that it had not started count for nothing."""

    reason: str
    started: bool = True


Outcome = Completed | Failed | Snoozed | Discarded | Cancelled | Interrupted | Parked | Lost
