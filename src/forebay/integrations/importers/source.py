"""What an importer finds in another queue, and where."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from forebay.domain.job import DAY_MS, Json, OnFailure
from forebay.domain.retry import RetryPolicy
from forebay.errors import ForebayError

PAGE_SIZE: Final = 100  # jobs of a page
# How long a store remembers what it was given: for so long an import that was interrupted may be begun again.
IDEMPOTENCY_TTL_MS: Final = 30 * DAY_MS


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits elsewhere, in our words.

    `key` tells this very message from all others: a second import that meets it again makes no second job.
    `policy` and `timeout_ms` are None where the message says nothing; then the task of an app may. `needs`
    are old ids of jobs that have to end first. `dropped` is what the message says and a job of ours cannot.
    """

    id: str
    key: str
    task: str
    queue: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    run_at: int | None = None
    expires_at: int | None = None
    priority: int | None = None
    timeout_ms: int | None = None
    policy: RetryPolicy | None = None
    depends_on: tuple[str, ...] = ()
    on_failure: OnFailure = OnFailure.CANCEL
    details: dict[str, Json] = {}
    dropped: tuple[str, ...] = ()


class SkippedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that stays where it is, and why."""

    id: str
    reason: str
    queue: str
    task: str = ""


class UnreadableMessage(Exception):
    """A message cannot become a job; the text says why."""


# What values that nobody expected come to when they are read: such a message is left, and the others go on.
READ_ERRORS: Final = (
    ForebayError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


def describe_error(exc: Exception) -> str:
    """The reason why a message is left."""
    return (
        str(exc)
        if isinstance(exc, UnreadableMessage)
        else f"it cannot be read: {type(exc).__name__}: {exc!s:.80}"
    )


def short_text(value: object, default: str = "") -> str:
    """A value that should be a short text, whatever it is."""
    return value[:200] if isinstance(value, str) and value else default


class FoundJob(NamedTuple):
    """Something that waits. `place` is for the source that found it, and for nobody else."""

    place: Hashable
    message: ForeignJob | SkippedJob


class ImportCandidate(NamedTuple):
    """Something that is about to be stored: under this key, and then to be removed from this place. One that
    was stored and not removed gets the key that it had, and no other message gets it."""

    key: str
    place: Hashable


def make_candidates(found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
    """For messages whose own key names them for all time."""
    return [
        ImportCandidate(one.message.key, one.place) for one in found if isinstance(one.message, ForeignJob)
    ]


class Source(Protocol):
    """The place where another queue keeps its jobs.

    `pages` goes through all that waits, oldest first; between two pages the caller may have removed what it
    was given. A job comes in a later page than those it needs. `default_policy` holds for jobs that say
    nothing about retries and whose task nobody knows. `distinguishes_copies` says whether messages under one
    key are
    jobs of their own, each of which `begun` gives a key of its own.
    """

    @property
    def system(self) -> str: ...

    @property
    def default_policy(self) -> RetryPolicy: ...

    @property
    def distinguishes_copies(self) -> bool: ...

    def busy(self) -> str:
        """Who seems to take jobs from there at this moment; empty if nobody does."""
        ...

    def count(self) -> int:
        """How many jobs wait."""
        ...

    def pages(self) -> Iterator[Sequence[FoundJob]]: ...

    def prepare(self, found: Sequence[FoundJob]) -> Sequence[ImportCandidate | None]:
        """Before these are stored: the key and the place of each; None for one that is gone."""
        ...

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        """Take jobs out; whether each was still there."""
        ...

    def close(self) -> None: ...
