"""Common types of requests and responses: names with their bounds, instants, problems."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from forebay.domain.job import DAY_MS, LATEST_AT, MIN_LEASE_MS
from forebay.domain.job_validation import MAX_KEY, MAX_TASK_NAME
from forebay.errors import InvalidJob

MAX_BATCH_SIZE: Final = 1_000
LONGEST_WAIT_SECONDS: Final = 20.0
_PRINTABLE: Final = "^[^\\x00-\\x1f\\x7f]*$"

Queue = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,50}$", description="The name of a queue.")]
Task = Annotated[str, Meta(min_length=1, max_length=MAX_TASK_NAME, pattern=_PRINTABLE)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY, pattern=_PRINTABLE)]
JobId = Annotated[str, Meta(min_length=1, max_length=MAX_KEY, pattern=_PRINTABLE, description="A job's id.")]
LeaseToken = Annotated[
    str,
    Meta(
        pattern="^[0-9]{1,9}-[!-~]{1,100}$",
        description="The lease of a claimed job, from the response to the claim.",
    ),
]
Moment = Annotated[datetime, Meta(tz=True)]
Priority = Annotated[int, Meta(ge=-100, le=100, description="Higher runs earlier.")]
LeaseSeconds = Annotated[float, Meta(ge=MIN_LEASE_MS / 1_000, le=DAY_MS / 1_000)]
DelaySeconds = Annotated[float, Meta(ge=0, le=366 * DAY_MS / 1_000)]
WaitSeconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS)]
Values = dict[str, Any]


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """Response, or a part of one. Later versions may add fields, which clients must ignore."""


class RequestModel(ResponseModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request, or a part of one. An unknown field is refused, because most likely it is misspelt."""


class ChangeResponse(ResponseModel, frozen=True, kw_only=True):
    """Answer to a removal: `applied` is false if the thing did not exist."""

    applied: bool


class Problem(ResponseModel, frozen=True, kw_only=True, omit_defaults=True):
    """Problem details of RFC 9457. `code` is stable and for programs; `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    field: str | None = None
    holder: str | None = None
    retry_after_seconds: int | None = None


def in_ms(field: str, moment: datetime | None) -> int | None:
    """Return an instant in milliseconds; raises InvalidJob for one out of range."""
    if moment is None:
        return None
    try:
        ms = round(moment.timestamp() * 1_000)
    except (OverflowError, ValueError) as exc:
        raise InvalidJob(f"{field} is out of range", field=field) from exc
    if not 0 <= ms <= LATEST_AT:
        raise InvalidJob(f"{field} must lie between 1970 and 2100", field=field)
    return ms


def at(ms: int | None) -> datetime | None:
    """Return an instant of the store as a datetime."""
    return None if ms is None else moment_of(ms)


def moment_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def length(seconds: float | None) -> int | None:
    """Return a duration in milliseconds."""
    return None if seconds is None else round(seconds * 1_000)


def seconds(ms: int | None) -> float | None:
    """Return a duration in seconds."""
    return None if ms is None else ms / 1_000


_LOCATION: Final = re.compile(r"(?P<message>.*) - at `\$\.?(?P<field>.*)`\Z", re.DOTALL)


class InvalidRequest(Exception):
    """Request that msgspec cannot convert, with the field at fault."""

    def __init__(self, message: str) -> None:
        found = _LOCATION.match(message)
        super().__init__(found["message"] if found else message)
        self.field: str | None = found["field"] or None if found else None
