"""Sources of an import: jobs in another queue, and where they are stored."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from forebay.domain.job import DAY_MS, OnFailure
from forebay.domain.json_values import Json
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import ForebayError

PAGE_SIZE: Final = 100  # jobs of a page
# How long a store remembers an imported message: for so long an interrupted import may be begun again.
IDEMPOTENCY_TTL_MS: Final = 30 * DAY_MS


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of another queue, with Forebay's fields.

    `key` identifies this very message: a second import that meets it again creates no second job. `policy`
    and `timeout_ms` are None where the message does not set them; then the task of an app may. `depends_on`
    are old ids of jobs that must end first. `dropped` are features of the message that a Forebay job does not
    have.
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


# Exceptions from decoding unexpected values: such a message is skipped, and the others go on.
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
    """Return the reason why a message is skipped."""
    return (
        str(exc)
        if isinstance(exc, UnreadableMessage)
        else f"it cannot be read: {type(exc).__name__}: {exc!s:.80}"
    )


def short_text(value: object, default: str = "") -> str:
    """Return a value that should be a short text, whatever it is."""
    return value[:200] if isinstance(value, str) and value else default


class FoundJob(NamedTuple):
    """A waiting job. Only its source uses `place`."""

    place: Hashable
    message: ForeignJob | SkippedJob


class ImportCandidate(NamedTuple):
    """A job that is about to be stored under this key, and then to be removed from this place. One that was
    stored and not removed keeps its key, which no other message gets."""

    key: str
    place: Hashable


def make_candidates(found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
    """Return candidates for messages whose own key identifies them for all time."""
    return [
        ImportCandidate(found_job.message.key, found_job.place)
        for found_job in found
        if isinstance(found_job.message, ForeignJob)
    ]


class Source(Protocol):
    """The place where another queue keeps its jobs.

    `pages` yields all waiting jobs, oldest first; between two pages the caller may have removed jobs. A job
    comes in a later page than those that it depends on. `default_policy` applies to jobs without retry
    options whose task is unknown. `distinguishes_copies` tells whether messages under one key are separate
    jobs, each of which `prepare` gives a key of its own.
    """

    @property
    def system(self) -> str: ...

    @property
    def default_policy(self) -> RetryPolicy: ...

    @property
    def distinguishes_copies(self) -> bool: ...

    def busy(self) -> str:
        """Return the programs that seem to take jobs from there at this moment; empty if there are none."""
        ...

    def count(self) -> int:
        """Return how many jobs wait."""
        ...

    def pages(self) -> Iterator[Sequence[FoundJob]]: ...

    def prepare(self, found: Sequence[FoundJob]) -> Sequence[ImportCandidate | None]:
        """Return the key and the place of each job before they are stored; None for one that is gone."""
        ...

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        """Remove jobs; return whether each was still there."""
        ...

    def close(self) -> None: ...
